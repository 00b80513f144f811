"""How an app's records become columns: what it registered, else the properties."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mld.spark.errors import SparkConfigError
from mld.spark.rows.decode import Decoder, make_decoder
from mld.spark.rows.records import SCHEMA_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.pipeline import Pipeline


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
        self.with_schemas = with_schemas
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
                self._pipeline.decoder or self._config.decoder,
                self._pipeline.schema or self._config.decoder_schema,
                on_error,
                spark,
            )
            if self.with_schemas:
                decoder = replace(decoder, raw_names=(*decoder.raw_names, *SCHEMA_COLUMNS))
            self._decoder = decoder
        return self._decoder
