"""The tables of ours beside the target: the marks of the shards, and which staging tables exist.

``kcl_mld_marks`` is the truth about what the target has: a batch's rows and its mark change in one
transaction. ``kcl_mld_stages`` lets a later process drop what a dead one left.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from typing import TYPE_CHECKING

from mld.spark.errors import Fenced, SinkRefused, SparkConfigError
from mld.spark.model import parse_position, position_text
from mld.spark.sinks.dbapi import DatabaseUnavailable

if TYPE_CHECKING:
    from mld.spark.model import Position, ShardBatch, ShardKey
    from mld.spark.sinks.dbapi import Database, Transaction

MARKS = "kcl_mld_marks"
STAGES = "kcl_mld_stages"
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_SAME_SHARD = "application = :app AND stream = :stream AND shard = :shard AND epoch = :epoch"


def split_name(text: str) -> tuple[str, ...]:
    """``schema.table`` or ``"odd.name"`` as its parts; each is taken exactly as written.

    Raises:
        SparkConfigError: it is no name of a table.
    """
    parts, place = [], 0
    while match := _PART.match(text, place):
        parts.append(match[1].replace('""', '"') if match[1] else match[2].strip())
        place = match.end()
        if place == len(text):
            return tuple(parts)
        if text[place] != ".":
            break
        place += 1
    raise SparkConfigError(f"spark.sink.table={text}: write it as table or schema.table")


class _TakenBack(Exception):
    """Ends the probe's transaction."""


