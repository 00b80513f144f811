"""Append to an Iceberg table: Spark computes the rows, this process writes and commits them.

Rows come as Arrow; pyiceberg writes the files and makes the commit. See
:mod:`kcl_mld.spark.iceberg.table` for the proof that each record's rows are there once.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError

from kcl_mld.config.spark.addresses import table_parts
from kcl_mld.config.spark.partitions import partition_fields
from kcl_mld.kernel.model.masking import mask
from kcl_mld.spark.calls import raise_if_abandoned
from kcl_mld.spark.errors import BatchFailed, SinkRefused, SinkUnavailable, SparkChildError
from kcl_mld.spark.iceberg.catalogs import open_catalog
from kcl_mld.spark.iceberg.columns import fit, iceberg_schema, refused_column, spark_fields
from kcl_mld.spark.iceberg.commit import TableCommit
from kcl_mld.spark.iceberg.partitions import partition_spec, partitions_of
from kcl_mld.spark.iceberg.table import IcebergTable
from kcl_mld.spark.iceberg.upkeep import OF_NEW_TABLE, UPKEEP, is_looked_after
from kcl_mld.spark.sinks.results import fetch
from kcl_mld.spark.table.fitting import additions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.model import Position, ShardBatch, ShardKey
    from kcl_mld.spark.ports import CommitOutcome
    from kcl_mld.spark.table.data_files import Rows

_log = logging.getLogger("mld.spark")

PARTITION_BY = "spark.sink.partitionBy"
_OF_NEW_TABLE = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    **OF_NEW_TABLE,
}
_MANY_SNAPSHOTS = 200
#: In the log.
OVERTAKEN = "commits of others that came first"
#: How often others may change the columns at the same moment.
_TIMES = 5


class IcebergSink:
    """The ``iceberg`` sink. One instance a process; all methods may be called from any thread."""

    def __init__(self, config: SparkConfig, application: str) -> None:
        """Read the configuration; nothing is touched before ``prepare``.

        Raises:
            SparkConfigError: a property is wrong.
        """
        assert config.sink_table is not None  # see ``config.require_places``
        self._config = config
        self._application = application
        self._identifier = table_parts(config.sink_table)
        self.name = ".".join(self._identifier)
        self._partitions = partition_fields(config.texts.get(PARTITION_BY, ""))
        if config.sink_options:
            names = ", ".join(f"spark.sink.options.{each}" for each in config.sink_options)
            _log.warning("no effect: %s", names)
        self._catalog: Catalog | None = None
        self._table: IcebergTable | None = None
        self._lock = threading.Lock()
        self._overtaken = 0

    def prepare(self, spark: SparkSession) -> None:
        """Open the catalog, and look at the table.

        Raises:
            SinkRefused: the table may not be written.
            SinkUnavailable: it can't be read.
        """
        del spark
        self._catalog = open_catalog(self._config)
        self._table = IcebergTable(
            self._catalog, self._identifier, self._application, self._config.epoch
        )
        try:
            if (table := self._table.look()) is not None:
                self._require_partitions(table)
                self._warn_of_snapshots(table)
        except SparkChildError:
            raise
        except Exception as error:
            raise SinkUnavailable(f"{self.name} can't be read: {mask(str(error))}") from error

    def mark(self, shard: ShardKey) -> Position | None:
        """Where the shard stands in the table; None = no commit of this epoch names it.

        Raises:
            SinkRefused: what the table says of the shards can't be trusted.
            SinkUnavailable: it can't be read.
        """
        try:
            return self._marked.mark(shard)
        except SparkChildError:
            raise
        except Exception as error:
            raise SinkUnavailable(f"{self.name} can't be read: {mask(str(error))}") from error

    def write(self, frame: DataFrame, batches: Sequence[ShardBatch]) -> Rows:
        """Have the rows computed, and see that they fit the table, which is made if it is missing.

        Raises:
            ResultTooLarge: they are too many for one job.
            BatchFailed: the rows do not fit the table.
            Exception: of the catalog. It may be tried again, like what Spark raises.
        """
        del batches
        rows = fetch(frame, self.name, self._config.max_result_bytes, refused_column)
        raise_if_abandoned()
        table = self._marked.last_seen() or self._marked.look() or self._create(rows)
        if not self._fits(table, rows):
            self._admit(rows)
        return rows

    def commit_all(
        self, staged: Rows, batches: Sequence[ShardBatch]
    ) -> Mapping[ShardKey, CommitOutcome]:
        """One commit for all batches of a job; see ``ports.Sink``."""
        adds_columns = self._config.adds_columns
        made = TableCommit(
            self._marked,
            batches,
            lambda schema: fit(schema, staged, self.name, adds_columns=adds_columns),
        )
        try:
            return made.run()
        finally:
            with self._lock:
                self._overtaken += made.overtaken

    def counts(self) -> Mapping[str, int]:
        """As ``ports.Counts``: how long this worker has waited for the others, in their commits."""
        return {OVERTAKEN: self._overtaken}

    def discard(self, staged: Rows) -> None:
        """Nothing is left over: files are written within the commit."""

    @property
    def _marked(self) -> IcebergTable:
        assert self._table is not None  # ``prepare`` comes first
        return self._table

    def _fits(self, table: Table, rows: Rows) -> bool:
        """Whether rows fit a table that may be older than the one that is there."""
        try:
            fit(table.schema(), rows, self.name, adds_columns=True)
        except BatchFailed:
            return False
        return True

    def _admit(self, rows: Rows) -> None:
        """See that rows fit the table as it is now, which gets columns that it lacks if it may.

        Raises:
            BatchFailed: they don't fit.
            Exception: of the catalog.
        """
        last: Exception | None = None
        for _ in range(_TIMES):
            if (table := self._marked.look()) is None:
                raise BatchFailed(f"{self.name}: the table is gone")
            fields = spark_fields(table.schema())
            added = additions(fields, rows.fields)
            if not added or not self._config.adds_columns:
                fit(table.schema(), rows, self.name, adds_columns=self._config.adds_columns)
                return
            raise_if_abandoned()
            try:
                with table.update_schema() as update:
                    update.union_by_name(iceberg_schema(added))
            except Exception as error:  # noqa: BLE001 - somebody else may have added them
                last = error
        raise last or BatchFailed(f"{self.name}: columns that were added are not in the table")

    def _create(self, rows: Rows) -> Table:
        """Make the table with the rows' columns, unless somebody else has done so meanwhile."""
        assert self._catalog is not None  # ``prepare`` comes first
        names = [field["name"] for field in rows.fields]
        if missing := [each.column for each in self._partitions if each.column not in names]:
            raise BatchFailed(
                f"{self.name}: {PARTITION_BY} names {', '.join(missing)}, but the function's rows "
                f"have {', '.join(names)}"
            )
        schema = iceberg_schema(rows.fields)
        spec = partition_spec(self._partitions, schema, self.name)
        raise_if_abandoned()
        try:
            if not self._config.sink_catalog:
                self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
            self._catalog.create_table(
                self._identifier,
                schema,
                partition_spec=spec,
                properties=_OF_NEW_TABLE,
            )
        except TableAlreadyExistsError:
            _log.info("%s: somebody else has made the table", self.name)
        except NoSuchNamespaceError as error:
            raise SinkRefused(
                f"{self.name}: the catalog has no namespace {'.'.join(self._identifier[:-1])}: "
                f"create it (in Glue a database), or correct spark.sink.table"
            ) from error
        if (table := self._marked.look()) is None:
            raise BatchFailed(f"{self.name}: the table was made, and is gone")
        self._require_partitions(table)
        return table

    def _warn_of_snapshots(self, table: Table) -> None:
        """Say that each commit becomes slower, where nobody seems to look after it."""
        count = len(table.snapshots())
        if count > _MANY_SNAPSHOTS and not is_looked_after(table.properties):
            _log.warning(
                "%s has %d snapshots, and each makes every commit slower: expire them, or set the "
                "table property %s = true to have this sink expire its own",
                self.name,
                count,
                UPKEEP,
            )

    def _require_partitions(self, table: Table) -> None:
        """See that the table is partitioned as the configuration says, if it does."""
        found = partitions_of(table)
        if self._partitions and self._partitions != found:
            raise SinkRefused(
                f"{self.name} is partitioned by {', '.join(map(str, found)) or 'nothing'}, but "
                f"{PARTITION_BY} names {', '.join(map(str, self._partitions))}: leave it out, or "
                f"name another table"
            )
