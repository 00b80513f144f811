"""The table of ours beside the target: the marks of the shards.

``kcl_mld_marks`` is the truth about what the target has: rows and marks of a micro-batch change in
one transaction.

A mark needs no name of who has set it. One transaction moves all marks or none, so marks that are
all at the ends of our batches mean that each of their records is in the target once, whichever worker put it
there; and marks of which only some are there were moved by others.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from typing import TYPE_CHECKING

from kcl_mld.spark.errors import BatchFailed, SinkRefused
from kcl_mld.spark.model import parse_position, position_text
from kcl_mld.spark.ports import CommitOutcome, outcomes
from kcl_mld.spark.sinks.database import DatabaseUnavailable, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kcl_mld.spark.model import Position, ShardBatch, ShardKey
    from kcl_mld.spark.sinks.database import Database, Transaction

_log = logging.getLogger("mld.spark")

MARKS = "kcl_mld_marks"
#: SQL states of a table or schema that is missing, and of one that this user may not read.
_UNREADABLE = ("42P01", "3F000", "42501")
_KEY = "application, stream, shard, epoch"
_KEY_VALUES = "%(application)s, %(stream)s, %(shard)s, %(epoch)s"


class _TakenBack(Exception):
    """Ends the probe's transaction."""


class ShardMarks:
    """The marks in the target's schema.

    Args:
        schema: parts of the name before the table's; empty until ``schema_of`` has found it.
    """

    def __init__(self, database: Database, schema: tuple[str, ...]) -> None:
        self._database = database
        self._schema = schema
        self._table = quoted(*schema, MARKS)

    def create(self) -> None:
        """Make the table unless it is there; other workers may do so at the same time."""
        if self._is_there():
            return
        columns = (
            "application VARCHAR(255), stream VARCHAR(255), shard VARCHAR(128), epoch VARCHAR(64), "
            f"mark VARCHAR(128) NOT NULL, PRIMARY KEY ({_KEY})"
        )
        try:
            with self._database.transaction(f"creation of {self._table}") as transaction:
                transaction.run(f"CREATE TABLE {self._table} ({columns})")
        except Exception:
            # Another worker may have been first.
            if not self._is_there():
                raise

    def _is_there(self) -> bool:
        return table_columns(self._database, self._table) is not None

    def tables_beside(self) -> list[str]:
        """Quoted names of the tables in the target's schema; none if they can't be read."""
        with contextlib.suppress(Exception):  # they are only advice
            with self._database.transaction("look at tables") as transaction:
                rows = transaction.rows(
                    "SELECT table_name FROM information_schema.tables "
                    "WHERE table_schema = %(schema)s",
                    schema=self._schema[-1],
                )
            return [quoted(*self._schema, str(name)) for (name,) in rows]
        return []

    def require_transactions(self) -> None:
        """See that a change which is rolled back is gone: rows and marks rest on that.

        Raises:
            SinkRefused: it stays, e.g. because something in between commits each statement.
        """
        probe = f"kcl-mld-probe-{uuid.uuid4().hex}"
        with (
            contextlib.suppress(_TakenBack),
            self._database.transaction("probe of a rollback") as transaction,
        ):
            transaction.run(
                f"INSERT INTO {self._table} ({_KEY}, mark) VALUES (%(probe)s, '', '', '', '')",  # noqa: S608
                probe=probe,
            )
            raise _TakenBack
        with self._database.transaction("look at the probe") as transaction:
            stays = transaction.run(
                f"DELETE FROM {self._table} WHERE application = %(probe)s",  # noqa: S608
                probe=probe,
            )
        if stays:
            raise SinkRefused(
                f"{self._table}: a change that was rolled back is still there, so rows and marks "
                "could not be kept together: reach the database without a proxy that commits each "
                "statement by itself"
            )

    def mark(self, shard: ShardKey) -> Position | None:
        """The stored mark of a shard; None if there is none."""
        with self._database.transaction(f"mark of {shard.shard_id}") as transaction:
            return self._marks(transaction, [shard], "").get(shard)

    def lock(
        self, transaction: Transaction, shards: Sequence[ShardKey]
    ) -> dict[ShardKey, Position | None]:
        """The marks of shards of one application and epoch; locked until the transaction ends.

        In the order of the shards, so that two workers never wait for each other.
        """
        return self._marks(transaction, shards, " FOR UPDATE")

    def _marks(
        self, transaction: Transaction, shards: Sequence[ShardKey], lock: str
    ) -> dict[ShardKey, Position | None]:
        by_name = {(each.stream, each.shard_id): each for each in shards}
        wanted: dict[str, str] = {
            "application": shards[0].application,
            "epoch": shards[0].epoch,
        }
        places = []
        for number, (stream, shard) in enumerate(by_name):
            wanted |= {f"stream{number}": stream, f"shard{number}": shard}
            places.append(f"(%(stream{number})s, %(shard{number})s)")
        rows = transaction.rows(
            f"SELECT stream, shard, mark FROM {self._table} "  # noqa: S608
            "WHERE application = %(application)s AND epoch = %(epoch)s "
            f"AND (stream, shard) IN (VALUES {', '.join(places)}) ORDER BY stream, shard{lock}",
            **wanted,
        )
        return {by_name[stream, shard]: parse_position(mark) for stream, shard, mark in rows}

    def advance(self, transaction: Transaction, batches: Sequence[ShardBatch]) -> None:
        """Set the marks of batches, which are locked, to their ends.

        A first mark can't be locked before it is there: of two first writers of a shard the second
        one waits here for the first, and breaks the key. No two wait for each other: a worker that waits
        here for the first mark of a shard has all its locks, and makes first marks in order.
        """
        ordered = sorted(batches, key=lambda each: each.shard)
        moves = [{**_key(each.shard), "to": str(each.to)} for each in ordered]
        firsts = [each.after is None for each in ordered]
        transaction.run_each(
            f"INSERT INTO {self._table} ({_KEY}, mark) VALUES ({_KEY_VALUES}, %(to)s)",  # noqa: S608
            [move for move, is_first in zip(moves, firsts, strict=True) if is_first],
        )
        transaction.run_each(
            f"UPDATE {self._table} SET mark = %(to)s "  # noqa: S608
            f"WHERE ({_KEY}) = ({_KEY_VALUES})",
            [move for move, is_first in zip(moves, firsts, strict=True) if not is_first],
        )


