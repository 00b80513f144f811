"""Into a table of a database, rows and mark in one transaction.

Spark writes the rows of a job into a staging table of its own, from many tasks and in as many
transactions as it likes. Then, batch by batch, one connection from here moves the rows into the
target and the shard's mark from ``after`` to ``to``, which must be where the batch began. So a
batch is there whole or not at all, a second writer of the same position changes nothing, and a
redelivery may be cut anywhere: the mark says where the next batch begins.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mld.spark.errors import (
    BatchFailed,
    ConfigError,
    MissingPart,
    SinkUnavailable,
    SparkChildError,
)
from mld.spark.model import BATCH_COLUMN
from mld.spark.sinks.dbapi import Database, DatabaseUnavailable, load_connect, masked
from mld.spark.sinks.jdbc_tables import SinkTables, fenced, split_name, table_columns
from mld.spark.sinks.packages import POSTGRES_COORDINATE
from mld.spark.sinks.postgres_url import PREFIX, connection_arguments, credentials
from mld.spark.sinks.spark_errors import first_line, refuse_none

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.model import Batch, Position, ShardKey
    from mld.spark.sinks.dbapi import Transaction

#: Column of the staging table with a number of each row that no other row of the job has.
ROW_COLUMN = "_kcl_row"
#: Staging tables older than this, and than four batch timeouts, belong to a dead job; seconds.
_STALE_S = 3600
_NO_DRIVER = ("No suitable driver", "ClassNotFoundException", "did not find jdbc driver")


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What a job has written.

    Attributes:
        table: quoted name of the staging table.
        columns: names of the target's columns in it.
    """

    table: str
    columns: tuple[str, ...]


