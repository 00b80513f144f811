"""Records that cannot be decoded, kept as they came.

They are written before the batch is committed, as Parquet with the raw columns below a directory
that is named by the batch. A repeated batch overwrites its own, so a retry adds nothing. It is *at
least once* over a crash: a batch that is cut anew may leave some of its bad records to the next
one, and these are then there twice.

Costs a second pass over the data: the function's plan never sees these records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mld.spark.rows.records import table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mld.spark.model import ShardBatch
    from mld.spark.rows.decode import Decoder

#: Names the folders, and is a column of whoever reads them: ``ctx.batch_id``. Readers such as
#: pyarrow pass over folders whose name begins with ``_``.
BATCH_ID = "batch_id"


def write_bad_rows(decoder: Decoder, rows: DataFrame, path: str) -> None:
    """Keep the bad records of a job's batches.

    Args:
        decoder: says which are bad.
        rows: of ``named_table``, of all shards.
        path: directory that Spark can write to, e.g. ``s3a://…`` or a shared one.
    """
    bad = decoder.bad_rows(rows, carried=(BATCH_ID,))
    writer = bad.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(BATCH_ID).parquet(path)


def named_table(batch: ShardBatch, *, with_schemas: bool = False) -> pa.Table:
    """The raw rows of a shard's batch, each with the batch's id."""
    names = pa.repeat(batch.batch_id, len(batch.rows))
    field = pa.field(BATCH_ID, pa.string(), nullable=False)
    return table_of(batch, with_schemas=with_schemas).append_column(field, names)
