"""Start-up of the daemon: how soon a child sees its first records."""

import sys
import time

from benchmarks.measure import daemon, wait_until
from benchmarks.throughput import CHILDREN, fill


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
