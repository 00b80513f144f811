"""What a child knows about its worker, and who may serve a shard."""

import threading

import pytest

from kcl_mld.spark.config import Facts, gather_properties, read_file
from kcl_mld.spark.errors import SparkConfigError
from kcl_mld.spark.model import ShardKey
from kcl_mld.spark.shard.session import ShardGate

ENVIRON = {
    "KCL_APPLICATION_NAME": "app",
    "KCL_STREAM_NAME": "stream",
    "KCL_SHARD_ID": "shardId-000000000000",
    "KCL_MLD_CAPABILITIES": "more, tick",
}


def test_the_environment_says_it_all():
    assert Facts.gather(ENVIRON, {}) == Facts(
        "app", "stream", frozenset({"tick"}), "shardId-000000000000", 5.0
    )


def test_a_daemon_with_a_schema_registry_says_so():
    assert not Facts.gather(ENVIRON, {}).has_schemas
    assert Facts.gather({**ENVIRON, "KCL_MLD_SCHEMAS": "/tmp/schemas"}, {}).has_schemas


def test_the_file_says_what_another_daemon_does_not():
    found = Facts.gather({}, {"applicationName": " app ", "streamName": "stream"})
    assert found == Facts("app", "stream")


def test_signs_of_life_are_as_frequent_as_the_daemons_time_out_wants():
    assert Facts.gather({**ENVIRON, "KCL_MLD_TIMEOUT_S": "2.0"}, {}).keep_alive_s == 0.5
    assert Facts.gather(ENVIRON, {"timeoutInSeconds": "4"}).keep_alive_s == 1.0


def test_the_environment_counts_more_than_the_file():
    assert Facts.gather(ENVIRON, {"streamName": "other"}).stream == "stream"


@pytest.mark.parametrize(
    ("environ", "missing"),
    [({}, "applicationName"), ({"KCL_APPLICATION_NAME": "app"}, "streamName")],
)
def test_a_name_that_nobody_says_is_asked_for(environ, missing):
    with pytest.raises(SparkConfigError, match=f"{missing} is not known.*--properties FILE"):
        Facts.gather(environ, {})


def test_another_child_of_the_worker_may_serve_another_stream():
    facts = Facts.gather(ENVIRON, {})
    other = facts.of_child({"KCL_SHARD_ID": "shardId-1", "KCL_STREAM_NAME": "other"})
    assert (other.stream, other.shard_id, other.application) == ("other", "shardId-1", "app")
    assert facts.of_child({}).shard_id is None
    assert facts.of_child({}).stream == "stream"


def test_a_file_is_read_by_javas_grammar(tmp_path):
    path = tmp_path / "app.properties"
    path.write_bytes(b"spark.sink.path = /a\\\n   /b\nspark.sink=delta\nspark.sink : jdbc\n")
    assert read_file(path, {}) == {"spark.sink.path": "/a/b", "spark.sink": "jdbc"}


def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path):
    with pytest.raises(SparkConfigError, match="none can't be read: No such file"):
        read_file(tmp_path / "none", {})
    path = tmp_path / "app.properties"
    path.write_bytes(b"a=1\nb=\\u12\n")
    with pytest.raises(SparkConfigError, match=r"app.properties:2"):
        read_file(path, {})


def test_the_daemons_properties_lie_above_those_of_the_file(tmp_path):
    path = tmp_path / "app.properties"
    path.write_bytes(b"spark.sink=delta\nspark.master=local[1]\n")
    environ = {"KCL_MLD_SPARK": '{"spark.sink": "jdbc"}'}
    assert gather_properties(environ, str(path)) == {
        "spark.sink": "jdbc",
        "spark.master": "local[1]",
    }
    assert gather_properties({}, None) == {}


def test_a_shard_is_held_by_one_at_a_time_and_others_are_free():
    gate, shard = ShardGate(), ShardKey("app", "stream", "shardId-0")
    entered = threading.Event()

    def successor():
        with gate.hold(shard):
            entered.set()

    with gate.hold(shard):
        thread = threading.Thread(target=successor)
        thread.start()
        with gate.hold(ShardKey("app", "other", "shardId-0")):
            assert not entered.wait(0.05)
    thread.join(5.0)
    assert entered.is_set()


def test_a_session_that_fails_lets_its_shard_go():
    gate, shard = ShardGate(), ShardKey("app", "stream", "shardId-0")
    with pytest.raises(ValueError, match="x"), gate.hold(shard):
        raise ValueError("x")
    with gate.hold(shard):
        pass


def test_a_file_is_read_as_the_environment_has_the_daemon_read_it(tmp_path):
    path = tmp_path / "app.properties"
    path.write_bytes(b"spark.sink=delta\nspark.sink.path=/${WHERE}\n")
    environ = {"KCL_MLD_SET": "spark.sink=jdbc", "KCL_MLD_EXPAND_ENV": "true", "WHERE": "a"}
    assert gather_properties(environ, str(path)) == {"spark.sink": "jdbc", "spark.sink.path": "/a"}
    with pytest.raises(SparkConfigError, match=r"app.properties:2: .* no variable WHERE"):
        read_file(path, {"KCL_MLD_EXPAND_ENV": "true"})
