"""What watching a fleet costs: requests and CPU seconds a minute, without and with ``--tip``.

``python -m benchmarks.watching --shards 1000 --seconds 120``
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import termios
import threading
import time

from benchmarks.measure import cpu_s, rss_mib
from kcl_mld.local.embedded import EmbeddedAws
from kcl_mld_protocol.conform.daemon import properties_text

NAME = "watched"
#: Items of one BatchWriteItem.
_BATCH = 25


def items_of(kinesis):
    """A row for each shard, as ten workers would leave it."""
    shards = kinesis.get_paginator("list_shards").paginate(StreamName=NAME)
    return [
        {
            "leaseKey": {"S": shard["ShardId"]},
            "leaseOwner": {"S": f"w{number % 10}"},
            "leaseCounter": {"N": "1"},
            "checkpoint": {"S": "TRIM_HORIZON"},
            "checkpointSubSequenceNumber": {"N": "0"},
            "ownerSwitchesSinceCheckpoint": {"N": "0"},
            "startingHashKey": {"S": shard["HashKeyRange"]["StartingHashKey"]},
            "endingHashKey": {"S": shard["HashKeyRange"]["EndingHashKey"]},
        }
        for number, shard in enumerate(one for page in shards for one in page["Shards"])
    ]


def renew(dynamodb, items, counter):
    """All rows at once, as their owners do one by one."""
    for item in items:
        item["leaseCounter"] = {"N": str(counter)}
    for start in range(0, len(items), _BATCH):
        requests = [{"PutRequest": {"Item": item}} for item in items[start : start + _BATCH]]
        dynamodb.batch_write_item(RequestItems={NAME: requests})


def drain(screen):
    """Read what is drawn, until nobody can draw any more."""
    with contextlib.suppress(OSError):
        while os.read(screen, 65536):
            pass


def watched(aws, file, seconds, *words):
    """Calls and CPU seconds a minute of ``leases watch``, after it has started, and its memory.

    It draws on a terminal, which costs more than the lines of events elsewhere.
    """
    screen, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (50, 160))
    reader = threading.Thread(target=drain, args=(screen,), daemon=True)
    reader.start()
    process = subprocess.Popen(
        [sys.executable, "-m", "kcl_mld", "leases", "watch", file, *words],
        env=aws.environment_for_child(),
        stdout=terminal,
    )
    os.close(terminal)
    time.sleep(15)
    before, began, used = aws.control()["calls"], time.monotonic(), cpu_s(process.pid)
    time.sleep(seconds)
    calls, minutes = aws.control()["calls"], (time.monotonic() - began) / 60
    used, memory = cpu_s(process.pid) - used, rss_mib(process.pid)
    process.terminate()
    process.wait()
    reader.join()
    os.close(screen)
    rates = {
        name: round((count - before.get(name, 0)) / minutes, 1)
        for name, count in calls.items()
        if count > before.get(name, 0) and not name.endswith("BatchWriteItem")
    }
    return f"{used / minutes:.1f} s of CPU and {rates} calls a minute; {memory:.0f} MiB"


def main(argv=None):
    """Print a line for each way of watching."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=120)
    arguments = parser.parse_args(argv)
    with EmbeddedAws(options=("--create-s", "0.1")) as aws, tempfile.TemporaryDirectory() as folder:
        kinesis, dynamodb = aws.client("kinesis"), aws.client("dynamodb")
        kinesis.create_stream(StreamName=NAME, ShardCount=arguments.shards)
        kinesis.get_waiter("stream_exists").wait(StreamName=NAME)
        dynamodb.create_table(
            TableName=NAME,
            KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        items, over = items_of(kinesis), threading.Event()
        renew(dynamodb, items, 1)
        print(f"{len(items)} rows", flush=True)

        def go_on():
            counter = 1
            while not over.wait(3):
                counter += 1
                renew(dynamodb, items, counter)

        thread = threading.Thread(target=go_on)
        thread.start()
        file = pathlib.Path(folder, "app.properties")
        values = {
            "executableName": "true",
            "applicationName": NAME,
            "streamName": NAME,
            "AwsCredentialsProvider": "DefaultCredentialsProvider",
            "regionName": aws.region,
        }
        file.write_text(properties_text(values))
        try:
            for words in ((), ("--tip",)):
                print(*words, watched(aws, str(file), arguments.seconds, *words), flush=True)
        finally:
            over.set()
            thread.join()


if __name__ == "__main__":
    main()
