"""What a caught-up daemon costs: CPU, memory and calls of 4 and 300 idle shards.

The peer makes the same calls at the same rates with plain boto3 and does nothing else: no leases,
no children, no decisions. Servers and children are processes of their own and not counted.
"""

import contextlib
import subprocess
import sys
import time

from benchmarks.measure import cpu_s, daemon, rss_mib, wait_until
from benchmarks.startup import KINDS
from benchmarks.table_server import fast_table
from benchmarks.throughput import CHILDREN, fill

WINDOW_S = 60
SETTLE_S = 5
GET, UPDATE = "kinesis.GetRecords", "dynamodb.UpdateItem"
#: How a log line begins of a lease that the daemon no longer holds.
LOST = "Lost lease "


def idle_rows(aws, folder, quick):
    """One row a number of shards and kind of fleet; figures are per minute."""
    client = aws.client("kinesis")
    cases = ((4, "2.x"), (4, "3.x"), (300, "3.x"))
    for shards, fleet in cases[: 2 if quick else None]:
        stream = f"idle-{shards}-{fleet[0]}"
        fill(client, stream, shards, shards * 2, 100)
        with fast_table() as table:
            yield one_row(aws, table, folder, stream, shards, fleet, 10 if quick else WINDOW_S)


def one_row(aws, table, folder, stream, shards, fleet, window_s):
    """The daemon, then the peer at the rates that the daemon had."""
    command = f"{sys.executable} -S {CHILDREN['discard']}"
    log = folder / f"{stream}.log"
    began = time.monotonic()
    with (
        log.open("wb") as stderr,
        daemon(
            aws,
            folder,
            stream=stream,
            app=stream,
            child=command,
            table_url=table.url,
            extra=KINDS[fleet],
            stderr=stderr,
        ) as (process, progress),
    ):
        wait_until(lambda: progress.started() == shards, 120, process)
        started_s = time.monotonic() - began
        ours = Usage(aws, table, process.pid, window_s)
        resident, peak = rss_mib(process.pid), rss_mib(process.pid, "VmHWM")
    rates = (ours.calls[GET] / shards, ours.calls[UPDATE] / shards)
    with peer(aws, table, stream, *rates) as process:
        theirs = Usage(aws, table, process.pid, window_s)
    return {
        "case": f"idle, {shards} shards, {fleet}",
        "all children after s": f"{started_s:.1f}",
        "leases lost": log.read_text().count(LOST),
        "RSS MiB": f"{resident:.0f}",
        "peak MiB": f"{peak:.0f}",
        "CPU s/min": f"{ours.cpu_s:.2f}",
        "boto3": f"{theirs.cpu_s:.2f}",
        "GetRecords": f"{ours.calls[GET]:.0f}",
        "UpdateItem": f"{ours.calls[UPDATE]:.0f}",
        "ms a call": f"{ours.ms_a_call:.2f}",
        "boto3 ms": f"{theirs.ms_a_call:.2f}",
        "ratio": f"{theirs.ms_a_call / ours.ms_a_call:.1f}x",
    }


def calls_so_far(aws, table):
    """Service and operation -> how often both servers were asked for it."""
    asked = {f"dynamodb.{name}": count for name, count in table.calls().items()}
    return aws.control()["calls"] | asked


class Usage:
    """What a process did in a window that begins when it has settled, per minute."""

    def __init__(self, aws, table, pid, window_s):
        time.sleep(SETTLE_S)
        calls, cpu, began = calls_so_far(aws, table), cpu_s(pid), time.monotonic()
        time.sleep(window_s)
        minutes = (time.monotonic() - began) / 60
        self.cpu_s = (cpu_s(pid) - cpu) / minutes
        after = calls_so_far(aws, table)
        self.calls = {name: (after.get(name, 0) - calls.get(name, 0)) / minutes for name in after}
        self.ms_a_call = self.cpu_s * 1000 / (self.calls[GET] + self.calls[UPDATE])


@contextlib.contextmanager
def peer(aws, place, stream, gets_a_minute, updates_a_minute, table=None):
    """Plain boto3 on the stream and on the daemon's table, which has the stream's name by default."""
    rates = (str(gets_a_minute), str(updates_a_minute), table or stream)
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.boto3_idle", stream, *rates],
        stdin=subprocess.PIPE,
        env=aws.environment_for_child() | {"AWS_ENDPOINT_URL_DYNAMODB": place.url},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
