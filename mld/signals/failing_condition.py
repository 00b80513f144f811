"""A failure that repeats, until it is over, for the log and for ``/readyz``.

Without it, some failures would stay unnoticed: that leases in a 3.x fleet get no new owners while
others are still renewed and read, or that no lease is held.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.text import lasted
from kcl_mld.signals.rules.remedies import shown_error, table_remedy

if TYPE_CHECKING:
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.signals.model.conditions import Conditions, Reason

log = logging.getLogger("mld.signals")

#: The worker is not ready when a failure has lasted this many seconds: a retry and a heartbeat may
#: fail.
LASTING_S = 30.0
#: Seconds between two log lines about it.
REPEAT_S = 60.0


class FailingCondition:
    """A repeated failure: logged at once, then each minute, and shown on ``/readyz``.

    Args:
        subject: distinguishes two conditions of one reason.
        lasting_s: the worker is not ready when the failure has lasted this long.
        calm_s: it is resolved only after this long without a failure, so that intermittent failures
            count as lasting.
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
        self._logged_at = self._failed_at = 0.0
        self._what = ""

    def failed(self, what: str, error: Exception | None = None) -> None:
        """Report a failure, the first one or a repetition.

        Args:
            what: a clause that says what fails, where, and the consequence.
        """
        now = self._clock.monotonic()
        self._what = what
        text = what if error is None else f"{what}: {error}{table_remedy(error)}"
        self._failed_at = now
        level = logging.WARNING if self._is_logged else logging.DEBUG
        if self._since is None:
            self._since = self._logged_at = now
            log.log(level, "%s", text)
        elif now - self._logged_at >= REPEAT_S:
            self._logged_at = now
            log.log(level, "Failing for %s now: %s", lasted(now - self._since), text)
        if now - self._since >= self._lasting_s:
            # More people see the pages than the log.
            shown = what if error is None else f"{what}: {shown_error(error)}{table_remedy(error)}"
            self._conditions.report(self._reason, shown, self._subject)

    def resolved(self) -> None:
        """It succeeded; does nothing if it always has."""
        now = self._clock.monotonic()
        if self._since is not None:
            if now - self._failed_at < self._calm_s:
                return
            log.info("Resolved after %s: %s", lasted(now - self._since), self._what)
        self.forget()

    def forget(self) -> None:
        """There are no more attempts, so the state is unknown."""
        self._since = None
        self._conditions.clear(self._reason, self._subject)
