"""A batch of all shards from the call of the function to the commit: as a whole, or not at all.

What was written has the rows of all shards, and one commit makes it visible. So no shard is to blame
alone, and nothing is narrowed down: a batch has one budget of tries, and what would fail again is
not tried again. If a shard is lost before the commit, nothing is committed, and the rows of the
others are written again, without its rows. That is no try: each time there are fewer shards.
"""

from __future__ import annotations

import itertools
import logging
import threading
from typing import TYPE_CHECKING, Any

from kcl_mld.spark.calls import GivenUp, JobCalls, Overdue, call_within, raise_if_abandoned
from kcl_mld.spark.errors import (
    BatchFailed,
    Fenced,
    RecordRefused,
    ResultTooLarge,
    SinkUnavailable,
    SparkChildError,
    SparkUnreachable,
)
from kcl_mld.spark.failures import (
    describe,
    is_deterministic,
    is_server_gone,
    is_session_lost,
    is_worker_gone,
)
from kcl_mld.spark.jobs.committing import JobCommitter
from kcl_mld.spark.jobs.rescue import MOST_LETTERS, is_of_rows, without
from kcl_mld.spark.jobs.submitted_batch import first_records
from kcl_mld.spark.model import MicroBatch
from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.rows.decode import bad_record_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.jobs.part_size import PartSize
    from kcl_mld.spark.jobs.rescue import Rescue
    from kcl_mld.spark.jobs.submitted_batch import Progress, SubmittedBatch
    from kcl_mld.spark.model import DeadLetter, ShardKey
    from kcl_mld.spark.plans.one_call import FunctionCaller, Packed
    from kcl_mld.spark.ports import Sessions, Sink

_log = logging.getLogger("mld.spark")
_numbers = itertools.count(1)
_MAX_PAUSE_S = 10.0


