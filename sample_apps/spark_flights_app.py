#!/usr/bin/env python3
"""Flights with the names of their airlines, as a Delta table, one row a flight: for PySpark.

Compare with ``flights_app.py``, which does the same job by hand. Here you write one function over a
DataFrame; when it runs, where its rows go and that each gets there once is not its business::

    # flights.properties
    executableName  = kcl-mld-spark spark_flights_app.py
    spark.sink.path = /data/flights

``process`` is called once for a batch of all shards, as a function of ``foreachBatch`` is: it may
count, collect and make views. Make everything that does not depend on the batch once, like the
airlines below.
"""

import functools

import flights_data
from pyspark.sql import functions as F

from kcl_mld.spark import run

#: The JSON of a record as columns. What cannot be read as this fails the batch, by default.
SCHEMA = """
    row bigint, carrier string, flight string, tailnum string, origin string, dest string,
    dep_delay double, arr_delay double, distance double, time_hour timestamp
"""


@functools.lru_cache(maxsize=1)
def airlines(spark):
    """Carrier code and name: a small static table, made once for each session."""
    rows = sorted(flights_data.airlines().items())
    return F.broadcast(spark.createDataFrame(rows, "carrier string, airline string"))


def process(df, ctx):
    """Join the airline's name; ``hour`` is that of the scheduled departure in New York, 0 to 23."""
    local = F.from_utc_timestamp("time_hour", "America/New_York")
    return df.join(airlines(ctx.spark), "carrier", "left").select(
        "row",
        "carrier",
        "airline",
        "flight",
        "origin",
        "dest",
        F.to_date(local).alias("day"),
        F.hour(local).alias("hour"),
        "dep_delay",
        "arr_delay",
    )


if __name__ == "__main__":
    run(process, schema=SCHEMA, decoder="json")
