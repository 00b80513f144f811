"""Batches of all shards through few Spark jobs, one at a time.

A job's fixed price dominates small batches, so all shards are cut together when a job may begin
(``kcl_mld.spark.jobs.cut_schedule``): two at a time would only divide the company, and a function may
name things in the session.

Once the shards hold as much as the job that runs, the next one is cut and its rows are made ready
meanwhile. Its function is called when that job is over.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.failures import describe
from kcl_mld.spark.jobs.cut_schedule import CutSchedule, DeliveryBudget
from kcl_mld.spark.jobs.host_run import HostRun
from kcl_mld.spark.jobs.part_size import PartSize
from kcl_mld.spark.jobs.rescue import Rescue
from kcl_mld.spark.jobs.submitted_batch import Progress, SubmittedBatch
from kcl_mld.spark.ports import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.jobs.cut_schedule import BatchSource
    from kcl_mld.spark.model import DeadLetter, ShardKey
    from kcl_mld.spark.plans.one_call import FunctionCaller
    from kcl_mld.spark.ports import Sessions, Sink

_log = logging.getLogger("mld.spark")
#: Payload of one job, in bytes: a job of 64 full batches would not fit into a heap of 1 GB.
MAX_JOB_BYTES = 64 * 1024 * 1024
#: Payload from which on a job is made ready while another one runs, in bytes: to make less ready
#: takes some milliseconds.
LEAST_AHEAD_BYTES = 1024 * 1024
#: What the shards of a host may hold, in bytes: one job runs, one is made ready, one is collected.
HELD_BYTES = 3 * MAX_JOB_BYTES
#: One runs, the next one is made ready.
_MOST_JOBS = 2


class Engine:
    """Where batches are handed in; safe to call from any thread.

    Args:
        sink: where the rows go; already prepared.
        keep_letters: see :class:`Rescue`; None = a record of which the function fails fails its batch.
        pause_s: before the second attempt at a batch, in s; doubles with each further one.

    Shards ``join`` and ``ask``.
    """

    def __init__(
        self,
        sessions: Sessions,
        sink: Sink,
        caller: FunctionCaller,
        config: SparkConfig,
        *,
        clock: Callable[[], float] | None = None,
        keep_letters: Callable[[Sequence[DeadLetter]], None] | None = None,
        pause_s: float = 0.5,
    ) -> None:
        self._clock = clock or time.monotonic
        self._window_s = config.coalesce_window_s
        self._schedule: CutSchedule[BatchSource] = CutSchedule(self._window_s)
        self._delivery_budget: DeliveryBudget[BatchSource] = DeliveryBudget(HELD_BYTES)
        self._sessions = sessions
        self._changed = threading.Condition()
        self._queue: list[SubmittedBatch] = []
        self._runs: list[HostRun] = []
        self._runners: list[threading.Thread] = []
        self._closed = threading.Event()
        progress = Progress(self._clock, lambda: sink.counts() if isinstance(sink, Counts) else {})
        part_size = PartSize()
        rescue = None
        if keep_letters is not None:
            rescue = Rescue(caller, keep_letters, self._clock, config.batch_timeout_s)
        self._new_run: Callable[[list[SubmittedBatch]], HostRun] = lambda submitted: HostRun(
            submitted,
            sessions=sessions,
            sink=sink,
            caller=caller,
            config=config,
            clock=self._clock,
            progress=progress,
            stop=self._closed,
            pause_s=pause_s,
            part_size=part_size,
            rescue=rescue,
            after=self._runs[-1].is_over if self._runs else None,
        )

    def join(self, work: BatchSource) -> None:
        """Cut the shard's buffer with those of the others, until ``abandon`` names it as a hold."""
        with self._changed:
            self._schedule.join(work)

    def ask(self, work: BatchSource) -> None:
        """A batch of a shard that has joined is due: cut all as soon as a job may begin."""
        with self._changed:
            if work.has_asked:  # or another shard's moment was faster
                self._schedule.ask(work, self._clock())
                self._fail_if_closed()
                self._start_runner()
                self._changed.notify_all()

    def admit(self, work: BatchSource, expected_bytes: int) -> bool:
        """Whether a shard that has joined may get more records; if not, a job is to make room.

        A shard that is refused asks again when it is woken, or ``cut_schedule.GRANT_S`` later.

        Args:
            expected_bytes: what its next delivery will hold.
        """
        with self._changed:
            held = self._schedule.held_bytes
            now = self._clock()
            is_admitted = self._closed.is_set() or self._delivery_budget.admit(
                work, expected_bytes, held, now
            )
            sources = [] if is_admitted else self._schedule.sources
        if is_admitted:
            self._wake_first()
        elif not any(source.has_asked for source in sources):
            any(source.ask() for source in sources)
        return is_admitted

    def arrived(self, work: BatchSource) -> None:
        """The delivery that was expected is there, or something else came in its place."""
        with self._changed:
            self._delivery_budget.arrived(work)
        self._wake_first()

    def _wake_first(self) -> None:
        """Have the first shard that waits for a delivery ask again."""
        with self._changed:
            first = self._delivery_budget.first
        if first is not None:
            first.wake()

    def abandon(self, shard: ShardKey, hold: object = None) -> None:
        """Forget these batches of a shard, and end a job that has them.

        A job that serves other shards too begins again without this one. A commit that has begun
        is cancelled, if the sink can: the next owner of the shard may have to wait for it.

        Args:
            hold: as it was given to ``submit``: this may come late, when the shard's next hold has
                batches here; None = the batches of every hold.
        """
        with self._changed:
            for work in self._schedule.leave(shard, hold):
                self._delivery_budget.leave(work)
            gone = [one for one in self._queue if one.is_of(shard, hold)]
            self._queue = [one for one in self._queue if one not in gone]
            runs = [(run, run.ends_with(shard, hold)) for run in self._runs]
        self._wake_first()
        for one in gone:
            one.fail(BatchFailed(f"{shard.shard_id}: given up before it was written"))
        for run, is_to_end in runs:
            if run.drop(shard, hold):
                continue
            run.cancel_commit(shard, hold)
            if is_to_end:
                self._sessions.interrupt(run.tag)

    def close(self) -> None:
        """Take no more, forget what waits, and interrupt what runs."""
        with self._changed:
            self._closed.set()
            self._fail_if_closed()
            runs = list(self._runs)
            self._changed.notify_all()
        for run in runs:
            self._sessions.interrupt(run.tag)

    def _start_runner(self) -> None:
        if not self._closed.is_set() and not self._runners:
            for _ in range(_MOST_JOBS):
                runner = threading.Thread(target=self._serve, name="spark-jobs", daemon=True)
                self._runners.append(runner)
                runner.start()

    def _fail_if_closed(self) -> None:
        """Fail what waits for a job, and what waits for a cut."""
        if not self._closed.is_set():
            return
        if self._schedule.is_due:
            self._cut_all()
        gone, self._queue = self._queue, []
        for one in gone:
            one.fail(BatchFailed(f"{one.shard_id}: this process is ending"))

    def _cut_all(self) -> None:
        """What all shards have becomes batches of one job."""
        for work, most_bytes, since in self._schedule.cut(MAX_JOB_BYTES):
            batch, future = work.cut(most_bytes)
            self._queue.append(SubmittedBatch(batch, work.is_wanted, future, since, work))

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
            for one in run.submitted:
                one.fail(BatchFailed(f"{one.shard_id}: {type(error).__name__}: {describe(error)}"))
        finally:
            with self._changed:
                self._runs.remove(run)
                self._changed.notify_all()
            run.is_over.set()
            self._wake_first()
        return True

    def _next(self) -> HostRun | None:
        """Wait for the next job; None at the end."""
        with self._changed:
            while not self._closed.is_set():
                if not self._may_begin():
                    self._changed.wait()
                    continue
                until_cut = self._until_cut()
                if until_cut is not None and until_cut <= 0:
                    self._cut_all()
                ready = self._ready()
                if not ready:
                    self._changed.wait(until_cut)
                    continue
                patience = self._window_s - (self._clock() - ready[0].submitted_at)
                if patience > 0:
                    self._changed.wait(patience)
                    continue
                run = self._new_run(ready)
                self._queue = [one for one in self._queue if one not in ready]
                self._runs.append(run)
                return run
        return None

    def _may_begin(self) -> bool:
        """True if nothing runs, or a job may be made ready that is as large as what runs.

        A smaller one would only divide what comes during the job that runs. It is as large by its
        bytes, or with a full batch for each one of that job: sizes of records differ.
        """
        if not self._runs:
            return True
        if len(self._runs) == _MOST_JOBS:
            return False
        runs, offers = self._runs[-1], self._schedule.offers
        offered_bytes = sum(offer.most_bytes for offer in offers)
        if offered_bytes < LEAST_AHEAD_BYTES:
            return False
        full = sum(offer.is_full for offer in offers)
        return offered_bytes >= runs.payload_bytes or full >= len(runs.submitted)

    def _until_cut(self) -> float | None:
        """How long until all are cut, in s; None while no shard asks or batches wait."""
        return None if self._queue else self._schedule.patience_s(self._clock())

    def _ready(self) -> list[SubmittedBatch]:
        """The oldest batch of each shard, as many as one job may hold."""
        shards: set[ShardKey] = set()
        ready: list[SubmittedBatch] = []
        size = 0
        for one in self._queue:
            if one.shard in shards:
                continue
            size += one.payload_bytes
            if ready and size > MAX_JOB_BYTES:
                break
            shards.add(one.shard)
            ready.append(one)
        return ready
