"""What services know that keeps this worker from doing its job, for ``/readyz``.

A service reports a condition when it meets it and takes it back when it is over. It says so in the
log by itself; nothing is logged here.
"""

from __future__ import annotations

from mld.decide.readiness import Condition, Reason


class Conditions:
    """At most one condition per reason and subject; one object per worker, handed to services."""

    def __init__(self) -> None:
        """Nothing is wrong yet."""
        self._current: dict[tuple[Reason, str], Condition] = {}

    def report(self, reason: Reason, message: str, subject: str = "") -> None:
        """The worker is not ready from now on; replaces an earlier message of reason and subject.

        Args:
            reason: for programs.
            message: one sentence for people: what is wrong, where, and what to do.
            subject: which one of several has it, e.g. a stream.
        """
        self._current[reason, subject] = Condition(reason, message)

    def clear(self, reason: Reason, subject: str = "") -> None:
        """It is over; nothing if it was not reported."""
        self._current.pop((reason, subject), None)

    def current(self) -> tuple[Condition, ...]:
        """What holds now, in the order in which it was first reported."""
        return tuple(self._current.values())
