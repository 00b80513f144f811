"""What services know that keeps this worker from doing its job, for ``/readyz``.

A service reports a condition when it meets it and takes it back when it is over. It says so in the
log by itself; nothing is logged here.
"""

from __future__ import annotations

from mld.decide.readiness import Condition, Reason


class Conditions:
    """At most one condition per reason; one object per worker, handed to services."""

    def __init__(self) -> None:
        """Nothing is wrong yet."""
        self._current: dict[Reason, Condition] = {}

    def report(self, reason: Reason, message: str) -> None:
        """The worker is not ready from now on; replaces an earlier message of that reason.

        Args:
            reason: for programs.
            message: one sentence for people: what is wrong, where, and what to do.
        """
        self._current[reason] = Condition(reason, message)

    def clear(self, reason: Reason) -> None:
        """It is over; nothing if it was not reported."""
        self._current.pop(reason, None)

    def current(self) -> tuple[Condition, ...]:
        """What holds now, in the order in which it was first reported."""
        return tuple(self._current.values())
