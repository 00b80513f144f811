"""A planner over the shared server, and batches of JSON records."""

from mld.spark.model import Position, Row, ShardBatch, ShardKey
from mld.spark.pipeline import FunctionProcessor, Pipeline
from mld.spark.plans.planner import Planner
from tests.spark.conftest import spark_config

SCHEMA = "id int, amount double, tags array<string>"


class EveryShard(dict):
    """Has a processor for any shard."""

    def __init__(self, make):
        self.make = make

    def __missing__(self, key):
        return self.make()


def planner(function=lambda df, ctx: df, schema=SCHEMA, decoder="json", **properties):
    def make():
        return FunctionProcessor(function)

    pipeline = Pipeline(make, schema, decoder, _open=EveryShard(make))
    return Planner(pipeline, spark_config(sink__path="/nowhere", **properties))


def batch(shard, *payloads, first=1):
    rows = tuple(
        Row(Position(first + n), "key", payload, 1_700_000_000_123)
        for n, payload in enumerate(payloads)
    )
    to = rows[-1].position if rows else Position(first)
    return ShardBatch(ShardKey("app", "stream", shard), None, to, rows)


def some(shard, count=6):
    """Records with ids that repeat."""
    return batch(
        shard, *(b'{"id":%d,"amount":%d.5}' % (n % 3, n) for n in range(count)), first=10**55
    )
