"""The user's program of the chaos runs: every record becomes one row that names its place."""

import os
from pathlib import Path

from pyspark.sql import functions as F

from mld.spark import run


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


def write_myself(df, ctx):
    """For foreach: a directory named by the batch's identity, overwritten by a repetition."""
    name = f"{ctx.shard_id}-{ctx.batch_number}"
    target = Path(os.environ["CHAOS_FOREACH"]) / name
    rows(df).coalesce(1).write.mode("overwrite").parquet(str(target))


run(
    write_myself if "CHAOS_FOREACH" in os.environ else process,
    schema="id bigint, pad string",
    decoder="json",
)
