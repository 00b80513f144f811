"""The Spark half of the jdbc sink: a staging table a job, checked against the target.

Many tasks write it, each in transactions of its own, so nothing in it counts until the other half
has moved it. Its name is drawn for each try: nobody else writes there, and what a dead job leaves
is known by its registration.
"""

from __future__ import annotations

import contextlib
import difflib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.spark.errors import BatchFailed, MissingPart, SinkRefused, SinkUnavailable
from mld.spark.failures import is_deterministic
from mld.spark.sinks.database import Database, DatabaseUnavailable, masked, quoted
from mld.spark.sinks.jdbc_tables import SinkTables, table_columns
from mld.spark.sinks.packages import POSTGRES_COORDINATE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

#: Column of the staging table with a number of each row that no other row of the job has.
ROW_COLUMN = "_kcl_row"
#: What PostgreSQL says of a NUL in a text.
_NUL = 'invalid byte sequence for encoding "UTF8": 0x00'
_NO_DRIVER = ("No suitable driver", "ClassNotFoundException", "did not find jdbc driver")


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What a job has written.

    Attributes:
        table: quoted name of the staging table.
        columns: names of the target's columns in it.
        count: of its rows.
    """

    table: str
    columns: tuple[str, ...]
    count: int


class JdbcStaging:
    """Staging tables beside one target.

    Args:
        database: as this process reaches it.
        tables: ours, where staging tables are registered.
        target: quoted name of the user's table.
        options: of Spark's JDBC reader and writer, ``url`` among them.
        secrets: values that must not show in errors.
        creates_table: True = the target is made if it is missing.
    """

    def __init__(
        self,
        database: Database,
        tables: SinkTables,
        target: str,
        options: Mapping[str, str],
        secrets: Sequence[str],
        *,
        creates_table: bool,
    ) -> None:
        self._creates_table = creates_table
        self._database = database
        self._tables = tables
        self._target = target
        self._options = dict(options)
        self._secrets = tuple(secrets)

    def require_table(self) -> None:
        """See that the target is there, unless it is to be made.

        Raises:
            SinkRefused: it is not; the message has tables of similar names.
        """
        if not self._creates_table and table_columns(self._database, self._target) is None:
            near = difflib.get_close_matches(self._target, self._tables.names(), cutoff=0.7)
            like = f" (there is {', '.join(near)})" if near else ""
            raise SinkRefused(
                f"spark.sink.table: {self._target} is missing, or this user can't read it{like}: "
                f"correct the name, grant SELECT and INSERT, or set spark.sink.createTable = true"
            )

    def require_access(self, spark: SparkSession) -> None:
        """See that Spark reaches the database too.

        Raises:
            MissingPart: the server lacks the JDBC driver.
            SinkUnavailable: the database does not let it in.
        """
        try:
            reader = spark.read.format("jdbc").options(**self._options)
            reader.option("dbtable", self._tables.marks).load().schema  # noqa: B018
        except Exception as error:  # noqa: BLE001 - told without the URL
            self._explain(error)
            text = masked(first_line(error), self._secrets)
            raise SinkUnavailable(
                f"spark.sink=jdbc: the Spark server cannot read {self._tables.marks}: {text}"
            ) from None

    def write(self, frame: DataFrame, ends_s: int) -> StagedRows:
        """Write the rows to a new staging table.

        Args:
            frame: rows of a micro-batch.
            ends_s: when the job is over at the latest, in s since 1970.

        Raises:
            BatchFailed: the rows do not fit the target.
            DatabaseUnavailable: no answer; it may be tried again.
        """
        stage = self._tables.stage(uuid.uuid4().hex)
        self._tables.register(stage, ends_s)
        try:
            self._stage(frame, stage)
            return StagedRows(stage, self._fit(stage), self._count(stage))
        except BaseException:
            with contextlib.suppress(Exception):  # it is registered: a later sweep drops it
                self._tables.drop(stage)
            raise

    def _stage(self, frame: DataFrame, stage: str) -> None:
        rows = frame.selectExpr("*", f"monotonically_increasing_id() AS {ROW_COLUMN}")
        writer = rows.write.format("jdbc").options(**self._options).option("dbtable", stage)
        try:
            writer.save()
        except Exception as error:
            self._explain(error)
            if _NUL in str(error):
                raise BatchFailed(
                    f"{self._target}: a text has a NUL, which PostgreSQL can't store: take it out "
                    f"in the function"
                ) from None
            clean = masked(str(error), self._secrets)
            if clean != str(error):
                kind = BatchFailed if is_deterministic(error) else DatabaseUnavailable
                raise kind(clean.splitlines()[0]) from None
            raise

    def _fit(self, stage: str) -> tuple[str, ...]:
        """The staged columns, after a look whether the target has them all."""
        staged = table_columns(self._database, stage)
        if staged is None:
            raise DatabaseUnavailable(
                f"{stage}: Spark has written it, but it cannot be read from here; does spark.sink.url"
                " name several servers that are not one database?"
            )
        columns = tuple(name for name in staged if name != ROW_COLUMN)
        target = self._target_columns(stage, columns)
        if missing := [name for name in columns if name not in target]:
            raise BatchFailed(
                f"{self._target}: the table has no column {', '.join(missing)}; it has "
                f"{', '.join(target)}. Names are compared exactly, upper and lower case too; "
                "change the function or the table"
            )
        return columns

    def _count(self, stage: str) -> int:
        with self._database.transaction(f"count of {stage}") as transaction:
            ((count,),) = transaction.rows(f"SELECT COUNT(*) FROM {stage}")  # noqa: S608
        return int(count)

    def _target_columns(self, stage: str, columns: Sequence[str]) -> list[str]:
        """Columns of the target; it is made from the staging table if it is missing."""
        if (found := table_columns(self._database, self._target)) is not None:
            return found
        self.require_table()
        names = ", ".join(map(quoted, columns))
        try:
            with self._database.transaction(f"creation of {self._target}") as transaction:
                transaction.run(
                    f"CREATE TABLE {self._target} AS "  # noqa: S608
                    f"SELECT {names} FROM {stage} WHERE 1 = 0"
                )
        except Exception as error:
            # Another worker, or another job of this one, may have been first.
            if (found := table_columns(self._database, self._target)) is not None:
                return found
            if isinstance(error, DatabaseUnavailable):
                raise
            text = self._database.explain(error)
            raise BatchFailed(
                f"{self._target} cannot be read, nor made: {text}; on a table that is there this "
                "user needs SELECT and INSERT"
            ) from None
        return list(columns)

    def _explain(self, error: Exception) -> None:
        if any(text in str(error) for text in _NO_DRIVER):
            raise MissingPart(
                f"spark.sink=jdbc: the Spark server has no JDBC driver ({POSTGRES_COORDINATE}): "
                "name its package in spark.conf.spark.jars.packages, or its file in "
                "spark.conf.spark.jars"
            ) from None


def first_line(error: BaseException) -> str:
    """Spark's message without Java's stack trace."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
