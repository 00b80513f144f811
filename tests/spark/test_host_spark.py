"""The host with a real server: what fakes can't show."""

from pathlib import Path

import pytest

from tests.spark.host_kit import PROPERTIES, START_S, converse, feed, hear_status, jvms, start
from tests.spark.stubs import Worker, is_alive, kill, wait_for

pytestmark = pytest.mark.spark

APP = """
import os, subprocess
from pyspark.sql import functions as F
from kcl_mld.spark import run

print("noise of print")

@F.udf("long")
def same(number):
    return number

def process(df, ctx):
    os.system("echo noise of a shell")
    df.show()
    return df.select(same("id").alias("id"), "shard_id")

run(process, schema="id bigint", decoder="json")
"""


@pytest.fixture
def worker(tmp_path):
    worker = Worker(tmp_path, app=APP, **{**PROPERTIES, "spark.sink.path": str(tmp_path / "out")})
    worker.environ["KCL_MLD_CAPABILITIES"] = "tick"
    yield worker
    worker.close()


def test_shards_share_one_server_and_nothing_but_the_protocol_reaches_stdout(worker):
    shards = ["shardId-000000000000", "shardId-000000000001"]
    children = []
    worker.environ["http_proxy"] = "http://127.0.0.1:1"  # nobody; it is not for our own server
    for shard in shards:  # one by one: what is printed goes to the oldest
        children.append(start(worker, shard))
        assert hear_status(children[-1], START_S) == []
    assert len(jvms(worker)) == 1
    for child in children:
        feed(child, [1, 2, 3])
    noise = children[0].errors_until("noise of a shell")
    assert "noise of print" in noise
    for child in children:
        assert converse(child, "leaseLost", START_S) == []
        child.process.stdin.close()
        assert child.end()[0] == 0
        assert child.hear() == b""
    worker.daemon.kill()
    worker.daemon.wait()
    wait_for(lambda: not jvms(worker), "the server ends with the daemon", 5.0)


def test_a_killed_host_leaves_no_server_and_the_next_goes_on_where_it_stopped(worker):
    child = start(worker, "shardId-000000000000")
    assert hear_status(child, START_S) == []
    feed(child, [1, 2, 3])
    (server,) = jvms(worker)
    kill(parent_of(server))
    assert child.end(5.0)[0] == 70
    wait_for(lambda: not is_alive(server), "no server is left", 5.0)
    child = start(worker, "shardId-000000000000")
    hear_status(child, START_S)
    assert "begins behind 3.0" in child.errors_until("begins behind")


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    ("property_", "value", "code", "text"),
    [
        ("spark.java.home", "/nowhere", 3, "/nowhere"),
        ("spark.remote", "sc://localhost:1", 69, "localhost:1"),
        ("spark.batch.maxRecords", "0", 2, "spark.batch.maxRecords"),
        ("spark.sink.path", "", 2, "spark.sink.path"),
        ("spark.decoder.onError", "deadletter", 2, "spark.deadletter.path"),
    ],
)
def test_what_is_missing_is_one_line_before_initialize_is_answered(
    worker, property_, value, code, text
):
    if property_ == "spark.remote":
        del worker.properties["spark.master"]
    worker.properties[property_] = value
    child = start(worker, "shardId-000000000000")
    found, errors = child.end(START_S)
    (line,) = [line for line in errors.splitlines() if line.startswith("kcl-mld-spark: ")]
    assert text in line
    assert found == code
    assert child.hear() == b""
    wait_for(lambda: not jvms(worker), "no server is left", 5.0)


def test_a_missing_pyspark_is_one_line_before_initialize_is_answered(worker, tmp_path):
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "PathFinder.find_spec = lambda name, *more: None if name == 'pyspark' else find(name, *more)\n"
    )
    worker.environ["PYTHONPATH"] = str(hiding)
    child = start(worker, "shardId-000000000000")
    code, errors = child.end(START_S)
    assert code == 3
    assert "kcl-mld-spark: pyspark is missing: pip install 'kcl-mld[spark]'\n" in errors
