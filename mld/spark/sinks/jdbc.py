"""Into a table of PostgreSQL, the rows of all shards and their marks in one transaction.

Spark computes the rows of a micro-batch, and this process keeps them. One connection locks the marks
of all its shards, compares each with the position behind which its batch was cut, copies the rows
into the target (``COPY``), and sets the marks. So a micro-batch is there whole or not at all, a
second writer of a position changes nothing, and a redelivery may be cut anywhere: the mark says
where the next batch begins.

An exception proves nothing: the marks are looked at again over another connection
(:func:`kcl_mld.spark.sinks.jdbc_marks.judge`), and while they say that nothing was committed the same
rows are copied again, as long as an outage is likely to last. As long as the database goes on with a
transaction that was given up here, it has the marks locked: another worker that extends the same
positions waits for it, and then finds them moved or where they were.
"""

from __future__ import annotations

import difflib
import logging
import time
from typing import TYPE_CHECKING

from kcl_mld.config.spark.addresses import table_parts
from kcl_mld.spark.calls import GivenUp, raise_if_abandoned
from kcl_mld.spark.errors import BatchFailed, SinkRefused, SparkChildError
from kcl_mld.spark.model import MicroBatch
from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.sinks.database import (
    Database,
    DatabaseUnavailable,
    NoConnection,
    open_database,
    quoted,
)
from kcl_mld.spark.sinks.jdbc_marks import ShardMarks, judge, schema_of, table_columns
from kcl_mld.spark.sinks.postgres_rows import (
    MOST_NAME_BYTES,
    column_type,
    csv_parts,
    is_cut,
    refused_column,
    require_values,
)
from kcl_mld.spark.sinks.results import fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.model import Position, ShardBatch, ShardKey
    from kcl_mld.spark.sinks.database import Transaction
    from kcl_mld.spark.table.data_files import Rows

_log = logging.getLogger("mld.spark")
#: Before the tries of a commit after the first, in s; a database that is started again takes some
#: ten seconds.
PAUSES_S = (0.0, 0.1, 0.2, 0.5, 1.0, *(2.0,) * 9)


