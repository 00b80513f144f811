"""A real host, a real server: what a shard leaves behind, and the same app on another server."""

import random
import subprocess
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spark.host_kit import (
    PROPERTIES,
    START_S,
    converse,
    feed,
    hear_status,
    jvms,
    record,
    start,
)
from tests.spark.stubs import Worker, kill, wait_for
from tests.spark.table_files import table_files

pytestmark = pytest.mark.spark

APP = """
import os, signal, time
from pathlib import Path
from pyspark.sql import functions as F
from kcl_mld.spark import run

def process(df, ctx):
    if not ctx.shard_id.endswith("9"):
        return df.where("id % 7 <> 0").select("id", "pad", "shard_id")
    path = os.environ["FAKE_DIR"] + "/running"

    def slow(number):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as in a worker that is just being forked
        Path(path).touch()
        time.sleep(300)
        return number

    return df.select(F.udf(slow, "long")("id").alias("id"), "pad", "shard_id")

run(process, schema="id bigint, pad string", decoder="json")
"""
SLOW, QUICK = "shardId-000000000009", "shardId-000000000000"


@pytest.fixture
def new_worker(tmp_path):
    """Makes workers with a folder each; ``more`` are properties, None removes one."""
    made = []

    def make(name, more=(), **environ):
        (tmp_path / name).mkdir()
        properties = {**PROPERTIES, "spark.sink.path": str(tmp_path / name / "out"), **dict(more)}
        properties = {key: text for key, text in properties.items() if text is not None}
        made.append(Worker(tmp_path / name, app=APP, **properties))
        made[-1].environ = {"KCL_MLD_CAPABILITIES": "tick", **environ}
        return made[-1]

    yield make
    for worker in made:
        worker.close()


def rows(worker):
    """How often each row is in the output, read without our own reader."""
    found = Counter()
    for file in table_files(worker.folder / "out"):
        table = pq.ParquetFile(file).read(columns=["id", "shard_id"])
        found.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return found


def marked(worker):
    """Processes that carry the worker's folder in their environment, without zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environ = (path / "environ").read_bytes().split(b"\0")
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"FAKE_DIR={worker.folder}".encode() in environ and state != "Z":
            found.append(int(path.name))
    return found


def busy(worker):
    """A child whose batch is in Spark's hands and stays there."""
    running = worker.folder / "running"
    running.unlink(missing_ok=True)
    child = start(worker, SLOW)
    assert hear_status(child, START_S) == []
    records = [record(1)]
    while not running.exists():
        assert converse(child, "processRecords", START_S, records=records) == []
        records = []
    return child


def heard(child):
    """What else is on a stdout that has ended."""
    lines = b""
    while line := child.hear():
        lines += line
    return lines


def test_what_a_shard_runs_ends_with_it_and_nothing_outlives_the_daemon(new_worker):
    """Invariants 10, 13 and 14: the job would take five minutes."""
    worker = new_worker("worker")
    neighbor = start(worker, QUICK)
    hear_status(neighbor, START_S)

    child = busy(worker)
    assert converse(child, "leaseLost", 10.0) == [], "answered, without a checkpoint"
    child.process.stdin.close()
    assert child.end(10.0)[0] == 0
    assert heard(child) == b""

    # Its successor may begin only once the job of the first is over, so the job was interrupted.
    child = busy(worker)
    child.process.stdin.close()
    child.end(5.0)
    assert b"checkpoint" not in heard(child)

    child = busy(worker)
    kill(child.process.pid)
    feed(neighbor, [1, 2, 3])
    assert len(jvms(worker)) == 1

    child = busy(worker)
    worker.daemon.kill()
    worker.daemon.wait()
    wait_for(lambda: not marked(worker), "nothing is left", 5.0)
    assert child.end(5.0)[0] in {0, 70}
    assert b"checkpoint" not in heard(child)
    assert rows(worker) == Counter((number, QUICK) for number in (1, 2, 3))


@pytest.fixture
def on_another_server(spark_server):
    """Properties and environment of a worker that uses the tests' server as its cluster."""
    properties = {
        "spark.remote": spark_server.url,
        "spark.remote.token.env": "THE_TOKEN",
        **dict.fromkeys(("spark.master", "spark.driver.memory", "spark.jvm.options")),
    }
    return properties, {"THE_TOKEN": spark_server.token}


def test_one_property_moves_the_app_to_another_server_and_the_rows_stay_the_same(
    new_worker, on_another_server
):
    """Invariants 15 and 24."""
    properties, environ = on_another_server
    found = []
    for worker in (new_worker("here"), new_worker("there", properties, **environ)):
        shards = [QUICK, "shardId-000000000001"]
        children = [start(worker, shard) for shard in shards]
        for child in children:
            assert hear_status(child, START_S) == []
        assert len(jvms(worker)) == (0 if "spark.remote" in worker.properties else 1)
        for numbers in (range(1, 40), range(40, 100)):
            for child in children:
                assert feed(child, list(numbers))[-1] == str(numbers[-1])
        for child in children:
            assert converse(child, "shardEnded", START_S) == [None]
        found.append(rows(worker))
        worker.close()
    wanted = Counter((n, shard) for n in range(1, 100) for shard in shards if n % 7)
    assert found == [wanted, wanted]


