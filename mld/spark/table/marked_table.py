"""A Delta table whose commits carry the marks of shards: where a shard stands, and one commit.

The order of a commit is the whole proof: one snapshot; each guard in it is the one that this
process knows; the commit on that same snapshot. After any exception the guards are looked at again
(:func:`kcl_mld.spark.table.marks.judge`), and no error's text is asked.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from typing import TYPE_CHECKING

from kcl_mld.spark.calls import raise_if_abandoned
from kcl_mld.spark.errors import BatchFailed, SinkRefused
from kcl_mld.spark.model import position_text
from kcl_mld.spark.ports import CommitOutcome, outcomes
from kcl_mld.spark.table.changes import Append
from kcl_mld.spark.table.delta_log import in_a_line
from kcl_mld.spark.table.epoch import NEW_EPOCH, TableEpoch
from kcl_mld.spark.table.fitting import additions, conformed
from kcl_mld.spark.table.marks import (
    BITS,
    EpochState,
    Judgement,
    Mark,
    guard_id,
    judge,
    read_mark,
    transactions,
)
from kcl_mld.spark.table.rules import refused_type
from kcl_mld.spark.table.snapshot import Overtaken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kcl_mld.spark.model import Position, ShardBatch, ShardKey
    from kcl_mld.spark.table.changes import Change
    from kcl_mld.spark.table.data_files import Rows, Staged
    from kcl_mld.spark.table.delta_log import DeltaLog
    from kcl_mld.spark.table.snapshot import Snapshot

_log = logging.getLogger("mld.spark")

#: How often others may be faster at once, before there is a pause.
_MOST_OVERTAKEN = 30
#: Before the tries of a commit after the first, in s; 8 s in all, less what the calls take.
PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 2.0, 3.0)


class MarkedTable:
    """The table of one application and epoch. Safe to use from any thread.

    Args:
        adds_columns: True = columns that the table lacks are added to it.
        change: what a commit does with staged files; None = their rows are appended.
        new_identity: gives each commit its own number, 0 <= number < 2**62.
    """

    #: True = files are compared with the table as it is now, before anything names them.
    _looks_afresh = False

    def __init__(
        self,
        log: DeltaLog,
        name: str,
        application: str,
        epoch: str,
        *,
        adds_columns: bool = False,
        change: Change | None = None,
        pause: Callable[[float], object] = time.sleep,
        new_identity: Callable[[], int] = lambda: secrets.randbits(BITS),
    ) -> None:
        self._log = log
        self._name = name
        self._epoch = TableEpoch(name, application, epoch)
        self._adds_columns = adds_columns
        self._change = change or Append()
        self._pause = pause
        self._new_identity = new_identity
        self._lock = threading.Lock()
        self._known: dict[ShardKey, Mark] = {}

    def look(self) -> Snapshot | None:
        """See whether the table is there and may be written; record the beginning of the epoch.

        Raises:
            SinkRefused: it may not; the message says what to do.
            SinkUnavailable: it can't be read.
        """
        last: Exception | None = None
        for pause_s in PAUSES_S:
            self._pause(pause_s)
            with self._log.snapshot() as table:
                if table is None:
                    return None
                is_new = self._epoch.state(table) is EpochState.NEW
                is_due = self._epoch.is_witness_due(table)
                self._epoch.check(table)
                if not is_new and not is_due:
                    return table
                try:
                    if is_new:
                        self._epoch.begin(table)
                    else:
                        self._epoch.testify(table)
                except Exception as error:  # noqa: BLE001 - look again; perhaps it stands
                    last = error
                    _log.info("%s: the epoch's state is recorded again: %s", self._name, error)
        why = "it leaves no trace" if last is None else in_a_line(last)
        raise BatchFailed(f"{self._name}: the state of the epoch can't be recorded: {why}")

    def create(self, schema: str, partitions: Sequence[str]) -> Snapshot:
        """Create the table unless it is there; others may do so at the same moment.

        Args:
            schema: in Delta's JSON.
            partitions: its partition columns.

        Raises:
            SinkRefused: somebody else's table is there now, and may not be written.
            Exception: of delta-rs.
        """
        try:
            self._log.create(schema, partitions, *self._epoch.of_new_table())
        except Exception:
            if (table := self.look()) is None:
                raise
            return table
        table = self.look()
        assert table is not None
        return table

    def mark(self, shard: ShardKey) -> Position | None:
        """Where a shard stands, durably; None = no commit of this epoch names it."""
        mark = self.read(shard)
        return None if mark is None else mark.position

    def read(self, shard: ShardKey) -> Mark | None:
        """A shard's mark as it is now, durably; None if there is no table.

        Raises:
            SinkRefused: what the table says of the shards can't be trusted.
            SinkUnavailable: it can't be read.
        """
        with self._log.snapshot() as table:
            if table is None:
                self._forget(frozenset({shard}))
                return None
            self._epoch.check(table)
            return self._read(table, shard)

    def fit(self, table: Snapshot, files: Sequence[Staged]) -> None:
        """See that files fit the table.

        Raises:
            BatchFailed: they don't; the message names the column.
        """
        for file in files:
            if why := self._misfit(table, file):
                added = not self._adds_columns and additions(table.fields, file.fields)
                more = ", or set spark.sink.schema=addColumns to let new columns in"
                raise BatchFailed(
                    f"{self._name}: the function's rows do not fit the table: {why}; change the "
                    f"function{more if added else ''}"
                )

    def commit(
        self, files: Sequence[Staged], batches: Sequence[ShardBatch]
    ) -> Mapping[ShardKey, CommitOutcome]:
        """Make the files' rows visible and move the marks of all shards, or do nothing.

        Returns:
            ``STANDS`` for all; or ``LOST`` for those that another writer has moved, and ``AGAIN``
            for the others.

        Raises:
            SinkRefused: the table may not be written any more.
            BatchFailed: the files do not fit it.
            Exception: of delta-rs, at the last try.
        """
        identity = self._new_identity()
        numbers: dict[str, int] = {}
        for batch in batches:
            numbers |= transactions(batch.shard, batch.to, identity)
        before: dict[ShardKey, int | None] | None = None
        last: Exception | None = None
        look = self._log.to_append if self._change.keeps_files else self._log.snapshot
        for pause_s in (*PAUSES_S, None):
            with look() as table:
                if table is None:
                    raise SinkRefused(f"{self._name}: the table is gone; {NEW_EPOCH}")
                if before is None:
                    before, lost = self._before(table, batches)
                    if lost:
                        return outcomes(batches, lost)
                if (found := self._judged(table, before, identity, batches)) is not None:
                    return found
                if pause_s is None:
                    break
                if any(self._misfit(table, file) for file in files):
                    table.is_sound = False  # it may be older than what they fit
                    self._admit(files)  # or the table was changed since they were examined
                    continue
                found, last = self._insist(table, files, numbers, before, identity, batches)
                if found is not None:
                    return found
            self._pause(pause_s)
        raise last or BatchFailed(f"{self._name}: commits leave no trace in the table")

    def _insist(
        self,
        table: Snapshot,
        files: Sequence[Staged],
        numbers: Mapping[str, int],
        before: Mapping[ShardKey, int | None],
        identity: int,
        batches: Sequence[ShardBatch],
    ) -> tuple[Mapping[ShardKey, CommitOutcome] | None, Exception | None]:
        """Commit on the snapshot that was judged; again at once, and judged again, if others were faster.

        Returns:
            what became of it, None = that is not known; and what the last try raised.
        """
        last = self._tried(table, files, numbers)
        for _ in range(_MOST_OVERTAKEN):
            if not isinstance(last, Overtaken) or not table.is_sound:
                break
            if (found := self._judged(table, before, identity, batches)) is not None:
                return found, last
            last = self._tried(table, files, numbers)
        if last is None and (table.stands or self._log.tells(table.version + 1, numbers)):
            return self._stands(batches, identity), None
        return None, last

    def _judged(
        self,
        table: Snapshot,
        before: Mapping[ShardKey, int | None],
        identity: int,
        batches: Sequence[ShardBatch],
    ) -> Mapping[ShardKey, CommitOutcome] | None:
        """What became of the commit; None = no other commit came between, so it may be made on this table."""
        now: dict[ShardKey, int | None] = {}
        for shard in before:  # one that is ours proves all
            now[shard] = table.number_of(guard_id(shard))
            if now[shard] == identity:
                return self._stands(batches, identity)
        verdict, moved = judge(before, identity, now)
        self._epoch.check(table)
        if verdict is Judgement.REPEAT:
            return None
        self._forget(moved)
        return outcomes(batches, moved)

    def _tried(
        self, table: Snapshot, files: Sequence[Staged], numbers: Mapping[str, int]
    ) -> Exception | None:
        """Commit on the very snapshot that was judged; what it raised, which proves nothing."""
        raise_if_abandoned()
        try:
            self._change.apply(table, files, numbers)
        except Exception as error:  # noqa: BLE001 - the guards say what became of it
            _log.info("%s: checking a commit again: %s", self._name, error)
            return error
        return None

    def examine(self, rows: Rows) -> Rows:
        """See that rows fit the table; add columns that it lacks where that is wanted.

        If they fit what was seen last that will do: the commit looks again.

        Returns:
            them, in the table's types.

        Raises:
            BatchFailed: they don't fit.
            Exception: of delta-rs, at the last try.
        """
        seen = None if self._looks_afresh else self._log.last_seen()
        if seen is None or self._misfit(seen, rows):
            seen = self._admit([rows])
        return conformed(rows, seen.fields)

    def _admit(self, files: Sequence[Staged]) -> Snapshot:
        """The table as it is now, which files fit, perhaps with columns that it got for that.

        Raises:
            As ``examine``.
        """
        last: Exception | None = None
        for pause_s in PAUSES_S:
            self._pause(pause_s)
            with self._log.snapshot() as table:
                if table is None:
                    raise SinkRefused(f"{self._name}: the table is gone; {NEW_EPOCH}")
                fields = {field["name"]: field for file in files for field in file.fields}
                added = additions(table.fields, list(fields.values()))
                if not added or not self._adds_columns or refused_type(added):
                    self.fit(table, files)
                    return table
                try:
                    table.add_columns(added)
                except Exception as error:  # noqa: BLE001 - somebody else may have added them
                    last = error
        raise last or BatchFailed(f"{self._name}: columns that were added are not in the table")

    def _misfit(self, table: Snapshot, file: Staged) -> str:
        return refused_type(file.fields) or self._change.misfit(table, file)

    def keep_short(self) -> None:
        """Log checkpoint and clean-up when they are due; raises nothing."""
        try:
            if self._log.keep_short(self._epoch.seen_version):
                with self._log.snapshot() as table:
                    if table is not None:
                        self._epoch.check(table)
                        self._epoch.testify(table)
        except Exception as error:  # noqa: BLE001 - the next one may succeed; no commit needs it
            _log.warning("%s: the table's log can't be shortened: %s", self._name, error)

    def _stands(
        self, batches: Sequence[ShardBatch], identity: int
    ) -> Mapping[ShardKey, CommitOutcome]:
        with self._lock:
            for batch in batches:
                self._known[batch.shard] = Mark(batch.to, identity)
        return {batch.shard: CommitOutcome.STANDS for batch in batches}

    def _before(
        self, table: Snapshot, batches: Sequence[ShardBatch]
    ) -> tuple[dict[ShardKey, int | None], frozenset[ShardKey]]:
        """The guards behind which the batches were cut, and the shards that stand elsewhere."""
        before: dict[ShardKey, int | None] = {}
        lost: set[ShardKey] = set()
        for batch in batches:
            with self._lock:
                known = self._known.get(batch.shard)
            if known is None or known.position != batch.after:
                known = self._read(table, batch.shard)
            if known.position != batch.after:
                _log.warning(
                    "%s: the table has the shard up to %s, but the batch follows %s",
                    batch.shard.shard_id,
                    position_text(known.position),
                    position_text(batch.after),
                )
                lost.add(batch.shard)
            before[batch.shard] = known.guard
        return before, frozenset(lost)

    def _read(self, table: Snapshot, shard: ShardKey) -> Mark:
        try:
            mark = read_mark(shard, table.number_of)
        except ValueError as error:
            raise SinkRefused(f"{self._name}: {error}; {NEW_EPOCH}") from error
        with self._lock:
            self._known[shard] = mark
        return mark

    def _forget(self, shards: frozenset[ShardKey]) -> None:
        with self._lock:
            for shard in shards:
                self._known.pop(shard, None)
