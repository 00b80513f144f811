"""What a caught-up daemon costs: CPU, memory and calls of 4 and 300 idle shards.

The peer makes the same calls at the same rates with plain boto3 and does nothing else: no leases,
no children, no decisions. Servers and children are processes of their own and not counted.
"""

import contextlib
import subprocess
import sys
import time

from benchmarks.measure import cpu_s, daemon, rss_mib, wait_until
from benchmarks.throughput import CHILDREN, fill

WINDOW_S = 60
SETTLE_S = 5
GET, UPDATE = "kinesis.GetRecords", "dynamodb.UpdateItem"


def idle_rows(aws, folder, quick):
    """One row a number of shards; figures are per minute."""
    client = aws.client("kinesis")
    for shards in (4,) if quick else (4, 300):
        stream = f"idle-{shards}"
        fill(client, stream, shards, shards * 2, 100)
        yield one_row(aws, folder, stream, shards, 10 if quick else WINDOW_S)


def one_row(aws, folder, stream, shards, window_s):
    """The daemon, then the peer at the rates that the daemon had."""
    command = f"{sys.executable} -S {CHILDREN['discard']}"
    with daemon(aws, folder, stream=stream, app=stream, child=command) as (process, progress):
        wait_until(lambda: progress.started() == shards, 120, process)
        ours = Usage(aws, process.pid, window_s)
        resident, peak = rss_mib(process.pid), rss_mib(process.pid, "VmHWM")
    with peer(aws, stream, ours.calls[GET] / shards, ours.calls[UPDATE] / shards) as process:
        theirs = Usage(aws, process.pid, window_s)
    return {
        "case": f"idle, {shards} shards",
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


class Usage:
    """What a process did in a window that begins when it has settled, per minute."""

    def __init__(self, aws, pid, window_s):
        time.sleep(SETTLE_S)
        calls, cpu, began = aws.control()["calls"], cpu_s(pid), time.monotonic()
        time.sleep(window_s)
        minutes = (time.monotonic() - began) / 60
        self.cpu_s = (cpu_s(pid) - cpu) / minutes
        after = aws.control()["calls"]
        self.calls = {name: (after.get(name, 0) - calls.get(name, 0)) / minutes for name in after}
        self.ms_a_call = self.cpu_s * 1000 / (self.calls[GET] + self.calls[UPDATE])


@contextlib.contextmanager
def peer(aws, stream, gets_a_minute, updates_a_minute):
    """Plain boto3 on the stream and on the daemon's table, which has the stream's name."""
    rates = (str(gets_a_minute), str(updates_a_minute))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.boto3_idle", stream, *rates],
        stdin=subprocess.PIPE,
        env=aws.environment_for_child(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
