"""CPU per MB and records a second, through a discarding and a kclpy child, against boto3."""

import os
import pathlib
import sys
import time

from benchmarks.measure import cpu_s, daemon, peer, rss_mib, wait_until

HERE = pathlib.Path(__file__).parent
CHILDREN = {"discard": HERE / "discard_child.py", "kclpy": HERE / "kclpy_child.py"}
IDLE_S = 0.2
PUT = 500


def key_of(number):
    """Of a record: each has its own."""
    return f"key-{number}"


def fill(client, stream, shards, records, size, key=key_of):
    """Create a stream and put ``records`` of ``size`` bytes, spread evenly over its shards."""
    client.create_stream(StreamName=stream, ShardCount=shards)
    while (
        client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"][
            "StreamStatus"
        ]
        != "ACTIVE"
    ):
        time.sleep(0.05)
    step = 2**128 // shards
    for start in range(0, records, PUT):
        client.put_records(
            StreamName=stream,
            Records=[
                {
                    "Data": os.urandom(size),
                    "PartitionKey": key(start + i),
                    "ExplicitHashKey": str(((start + i) % shards) * step),
                }
                for i in range(min(PUT, records - start))
            ],
        )


def one_run(running, records):
    """(CPU s of the process, wall s, peak MiB) from the first initialize to the last record."""
    process, progress = running
    wait_until(lambda: progress.started() > 0, 60, process)
    cpu, wall = cpu_s(process.pid), time.monotonic()
    wait_until(lambda: progress.records() >= records, 600, process)
    return cpu_s(process.pid) - cpu, time.monotonic() - wall, rss_mib(process.pid, "VmHWM")


def cases(quick):
    """(shards, size, records, limit, child): 1 KB in answers of 5 and 10 MB, 100 B in 10,000s."""
    scale = 4 if quick else 1
    for child in ("discard", "kclpy"):
        for shards in (1, 4):
            for limit in (5_000, 10_000):
                yield shards, 1000, 200_000 // scale, limit, child
            yield shards, 100, 400_000 // scale, 10_000, child


def rows(aws, folder, quick):
    """Yield one row a case; every pair is run back to back on the same stream."""
    client = aws.client("kinesis")
    filled = {}
    for number, (shards, size, records, limit, child) in enumerate(cases(quick)):
        stream = f"load-{shards}-{size}"
        if stream not in filled:
            fill(client, stream, shards, records, size)
            filled[stream] = records
        command = f"{sys.executable} {CHILDREN[child]}"
        extra = f"maxRecords = {limit}\nidleTimeBetweenReadsInMillis = {int(IDLE_S * 1000)}"
        with daemon(
            aws, folder, stream=stream, app=f"load{number}", child=command, extra=extra
        ) as run:
            ours = one_run(run, records)
        with peer(aws, folder, stream=stream, child=command, limit=limit, idle_s=IDLE_S) as run:
            theirs = one_run(run, records)
        megabytes = records * size / 1e6
        yield {
            "case": f"{size} B, {shards} shard(s), limit {limit}, {child}",
            "CPU s/100 MB": f"{ours[0] / megabytes * 100:.2f}",
            "boto3": f"{theirs[0] / megabytes * 100:.2f}",
            "ratio": f"{theirs[0] / ours[0]:.1f}x",
            "records/s": f"{records / ours[1]:,.0f}",
            "boto3 rec/s": f"{records / theirs[1]:,.0f}",
            "peak MiB": f"{ours[2]:.0f}",
        }
