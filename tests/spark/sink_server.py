"""A server with Delta and Avro, and what the tests of the sinks share."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kcl_mld.spark.model import Position, Row, ShardBatch, ShardKey
from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.server.launcher import EmbeddedServer
from kcl_mld.spark.server.sessions import ConnectSessions
from kcl_mld.spark.sinks import make_sink
from tests.spark import other_spark
from tests.spark.conftest import spark_config
from tests.spark.jars import DELTA_CONF, WHY_NOT, avro_jar, delta_jars

if TYPE_CHECKING:
    from collections.abc import Iterable

BASE = 49590338271490256608559692538361571095921575989136588898


@contextmanager
def running_server(directory):
    """A server that has their jars, and its configuration; skips where they cannot be had."""
    delta, avro = delta_jars(), avro_jar()
    if delta is None:
        pytest.skip(WHY_NOT)
    jars = ",".join(str(jar) for jar in (*delta, avro) if jar)
    config = spark_config(sink="merge", sink__path="x", conf__spark__jars=jars)
    # Delta's own default is 50 tasks for a table's state.
    more = {**DELTA_CONF, "spark.databricks.delta.snapshotPartitions": "2"}
    config = replace(config, conf={**config.conf, **more})
    with other_spark.as_server():
        server = EmbeddedServer.launch(config, directory, os.environ)
    try:
        server.wait_ready(180)
        yield server, config
    finally:
        server.stop()


@contextmanager
def open_sessions(server, config):
    """Sessions of one's own with it."""
    sessions = ConnectSessions(server.url, server.token, config, "sinks")
    try:
        yield sessions
    finally:
        sessions.close()


def shard(number: int = 0, epoch: str = "0") -> ShardKey:
    return ShardKey("app", "flights", f"shardId-{number:012d}", epoch)


def batch(key: ShardKey, after: int, to: int) -> ShardBatch:
    """Records after+1 … to; after 0 is the beginning."""
    rows = tuple(Row(Position(BASE + n), "k", b"%d" % n, None) for n in range(after + 1, to + 1))
    begin = Position(BASE + after) if after else None
    return ShardBatch(key, begin, Position(BASE + to), rows)


def frame(spark, batches: Iterable[ShardBatch], keep: str = "true", **columns):
    """What the engine hands over: a row per record.

    Args:
        spark: the session.
        batches: of one job.
        keep: condition on the rows.
        columns: further columns, by name.
    """
    united = None
    for each in batches:
        numbers = [row.position.sequence - BASE for row in each.rows]
        part = spark.createDataFrame(
            pa.table(
                {
                    "n": pa.array(numbers, pa.int64()),
                    "sequence_number": [str(row.position.sequence) for row in each.rows],
                    "sub_sequence_number": pa.array([0] * len(numbers), pa.int64()),
                    "shard_id": [each.shard.shard_id] * len(numbers),
                }
            )
        ).where(keep)
        part = part.withColumns(columns) if columns else part
        united = part if united is None else united.unionByName(part)
    return united


def open_sink(spark, application: str = "app", **properties: str):
    sink = make_sink(spark_config(**properties), application)
    sink.prepare(spark)
    return sink


def write(spark, sink, *batches: ShardBatch, **more) -> None:
    """Write and commit, as the engine does."""
    staged = sink.write(frame(spark, batches, **more), batches)
    assert set(sink.commit_all(staged, batches).values()) == {CommitOutcome.STANDS}
    sink.discard(staged)
