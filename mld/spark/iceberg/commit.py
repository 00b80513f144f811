"""One commit of rows and marks, through refusals, lost answers and outages.

A commit is one change of the catalog, which is refused unless the branch has the very snapshot on
which the marks were judged. So each commit that moves marks makes a snapshot, with or without rows:
a change of properties alone is refused by nothing.

pyiceberg repeats a refused commit by itself, on whatever came between, and removes a commit's files
when it gives up, although a refusal may be the second answer to a commit that stands. So it is let
to repeat for ever, and the first thing that it does then (``Table.refresh``) comes back here: the
table is loaded, and the marks are judged (:func:`kcl_mld.spark.table.marks.judge`). After any other
exception it is the same; no error's text is asked.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.snapshot import ExpireSnapshots

from kcl_mld.spark.calls import GivenUp, raise_if_abandoned
from kcl_mld.spark.errors import BatchFailed, SparkChildError
from kcl_mld.spark.iceberg.marks import TableMark, mark_key, mark_text
from kcl_mld.spark.iceberg.upkeep import MERGING, WRITTEN_BY, expirable, is_looked_after
from kcl_mld.spark.model import position_text
from kcl_mld.spark.ports import CommitOutcome, outcomes
from kcl_mld.spark.table.marks import BITS, Judgement, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Transaction
    from pyiceberg.table.snapshots import Snapshot

    from kcl_mld.spark.iceberg.table import IcebergTable
    from kcl_mld.spark.model import ShardBatch, ShardKey

_log = logging.getLogger("mld.spark")

#: So that pyiceberg neither gives up nor waits by itself; in a copy that no commit contains.
_FOR_EVER = {
    "commit.retry.num-retries": "1000000",
    "commit.retry.min-wait-ms": "0",
    "commit.retry.max-wait-ms": "0",
    "commit.retry.total-timeout-ms": str(366 * 86_400_000),
}
#: Before the tries after an error, in s; 8 s in all, less what the calls take.
PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 2.0, 3.0)
#: How often others may be faster, and the first and longest pause after it, in s.
MOST_OVERTAKEN, _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 60, 0.04, 2.0
#: From which number on it is reported.
_MANY_OVERTAKEN = 10
_NOWHERE = object()
#: pyiceberg reports there that it repeats a commit, which it does not.
logging.getLogger("pyiceberg.table").setLevel(logging.ERROR)


class CommitRefused(Exception):
    """The catalog refused a commit, because of another one or because it stands already."""


class _Judged(Table):
    """A table whose refused commits come back to the caller, with all of their files."""

    def refresh(self) -> Table:
        """Called by pyiceberg after a refusal, before it repeats the commit.

        Raises:
            CommitRefused: always.
        """
        raise CommitRefused


@dataclass(slots=True)
class _Written:
    """What the tries have left in the storage.

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