class HostRun:
    """One batch of different shards.

    Args:
        submitted: at least one, each of another shard.
        stop: set when the process ends.
        pause_s: before the second try, in s; doubles.
        part_size: of all jobs of the process.
        rescue: sets records aside of which a row-wise function fails; None = they fail the batch.
        after: set when the job before is over; None = there is none.

    Attributes:
        submitted: as given.
        tag: carried by Spark's operations.
        is_over: set by who runs it, once it has ended.
    """

    def __init__(  # noqa: PLR0913 - all of one engine
        self,
        submitted: Sequence[SubmittedBatch],
        *,
        sessions: Sessions,
        sink: Sink,
        caller: FunctionCaller,
        config: SparkConfig,
        clock: Callable[[], float],
        progress: Progress,
        stop: threading.Event,
        pause_s: float,
        part_size: PartSize,
        rescue: Rescue | None = None,
        after: threading.Event | None = None,
    ) -> None:
        self.submitted = tuple(submitted)
        self.tag = f"kcl-mld-batch-{next(_numbers)}"
        self._calls = JobCalls(sessions, self.tag)
        self._committer = JobCommitter(sink, config, clock, self.tag)
        self._sink = sink
        self._caller = caller
        self._timeout_s = config.batch_timeout_s
        self._tries = config.attempts
        self._clock = clock
        self._progress = progress
        self._stop = stop
        self._pause_s = pause_s
        self._rescue = rescue
        self._letters: list[DeadLetter] = []
        self._part_size = part_size
        self._after = after
        self.is_over = threading.Event()
        self._lock = threading.Lock()
        self._has_begun = False

    @property
    def payload_bytes(self) -> int:
        """Of all its records."""
        return sum(each.payload_bytes for each in self.submitted)

    def ends_with(self, shard: ShardKey, hold: object) -> bool:
        """True if that hold has a part in it that is not over: without it nothing is committed."""
        return any(each.is_of(shard, hold) and not each.future.done() for each in self.submitted)

    def cancel_commit(self, shard: ShardKey, hold: object) -> None:
        """Hasten the end of a commit with rows of a shard that is lost; returns at once."""
        self._committer.cancel_if(lambda one: one.is_of(shard, hold) and not one.fence())

    def drop(self, shard: ShardKey, hold: object) -> bool:
        """Answer for a shard that is lost while this waits for its turn; False if it has begun."""
        with self._lock:
            if self._has_begun:
                return False
        for one in self.submitted:
            if one.is_of(shard, hold):
                one.is_wanted()
        return True

    def run(self) -> None:
        """Answer every batch, once the job before is over; raises nothing."""
        whole = MicroBatch(tuple(each.batch for each in self.submitted))
        packed = None
        try:
            if self._after is not None:
                most = self._part_size.records
                if most is None or whole.count <= most:  # else it will be divided
                    packed = self._pack(whole)
                self._after.wait()
            with self._lock:
                self._has_begun = True
            self._run(packed)
        finally:
            self._caller.release(whole)

    def _pack(self, whole: MicroBatch) -> Packed | None:
        """Make the rows ready, while the job before is at Spark."""
        try:
            packed: Packed | None = call_within(
                self._timeout_s,
                lambda: self._caller.pack(whole),
                name=f"{self.tag}-pack",
                late=lambda _: self._caller.release(whole),
            )
        except Exception as error:  # noqa: BLE001 - the try meets it again, and judges it
            _log.info("%s: its rows can't be made ready ahead: %s", whole, describe(error))
            return None
        return packed

    def _run(self, packed: Packed | None) -> None:
        """Until each batch is answered: all at once, or part by part if the result is too large."""
        tried = 0
        while group := self._group():
            whole = MicroBatch(tuple(each.batch for each in group))
            if self._stop.is_set():
                self._fail(group, whole, BatchFailed("this process is ending"))
                continue
            try:
                ready, packed = packed, None  # let go of with the try
                self._try(group, whole, ready)
                self._part_size.went_well(whole.count)
                tried = 0
            except ResultTooLarge as error:
                if (one := self._halve(whole, error)) is not None:
                    self._fail(group, whole, one)
                    tried = 0
            except Exception as error:  # noqa: BLE001 - judged, and reported to every batch
                if not all(each.is_wanted() for each in group):
                    _log.info("%s: a shard was lost before the commit; the others go on", whole)
                    continue
                is_last = tried + 1 >= self._tries
                if (found := self._set_aside(group, whole, error, is_last=is_last)) is None:
                    continue
                error = found
                tried += 1
                if isinstance(error, Overdue):
                    text = f"{whole} was not written within spark.batch.timeout"
                    error = BatchFailed(f"{text} ({self._timeout_s:g} s)")
                if (final := _verdict(whole, error, self._tries - tried)) is not None:
                    self._fail(group, whole, final)
                    tried = 0
                else:
                    self._pause(whole, error, tried)
            self._progress.job_ended()

    def _halve(self, whole: MicroBatch, error: ResultTooLarge) -> BatchFailed | None:
        """Take half as many records from now on; what ends the batch if there is but one."""
        bound = f"spark.sink.maxResultBytes ({error.most_bytes} bytes)"
        if whole.count <= 1:
            rows = [f"the record of {p.shard.shard_id} at {p.to}" for p in whole.parts if p.rows]
            what = "".join(rows) or "no record at all"
            return BatchFailed(
                f"{whole}: what the function returns for {what} is more than {bound}: raise it "
                f"and spark.driver.memory, of which it takes a quarter at most, or return less"
            )
        if self._part_size.too_large(whole.count):
            _log.warning(
                "%s: the function returns more than %s, so it is called for halves of the batch: "
                "lower spark.batch.maxRecords or spark.batch.maxBytes, or raise that",
                whole,
                bound,
            )
        return None

    def _group(self) -> list[SubmittedBatch]:
        """What the next try is for; none: all are answered."""
        group = [each for each in self.submitted if each.is_wanted()]
        most = self._part_size.records
        return group if most is None else first_records(group, most)

    def _set_aside(
        self, group: Sequence[SubmittedBatch], whole: MicroBatch, error: Exception, *, is_last: bool
    ) -> Exception | None:
        """Take the records out that fail alone, if the function is row-wise.

        Args:
            is_last: no try is left, so that a Python worker that is gone each time is looked into.

        Returns:
            what the batch is judged by; None = it goes on without those records, or without a shard
            that was lost meanwhile.
        """
        rescue = self._rescue
        if rescue is None or not (is_of_rows(error) or (is_last and is_worker_gone(error))):
            return error
        _log.warning("%s failed; its records are halved: %s", whole, describe(error))
        try:
            most = MOST_LETTERS - len(self._letters)
            session = self._calls.session()
            found = rescue.find(
                self._calls, session, whole, most, lambda: all(each.fence() for each in group)
            )
        except GivenUp:
            return None
        except Exception as another:  # noqa: BLE001 - judged by who called
            if self._stop.is_set():
                return None  # the search was interrupted, and says nothing of the records
            return another
        if not found:
            return SinkUnavailable(f"it failed once, and no record fails alone: {describe(error)}")
        self._letters += found
        for one in group:
            one.batch = without(one.batch, found)
        return None

    def _try(
        self, group: Sequence[SubmittedBatch], whole: MicroBatch, packed: Packed | None
    ) -> None:
        """Call, write and commit once.

        Raises:
            GivenUp: nothing was committed, because a shard is lost.
            BatchFailed: the commit goes on, and whether it will stand is not known.
            Exception: another try may follow: had a commit stood, that one would be fenced.
        """
        began = self._clock()
        session = self._calls.session()

        def write() -> Any:
            raise_if_abandoned()  # the session may have taken its time
            frame: Any = self._caller.call(session, whole, packed)
            raise_if_abandoned()
            self._caller.keep_bad_rows(session, whole)
            return self._sink.write(frame, whole.parts)

        try:
            staged = self._calls.within(
                self._timeout_s,
                session,
                write,
                is_wanted=lambda: all(each.fence() for each in group),
                late=self._committer.remove,
            )
        except Exception as error:
            self._calls.renew_if_lost(session, error)
            raise
        finally:
            self._caller.release(whole)
        written = self._clock()
        try:
            if not all(each.is_wanted() for each in group):
                raise GivenUp
            self._keep_letters(session, group)
            outcomes = self._committer.commit_all(staged, group, began + self._timeout_s)
        finally:
            self._committer.discard(staged)
            self._progress.spent(written - began, self._clock() - written)
        self._answer(group, outcomes)

    def _keep_letters(self, session: SparkSession, group: Sequence[SubmittedBatch]) -> None:
        """What was set aside is durable before the marks move over it."""
        shards = {each.shard for each in group}
        letters = [each for each in self._letters if each.shard in shards]
        if letters and (rescue := self._rescue) is not None:
            self._calls.within(
                self._timeout_s,
                session,
                lambda: rescue.keep(letters),
                is_wanted=lambda: all(each.fence() for each in group),
            )

    def _answer(
        self, group: Sequence[SubmittedBatch], outcomes: Mapping[ShardKey, CommitOutcome]
    ) -> None:
        """Tell those of which something is known.

        Raises:
            GivenUp: the others are to be written again, without those that are lost.
            SinkUnavailable: all are to be written again.
        """
        now = self._clock()
        for one in group:
            match outcomes[one.shard]:
                case CommitOutcome.STANDS:
                    self._progress.committed(one.batch, now - one.submitted_at)
                    one.answer()
                case CommitOutcome.LOST:
                    text = f"{one.shard_id}: another writer has moved the shard's mark"
                    one.fail(Fenced(f"{text}; this process has lost the shard"))
                case CommitOutcome.AGAIN:
                    pass
        if CommitOutcome.AGAIN in outcomes.values():
            raise SinkUnavailable("the table refused the commit")

    def _pause(self, whole: MicroBatch, error: Exception, tried: int) -> None:
        pause_s = min(_MAX_PAUSE_S, self._pause_s * 2 ** (tried - 1))
        _log.warning("%s failed and is repeated in %.3g s: %s", whole, pause_s, describe(error))
        self._stop.wait(pause_s)

    def _fail(
        self, group: Sequence[SubmittedBatch], whole: MicroBatch, error: BaseException
    ) -> None:
        _log.error("%s failed: %s", whole, error)
        for one in group:
            one.fail(error)


def _verdict(whole: MicroBatch, error: Exception, left: int) -> BaseException | None:
    """What ends a batch; None = it is tried again."""
    may_pass = isinstance(error, SparkUnreachable | SinkUnavailable)
    if isinstance(error, SparkChildError) and not may_pass:
        return error
    if (where := bad_record_in(str(error))) is not None:
        return RecordRefused(
            f"the record of {where} cannot be decoded, and spark.decoder.onError is fail"
        )
    passes = may_pass or is_session_lost(error) or is_server_gone(error)
    if not passes and is_deterministic(error):
        return _failure(f"{whole} would fail again: {describe(error)}", error)
    if left <= 0:
        return _failure(f"{whole}: gave up, all tries have failed: {describe(error)}", error)
    return None


def _failure(text: str, cause: BaseException) -> BatchFailed:
    failure = BatchFailed(text)
    failure.__cause__ = cause
    return failure
