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
from enum import Enum, auto
from typing import TYPE_CHECKING

from mld.decide.backoff import backoff_s
from mld.errors import AwsError, Denied, LeaseLost, NotFound
from mld.ports.metrics import Level, Unit
from mld.services.bounded import for_each
from mld.services.held_leases import HeldLeases, Holding

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from mld.model.config import LeaseConfig
    from mld.model.lease import HeldLease, Lease
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
    """What one round did; ``str()`` is a sentence for the log.

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
        self._metrics = metrics
        self._held = HeldLeases(config, clock, ids)
        #: Woken at every gain and every loss.
        self.changed = self._held.changed
        self._reported_lost = 0
        #: Leases that were given up but still name us in the table: nobody else gets them at once.
        self.unreleased = 0
        #: The last finished round.
        self.last_round: RenewalRound | None = None

    # -- what is held -----------------------------------------------------------------------------

    def held(self) -> tuple[HeldLease, ...]:
        """Leases that are believed to be ours right now, sorted by key."""
        return self._held.believed()

    def get(self, lease_key: str) -> HeldLease | None:
        """One lease that is believed to be ours right now, or None."""
        holding = self._held.find(lease_key)
        if holding is None or holding.valid_until <= self._clock.monotonic():
            return None
        return holding.snapshot()

    def exclusive(self, lease_key: str) -> asyncio.Lock:
        """The lock that orders all writes of this worker to one lease."""
        return self._held.lock(lease_key)

    def add(self, lease: Lease, requested_at: float) -> HeldLease:
        """Hold a lease from now on, under a new token.

        Args:
            lease: the row as we have just written it.
            requested_at: reading of ``Clock.monotonic`` *before* that write was sent.
        """
        return self._held.add(lease, requested_at)

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
            and lease.lease_key not in self._held
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
        holding = self._held.find(lease_key, token)
        if holding is not None:
            self._held.end(holding)

    async def release(self, lease_key: str, token: str) -> bool:
        """Give a lease up in the table, so that another worker can take it at once; then drop it.

        Returns:
            True when the table shows it. False when the token is old, somebody else has the lease,
            or the table could not be written: then it lapses by itself.

        Cancellation: renewing has stopped only if the write was tried.
        """
        async with self.exclusive(lease_key):
            holding = self._held.find(lease_key, token)
            if holding is None:
                return False
            try:
                return await self._evict(holding.lease)
            finally:
                self._held.end(holding)

    async def _evict(self, lease: Lease) -> bool:
        for attempt in range(RELEASE_TRIES):
            try:
                return await self._store.evict(lease)
            except AwsError as error:
                log.warning("Could not release %s: %s", lease.lease_key, error)
                if attempt + 1 < RELEASE_TRIES:
                    await asyncio.sleep(self._retry_pause(attempt))
        self.unreleased += 1
        return False

    def stop_adding(self) -> None:
        """From now on a lease that lapsed is not picked up again (the worker is stopping)."""
        self._held.close()

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
            holding = self._held.find(lease_key, token)
            if holding is None:
                raise LeaseLost(lease_key, "it is not held any more")
            requested_at = self._clock.monotonic()
            if self._held.has_lapsed(holding):
                raise LeaseLost(lease_key, "it was not renewed in time")
            try:
                lease = await self._store.checkpoint(
                    holding.lease, position, child_shard_ids=child_shard_ids
                )
            except LeaseLost as lost:
                self._held.lose(holding, lost.why)
                raise
            self._held.succeed(holding, lease, requested_at)

    async def refresh(self, lease_key: str, token: str) -> HeldLease:
        """Renew one lease now, and so learn what a write without an answer has left in its row.

        Raises:
            LeaseLost: the lease isn't held under that token any more.
            AwsError: nothing is known; try again.
        """
        async with self.exclusive(lease_key):
            holding = self._held.find(lease_key, token)
            if holding is not None and not self._held.has_lapsed(holding):
                requested_at = self._clock.monotonic()
                try:
                    lease = await self._store.renew(holding.lease)
                except LeaseLost as lost:
                    self._held.lose(holding, lost.why)
                    raise
                self._held.succeed(holding, lease, requested_at)
                if not holding.ended:
                    return holding.snapshot()
        raise LeaseLost(lease_key, "it is not held any more")

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
            async with self.exclusive(key):
                outcomes[key] = await self._try(key)

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
        self._add_count("RenewLease.Success", int(success), Level.DETAILED)
        took_s = self._clock.monotonic() - requested_at
        self._add_time("RenewLease.Time", took_s, Level.DETAILED)
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
            log.warning("Could not renew %s: %s", row.lease_key, error)
            return _Try.HOPELESS if isinstance(error, NotFound | Denied) else _Try.REPEAT
        if holding is not None:
            self._held.succeed(holding, lease, requested_at)
        elif self._held.lapsed_row(row.lease_key) is not None:
            self.add(lease, requested_at)
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
        if took_s > self._config.failover_s / 2:
            log.warning("A renewal round took more than half the failover time: %s", outcome)
            self._add_count("SlowRounds", 1, Level.SUMMARY)
        self._add_count("LostLeases", lost, Level.SUMMARY)
        self._add_count("CurrentLeases", len(self._held), Level.SUMMARY)
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