class TableCommit:
    """One commit; :meth:`run` is called once.

    Args:
        rows: gives them in a schema's types.
        pause: waits so many seconds.
        draw: 0 <= number < 1, for the length of a pause.
        new_identity: gives the commit its number, 0 <= number < 2**62.
    """

    def __init__(
        self,
        table: IcebergTable,
        batches: Sequence[ShardBatch],
        rows: Callable[[Schema], pa.Table],
        *,
        pause: Callable[[float], object] = time.sleep,
        draw: Callable[[], float] = random.random,
        new_identity: Callable[[], int] = lambda: secrets.randbits(BITS),
    ) -> None:
        self._table = table
        self._batches = batches
        self._rows = rows
        self._identity = new_identity()
        self._pause = pause
        self._draw = draw
        self._written = _Written()
        self._before: dict[ShardKey, int | None] | None = None
        #: The branch's snapshot at a refusal.
        self._refused_on: object = _NOWHERE
        self._errors = 0
        self._summary = {WRITTEN_BY: table.application}
        #: How often others were faster.
        self.overtaken = 0

    def run(self) -> Mapping[ShardKey, CommitOutcome]:
        """Make the rows visible and move the marks of all shards, or do nothing.

        Returns:
            ``STANDS`` for all; or ``LOST`` for those that another writer has moved, and ``AGAIN``
            for the others.

        Raises:
            SinkRefused: the table may not be written any more.
            BatchFailed: the rows do not fit it, or others are always faster.
            Exception: of the catalog, or of the storage, at the last try.
        """
        known = self._table.last_seen()
        while True:
            try:
                outcome = self._try(known or self._table.present(), is_old=known is not None)
            except CommitRefused:
                self._wait_for_others()
            except (SparkChildError, GivenUp):
                raise
            except Exception as error:  # noqa: BLE001 - the marks say what became of it
                self._wait_out(error)
            else:
                if outcome is not None:
                    return outcome
            known = None

    def _try(self, found: Table, *, is_old: bool) -> Mapping[ShardKey, CommitOutcome] | None:
        """Judge the marks of a table, and commit on its very snapshot.

        Returns:
            what became of the commit; None = the table may be old, look again.
        """
        marks = self._table.marks(found)
        if self._before is None:
            before, lost = self._place(marks)
            if lost:
                return None if is_old else outcomes(self._batches, lost)
            self._before = before
        now = {shard: _number(marks.get(shard)) for shard in self._before}
        verdict, moved = judge(self._before, self._identity, now)
        if verdict is Judgement.STANDS:
            return self._all_stand()
        head = _head(found)
        if self._refused_on is not _NOWHERE and self._refused_on == head:
            self._written.may_stand = True  # nobody knows what it was refused for
        if verdict is Judgement.LOST:
            self._remove(found, [each.file_path for each in self._written.files or ()])
            return outcomes(self._batches, moved)
        raise_if_abandoned()
        self._refused_on = head
        self._commit(found)
        self._remove(found)
        if self.overtaken > _MANY_OVERTAKEN:
            _log.warning("%s: %d commits of others came first", self._table.name, self.overtaken)
        return self._all_stand()

    def _wait_for_others(self) -> None:
        self.overtaken += 1
        if self.overtaken == MOST_OVERTAKEN:
            raise BatchFailed(
                f"{self._table.name}: {self.overtaken} commits were refused, because others were "
                f"faster"
            ) from None
        longest_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (self.overtaken - 1))
        self._pause(longest_s * self._draw())

    def _wait_out(self, error: Exception) -> None:
        self._written.may_stand = True
        self._errors += 1
        _log.info("%s: checking a commit again: %s", self._table.name, error)
        if self._errors == len(PAUSES_S):
            raise error
        self._pause(PAUSES_S[self._errors])

    def _commit(self, found: Table) -> None:
        """Raises ``CommitRefused`` after a refusal."""
        known = found.metadata
        merging = MERGING if is_looked_after(known.properties) else {}
        properties = {**known.properties, **merging, **_FOR_EVER}
        lasting = known.model_copy(update={"properties": properties})
        judged = _Judged(
            found.name(), lasting, found.metadata_location, found.io, found.catalog, found.config
        )
        transaction = judged.transaction()
        self._add(transaction)
        snapshot = transaction.table_metadata.snapshot_by_name(MAIN_BRANCH)
        assert snapshot is not None  # each append makes one
        assert snapshot.sequence_number is not None  # of the format's version 2
        if gone := expirable(known, snapshot.timestamp_ms):
            ExpireSnapshots(transaction).by_ids(gone).commit()
        number, sequence = snapshot.snapshot_id, snapshot.sequence_number
        transaction.set_properties(
            {
                mark_key(batch.shard): mark_text(
                    batch.shard, TableMark(batch.to, self._identity, number, sequence)
                )
                for batch in self._batches
            }
        )
        raise_if_abandoned()
        try:
            transaction.commit_transaction()
        except CommitRefused:
            self._keep(found, snapshot)
            raise
        self._table.saw(judged)

    def _add(self, transaction: Transaction) -> None:
        """Add the rows, in the files that are written already if they still fit."""
        written, known = self._written, transaction.table_metadata
        layout = known.current_schema_id, known.default_spec_id
        if written.files is None or written.layout != layout:
            written.files, written.layout = None, layout
            if (rows := self._rows(known.schema())).num_rows:
                transaction.append(rows, snapshot_properties=self._summary)
                return
            written.files = []
        update = transaction.update_snapshot(snapshot_properties=self._summary)
        merges = is_looked_after(known.properties)
        with update.merge_append() if merges else update.fast_append() as append:
            for file in written.files:
                append.append_data_file(file)

    def _keep(self, found: Table, snapshot: Snapshot) -> None:
        """After a refusal: what the next try can use, and what nobody will."""
        ours = [
            each
            for each in snapshot.manifests(found.io)
            if each.added_snapshot_id == snapshot.snapshot_id
        ]
        self._written.others += [snapshot.manifest_list, *(each.manifest_path for each in ours)]
        self._written.files = [
            entry.data_file
            for each in ours
            for entry in each.fetch_manifest_entry(found.io)
            if entry.snapshot_id == snapshot.snapshot_id
        ]

    def _remove(self, found: Table, more: Sequence[str] = ()) -> None:
        """Files of tries that were refused, each because the branch had moved.

        So nothing that is still under way can make them part of the table.

        Args:
            more: the files with the rows, if no try stands.
        """
        if self._written.may_stand:
            return
        for path in (*self._written.others, *more):
            try:
                found.io.delete(path)
            except Exception as error:  # noqa: BLE001 - it does no harm
                _log.info("%s: a file of a refused commit stays: %s", self._table.name, error)

    def _place(
        self, marks: Mapping[ShardKey, TableMark]
    ) -> tuple[dict[ShardKey, int | None], frozenset[ShardKey]]:
        """The commits behind which the batches were cut, and the shards that stand elsewhere."""
        before: dict[ShardKey, int | None] = {}
        lost: set[ShardKey] = set()
        for batch in self._batches:
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

    def _all_stand(self) -> Mapping[ShardKey, CommitOutcome]:
        return {batch.shard: CommitOutcome.STANDS for batch in self._batches}


def _head(found: Table) -> int | None:
    main = found.metadata.refs.get(MAIN_BRANCH)
    return None if main is None else main.snapshot_id


def _number(mark: TableMark | None) -> int | None:
    return None if mark is None else mark.commit
