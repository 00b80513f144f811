"""The outputs of the simulated world: what a host's sink does, and what is in the output.

``delta`` is the product's own ``MarkedTable`` over a played log, ``s3`` the same over its own
``DeltaLog`` and a played S3. ``jdbc`` gives the guarantee of a transaction that locks marks.
``refreshed``, ``unconditional`` and ``blind`` are known to be wrong, and are there to be convicted.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.table.data_files import DataFile
from kcl_mld.spark.table.marked_table import MarkedTable
from kcl_mld.spark.table.marks import BITS, read_mark
from tests.sim_spark.bucket import BucketLog, UnconditionalLog
from tests.sim_spark.delta_log import FIELD, AnswerLost, HostLog, Killed, PlayedLog

if TYPE_CHECKING:
    from kcl_mld.spark.model import Position, ShardBatch, ShardKey


def kept(batch: ShardBatch) -> list[Position]:
    """What the user's function makes of a batch: every fifth record goes, and long stretches."""
    return [row.position for row in batch.rows if is_kept(row.position)]


def is_kept(position: Position) -> bool:
    return position.sequence % 5 != 0 and position.sequence // 20 != 1


class Delta:
    """One commit a job, with the marks of all its shards."""

    log_of_a_host = HostLog

    def __init__(self, world) -> None:
        self.world = world
        self.log = PlayedLog(world)
        self.jobs: dict[str, list[ShardBatch]] = {}

    def open(self, host):
        return _DeltaSink(self, host)

    def durable_end(self, shard: ShardKey) -> Position | None:
        numbers = self.log.numbers(len(self.log.entries))
        return read_mark(shard, numbers.get).position

    def rows(self, shard: ShardKey) -> list[Position]:
        jobs = (self.jobs[file.path] for file in self.log.files())
        return [row for job in jobs for batch in job if batch.shard == shard for row in kept(batch)]


class _DeltaSink:
    def __init__(self, store: Delta, host) -> None:
        self._store, self._world = store, store.world
        self._table = MarkedTable(
            store.log_of_a_host(store.log, host),
            "table",
            "app",
            "0",
            pause=lambda _: self._world.meanwhile(host),
            new_identity=lambda: self._world.dice.getrandbits(BITS),
        )

    def prepare(self) -> None:
        if self._table.look() is None:
            self._table.create("{}", ())

    def mark(self, shard: ShardKey) -> Position | None:
        return self._table.mark(shard)

    def commit_all(self, batches):
        path = f"job-{len(self._store.jobs)}"
        self._store.jobs[path] = list(batches)
        size = sum(len(batch.rows) for batch in batches)
        file = DataFile(path, size, 0, size, {}, (FIELD,), ())
        return self._table.commit((file,), batches)


class _Unfenced(HostLog):
    is_fenced = False


class Refreshed(Delta):
    """WRONG: others' commits are made known to the snapshot before the commit on it."""

    log_of_a_host = _Unfenced


class InS3(Delta):
    """A plain append writes its entry of the log by a conditional put."""

    log_of_a_host = BucketLog


class Unconditional(Delta):
    """WRONG: the put is made whether there is an entry or not."""

    log_of_a_host = UnconditionalLog


class Table:
    """Rows in the order of their transactions, each with the marks of its shards."""

    def __init__(self, world) -> None:
        self.world = world
        self.content: dict[ShardKey, list[Position]] = defaultdict(list)
        self.ends: dict[ShardKey, Position] = {}

    def open(self, host):
        return _TableSink(self, host)

    def rows(self, shard: ShardKey) -> list[Position]:
        return self.content[shard]

    def durable_end(self, shard: ShardKey) -> Position | None:
        return self.ends.get(shard)

    def append(self, batches) -> None:
        for batch in batches:
            self.content[batch.shard] += kept(batch)
            self.ends[batch.shard] = batch.to


class _TableSink:
    looks_again = True

    def __init__(self, table: Table, host) -> None:
        self._table, self._world, self._host = table, table.world, host

    def prepare(self) -> None:
        """The table is there."""

    def mark(self, shard: ShardKey) -> Position | None:
        return self._table.durable_end(shard)

    def commit_all(self, batches):
        self._world.meanwhile(self._host)
        ends = self._table.ends
        lost = {each.shard for each in batches if ends.get(each.shard) != each.after}
        if lost and self.looks_again:
            outcomes = {each.shard: CommitOutcome.AGAIN for each in batches}
            return outcomes | dict.fromkeys(lost, CommitOutcome.LOST)
        fate = self._world.fate_of_commit()
        if "before" not in fate:
            self._table.append(batches)
        if "killed" in fate:
            self._world.bury(self._host)
            raise Killed
        if "lost" in fate and not (self.looks_again and "after" in fate):
            raise AnswerLost
        return dict.fromkeys((each.shard for each in batches), CommitOutcome.STANDS)


class _BlindSink(_TableSink):
    looks_again = False


class Blind(Table):
    """WRONG: no mark is compared, and what raised is written again."""

    def open(self, host):
        return _BlindSink(self, host)


TABLES = {
    "delta": Delta,
    "s3": InS3,
    "jdbc": Table,
    "refreshed": Refreshed,
    "unconditional": Unconditional,
    "blind": Blind,
}
