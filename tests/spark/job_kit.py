"""A caller of functions over the shared server, an engine, and batches of JSON records."""

from kcl_mld.spark.model import Position, Row, ShardBatch, ShardKey
from kcl_mld.spark.plans.one_call import FunctionCaller
from kcl_mld.spark.registration import Pipeline
from kcl_mld.spark.rows.app_decoder import AppDecoder
from tests.spark.conftest import spark_config
from tests.unit.spark.shard_kit import QueuedEngine

SCHEMA = "id int, amount double, tags array<string>"


def pipeline_of(function, schema=SCHEMA, decoder=None):
    return Pipeline(function, schema, decoder)


def caller(
    function=lambda df, ctx: df,
    handoff=None,
    schema=SCHEMA,
    decoder="json",
    **properties,
):
    pipeline = pipeline_of(function, schema, decoder)
    config = spark_config(sink__path="/nowhere", **properties)
    return FunctionCaller(function, config, AppDecoder(pipeline, config), handoff)


def engine_of(sessions, sink, pipeline, config):
    """As a host makes it."""
    decoder = AppDecoder(pipeline, config)
    return QueuedEngine(sessions, sink, FunctionCaller(pipeline.function, config, decoder), config)


def batch(shard, *payloads, first=1):
    rows = tuple(
        Row(Position(first + n), "key", payload, 1_700_000_000_123)
        for n, payload in enumerate(payloads)
    )
    to = rows[-1].position if rows else Position(first)
    return ShardBatch(ShardKey("app", "stream", shard), None, to, rows)


def submit(service, each):
    """Hand a batch to a service's engine as a cut makes it."""
    return QueuedEngine.submit(service._engine, each, lambda: True)
