"""Batches of many shards through few Spark jobs, each committed and answered by itself.

A job's fixed price dominates small batches, so whatever is ready is run together: at most one
batch per shard, over all jobs that write. Where jobs may hold many shards, all of them are cut
together when a job may begin (``mld.spark.jobs.moments``), and one such job writes at a time: two
would only divide the company. Where each batch has a number of its own, batches queue. Runners are
threads. While a job commits, the next one may write the shards' next batches, if
the sink stages ahead: commits wait for the disk or the database, and Spark need not.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from mld.spark.calls import SystemClock
from mld.spark.errors import BatchFailed
from mld.spark.jobs.host_run import HostRun
from mld.spark.jobs.job_run import JobRun
from mld.spark.jobs.moments import CutMoments
from mld.spark.jobs.progress import Progress
from mld.spark.jobs.rescue import Rescue
from mld.spark.jobs.tickets import Ticket
from mld.spark.plans.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.spark.config import SparkConfig
    from mld.spark.model import ShardBatch, ShardKey
    from mld.spark.pipeline import Pipeline
    from mld.spark.plans.one_call import FunctionCaller
    from mld.spark.ports import KeepsLetters, MonotonicClock, Sessions, Sink
    from mld.spark.shard.work import ShardWork

_log = logging.getLogger(__name__)
#: Payload of one job, in bytes: a job of 64 full batches would not fit into a heap of 1 GB.
MAX_JOB_BYTES = 64 * 1024 * 1024


class Engine:
    """Where batches are handed in; safe to call from any thread.

    Args:
        sessions: where a Spark session comes from.
        sink: where the rows go; already prepared.
        pipeline: what the app registered.
        config: batch limits, attempts and times.
        clock: for the coalescing window and for deadlines.
        planner: asks the user's function; None = made of pipeline and config, rows go inline.
        caller: asks it once for all shards, if one commit is for all; None = it is asked for each.
        letters: where records go of which a row-wise function fails; None = they fail their batch.
        pause_s: before the second attempt at a batch, in s; doubles with each further one.

    Attributes:
        cuts_together: True if shards ``join`` and ``ask``; False if they ``submit``.
    """

    def __init__(  # noqa: PLR0913 - all that a job needs
        self,
        sessions: Sessions,
        sink: Sink,
        pipeline: Pipeline,
        config: SparkConfig,
        *,
        clock: MonotonicClock | None = None,
        planner: Planner | None = None,
        caller: FunctionCaller | None = None,
        letters: KeepsLetters | None = None,
        pause_s: float = 0.5,
    ) -> None:
        self._clock = clock or SystemClock()
        self._window_s = config.coalesce_window_s if sink.coalesces else 0.0
        self._coalesces = sink.coalesces
        self.cuts_together = sink.coalesces and not sink.uses_intents
        self._moments: CutMoments[ShardWork] = CutMoments(self._window_s)
        self._sessions = sessions
        # A function that has all shards may name things in the session: one call at a time.
        has_company = caller is not None and sink.coalesces
        self._max_in_flight = 1 if has_company else config.max_in_flight
        does_ahead = sink.stages_ahead and config.stages_ahead and caller is None
        self._most_runners = self._max_in_flight * (2 if does_ahead else 1)
        self._changed = threading.Condition()
        self._queue: list[Ticket] = []
        self._running: list[JobRun | HostRun] = []
        self._runners: list[threading.Thread] = []
        self._closed = threading.Event()
        progress = Progress(self._clock)
        self._new_run: Callable[[list[Ticket]], JobRun | HostRun]
        if caller is not None:
            rescue = None
            if letters is not None:
                rescue = Rescue(caller, letters, self._clock, config.batch_timeout_s)
            self._new_run = lambda tickets: HostRun(
                tickets,
                sessions=sessions,
                sink=sink,
                caller=caller,
                config=config,
                clock=self._clock,
                progress=progress,
                stop=self._closed,
                pause_s=pause_s,
                rescue=rescue,
            )
            return
        asked = planner or Planner(pipeline, config)
        self._new_run = lambda tickets: JobRun(
            tickets,
            sessions=sessions,
            sink=sink,
            planner=asked,
            config=config,
            clock=self._clock,
            progress=progress,
            stop=self._closed,
            pause_s=pause_s,
            on_written=self._wake,
        )

    def submit(
        self, batch: ShardBatch, fence: Callable[[], bool], hold: object = None
    ) -> Future[None]:
        """Hand in a batch; batches of one shard are run in this order.

        Args:
            batch: what to write.
            fence: asked right before every write and commit; False = the shard is lost.
            hold: of the shard, for ``abandon``.

        Returns:
            done when the batch is durable, or failed with a ``SparkChildError``.
        """
        with self._changed:
            ticket = Ticket(batch, fence, Future(), self._clock.monotonic(), hold)
            self._enqueue(ticket)
            self._fail_if_closed()
            self._start_runner()
            self._changed.notify_all()
        return ticket.future

    def join(self, work: ShardWork) -> None:
        """Cut the shard's buffer with those of the others, until ``abandon`` names it as a hold."""
        with self._changed:
            self._moments.join(work)

    def ask(self, work: ShardWork) -> None:
        """A batch of a shard that has joined is due: cut all as soon as a job may begin."""
        with self._changed:
            if work.has_asked:  # or another shard's moment was faster
                self._moments.ask(work, self._clock.monotonic())
                self._fail_if_closed()
                self._start_runner()
                self._changed.notify_all()

    def abandon(self, shard: ShardKey, hold: object = None) -> None:
        """Nobody wants these batches of a shard any more: forget them, end a job of theirs.

        A job that serves other shards too goes on, and the shard's fence keeps it from committing;
        if it has one commit for all of them it begins again without this one. A
        commit that has begun is cancelled: the next owner of the shard may have to wait for it.

        Args:
            shard: whose.
            hold: as it was given to ``submit``: this may come late, when the shard's next hold has
                batches here; None = the batches of every hold.
        """
        with self._changed:
            self._moments.leave(shard, hold)
            gone = [ticket for ticket in self._queue if ticket.is_of(shard, hold)]
            self._queue = [ticket for ticket in self._queue if ticket not in gone]
            running = list(self._running)
            runs = [run for run in running if run.ends_with(shard, hold)]
        for ticket in gone:
            ticket.fail(BatchFailed(f"{shard.shard_id}: given up before it was written"))
        for run in running:
            run.cancel_commit(shard, hold)
        for run in runs:
            self._sessions.interrupt(run.tag)

    def close(self) -> None:
        """Take no more, forget what waits, and interrupt what runs."""
        with self._changed:
            self._closed.set()
            self._fail_if_closed()
            runs = list(self._running)
            self._changed.notify_all()
        for run in runs:
            self._sessions.interrupt(run.tag)

    def _enqueue(self, ticket: Ticket) -> None:
        if (last := self._last_open(ticket.shard)) is not None:
            ticket.before = last.future
            ticket.follows = last.hold is ticket.hold and last.batch.to == ticket.batch.after
        self._queue.append(ticket)

    def _start_runner(self) -> None:
        if not self._closed.is_set() and len(self._runners) < self._most_runners:
            name = f"spark-job-{len(self._runners) + 1}"
            runner = threading.Thread(target=self._serve, name=name, daemon=True)
            self._runners.append(runner)
            runner.start()

    def _fail_if_closed(self) -> None:
        """Whoever waits for a batch is told, and whoever waits for a cut."""
        if not self._closed.is_set():
            return
        if self._moments.is_due:
            self._cut_all()
        gone, self._queue = self._queue, []
        for ticket in gone:
            ticket.fail(BatchFailed(f"{ticket.shard_id}: this process is ending"))

    def _cut_all(self) -> None:
        """What all shards have becomes batches of one job."""
        for work, most_bytes, since in self._moments.cut(MAX_JOB_BYTES):
            batch, future = work.cut(most_bytes)
            self._enqueue(Ticket(batch, work.is_wanted, future, since, work))

    def _last_open(self, shard: ShardKey) -> Ticket | None:
        """The shard's last batch here that is not over; None = there is none."""
        running = (ticket for run in reversed(self._running) for ticket in run.tickets)
        for ticket in (*reversed(self._queue), *running):
            if ticket.shard == shard and not ticket.future.done():
                return ticket
        return None

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _serve(self) -> None:
        """A runner's life."""
        while self._serve_next():
            pass  # and nothing of the last job is kept while it waits

    def _serve_next(self) -> bool:
        """Wait for a job and run it; False at the end."""
        if (run := self._next()) is None:
            return False
        try:
            run.run()
        except BaseException as error:  # noqa: BLE001 - a runner must outlive every job
            _log.exception("a job ended with an unexpected error")
            for ticket in run.tickets:
                ticket.fail(BatchFailed(f"{ticket.shard_id}: {error!r}"))
        finally:
            with self._changed:
                self._running.remove(run)
                self._changed.notify_all()
        return True

    def _next(self) -> JobRun | HostRun | None:
        """Wait for the next job; None at the end."""
        with self._changed:
            while not self._closed.is_set():
                until_cut = self._until_cut()
                if until_cut is not None and until_cut <= 0:
                    self._cut_all()
                ready = self._ready()
                if not ready:
                    self._changed.wait(until_cut)
                    continue
                patience = self._window_s - (self._clock.monotonic() - ready[0].submitted_at)
                if patience > 0:
                    self._changed.wait(patience)
                    continue
                run = self._new_run(ready)
                self._queue = [ticket for ticket in self._queue if ticket not in ready]
                self._running.append(run)
                return run
        return None

    def _until_cut(self) -> float | None:
        """How long until all are cut, in s; None while nobody asks or a job is written."""
        if self._queue or any(not run.is_written for run in self._running):
            return None
        return self._moments.patience_s(self._clock.monotonic())

    def _ready(self) -> list[Ticket]:
        """The oldest batch of each shard that no job writes, as many as one job may hold."""
        writing = [run for run in self._running if not run.is_written]
        if len(writing) >= self._max_in_flight:
            return []
        busy = {ticket.shard for run in writing for ticket in run.tickets}
        names: set[str] = set()
        ready: list[Ticket] = []
        size = 0
        for ticket in self._queue:
            if ticket.shard in busy or ticket.batch.batch_id in names:
                continue
            size += ticket.payload_bytes
            if ready and (size > MAX_JOB_BYTES or not self._coalesces):
                break
            busy.add(ticket.shard)
            names.add(ticket.batch.batch_id)
            ready.append(ticket)
        return ready
