"""An Iceberg table whose commits carry the marks of shards: where a shard stands, and one commit.

A commit is rows and marks in one change of the catalog, which is refused unless the branch has the
very snapshot on which the marks were judged. So a commit that moves marks makes a snapshot, with or
without rows: a change of properties alone is refused by nothing.

pyiceberg repeats a refused commit by itself, on whatever came between, and removes a commit's files
when it gives up, although a refusal may be the second answer to a commit that stands. So it is let
to repeat for ever, and the first thing that it does then (``Table.refresh``) comes back here: the
table is loaded, and the marks are judged (:func:`mld.spark.table.marks.judge`). After any other
exception it is the same; no error's text is asked.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from mld.spark.calls import GivenUp, raise_if_abandoned
from mld.spark.errors import BatchFailed, SinkRefused, SparkChildError
from mld.spark.iceberg.marks import (
    History,
    SnapshotLink,
    TableMark,
    history,
    mark_key,
    mark_text,
    read_marks,
)
from mld.spark.model import position_text
from mld.spark.ports import CommitOutcome, outcomes
from mld.spark.table.marks import BITS, Judgement, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from mld.spark.model import Position, ShardBatch, ShardKey

_log = logging.getLogger(__name__)

#: So that pyiceberg neither gives up nor waits by itself; in a copy that no commit contains.
_FOR_EVER = {
    "commit.retry.num-retries": "1000000",
    "commit.retry.min-wait-ms": "0",
    "commit.retry.max-wait-ms": "0",
    "commit.retry.total-timeout-ms": str(366 * 86_400_000),
}
#: Before the tries after an error, in s; 8 s in all, less what the calls take.
PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 2.0, 3.0)
#: How often others may be faster, and the longest pause after it, in s.
MOST_OVERTAKEN, _LONGEST_PAUSE_S = 60, 2.0
_FIRST_PAUSE_S = 0.02
NEW_EPOCH = (
    "stop all workers, see which rows are there, and choose a new spark.sink.epoch, which goes on "
    "behind the checkpoints"
)
_FORMAT = 2
_NOWHERE = object()


class Overtaken(Exception):
    """The catalog refused a commit, because of another one or because it stands already."""


class _Judged(Table):
    """A table whose refused commits come back to the caller, with all of their files."""

    def refresh(self) -> Table:
        """Called by pyiceberg after a refusal, before it repeats the commit.

        Raises:
            Overtaken: always.
        """
        raise Overtaken


@dataclass(slots=True)
class _Written:
    """What the tries of one commit have left in the storage.

    Attributes:
        files: with the rows, once they are written.
        layout: ids of the schema and of the partitions with which they were written.
        others: lists and manifests of snapshots that were refused.
        may_stand: True once the outcome of a try is not known.
    """

    files: list[DataFile] | None = None
    layout: tuple[int, int] | None = None
    others: list[str] = field(default_factory=list)
    may_stand: bool = False


class MarkedTable:
    """The table of one application and epoch. Safe to use from any thread.

    Args:
        identifier: namespaces and name.
        pause: waits so many seconds.
        draw: 0 <= number < 1, for the length of a pause.
        new_identity: gives each commit its own number, 0 <= number < 2**62.
    """

    def __init__(
        self,
        catalog: Catalog,
        identifier: tuple[str, ...],
        application: str,
        epoch: str,
        *,
        pause: Callable[[float], object] = time.sleep,
        draw: Callable[[], float] = random.random,
        new_identity: Callable[[], int] = lambda: secrets.randbits(BITS),
    ) -> None:
        self.name = ".".join(identifier)
        self._catalog = catalog
        self._identifier = identifier
        self._owner = application, epoch
        self._pause = pause
        self._draw = draw
        self._new_identity = new_identity
        self._lock = threading.Lock()
        self._seen: Table | None = None
        self._uuid: str | None = None
        #: Commits that were refused because others were faster.
        self.overtaken = 0

    def look(self) -> Table | None:
        """The table as it is now; None if there is none.

        Raises:
            SinkRefused: it may not be written, or its marks can't be trusted.
            Exception: of the catalog.
        """
        try:
            table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            table = None
        with self._lock:
            self._seen = table
        if table is not None:
            self._check(table.metadata)
        return table

    def last_seen(self) -> Table | None:
        """The table as it was after the last look or commit of this process."""
        with self._lock:
            return self._seen

    def mark(self, shard: ShardKey) -> Position | None:
        """Where a shard stands, durably; None = no commit of this epoch names it."""
        table = self.look()
        mark = None if table is None else self._marks(table.metadata).get(shard)
        return None if mark is None else mark.position

    def commit(
        self, batches: Sequence[ShardBatch], rows: Callable[[Schema], pa.Table]
    ) -> Mapping[ShardKey, CommitOutcome]:
        """Make rows visible and move the marks of all shards, or do nothing.

        Args:
            rows: gives them in a schema's types.

        Returns:
            ``STANDS`` for all; or ``LOST`` for those that another writer has moved, and ``AGAIN``
            for the others.

        Raises:
            SinkRefused: the table may not be written any more.
            BatchFailed: the rows do not fit it, or others are always faster.
            Exception: of the catalog, or of the storage, at the last try.
        """
        identity = self._new_identity()
        before: dict[ShardKey, int | None] | None = None
        written = _Written()
        table = self.last_seen()
        errors, refusals = 0, 0
        refused_on: object = _NOWHERE
        while True:
            last: Exception | None = None
            try:
                table = table or self._present()
                if before is None:
                    before, lost = self._before(table.metadata, batches)
                    if lost:
                        # What was seen last may be old.
                        table = self._present()
                        before, lost = self._before(table.metadata, batches)
                    if lost:
                        return outcomes(batches, lost)
                marks = self._marks(table.metadata)
                now = {shard: _number(marks.get(shard)) for shard in before}
                verdict, moved = judge(before, identity, now)
                if verdict is Judgement.STANDS:
                    return _all_stand(batches)
                if refused_on is not _NOWHERE and refused_on == _head(table.metadata):
                    written.may_stand = True  # by whom it was refused, nobody knows
                if verdict is Judgement.LOST:
                    self._remove(table, written, [each.file_path for each in written.files or ()])
                    return outcomes(batches, moved)
                raise_if_abandoned()
                refused_on = _head(table.metadata)
                self._try(table, batches, rows, identity, written)
            except Overtaken:
                refusals += 1
                self.overtaken += 1
                if refusals == MOST_OVERTAKEN:
                    raise BatchFailed(
                        f"{self.name}: {refusals} commits were refused, because others were faster"
                    ) from None
                longest_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**refusals)
                self._pause(longest_s * self._draw())
            except (SparkChildError, GivenUp):
                raise
            except Exception as error:  # noqa: BLE001 - the marks say what became of it
                last = error
                written.may_stand = True
                _log.info("%s: checking a commit again: %s", self.name, error)
            else:
                self._remove(table, written)
                return _all_stand(batches)
            table = None
            if last is not None:
                errors += 1
                if errors == len(PAUSES_S):
                    raise last
                self._pause(PAUSES_S[errors])

    def _present(self) -> Table:
        if (table := self.look()) is None:
            raise SinkRefused(f"{self.name}: the table is gone; {NEW_EPOCH}")
        return table

    def _try(
        self,
        table: Table,
        batches: Sequence[ShardBatch],
        rows: Callable[[Schema], pa.Table],
        identity: int,
        written: _Written,
    ) -> None:
        """Commit on the very snapshot that was judged."""
        found = table.metadata
        lasting = found.model_copy(update={"properties": {**found.properties, **_FOR_EVER}})
        judged = _Judged(
            table.name(), lasting, table.metadata_location, table.io, table.catalog, table.config
        )
        transaction = judged.transaction()
        self._add(transaction, rows, written)
        snapshot = transaction.table_metadata.snapshot_by_name(MAIN_BRANCH)
        assert snapshot is not None  # each append makes one
        assert snapshot.sequence_number is not None  # of the format's version 2
        marks = {
            mark_key(batch.shard): mark_text(
                batch.shard,
                TableMark(batch.to, identity, snapshot.snapshot_id, snapshot.sequence_number),
            )
            for batch in batches
        }
        transaction.set_properties(marks)
        raise_if_abandoned()
        try:
            transaction.commit_transaction()
        except Overtaken:
            self._keep_files(table, snapshot, written)
            raise
        with self._lock:
            self._seen = judged

    def _add(
        self, transaction: Transaction, rows: Callable[[Schema], pa.Table], written: _Written
    ) -> None:
        """Add the rows, in the files that are written already if they still fit."""
        found = transaction.table_metadata
        layout = found.current_schema_id, found.default_spec_id
        if written.files is None or written.layout != layout:
            if (table := rows(found.schema())).num_rows:
                transaction.append(table)
                written.layout = layout
                return
            written.files, written.layout = [], layout
        with transaction.update_snapshot().fast_append() as append:
            for file in written.files:
                append.append_data_file(file)

    def _keep_files(self, table: Table, snapshot: Snapshot, written: _Written) -> None:
        """After a refusal: what the next try can use, and what nobody will."""
        manifests = [
            each for each in snapshot.manifests(table.io) if _is_of(each, snapshot.snapshot_id)
        ]
        written.others += [snapshot.manifest_list, *(each.manifest_path for each in manifests)]
        written.files = [
            entry.data_file
            for each in manifests
            for entry in each.fetch_manifest_entry(table.io)
            if entry.snapshot_id == snapshot.snapshot_id
        ]

    def _remove(self, table: Table, written: _Written, more: Sequence[str] = ()) -> None:
        """Files of tries that were refused, each because the branch had moved.

        So nothing that is still under way can make them part of the table.

        Args:
            more: the files with the rows, if no try stands.
        """
        if written.may_stand:
            return
        for path in (*written.others, *more):
            try:
                table.io.delete(path)
            except Exception as error:  # noqa: BLE001 - it does no harm
                _log.info("%s: a file of a refused commit is left over: %s", self.name, error)

    def _before(
        self, found: TableMetadata, batches: Sequence[ShardBatch]
    ) -> tuple[dict[ShardKey, int | None], frozenset[ShardKey]]:
        """The commits behind which the batches were cut, and the shards that stand elsewhere."""
        marks = self._marks(found)
        before: dict[ShardKey, int | None] = {}
        lost: set[ShardKey] = set()
        for batch in batches:
            mark = marks.get(batch.shard)
            position = None if mark is None else mark.position
            if position != batch.after:
                _log.info(
                    "%s: the table has the shard up to %s, but the batch follows %s",
                    batch.shard.shard_id,
                    position_text(position),
                    position_text(batch.after),
                )
                lost.add(batch.shard)
            before[batch.shard] = _number(mark)
        return before, frozenset(lost)

    def _marks(self, found: TableMetadata) -> dict[ShardKey, TableMark]:
        try:
            return read_marks(found.properties, *self._owner)
        except ValueError as error:
            raise SinkRefused(f"{self.name}: {error}; {NEW_EPOCH}") from error

    def _check(self, found: TableMetadata) -> None:
        """See that the table may be written, and that its marks can be trusted.

        Raises:
            SinkRefused: it may not, or they can't.
        """
        if why := self._refusal(found):
            raise SinkRefused(f"{self.name} can't be written: {why}")
        self._uuid = str(found.table_uuid)

    def _refusal(self, found: TableMetadata) -> str:
        if found.format_version != _FORMAT:
            return (
                f"it has version {found.format_version} of Iceberg's format, and {_FORMAT} is "
                f"needed: ALTER TABLE ... SET TBLPROPERTIES ('format-version'='{_FORMAT}') where "
                f"it is older, or name another table"
            )
        if self._uuid is not None and str(found.table_uuid) != self._uuid:
            return f"it is another table now (uuid {found.table_uuid}); {NEW_EPOCH}"
        links = {
            each.snapshot_id: SnapshotLink(each.parent_snapshot_id, each.sequence_number or 0)
            for each in found.snapshots
        }
        match history(self._marks(found), links, _head(found)):
            case History.SET_BACK:
                return (
                    "it was rolled back or replaced: rows are gone whose marks are still there; "
                    f"{NEW_EPOCH}, without the rows that are gone"
                )
            case History.EXPIRED:
                return (
                    "it was replaced, or the snapshots are expired that would tell whether it was "
                    f"rolled back since the last commit of this application; {NEW_EPOCH}"
                )
            case History.WHOLE:
                return ""


def _number(mark: TableMark | None) -> int | None:
    return None if mark is None else mark.commit


def _head(found: TableMetadata) -> int | None:
    main = found.refs.get(MAIN_BRANCH)
    return None if main is None else main.snapshot_id


def _is_of(manifest: ManifestFile, snapshot: int) -> bool:
    return manifest.added_snapshot_id == snapshot


def _all_stand(batches: Sequence[ShardBatch]) -> Mapping[ShardKey, CommitOutcome]:
    return {batch.shard: CommitOutcome.STANDS for batch in batches}
