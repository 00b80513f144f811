"""The whole child on a standalone cluster: a Master, Workers, executors that are other processes."""

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.server.launcher import EmbeddedServer
from tests.spark.cluster_kit import APPLICATION, Cluster
from tests.spark.host_kit import converse, hear_status, jvms, record, start
from tests.spark.small_server import SMALL_SERVER
from tests.spark.stubs import Worker, kill, wait_for
from tests.spark.table_files import table_files

pytestmark = pytest.mark.spark

START_S = 180.0  # for one step, on a busy machine
SHARDS = "shardId-000000000000", "shardId-000000000001"
#: A Python UDF of the app's own module and a pandas UDF; both run where the executors are.
APP = """
import os, time
from pathlib import Path
from pyspark.sql import functions as F
from kcl_mld.spark import run

FOLDER = Path(os.environ["FAKE_DIR"])

def twice(number):
    if (FOLDER / "hold").exists():
        (FOLDER / f"held-by-{os.getppid()}").touch()
    while (FOLDER / "hold").exists():
        time.sleep(0.05)
    return number * 2

def louder(texts):
    return texts.str.upper()

def process(df, ctx):
    loud = F.pandas_udf(louder, "string")
    kept = df.where("id % 7 <> 0")
    return kept.select("id", F.udf(twice, "long")("id").alias("two"), loud("word"), "shard_id") \\
        .toDF("id", "two", "word", "shard_id")

run(process, schema="id bigint, word string", decoder="json")
"""
PROPERTIES = {"spark.batch.maxDelay": "500ms"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Master and one Worker with two cores."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.add_worker()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def on_a_master(cluster):
    """Properties of an app that launches its driver itself, for the cluster's executors."""
    return {
        "spark.master": cluster.url,
        **SMALL_SERVER,
        **APPLICATION,
    }


@pytest.fixture(scope="module")
def remote(cluster, on_a_master, tmp_path_factory):
    """Properties and environment for somebody else's Connect server on that cluster."""
    config = read_properties(on_a_master)
    directory = tmp_path_factory.mktemp("remote")
    server = EmbeddedServer.launch(config, directory, os.environ)
    try:
        server.wait_ready(START_S)
        yield (
            {"spark.remote": server.url, "spark.remote.token.env": "THE_TOKEN"},
            {"THE_TOKEN": server.token},
        )
    finally:
        server.stop()


@pytest.fixture
def new_worker(tmp_path):
    """Makes workers of the daemon, with a folder each."""
    made = []

    def make(name, where, **environ):
        (tmp_path / name).mkdir()
        out = {"spark.sink.path": str(tmp_path / name / "out")}
        made.append(Worker(tmp_path / name, app=APP, **{**PROPERTIES, **where, **out}))
        made[-1].environ = {"KCL_MLD_CAPABILITIES": "tick", **environ}
        return made[-1]

    yield make
    for worker in made:
        worker.close()


def executors_python(path):
    """A Python of another path that leaves a trace."""
    path.write_text(f"#!/bin/sh\n: > '{path}.used'\nexec '{sys.executable}' \"$@\"\n")
    path.chmod(0o700)
    return path


def records(numbers):
    return [record(n, json.dumps({"id": n, "word": f"w{n}"}).encode()) for n in numbers]


def deliver(child, numbers):
    """Until they are checkpointed."""
    found = converse(child, "processRecords", START_S, records=records(numbers))
    await_checkpoint(child, numbers[-1], found)


def await_checkpoint(child, number, found=()):
    """Go on with empty batches until a record's position is checkpointed."""
    found = list(found)

    def is_there():
        found.extend(converse(child, "processRecords", START_S))
        return str(number) in found

    wait_for(is_there, "the checkpoint follows the commit", START_S)


def rows(worker, root="/"):
    """How often each row is in the output, read by neither Spark nor our own reader."""
    found = Counter()
    for file in table_files(Path(root, *(worker.folder / "out").parts[1:])):
        table = pq.ParquetFile(file).read(columns=["id", "two", "word", "shard_id"])
        found.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return found


def wanted(last, shards=SHARDS):
    """What must be there once."""
    return Counter(
        (n, 2 * n, f"W{n}", shard) for n in range(1, last + 1) for shard in shards if n % 7
    )


def serve(worker, shards=SHARDS):
    children = [start(worker, shard) for shard in shards]
    for child in children:
        assert hear_status(child, START_S) == []
    return children


def end(children):
    """The shards end."""
    for child in children:
        assert converse(child, "shardEnded", START_S) == [None]


def refusal(worker, code, before=()):
    """The one line of a child that ends before ``initialize`` is answered."""
    child = start(worker, SHARDS[0], before=before)
    found, errors = child.end(START_S)
    (line,) = [line for line in errors.splitlines() if line.startswith("kcl-mld-spark: ")]
    assert (found, child.hear()) == (code, b"")
    return line


def test_a_driver_of_our_own_writes_through_the_executors_of_a_master(
    cluster, on_a_master, new_worker
):
    """``spark.master`` names the cluster, and an executor is killed."""
    others = set(cluster.executors())  # of the tests before
    python = executors_python(cluster.directory / "python")
    named = {"spark.conf.spark.pyspark.python": str(python)}
    worker = new_worker("own", {**on_a_master, **named})
    children = serve(worker)
    assert len(jvms(worker)) == 1
    for child in children:
        deliver(child, range(1, 20))
    assert python.with_suffix(".used").exists()
    (executor,) = set(cluster.executors()) - others
    hold(worker, children, range(20, 40))
    kill(executor)
    let_go(worker, children, 39)
    (_,) = set(cluster.executors()) - others - {executor}  # its successor
    end(children)
    assert rows(worker) == wanted(39)


def test_the_same_app_on_somebody_elses_server_leaves_the_same_rows(remote, new_worker):
    """``spark.remote`` names a Connect server that is an application of the cluster.

    While its only core is busy, another worker of the daemon does not wait for ever.
    """
    properties, environ = remote
    worker = new_worker("remote", properties, **environ)
    children = serve(worker)
    for child in children:
        deliver(child, range(1, 40))
    assert jvms(worker) == []

    hold(worker, children, range(40, 60))
    late = new_worker("late", {**properties, "spark.start.timeout": "2s"}, **environ)
    assert "see whether the cluster has free cores" in refusal(late, 69)
    let_go(worker, children, 59)
    end(children)
    assert rows(worker) == wanted(59)


def test_delta_survives_the_kill_of_the_clusters_worker(cluster, remote, new_worker):
    """Its executor ends with it; another Worker comes."""
    properties, environ = remote
    worker = new_worker("delta", properties, **environ)
    children = serve(worker, SHARDS[:1])
    deliver(children[0], range(1, 20))
    hold(worker, children, range(20, 40))
    cluster.kill_worker()
    cluster.add_worker()
    wait_for(lambda: len(cluster.executors()) == 1, "an executor ends with its Worker", START_S)
    let_go(worker, children, 39)
    end(children)
    assert rows(worker) == wanted(39, SHARDS[:1])
    assert jvms(worker) == []


def hold(worker, children, numbers):
    """Deliver records whose job stays in an executor's hands."""
    (worker.folder / "hold").touch()
    for child in children:
        converse(child, "processRecords", START_S, records=records(numbers))

    def is_held():
        for child in children:
            assert converse(child, "processRecords", START_S) == []
        return list(worker.folder.glob("held-by-*"))

    for path in wait_for(is_held, "an executor runs the function", START_S):
        path.unlink()


def let_go(worker, children, last):
    """The function may return; everything is checkpointed."""
    (worker.folder / "hold").unlink()
    for child in children:
        await_checkpoint(child, last)


def test_executors_need_no_directory_of_the_hosts(remote, new_worker):
    """The host's ``out`` is a disk in a mount namespace of its own."""
    properties, environ = remote
    worker = new_worker("apart", properties, **environ)
    (worker.folder / "out").mkdir()
    if (apart := own_disk(worker.folder / "out")) is None:
        pytest.skip("mount namespaces need root or user namespaces")
    child = start(worker, SHARDS[0], before=apart)
    assert hear_status(child, START_S) == []
    deliver(child, range(1, 20))
    assert rows(worker, f"/proc/{child.process.pid}/root") == wanted(19, SHARDS[:1])
    assert rows(worker) == Counter()
    end([child])


def own_disk(folder):
    """A command before another, for which ``folder`` is a disk of its own; None = not possible."""
    script = f"mount -t tmpfs tmpfs '{folder}' && exec \"$@\""
    for namespace in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        command = [*namespace, "sh", "-c", script, "sh"]
        try:
            if not subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
                return command
        except OSError:
            return None
    return None


def test_a_master_that_is_not_there_is_one_line_and_a_code(new_worker):
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # bound and not listening
        url = f"spark://127.0.0.1:{dead.getsockname()[1]}"
        worker = new_worker("dead", {"spark.master": url})
        assert f"no Spark master answers at spark.master={url}" in refusal(worker, 69)