def judge(
    batches: Sequence[ShardBatch], marks: Mapping[ShardKey, Position | None]
) -> Mapping[ShardKey, CommitOutcome] | None:
    """What became of the batches of one job.

    Args:
        batches: at least one, each of another shard.
        marks: of their shards, as far as there are any.

    Returns:
        ``STANDS`` for all, if each mark is at its batch's end; ``LOST`` for those whose marks are
        not where their batches begin, and ``AGAIN`` for the others; None if all are there: nothing
        was committed, and may be.
    """
    if all(marks.get(each.shard) == each.to for each in batches):
        return {each.shard: CommitOutcome.STANDS for each in batches}
    moved = {each.shard for each in batches if marks.get(each.shard) != each.after}
    if not moved:
        return None
    for each in batches:
        if each.shard in moved:
            _log.warning(
                "%s: the mark in the database is %s, but the batch follows %s: another worker has "
                "the shard",
                each.shard.shard_id,
                position_text(marks[each.shard]) if each.shard in marks else "missing",
                position_text(each.after),
            )
    return outcomes(batches, moved)


def table_columns(database: Database, table: str) -> list[str] | None:
    """Names of a table's columns; None if it is not there, or this user may not read it.

    Raises:
        DatabaseUnavailable: the database does not answer.
        BatchFailed: it cannot be read for another reason.
    """
    try:
        with database.transaction(f"look at {table}") as transaction:
            return transaction.columns(table)
    except DatabaseUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - reported in one line
        if getattr(error, "sqlstate", None) in _UNREADABLE:
            return None
        raise BatchFailed(f"{table} cannot be read: {database.explain(error)}") from None


def schema_of(database: Database, table: str) -> str:
    """The schema that a table without one is in, or would be made in.

    Args:
        database: where; its ``search_path`` says which schemas count.
        table: quoted.

    Raises:
        SinkRefused: no schema of the path is there.
    """
    with database.transaction(f"schema of {table}") as transaction:
        [(schema,)] = transaction.rows(
            "SELECT coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%(table)s)), current_schema())",
            table=table,
        )
    if schema is None:
        raise SinkRefused(
            f"spark.sink.table: {table} is in no schema of this user's search_path, and none of "
            "them is there: write it as schema.table"
        )
    return str(schema)


def _key(shard: ShardKey) -> dict[str, str]:
    return {
        "application": shard.application,
        "stream": shard.stream,
        "shard": shard.shard_id,
        "epoch": shard.epoch,
    }
