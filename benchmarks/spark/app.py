"""The program under measurement: typed columns, a filter, or an aggregate per shard and batch."""

import os

from pyspark.sql import functions as F

from benchmarks.spark.data import SCHEMA, wanted
from kcl_mld.spark import run


def keep(df, ctx):
    """Typed columns, most rows."""
    return wanted(df)


def per_user(df, ctx):
    """One row a user, shard and batch."""
    return wanted(df).groupBy("user").agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))


run(
    per_user if os.environ.get("BENCH_FUNCTION") == "per_user" else keep,
    schema=SCHEMA,
    decoder="json",
)
