"""The second half of a job: its commit, and what is left of it.

A commit that does not come back is given up, and may still happen. So it is not repeated here, its
shards end, and what it works on is left alone until its thread has ended: files that are half
removed could still be published. The shards' next start asks the sink how far it got, and
``Sink.commit_all`` says what keeps the two apart.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any

from kcl_mld.spark.calls import GivenUp, Overdue, call_within
from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.failures import describe
from kcl_mld.spark.ports import CancelsCommits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.jobs.submitted_batch import SubmittedBatch
    from kcl_mld.spark.model import ShardKey
    from kcl_mld.spark.ports import CommitOutcome, Sink

_log = logging.getLogger("mld.spark")

#: What a commit gets if the function and the write have used up the batch's time, in s.
LEAST_S = 10.0
#: For the removal of leftovers, in s.
DISCARD_S = 30.0
_CANCEL_S = 3.0
#: A lost shard's commit is cancelled so often, and with such a pause, in s.
_CANCELS, _CANCEL_AGAIN_S = 3, 1.0


class JobCommitter:
    """Commits what a job has staged; one instance a ``HostRun``."""

    def __init__(
        self, sink: Sink, config: SparkConfig, clock: Callable[[], float], name: str
    ) -> None:
        self._sink = sink
        self._timeout_s = config.batch_timeout_s
        self._clock = clock
        self._name = name
        self._going_on: list[Future[Any]] = []
        self._begun: tuple[Sequence[SubmittedBatch], threading.Event] | None = None

    def commit_all(
        self, staged: Any, submitted: Sequence[SubmittedBatch], deadline: float
    ) -> Mapping[ShardKey, CommitOutcome]:
        """Commit a job in one step, in what is left of its time, but at least ten seconds.

        Args:
            deadline: monotonic s at which the time of this try (``spark.batch.timeout``) is up.

        Raises:
            BatchFailed: time is up, and whether it is committed is not known.
            GivenUp: a shard was lost before it began.
            Exception: of the sink.
        """
        left_s = deadline - self._clock()
        seconds = max(left_s, min(LEAST_S, self._timeout_s))
        batches = [one.batch for one in submitted]
        is_over = threading.Event()
        self._begun = submitted, is_over
        try:
            if not all(one.fence() for one in submitted):
                raise GivenUp  # who lost a shard until now found nothing to cancel
            found: Mapping[ShardKey, CommitOutcome] = call_within(
                seconds,
                lambda: self._sink.commit_all(staged, batches),
                name=f"{self._name}-commit",
                interrupt=lambda: self._cancel(submitted),
                is_wanted=lambda: all(one.fence() for one in submitted),
            )
        except Overdue as late:
            if late.has_succeeded:
                done: Mapping[ShardKey, CommitOutcome] = late.call.result()
                return done
            self._going_on.append(late.call)
            raise BatchFailed(
                f"the commit did not end within {seconds:.3g} s (spark.batch.timeout is "
                f"{self._timeout_s:g} s); whether it happened is found when the shards begin again"
            ) from late
        finally:
            self._begun = None
            is_over.set()
        return found

    def cancel_if(self, is_lost: Callable[[SubmittedBatch], bool]) -> None:
        """Hasten the end of the commit that is under way, in a thread of its own.

        Until a database has ended it, it keeps the rows of the shards' marks locked.

        Args:
            is_lost: of one of the batches that are being committed.
        """
        begun = self._begun
        if begun is None or not isinstance(self._sink, CancelsCommits):
            return
        if not any(is_lost(one) for one in begun[0]):
            return
        name = f"{self._name}-cancel"
        threading.Thread(target=self._hasten, args=begun, name=name, daemon=True).start()

    def _hasten(self, submitted: Sequence[SubmittedBatch], is_over: threading.Event) -> None:
        """More than once: the statement may not have begun at the first try."""
        for _ in range(_CANCELS):
            if is_over.is_set():
                return
            self._cancel(submitted)
            is_over.wait(_CANCEL_AGAIN_S)

    def discard(self, staged: Any) -> None:
        """Remove what is left of a job, once no commit of it goes on; raises nothing."""
        going_on, self._going_on = self._going_on, []
        self._discard_after(staged, going_on)

    def remove(self, staged: Any) -> None:
        """Remove what a write has left that is not committed by anybody; raises nothing."""
        try:
            call_within(DISCARD_S, lambda: self._sink.discard(staged), name=f"{self._name}-discard")
        except Exception as error:  # noqa: BLE001 - what is left over does no harm
            _log.warning("the leftovers of a job could not be removed: %s", describe(error))

    def _discard_after(self, staged: Any, going_on: Sequence[Future[Any]]) -> None:
        if going_on:
            first, *others = going_on
            first.add_done_callback(lambda _: self._discard_after(staged, others))
        else:
            self.remove(staged)

    def _cancel(self, submitted: Sequence[SubmittedBatch]) -> None:
        sink = self._sink
        if isinstance(sink, CancelsCommits):
            with contextlib.suppress(Exception):  # it is a favor; the proof does not need it
                batches = [one.batch for one in submitted]
                call_within(_CANCEL_S, lambda: sink.cancel(batches), name="cancel")
