"""A table with marks that is one of several: it takes the steps of manifests.

A step may be taken by any number of processes at once. They add the same files under the same
identity, behind the same guards, so the first one's commit is everybody's
(:mod:`mld.spark.table.manifest` says why that is enough).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.errors import BatchFailed, SinkRefused
from mld.spark.ports import outcomes
from mld.spark.table.epoch import NEW_EPOCH
from mld.spark.table.manifest import Move, next_move
from mld.spark.table.marked_table import PAUSES_S, MarkedTable
from mld.spark.table.marks import Judgement, Mark, guard_id, judge, transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mld.spark.model import Position, ShardBatch, ShardKey
    from mld.spark.ports import CommitOutcome
    from mld.spark.table.data_files import DataFile
    from mld.spark.table.manifest import Step


class SteppedTable(MarkedTable):
    """See the module; safe to use from any thread."""

    _looks_afresh = True  # files of a manifest must fit

    def behind(
        self, batches: Sequence[ShardBatch]
    ) -> tuple[Mapping[ShardKey, int | None], Mapping[ShardKey, CommitOutcome] | None]:
        """The guards behind which batches can be committed; nothing is changed.

        Returns:
            the guards and None; or, if another writer has moved shards, what became of the batches.

        Raises:
            SinkRefused: the table is gone.
        """
        with self._log.snapshot() as table:
            if table is None:
                raise SinkRefused(f"{self._name}: the table is gone; {NEW_EPOCH}")
            before, lost = self._before(table, batches)
        return before, outcomes(batches, lost) if lost else None

    def guards(self, shards: Iterable[ShardKey]) -> dict[ShardKey, int | None] | None:
        """The guards of shards that this process owns; None if there is no table.

        What is known need not be read again: if another writer has moved a shard here, then it has
        moved it in the table that decides, too, and before.
        """
        with self._log.snapshot() as table:
            if table is None:
                return None
            with self._lock:
                known = dict(self._known)
            return {
                shard: (known[shard] if shard in known else self._read(table, shard)).guard
                for shard in shards
            }

    def carry_out(
        self,
        step: Step,
        ends: Mapping[ShardKey, Position],
        identity: int,
        *,
        decides: bool,
        examine: Callable[[Sequence[DataFile]], object] | None = None,
    ) -> frozenset[ShardKey]:
        """Take a step of a manifest, unless it is taken.

        Args:
            step: of the manifest.
            ends: for each of its shards the position that it reaches.
            identity: of the manifest.
            decides: True for its first step.
            examine: raises if files can't be added any more.

        Returns:
            the shards that another writer has moved, so that nobody will ever take this step; none:
            the table has it.

        Raises:
            SinkRefused: the table may not be written any more.
            BatchFailed: the files do not fit it.
            Exception: of delta-rs, at the last try.
        """
        numbers: dict[str, int] = {}
        for shard, end in ends.items():
            numbers |= transactions(shard, end, identity)
        last: Exception | None = None
        for pause_s in (*PAUSES_S, None):
            with self._log.snapshot() as table:
                if table is None:
                    raise SinkRefused(f"{self._name}: the table is gone; {NEW_EPOCH}")
                now = {shard: table.number_of(guard_id(shard)) for shard in ends}
                self._epoch.check(table)
                verdict, moved = judge(step.before, identity, now)
                move = next_move(verdict, decides=decides)
                if move is not Move.COMMIT:
                    self._learn(now, ends, identity)
                    return moved if move is Move.VOID else frozenset()
                if pause_s is None:
                    break
                self.fit(table, step.files)
                if examine is not None:
                    examine(step.files)
                last = self._tried(table, step.files, numbers)
            self._pause(pause_s)
        raise last or BatchFailed(f"{self._name}: commits leave no trace in the table")

    def verdict(self, step: Step, identity: int) -> Judgement:
        """What the guards say of the first step of a manifest: it stands, may still, or never will.

        ``LOST`` also if all its shards have gone on since it stood.
        """
        with self._log.snapshot() as table:
            if table is None:
                return Judgement.REPEAT
            now = {shard: table.number_of(guard_id(shard)) for shard in step.before}
        return judge(step.before, identity, now)[0]

    def _learn(
        self, now: Mapping[ShardKey, int | None], ends: Mapping[ShardKey, Position], identity: int
    ) -> None:
        with self._lock:
            for shard, guard in now.items():
                if guard == identity:
                    self._known[shard] = Mark(ends[shard], identity)
                else:
                    self._known.pop(shard, None)