def test_a_wrong_token_is_one_line_before_initialize_is_answered(new_worker, on_another_server):
    properties, _ = on_another_server
    worker = new_worker("worker", properties, THE_TOKEN="wrong-token")
    child = start(worker, QUICK)
    code, errors = child.end(START_S)
    (line,) = [line for line in errors.splitlines() if line.startswith("kcl-mld-spark: ")]
    assert "refuses our token" in line
    assert "wrong-token" not in errors
    assert (code, heard(child)) == (69, b"")


@pytest.mark.proof
def test_a_server_that_is_killed_in_a_call_costs_seconds_and_not_the_time_of_a_batch(new_worker):
    """The host does not wait for the call, which would retry: it sees the end of the process."""
    worker = new_worker("worker", {"spark.batch.timeout": "1h"})
    child = busy(worker)
    (server,) = jvms(worker)
    kill(server)
    code, errors = child.end(20.0)
    assert code == 70
    assert "was killed (signal 9)" in errors.splitlines()[-1]
    wait_for(lambda: not marked(worker), "host and Python workers are gone", 20.0)
    (worker.folder / "running").unlink()
    successor = start(worker, QUICK)
    hear_status(successor, START_S)
    feed(successor, [1, 2, 3])


HUNGRY = """
import os, resource, signal
from pathlib import Path
from pyspark.sql import functions as F
from kcl_mld.spark import run

how = Path(os.environ["FAKE_DIR"], "how")

def hungry(number):
    match how.read_text():
        case "limit":
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))
            try:
                bytearray(2 << 30)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        case "kernel":
            os.kill(os.getpid(), signal.SIGKILL)
    return number

def process(df, ctx):
    return df.select(F.udf(hungry, "long")("id").alias("id"), "shard_id")

run(process, schema="id bigint", decoder="json")
"""


def fail_of(child, numbers):
    """Deliver records of which the batch fails; exit code and what was said."""
    converse(child, "processRecords", START_S, records=[record(number) for number in numbers])
    while child.process.poll() is None:
        try:
            child.say("processRecords", records=[], millisBehindLatest=0)
        except OSError:
            break
        if not (line := child.hear(START_S)):
            break
        assert b"checkpoint" not in line
    return child.end(START_S)


@pytest.mark.proof
def test_memory_that_runs_out_in_a_udf_ends_its_shard_and_no_server(new_worker):
    """A worker at its limit raises; one that the kernel kills is gone, which may pass."""
    worker = new_worker("worker", {"spark.retry.attempts": "2"})
    worker.app.write_text(HUNGRY)
    how = worker.folder / "how"
    how.write_text("fine")
    servers = []
    for kind, said, tries in (
        ("limit", "MemoryError (File", 0),
        ("kernel", "if the kernel killed it for a lack of memory", 1),
    ):
        child = start(worker, QUICK)
        hear_status(child, START_S)
        servers.append(jvms(worker))
        how.write_text(kind)
        code, errors = fail_of(child, [1, 2, 3])
        assert code == 70
        assert said in errors
        assert errors.count("is repeated in") == tries
    how.write_text("fine")
    child = start(worker, QUICK)
    hear_status(child, START_S)
    feed(child, [1, 2, 3])
    servers.append(jvms(worker))
    assert servers == servers[:1] * 3
    assert rows(worker) == Counter((number, QUICK) for number in (1, 2, 3))


def own_disk(folder):
    """A command before another: in a mount namespace of its own ``folder`` is a disk of 2 MB."""
    script = f"mount -t tmpfs -o size=2m tmpfs '{folder}' && exec \"$@\""
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


def may_mount(folder):
    try:
        command = [*own_disk(folder), "true"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_a_full_disk_is_told_and_nothing_is_checkpointed(new_worker):
    worker = new_worker("worker", {"spark.retry.attempts": "2"})
    disk = worker.folder / "out"
    disk.mkdir()
    if not may_mount(disk):
        pytest.skip("mounting a small disk needs root")
    child = start(worker, QUICK, before=own_disk(disk))
    assert hear_status(child, START_S) == []
    neighbor = start(worker, "shardId-000000000001")
    assert hear_status(neighbor, START_S) == []
    feed(child, [1])
    large = [record(n, b'{"id":%d,"pad":"%s"}' % (n, noise(n))) for n in range(2, 32)]
    child.say("processRecords", records=large, millisBehindLatest=0)
    said = []
    while line := child.hear(30.0):
        said.append(line)
        if b"processRecords" in line:
            child.say("processRecords", records=[], millisBehindLatest=0)
    code, errors = child.end(START_S)
    assert code == 70
    assert "the disk is full" in errors.splitlines()[-1]
    assert b"checkpoint" not in b"".join(said)
    assert converse(neighbor, "processRecords", START_S) == [], "the host lives"


def noise(seed):
    """400 kB of text that no compression makes much smaller."""
    return random.Random(seed).randbytes(200_000).hex().encode()
