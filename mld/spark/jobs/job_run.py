"""One job from plan to commits: attempts, and who is to blame.

What fails for all is repeated for all (a lost session, a server that is away). Anything else is
narrowed down: the batches are run one by one, so that only the guilty shard fails. A write is only
ever repeated as a whole, staged anew: whether it has happened already is for ``Sink.commit``.
"""

from __future__ import annotations

import itertools
import logging
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mld.spark.calls import GivenUp
from mld.spark.errors import BatchFailed, Fenced
from mld.spark.failures import describe
from mld.spark.jobs.committing import JobCommitter
from mld.spark.jobs.verdict import as_failure, is_everybodys, verdict
from mld.spark.jobs.writing import Blamed, JobWriter, MergeRefused
from mld.spark.plans.planner import Planner, RunAlone
from mld.spark.ports import CommitOutcome

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from mld.spark.config import SparkConfig
    from mld.spark.jobs.progress import Progress
    from mld.spark.jobs.tickets import Ticket
    from mld.spark.model import ShardKey
    from mld.spark.ports import MonotonicClock, Sessions, Sink

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)
_MAX_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class _Group:
    """Batches that are tried together.

    Attributes:
        tickets: at least one.
        refused: how many they were when Spark refused their merged plan; 0 = it did not.
    """

    tickets: list[Ticket]
    refused: int = 0


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
        on_written: called, if the sink stages ahead, once all is written and only commits are left.
    """

    def __init__(  # noqa: PLR0913 - all of one engine
        self,
        tickets: Sequence[Ticket],
        *,
        sessions: Sessions,
        sink: Sink,
        planner: Planner,
        config: SparkConfig,
        clock: MonotonicClock,
        progress: Progress,
        stop: threading.Event,
        pause_s: float,
        on_written: Callable[[], None],
    ) -> None:
        self.tickets = tuple(tickets)
        self.is_written = False
        self.tag = f"kcl-mld-job-{next(_numbers)}"
        self._committer = JobCommitter(sink, config, clock, self.tag)
        late = self._committer.remove
        self._writer = JobWriter(sessions, sink, planner, config, clock, self.tag, late)
        self._planner = planner
        self._attempts = config.attempts
        self._clock = clock
        self._progress = progress
        self._stop = stop
        self._pause_s = pause_s
        self._commits_together = sink.commits_together
        self._stages_ahead = sink.stages_ahead and config.stages_ahead
        self._on_written = on_written

    def ends_with(self, shard: ShardKey, hold: object) -> bool:
        """True if of the batches in it that may still be committed all are that hold's, if any."""
        is_open = [ticket for ticket in self.tickets if not ticket.future.done()]
        others = [ticket for ticket in is_open if not ticket.is_of(shard, hold)]
        return len(others) < len(is_open) and not any(ticket.fence() for ticket in others)

    def cancel_commit(self, shard: ShardKey, hold: object) -> None:
        """Hasten the end of a commit of a shard that is lost; returns at once."""
        self._committer.cancel_if(lambda ticket: ticket.is_of(shard, hold) and not ticket.fence())

    def run(self) -> None:
        """Answer every ticket; raises nothing."""
        groups = [_Group(list(self.tickets))]
        while groups:
            last = groups.pop()
            group = _Group([each for each in last.tickets if each.is_wanted()], last.refused)
            if not group.tickets:
                continue
            if self._stop.is_set():
                self._fail(group.tickets, BatchFailed("this process is ending"))
                continue
            groups.extend(reversed(self._attempt(group, is_last=not groups)))
            self._progress.job_ended()

    def _attempt(self, group: _Group, *, is_last: bool) -> list[_Group]:
        """Plan, write and commit; what has to be tried again."""
        self.is_written = False
        tickets = group.tickets
        try:
            staged, left = self._writer.write(tickets, may_merge=not group.refused)
        except Blamed as blamed:
            self._fail([blamed.ticket], blamed.error)
            return [_Group([each for each in tickets if each is not blamed.ticket], group.refused)]
        except RunAlone:
            return _one_by_one(tickets)
        except MergeRefused as refusal:
            _log.info("Spark refuses merged plans; they are united this time: %s", refusal)
            return [_Group(tickets, refused=len(tickets))]
        except Exception as error:  # noqa: BLE001 - judged, and told to whom it concerns
            return self._after_failure(group, error)
        if group.refused and len(left) == group.refused:
            self._planner.stop_merging()  # the very same batches: it was the merging
        if is_last and self._stages_ahead:
            self.is_written = True
            self._on_written()
        return self._commit_all(staged, left)

    def _commit_all(self, staged: Any, tickets: Sequence[Ticket]) -> list[_Group]:
        """Commit each; those that may be tried again are written together, after one pause."""
        failed: dict[Ticket, Exception] = {}
        waiting = list(tickets)
        try:
            if self._commits_together and tickets:
                return self._commit_together(staged, tickets)
            while waiting:
                ticket = _take_next(waiting, self._clock)
                if (error := self._commit(staged, ticket)) is not None:
                    failed[ticket] = error
        finally:
            if tickets:
                self._committer.discard(staged)
        return self._once_more(_Group(list(failed)), failed) if failed else []

    def _commit_together(self, staged: Any, tickets: Sequence[Ticket]) -> list[_Group]:
        """All in one step; what was staged is of no use if one of them is not wanted any more."""
        _wait_for_all(tickets, self._clock)
        wanted = [ticket for ticket in tickets if ticket.is_wanted()]
        if len(wanted) < len(tickets):
            return [_Group(wanted)]
        try:
            outcomes = self._committer.commit_all(staged, tickets)
        except GivenUp:
            return [_Group(wanted)]
        except Exception as error:  # noqa: BLE001 - judged; files are refused when they are written
            if (final := verdict(tickets[0], error)) is None:
                return self._once_more(_Group(wanted), dict.fromkeys(wanted, error))
            self._fail(wanted, final)
            return []
        again = []
        for ticket in tickets:
            match outcomes[ticket.shard]:
                case CommitOutcome.STANDS:
                    self._committed(ticket)
                case CommitOutcome.LOST:
                    self._fail([ticket], Fenced(f"{ticket.shard_id}: another writer has moved it"))
                case CommitOutcome.AGAIN:
                    again.append(ticket)
        return [_Group(again)]

    def _committed(self, ticket: Ticket) -> None:
        latency_s = self._clock.monotonic() - ticket.submitted_at
        self._progress.committed(ticket.batch, latency_s)
        ticket.future.set_result(None)

    def _commit(self, staged: Any, ticket: Ticket) -> Exception | None:
        """Commit one; why it has to be tried again, None if it is answered."""
        if not ticket.is_wanted():
            return None
        try:
            self._committer.commit(staged, ticket)
        except Exception as error:  # noqa: BLE001 - judged
            if not ticket.is_wanted():
                return None
            final = None if is_everybodys(error) else verdict(ticket, error)
            if final is None:
                return error
            self._fail([ticket], final)
            return None
        self._committed(ticket)
        return None

    def _after_failure(self, group: _Group, error: Exception) -> list[_Group]:
        """Who tries again, in which company; whose shard is lost, not at all."""
        tickets = [each for each in group.tickets if each.is_wanted()]
        if not tickets:
            return []
        among, group = len(group.tickets), _Group(tickets, group.refused)
        if isinstance(error, GivenUp) and len(tickets) < among:
            return [group]  # a neighbor's lease; it has an end, because each time they are fewer
        if is_everybodys(error):
            return self._once_more(group, dict.fromkeys(tickets, error))
        if among > 1:
            _log.warning(
                "a job for %d shards failed; they are run one by one: %s",
                len(tickets),
                describe(error),
            )
            return _one_by_one(tickets)
        if (final := verdict(tickets[0], error)) is not None:
            self._fail(tickets, final)
            return []
        return self._once_more(group, {tickets[0]: error})

    def _once_more(self, group: _Group, errors: Mapping[Ticket, Exception]) -> list[_Group]:
        """Those of a group that have a try left, after a pause; each ticket has its error."""
        for ticket in group.tickets:
            ticket.attempts += 1
        spent = [ticket for ticket in group.tickets if ticket.attempts >= self._attempts]
        for ticket in spent:
            error = errors[ticket]
            text = f"gave up after {ticket.attempts} attempts: {describe(error)}"
            self._fail([ticket], as_failure(ticket, text, error))
        left = [each for each in group.tickets if each not in spent and each.is_wanted()]
        if not left:
            return []
        pause_s = min(_MAX_PAUSE_S, self._pause_s * 2 ** (left[0].attempts - 1))
        _log.warning(
            "a job for %d shards failed and is repeated in %.3g s: %s",
            len(left),
            pause_s,
            describe(errors[left[0]]),
        )
        self._stop.wait(pause_s)
        return [_Group(left, group.refused)]

    def _fail(self, tickets: Sequence[Ticket], error: BaseException) -> None:
        for ticket in tickets:
            _log.error("%s: batch %s failed: %s", ticket.shard_id, ticket.batch.batch_id, error)
            ticket.fail(error)


def _take_next(waiting: list[Ticket], clock: MonotonicClock) -> Ticket:
    """The first that may be committed: a shard whose last batch takes its time holds up no other.

    Jobs take the batches of a shard in their order, so two of them never wait for each other. What
    is waited here was somebody else's time.
    """
    while True:
        for ticket in waiting:
            if ticket.may_commit:
                waiting.remove(ticket)
                return ticket
        began = clock.monotonic()
        wait([each.before for each in waiting if each.before], return_when=FIRST_COMPLETED)
        for ticket in waiting:
            ticket.deadline += clock.monotonic() - began


def _wait_for_all(tickets: Sequence[Ticket], clock: MonotonicClock) -> None:
    """Until the batch before each of them is over; what is waited was somebody else's time."""
    began = clock.monotonic()
    wait([ticket.before for ticket in tickets if ticket.before is not None])
    for ticket in tickets:
        ticket.deadline += clock.monotonic() - began


def _one_by_one(tickets: Sequence[Ticket]) -> list[_Group]:
    return [_Group([ticket]) for ticket in tickets]
