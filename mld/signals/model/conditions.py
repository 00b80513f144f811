"""Conditions that prevent a worker from doing its job; ``/readyz`` shows them.

A service reports a condition when it occurs, clears it when it is over, and logs both itself. Code
that runs repeatedly reports to a :class:`kcl_mld.signals.failing_condition.FailingCondition`, which
does all of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a worker is not ready; shown as ``reason`` by ``/readyz``."""

    NOT_RUNNING = "not_running"  #: it starts, stops or has stopped
    STREAM_DELETED = "stream_deleted"
    TABLE_DELETED = "table_deleted"
    TABLE_SILENT = "table_silent"  #: no answer of the lease table for long
    UNREADABLE_ROWS = "unreadable_rows"
    FOREIGN_ROWS = "foreign_rows"  #: of another stream or stream mode, or on their way
    LEASE_WRITES_FAIL = "lease_writes_fail"  #: leases can't be renewed or taken
    START_FAILS = "start_fails"  #: the last attempt to start
    NO_CONSUMER = "no_consumer"  #: of enhanced fan-out
    LOCK_FAILS = "leader_lock_fails"  #: of a 3.x fleet
    DOUBLED_ID = "doubled_id"  #: another living process has this worker's id
    METRICS_FAIL = "worker_metrics_fail"  #: of this worker, for the leader of a 3.x fleet
    ASSIGNING_FAILS = "assigning_fails"  #: of this worker, which leads
    ALL_SHARDS_FAIL = "all_shards_fail"
    TOO_OLD = "too_old"  #: a shard exceeds the age that was asked for


@dataclass(frozen=True, slots=True)
class Condition:
    """A reason and its message.

    Attributes:
        message: one sentence: what is wrong, where, and what to do.
    """

    reason: Reason
    message: str


class Conditions:
    """At most one condition per reason and subject; one object per worker, handed to services."""

    def __init__(self) -> None:
        self._current: dict[tuple[Reason, str], Condition] = {}

    def report(self, reason: Reason, message: str, subject: str = "") -> None:
        """The worker is not ready from now on; replaces an earlier message of reason and subject.

        Args:
            message: one sentence for people: what is wrong, where, and what to do.
            subject: which one of several has it, e.g. a stream.
        """
        self._current[reason, subject] = Condition(reason, message)

    def clear(self, reason: Reason, subject: str = "") -> None:
        """The condition is over; does nothing if it was not reported."""
        self._current.pop((reason, subject), None)

    def current(self) -> tuple[Condition, ...]:
        """Current conditions, in the order in which they were first reported."""
        return tuple(self._current.values())
