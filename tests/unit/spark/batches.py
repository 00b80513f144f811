"""Batches and configurations for the tests of sinks and stores."""

from __future__ import annotations

from kcl_mld.spark.config import SparkConfig, read_properties
from kcl_mld.spark.model import Position, Row, ShardBatch, ShardKey


def config_of(**more: str) -> SparkConfig:
    """``config_of(sink="jdbc", sink__options__user="me")``: ``__`` for a dot, without ``spark``."""
    return read_properties({"spark." + k.replace("__", "."): text for k, text in more.items()})


def shard(number: int = 0, *, application: str = "app", epoch: str = "0") -> ShardKey:
    return ShardKey(application, "flights", f"shardId-{number:012d}", epoch)


def batch(key: ShardKey, after: int | None, to: int, number: int | None = None) -> ShardBatch:
    rows = tuple(Row(Position(n), "k", b"%d" % n, None) for n in range((after or 0) + 1, to + 1))
    begin = None if after is None else Position(after)
    return ShardBatch(
        key, begin, Position(to), rows, number, f"kcl/{key.shard_id}" if number else ""
    )
