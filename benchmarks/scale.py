"""One worker, many shards: how soon all of them are read, leases lost meanwhile, cost at rest.

Kinesis is the embedded one and the lease table DynamoDB Local where it was fetched (``python -m
tests.emulators``), each a process of its own that is not counted. Children are a small C program
where there is a compiler, and kclpy programs, executed one by one or forked from a template. Some of
these import boto3 and pandas, where pandas is installed. Beside the C children plain boto3 makes the
calls of a worker on the same shards. The last row has ten busy processes beside it, in a session of
their own. On request Java's daemons start on 10 and 100 shards and ours beside them, all on npm
kinesis-local and DynamoDB Local, which Java can talk to.

``python -m benchmarks.scale_curve`` draws what this prints.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time
import types
from dataclasses import dataclass
from importlib.util import find_spec

from benchmarks.failover import StandInAws
from benchmarks.idle import peer
from benchmarks.measure import cpu_s, daemon, rss_mib, wait_until
from benchmarks.prefork import parent, pss_mb
from benchmarks.table_server import fast_table
from benchmarks.throughput import CHILDREN, fill
from tests.emulators import DYNAMODB_LOCAL, Emulator
from tests.peer import fetched

HERE = pathlib.Path(__file__).parent
#: What ours and Java log of a lease that they hold no more, in lower case.
LOST = "lost lease "
#: How long the worker is watched once all is read: longer than the failover time.
REST_S = 20.0
#: The same for plain boto3, and how long it may start.
PEER_S, PEER_STARTS_S = 15.0, 10.0
#: Calls a minute and shard while it rests: of GetRecords and UpdateItem, as the daemon's.
PEER_RATES = (40.0, 9.0)
GUARDIAN = b"guardian_main.py"
BUSY = "while True: pass"
PREFORK = "childPrefork = true"
#: Versions of the MultiLangDaemon.
JAVA = ("3.1.3", "2.5.4")
#: How long a worker may take until it reads all.
STARTS_S, JAVA_STARTS_S = 300.0, 900.0


@dataclass(frozen=True)
class Case:
    """A row."""

    shards: int
    children: str
    extra: str = ""
    busy: int = 0


def cases(quick):
    """Few shards only, or all."""
    sizes = (10, 100) if quick else (10, 100, 300, 1000)
    yield from (Case(shards, "C") for shards in sizes)
    for shards in sizes[:3]:
        yield Case(shards, "kclpy")
        yield Case(shards, "kclpy, prefork", PREFORK)
    if find_spec("pandas"):
        yield Case(sizes[-1] if quick else 300, "kclpy, boto3, pandas, prefork", PREFORK)
    yield Case(sizes[-1], "C", busy=10)


def command_of(children, folder):
    """Command line of a child."""
    if children == "C":
        return discarding(folder)
    imports = "import boto3\nimport pandas\n" if "pandas" in children else ""
    program = folder / f"{len(imports)}_child.py"
    program.write_text(imports + CHILDREN["kclpy"].read_text())
    return f"{sys.executable} {program}"


def discarding(folder):
    """Command of a child that costs as little as there is."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return f"{sys.executable} -S {CHILDREN['discard']}"
    program = folder / "discard_child"
    if not program.exists():
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
def busy(count):
    """Processes that only compute, all in one session, as another service has them."""
    command = f"for _ in $(seq {count}); do {sys.executable} -S -c '{BUSY}' & done; wait"
    process = subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def scale_rows(aws, folder, quick):
    """One row a number of shards and kind of children; a new application of 3.x each time."""
    client = aws.client("kinesis")
    filled = set()
    with lease_table() as (table_url, name):
        for number, case in enumerate(cases(quick)):
            stream = f"scale-{case.shards}"
            if stream not in filled:
                fill(client, stream, case.shards, case.shards * 2, 100)
                filled.add(stream)
            row = {
                "shards": case.shards,
                "children": case.children,
                "table": name,
                "busy processes": case.busy,
                "load": f"{os.getloadavg()[0]:.0f}",
            }
            command = command_of(case.children, folder)
            with busy(case.busy):
                app = f"{stream}-{number}"
                row |= start_once(aws, table_url, folder, app, case.shards, command, case.extra)
            row["boto3, CPU s a minute"] = ""
            if case.children == "C" and not case.busy:
                used_s = peer_s(aws, table_url, stream, f"{stream}-{number}")
                row["boto3, CPU s a minute"] = f"{used_s:.1f}"
            yield row