class JdbcSink:
    """The ``jdbc`` sink: ``spark.sink.url`` and ``spark.sink.table``."""

    def __init__(
        self,
        config: SparkConfig,
        application: str,
        *,
        pause: Callable[[float], object] = time.sleep,
        database: Database | None = None,
    ) -> None:
        """Read the configuration; no connection is opened before ``prepare``.

        Args:
            config: with ``spark.sink.url`` and ``spark.sink.table``.
            application: is in the name of each shard.
            database: as this process reaches it; None = by the URL.

        Raises:
            SparkConfigError: a property is wrong.
            MissingPart: psycopg is needed and not installed.
        """
        del application
        assert config.sink_table is not None  # see ``config.require_places``
        self._database = database or open_database(str(config.sink_url), config.sink_options)
        self._place_at(table_parts(config.sink_table))
        self._creates_table = config.creates_table
        self._most_bytes = config.max_result_bytes
        self._pause = pause

    def _place_at(self, name: Sequence[str]) -> None:
        self._name = tuple(name)
        self._target = quoted(*name)
        self._marks = ShardMarks(self._database, self._name[:-1])

    def prepare(self, spark: SparkSession) -> None:
        """Make the table of marks, and see that the target is there.

        A target without a schema gets the one that the connection finds it in, or would make it in,
        and the marks are in that one: two users' search paths must not find two tables of marks.

        After an answer that is lost it looks again, with the pauses of a commit: else this process
        would end, and its server with it. A first connection that fails is told at once, because
        the address or the password is wrong, most likely.

        Raises:
            SinkRefused: what is rolled back stays, or the table is missing.
            SinkUnavailable: the database does not let us in, or does not answer for so long.
        """
        del spark
        last: DatabaseUnavailable | None = None
        for pause_s in PAUSES_S:
            self._pause(pause_s)
            try:
                self._prepare()
            except DatabaseUnavailable as error:
                if last is None and isinstance(error, NoConnection):
                    raise
                last = error
                _log.info("%s: the database is looked at again: %s", self._target, error)
            else:
                return
        assert last is not None  # or a try has succeeded
        raise last

    def _prepare(self) -> None:
        try:
            if len(self._name) == 1:
                self._place_at((schema_of(self._database, self._target), *self._name))
            self._marks.create()
            self._marks.require_transactions()
            self._require_table()
        except SparkChildError:
            raise
        except Exception as error:  # noqa: BLE001 - reported in one line
            raise self._final("the marks can't be read, nor made", error) from None

    def _require_table(self) -> None:
        if not self._creates_table and table_columns(self._database, self._target) is None:
            raise self._missing_table()

    def _missing_table(self) -> SinkRefused:
        near = difflib.get_close_matches(self._target, self._marks.tables_beside(), cutoff=0.7)
        like = f" (there is {', '.join(near)})" if near else ""
        return SinkRefused(
            f"spark.sink.table: {self._target} is missing, or this user can't read it{like}: "
            f"correct the name, grant SELECT and INSERT, or set spark.sink.createTable = true"
        )

    def mark(self, shard: ShardKey) -> Position | None:
        """The mark of the shard in the database; an outage is waited for as in a commit.

        Raises:
            SinkUnavailable: the database does not answer for so long.
            BatchFailed: the mark can't be read.
        """
        last: DatabaseUnavailable | None = None
        for pause_s in PAUSES_S:
            self._pause(pause_s)
            try:
                return self._marks.mark(shard)
            except DatabaseUnavailable as error:
                last = error
            except Exception as error:  # noqa: BLE001 - reported in one line
                raise self._final(f"the mark of {shard.shard_id}", error) from None
        assert last is not None  # there is a pause, so there was a try
        raise last

    def write(self, frame: DataFrame, batches: Sequence[ShardBatch]) -> Rows:
        """Have the rows of all batches computed, and see that they fit the target.

        Raises:
            ResultTooLarge: they are too many for one transaction.
            BatchFailed: they do not fit.
            DatabaseUnavailable: no answer; the batches may be tried again.
        """
        del batches
        # First, so that a database that is away costs no computation.
        target = table_columns(self._database, self._target)
        rows = fetch(frame, self._target, self._most_bytes, refused_column)
        raise_if_abandoned()
        require_values(rows, self._target)
        if target is None:
            target = self._create(rows.fields)
        if missing := [name for name in rows.table.column_names if name not in target]:
            raise BatchFailed(
                f"{self._target}: the table has no column {', '.join(missing)}; it has "
                f"{', '.join(target)}. Names are compared exactly, upper and lower case too; "
                "change the function or the table"
            )
        return rows

    def _create(self, fields: Sequence[Mapping[str, object]]) -> list[str]:
        """Make the target with the rows' columns; their names, or those of who was first."""
        if not self._creates_table:
            raise self._missing_table()
        if long := [name for each in fields if is_cut(name := str(each["name"]))]:
            raise BatchFailed(
                f"{self._target}: the column {long[0]} has a name of more than {MOST_NAME_BYTES} "
                "bytes, which PostgreSQL would cut: give it a shorter one in the function"
            )
        columns = [f"{quoted(str(each['name']))} {column_type(each['type'])}" for each in fields]
        try:
            with self._database.transaction(f"creation of {self._target}") as transaction:
                transaction.run(f"CREATE TABLE {self._target} ({', '.join(columns)})")
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - another worker may have been first
            if (found := table_columns(self._database, self._target)) is not None:
                return found
            text = self._database.explain(error)
            raise BatchFailed(
                f"{self._target} cannot be read, nor made: {text}; on a table that is there this "
                "user needs SELECT and INSERT"
            ) from None
        return [str(each["name"]) for each in fields]

    def commit_all(
        self, staged: Rows, batches: Sequence[ShardBatch]
    ) -> Mapping[ShardKey, CommitOutcome]:
        """Copy the rows and set all marks in one transaction; see ``ports.Sink``.

        A transaction that was given up is rolled back, up to the moment of the
        database's own commit.

        Raises:
            BatchFailed: the target refuses a row.
            SinkUnavailable: no answer for so long; the batches may be written again, and are found
                committed if they were.
            GivenUp: its time is up, or a shard is lost; nothing was committed.
        """
        what = self._commit_of(batches)
        refused: BatchFailed | None = None
        last: DatabaseUnavailable | None = None
        for pause_s in PAUSES_S:
            self._pause(pause_s)
            raise_if_abandoned()
            try:
                found = self._try(staged, batches, what, may_write=refused is None)
            except DatabaseUnavailable as error:
                last = error
            except GivenUp:
                raise
            except Exception as error:  # noqa: BLE001 - the marks say what became of it
                refused = self._final(what, error)
            else:
                if found is not None:
                    return found
                break
        if refused is not None:
            raise refused
        assert last is not None  # or a try has answered
        raise last from None

    def cancel(self, batches: Sequence[ShardBatch]) -> None:
        """Ask the database to end the commit of a job."""
        self._database.cancel(self._commit_of(batches))

    def discard(self, staged: Rows) -> None:
        """Nothing is left over."""

    def close(self) -> None:
        """Close the idle connections; the next call opens new ones."""
        self._database.close()

    def _commit_of(self, batches: Sequence[ShardBatch]) -> str:
        return f"commit of {MicroBatch(tuple(batches)).batch_id} into {self._target}"

    def _try(
        self, rows: Rows, batches: Sequence[ShardBatch], what: str, *, may_write: bool
    ) -> Mapping[ShardKey, CommitOutcome] | None:
        """One transaction; None if nothing was committed, and may be."""
        with self._database.transaction(what) as transaction:
            marks = self._marks.lock(transaction, [batch.shard for batch in batches])
            found = judge(batches, marks)
            if found is None and may_write:
                self._copy(transaction, rows.table)
                self._marks.advance(transaction, batches)
                raise_if_abandoned()
                found = {batch.shard: CommitOutcome.STANDS for batch in batches}
        return found

    def _copy(self, transaction: Transaction, table: pa.Table) -> None:
        if not table.num_rows:
            return
        columns = ", ".join(map(quoted, table.column_names))
        # What texts mean must not depend on the settings of a database or a user.
        transaction.run("SET LOCAL timezone = 'UTC'")
        transaction.run("SET LOCAL array_nulls = on")
        transaction.copy(
            f"COPY {self._target} ({columns}) FROM STDIN (FORMAT csv)", _wanted(csv_parts(table))
        )

    def _final(self, what: str, error: Exception) -> BatchFailed:
        return BatchFailed(f"{what}: {self._database.explain(error)}")


def _wanted(parts: Iterator[bytes]) -> Iterator[bytes]:
    for part in parts:
        raise_if_abandoned()
        yield part
