"""One worker, many shards: how soon all of them are read, leases lost meanwhile, cost at rest.

Kinesis is the embedded one and the lease table DynamoDB Local where it was fetched (``python -m
tests.emulators``), each a process of its own that is not counted. Children are a small C program
where there is a compiler.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

from benchmarks.measure import cpu_s, daemon, rss_mib, wait_until
from benchmarks.table_server import fast_table
from benchmarks.throughput import CHILDREN, fill
from tests.emulators import DYNAMODB_LOCAL, Emulator

HERE = pathlib.Path(__file__).parent
#: How the daemon's log begins to tell of a lease that it holds no more.
LOST = "Lost lease "
#: How long the worker is watched once all is read: longer than the failover time.
REST_S = 30.0


def discarding(folder):
    """Command of a child that costs as little as there is."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return f"{sys.executable} -S {CHILDREN['discard']}"
    program = folder / "discard_child"
    subprocess.run([compiler, "-O1", "-o", program, HERE / "discard_child.c"], check=True)
    return str(program)


@contextlib.contextmanager
def lease_table():
    """URL of a DynamoDB that is fast enough, and its name."""
    if DYNAMODB_LOCAL.missing() is None:
        with Emulator(DYNAMODB_LOCAL) as emulator:
            yield emulator.url, "DynamoDB Local"
    else:
        with fast_table() as table:
            yield table.url, "table_server"


def scale_rows(aws, folder, quick):
    """One row a number of shards; a new application of 3.x each time."""
    child, fill_client = discarding(folder), aws.client("kinesis")
    with lease_table() as (table_url, name):
        for shards in (10, 100) if quick else (10, 100, 300, 1000):
            stream = f"scale-{shards}"
            fill(fill_client, stream, shards, shards * 2, 100)
            started = start_once(aws, table_url, folder, stream, shards, child)
            yield {"shards": shards, "table": name, "load": f"{os.getloadavg()[0]:.0f}", **started}


def start_once(aws, table_url, folder, stream, shards, child):
    """Start a worker on a new table, wait until all is read, stay a while, and stop it."""
    log = folder / f"{stream}.log"
    began = time.monotonic()
    with (
        log.open("wb") as stderr,
        daemon(
            aws, folder, stream=stream, app=stream, child=child, table_url=table_url, stderr=stderr
        ) as (process, progress),
    ):
        wait_until(lambda: progress.started() >= shards, 300.0, process, pause_s=0.1)
        took_s, start_cpu_s = time.monotonic() - began, cpu_s(process.pid)
        time.sleep(REST_S)
        rest_s, resident = cpu_s(process.pid) - start_cpu_s, rss_mib(process.pid)
    return {
        "all read after s": f"{took_s:.1f}",
        "CPU s until then": f"{start_cpu_s:.1f}",
        "leases lost": log.read_text().count(LOST),
        "CPU s a minute afterwards": f"{rest_s * 60 / REST_S:.1f}",
        "RSS MiB": f"{resident:.0f}",
    }
