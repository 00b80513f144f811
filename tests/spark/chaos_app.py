"""The user's program of the chaos runs: every record becomes one row that names its place."""

import os
import sqlite3
from contextlib import closing
from uuid import uuid4

import chaos_faults
from pyspark.sql import functions as F

from kcl_mld.spark import run


def rows(df):
    """The place of each record, and what the decoder made of it."""
    return df.select(
        "shard_id",
        "sequence_number",
        F.col("sub_sequence_number").alias("sub_sequence_number"),
        "id",
    ).where(F.col("id") >= 0)


def process(df, ctx):
    """For a configured sink."""
    return rows(df)


def merged(df, ctx):
    """For merge: a row for each record, and one for each bucket of a shard that the next replaces."""
    each = rows(df)
    place = F.concat_ws("/", "shard_id", "sequence_number", "sub_sequence_number")
    bucket = F.concat_ws("/", F.lit("last of"), "shard_id", F.col("id") % 20)
    return each.withColumn("key", place).unionByName(each.withColumn("key", bucket))


def twice(df, ctx):
    """For several outputs: the same rows, which say by which call they were made."""
    each = rows(df).withColumn("call", F.lit(uuid4().hex))
    return {"first": each, "second": each}


def write_myself(df, ctx):
    """For foreach: rows and marks of all shards in one transaction of a database."""
    commit = chaos_faults.with_faults(write_all) if chaos_faults.EVENTS in os.environ else write_all
    commit(df, ctx)


def write_all(df, ctx):
    with closing(sqlite3.connect(os.environ["CHAOS_FOREACH"], timeout=60)) as database, database:
        database.execute("BEGIN IMMEDIATE")
        stored = dict(database.execute("SELECT shard, position FROM marks"))
        new = rows(ctx.new_rows(df, stored)).collect()
        database.executemany("INSERT INTO chaos_rows VALUES (?, ?, ?, ?)", map(tuple, new))
        database.executemany(
            "INSERT INTO marks VALUES (?, ?) ON CONFLICT (shard) DO UPDATE "
            "SET position = max(position, excluded.position)",
            [(mark.shard, mark.to) for mark in ctx.marks()],
        )


def chosen():
    if "CHAOS_MERGE" in os.environ:
        return merged
    if "CHAOS_OUTPUTS" in os.environ:
        return twice
    return write_myself if "CHAOS_FOREACH" in os.environ else process


chaos_faults.install(os.environ.get("CHAOS_SINK", "delta"))
run(
    chosen(),
    schema="id bigint, pad string",
    decoder="json",
)
