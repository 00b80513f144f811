"""The hosts of the simulated world: real batching, resuming and shard work; a played engine.

A host is a process: its sessions, its engine and its sink die together. What a session does is
cut into steps by ``yield``; anything may happen between two of them, and within a commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.spark.errors import BatchFailed, Fenced, SparkChildError
from kcl_mld.spark.jobs.cut_schedule import CutSchedule, DeliveryBudget
from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.shard.batcher import FlushReason, Limits
from kcl_mld.spark.shard.resume import resume_at_mark
from kcl_mld.spark.shard.work import ShardWork
from tests.sim_spark.delta_log import GivenUp

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from concurrent.futures import Future

    from kcl_mld.spark.model import ShardBatch, ShardKey

#: What the shards of a host may hold, in bytes: a dozen records of the simulated world.
_HELD_BYTES = 4_000
#: Tries of a micro-batch before its shards fail.
ATTEMPTS = 4


class _Submitted:
    """A shard's part of a job."""

    def __init__(self, batch: ShardBatch, fence, future: Future) -> None:
        self.batch, self.future, self._fence = batch, future, fence

    def is_wanted(self) -> bool:
        """True while it may be written; what may not is answered."""
        if self.future.done():
            return False
        if not self._fence():
            self.future.set_exception(BatchFailed("the shard is lost"))
        return not self.future.done()


class PlayedEngine:
    """Runs what all shards have in one job, as ``HostRun`` does: one write and one commit.

    A shard that is lost before the commit is left out, and the others are written again.
    """

    def __init__(self, world, sink, host) -> None:
        self._world, self._sink, self._host = world, sink, host
        self._schedule: CutSchedule[ShardWork] = CutSchedule(0.0)
        self._delivery_budget: DeliveryBudget[ShardWork] = DeliveryBudget(_HELD_BYTES)

    def admit(self, work: ShardWork, expected_bytes: int) -> bool:
        held = self._schedule.held_bytes
        is_admitted = self._delivery_budget.admit(work, expected_bytes, held, self._world.now)
        if not is_admitted:
            self._world.refused += 1
            any(source.ask() for source in self._schedule.sources)
        return is_admitted

    def arrived(self, work: ShardWork) -> None:
        self._delivery_budget.arrived(work)

    def join(self, work: ShardWork) -> None:
        self._schedule.join(work)

    def ask(self, work: ShardWork) -> None:
        self._schedule.ask(work, self._world.now)

    def abandon(self, shard: ShardKey, hold: object) -> None:
        for work in self._schedule.leave(shard, hold):
            self._delivery_budget.leave(work)

    def run(self) -> Iterator[None]:
        ahead: list[_Submitted] = []
        while True:
            yield
            if job := ahead or self._cut_all():
                ahead = yield from self._run_and_cut_ahead(job)

    def _run_and_cut_ahead(self, job: list[_Submitted]) -> Generator[None, None, list[_Submitted]]:
        """Run a job; what was cut meanwhile, to be run when it is over, however it ended."""
        ahead: list[_Submitted] = []
        for _ in self._run(job):
            yield
            if not ahead and self._world.chance(0.2):
                ahead = self._cut_all()
                self._world.cut_ahead += bool(ahead)
        return ahead

    def _cut_all(self) -> list[_Submitted]:
        """The moment of all shards, of which some would have gone on to fill their buffers."""
        if self._schedule.patience_s(self._world.now) is None:
            return []
        job = []
        cut = self._schedule.cut(self._world.dice.choice([20, 60, 10_000]))
        self._world.cut_along += len(cut) > 1
        for work, most_bytes, _ in cut:
            batch, future = work.cut(most_bytes)
            job.append(_Submitted(batch, work.is_wanted, future))
        return job

    def _run(self, job: list[_Submitted]) -> Iterator[None]:
        tried = 0
        while group := [each for each in job if each.is_wanted()]:
            yield  # Spark writes
            if self._world.is_stormy and self._world.chance(0.05) and tried < ATTEMPTS:
                tried += 1
                self._world.note("Spark failed")
                continue
            yield
            if not all(each.is_wanted() for each in group):
                self._world.written_again += 1
                continue
            tried += 1
            try:
                outcomes = self._sink.commit_all([each.batch for each in group])
            except GivenUp:
                self._fail(group, BatchFailed("the commit goes on"))
                return
            except Exception as error:  # noqa: BLE001 - judged by the outcome
                if tried >= ATTEMPTS:
                    self._fail(group, BatchFailed(str(error)))
                    return
                continue
            self._answer(group, outcomes)

    def _answer(self, group: list[_Submitted], outcomes) -> None:
        for one in group:
            match outcomes[one.batch.shard]:
                case CommitOutcome.STANDS:
                    self._world.committed(one.batch)
                    one.future.set_result(None)
                case CommitOutcome.LOST:
                    self._world.fenced += 1
                    self._world.note(f"{self._host.name}: fenced {one.batch.batch_id}")
                    one.future.set_exception(Fenced("another writer was first"))

    def _fail(self, group: list[_Submitted], error: Exception) -> None:
        for one in group:
            one.future.set_exception(error)


