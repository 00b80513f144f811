"""A caller of functions over the shared server, an engine, and batches of JSON records."""

from mld.spark.jobs.engine import Engine
from mld.spark.model import Position, Row, ShardBatch, ShardKey
from mld.spark.pipeline import FunctionProcessor, Pipeline
from mld.spark.plans.each_shard import ShardCaller
from mld.spark.plans.one_call import FunctionCaller
from mld.spark.rows.app_decoder import AppDecoder
from tests.spark.conftest import spark_config

SCHEMA = "id int, amount double, tags array<string>"


def pipeline_of(function, schema=SCHEMA, decoder=None):
    return Pipeline(lambda: FunctionProcessor(function), schema, decoder, None, function)


def caller(
    function=lambda df, ctx: df,
    kind=FunctionCaller,
    handoff=None,
    schema=SCHEMA,
    decoder="json",
    **properties,
):
    pipeline = pipeline_of(function, schema, decoder)
    config = spark_config(sink__path="/nowhere", **properties)
    return kind(function, config, AppDecoder(pipeline, config), handoff)


def engine_of(sessions, sink, pipeline, config):
    """As a host makes it."""
    kind = FunctionCaller if config.scope == "all" else ShardCaller
    decoder = AppDecoder(pipeline, config)
    return Engine(sessions, sink, kind(pipeline.function, config, decoder), config)


def batch(shard, *payloads, first=1):
    rows = tuple(
        Row(Position(first + n), "key", payload, 1_700_000_000_123)
        for n, payload in enumerate(payloads)
    )
    to = rows[-1].position if rows else Position(first)
    return ShardBatch(ShardKey("app", "stream", shard), None, to, rows)
