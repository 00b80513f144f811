"""CPU of a Python child, alone and with the daemon: the stand-in beside amazon_kclpy 3.2.0.

Alone, a child gets the same line again and again through a pipe, and its answers are read; with the
daemon, both are counted. A round runs each library once, and ratios are those within a round. The
child decodes each record. On request a Java MultiLangDaemon runs with amazon_kclpy beside ours, on
the embedded AWS behind nghttpx, as Java asks Kinesis by HTTP/2.
"""

import base64
import fcntl
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys

from benchmarks.measure import cpu_s, daemon, wait_until
from benchmarks.throughput import CHILDREN, IDLE_S, fill
from kcl_mld.children.adapters.kclpy_path import SHIM
from tests.kclpy_cache import kclpy
from tests.peer import fetched

#: As the daemon asks for.
PIPE_BYTES = 2**20
#: Of a line: what an answer of GetRecords holds at most.
RECORDS = 10_000
FIRST_NUMBER = 49590338271490256608559692538361571095921575989136588898
JAVA = "3.1.3"
#: As users run it, and without CBOR, which the embedded AWS does not speak.
JVM = ("java", "-Daws.cborEnabled=false")


def libraries(folder):
    """``PYTHONPATH`` by name.

    Raises:
        SystemExit: amazon_kclpy can't be had.
    """
    real = kclpy()
    if real is None:
        raise SystemExit("amazon_kclpy can't be fetched")
    without = folder / "without"
    without.mkdir(exist_ok=True)
    (without / "msgspec.py").write_text("raise ImportError\n")
    return {
        "amazon_kclpy": str(real),
        "stand-in, json": f"{without}:{SHIM}",
        "stand-in, msgspec": str(SHIM),
    }


