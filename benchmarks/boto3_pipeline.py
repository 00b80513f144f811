"""The peer: the same pipeline as one would write it on plain boto3 and json.dumps.

A thread a shard: get_records, one JSON line a batch, the child's answers. No leases, no
checkpoints in a table, no supervision; only what moves records to a child.
"""

import base64
import json
import shlex
import subprocess
import sys
import threading
import time

import boto3
import botocore.config


def message(answer):
    """The processRecords line of one answer."""
    records = [
        {
            "data": base64.b64encode(record["Data"]).decode(),
            "partitionKey": record["PartitionKey"],
            "sequenceNumber": record["SequenceNumber"],
            "approximateArrivalTimestamp": int(
                record["ApproximateArrivalTimestamp"].timestamp() * 1000
            ),
            "subSequenceNumber": 0,
            "action": "record",
        }
        for record in answer["Records"]
    ]
    return {
        "action": "processRecords",
        "records": records,
        "millisBehindLatest": answer["MillisBehindLatest"],
    }


def talk(child, body):
    """One action: write its line, serve checkpoint requests, return at the status."""
    child.stdin.write(json.dumps(body).encode() + b"\n")
    child.stdin.flush()
    while True:
        line = child.stdout.readline().strip()
        if not line:
            continue
        answer = json.loads(line)
        if answer["action"] == "status":
            return
        reply = {"action": "checkpoint", "sequenceNumber": None, "subSequenceNumber": None}
        child.stdin.write(json.dumps(reply | {"error": None}).encode() + b"\n")
        child.stdin.flush()


def pump(client, stream, shard_id, command, limit, idle_s):
    """Feed one child from one shard for ever."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    talk(
        child,
        {
            "action": "initialize",
            "shardId": shard_id,
            "sequenceNumber": "TRIM_HORIZON",
            "subSequenceNumber": 0,
        },
    )
    iterator = client.get_shard_iterator(
        StreamName=stream, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    while True:
        started = time.monotonic()
        answer = client.get_records(ShardIterator=iterator, Limit=limit)
        iterator = answer["NextShardIterator"]
        if answer["Records"]:
            talk(child, message(answer))
        time.sleep(max(0.0, idle_s - (time.monotonic() - started)))


def main():
    """Arguments: stream, child command, limit, idle seconds; the endpoint comes from the environment."""
    stream, command, limit, idle_s = sys.argv[1:5]
    client = boto3.client("kinesis", config=botocore.config.Config(max_pool_connections=64))
    shards = [one["ShardId"] for one in client.list_shards(StreamName=stream)["Shards"]]
    for shard_id in shards:
        threading.Thread(
            target=pump,
            args=(client, stream, shard_id, shlex.split(command), int(limit), float(idle_s)),
            daemon=True,
        ).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
