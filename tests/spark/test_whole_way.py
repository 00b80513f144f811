"""Records of a daemon's lines through a real server into the Parquet chain, shard by shard."""

import pytest

from mld.spark.engine import Engine
from mld.spark.pipeline import Pipeline, _FunctionProcessor
from mld.spark.sinks import make_sink
from tests.spark.conftest import spark_config
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
        pipeline = Pipeline(lambda: _FunctionProcessor(function), schema)
        engine = Engine(spark_sessions, sink, pipeline, config)
        engines.append(engine)
        return engine, sink, pipeline, config

    yield make
    for engine in engines:
        engine.close()


def read(spark, tmp_path):
    return spark.read.option("recursiveFileLookup", "true").parquet(str(tmp_path / "out"))


def test_records_go_through_json_into_the_chain_and_are_checkpointed(output, spark, tmp_path):
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
    found = {tuple(row) for row in read(spark, tmp_path).collect()}
    assert found == {(f"u{i}", float(i), str(i)) for i in (2, 3, 4)}
