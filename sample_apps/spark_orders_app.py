#!/usr/bin/env python3
"""Turnover per product out of raw bytes: a PySpark processor that writes for itself.

A record is a line like ``1042;tea;3;4.50``: order, product, pieces, price of a piece::

    # orders.properties
    executableName    = kcl-mld-spark spark_orders_app.py /data/turnover
    spark.sink        = foreach
    spark.batch.scope = shard

What differs from ``spark_flights_app.py``:

* a class instead of a function, for what belongs to a shard; the methods of kclpy's v3 are there;
* no decoder: ``data`` has the bytes of the record;
* an aggregate. It is one *of this shard and batch*: whoever reads sums up, see :func:`turnover`;
* ``process`` writes and returns None. It may be called again for a batch that it has written: after
  a failure, or after a crash with the very same records (kcl-mld has noted the batch in the lease).
  So the directory is named by the batch, and a repetition overwrites it.
"""

import sys

from pyspark.sql import functions as F

from mld.spark import SparkRecordProcessor, run


class Turnover(SparkRecordProcessor):
    """One shard's batches, each summed up in a directory of its own."""

    def initialize(self, initialize_input):
        self.folder = f"{sys.argv[1]}/shard={initialize_input.shard_id}"
        super().initialize(initialize_input)

    def process(self, df, ctx):
        word = F.split(F.decode("data", "UTF-8"), ";")
        orders = df.select(
            word[1].alias("product"),
            word[2].cast("int").alias("pieces"),
            word[3].cast("decimal(12, 2)").alias("price"),
        )
        sums = orders.groupBy("product").agg(
            F.sum("pieces").alias("pieces"),
            F.sum(F.col("pieces") * F.col("price")).alias("turnover"),
        )
        sums.coalesce(1).write.mode("overwrite").parquet(f"{self.folder}/batch={ctx.batch_id}")


def turnover(spark, folder):
    """Pieces and turnover per product over all shards and batches."""
    batches = spark.read.parquet(folder)
    return batches.groupBy("product").agg(
        F.sum("pieces").alias("pieces"), F.sum("turnover").alias("turnover")
    )


if __name__ == "__main__":
    run(processor=Turnover)
