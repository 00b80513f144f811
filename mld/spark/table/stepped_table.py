"""A table with marks that is one of several: it takes the steps of manifests.

A step may be taken by any number of processes at once. They add the same files under the same
identity, behind the same guards, so the first one's commit is everybody's
(:mod:`kcl_mld.spark.table.manifest` says why that is enough).

Manifests lie in a place that all workers' hosts see. A manifest's name is its identity, so the
guard of a shard in the table of positions names the one that moved it last. It is there, durably,
before that commit, and goes when all tables have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.spark.errors import BatchFailed, SinkRefused, SinkUnavailable
from kcl_mld.spark.ports import outcomes
from kcl_mld.spark.table.epoch import NEW_EPOCH
from kcl_mld.spark.table.manifest import Manifest, Move, next_move
from kcl_mld.spark.table.marked_table import PAUSES_S, MarkedTable
from kcl_mld.spark.table.marks import Judgement, Mark, guard_id, judge, transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kcl_mld.spark.model import Position, ShardBatch, ShardKey
    from kcl_mld.spark.ports import CommitOutcome
    from kcl_mld.spark.table.data_files import DataFile
    from kcl_mld.spark.table.manifest import Step
    from kcl_mld.spark.table.store import Store

_SUFFIX = ".json"


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
            ends: for each of its shards the position that it reaches.
            decides: True for its first step.
            examine: raises if files can't be added any more.

        Returns:
            the shards that another writer has moved, so that this step will never be taken; none:
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


class Manifests:
    """The open manifests of several tables. Safe to use from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def prepare(self) -> None:
        """Make the place."""
        self._store.make()

    def keep(self, manifest: Manifest) -> None:
        """Make a manifest durable.

        Raises:
            OSError: it may be there or not; nothing was committed.
        """
        self._store.put(_name(manifest.identity), manifest.encode().encode())

    def get(self, identity: int) -> Manifest | None:
        """An open manifest; None if there is none, so that all tables have what it named.

        Raises:
            SinkRefused: the file is broken.
            SinkUnavailable: it can't be read.
        """
        return self._read(_name(identity))

    def all(self) -> Iterator[Manifest]:
        """Every open manifest, of whatever shard.

        Raises:
            SinkRefused: a file is broken.
            SinkUnavailable: one can't be read.
        """
        for name in self._store.names(_SUFFIX):
            if (found := self._read(name)) is not None:
                yield found

    def old(self) -> set[int]:
        """The identities of those that were made a week ago or before.

        Raises:
            SinkRefused: a file is broken.
            SinkUnavailable: one can't be read.
            OSError: the store does not answer.
        """
        if not (names := self._store.old_names(_SUFFIX)):
            return set()
        return {each.identity for each in self.all() if _name(each.identity) in names}

    def remove(self, manifest: Manifest) -> None:
        """All tables have it, or none ever will; quiet if it is gone."""
        self._store.drop(_name(manifest.identity))

    def named(self, table: str) -> set[str]:
        """Paths of the files that somebody may still add to a table, from its directory on."""
        return {
            file.path
            for manifest in self.all()
            for step in manifest.steps
            if step.table == table
            for file in step.files
        }

    def path(self, identity: int) -> str:
        """Where a manifest is, or would be."""
        return f"{self._store.name}/{_name(identity)}"

    def _read(self, name: str) -> Manifest | None:
        try:
            text = self._store.get(name)
            return None if text is None else Manifest.decode(text)
        except OSError as error:
            raise SinkUnavailable(f"{self._store.name}/{name} can't be read: {error}") from error
        except ValueError as error:
            raise SinkRefused(
                f"{self._store.name}/{name} says which files belong to a batch, and can't be read: {error}. Use the "
                f"release that wrote it, or choose a new spark.sink.epoch"
            ) from error


def _name(identity: int) -> str:
    return f"{identity:016x}{_SUFFIX}"
