"""What keeps failing: said at once, then each minute, and on ``/readyz``.

Of a 3.x fleet, leases are renewed and read on meanwhile, so without this nobody would see that no
lease finds a new owner any more. Of the leases themselves, nobody would see that none is held.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.errors import CredentialsRefused, Denied, MalformedData, NotFound

if TYPE_CHECKING:
    from mld.decide.readiness import Reason
    from mld.ports.clock import Clock
    from mld.services.conditions import Conditions

log = logging.getLogger(__name__)

#: By default the worker is not ready when it has lasted for so long: a retry and a heartbeat may fail.
LASTING_S = 30.0
#: It is said again as often.
REPEAT_S = 60.0


class Trouble:
    """One kind of trouble of one worker.

    Args:
        reason: of the condition.
        conditions: for ``/readyz``.
        clock: tells how long it lasts.
        subject: tells two of one reason apart.
        lasting_s: the worker is not ready when it has lasted for so long.
        calm_s: it is over only when it was not met for so long, so that what comes and goes counts
            as lasting.
        is_logged: False where whoever meets it logs it.
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
        self._said_at = self._met_at = 0.0
        self._what = ""

    def met(self, what: str, error: Exception | None = None) -> None:
        """It was met, again or for the first time.

        Args:
            what: a clause that says what fails, where, and what follows from it.
            error: of the call that failed, if one did.
        """
        now = self._clock.monotonic()
        self._what = what
        text = what if error is None else f"{what}: {error}{remedy(error)}"
        self._met_at = now
        level = logging.WARNING if self._is_logged else logging.DEBUG
        if self._since is None:
            self._since = self._said_at = now
            log.log(level, "%s", text)
        elif now - self._said_at >= REPEAT_S:
            self._said_at = now
            log.log(level, "Failing for %.0f s now: %s", now - self._since, text)
        if now - self._since >= self._lasting_s:
            self._conditions.report(self._reason, text, self._subject)

    def over(self) -> None:
        """It works; nothing if it always has."""
        now = self._clock.monotonic()
        if self._since is not None:
            if now - self._met_at < self._calm_s:
                return
            log.info("Resolved after %.0f s: %s", now - self._since, self._what)
        self.forget()

    def forget(self) -> None:
        """Nobody tries any more, so nothing is known."""
        self._since = None
        self._conditions.clear(self._reason, self._subject)


def remedy(error: Exception) -> str:
    """What to do about an error of a table, as the end of a sentence; "" = try on.

    Args:
        error: of the call.
    """
    if isinstance(error, NotFound):
        return ". The table is missing: restore it from a backup"
    if isinstance(error, CredentialsRefused):
        return ". Renew the credentials, or set the clock of this machine right"
    if isinstance(error, Denied):
        return f". Allow dynamodb:{error.operation} on this table"
    if isinstance(error, MalformedData):
        return ". If no worker writes it so, delete the item: the next leader makes a new one"
    return ""
