"""The limits of a run: time, money, and the user's Ctrl-C."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from kcl_mld.acceptance.rules.plan import billed_hours, usd_of_records, usd_of_writes
from kcl_mld.errors import MldError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Longest sleep without a look at the limits.
_STEP_S = 0.5
#: ``time.monotonic`` stands still while the machine is suspended; this one goes on: on Linux the first
#: of the two, elsewhere the second.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def running_s() -> float:
    """Monotonic seconds, those in which the machine was suspended included: they cost money, too."""
    return time.clock_gettime(_CLOCK)


class BudgetExhausted(MldError):
    """The run has to end now: its time or its money is used up, or somebody interrupted it."""


class Budget:
    """Thread-safe.

    Args:
        limit_s: from now on, > 0.
        limit_usd: >= 0.
        usd_per_hour: what a run costs without its records; for started hours, see
            :func:`kcl_mld.acceptance.rules.plan.billed_hours`.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        limit_s: float,
        limit_usd: float,
        usd_per_hour: float,
        *,
        clock: Callable[[], float] = running_s,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._limit_s = limit_s
        self._limit_usd = limit_usd
        self._usd_per_hour = usd_per_hour
        self._clock = clock
        self._sleep = sleep
        self._began_s = clock()
        self._lock = threading.Lock()
        self._noted_usd = 0.0
        self._interruption: str | None = None

    @property
    def left_s(self) -> float:
        """Seconds until the limit of time; negative after it."""
        return self._began_s + self._limit_s - self._clock()

    @property
    def spent_usd(self) -> float:
        """The estimate of what was spent, clean-up included: by the hour, and by the records."""
        hours = billed_hours(self._clock() - self._began_s)
        with self._lock:
            return hours * self._usd_per_hour + self._noted_usd

    def note_put(self, records: int, data_bytes: int) -> None:
        """Records were put into the stream."""
        self._note(usd_of_records(records, data_bytes))

    def note_table_write(self, items: int) -> None:
        """Small items were written."""
        self._note(usd_of_writes(items))

    def _note(self, usd: float) -> None:
        with self._lock:
            self._noted_usd += usd

    def interrupt(self, why: str) -> None:
        """Let the next :meth:`check` raise; for handlers of signals."""
        self._interruption = why

    def check(self) -> None:
        """Go on, or not.

        Raises:
            BudgetExhausted: says which limit was reached.
        """
        if self._interruption is not None:
            raise BudgetExhausted(self._interruption)
        if self.left_s <= 0:
            raise BudgetExhausted(f"the limit of time is reached: {self._limit_s / 60:.0f} minutes")
        if self.spent_usd > self._limit_usd:
            raise BudgetExhausted(f"the limit of money is reached: ${self._limit_usd:.2f}")

    def sleep(self, seconds: float) -> None:
        """Wait, unless a limit is reached meanwhile.

        Raises:
            BudgetExhausted: see :meth:`check`.
        """
        until_s = self._clock() + seconds
        self.check()
        while (rest_s := until_s - self._clock()) > 0:
            self._sleep(min(rest_s, _STEP_S))
            self.check()
