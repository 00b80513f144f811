"""A function that writes rows and marks of all shards itself, over kills, other cuts and zombies."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from pyspark.sql import functions as F

from kcl_mld.spark.batch_context import context_of
from kcl_mld.spark.model import MicroBatch
from tests.spark.sink_server import batch, frame, shard

pytestmark = pytest.mark.spark


class Killed(Exception):
    """The process ended inside its transaction."""


@pytest.fixture
def path(tmp_path):
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        database.execute("CREATE TABLE rows (shard_id TEXT, n INTEGER)")
        database.execute("CREATE TABLE marks (shard TEXT PRIMARY KEY, position TEXT)")
    return tmp_path / "rows.db"


def process(spark, path, *batches, is_killed=False):
    """As the guide shows it."""
    df = frame(spark, batches).withColumn("stream_name", F.lit("flights"))
    ctx = context_of(spark, MicroBatch(batches))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("BEGIN IMMEDIATE")
        stored = dict(database.execute("SELECT shard, position FROM marks"))
        rows = ctx.new_rows(df, stored).select("shard_id", "n").collect()
        database.executemany("INSERT INTO rows VALUES (?, ?)", map(tuple, rows))
        database.executemany(
            "INSERT INTO marks VALUES (?, ?) ON CONFLICT (shard) DO UPDATE "
            "SET position = max(position, excluded.position)",
            [(mark.shard, mark.to) for mark in ctx.marks()],
        )
        if is_killed:
            raise Killed


def found(path) -> Counter:
    with closing(sqlite3.connect(path)) as database:
        return Counter(database.execute("SELECT substr(shard_id, -1), n FROM rows").fetchall())


def expected(**counts: int) -> Counter:
    return Counter((name[1:], n) for name, to in counts.items() for n in range(1, to + 1))


def test_kills_other_cuts_other_company_and_a_zombie_double_and_lose_nothing(spark, path):
    process(spark, path, batch(shard(), 0, 5), batch(shard(1), 0, 4))
    # Killed before the commit: nothing of it is there, and nothing of it is missed.
    with pytest.raises(Killed):
        process(spark, path, batch(shard(), 5, 9), batch(shard(1), 4, 6), is_killed=True)
    # Killed after the commit and before the checkpoint: both come again, in other cuts.
    process(spark, path, batch(shard(), 5, 9), batch(shard(1), 4, 6))
    process(spark, path, batch(shard(), 5, 7))
    process(spark, path, batch(shard(1), 4, 8), batch(shard(2), 0, 3))
    process(spark, path, batch(shard(), 7, 12), batch(shard(2), 3, 3 + 1))
    # A worker that does not know yet that it has lost its shards.
    process(spark, path, batch(shard(), 5, 9), batch(shard(1), 4, 6))
    process(spark, path, batch(shard(1), 8, 9))
    assert found(path) == expected(s0=12, s1=9, s2=4)


def test_a_batch_of_many_shards_that_are_all_covered_is_one_plan(spark, path):
    many = [batch(shard(number), 0, 1) for number in range(40)]
    process(spark, path, *many)
    process(spark, path, *many)
    assert sum(found(path).values()) == 40
