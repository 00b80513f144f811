"""One worker, many shards: how soon all of them are read, leases lost meanwhile, cost at rest.

Kinesis is the embedded one and the lease table DynamoDB Local where it was fetched (``python -m
tests.emulators``), each a process of its own that is not counted. Children are a small C program
where there is a compiler.
"""

import contextlib
import pathlib
import shutil
import subprocess
import sys
import time

from benchmarks.measure import cpu_s, daemon, rss_mib, wait_until
from benchmarks.startup import KINDS
from benchmarks.table_server import fast_table
from benchmarks.throughput import CHILDREN
from tests.emulators import DYNAMODB_LOCAL, Emulator

HERE = pathlib.Path(__file__).parent
#: How the daemon's log begins to tell of a lease that it holds no more.
LOST = "Lost lease "


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


@contextlib.contextmanager
def busy(processes):
    """So many processes beside it that do nothing but compute."""
    running = [
        subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"], start_new_session=True)
        for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def start_once(  # noqa: PLR0913
    aws, table_url, folder, *, stream, shards, child, fleet, app, limit_s=300.0
):
    """Start a worker on a new table, wait until all is read, stay a while, and stop it."""
    log = folder / f"{app}.log"
    began = time.monotonic()
    with (
        log.open("wb") as stderr,
        daemon(
            aws,
            folder,
            stream=stream,
            app=app,
            child=child,
            table_url=table_url,
            extra=KINDS[fleet],
            stderr=stderr,
        ) as (process, progress),
    ):
        wait_until(lambda: progress.started() >= shards, limit_s, process, pause_s=0.1)
        took_s = time.monotonic() - began
        cpu = cpu_s(process.pid)
        time.sleep(12)
        resident = rss_mib(process.pid)
    return took_s, log.read_text().count(LOST), cpu, resident
