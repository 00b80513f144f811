"""The heartbeat of the leases that a worker holds, and the reports about it.

Each lease is renewed when its renewal is due. A lease whose validity ends between two rounds is
ended by :class:`~kcl_mld.leases.held_leases.HeldLeases`. A round renews the leases that are due and
then tries to regain lapsed leases. An error with one lease affects no other lease.

Renewal failures are logged at most once per Java renewal period.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError, Denied, LeaseLost, NotFound
from kcl_mld.kernel.concurrency import for_each
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.leases.holder import UnresolvedWrite
from kcl_mld.leases.rules.renewal import most_renewable
from kcl_mld.signals.model.metrics import (
    CURRENT_LEASES,
    LOST_LEASES,
    RENEW_ALL,
    RENEW_LEASE,
    RENEWAL_LATENESS,
    SLOW_ROUNDS,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from kcl_mld.config.config import LeaseConfig
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.held_leases import HeldLeases, Holding
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.signals.failing_condition import FailingCondition
    from kcl_mld.signals.ports import Metrics

log = logging.getLogger("mld.leases")

#: First and longest pause before a failed renewal is tried again within its round, in seconds.
RETRY_FIRST_S = 0.1
RETRY_CAP_S = 1.0
#: Renewals that are due within this many seconds are made together.
TOGETHER_S = 0.15
#: A denied renewal is tried again after this share of Java's period: credentials may change.
HOPELESS_SHARE = 0.5
#: Short enough not to extend a lease's validity, long enough for the clock to advance.
MIN_SLEEP_S = 0.001
#: Weight of the latest response time in the moving average.
ANSWER_WEIGHT = 0.1


def retry_pause_s(attempt: int, rng: random.Random) -> float:
    """Random pause after the ``attempt``-th failed write to a lease, counted from 0."""
    return backoff_s(attempt, rng, first_s=RETRY_FIRST_S, cap_s=RETRY_CAP_S)


@dataclass(frozen=True, slots=True)
class RenewalRound:
    """The result of one round; ``str()`` gives the figures for the log.

    Attributes:
        renewed: leases whose counter was raised.
        lost: leases that were lost since the previous round.
        unsure: leases that could not be renewed; held ones stay held until their validity ends.
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


class RenewalReport:
    """Counts and times renewals, and reports each round."""

    def __init__(
        self,
        config: LeaseConfig,
        held: HeldLeases,
        clock: Clock,
        metrics: Metrics,
        failing: FailingCondition,
    ) -> None:
        """Create the report.

        Args:
            failing: reports to readiness and to the log while renewals fail.
        """
        self._config = config
        self._held = held
        self._clock = clock
        self._metrics = metrics
        self._failing = failing
        self._reported_lost = 0
        self._last_failure = ""
        self._last_error: AwsError | None = None
        self._warned_at: float | None = None
        self._answer_s: float | None = None  # moving average

    def most_renewable(self) -> int | None:
        """How many leases this worker can renew in time; None until a renewal is answered."""
        return None if not self._answer_s else most_renewable(self._config, self._answer_s)

    def tried(self, took_s: float, *, is_answered: bool) -> None:
        """Record one attempt to renew; answered includes that another worker has the lease."""
        if is_answered:
            before_s = took_s if self._answer_s is None else self._answer_s
            self._answer_s = before_s + ANSWER_WEIGHT * (took_s - before_s)
        self._metrics.call(RENEW_LEASE, took_s, succeeded=is_answered)

    def failed(self, lease_key: str, error: AwsError) -> None:
        """Record a failed renewal; the report of the next incomplete round names the last one."""
        log.debug("Could not renew lease %s: %s", lease_key, error)
        self._last_failure, self._last_error = f"{lease_key}: {error}", error

    def finished(self, renewed: int, unsure: int, took_s: float) -> RenewalRound:
        """Record the end of a round, also of one without leases to renew."""
        lost, self._reported_lost = self._held.lost - self._reported_lost, self._held.lost
        outcome = RenewalRound(renewed, lost, unsure, took_s)
        self._report_failing(unsure)
        is_slow = took_s > self._config.failover_s / 2
        if is_slow:
            self._metrics.add(SLOW_ROUNDS, 1)
        if unsure and self._may_warn():
            text = "Could not renew %d leases (%s); the last one: %s"
            log.warning(text, unsure, outcome, self._last_failure)
        elif is_slow and self._may_warn():
            text = "Renewing leases took more than half of failoverTimeMillis: %s%s"
            log.warning(text, outcome, self._bound())
        self._metrics.add(LOST_LEASES, lost)
        self._metrics.add(CURRENT_LEASES, len(self._held))
        self._metrics.call(RENEW_ALL, took_s, succeeded=unsure == 0)
        return outcome

    def _bound(self) -> str:
        """What limits this worker's renewals, for the log; empty until a renewal is answered."""
        if not self._answer_s:
            return ""
        return (
            f"; with answers after {self._answer_s:.3f} s and maxLeaseRenewalThreads = "
            f"{self._config.renewal_threads} this worker can renew about {self.most_renewable()} "
            f"leases in time, and holds {len(self._held)}"
        )

    def _report_failing(self, unsure: int) -> None:
        if not unsure:
            self._failing.resolved()
            return
        leases, them = ("1 lease", "it") if unsure == 1 else (f"{unsure} leases", "them")
        what = f"{leases} of table {self._config.table_name} can't be renewed"
        self._failing.failed(f"{what}, so another worker gets {them}", self._last_error)

    def _may_warn(self) -> bool:
        """At most once per Java period, however many rounds it has."""
        now, warned_at = self._clock.monotonic(), self._warned_at
        if warned_at is not None and now - warned_at < self._config.renewal_interval_s:
            return False
        self._warned_at = now
        return True


