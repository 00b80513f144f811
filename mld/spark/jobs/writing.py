"""The first half of a job: the functions' plans, made one, written by Spark; each in its time.

A batch's time (``spark.batch.timeout``) counts its own function, the write and its own commit.
Functions are called one after the other, and a slow one costs the others patience, not their time.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mld.spark.calls import Overdue
from mld.spark.errors import BatchFailed
from mld.spark.jobs.calling import JobCalls
from mld.spark.jobs.verdict import is_analysis
from mld.spark.plans.planner import FunctionFailed, Planned, Planner, RunAlone
from mld.spark.ports import Serial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.jobs.tickets import Ticket
    from mld.spark.ports import MonotonicClock, Sessions, Sink


class Blamed(Exception):
    """The planning of one batch failed."""

    def __init__(self, ticket: Ticket, error: BaseException) -> None:
        self.ticket = ticket
        self.error = error
        super().__init__(str(error))


class MergeRefused(Exception):
    """Spark refused a job in which plans were merged; that may be why, or a plan itself is."""


class JobWriter:
    """Plans and writes; one instance a ``JobRun``.

    Args:
        sessions: where a Spark session comes from.
        sink: where the rows go.
        planner: asks the user's function.
        config: the time-out.
        clock: measures it.
        tag: carried by Spark's operations, to interrupt them.
        discard: gets what a write has left that ended after it was given up.
    """

    def __init__(
        self,
        sessions: Sessions,
        sink: Sink,
        planner: Planner,
        config: SparkConfig,
        clock: MonotonicClock,
        tag: str,
        discard: Callable[[Any], None],
    ) -> None:
        self._calls = JobCalls(sessions, tag)
        self._sink = sink
        self._planner = planner
        self._timeout_s = config.batch_timeout_s
        self._clock = clock
        self._discard = discard

    def write(self, group: Sequence[Ticket], *, may_merge: bool) -> tuple[Any, list[Ticket]]:
        """Plan and write.

        Args:
            group: at least one.
            may_merge: False = unite the plans, whatever the planner says.

        Returns:
            what the sink staged, and the batches in it, which were wanted until then.

        Raises:
            Blamed: the planning of one batch failed; nothing was written.
            RunAlone: these batches have to be planned and written one by one.
            MergeRefused: Spark does not take the plan, in which some are merged.
            Overdue: the write took too long; no step of it begins any more.
            SparkUnreachable: there is no server, or one that gives no session.
            Exception: of Spark or the sink; see ``mld.spark.jobs.verdict``.
        """
        with self._planner.views.share() as together:
            if together:
                return self._stage(group, may_merge=may_merge)
        if len(group) > 1:
            raise RunAlone
        with self._alone(group[0]):
            return self._stage(group, may_merge=may_merge)

    @contextlib.contextmanager
    def _alone(self, ticket: Ticket) -> Iterator[None]:
        with self._planner.views.turn(ticket.batch.batch_id):
            try:
                yield
            except RunAlone as error:
                text = f"{ticket.shard_id}: the function makes a view of another batch's rows"
                raise Blamed(ticket, BatchFailed(text)) from error

    def _stage(self, group: Sequence[Ticket], *, may_merge: bool) -> tuple[Any, list[Ticket]]:
        session = self._calls.session()
        try:
            # For foreach the function is the write, and turns, sessions and neighbors take time.
            plans = [(each, self._plan(session, each)) for each in group if each.is_wanted()]
            with self._turn():
                # Functions and neighbors take their time, and for some sinks writing is committing.
                wanted = [(ticket, plan) for ticket, plan in plans if ticket.is_wanted()]
                if not wanted:
                    return None, []
                tickets = [ticket for ticket, _ in wanted]
                planned = [plan for _, plan in wanted]
                staged = self._write(session, tickets, planned, may_merge=may_merge)
                return staged, tickets
        except Exception as error:
            self._calls.renew_if_lost(session, error)
            raise
        finally:
            self._planner.release(ticket.batch for ticket in group)

    def _turn(self) -> contextlib.AbstractContextManager[object]:
        """Taken by this thread, which always comes back, and before the time of the write runs."""
        return self._sink.turn() if isinstance(self._sink, Serial) else contextlib.nullcontext()

    def _plan(self, session: SparkSession, ticket: Ticket) -> Planned:
        started = self._clock.monotonic()
        try:
            plan: Planned = self._calls.within(
                self._timeout_s, session, lambda: self._planner.plan(session, ticket.batch)
            )
        except FunctionFailed as error:
            raise Blamed(ticket, error) from error
        except Overdue as error:
            late = BatchFailed(
                f"{ticket.shard_id}: the function did not return for batch "
                f"{ticket.batch.batch_id} within spark.batch.timeout "
                f"({self._timeout_s:g} s)"
            )
            raise Blamed(ticket, late) from error
        ticket.spent_s = self._clock.monotonic() - started
        return plan

    def _write(
        self,
        session: SparkSession,
        tickets: Sequence[Ticket],
        planned: Sequence[Planned],
        *,
        may_merge: bool,
    ) -> Any:
        """The write goes on as long as the batch with the fastest function has time."""
        if not may_merge:
            planned = [replace(each, placeholder=None) for each in planned]
        now = self._clock.monotonic()
        for ticket in tickets:
            ticket.deadline = now + self._timeout_s - ticket.spent_s
        try:
            return self._calls.within(
                max(ticket.deadline for ticket in tickets) - now,
                session,
                lambda: self._run(session, planned),
                is_wanted=lambda: all(ticket.fence() for ticket in tickets),
                late=self._discard,
            )
        except Exception as error:
            if is_analysis(error) and sum(each.placeholder is not None for each in planned) > 1:
                raise MergeRefused(str(error)) from error
            raise

    def _run(self, session: SparkSession, planned: Sequence[Planned]) -> Any:
        batches = [each.batch for each in planned]
        self._planner.keep_bad_rows(session, batches)
        return self._sink.write(self._planner.unite(session, planned), batches)