def encoded(**message):
    """A line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def batch_of(size):
    """A line of records as the daemon writes it."""
    records = [
        {
            "data": base64.b64encode(os.urandom(size)).decode(),
            "partitionKey": f"key-{number}",
            "sequenceNumber": str(FIRST_NUMBER + number),
            "approximateArrivalTimestamp": 1_500_000_000_123 + number,
            "subSequenceNumber": 0,
            "action": "record",
        }
        for number in range(RECORDS)
    ]
    return encoded(action="processRecords", records=records, millisBehindLatest=0)


INITIALIZE = encoded(action="initialize", shardId="s", sequenceNumber="1", subSequenceNumber=0)
ANSWER = encoded(action="checkpoint", sequenceNumber=None, subSequenceNumber=None, error=None)


def say(stdin, answers, line):
    """Write a line, and serve what the child asks for until its status.

    Raises:
        SystemExit: the child has ended.
    """
    rest = memoryview(line)
    while rest:
        rest = rest[stdin.write(rest) :]
    while b'"status"' not in (answer := answers.readline()):
        if not answer:
            raise SystemExit("the child has ended")
        if b'"checkpoint"' in answer:
            stdin.write(ANSWER)


def alone(folder, path, use, batch, lines):
    """CPU s of a child for a line so many times, its start excluded."""
    child = subprocess.Popen(
        [sys.executable, CHILDREN["kclpy"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=os.environ | {"PYTHONPATH": path, "BENCH_OUT": str(folder), "BENCH_USE": use},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child, open(child.stdout.fileno(), "rb", closefd=False) as answers:
        fcntl.fcntl(child.stdin, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        say(child.stdin, answers, INITIALIZE)
        began = cpu_s(child.pid)
        for _ in range(lines):
            say(child.stdin, answers, batch)
        spent = cpu_s(child.pid) - began
        child.stdin.close()
    return spent


def with_daemon(aws, folder, stream, app, path, records, shards=1, java=None):
    """(CPU s of the worker, of its children) from the last initialize to the last record.

    Args:
        path: ``PYTHONPATH`` of the children; None = what the daemon gives them.
    """
    words = ["env", "BENCH_USE=binary_data", *([f"PYTHONPATH={path}"] if path else [])]
    command = " ".join([*words, sys.executable, str(CHILDREN["kclpy"])])
    extra = f"maxRecords = {RECORDS}\nidleTimeBetweenReadsInMillis = {int(IDLE_S * 1000)}"
    with daemon(
        aws, folder, stream=stream, app=app, child=command, extra=extra, java=java, jvm=JVM
    ) as (
        process,
        progress,
    ):
        wait_until(lambda: progress.started() >= shards, 300, process)
        began = {int(one.name): cpu_s(int(one.name)) for one in progress.folder.iterdir()}
        began_s = cpu_s(process.pid)
        wait_until(lambda: progress.records() >= records, 600, process)
        spent_s = cpu_s(process.pid) - began_s
        children = [int(one.name) for one in progress.folder.iterdir()]
        return spent_s, sum(cpu_s(pid) - began.get(pid, 0.0) for pid in children)


def row_of(case, rounds, megabytes):
    """A row of the medians: CPU s for 100 MB by library, and how they compare."""
    row = {"CPU s for 100 MB": case}
    for name in rounds[0]:
        row[name] = f"{statistics.median(one[name] for one in rounds) / megabytes * 100:.2f}"
    ratio = statistics.median(one["stand-in, msgspec"] / one["amazon_kclpy"] for one in rounds)
    return row | {"ratio": f"{ratio:.2f}", "load": f"{os.getloadavg()[0]:.0f}"}


def python_child_rows(aws, folder, quick):
    """Yield one row a size and way to read the records, then one a size with the daemon."""
    paths, out = libraries(folder), folder / "alone"
    out.mkdir()
    for size, lines in ((1000, 10), (100, 40)):
        batch, megabytes = batch_of(size), size * RECORDS * lines / 1e6
        for use in ("binary_data", "data"):
            rounds = [
                {name: alone(out, path, use, batch, lines) for name, path in paths.items()}
                for _ in range(3 if quick else 7)
            ]
            yield row_of(f"child, {size} B, {use}", rounds, megabytes)
    client = aws.client("kinesis")
    for size, records in ((1000, 100_000), (100, 400_000)):
        stream = f"python-{size}"
        fill(client, stream, 1, records, size)
        rounds = [
            {
                name: sum(with_daemon(aws, folder, stream, f"{size}-{n}-{i}", path, records))
                for i, (name, path) in enumerate(paths.items())
            }
            for n in range(1 if quick else 3)
        ]
        yield row_of(f"daemon and child, {size} B", rounds, size * records / 1e6)


class Http2:
    """The embedded AWS for Java, which speaks HTTP/2 to Kinesis: nghttpx translates.

    Raises:
        SystemExit: there is no nghttpx.
    """

    def __init__(self, aws, port, folder):
        if shutil.which("nghttpx") is None:
            raise SystemExit("Java's row: there is no nghttpx: apt-get install nghttp2-proxy")
        self.moto_url, self.kinesis_url = aws.moto_url, f"http://127.0.0.1:{port}"
        self.environment_for_child = aws.environment_for_child
        behind = aws.kinesis_url.rpartition(":")[2].strip("/")
        self.command = [
            "nghttpx",
            f"--frontend=127.0.0.1,{port};no-tls",
            f"--backend=127.0.0.1,{behind}",
            f"--pid-file={folder / 'nghttpx.pid'}",
            f"--errorlog-file={folder / 'nghttpx.log'}",
            "--conf=/dev/null",
        ]


def free_port():
    """A port of loopback that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def python_child_beside_java(aws, folder, quick):
    """Yield a row a worker: Java's with amazon_kclpy, ours with it and with the stand-in.

    Raises:
        SystemExit: Java's daemon, or what it needs, can't be had.
    """
    try:
        fetched.multilang(JAVA)
    except fetched.Unavailable as error:
        raise SystemExit(f"Java's rows: {error}") from error
    real = libraries(folder)["amazon_kclpy"]
    records = 100_000 if quick else 200_000
    fill(aws.client("kinesis"), "python", 4, records, 1000)
    place = Http2(aws, free_port(), folder)
    with subprocess.Popen(place.command) as proxy:
        for app, worker, java, path in (
            ("java", f"Java {JAVA}, amazon_kclpy", JAVA, real),
            ("same", "kcl-mld, amazon_kclpy", None, real),
            ("own", "kcl-mld, stand-in", None, None),
        ):
            spent = with_daemon(
                place if java else aws, folder, "python", app, path, records, 4, java
            )
            worker_s, children_s = (seconds / records * 100_000 for seconds in spent)
            yield {
                "CPU s for 100 MB of 1 KB": worker,
                "worker": f"{worker_s:.2f}",
                "children": f"{children_s:.2f}",
                "together": f"{worker_s + children_s:.2f}",
                "load": f"{os.getloadavg()[0]:.0f}",
            }
        proxy.terminate()
