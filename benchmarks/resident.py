"""Start-up, idle cost and memory of the daemon itself; its children are not counted."""

import sys
import time

from benchmarks.measure import cpu_s, daemon, rss_mib, wait_until
from benchmarks.throughput import CHILDREN, fill

IDLE_WINDOW_S = 60


def startup_rows(aws, folder, quick):
    """Process start to the first processRecords: a new application, then a restart."""
    client = aws.client("kinesis")
    fill(client, "start", 4, 400, 100)
    command = f"{sys.executable} {CHILDREN['kclpy']}"
    for run in range(1 if quick else 3):
        for case, bound in (("new application", 3.0), ("restart, new worker id", 2.0)):
            if case != "new application":
                fill_more(client, "start")
            started = time.monotonic()
            with daemon(aws, folder, stream="start", app=f"start{run}", child=command) as (
                process,
                progress,
            ):
                wait_until(lambda: progress.started() and progress.records() > 0, 60, process)
                took = time.monotonic() - started
                time.sleep(2)  # let every shard checkpoint
            yield {"case": case, "first records after s": f"{took:.2f}", "bound": f"{bound:.0f}"}


def fill_more(client, stream):
    """A few more records, so that a restart has something to deliver."""
    client.put_records(
        StreamName=stream,
        Records=[{"Data": b"x", "PartitionKey": f"more-{i}"} for i in range(100)],
    )


def idle_rows(aws, folder, quick):
    """RSS and CPU of a caught-up daemon with 4 shards; RSS with 300."""
    client = aws.client("kinesis")
    window = 10 if quick else IDLE_WINDOW_S
    for shards in (4,) if quick else (4, 300):
        stream = f"idle-{shards}"
        fill(client, stream, shards, shards * 2, 100)
        command = f"{sys.executable} -S {CHILDREN['discard']}"
        with daemon(aws, folder, stream=stream, app=stream, child=command) as (process, progress):
            wait_until(lambda: progress.started() == shards, 120, process)  # noqa: B023
            time.sleep(5)
            before = cpu_s(process.pid)
            time.sleep(window)
            cpu = (cpu_s(process.pid) - before) * 60 / window
            yield {
                "case": f"idle, {shards} shards",
                "RSS MiB": f"{rss_mib(process.pid):.0f}",
                "peak MiB": f"{rss_mib(process.pid, 'VmHWM'):.0f}",
                "CPU s/min": f"{cpu:.2f}",
            }
