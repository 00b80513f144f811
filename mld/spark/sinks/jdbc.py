"""Into a table of a database, rows and mark in one transaction.

Spark writes the rows of a job into a staging table of its own, from many tasks and in as many
transactions as it likes. Then, batch by batch, one connection from here moves the rows into the
target and the shard's mark from ``after`` to ``to``, which must be where the batch began. So a
batch is there whole or not at all, a second writer of the same position changes nothing, and a
redelivery may be cut anywhere: the mark says where the next batch begins.

A commit that does not come back, or whose shard is lost, is cancelled and given up. As long as the
database goes on with it all the same, it has the mark's row locked: whoever extends the same
position waits for it, and then finds the mark moved or where it was.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from mld.spark.calls import GivenUp, raise_if_abandoned
from mld.spark.errors import (
    BatchFailed,
    MissingPart,
    SinkUnavailable,
    SparkChildError,
    SparkConfigError,
)
from mld.spark.model import BATCH_COLUMN
from mld.spark.sinks.dbapi import Database, DatabaseUnavailable, load_connect
from mld.spark.sinks.jdbc_staging import ROW_COLUMN, JdbcStaging, StagedRows
from mld.spark.sinks.jdbc_tables import SinkTables, fenced, split_name
from mld.spark.sinks.postgres_url import PREFIX, connection_arguments, credentials
from mld.spark.sinks.spark_errors import refuse_none

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.model import Position, ShardBatch, ShardKey
    from mld.spark.sinks.dbapi import Transaction

#: Staging tables older than this, and than four batch timeouts, belong to a dead job; seconds.
_STALE_S = 3600
#: What libpq is told unless the user says otherwise: a dead peer is noticed within a minute.
_PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


class JdbcSink:
    """The ``jdbc`` sink: ``spark.sink.url`` and ``spark.sink.table``."""

    coalesces = True
    stages_ahead = True
    uses_intents = False
    commits_together = False

    def __init__(
        self,
        config: SparkConfig,
        application: str,
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """Read the configuration; no connection is opened before ``prepare``.

        Args:
            config: with ``spark.sink.url``, ``spark.sink.table`` and, for other databases than
                PostgreSQL, ``spark.sink.connection``.
            application: name of the KCL application.
            now_s: seconds since 1970, to tell old staging tables.

        Raises:
            SparkConfigError: a property is missing or wrong.
            MissingPart: psycopg is needed and not installed.
        """
        if config.sink_url is None or config.sink_table is None:
            raise SparkConfigError("spark.sink=jdbc needs spark.sink.url and spark.sink.table")
        options = _writer_options(config)
        quote = "`" if config.sink_url.startswith(("jdbc:mysql:", "jdbc:mariadb:")) else '"'
        secrets = [options.get("password", "")]
        self._database = Database(_connector(config), quote, secrets)
        *schema, table = split_name(config.sink_table)
        self._target = self._database.name(*schema, table)
        self._tables = SinkTables(self._database, tuple(schema), application)
        self._staging = JdbcStaging(self._database, self._tables, self._target, options, secrets)
        self._stale_s = max(_STALE_S, 4 * config.batch_timeout_s)
        self._now_s = now_s

    def prepare(self, spark: SparkSession) -> None:
        """Make our tables, sweep what dead jobs left, and see that Spark reaches the database.

        Raises:
            MissingPart: the server lacks the JDBC driver.
            SinkRefused: what is rolled back stays.
            SinkUnavailable: the database does not let one of us in.
        """
        try:
            self._tables.create()
            self._tables.require_transactions(int(self._now_s()))
            self._tables.sweep(int(self._now_s() - self._stale_s))
        except DatabaseUnavailable as error:
            raise SinkUnavailable(f"spark.sink=jdbc: {error}") from None
        except SparkChildError:
            raise
        except Exception as error:  # noqa: BLE001 - told in one line
            raise self._final("cannot make the tables of marks", error) from None
        self._staging.require_access(spark)

    def mark(self, shard: ShardKey) -> Position | None:
        """The mark of the shard in the database.

        Raises:
            SinkUnavailable: the database does not answer.
        """
        try:
            return self._tables.mark(shard)
        except DatabaseUnavailable as error:
            raise SinkUnavailable(f"spark.sink=jdbc: {error}") from None

    def write(self, frame: DataFrame | None, batches: Sequence[ShardBatch]) -> StagedRows | None:
        """Write the rows of all batches to a new staging table; None = there are no rows.

        Raises:
            BatchFailed: the rows do not fit the target.
            DatabaseUnavailable: no answer; the batches may be tried again.
        """
        if frame is None:
            refuse_none(batches, "jdbc")
            return None
        return self._staging.write(frame, int(self._now_s()))

    def commit(self, staged: StagedRows | None, batch: ShardBatch) -> None:
        """Move one batch's rows and its mark in one transaction.

        The mark comes first: its row is locked while the rows are moved. A transaction that nobody
        waits for any more is rolled back, up to the moment of the database's own commit.

        Raises:
            Fenced: the mark is not where the batch begins.
            BatchFailed: the target refuses a row.
            DatabaseUnavailable: no answer, or Spark wrote a row twice; the batch may be tried
                again, and is found committed if it was.
            GivenUp: nobody waits for it any more, or the shard is lost; nothing was committed.
        """
        what = self._commit_of(batch)
        try:
            with self._database.transaction(what) as transaction:
                if self._advance(transaction, batch) and staged is not None:
                    self._move(transaction, staged, batch, what)
                raise_if_abandoned()
        except (SparkChildError, DatabaseUnavailable, GivenUp):
            raise
        except Exception as error:  # noqa: BLE001 - told in one line
            raise self._final(what, error) from None

    def cancel(self, batch: ShardBatch) -> None:
        """Ask the database to end the commit of a batch, as far as the driver can."""
        self._database.cancel(self._commit_of(batch))

    def discard(self, staged: StagedRows | None) -> None:
        """Drop the staging table."""
        if staged is not None:
            self._tables.drop(staged.table)

    def close(self) -> None:
        """Close the idle connections; the next call opens new ones."""
        self._database.close()

    def _commit_of(self, batch: ShardBatch) -> str:
        return f"commit of {batch.batch_id} into {self._target}"

    def _advance(self, transaction: Transaction, batch: ShardBatch) -> bool:
        try:
            return self._tables.advance(transaction, batch)
        except transaction.driver.integrity_error:
            raise fenced(batch, "set by somebody else at the same time") from None

    def _move(
        self, transaction: Transaction, staged: StagedRows, batch: ShardBatch, what: str
    ) -> None:
        name = self._database.name
        where = f"WHERE {name(BATCH_COLUMN)} = :batch"
        row = name(ROW_COLUMN)
        # A task that Spark repeats after its commit writes its rows once more.
        ((doubled,),) = transaction.rows(
            f"SELECT COUNT(*) - COUNT(DISTINCT {row}) FROM {staged.table} {where}",  # noqa: S608
            batch=batch.batch_id,
        )
        if doubled:
            raise DatabaseUnavailable(f"{what}: Spark staged {doubled} rows twice")
        columns = ", ".join(map(name, staged.columns))
        transaction.run(
            f"INSERT INTO {self._target} ({columns}) "  # noqa: S608
            f"SELECT {columns} FROM {staged.table} {where}",
            batch=batch.batch_id,
        )

    def _final(self, what: str, error: Exception) -> BatchFailed:
        return BatchFailed(f"{what}: {self._database.explain(error)}")


def _writer_options(config: SparkConfig) -> dict[str, str]:
    """Options of Spark's JDBC writer; what it does not know goes to the driver."""
    url = str(config.sink_url)
    ours = {"url": url}
    if url.startswith(PREFIX):
        # Many rows a statement; and no values of rows in the messages of errors.
        ours |= {"driver": "org.postgresql.Driver", "reWriteBatchedInserts": "true"}
        ours |= {"logServerErrorDetail": "false"}
        ours |= credentials(url, config.sink_options, os.environ)
    return {**ours, **config.sink_options}


def _connector(config: SparkConfig) -> Callable[[], Any]:
    if config.sink_connection is not None:
        return load_connect(config.sink_connection)
    arguments = connection_arguments(str(config.sink_url), config.sink_options, os.environ)
    try:
        import psycopg  # noqa: PLC0415
    except ImportError as error:
        raise MissingPart(
            "spark.sink=jdbc: psycopg is not installed: pip install 'kcl-mld[postgres]'"
        ) from error
    for name, text in _PATIENCE.items():
        arguments.setdefault(name, text)
    return lambda: psycopg.connect(**arguments)  # type: ignore[arg-type]
