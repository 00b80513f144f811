"""Start-up of the daemon: how soon a child sees its first records."""

import sys
import time

from benchmarks.measure import daemon, wait_until
from benchmarks.throughput import CHILDREN, fill

#: What begins a table of each kind.
KINDS = {
    "2.x": "clientVersionConfig = CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1",
    "3.x": "",
}


def startup_rows(aws, folder, quick):
    """Process start to the first processRecords: a new application, then a restart."""
    client = aws.client("kinesis")
    fill(client, "start", 4, 400, 100)
    for _row in rows_of(aws, folder, client, "start-unmeasured", "2.x", ""):
        pass  # modules are compiled, and those of the servers are loaded
    for run in range(1 if quick else 3):
        for kind, extra in KINDS.items():
            app = f"start-{kind.replace('.', '')}-{run}"
            yield from rows_of(aws, folder, client, app, kind, extra)


def rows_of(aws, folder, client, app, kind, extra):
    """Both rows of one table."""
    command = f"{sys.executable} {CHILDREN['kclpy']}"
    for case, bound in (("new application", 3.0), ("restart, new worker id", 2.0)):
        if case != "new application":
            fill_more(client, "start")
        started = time.monotonic()
        one = daemon(aws, folder, stream="start", app=app, child=command, extra=extra)
        with one as (process, progress):
            first = lambda at=progress: at.started() and at.records() > 0  # noqa: E731
            wait_until(first, 60, process)
            took = time.monotonic() - started
            time.sleep(2)  # let every shard checkpoint
        yield {
            "case": f"{case}, {kind}",
            "first records after s": f"{took:.2f}",
            "bound": f"{bound:.0f}",
        }


def fill_more(client, stream):
    """A few more records, so that a restart has something to deliver."""
    client.put_records(
        StreamName=stream,
        Records=[{"Data": b"x", "PartitionKey": f"more-{i}"} for i in range(100)],
    )
