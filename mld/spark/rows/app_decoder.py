"""How an app's records become columns, and where those are kept that can't.

With the policy ``deadletter`` they are written as they came, before the batch is committed, as
Parquet with the raw columns below a directory that is named by the batch. A repeated batch
overwrites its own, so a retry adds nothing. It is *at least once* over a crash: a batch that is cut
anew may leave some of its bad records to the next one, and these are then there twice.

Costs a second pass over the data: the function's plan never sees these records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kcl_mld.config.spark.addresses import is_s3
from kcl_mld.config.spark.places import local_path
from kcl_mld.spark.calls import raise_if_abandoned
from kcl_mld.spark.errors import SparkConfigError
from kcl_mld.spark.rows.decode import Decoder, make_decoder
from kcl_mld.spark.rows.item_changes import CHANGE_COLUMNS, read_change
from kcl_mld.spark.rows.records import SCHEMA_COLUMNS, table_of
from kcl_mld.spark.table.data_files import Rows
from kcl_mld.spark.table.parquet import FileLayout, file_parts
from kcl_mld.spark.table.rules import fields_in
from kcl_mld.spark.table.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.model import ShardBatch
    from kcl_mld.spark.registration import Pipeline


#: Names the folders, and is a column for their readers: ``ctx.batch_id``. Readers such as
#: pyarrow pass over folders whose name begins with ``_``.
BATCH_ID = "batch_id"


class AppDecoder:
    """The app's decoder; its schema is read once. Safe to use from any thread.

    Args:
        pipeline: what the app registered; it wins over the properties.
        config: decoder and policy where the app names none.
        with_schemas: the daemon has a schema registry: rows have the columns of a schema.
    """

    def __init__(
        self, pipeline: Pipeline, config: SparkConfig, *, with_schemas: bool = False
    ) -> None:
        self._pipeline = pipeline
        self._config = config
        self._with_schemas = with_schemas
        self._kind = pipeline.decoder or config.decoder
        self._decoder: Decoder | None = None

    def get(self, spark: SparkSession) -> Decoder:
        """The decoder.

        Raises:
            SparkConfigError: the schema is missing or wrong, or there is no place for bad records.
        """
        # No lock: the server is asked, which may hang, and two decoders would be equal.
        if self._decoder is None:
            on_error = self._pipeline.on_error or self._config.on_error
            if on_error == "deadletter" and self._config.deadletter_path is None:
                raise SparkConfigError("spark.deadletter.path is missing: bad records go there")
            decoder = make_decoder(
                self._kind,
                self._pipeline.schema or self._config.decoder_schema,
                on_error,
                spark,
            )
            if self._with_schemas:
                decoder = replace(decoder, raw_names=(*decoder.raw_names, *SCHEMA_COLUMNS))
            self._decoder = decoder
        return self._decoder

    def table(self, batch: ShardBatch, *, is_named: bool = False) -> pa.Table:
        """The rows of a shard's batch as the decoder takes them.

        Args:
            is_named: each with the batch's id.
        """
        table = table_of(batch, with_schemas=self._with_schemas)
        if self._kind == "dynamodb":
            changes = [read_change(row.data) for row in batch.rows]
            for index, name in enumerate(CHANGE_COLUMNS):
                column = pa.array([change[index] for change in changes], pa.string())
                table = table.append_column(name, column)
        if is_named:
            field = pa.field(BATCH_ID, pa.string(), nullable=False)
            table = table.append_column(field, pa.repeat(batch.batch_id, len(batch.rows)))
        return table


def write_bad_rows(decoder: Decoder, rows: DataFrame, path: str) -> None:
    """Keep the bad records of a job's batches.

    Args:
        rows: of all shards, each with the batch's id.
        path: a directory of this machine, a place in S3, or a URL that Spark writes to.
    """
    bad = decoder.bad_rows(rows, BATCH_ID)
    if local_path(path) is None and not is_s3(path):
        writer = bad.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(BATCH_ID).parquet(path)
        return
    found = Rows(bad.toArrow(), fields_in(bad.schema.json()))
    raise_if_abandoned()
    store = open_store(path, "deadletter", "spark.deadletter.path")
    for part in file_parts(found, FileLayout({BATCH_ID: "string"})):
        place, _, name = part.name.rpartition("/")
        folder = store.below(place)
        folder.make()
        folder.put(name, part.content())