class JdbcSink:
    """The ``jdbc`` sink: ``spark.sink.url`` and ``spark.sink.table``."""

    coalesces = True
    uses_intents = False

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
            ConfigError: a property is missing or wrong.
            MissingPart: psycopg is needed and not installed.
        """
        if config.sink_url is None or config.sink_table is None:
            raise ConfigError("spark.sink=jdbc needs spark.sink.url and spark.sink.table")
        self._url = config.sink_url
        self._options = _writer_options(config)
        quote = "`" if self._url.startswith(("jdbc:mysql:", "jdbc:mariadb:")) else '"'
        secrets = [self._options.get("password", "")]
        self._database = Database(_connector(config), quote, secrets)
        *schema, table = split_name(config.sink_table)
        self._target = self._database.name(*schema, table)
        self._tables = SinkTables(self._database, tuple(schema), application)
        self._secrets = secrets
        self._stale_s = max(_STALE_S, 4 * config.batch_timeout_s)
        self._now_s = now_s
        self._lock = threading.Lock()

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
        try:
            reader = spark.read.format("jdbc").options(**self._options)
            reader.option("dbtable", self._tables.marks).load().schema  # noqa: B018
        except Exception as error:  # noqa: BLE001 - told without the URL
            self._explain_spark(error)
            text = masked(first_line(error), self._secrets)
            raise SinkUnavailable(
                f"spark.sink=jdbc: the Spark server cannot read {self._tables.marks}: {text}"
            ) from None

    def mark(self, shard: ShardKey) -> Position | None:
        """The mark of the shard in the database.

        Raises:
            SinkUnavailable: the database does not answer.
        """
        try:
            return self._tables.mark(shard)
        except DatabaseUnavailable as error:
            raise SinkUnavailable(f"spark.sink=jdbc: {error}") from None

    def write(self, frame: DataFrame | None, batches: Sequence[Batch]) -> StagedRows | None:
        """Write the rows of all batches to a new staging table; None = there are no rows.

        Raises:
            BatchFailed: the rows do not fit the target.
            DatabaseUnavailable: no answer; the batches may be tried again.
        """
        if frame is None:
            refuse_none(batches, "jdbc")
            return None
        stage = self._tables.stage(uuid.uuid4().hex)
        self._tables.register(stage, int(self._now_s()))
        try:
            self._stage(frame, stage)
            return StagedRows(stage, self._fit(stage))
        except BaseException:
            with contextlib.suppress(Exception):
                self._tables.drop(stage)
            raise

    def commit(self, staged: StagedRows | None, batch: Batch) -> None:
        """Move one batch's rows and its mark in one transaction.

        Raises:
            Fenced: the mark is not where the batch begins.
            BatchFailed: the target refuses a row.
            DatabaseUnavailable: no answer, or Spark wrote a row twice; the batch may be tried
                again, and is found committed if it was.
        """
        what = f"commit of {batch.batch_id} into {self._target}"
        try:
            with self._database.transaction(what) as transaction:
                if self._advance(transaction, batch) and staged is not None:
                    self._move(transaction, staged, batch, what)
        except (SparkChildError, DatabaseUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - told in one line
            raise self._final(what, error) from None

    def discard(self, staged: StagedRows | None) -> None:
        """Drop the staging table."""
        if staged is not None:
            self._tables.drop(staged.table)

    def close(self) -> None:
        """Close the idle connections; the next call opens new ones."""
        self._database.close()

    def _advance(self, transaction: Transaction, batch: Batch) -> bool:
        try:
            return self._tables.advance(transaction, batch)
        except transaction.driver.integrity_error:
            raise fenced(batch, "set by somebody else at the same time") from None

    def _move(self, transaction: Transaction, staged: StagedRows, batch: Batch, what: str) -> None:
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

    def _stage(self, frame: DataFrame, stage: str) -> None:
        rows = frame.selectExpr("*", f"monotonically_increasing_id() AS {ROW_COLUMN}")
        writer = rows.write.format("jdbc").options(**self._options).option("dbtable", stage)
        try:
            writer.save()
        except Exception as error:
            self._explain_spark(error)
            clean = masked(str(error), self._secrets)
            if clean != str(error):
                raise DatabaseUnavailable(clean.splitlines()[0]) from None
            raise

    def _fit(self, stage: str) -> tuple[str, ...]:
        """The staged columns, after a look whether the target has them all."""
        staged = table_columns(self._database, stage)
        if staged is None:
            raise DatabaseUnavailable(
                f"{stage}: Spark has written it, but it cannot be read from here; do spark.sink.url"
                " and spark.sink.connection name the same database?"
            )
        columns = tuple(name for name in staged if name not in {BATCH_COLUMN, ROW_COLUMN})
        target = self._target_columns(stage, columns)
        if missing := [name for name in columns if name not in target]:
            raise BatchFailed(
                f"{self._target}: the table has no column {', '.join(missing)}; it has "
                f"{', '.join(target)}. Names are compared exactly, upper and lower case too; "
                "change the function or the table"
            )
        return columns

    def _target_columns(self, stage: str, columns: Sequence[str]) -> list[str]:
        """Columns of the target; it is made from the staging table if it is missing."""
        with self._lock:
            if (found := table_columns(self._database, self._target)) is not None:
                return found
            names = ", ".join(map(self._database.name, columns))
            try:
                with self._database.transaction(f"creation of {self._target}") as transaction:
                    transaction.run(
                        f"CREATE TABLE {self._target} AS "  # noqa: S608
                        f"SELECT {names} FROM {stage} WHERE 1 = 0"
                    )
            except Exception as error:
                # Another worker may have been first.
                if (found := table_columns(self._database, self._target)) is not None:
                    return found
                if isinstance(error, DatabaseUnavailable):
                    raise
                what = f"{self._target} is not there and cannot be made"
                raise self._final(what, error) from None
        return list(columns)

    def _final(self, what: str, error: Exception) -> BatchFailed:
        return BatchFailed(f"{what}: {self._database.explain(error)}")

    def _explain_spark(self, error: Exception) -> None:
        if any(text in str(error) for text in _NO_DRIVER):
            named = f" ({POSTGRES_COORDINATE})" if self._url.startswith(PREFIX) else ""
            raise MissingPart(
                f"spark.sink=jdbc: the Spark server has no JDBC driver for the URL{named}: name its"
                " package in spark.conf.spark.jars.packages, or its file in spark.conf.spark.jars"
            ) from None


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
    arguments.setdefault("connect_timeout", "10")
    return lambda: psycopg.connect(**arguments)  # type: ignore[arg-type]
