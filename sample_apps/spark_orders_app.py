#!/usr/bin/env python3
"""Turnover per product out of raw bytes: an aggregate of each batch, written once.

A record is a line like ``1042;tea;3;4.50``: order, product, pieces, price of a piece::

    # orders.properties
    executableName  = kcl-mld-spark spark_orders_app.py
    spark.sink.path = /data/turnover

What differs from ``spark_flights_app.py``:

* no decoder: ``data`` has the bytes of the record;
* an aggregate. It is one *of this batch*: whoever reads sums up, see :func:`turnover`.
"""

from pyspark.sql import functions as F

from kcl_mld.spark import run


def process(df, ctx):
    """Pieces and turnover per product in this batch."""
    word = F.split(F.decode("data", "UTF-8"), ";")
    orders = df.select(
        word[1].alias("product"),
        word[2].cast("int").alias("pieces"),
        word[3].cast("decimal(12, 2)").alias("price"),
    )
    return orders.groupBy("product").agg(
        F.sum("pieces").alias("pieces"),
        F.sum(F.col("pieces") * F.col("price")).alias("turnover"),
    )


def turnover(batches):
    """Pieces and turnover per product over all batches."""
    return batches.groupBy("product").agg(
        F.sum("pieces").alias("pieces"), F.sum("turnover").alias("turnover")
    )


if __name__ == "__main__":
    run(process)
