"""One Delta table, by path or by name: is it there, create it, append to it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.spark.errors import MissingPart, SinkRefused, SparkConfigError
from mld.spark.sinks.packages import DELTA_CATALOG, DELTA_EXTENSION, delta_coordinate
from mld.spark.sinks.spark_errors import condition, first_line, retry_conflicts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from mld.spark.config import SparkConfig

_log = logging.getLogger(__name__)
_PARTITION_BY = "partitionBy"
_ABSENT = (
    "PATH_NOT_FOUND",
    "TABLE_OR_VIEW_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_SCHEMA_NOT_SET",
)
_NO_JAR = ("DATA_SOURCE_NOT_FOUND", "CANNOT_FIND_PROVIDER", "CANNOT_LOAD_CATALOG")
_NO_EXTENSION = ("DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG",)
#: Conditions of rows that do not fit their table.
SCHEMA_CONDITIONS = (
    "DELTA_METADATA_MISMATCH",
    "DELTA_FAILED_TO_MERGE_FIELDS",
    "DELTA_MERGE_INCOMPATIBLE",
    "DELTA_SCHEMA_CHANGED",
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
    "DELTA_MISSING_NOT_NULL_COLUMN_VALUE",
    "DELTA_UNSUPPORTED_NULL_DATATYPE",
    "DELTA_CANNOT_CREATE_FILE_WITH_NULL",
    "INCOMPATIBLE_DATA_FOR_TABLE",
    "CANNOT_WRITE_INCOMPATIBLE",
    "INSERT_COLUMN_ARITY_MISMATCH",
)
_EXISTS_NOW = ("TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_TABLE_ALREADY_EXISTS")


class DeltaTarget:
    """Where the rows go; ``str`` of it is for messages, ``sql`` for statements."""

    def __init__(self, config: SparkConfig) -> None:
        """Read ``spark.sink.path`` or ``spark.sink.table`` and ``spark.sink.options.*``.

        Raises:
            SparkConfigError: neither or both are named.
        """
        if (config.sink_path is None) == (config.sink_table is None):
            raise SparkConfigError(
                f"spark.sink={config.sink} needs spark.sink.path or spark.sink.table, not both"
            )
        self._sink = config.sink
        self._path = config.sink_path
        self._table = config.sink_table
        options = dict(config.sink_options)
        columns = options.pop(_PARTITION_BY, "")
        self._partition_by = [word.strip() for word in columns.split(",") if word.strip()]
        self._options = options

    def __str__(self) -> str:
        return self._path or self._table or ""

    @property
    def sql(self) -> str:
        """The table as it stands in a statement."""
        if self._path is not None:
            return f"delta.`{self._path.replace('`', '``')}`"
        return str(self._table)

    @property
    def merges_schema(self) -> bool:
        """True if new columns are let into the table."""
        return self._options.get("mergeSchema", "").strip().lower() == "true"

    def look(self, spark: SparkSession) -> bool:
        """True if the table is there.

        Raises:
            MissingPart: the jar or the extension is missing.
            SinkRefused: it is there and is no Delta table.
        """
        try:
            rows = spark.sql(f"DESCRIBE DETAIL {self.sql}").collect()
        except Exception as error:
            found = condition(error)
            if found.startswith(_ABSENT):
                self._look_for_extension(spark)
                return False
            self._explain(spark, error)
            raise
        if (kind := str(rows[0]["format"])) != "delta":
            raise SinkRefused(f"{self}: a table of the format {kind}; name a Delta table, or none")
        return True

    def columns(self, spark: SparkSession) -> list[str]:
        """Names of the table's columns, in its order."""
        return list(spark.sql(f"SELECT * FROM {self.sql} LIMIT 0").columns)  # noqa: S608

    def require(self, spark: SparkSession, names: Sequence[str]) -> None:
        """See that the table has some columns.

        Raises:
            SinkRefused: one is missing.
        """
        columns = self.columns(spark)
        if missing := [name for name in names if name not in columns]:
            raise SinkRefused(
                f"{self}: the table has no column {', '.join(missing)} of spark.sink.key; it has "
                f"{', '.join(columns)}"
            )

    def writer(self, rows: DataFrame) -> DataFrameWriter:
        """A writer that appends with the user's options."""
        writer = rows.write.format("delta").mode("append").options(**self._options)
        return writer.partitionBy(*self._partition_by) if self._partition_by else writer

    def save(self, writer: DataFrameWriter) -> None:
        """Run the append."""
        if self._path is not None:
            writer.save(self._path)
        else:
            writer.saveAsTable(str(self._table))

    def create(self, rows: DataFrame, pause: Callable[[float], None]) -> None:
        """Create the table with the rows' columns unless it is there; others may do so too.

        Args:
            rows: whose columns; they are not computed.
            pause: waits the given number of seconds.
        """
        spark = rows.sparkSession

        def once() -> None:
            if self.look(spark):
                return
            try:
                self.save(self.writer(spark.createDataFrame([], rows.schema)))
            except Exception as error:
                if not condition(error).startswith(_EXISTS_NOW):
                    self._explain(spark, error)
                    raise

        retry_conflicts(f"creation of {self}", once, pause)

    def _look_for_extension(self, spark: SparkSession) -> None:
        """A session without the extension creates tables that it then cannot write safely."""
        try:
            extensions = spark.conf.get("spark.sql.extensions", "") or ""
            catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
        except Exception as error:  # noqa: BLE001 - a managed server may hide its settings
            _log.info("%s: the server does not show its settings: %s", self, first_line(error))
            return
        if "delta" not in extensions.lower() and "databricks" not in catalog.lower():
            raise MissingPart(self._advice(spark))

    def _explain(self, spark: SparkSession, error: Exception) -> None:
        found = condition(error)
        if found.startswith((*_NO_JAR, *_NO_EXTENSION)) or "ClassNotFound" in str(error):
            raise MissingPart(self._advice(spark)) from error
        if found == "DELTA_UNSUPPORTED_DESCRIBE_DETAIL_VIEW":
            raise SinkRefused(f"{self}: a view; name a Delta table") from error
        if found.startswith(("SCHEMA_NOT_FOUND", "PARSE_SYNTAX_ERROR", "INVALID_IDENTIFIER")):
            raise SinkRefused(f"{self}: {first_line(error)}") from error

    def _advice(self, spark: SparkSession) -> str:
        return (
            f"spark.sink={self._sink} needs Delta Lake in the Spark server: give it the package "
            f"{delta_coordinate(spark.version)} (spark.jars.packages), "
            f"spark.sql.extensions={DELTA_EXTENSION} and "
            f"spark.sql.catalog.spark_catalog={DELTA_CATALOG}"
        )
