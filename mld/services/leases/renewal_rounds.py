"""The heartbeat: rounds of renewals at a fixed rate, and the end of belief in between.

A round renews what is held, then tries to regain what lapsed. Whatever goes wrong with one lease
harms no other one, and costs one line of the log a round, however many leases there are.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from mld.decide.backoff import backoff_s
from mld.errors import AwsError, Denied, LeaseLost, NotFound
from mld.ports.metrics import Level, Unit
from mld.services.bounded import for_each

if TYPE_CHECKING:
    import random

    from mld.model.config import LeaseConfig
    from mld.model.lease import Lease
    from mld.ports.clock import Clock
    from mld.ports.metrics import Metrics
    from mld.services.leases.held_leases import HeldLeases, Holding
    from mld.services.leases.lease_store import LeaseStore

log = logging.getLogger(__name__)

_OPERATION = "RenewAllLeases"
#: First and longest pause before a failed renewal is tried again within its round.
RETRY_FIRST_S = 0.1
RETRY_CAP_S = 1.0
#: So short that belief is not stretched, long enough for the clock to move.
MIN_SLEEP_S = 0.001


class _Try(Enum):
    """How one try to renew ended."""

    RENEWED = auto()
    GONE = auto()
    REPEAT = auto()
    HOPELESS = auto()


@dataclass(frozen=True, slots=True)
class RenewalRound:
    """What one round did; ``str()`` gives the figures for the log.

    Attributes:
        renewed: leases whose counter moved.
        lost: leases that turned out not to be ours any more, since the round before.
        unsure: leases that could not be renewed; held ones are believed until their time is up.
        took_s: length of the round.
    """

    renewed: int
    lost: int
    unsure: int
    took_s: float

    def __str__(self) -> str:
        return (
            f"renewed: {self.renewed}, lost: {self.lost}, not renewed: {self.unsure}, "
            f"time: {self.took_s:.2f} s"
        )


class RenewalRounds:
    """Renews the leases of a worker; see :class:`mld.services.leases.lease_renewer.LeaseRenewer`."""

    def __init__(
        self,
        store: LeaseStore,
        held: HeldLeases,
        config: LeaseConfig,
        clock: Clock,
        rng: random.Random,
        metrics: Metrics,
    ) -> None:
        """No round yet."""
        self._store = store
        self._held = held
        self._config = config
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._reported_lost = 0
        self._last_failure = ""

    async def run(self) -> None:
        """Renew at a fixed rate until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_expiry())
            group.create_task(self._run_rounds())

    async def _run_rounds(self) -> None:
        period_s = self._config.renewal_interval_s
        due = self._clock.monotonic()
        while True:
            late_s = self._clock.monotonic() - due
            self._time("Lateness", max(0.0, late_s), Level.DETAILED)
            try:
                await self.renew_once()
            except Exception:
                # The heartbeat must outlive any defect: without it every lease is lost.
                log.exception("Renewing leases failed unexpectedly")
            due = max(due + period_s, self._clock.monotonic())
            await asyncio.sleep(due - self._clock.monotonic())

    async def renew_once(self) -> RenewalRound:
        """Renew every held lease, trying failed ones again until the next round is due.

        Leases that lapsed are tried after the others: while nobody else took them (the table was
        out of reach, this process was frozen), writing on top of our own last row regains them.
        """
        started_at = self._clock.monotonic()
        ends_at = started_at + self._config.renewal_interval_s
        pending = self._held.keys_by_wait() + self._held.lapsed()
        attempt, renewed, hopeless = 0, 0, 0
        while pending:
            tries = await self._try_all(pending)
            renewed += sum(outcome is _Try.RENEWED for outcome in tries.values())
            hopeless += sum(outcome is _Try.HOPELESS for outcome in tries.values())
            pending = [key for key in pending if tries[key] is _Try.REPEAT]
            pause_s = self._retry_pause(attempt)
            if not pending or self._clock.monotonic() + pause_s >= ends_at:
                break
            await asyncio.sleep(pause_s)
            attempt += 1
        took_s = self._clock.monotonic() - started_at
        return self._report(renewed, len(pending) + hopeless, took_s)

    async def _try_all(self, keys: list[str]) -> dict[str, _Try]:
        outcomes: dict[str, _Try] = {}

        async def renew(key: str) -> None:
            async with self._held.lock(key):
                try:
                    outcomes[key] = await self._try(key)
                except Exception:
                    # A defect in one lease's renewal must not take the others' time.
                    log.exception("Renewing lease %s failed unexpectedly", key)
                    outcomes[key] = _Try.HOPELESS

        await for_each(keys, self._config.renewal_threads, renew)
        return outcomes

    async def _try(self, lease_key: str) -> _Try:
        """One try to renew a held or to regain a lapsed lease, under its lock."""
        holding = self._held.find(lease_key)
        if holding is not None and self._held.has_lapsed(holding):
            holding = None
        row = self._held.lapsed_row(lease_key) if holding is None else holding.lease
        if row is None:
            return _Try.GONE
        requested_at = self._clock.monotonic()
        outcome = await self._renew(row, holding, requested_at)
        success = outcome in (_Try.RENEWED, _Try.GONE)
        self._count("RenewLease.Success", int(success), Level.DETAILED)
        took_s = self._clock.monotonic() - requested_at
        self._time("RenewLease.Time", took_s, Level.DETAILED)
        return outcome

    async def _renew(self, row: Lease, holding: Holding | None, requested_at: float) -> _Try:
        try:
            lease = await self._store.renew(row)
        except LeaseLost as lost:
            self._held.forget(row.lease_key)
            if holding is not None:
                self._held.lose(holding, lost.why)
            return _Try.GONE
        except AwsError as error:
            log.debug("Could not renew lease %s: %s", row.lease_key, error)
            self._last_failure = f"{row.lease_key}: {error}"
            return _Try.HOPELESS if isinstance(error, NotFound | Denied) else _Try.REPEAT
        if holding is not None:
            self._held.succeed(holding, lease, requested_at)
        elif self._held.lapsed_row(row.lease_key) is not None:
            self._held.hold(lease, requested_at)
        return _Try.RENEWED

    # -- details ----------------------------------------------------------------------------------

    async def _watch_expiry(self) -> None:
        """Tell of leases whose time is up, even while all requests hang."""
        longest_s = self._config.renewal_interval_s / 4
        while True:
            soonest = self._held.lapse_all()
            left_s = longest_s if soonest is None else soonest - self._clock.monotonic()
            await asyncio.sleep(min(longest_s, max(MIN_SLEEP_S, left_s)))

    def _retry_pause(self, attempt: int) -> float:
        return backoff_s(attempt, self._rng, first_s=RETRY_FIRST_S, cap_s=RETRY_CAP_S)

    def _report(self, renewed: int, unsure: int, took_s: float) -> RenewalRound:
        lost, self._reported_lost = self._held.lost - self._reported_lost, self._held.lost
        outcome = RenewalRound(renewed, lost, unsure, took_s)
        if unsure:
            log.warning(
                "Could not renew %d leases (%s); the last one: %s",
                unsure,
                outcome,
                self._last_failure,
            )
        if took_s > self._config.failover_s / 2:
            text = "Renewing leases took more than half of failoverTimeMillis: %s"
            log.warning(text, outcome)
            self._count("SlowRounds", 1, Level.SUMMARY)
        self._count("LostLeases", lost, Level.SUMMARY)
        self._count("CurrentLeases", len(self._held), Level.SUMMARY)
        self._count("Success", int(unsure == 0), Level.SUMMARY)
        self._time("Time", took_s, Level.SUMMARY)
        return outcome

    def _count(self, name: str, value: int, level: Level) -> None:
        self._metrics.add(_OPERATION, name, value, level=level, worker=True)

    def _time(self, name: str, seconds: float, level: Level) -> None:
        self._metrics.add(
            _OPERATION, name, seconds * 1000, unit=Unit.MILLISECONDS, level=level, worker=True
        )