def scale_beside_java(aws, folder, quick):
    """Yield a row a worker and number of shards: ours, then Java's, on the same servers.

    Raises:
        SystemExit: the servers or Java's daemons can't be had.
    """
    del aws, quick
    try:
        fetched.stand_in()
        for version in JAVA:
            fetched.multilang(version)
    except fetched.Unavailable as error:
        raise SystemExit(f"Java's rows: {error}") from error
    with StandInAws() as place:
        for shards in (10, 100):
            stream = f"scale-{shards}"
            fill(place.client("kinesis"), stream, shards, shards * 2, 100)
            for number, java in enumerate((None, *JAVA)):
                row = {
                    "shards": shards,
                    "worker": "kcl-mld" if java is None else f"Java {java}",
                    "load": f"{os.getloadavg()[0]:.0f}",
                }
                app, url = f"{stream}-{number}", place.dynamodb_url
                command = discarding(folder)
                yield row | start_once(place, url, folder, app, shards, command, java=java)


def start_once(aws, table_url, folder, app, shards, child, extra="", java=None):
    """Start a worker on a new table, wait until all is read, stay a while, and stop it."""
    stream = f"scale-{shards}"
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
            extra=extra,
            stderr=stderr,
            java=java,
        ) as (process, progress),
    ):
        starts_s = STARTS_S if java is None else JAVA_STARTS_S
        wait_until(lambda: progress.started() >= shards, starts_s, process, pause_s=0.1)
        took_s, start_cpu_s = time.monotonic() - began, cpu_s(process.pid)
        time.sleep(REST_S)
        rest_s, resident = cpu_s(process.pid) - start_cpu_s, rss_mib(process.pid)
        children_mib, lost = memory_mib(process.pid), lost_in(log)
    return {
        "all read after s": f"{took_s:.1f}",
        "CPU s until then": f"{start_cpu_s:.1f}",
        "leases lost": lost,
        "CPU s a minute afterwards": f"{rest_s * 60 / REST_S:.1f}",
        "RSS MiB": f"{resident:.0f}",
        "children in all, MiB": f"{children_mib:.0f}",
        "expired at the stop": lost_in(log) - lost,
    }


def lost_in(log):
    """Leases that a worker says it lost."""
    return log.read_text().lower().count(LOST)


def memory_mib(daemon_pid):
    """Of the children of a daemon, their template if they have one, and what they started."""
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if GUARDIAN not in (path / "cmdline").read_bytes():
                parents[int(path.name)] = parent(path.name)
    family = {daemon_pid}
    while more := {pid for pid, of in parents.items() if of in family} - family:
        family |= more
    found = 0.0
    for pid in family - {daemon_pid}:
        with contextlib.suppress(OSError, StopIteration):
            found += pss_mb(pid) * 1e6 / 2**20
    return found


def peer_s(aws, table_url, stream, table):
    """CPU s a minute of plain boto3 that reads the stream and renews the leases of a table."""
    place = types.SimpleNamespace(url=table_url)
    with peer(aws, place, stream, *PEER_RATES, table=table) as process:
        time.sleep(PEER_STARTS_S)
        before, began = cpu_s(process.pid), time.monotonic()
        time.sleep(PEER_S)
        return (cpu_s(process.pid) - before) * 60 / (time.monotonic() - began)