class SinkTables:
    """Marks and staging tables of one application, in the target's schema."""

    def __init__(self, database: Database, schema: tuple[str, ...], application: str) -> None:
        """Touch nothing yet.

        Args:
            database: where.
            schema: parts of the name before the table's; may be empty.
            application: name of the KCL application.
        """
        self._database = database
        self._schema = schema
        self._application = application
        self.marks = database.name(*schema, MARKS)
        self._stages = database.name(*schema, STAGES)

    def stage(self, token: str) -> str:
        """The quoted name of a new staging table."""
        return self._database.name(*self._schema, f"kcl_mld_stage_{token}")

    def create(self) -> None:
        """Make both tables unless they are there; other workers may do so at the same time."""
        key = "application VARCHAR(255), stream VARCHAR(255), shard VARCHAR(128), epoch VARCHAR(64)"
        self._ensure(
            self.marks,
            f"{key}, mark VARCHAR(128) NOT NULL, PRIMARY KEY (application, stream, shard, epoch)",
        )
        self._ensure(
            self._stages,
            "name VARCHAR(255) PRIMARY KEY, application VARCHAR(255), started BIGINT NOT NULL",
        )

    def _ensure(self, table: str, columns: str) -> None:
        if self._is_there(table):
            return
        try:
            with self._database.transaction(f"creation of {table}") as transaction:
                transaction.run(f"CREATE TABLE {table} ({columns})")
        except Exception:
            # Another worker may have been first.
            if not self._is_there(table):
                raise

    def _is_there(self, table: str) -> bool:
        return table_columns(self._database, table) is not None

    def require_transactions(self, now_s: int) -> None:
        """See that a change which is rolled back is gone: rows and mark rest on that.

        Raises:
            SinkRefused: it stays, e.g. because the connection commits each statement by itself.
        """
        probe = f"kcl_mld_probe_{uuid.uuid4().hex}"
        with (
            contextlib.suppress(_TakenBack),
            self._database.transaction("probe of a rollback") as transaction,
        ):
            self._note(transaction, probe, now_s)
            raise _TakenBack
        with self._database.transaction("look at the probe") as transaction:
            stays = transaction.run(f"DELETE FROM {self._stages} WHERE name = :name", name=probe)  # noqa: S608
        if stays:
            raise SinkRefused(
                f"{self._stages}: a change that was rolled back is still there, so rows and mark "
                "could not be kept together: turn autocommit off in the connections that "
                "spark.sink.connection opens, and use tables with transactions"
            )

    def mark(self, shard: ShardKey) -> Position | None:
        """The stored mark of a shard; None if there is none."""
        with self._database.transaction(f"mark of {shard.shard_id}") as transaction:
            return self._read(transaction, shard)

    def _read(self, transaction: Transaction, shard: ShardKey) -> Position | None:
        rows = transaction.rows(
            f"SELECT mark FROM {self.marks} WHERE {_SAME_SHARD}",  # noqa: S608
            **_key(shard),
        )
        return parse_position(str(rows[0][0])) if rows else None

    def advance(self, transaction: Transaction, batch: ShardBatch) -> bool:
        """Move the mark from ``after`` to ``to``; the row is locked until the transaction ends.

        Returns:
            False if the mark is at ``to`` already: the batch was committed before.

        Raises:
            Fenced: it is elsewhere.
        """
        if batch.after is None:
            return self._first(transaction, batch)
        changed = transaction.run(
            f"UPDATE {self.marks} SET mark = :to WHERE {_SAME_SHARD} AND mark = :after",  # noqa: S608
            to=str(batch.to),
            after=position_text(batch.after),
            **_key(batch.shard),
        )
        return changed == 1 or self._is_done(transaction, batch)

    def _first(self, transaction: Transaction, batch: ShardBatch) -> bool:
        if self._read(transaction, batch.shard) is not None:
            return self._is_done(transaction, batch)
        # Two first writers: the second one waits here for the first, and breaks the key.
        transaction.run(
            f"INSERT INTO {self.marks} (application, stream, shard, epoch, mark) "  # noqa: S608
            "VALUES (:app, :stream, :shard, :epoch, :to)",
            to=str(batch.to),
            **_key(batch.shard),
        )
        return True

    def _is_done(self, transaction: Transaction, batch: ShardBatch) -> bool:
        found = self._read(transaction, batch.shard)
        if found == batch.to:
            return False
        raise fenced(batch, position_text(found) if found else "missing")

    def register(self, stage: str, now_s: int) -> None:
        """Remember a staging table before it is made."""
        with self._database.transaction("note of a staging table") as transaction:
            self._note(transaction, stage, now_s)

    def _note(self, transaction: Transaction, stage: str, now_s: int) -> None:
        transaction.run(
            f"INSERT INTO {self._stages} (name, application, started) "  # noqa: S608
            "VALUES (:name, :app, :started)",
            name=stage,
            app=self._application,
            started=now_s,
        )

    def drop(self, stage: str) -> None:
        """Drop a staging table, there or not, and forget it."""
        with self._database.transaction("removal of a staging table") as transaction:
            transaction.run(f"DROP TABLE IF EXISTS {stage}")
            transaction.run(f"DELETE FROM {self._stages} WHERE name = :name", name=stage)  # noqa: S608

    def sweep(self, before_s: int) -> int:
        """Drop the staging tables of jobs that began before a time; how many there were."""
        with self._database.transaction("look for old staging tables") as transaction:
            rows = transaction.rows(
                f"SELECT name FROM {self._stages} "  # noqa: S608
                "WHERE application = :app AND started < :before",
                app=self._application,
                before=before_s,
            )
        for (name,) in rows:
            self.drop(str(name))
        return len(rows)


def table_columns(database: Database, table: str) -> list[str] | None:
    """Names of a table's columns; None if it cannot be read, e.g. because it is not there.

    Some drivers say so with the same error as for a lost connection: what follows will tell.
    """
    try:
        with database.transaction(f"look at {table}") as transaction:
            return transaction.columns(table)
    except DatabaseUnavailable:
        with database.transaction(f"look at {table}") as transaction:
            transaction.rows("SELECT 1")
        return None
    except Exception:  # noqa: BLE001 - drivers have a class of their own for it
        return None


def fenced(batch: ShardBatch, found: str) -> Fenced:
    """The error of a writer that was overtaken."""
    return Fenced(
        f"{batch.shard.shard_id}: a batch after {position_text(batch.after)} was to be committed, "
        f"but the mark in the database is {found}: another worker has the shard"
    )


def _key(shard: ShardKey) -> dict[str, str]:
    return {
        "app": shard.application,
        "stream": shard.stream,
        "shard": shard.shard_id,
        "epoch": shard.epoch,
    }
