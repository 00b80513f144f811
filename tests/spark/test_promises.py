"""What is promised whatever happens, from a daemon's lines to rows, on real servers."""

from __future__ import annotations

from collections import Counter

import pytest
from deltalake import DeltaTable

from kcl_mld.spark.errors import RecordRefused
from kcl_mld.spark.server.sessions import ConnectSessions
from kcl_mld.spark.sinks import make_sink
from kcl_mld_protocol import ShardEnded
from tests.spark.conftest import spark_config
from tests.spark.job_kit import engine_of, pipeline_of
from tests.spark.sink_server import open_sessions
from tests.unit.spark.shard_kit import WAIT_S, Session, record

pytestmark = pytest.mark.spark
SHARDS = ("shard-a", "shard-b", "shard-c")


@pytest.fixture
def sessions(spark_server):
    """One's own, so that they may be lost."""
    made = ConnectSessions(spark_server.url, spark_server.token, spark_config(), "tests")
    yield made
    made.close()


def make(sessions, function, wrap=lambda sink: sink, schema="user string, n bigint", **settings):
    """The parts of a shard's session."""
    config = spark_config(decoder="json", **settings)
    sink = make_sink(config, "app")
    sink.prepare(sessions.get())
    sink = wrap(sink)
    pipeline = pipeline_of(function, schema)
    return engine_of(sessions, sink, pipeline, config), sink, config


def deliver_all(parts, count=20, portion=7, shards=SHARDS):
    """Records 1 to ``count`` to each shard, then its end."""
    served = [Session(*parts, shard_id=shard) for shard in shards]
    for each in served:
        each.daemon.initialize()
    numbers = range(1, count + 1)
    made = [record(n, data=b'{"user":"u%d","n":%d}' % (n % 3, n)) for n in numbers]
    for begin in range(0, count, portion):
        for each in served:
            each.daemon.deliver(*made[begin : begin + portion])
    for each in served:
        each.daemon.say(ShardEnded())
    for each in served:
        with each.daemon.changed:
            assert each.daemon.changed.wait_for(
                lambda daemon=each.daemon: "END" in daemon.checkpoints or daemon.is_over, WAIT_S
            )
        assert each.end() is None
        assert each.daemon.checkpoints[-1] == "END"
    parts[0].close()


def rows_of(path, *columns):
    found = DeltaTable(path).to_pyarrow_table(columns=list(columns))
    return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))


def expected(count=20):
    return Counter((shard, n) for shard in SHARDS for n in range(1, count + 1))


class Losing:
    """A sink behind whose back the session is lost once, when its write is done."""

    def __init__(self, sink):
        self._sink = sink
        self.losses = 1

    def __getattr__(self, name):
        return getattr(self._sink, name)

    def write(self, frame, batches):
        staged = self._sink.write(frame, batches)
        if self.losses:
            self.losses -= 1
            lose(frame.sparkSession)
            frame.count()
        return staged


def lose(session):
    """What an hour of idleness does: the server forgets the session, the client does not know."""
    session.client.release_session()


def plain(df, ctx):
    return df.select("shard_id", "n")


def losing_functions():
    """Functions that lose the session before they plan, and before they look at their rows."""
    left = {"plan": 1, "action": 1}

    def plan(df, ctx):
        if left["plan"]:
            left["plan"] -= 1
            lose(df.sparkSession)
        return plain(df, ctx)

    def action(df, ctx):
        if left["action"]:
            left["action"] -= 1
            lose(df.sparkSession)
        assert df.count() == ctx.count
        return plain(df, ctx)

    return {"plan": plan, "action": action}


@pytest.mark.parametrize("when", ["before", "plan", "action", "written"])
def test_a_session_that_expires_loses_and_doubles_nothing(sessions, tmp_path, when):
    """Invariant 19."""
    parts = make(
        sessions,
        losing_functions().get(when, plain),
        Losing if when == "written" else lambda sink: sink,
        sink__path=str(tmp_path / "out"),
        batch__maxRecords="5",
    )
    first = sessions.get()
    if when == "before":
        lose(first)
    deliver_all(parts)
    assert sessions.get() is not first
    assert rows_of(tmp_path / "out", "shard_id", "n") == expected()


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b'{"user":"u","n":"lots"}', "cannot be decoded"),
        (b'{"user":"u","n":{"of":1}}', "cannot be decoded"),
        (b"[1]", "cannot be decoded"),
        (b"\xff\xfe", "cannot be decoded"),
    ],
)
def test_a_record_of_another_kind_stops_its_shard_without_a_checkpoint(
    sessions, tmp_path, payload, text
):
    parts = make(sessions, plain, sink__path=str(tmp_path / "out"))
    session = Session(*parts)
    session.daemon.initialize()
    session.daemon.deliver(record(1, data=payload))
    session.daemon.say(ShardEnded())
    error = session.ended()
    assert isinstance(error, RecordRefused)
    assert f"the record of shardId-0 at 1.0 {text}" in str(error)
    assert session.daemon.checkpoints == []
    parts[0].close()


def test_missing_fields_and_nulls_are_nulls_and_an_empty_delivery_is_no_batch(sessions, tmp_path):
    parts = make(sessions, plain, sink__path=str(tmp_path / "out"))
    session = Session(*parts)
    session.daemon.initialize()
    session.daemon.deliver()
    session.daemon.deliver(
        record(1, data=b'{"n":null}'),
        record(2, data=b'{"other":1}'),
        record(3, data=b'{"n":3,"pad":"%s"}' % (b"x" * 1_000_000)),
    )
    assert session.daemon.checkpoints == []
    session.daemon.shard_ended()
    assert session.end() is None
    found = rows_of(tmp_path / "out", "n")
    assert found == Counter({(None,): 2, (3,): 1})
    parts[0].close()


def test_rows_that_no_longer_fit_a_table_stop_the_shard_without_a_checkpoint(
    sink_server, sink_session, tmp_path
):
    path = str(tmp_path / "out")
    sink_session.range(1).selectExpr("'s' as shard_id", "array(1) as n").write.format("delta").save(
        path
    )
    with open_sessions(*sink_server) as sessions:
        parts = make(sessions, plain, sink__path=path)
        session = Session(*parts)
        session.daemon.initialize()
        session.daemon.deliver(record(1, data=b'{"n":1}'))
        session.daemon.say(ShardEnded())
        assert "do not fit the table" in str(session.ended())
        assert session.daemon.checkpoints == []
        parts[0].close()