class _Try(Enum):
    """The result of one attempt to renew."""

    RENEWED = auto()
    GONE = auto()
    REPEAT = auto()
    HOPELESS = auto()


class Heartbeat:
    """Renews the held leases of one worker, and regains those that lapsed."""

    def __init__(
        self,
        store: LeaseStore,
        held: HeldLeases,
        config: LeaseConfig,
        clock: Clock,
        rng: random.Random,
        metrics: Metrics,
        failing: FailingCondition,
    ) -> None:
        self._store = store
        self._held = held
        self._config = config
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        #: Reports the rounds.
        self.report = RenewalReport(config, held, clock, metrics, failing)
        self._regain_at = clock.monotonic() + config.renewal_interval_s
        self._busy: set[str] = set()
        self._slots = asyncio.Semaphore(config.renewal_threads)

    async def write(
        self,
        holding: Holding,
        requested_at: float,
        write: Callable[[Lease, float | None], Awaitable[Lease]],
    ) -> None:
        """Write to a held lease, under its lock; each such write is a heartbeat.

        A checkpoint replaces a renewal, so it also stores what the renewal would have stored.

        Args:
            requested_at: reading of ``Clock.monotonic`` before the write.

        Raises:
            LeaseLost: the lease is no longer held.
            AwsError: the write failed; the lease is held as before.
        """
        measured = self._held.measure(holding)
        try:
            lease = await write(holding.lease, None if measured is None else measured.kbps)
        except LeaseLost as lost:
            self._held.lose(holding, lost.why)
            raise
        except UnresolvedWrite as error:
            self._held.rebase(holding, error.row)
            raise
        self._held.succeed(holding, lease, requested_at, measured)

    async def run(self) -> None:
        """Renew due leases until cancelled; may be called again afterwards."""
        self._busy.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_expiry())
            group.create_task(self._run_rounds(group))

    async def _run_rounds(self, group: asyncio.TaskGroup) -> None:
        """Start a round whenever renewals are due; a slow round does not delay the next one."""
        while True:
            try:
                if keys := self._due():
                    self._busy.update(keys)
                    group.create_task(self._guarded(keys))
                due_at = self._held.next_due_at(besides=self._busy)
                wake_at = self._regain_at if due_at is None else min(due_at, self._regain_at)
                pause_s = max(MIN_SLEEP_S, wake_at - self._clock.monotonic())
            except Exception:
                # The heartbeat must survive any defect: without it, every lease is lost.
                log.exception("Renewing leases failed unexpectedly")
                pause_s = RETRY_CAP_S
            await self._held.wanted.wait(pause_s)

    def _due(self) -> list[str]:
        """Keys of leases to renew now: those due within TOGETHER_S."""
        now = self._clock.monotonic()
        due_at = self._held.next_due_at(besides=self._busy)
        keys: list[str] = []
        if due_at is not None and due_at <= now:
            self._metrics.add(RENEWAL_LATENESS, now - due_at)
            keys = self._held.due(now + TOGETHER_S)
        if now >= self._regain_at:
            self._regain_at = now + self._config.renewal_interval_s
            keys += self._held.lapsed()
            if not len(self._held):
                self.report.finished(0, 0, 0.0)  # reports how many are held
        return [key for key in keys if key not in self._busy]

    async def _guarded(self, keys: list[str]) -> None:
        try:
            await self._round(keys)
        except Exception:
            log.exception("Renewing leases failed unexpectedly")
            for key in keys:
                self._held.postpone(key, self._clock.monotonic() + RETRY_CAP_S)
            self._busy.difference_update(keys)
        self._held.wanted.wake()

    async def renew_once(self) -> RenewalRound:
        """Renew every held lease now, due or not, and try to regain every lapsed one."""
        return await self._round(self._held.keys_by_wait() + self._held.lapsed())

    async def _round(self, pending: list[str]) -> RenewalRound:
        """Renew leases, and retry failed ones for Java's period.

        Lapsed leases come last. If no other worker took such a lease (the table could not be
        reached, or this process was suspended), a write on top of our own last row regains it.
        """
        started_at = self._clock.monotonic()
        ends_at = started_at + self._config.renewal_interval_s
        attempt, renewed, hopeless = 0, 0, 0
        while pending:
            tries = await self._try_all(pending)
            renewed += sum(outcome is _Try.RENEWED for outcome in tries.values())
            hopeless += sum(outcome is _Try.HOPELESS for outcome in tries.values())
            pending = [key for key in pending if tries[key] is _Try.REPEAT]
            pause_s = retry_pause_s(attempt, self._rng)
            if not pending or self._clock.monotonic() + pause_s >= ends_at:
                break
            await asyncio.sleep(pause_s)
            attempt += 1
        self._busy.difference_update(pending)
        took_s = self._clock.monotonic() - started_at
        return self.report.finished(renewed, len(pending) + hopeless, took_s)

    async def _try_all(self, keys: list[str]) -> dict[str, _Try]:
        outcomes: dict[str, _Try] = {}

        async def renew(key: str) -> None:
            # Get a slot first: validity counts from the request, not from the wait for a slot.
            async with self._slots, self._held.lock(key):
                try:
                    outcomes[key] = await self._try(key)
                except Exception:
                    # A defect in one lease's renewal must not use up the time of the others.
                    log.exception("Renewing lease %s failed unexpectedly", key)
                    outcomes[key] = _Try.HOPELESS
            if outcomes[key] in {_Try.HOPELESS, _Try.REPEAT}:
                self._held.note_trouble()
            if outcomes[key] is _Try.HOPELESS:
                pause_s = self._config.renewal_interval_s * HOPELESS_SHARE
                self._held.postpone(key, self._clock.monotonic() + pause_s)
            if outcomes[key] is not _Try.REPEAT:
                self._busy.discard(key)  # the other leases may take longer than this one may wait

        # Slots are given in order of age: a large round gets no fewer than several small ones.
        await for_each(keys, max(1, len(keys)), renew)
        return outcomes

    async def _try(self, lease_key: str) -> _Try:
        """Try once to renew a held lease or to regain a lapsed one, under its lock."""
        holding = self._held.find(lease_key)
        if holding is not None and self._held.has_lapsed(holding):
            holding = None
        row = self._held.lapsed_row(lease_key) if holding is None else holding.lease
        if row is None:
            return _Try.GONE
        requested_at = self._clock.monotonic()
        outcome = await self._renew(row, holding, requested_at)
        took_s = self._clock.monotonic() - requested_at
        self.report.tried(took_s, is_answered=outcome in (_Try.RENEWED, _Try.GONE))
        return outcome

    async def _renew(self, row: Lease, holding: Holding | None, requested_at: float) -> _Try:
        try:
            if holding is not None:
                await self.write(holding, requested_at, self._store.renew)
            else:
                lease = await self._store.renew(row)
                if self._held.lapsed_row(row.lease_key) is not None:
                    self._held.hold(lease, requested_at)
        except LeaseLost:
            self._held.forget(row.lease_key)
            return _Try.GONE
        except AwsError as error:
            if isinstance(error, UnresolvedWrite):
                self._held.rebase(holding, error.row)
            self.report.failed(row.lease_key, error)
            return _Try.HOPELESS if isinstance(error, NotFound | Denied) else _Try.REPEAT
        return _Try.RENEWED

    async def _watch_expiry(self) -> None:
        """End leases that have expired, even while all requests hang."""
        longest_s = self._config.renewal_interval_s / 4
        while True:
            soonest = self._held.look_at_time()
            left_s = longest_s if soonest is None else soonest - self._clock.monotonic()
            await asyncio.sleep(min(longest_s, max(MIN_SLEEP_S, left_s)))
