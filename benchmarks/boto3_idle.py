"""The peer of an idle daemon: its calls on plain boto3, each shard at a steady pace.

A few threads, each with a share of the shards and one call at a time: nothing is handed over and
no thread waits for another one, so this is about the least that boto3 can do it for.
"""

import heapq
import itertools
import sys
import threading
import time

import boto3
import botocore.config

THREADS = 16


def walk(calls):
    """Make each call at its pace for ever.

    Args:
        calls: pairs of a function and the seconds between two calls of it.
    """
    now, number = time.monotonic(), itertools.count()
    due = [
        (now + period_s * place / len(calls), next(number), call, period_s)
        for place, (call, period_s) in enumerate(calls)
    ]
    heapq.heapify(due)
    while True:
        at, _, call, period_s = heapq.heappop(due)
        time.sleep(max(0.0, at - time.monotonic()))
        call()
        heapq.heappush(due, (at + period_s, next(number), call, period_s))


def reader(kinesis, stream, shard_id):
    """A function that reads a shard once more."""
    start = {"StreamName": stream, "ShardId": shard_id, "ShardIteratorType": "LATEST"}
    iterator = kinesis.get_shard_iterator(**start)["ShardIterator"]

    def read():
        nonlocal iterator
        iterator = kinesis.get_records(ShardIterator=iterator, Limit=10_000)["NextShardIterator"]

    return read


def renewer(dynamodb, table, shard_id):
    """A function that raises the counter of a lease, on condition that nobody else did."""
    key = {"leaseKey": {"S": shard_id}}
    counter = int(dynamodb.get_item(TableName=table, Key=key)["Item"]["leaseCounter"]["N"])

    def renew():
        nonlocal counter
        dynamodb.update_item(
            TableName=table,
            Key=key,
            UpdateExpression="SET leaseCounter = :new",
            ConditionExpression="leaseCounter = :old",
            ExpressionAttributeValues={
                ":old": {"N": str(counter)},
                ":new": {"N": str(counter + 1)},
            },
        )
        counter += 1

    return renew


def main():
    """Arguments: stream, calls of GetRecords and of UpdateItem a minute and shard, table."""
    stream, gets, updates, table = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    config = botocore.config.Config(max_pool_connections=THREADS)
    kinesis = boto3.client("kinesis", config=config)
    dynamodb = boto3.client("dynamodb", config=config)
    pages = kinesis.get_paginator("list_shards").paginate(StreamName=stream)
    shards = [one["ShardId"] for page in pages for one in page["Shards"]]
    for share in (shards[first::THREADS] for first in range(THREADS)):
        calls = [
            pair
            for shard_id in share
            for pair in (
                (reader(kinesis, stream, shard_id), 60 / gets),
                (renewer(dynamodb, table, shard_id), 60 / updates),
            )
        ]
        if calls:
            threading.Thread(target=walk, args=(calls,), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
