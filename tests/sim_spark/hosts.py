"""The hosts of the simulated world: real batching, resuming and shard work; a played engine.

A host is a process: its sessions, its engine and its sink die together. What a session does is
cut into steps by ``yield``; anything may happen between two of them.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING

from mld.spark.errors import BatchFailed, Fenced, SparkChildError
from mld.spark.jobs.moments import CutMoments
from mld.spark.model import position_text
from mld.spark.shard.batcher import FlushReason, Limits
from mld.spark.shard.resume import resume_intent, resume_marked, resume_unmarked
from mld.spark.shard.work import ShardWork

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from mld.spark.model import ShardBatch, ShardKey

#: Tries of a batch before its shard fails.
ATTEMPTS = 4
_OVER = object()


class Glitch(Exception):
    """Spark failed; nobody knows how far it got."""


class PlayedEngine:
    """Runs batches of several shards in one job, never two of one shard, and tries again.

    Where the sink takes many shards in a job, all are cut together, within a cap that often bites;
    else batches are handed in. Where the sink stages ahead, one more job may be written while the last one commits; commits
    keep the order of the jobs, and nothing behind a failed batch is committed.
    """

    def __init__(self, world, sink) -> None:
        self._world = world
        self._sink = sink
        self.cuts_together = sink.coalesces and not sink.uses_intents
        self._moments: CutMoments[ShardWork] = CutMoments(0.0)
        self._queue: list[tuple[ShardBatch, object, Future]] = []
        self._last: dict[ShardKey, Future] = {}
        self._written: deque[Iterator[None]] = deque()

    def submit(self, batch: ShardBatch, fence, hold: object) -> Future:
        del hold  # no end of a hold comes late here
        future: Future = Future()
        self._enqueue(batch, fence, future)
        return future

    def join(self, work: ShardWork) -> None:
        self._moments.join(work)

    def ask(self, work: ShardWork) -> None:
        self._moments.ask(work, self._world.now)

    def _cut_all(self) -> None:
        """The moment of all shards, of which some would have gone on to fill their buffers."""
        if not self._queue and self._moments.patience_s(self._world.now) is not None:
            cut = self._moments.cut(self._world.dice.choice([20, 60, 10_000]))
            self._world.cut_along += len(cut) > 1
            for work, most_bytes, _ in cut:
                batch, future = work.cut(most_bytes)
                self._enqueue(batch, work.is_wanted, future)

    def _enqueue(self, batch: ShardBatch, fence, future: Future) -> None:
        before = self._last.get(batch.shard)
        if before is None or before.done():
            before = None
        self._last[batch.shard] = future

        def is_wanted() -> bool:
            return fence() and (before is None or not before.done() or not before.exception())

        self._queue.append((batch, is_wanted, future))

    def abandon(self, shard: ShardKey, hold: object) -> None:
        self._moments.leave(shard, hold)
        gone = [ticket for ticket in self._queue if ticket[0].shard == shard]
        self._queue = [ticket for ticket in self._queue if ticket[0].shard != shard]
        for _, _, future in gone:
            future.set_exception(BatchFailed("abandoned"))

    def run(self) -> Iterator[None]:
        most = 2 if self._sink.stages_ahead else 1
        while True:
            yield
            may_write = len(self._written) < most and (not self._written or self._world.chance(0.5))
            if may_write:
                self._cut_all()
            if may_write and (job := self._take()):
                staged = yield from self._write(job)
                self._world.staged_ahead += bool(self._written)
                self._written.append(self._commit_all(staged, job))
            elif self._written:
                commits = self._written[0]
                if next(commits, _OVER) is _OVER:
                    self._written.popleft()

    def _take(self) -> list:
        job = []
        for ticket in self._queue:
            if all(ticket[0].shard != other[0].shard for other in job):
                job.append(ticket)
                if not self._sink.coalesces or self._world.chance(0.3):
                    break
        self._queue = [ticket for ticket in self._queue if ticket not in job]
        return job

    def _write(self, job: list) -> Generator[None, None, object]:
        for attempt in range(ATTEMPTS):
            try:
                staged = self._sink.write([each[0] for each in job], [each[0] for each in job])
                self._glitch(attempt)
            except Glitch:
                yield
                continue
            break
        return staged

    def _commit_all(self, staged, job: list) -> Iterator[None]:
        for ticket in job:
            yield
            yield from self._commit(staged, *ticket)
        yield
        self._sink.discard(staged)

    def _commit(self, staged, batch: ShardBatch, fence, future: Future) -> Iterator[None]:
        for attempt in range(ATTEMPTS):
            try:
                if not fence():
                    raise BatchFailed("the shard is lost")
                self._glitch(attempt)
                self._sink.commit(staged, batch)
                self._world.committed(batch)
                self._glitch(attempt)
            except Glitch:
                yield
            except SparkChildError as error:
                if isinstance(error, Fenced):
                    self._world.note(f"fenced {batch.batch_id}")
                    self._world.fenced += 1
                future.set_exception(error)
                return
            else:
                self._world.note(f"committed {batch.batch_id} to {batch.to}")
                future.set_result(None)
                return

    def _glitch(self, attempt: int) -> None:
        """Spark's answer is lost; the last try is spared."""
        if attempt < ATTEMPTS - 1 and self._world.is_stormy and self._world.chance(0.05):
            self._world.note("glitch")
            raise Glitch


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
        world, row = self._world, self._world.leases[self._shard]
        checkpoint, intent = row.checkpoint, row.intent
        yield
        resume = self._resume(checkpoint, intent)
        yield
        dice = world.dice
        limits = Limits(dice.randint(1, 12), 10_000, dice.choice([0.5, 3.0, 20.0]), 0.5)
        keep = self._keep_intent if world.store.uses_intents else None
        self.work = work = ShardWork(
            shard=self._shard,
            resume=resume,
            checkpoint=checkpoint,
            limits=limits,
            engine=self._host.engine,
            keep_intent=keep,
            on_done=lambda: None,
        )
        rows = world.records_after(self._shard, checkpoint)
        sent = 0
        while work.is_open:
            yield
            batch = [] if work.is_backed_up else rows[sent : sent + dice.choice([0, 1, 3, 9])]
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
            if not (work.submit(self._world.now, reason) or moved):
                return

    def _resume(self, checkpoint, intent):
        sink, shard = self._host.sink, self._shard
        if self._world.store.uses_intents:
            nonce = f"{self._token}"
            text = position_text(checkpoint)
            return resume_intent(shard, checkpoint, text, intent, nonce)
        if self._world.store.is_marked:
            return resume_marked(shard, checkpoint, sink.mark(shard))
        return resume_unmarked(checkpoint)

    def _checkpoint(self) -> None:
        work, world = self.work, self._world
        if (position := work.due_checkpoint) is None or (world.is_stormy and world.chance(0.2)):
            return
        if world.checkpoint(self._shard, self._token, position):
            work.checkpointed(position)
        else:
            work.close()

    def _keep_intent(self, intent) -> None:
        if not self._world.keep_intent(self._shard, self._token, intent):
            self.work.close()


class Host:
    """One process of a worker: an engine, a sink, and a session for each shard it holds."""

    def __init__(self, world, name: str) -> None:
        self.world = world
        self.name = name
        self.sink = world.store.open()
        self.engine = PlayedEngine(world, self.sink)
        self.sessions: dict[ShardKey, Session] = {}
        self.actors: list[Iterator[None]] = [self.engine.run()]
        self.asleep_until = 0.0

    def start(self, shard: ShardKey, token: int) -> None:
        session = self.sessions[shard] = Session(self.world, self, shard, token)
        self.actors.append(self._serve(shard, session))

    def _serve(self, shard: ShardKey, session: Session) -> Iterator[None]:
        """A session to its end; the next one of the shard waits until nothing of it can commit."""
        try:
            yield from session.run()
        except SparkChildError as error:
            self.world.session_failed(shard, error)
        if session.work is not None:
            session.work.close()
        while not session.has_drained:
            yield
        del self.sessions[shard]
