"""What services know that keeps this worker from doing its job, for ``/readyz``.

A service reports a condition when it meets it and takes it back when it is over, and says so in the
log by itself. What is called again and again reports to a :class:`FailingCondition`, which does both:
of a 3.x fleet, leases are renewed and read on meanwhile, so without it nobody would see that no
lease finds a new owner any more. Of the leases themselves, nobody would see that none is held.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.signals.model.reasons import Condition, Reason
from mld.signals.rules.remedies import shown_error, table_remedy

if TYPE_CHECKING:
    from mld.kernel.ports import Clock

log = logging.getLogger("mld.signals")

#: The worker is not ready when a failure has lasted for so long: a retry and a heartbeat may fail.
LASTING_S = 30.0
#: It is said again as often.
REPEAT_S = 60.0


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
        """It is over; nothing if it was not reported."""
        self._current.pop((reason, subject), None)

    def current(self) -> tuple[Condition, ...]:
        """What holds now, in the order in which it was first reported."""
        return tuple(self._current.values())


class FailingCondition:
    """What keeps failing: said at once, then each minute, and on ``/readyz``.

    Args:
        subject: tells two of one reason apart.
        lasting_s: the worker is not ready when it has lasted for so long.
        calm_s: it is resolved only when it did not fail for so long, so that what comes and goes counts
            as lasting.
        is_logged: False where the caller logs it.
    """

    def __init__(
        self,
        reason: Reason,
        conditions: Conditions,
        clock: Clock,
        subject: str = "",
        *,
        lasting_s: float = LASTING_S,
        calm_s: float = 0.0,
        is_logged: bool = True,
    ) -> None:
        self._lasting_s = lasting_s
        self._calm_s = calm_s
        self._is_logged = is_logged
        self._reason = reason
        self._subject = subject
        self._conditions = conditions
        self._clock = clock
        self._since: float | None = None
        self._said_at = self._failed_at = 0.0
        self._what = ""

    def failed(self, what: str, error: Exception | None = None) -> None:
        """It failed, again or for the first time.

        Args:
            what: a clause that says what fails, where, and what follows from it.
        """
        now = self._clock.monotonic()
        self._what = what
        text = what if error is None else f"{what}: {error}{table_remedy(error)}"
        self._failed_at = now
        level = logging.WARNING if self._is_logged else logging.DEBUG
        if self._since is None:
            self._since = self._said_at = now
            log.log(level, "%s", text)
        elif now - self._said_at >= REPEAT_S:
            self._said_at = now
            log.log(level, "Failing for %.0f s now: %s", now - self._since, text)
        if now - self._since >= self._lasting_s:
            # Pages are seen by more people than the log.
            shown = what if error is None else f"{what}: {shown_error(error)}{table_remedy(error)}"
            self._conditions.report(self._reason, shown, self._subject)

    def resolved(self) -> None:
        """It works; nothing if it always has."""
        now = self._clock.monotonic()
        if self._since is not None:
            if now - self._failed_at < self._calm_s:
                return
            log.info("Resolved after %.0f s: %s", now - self._since, self._what)
        self.forget()

    def forget(self) -> None:
        """Nobody tries any more, so nothing is known."""
        self._since = None
        self._conditions.clear(self._reason, self._subject)
