"""Into a table of PostgreSQL, the rows of all shards and their marks in one transaction.

Spark writes the rows of a micro-batch into a staging table of its own, from many tasks and in as
many transactions as it likes. Then one connection from here locks the marks of all its shards,
compares each with the position behind which its batch was cut, moves the rows into the target with
one statement, and sets the marks. So a micro-batch is there whole or not at all, a second writer of
a position changes nothing, and a redelivery may be cut anywhere: the mark says where the next batch
begins.

An exception proves nothing: the marks are looked at again over another connection
(:func:`mld.spark.sinks.jdbc_tables.judge`), and while they say that nothing was committed the same
staging table is moved again, as long as an outage is likely to last. As long as the database goes
on with a transaction that nobody waits for any more, it has the marks locked: whoever extends the
same positions waits for it, and then finds them moved or where they were.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from mld.spark.calls import GivenUp, Overdue, call_within, raise_if_abandoned
from mld.spark.errors import (
    BatchFailed,
    MissingPart,
    SinkUnavailable,
    SparkChildError,
)
from mld.spark.model import MicroBatch
from mld.spark.ports import CommitOutcome
from mld.spark.sinks.database import Database, DatabaseUnavailable, quoted
from mld.spark.sinks.jdbc_staging import ROW_COLUMN, JdbcStaging, StagedRows
from mld.spark.sinks.jdbc_tables import REMOVAL, SinkTables, judge, split_name, table_columns
from mld.spark.sinks.postgres_url import (
    connection_arguments,
    credentials,
    driver_url,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.model import Position, ShardBatch, ShardKey
    from mld.spark.sinks.database import Transaction

_log = logging.getLogger(__name__)

#: A staging table is swept so long after the last moment at which its job may commit, in s: the
#: clocks of two hosts differ by less.
_STALE_S = 3600
#: How long a start waits for what has to be dropped, in s.
_SWEEP_S = 10.0
#: Before the tries of a commit after the first, in s; a database that is started again takes some
#: ten seconds.
PAUSES_S = (0.0, 0.1, 0.2, 0.5, 1.0, *(2.0,) * 9)
#: What libpq is told unless the user says otherwise: a dead peer is noticed within a minute.
_PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
#: Names come as texts, whatever encoding the database has; and nothing is left in a session that
#: something in between may hand to another one.
_ALWAYS: dict[str, Any] = {"client_encoding": "utf8", "prepare_threshold": None}


class JdbcSink:
    """The ``jdbc`` sink: ``spark.sink.url`` and ``spark.sink.table``."""

    def __init__(
        self,
        config: SparkConfig,
        application: str,
        *,
        now_s: Callable[[], float] = time.time,
        pause: Callable[[float], object] = time.sleep,
        database: Database | None = None,
    ) -> None:
        """Read the configuration; no connection is opened before ``prepare``.

        Args:
            config: with ``spark.sink.url`` and ``spark.sink.table``.
            application: name of the KCL application.
            now_s: seconds since 1970, to tell old staging tables.
            pause: waits for so many s.
            database: as this process reaches it; None = by the URL.

        Raises:
            SparkConfigError: a property is wrong.
            MissingPart: psycopg is needed and not installed.
        """
        assert config.sink_table is not None  # see ``config.require_places``
        options = _writer_options(config)
        secrets = [options.get("password", "")]
        self._database = database or _postgres(config, secrets)
        *schema, table = split_name(config.sink_table)
        self._target = quoted(*schema, table)
        self._tables = SinkTables(self._database, tuple(schema), application)
        self._staging = JdbcStaging(
            self._database,
            self._tables,
            self._target,
            options,
            secrets,
            creates_table=config.creates_table,
        )
        self._timeout_s = config.batch_timeout_s
        self._now_s = now_s
        self._pause = pause

    def prepare(self, spark: SparkSession) -> None:
        """Make our tables, sweep what dead jobs left, and see that Spark reaches the database.

        Raises:
            MissingPart: the server lacks the JDBC driver.
            SinkRefused: what is rolled back stays, or the table is missing.
            SinkUnavailable: the database does not let one of us in.
        """
        try:
            self._tables.create()
            self._tables.require_transactions(int(self._now_s()))
            self._staging.require_table()
            self._sweep()
        except SparkChildError:
            raise
        except Exception as error:  # noqa: BLE001 - told in one line
            raise self._final("the tables of marks can't be read, nor made", error) from None
        self._staging.require_access(spark)

    def _sweep(self) -> None:
        """Drop what dead jobs have left; who holds such a table, e.g. a dump, is not waited for."""
        before_s = int(self._now_s() - _STALE_S)
        try:
            call_within(
                _SWEEP_S,
                lambda: self._tables.sweep(before_s),
                name="jdbc-sweep",
                interrupt=lambda: self._database.cancel(REMOVAL),
            )
        except Overdue:
            _log.info("a staging table of a dead job is in use; a later start drops it")

    def mark(self, shard: ShardKey) -> Position | None:
        """The mark of the shard in the database; an outage is waited for as in a commit.

        Raises:
            SinkUnavailable: the database does not answer for so long.
        """
        last: DatabaseUnavailable | None = None
        for pause_s in PAUSES_S:
            self._pause(pause_s)
            try:
                return self._tables.mark(shard)
            except DatabaseUnavailable as error:
                last = error
        assert last is not None  # there is a pause, so there was a try
        raise last

    def write(self, frame: DataFrame, batches: Sequence[ShardBatch]) -> StagedRows:
        """Write the rows of all batches to a new staging table.

        Raises:
            BatchFailed: the rows do not fit the target.
            DatabaseUnavailable: no answer; the batches may be tried again.
        """
        del batches
        return self._staging.write(frame, int(self._now_s() + self._timeout_s))

    def commit_all(
        self, staged: StagedRows, batches: Sequence[ShardBatch]
    ) -> Mapping[ShardKey, CommitOutcome]:
        """Move the rows and all marks in one transaction; see ``ports.Sink``.

        A transaction that nobody waits for any more is rolled back, up to the moment of the
        database's own commit.

        Raises:
            BatchFailed: the target refuses a row.
            SinkUnavailable: no answer for so long, or what is staged can't be used; the batches may
                be written again, and are found committed if they were.
            GivenUp: nobody waits for it any more, or a shard is lost; nothing was committed.
        """
        what = self._commit_of(batches)
        refused: BatchFailed | None = None
        last: DatabaseUnavailable | None = None
        for pause_s in PAUSES_S:
            self._pause(pause_s)
            raise_if_abandoned()
            try:
                found = self._try(staged, batches, what, may_move=refused is None)
            except DatabaseUnavailable as error:
                last = error
            except (GivenUp, SparkChildError):
                raise
            except Exception as error:  # noqa: BLE001 - the marks say what became of it
                refused = self._final(what, error)
            else:
                if found is not None:
                    return found
                break
        if refused is not None:
            is_there = table_columns(self._database, staged.table) is not None
            raise refused if is_there else SinkUnavailable(f"{what}: {_SWEPT}")
        assert last is not None  # or a try has answered
        raise last from None

    def cancel(self, batches: Sequence[ShardBatch]) -> None:
        """Ask the database to end the commit of a job."""
        self._database.cancel(self._commit_of(batches))

    def discard(self, staged: StagedRows) -> None:
        """Drop the staging table."""
        self._tables.drop(staged.table)

    def close(self) -> None:
        """Close the idle connections; the next call opens new ones."""
        self._database.close()

    def _commit_of(self, batches: Sequence[ShardBatch]) -> str:
        return f"commit of {MicroBatch(tuple(batches)).batch_id} into {self._target}"

    def _try(
        self,
        staged: StagedRows,
        batches: Sequence[ShardBatch],
        what: str,
        *,
        may_move: bool,
    ) -> Mapping[ShardKey, CommitOutcome] | None:
        """One transaction; None if nothing was committed, and may be."""
        with self._database.transaction(what) as transaction:
            marks = self._tables.lock(transaction, [batch.shard for batch in batches])
            found = judge(batches, marks)
            if found is None and may_move:
                self._move(transaction, staged, what)
                self._tables.advance(transaction, batches)
                raise_if_abandoned()
                found = {batch.shard: CommitOutcome.STANDS for batch in batches}
        return found

    def _move(self, transaction: Transaction, staged: StagedRows, what: str) -> None:
        row = quoted(ROW_COLUMN)
        # A task that Spark repeats after its commit writes its rows once more.
        ((count, doubled),) = transaction.rows(
            f"SELECT COUNT(*), COUNT(*) - COUNT(DISTINCT {row}) FROM {staged.table}"  # noqa: S608
        )
        if doubled:
            raise SinkUnavailable(f"{what}: Spark staged {doubled} rows twice")
        # Spark's transactions may be gone after a crash (synchronous_commit = off) or a failover.
        if count != staged.count:
            raise SinkUnavailable(f"{what}: of {staged.count} staged rows the database has {count}")
        columns = ", ".join(map(quoted, staged.columns))
        transaction.run(
            f"INSERT INTO {self._target} ({columns}) SELECT {columns} FROM {staged.table}"  # noqa: S608
        )

    def _final(self, what: str, error: Exception) -> BatchFailed:
        return BatchFailed(f"{what}: {self._database.explain(error)}")


_SWEPT = "the staging table is gone, perhaps swept by a worker whose clock is far ahead"


def _writer_options(config: SparkConfig) -> dict[str, str]:
    """Options of Spark's JDBC writer; what it does not know goes to the driver."""
    url = str(config.sink_url)
    return {
        "url": driver_url(url, config.sink_options),
        # Many rows a statement; no values of rows in the messages of errors; and no named statements,
        # which a pooler would hand to the next session.
        "driver": "org.postgresql.Driver",
        "reWriteBatchedInserts": "true",
        "logServerErrorDetail": "false",
        "prepareThreshold": "0",
        **credentials(url, config.sink_options, os.environ),
        **config.sink_options,
    }


def _postgres(config: SparkConfig, secrets: Sequence[str]) -> Database:
    arguments: dict[str, Any] = {
        **_PATIENCE,
        **connection_arguments(str(config.sink_url), config.sink_options, os.environ),
        **_ALWAYS,
    }
    try:
        import psycopg  # noqa: PLC0415
    except ImportError as error:
        raise MissingPart(
            "spark.sink=jdbc: psycopg is not installed: pip install 'kcl-mld[postgres]'"
        ) from error
    # The last ones: of a server that was the primary, and of a process that stood still.
    transient = (
        psycopg.OperationalError,
        psycopg.InterfaceError,
        psycopg.errors.ReadOnlySqlTransaction,
        psycopg.errors.IdleInTransactionSessionTimeout,
    )
    return Database(lambda: psycopg.connect(**arguments), transient, secrets)
