"""Records of a daemon's lines through a real server into a Delta table, shard by shard."""

import pytest
from deltalake import DeltaTable

from kcl_mld.spark.errors import RecordRefused
from kcl_mld.spark.sinks import make_sink
from kcl_mld_protocol import ShardEnded
from tests.spark.conftest import spark_config
from tests.spark.job_kit import engine_of, pipeline_of
from tests.unit.spark.shard_kit import Session, record

pytestmark = pytest.mark.spark


@pytest.fixture
def output(spark_sessions, tmp_path):
    """Engine parts for one function."""
    engines = []

    def make(function, **settings):
        settings = {"schema": None, **settings}
        schema = settings.pop("schema")
        config = spark_config(sink__path=str(tmp_path / "out"), **settings)
        sink = make_sink(config, "app")
        sink.prepare(spark_sessions.get())
        pipeline = pipeline_of(function, schema)
        engine = engine_of(spark_sessions, sink, pipeline, config)
        engines.append(engine)
        return engine, sink, config

    yield make
    for engine in engines:
        engine.close()


def read(tmp_path, *columns):
    found = DeltaTable(tmp_path / "out").to_pyarrow_table(columns=list(columns))
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_records_go_through_json_into_the_table_and_are_checkpointed(output, tmp_path):
    parts = output(
        lambda df, ctx: df.where("amount > 1").select("user", "amount", "sequence_number"),
        decoder="json",
        schema="user string, amount double",
    )
    session = Session(*parts)
    session.daemon.initialize()
    session.daemon.deliver(
        *(record(i, data=b'{"user":"u%d","amount":%d}' % (i, i)) for i in range(5))
    )
    session.daemon.shard_ended()
    assert session.end() is None
    assert session.daemon.checkpoints[-1] == "END"
    found = read(tmp_path, "user", "amount", "sequence_number")
    assert set(found) == {(f"u{i}", float(i), str(i)) for i in (2, 3, 4)}


def test_a_bad_record_stops_the_shards_of_its_batch_and_no_other(output, tmp_path):
    parts = output(lambda df, ctx: df.select("user"), decoder="json", schema="user string")
    good, bad = Session(*parts, shard_id="good"), Session(*parts, shard_id="bad")
    for each in (good, bad):
        each.daemon.initialize()
    bad.daemon.deliver(record(1, data=b'{"user":"b"}'), record(2, data=b"secret junk"))
    bad.daemon.say(ShardEnded())
    error = bad.ended()
    good.daemon.deliver(record(1, data=b'{"user":"g"}'))
    good.daemon.say(ShardEnded())
    assert isinstance(error, RecordRefused)
    assert "the record of bad at 2.0 cannot be decoded" in str(error)
    assert "secret" not in str(error)
    assert bad.daemon.checkpoints == []
    good.daemon.await_statuses(3)
    assert good.end() is None
    assert read(tmp_path, "user") == [("g",)]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda df, ctx: 1 / 0, "ZeroDivisionError"),
        (lambda df, ctx: df.select("nowhere"), "would fail again"),
    ],
)
def test_a_wrong_function_stops_the_shard_with_a_clear_error(output, function, text):
    session = Session(*output(function, decoder="json", schema="user string"))
    session.daemon.initialize()
    session.daemon.deliver(record(1, data=b'{"user":"g"}'))
    session.daemon.say(ShardEnded())
    assert text in str(session.ended())
    assert session.daemon.checkpoints == []
