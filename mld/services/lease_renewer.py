"""The leases that this worker holds: heartbeats, checkpoints, and when to stop believing.

Invariant: renewal, checkpoint, release and taking of one lease never overlap (one lock a lease), so
the counter in memory is the one in the table, or one behind it after a lost answer.

On any error the lease in memory stays as it was last known to be stored; a failed checkpoint is
never carried into the table by a later heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.decide.backoff import backoff_s
from mld.decide.renewal import believed_until, renewal_order
from mld.errors import AwsError, Denied, LeaseLost, NotFound
from mld.model.lease import HeldLease
from mld.ports.metrics import Level, Unit
from mld.services.bounded import for_each
from mld.services.signal import Signal

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from mld.model.config import LeaseConfig
    from mld.model.lease import Lease
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.ports.clock import Clock, IdSource
    from mld.ports.metrics import Metrics
    from mld.services.lease_store import LeaseStore

log = logging.getLogger(__name__)

_OPERATION = "RenewAllLeases"
#: First and longest pause before a failed renewal is tried again within its round.
RETRY_FIRST_S = 0.1
RETRY_CAP_S = 1.0
RELEASE_TRIES = 3


@dataclass(slots=True)
class _Holding:
    """What is known of one held lease; replaced, never revived, when it lapses."""

    lease: Lease
    token: str
    valid_until: float
    last_success: float
    ended: bool = False


@dataclass(frozen=True, slots=True)
class RenewalRound:
    """What one round did; ``str()`` is a sentence for the log.

    Attributes:
        renewed: leases whose counter moved.
        lost: leases that turned out not to be ours any more, since the round before.
        unsure: leases that are still believed but could not be renewed.
        took_s: length of the round.
    """

    renewed: int
    lost: int
    unsure: int
    took_s: float

    def __str__(self) -> str:
        return (
            f"renewed {self.renewed}, lost {self.lost}, failed to renew {self.unsure} "
            f"in {self.took_s:.2f} s"
        )


class LeaseRenewer:
    """Keeps what it is given until somebody else has it or its time is up."""

    def __init__(
        self,
        store: LeaseStore,
        config: LeaseConfig,
        worker_id: str,
        clock: Clock,
        rng: random.Random,
        ids: IdSource,
        metrics: Metrics,
    ) -> None:
        """Hold nothing yet."""
        self._store = store
        self._config = config
        self._worker_id = worker_id
        self._clock = clock
        self._rng = rng
        self._ids = ids
        self._metrics = metrics
        self._holdings: dict[str, _Holding] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._lost = 0
        self._is_draining = False
        #: Woken at every gain and every loss.
        self.changed = Signal()
        #: Woken when a lease lapsed by our own clock: nobody may be reading its shard.
        self.lapsed = Signal()
        #: The last finished round.
        self.last_round: RenewalRound | None = None

    # -- what is held -----------------------------------------------------------------------------

    def held(self) -> tuple[HeldLease, ...]:
        """Leases that are believed to be ours right now, sorted by key."""
        now = self._clock.monotonic()
        return tuple(
            _snapshot(holding)
            for _, holding in sorted(self._holdings.items())
            if holding.valid_until > now
        )

    def get(self, lease_key: str) -> HeldLease | None:
        """One lease that is believed to be ours right now, or None."""
        holding = self._holdings.get(lease_key)
        if holding is None or holding.valid_until <= self._clock.monotonic():
            return None
        return _snapshot(holding)

    def exclusive(self, lease_key: str) -> asyncio.Lock:
        """The lock that orders all writes of this worker to one lease."""
        return self._locks.setdefault(lease_key, asyncio.Lock())

    def add(self, lease: Lease, requested_at: float) -> HeldLease:
        """Hold a lease from now on, under a new token.

        Args:
            lease: the row as we have just written it.
            requested_at: reading of ``Clock.monotonic`` *before* that write was sent.
        """
        holding = _Holding(lease, self._ids.new_id(), self._belief(requested_at), requested_at)
        previous = self._holdings.get(lease.lease_key)
        if previous is not None:
            previous.ended = True
        self._holdings[lease.lease_key] = holding
        log.info("Holding %s from counter %d on", lease.lease_key, lease.lease_counter)
        self.changed.wake()
        return _snapshot(holding)

    async def adopt_own(self, leases: Iterable[Lease] | None = None) -> None:
        """At start: renew and hold the rows that name this worker, however old.

        A restarted worker with the same id goes on at once. Rows in a hand-off are left alone.

        Args:
            leases: rows of a fresh scan; None = scan here.

        Source: DynamoDBLeaseRenewer.initialize (3.5.1).
        """
        if leases is None:
            leases = (await self._store.scan()).leases
        own = [
            lease
            for lease in leases
            if lease.lease_owner == self._worker_id
            and lease.checkpoint_owner is None
            and lease.lease_key not in self._holdings
        ]
        await for_each(own, self._config.renewal_threads, self._adopt)

    async def _adopt(self, lease: Lease) -> None:
        async with self.exclusive(lease.lease_key):
            requested_at = self._clock.monotonic()
            try:
                renewed = await self._store.renew(lease)
            except (AwsError, LeaseLost) as error:
                log.warning("Not going on with %s: %s", lease.lease_key, error)
            else:
                self.add(renewed, requested_at)

    # -- letting go -------------------------------------------------------------------------------

    async def drop(self, lease_key: str, token: str) -> None:
        """Stop renewing, without a write; the row lapses by itself. Nothing for an old token."""
        holding = self._current(lease_key, token)
        if holding is not None:
            self._end(holding)

    async def release(self, lease_key: str, token: str) -> bool:
        """Give a lease up in the table, so that another worker can take it at once; then drop it.

        Returns:
            True when the table shows it. False when the token is old, somebody else has the lease,
            or the table could not be written: then it lapses by itself.

        Cancellation: renewing has stopped only if the write was tried.
        """
        async with self.exclusive(lease_key):
            holding = self._current(lease_key, token)
            if holding is None:
                return False
            try:
                return await self._evict(holding.lease)
            finally:
                self._end(holding)

    async def _evict(self, lease: Lease) -> bool:
        for attempt in range(RELEASE_TRIES):
            try:
                return await self._store.evict(lease)
            except AwsError as error:
                log.warning("Could not release %s: %s", lease.lease_key, error)
                if attempt + 1 < RELEASE_TRIES:
                    await asyncio.sleep(self._retry_pause(attempt))
        return False

    def stop_adding(self) -> None:
        """From now on a lease that lapsed is not picked up again (the worker is stopping)."""
        self._is_draining = True

    # -- writing ----------------------------------------------------------------------------------

    async def checkpoint(
        self,
        lease_key: str,
        token: str,
        position: ExtendedSequenceNumber,
        *,
        child_shard_ids: tuple[str, ...] = (),
    ) -> None:
        """Store a position; it counts as a heartbeat.

        Args:
            lease_key: whose row.
            token: of the holding that processed up to the position.
            position: not below the last one; the caller guards that.
            child_shard_ids: written too unless empty.

        Raises:
            LeaseLost: the lease isn't held under that token any more; nothing was written.
            Throttled: nothing was written; wait and repeat.
            UnknownOutcome: it may be stored; repeating it is safe.
            AwsError: nothing was written.
        """
        async with self.exclusive(lease_key):
            holding = self._current(lease_key, token)
            if holding is None:
                raise LeaseLost(lease_key, "it is not held any more")
            requested_at = self._clock.monotonic()
            if holding.valid_until <= requested_at:
                self._lapse(holding)
                raise LeaseLost(lease_key, "it was not renewed in time")
            try:
                lease = await self._store.checkpoint(
                    holding.lease, position, child_shard_ids=child_shard_ids
                )
            except LeaseLost as lost:
                self._lose(holding, lost.why)
                raise
            self._succeed(holding, lease, requested_at)

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
            self._add_time("Lateness", max(0.0, late_s), Level.DETAILED)
            try:
                await self.renew_once()
            except Exception:
                # The heartbeat must outlive any defect: without it every lease is lost.
                log.exception("A renewal round failed")
            due = max(due + period_s, self._clock.monotonic())
            await asyncio.sleep(due - self._clock.monotonic())

    async def renew_once(self) -> RenewalRound:
        """Renew every held lease, trying failed ones again until the next round is due."""
        started_at = self._clock.monotonic()
        ends_at = started_at + self._config.renewal_interval_s
        pending = renewal_order(
            (key, holding.last_success) for key, holding in self._holdings.items()
        )
        total, attempt = len(pending), 0
        while pending:
            pending = await self._renew_all(pending)
            pause_s = self._retry_pause(attempt)
            if not pending or self._clock.monotonic() + pause_s >= ends_at:
                break
            await asyncio.sleep(pause_s)
            attempt += 1
        return self._report(total, len(pending), self._clock.monotonic() - started_at)

    async def _renew_all(self, keys: list[str]) -> list[str]:
        """Try each once; returns those worth another try, in the same order."""
        failed: set[str] = set()

        async def renew(key: str) -> None:
            if not await self._renew(key):
                failed.add(key)

        await for_each(keys, self._config.renewal_threads, renew)
        return [key for key in keys if key in failed]

    async def _renew(self, lease_key: str) -> bool:
        """One try; False when it may succeed if repeated."""
        async with self.exclusive(lease_key):
            holding = self._holdings.get(lease_key)
            if holding is None:
                return True
            requested_at = self._clock.monotonic()
            if holding.valid_until <= requested_at:
                self._lapse(holding)
                return True
            try:
                lease = await self._store.renew(holding.lease)
            except LeaseLost as lost:
                self._lose(holding, lost.why)
            except AwsError as error:
                log.warning("Could not renew %s: %s", lease_key, error)
                self._add_count("RenewLease.Success", 0, Level.DETAILED)
                return isinstance(error, NotFound | Denied)
            else:
                self._succeed(holding, lease, requested_at)
                self._add_count("RenewLease.Success", 1, Level.DETAILED)
            took_s = self._clock.monotonic() - requested_at
            self._add_time("RenewLease.Time", took_s, Level.DETAILED)
            return True

    # -- details ----------------------------------------------------------------------------------

    async def _watch_expiry(self) -> None:
        """Tell of leases whose time is up, even while all requests hang."""
        look_s = self._config.renewal_interval_s / 4
        while True:
            now = self._clock.monotonic()
            for _, holding in sorted(self._holdings.items()):
                if holding.valid_until <= now:
                    self._lapse(holding)
            soonest = min((h.valid_until for h in self._holdings.values()), default=now + look_s)
            await asyncio.sleep(min(look_s, max(0.001, soonest - now)))

    def _belief(self, requested_at: float) -> float:
        return believed_until(requested_at, self._config.failover_s, self._config.epsilon_s)

    def _current(self, lease_key: str, token: str) -> _Holding | None:
        holding = self._holdings.get(lease_key)
        return holding if holding is not None and holding.token == token else None

    def _succeed(self, holding: _Holding, lease: Lease, requested_at: float) -> None:
        """Note a write that was answered, whose condition was that the lease is ours."""
        has_lapsed = holding.valid_until <= self._clock.monotonic()
        if not has_lapsed and not holding.ended:
            holding.lease = lease
            holding.last_success = requested_at
            holding.valid_until = self._belief(requested_at)
        elif has_lapsed and self._may_regain(holding, requested_at):
            # The answer came after we had stopped believing. The row is ours again, so a new
            # holding begins: its consumer starts from the stored checkpoint.
            self._lapse(holding)
            self.add(lease, requested_at)

    def _may_regain(self, holding: _Holding, requested_at: float) -> bool:
        return (
            not self._is_draining
            and self._holdings.get(holding.lease.lease_key) in (None, holding)
            and self._belief(requested_at) > self._clock.monotonic()
        )

    def _lapse(self, holding: _Holding) -> None:
        if not holding.ended:
            self._lose(holding, "it was not renewed in time")
            self.lapsed.wake()

    def _lose(self, holding: _Holding, why: str) -> None:
        if not holding.ended:
            log.warning("Lost the lease %s: %s", holding.lease.lease_key, why)
            self._lost += 1
            self._end(holding)

    def _end(self, holding: _Holding) -> None:
        if not holding.ended:
            holding.ended = True
            del self._holdings[holding.lease.lease_key]
            self.changed.wake()

    def _retry_pause(self, attempt: int) -> float:
        return backoff_s(attempt, self._rng, first_s=RETRY_FIRST_S, cap_s=RETRY_CAP_S)

    def _report(self, total: int, unsure: int, took_s: float) -> RenewalRound:
        lost, self._lost = self._lost, 0
        outcome = RenewalRound(max(0, total - unsure - lost), lost, unsure, took_s)
        if took_s > self._config.failover_s / 2:
            log.warning("A renewal round took more than half the failover time: %s", outcome)
            self._add_count("SlowRounds", 1, Level.SUMMARY)
        self._add_count("LostLeases", lost, Level.SUMMARY)
        self._add_count("CurrentLeases", len(self._holdings), Level.SUMMARY)
        self._add_count("Success", int(unsure == 0), Level.SUMMARY)
        self._add_time("Time", took_s, Level.SUMMARY)
        self.last_round = outcome
        return outcome

    def _add_count(self, name: str, value: int, level: Level) -> None:
        self._metrics.add(_OPERATION, name, value, level=level, worker=True)

    def _add_time(self, name: str, seconds: float, level: Level) -> None:
        self._metrics.add(
            _OPERATION, name, seconds * 1000, unit=Unit.MILLISECONDS, level=level, worker=True
        )


def _snapshot(holding: _Holding) -> HeldLease:
    return HeldLease(holding.lease, holding.token, holding.valid_until)
