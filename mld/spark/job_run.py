"""One job from plan to commits: attempts, deadlines, and who is to blame.

What fails for all is repeated for all (a lost session, a server that is away). Anything else is
narrowed down: the batches are run one by one, so that only the guilty shard fails. A write is only
ever repeated as a whole, staged anew: whether it has happened already is for ``Sink.commit``.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mld.spark.calls import Overdue, call_within
from mld.spark.decode import bad_record_in
from mld.spark.errors import (
    BatchFailed,
    RecordRefused,
    SinkUnavailable,
    SparkChildError,
    SparkUnreachable,
)
from mld.spark.failures import describe, is_server_gone, is_session_lost
from mld.spark.job import FunctionFailed, Planned, Planner, RunAlone

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.model import Batch, ShardKey
    from mld.spark.ports import Clock, Sessions, Sink
    from mld.spark.progress import Progress

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)
_MAX_PAUSE_S = 10.0


@dataclass(eq=False, slots=True)
class Ticket:
    """A batch that waits for its commit."""

    batch: Batch
    fence: Callable[[], bool]
    future: Future[None]
    submitted_at: float
    attempts: int = 0
    payload_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.payload_bytes = sum(len(row.data) for row in self.batch.rows)

    @property
    def shard(self) -> ShardKey:
        """Whose batch it is."""
        return self.batch.shard

    @property
    def shard_id(self) -> str:
        """Of the shard, for messages."""
        return self.batch.shard.shard_id

    def fail(self, error: BaseException) -> None:
        """Answer with a failure, unless it is answered."""
        if not self.future.done():
            self.future.set_exception(error)

    def is_wanted(self) -> bool:
        """True while it may be written; a ticket behind its fence is answered here."""
        if self.future.done():
            return False
        if self.fence():
            return True
        self.fail(BatchFailed(f"{self.shard_id}: the shard is lost; nothing more is committed"))
        return False


class _Blamed(Exception):
    """The planning of one batch failed."""

    def __init__(self, ticket: Ticket, error: BaseException) -> None:
        self.ticket = ticket
        self.error = error
        super().__init__(str(error))


class JobRun:
    """Batches of different shards on their way through one job, or through several if it fails.

    Args:
        tickets: at least one.
        sessions: where a Spark session comes from.
        sink: where the rows go.
        planner: asks the user's function.
        config: attempts and time-out.
        clock: for deadlines and latencies.
        progress: is told what was committed.
        stop: set when the process ends.
        pause_s: before the second attempt, in s.
    """

    def __init__(  # noqa: PLR0913 - all of one engine
        self,
        tickets: Sequence[Ticket],
        *,
        sessions: Sessions,
        sink: Sink,
        planner: Planner,
        config: SparkConfig,
        clock: Clock,
        progress: Progress,
        stop: threading.Event,
        pause_s: float,
    ) -> None:
        self.tickets = tuple(tickets)
        self.tag = f"kcl-mld-job-{next(_numbers)}"
        self._sessions = sessions
        self._sink = sink
        self._planner = planner
        self._config = config
        self._clock = clock
        self._progress = progress
        self._stop = stop
        self._pause_s = pause_s

    def serves_only(self, shard: ShardKey) -> bool:
        """True if nobody else's batch is left in it."""
        return all(ticket.shard == shard or ticket.future.done() for ticket in self.tickets)

    def run(self) -> None:
        """Answer every ticket; raises nothing."""
        groups = [list(self.tickets)]
        while groups:
            group = [ticket for ticket in groups.pop() if ticket.is_wanted()]
            if not group:
                continue
            if self._stop.is_set():
                self._fail(group, BatchFailed("this process is ending"))
                continue
            try:
                again = self._attempt(group)
            except _Blamed as blamed:
                self._fail([blamed.ticket], blamed.error)
                again = [[ticket for ticket in group if ticket is not blamed.ticket]]
            except RunAlone:
                again = [[ticket] for ticket in group]
            except Exception as error:  # noqa: BLE001 - judged, and told to whom it concerns
                again = self._after_failure(group, error)
            groups.extend(reversed(again))
            self._progress.job_ended()

    def _attempt(self, group: list[Ticket]) -> list[list[Ticket]]:
        """Plan, write and commit; what has to be tried again."""
        with self._planner.views.share() as together:
            staged, left = self._stage(group) if together else (None, group)
        if not together:
            if len(group) > 1:
                return [[ticket] for ticket in group]
            with self._turn(group[0]):
                staged, left = self._stage(group)
        return self._commit_all(staged, left)

    def _commit_all(self, staged: Any, group: list[Ticket]) -> list[list[Ticket]]:
        again: list[list[Ticket]] = []
        try:
            for ticket in group:
                again.extend(self._commit(staged, ticket))
        finally:
            if group:
                self._discard(staged)
        return again

    @contextlib.contextmanager
    def _turn(self, ticket: Ticket) -> Iterator[None]:
        with self._planner.views.turn(ticket.batch.batch_id):
            try:
                yield
            except RunAlone as error:
                text = f"{ticket.shard_id}: the function makes a view of another batch's rows"
                raise _Blamed(ticket, BatchFailed(text)) from error

    def _stage(self, group: list[Ticket]) -> tuple[Any, list[Ticket]]:
        """Plan and write; what came of it, and the batches that are still wanted."""
        deadline = self._clock.monotonic() + self._config.batch_timeout_s
        session = self._sessions.get()
        try:
            plans = [(ticket, self._plan(session, ticket, deadline)) for ticket in group]
            # A function takes its time, and for some sinks the write is the commit.
            wanted = [(ticket, plan) for ticket, plan in plans if ticket.is_wanted()]
            if not wanted:
                return None, []
            planned = [plan for _, plan in wanted]
            staged = self._within(deadline, session, lambda: self._write(session, planned))
        except Exception as error:
            if is_session_lost(error) and (renew := getattr(self._sessions, "renew", None)):
                renew(session)
            raise
        finally:
            self._planner.release(ticket.batch for ticket in group)
        return staged, [ticket for ticket, _ in wanted]

    def _plan(self, session: SparkSession, ticket: Ticket, deadline: float) -> Planned:
        try:
            plan: Planned = self._within(
                deadline, session, lambda: self._planner.plan(session, ticket.batch)
            )
        except FunctionFailed as error:
            raise _Blamed(ticket, error) from error
        except Overdue as error:
            late = BatchFailed(
                f"{ticket.shard_id}: the function did not return for batch "
                f"{ticket.batch.batch_id} within spark.batch.timeout "
                f"({self._config.batch_timeout_s:g} s)"
            )
            raise _Blamed(ticket, late) from error
        return plan

    def _write(self, session: SparkSession, planned: Sequence[Planned]) -> Any:
        batches = [each.batch for each in planned]
        self._planner.keep_bad_rows(session, batches)
        return self._sink.write(self._planner.unite(session, planned), batches)

    def _within(self, deadline: float, session: SparkSession, work: Callable[[], Any]) -> Any:
        """Call in a thread whose Spark operations carry this job's tag."""

        def tagged() -> Any:
            session.addTag(self.tag)
            return work()

        return call_within(
            deadline - self._clock.monotonic(),
            tagged,
            name=self.tag,
            interrupt=lambda: self._sessions.interrupt(self.tag),
        )

    def _commit(self, staged: Any, ticket: Ticket) -> list[list[Ticket]]:
        if not ticket.is_wanted():
            return []
        try:
            self._sink.commit(staged, ticket.batch)
        except Exception as error:  # noqa: BLE001 - judged
            return self._after_failure([ticket], error)
        else:
            latency_s = self._clock.monotonic() - ticket.submitted_at
            self._progress.committed(ticket.batch, latency_s)
            ticket.future.set_result(None)
        return []

    def _discard(self, staged: Any) -> None:
        try:
            self._sink.discard(staged)
        except Exception as error:  # noqa: BLE001 - what is left over harms nobody
            _log.warning("the leftovers of a job stay behind: %s", describe(error))

    def _after_failure(self, group: list[Ticket], error: Exception) -> list[list[Ticket]]:
        """Who tries again, in which company."""
        is_everybodys = _is_everybodys(error)
        if len(group) > 1 and _is_analysis(error) and self._planner.stop_merging():
            return [group]
        if len(group) > 1 and not is_everybodys:
            _log.warning(
                "a job for %d shards failed; they are run one by one: %s",
                len(group),
                describe(error),
            )
            return [[ticket] for ticket in group]
        if not is_everybodys and (final := _verdict(group[0], error)) is not None:
            self._fail(group, final)
            return []
        return self._once_more(group, error)

    def _once_more(self, group: list[Ticket], error: Exception) -> list[list[Ticket]]:
        for ticket in group:
            ticket.attempts += 1
        spent = [ticket for ticket in group if ticket.attempts >= self._config.attempts]
        for ticket in spent:
            text = f"gave up after {ticket.attempts} attempts: {describe(error)}"
            self._fail([ticket], _as_failure(ticket, text, error))
        left = [ticket for ticket in group if ticket not in spent and ticket.is_wanted()]
        if not left:
            return []
        pause_s = min(_MAX_PAUSE_S, self._pause_s * 2 ** (left[0].attempts - 1))
        _log.warning(
            "a job for %d shards failed and is repeated in %.3g s: %s",
            len(left),
            pause_s,
            describe(error),
        )
        self._stop.wait(pause_s)
        return [left]

    def _fail(self, tickets: Sequence[Ticket], error: BaseException) -> None:
        for ticket in tickets:
            _log.error("%s: batch %s failed: %s", ticket.shard_id, ticket.batch.batch_id, error)
            ticket.fail(error)


def _is_everybodys(error: Exception) -> bool:
    """True if no batch is to blame."""
    return is_session_lost(error) or is_server_gone(error)


def _is_analysis(error: Exception) -> bool:
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - takes half a second

    return isinstance(error, AnalysisException)


def _verdict(ticket: Ticket, error: Exception) -> BaseException | None:
    """What ends a batch at once; None = it may be tried again."""
    if isinstance(error, SparkUnreachable | SinkUnavailable):
        return None
    if isinstance(error, SparkChildError):
        return error
    if isinstance(error, Overdue):
        text = "the job did not end within spark.batch.timeout"
        return _as_failure(ticket, text, error)
    if (where := bad_record_in(str(error))) is not None:
        return RecordRefused(
            f"the record of {where} cannot be decoded, and spark.decoder.onError is fail"
        )
    if _is_analysis(error):
        return _as_failure(ticket, f"Spark refuses the plan: {describe(error)}", error)
    return None


def _as_failure(ticket: Ticket, text: str, cause: Exception) -> BatchFailed:
    failure = BatchFailed(f"{ticket.shard_id}: batch {ticket.batch.batch_id}: {text}")
    failure.__cause__ = cause
    return failure
