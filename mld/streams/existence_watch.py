"""Watches a resource that must not disappear while the worker runs: a stream, or the lease table.

A check is one request. When the resource is gone, an ERROR is logged at once and ``/readyz``
answers 503. The check and the log line are repeated every ``REPEAT_S``. After ``GIVE_UP_S``
:meth:`ExistenceWatch.run` raises, so that the worker drains and ends with exit code 4. If the
resource is back by then, nothing changes. For one of many streams, only the reading of that stream
ends: the code that runs the watch handles the error.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import MalformedData, MldError, ResourceMissing

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from kcl_mld.kernel.concurrency import Wakeup
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.signals.model.conditions import Conditions, Reason

log = logging.getLogger("mld.streams")

#: Mean seconds between two checks while nothing is wrong; the actual time is 0.5 to 1.5 times that.
LOOK_S = 60.0
#: Least time between two checks that no caller waits for, however often a check is requested.
WANTED_S = 10.0
#: Least time between any two checks: DescribeStreamSummary allows 20 calls a second and account.
DISTANCE_S = 1.0
#: Time between two checks, and between two log lines, while the resource is gone.
REPEAT_S = 10.0
#: A resource that is gone for this many seconds ends the worker.
GIVE_UP_S = 30.0


class ExistenceWatch:
    """Checks whether one resource exists; a worker has one per stream and one for its table.

    Args:
        look: checks once: returns a sentence that says what is gone and what to do, or None when
            the resource is the one of the start. Raises AwsError or MalformedData when that is
            unknown.
        check_wanted: set when the resource may be gone; :meth:`run` waits for it.
        conditions: for ``/readyz``; None = it does not end the worker, and its owner reports.
        every_s: mean time between two checks while nothing is wrong.
        on_gone: called once with the sentence when the resource is found gone.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[str | None]],
        check_wanted: Wakeup,
        reason: Reason,
        conditions: Conditions | None,
        clock: Clock,
        rng: random.Random,
        *,
        on_gone: Callable[[str], None] | None = None,
        every_s: float = LOOK_S,
    ) -> None:
        self._look = look
        self._check_wanted = check_wanted
        self._reason = reason
        self._conditions = conditions
        self._clock = clock
        self._rng = rng
        self._on_gone = on_gone
        self._every_s = every_s
        self._turn = asyncio.Lock()
        self._began_at: float | None = None
        self._answered_at: float | None = None
        self._unknown: MldError | None = None
        self._why: str | None = None
        self._gone_at = 0.0
        self._logged_at = 0.0

    @property
    def is_gone(self) -> bool:
        """True when the last answered check did not find it."""
        return self._why is not None

    async def check(self, fresh_s: float = 0.0) -> None:
        """Return when the resource exists, by a check that began after this call.

        Concurrent callers share a check.

        Args:
            fresh_s: a check that began this many seconds before the call is accepted, too; >= 0.

        Raises:
            ResourceMissing: it is gone; the message says what and what to do.
            AwsError: unknown; try again later.
            MalformedData: likewise.
        """
        asked_at = self._clock.monotonic()
        async with self._turn:
            # A check without a result is repeated; otherwise the next call would not wait at all.
            since = asked_at if self._unknown is not None else asked_at - fresh_s
            if self._answered_at is None or self._answered_at <= since:
                await self._look_once()
        if self._unknown is not None:
            raise self._unknown
        if self._why is not None:
            raise ResourceMissing(self._why)

    async def run(self) -> None:
        """Check periodically, and at once when a check is requested, until cancelled.

        Raises:
            ResourceMissing: it has been gone for ``GIVE_UP_S``.
        """
        while True:
            await self._pause()
            try:
                await self.check()
            except ResourceMissing:
                if self._left_s() <= 0:
                    raise
            except MldError as error:
                log.debug("The check for %s failed: %s", self._reason, error)

    async def _pause(self) -> None:
        """Wait until the next check is due."""
        if self._why is None:
            is_wanted = await self._check_wanted.wait(self._every_s * (0.5 + self._rng.random()))
            if self._why is None:
                if is_wanted and self._began_at is not None:
                    due_at = self._began_at + WANTED_S
                    await asyncio.sleep(max(0.0, due_at - self._clock.monotonic()))
                return
        await asyncio.sleep(min(REPEAT_S, max(self._left_s(), DISTANCE_S)))

    def _left_s(self) -> float:
        """Seconds until a resource that is gone ends the worker."""
        return self._gone_at + GIVE_UP_S - self._clock.monotonic()

    async def _look_once(self) -> None:
        if self._began_at is not None:
            await asyncio.sleep(max(0.0, self._began_at + DISTANCE_S - self._clock.monotonic()))
        began_at = self._began_at = self._clock.monotonic()
        try:
            why = await self._look()
        except MldError as error:
            self._unknown, self._answered_at = error, began_at
            return
        except Exception as error:
            # The worker continues without a watch, rather than ending for a defect in one.
            log.exception("The check for %s failed unexpectedly", self._reason)
            what = f"the look failed: {type(error).__name__}: {error}"
            self._unknown, self._answered_at = MalformedData(what), began_at
            return
        # Not before: a cancelled check has no result.
        self._unknown, self._answered_at = None, began_at
        if why is None:
            self._found()
        else:
            self._missed(why)

    def _found(self) -> None:
        if self._why is not None:
            log.warning("Resolved, reading continues; reported before: %s", self._why)
            self._why = None
            if self._conditions is not None:
                self._conditions.clear(self._reason)

    def _missed(self, why: str) -> None:
        now = self._clock.monotonic()
        is_news, self._why = self._why is None, why
        if is_news:
            self._gone_at = now
            self._check_wanted.wake()
        if self._conditions is None:
            if is_news:
                log.error("Reading of the stream ends in %.0f s: %s", GIVE_UP_S, why)
            return
        self._conditions.report(self._reason, why)
        if is_news or now - self._logged_at >= REPEAT_S:
            self._logged_at = now
            left_s = max(0.0, self._left_s())
            log.error("The worker ends with exit code 4 in %.0f s: %s", left_s, why)
        if is_news and self._on_gone is not None:
            self._on_gone(why)