class Session:
    """One hold of one shard by one host.

    Args:
        world: its stream, leases, time and dice.
        host: whose.
        shard: which.
        token: of the lease when it was taken.
    """

    def __init__(self, world, host, shard: ShardKey, token: int) -> None:
        self._world = world
        self._host = host
        self._shard = shard
        self._token = token
        self.work: ShardWork | None = None

    @property
    def has_drained(self) -> bool:
        """True if no batch of it can be committed any more."""
        return self.work is None or all(future.done() for future in self.work.futures())

    def run(self) -> Iterator[None]:
        """Initialize, deliveries, shard end."""
        world = self._world
        checkpoint = world.leases[self._shard].checkpoint
        yield
        resume = resume_at_mark(self._shard, checkpoint, self._host.sink.mark(self._shard))
        yield
        dice = world.dice
        limits = Limits(dice.randint(1, 12), 10_000, dice.choice([0.5, 3.0, 20.0]), 0.5)
        self.work = work = ShardWork(
            shard=self._shard,
            resume=resume,
            checkpoint=checkpoint,
            limits=limits,
            engine=self._host.engine,
            on_done=lambda: None,
        )
        rows = world.records_after(self._shard, checkpoint)
        sent = 0
        while work.is_open:
            yield
            is_full = work.is_backed_up or not work.has_room()
            batch = [] if is_full else rows[sent : sent + dice.choice([0, 1, 3, 9])]
            sent += len(batch)
            work.add(batch, world.now, None)
            reason = FlushReason.FLOWING if batch else FlushReason.IDLE
            if sent == len(rows):
                reason = FlushReason.SHARD_ENDED
            yield from self._pump(reason)
            is_done = reason is FlushReason.SHARD_ENDED and not work.buffered and work.is_idle
            if work.is_open and is_done and work.due_checkpoint is None:
                world.end_shard(self._shard, self._token)
                return

    def _pump(self, reason: FlushReason) -> Iterator[None]:
        work = self.work
        while work.is_open:
            moved = work.collect()
            yield
            self._checkpoint()
            yield
            work.ask_if_due(self._world.now, reason)
            if not moved:
                return

    def _checkpoint(self) -> None:
        work, world = self.work, self._world
        if (position := work.due_checkpoint) is None or (world.is_stormy and world.chance(0.2)):
            return
        if world.checkpoint(self._shard, self._token, position):
            work.checkpointed(position)
        else:
            work.close()


class Host:
    """One process of a worker: an engine, a sink, and a session for each shard it holds."""

    def __init__(self, world, name: str) -> None:
        self.world = world
        self.name = name
        self.sessions: dict[ShardKey, Session] = {}
        self.asleep_until = 0.0
        self.sink = world.store.open(self)
        self.engine = PlayedEngine(world, self.sink, self)
        self.is_ready = False
        self.actors: list[Iterator[None]] = [self._live()]

    def _live(self) -> Iterator[None]:
        """Prepare the sink, which may fail, and serve."""
        while not self.is_ready:
            yield
            try:
                self.sink.prepare()
            except (Exception, GivenUp) as error:  # noqa: BLE001 - and tried again
                self.world.note(f"{self.name} is not ready: {error!r}")
            else:
                self.is_ready = True
        yield from self.engine.run()

    def start(self, shard: ShardKey, token: int) -> None:
        session = self.sessions[shard] = Session(self.world, self, shard, token)
        self.actors.append(self._serve(shard, session))

    def _serve(self, shard: ShardKey, session: Session) -> Iterator[None]:
        """A session to its end; the next one of the shard waits until nothing of it can commit."""
        try:
            yield from session.run()
        except (SparkChildError, OSError) as error:  # S3 does not answer
            self.world.session_failed(shard, error)
        if session.work is not None:
            session.work.close()
        while not session.has_drained:
            yield
        del self.sessions[shard]
