"""The leases that this worker holds: heartbeats, checkpoints, and when to stop believing.

Invariant: renewal, checkpoint, release and taking of one lease never overlap (one lock a lease), so
the counter in memory is the one in the table, or one behind it after a lost answer.

On any error the lease in memory stays as it was last known to be stored; a failed checkpoint is
never carried into the table by a later heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mld.decide.backoff import backoff_s
from mld.errors import AwsError, LeaseLost
from mld.services.bounded import for_each
from mld.services.leases.held_leases import HeldLeases
from mld.services.leases.renewal_rounds import RETRY_CAP_S, RETRY_FIRST_S, RenewalRounds

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterable

    from mld.model.config.config import LeaseConfig
    from mld.model.leases.lease import HeldLease, Lease
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.ports.clock import Clock, IdSource
    from mld.ports.metrics import Metrics
    from mld.services.fleet.trouble import Trouble
    from mld.services.leases.lease_store import LeaseStore
    from mld.services.leases.renewal_rounds import RenewalRound

log = logging.getLogger(__name__)

RELEASE_TRIES = 3


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
        trouble: Trouble | None = None,
    ) -> None:
        """Hold nothing yet; ``trouble`` is told whether leases can be renewed."""
        self._store = store
        self._config = config
        self._worker_id = worker_id
        self._clock = clock
        self._rng = rng
        self._held = HeldLeases(config, clock, ids)
        self._rounds = RenewalRounds(store, self._held, config, clock, rng, metrics, trouble)
        #: Woken at every gain and every loss, and when a lease is to be handed over.
        self.changed = self._held.changed
        #: Woken when a lease was not renewed in time.
        self.lapses = self._held.lapses
        self._left_at: dict[str, float] = {}

    # -- what is held -----------------------------------------------------------------------------

    @property
    def unreleased(self) -> int:
        """Leases that were given up but still name us in the table: nobody gets them at once.

        Those that expired since are anybody's, as if they had been released.
        """
        now = self._clock.monotonic()
        expires_s = self._config.failover_s + self._config.taker_interval_s
        return sum(now - at < expires_s for at in self._left_at.values())

    @property
    def expired(self) -> int:
        """Leases that were not renewed in time, and that nobody is known to have taken since."""
        return len(self._held.expired)

    def held(self) -> tuple[HeldLease, ...]:
        """Leases that are believed to be ours right now, sorted by key."""
        return self._held.believed()

    def has_room(self) -> bool:
        """Whether ``maxLeasesForWorker`` allows this worker more leases than it holds.

        Those of finished shards don't count: they wait for their children, who need room.
        """
        unfinished = sum(not held.lease.is_finished for held in self.held())
        return unfinished < self._config.max_leases_for_worker

    def get(self, lease_key: str) -> HeldLease | None:
        """One lease that is believed to be ours right now, or None."""
        holding = self._held.find(lease_key)
        if holding is None or holding.valid_until <= self._clock.monotonic():
            return None
        return holding.snapshot()

    def exclusive(self, lease_key: str) -> asyncio.Lock:
        """The lock that orders all writes of this worker to one lease."""
        return self._held.lock(lease_key)

    def hold(self, lease: Lease, requested_at: float) -> HeldLease:
        """Hold a lease from now on, under a new token.

        Args:
            lease: the row as we have just written it.
            requested_at: reading of ``Clock.monotonic`` *before* that write was sent.
        """
        self._left_at.pop(lease.lease_key, None)
        return self._held.hold(lease, requested_at)

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
                log.warning("Could not resume lease %s: %s", lease.lease_key, error)
            else:
                self.hold(renewed, requested_at)

    # -- letting go -------------------------------------------------------------------------------

    def received(self, lease_key: str, token: str, size_bytes: int) -> None:
        """So many bytes of payloads of a lease went to its child; nothing for an old token."""
        holding = self._held.find(lease_key, token)
        if holding is not None:
            holding.window.received(size_bytes)

    def tell_throughput(self, *, is_told: bool) -> None:
        """Whether the rows say how much their leases carry: in a fleet whose leader assigns them."""
        self._held.tells_throughput = is_told

    async def drop(self, lease_key: str, token: str) -> None:
        """Stop renewing, without a write; the row lapses by itself. Nothing for an old token."""
        holding = self._held.find(lease_key, token)
        if holding is not None:
            self._held.end(holding)

    def lose_all(self, why: str) -> None:
        """Hold nothing any more: there is no table in which a lease could be ours."""
        self._held.lose_all(why)

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
                return await self.give_back(holding.lease)
            except asyncio.CancelledError:
                self._left_at[lease_key] = self._clock.monotonic()
                raise
            finally:
                self._held.end(holding)

    async def delete_finished(self, lease_key: str) -> bool:
        """Delete the row of a finished shard; if we hold it, that ends without being a loss.

        Returns:
            True when the row is gone, by us or before us; False when it is not at SHARD_END.

        Raises:
            AwsError: it is not known whether the row is gone.
        """
        async with self.exclusive(lease_key):
            is_gone = await self._store.delete(lease_key, only_finished=True)
            if is_gone:
                self._held.forget(lease_key)
                holding = self._held.find(lease_key)
                if holding is not None:
                    self._held.end(holding)
            return is_gone

    async def give_back(self, lease: Lease) -> bool:
        """Release a row that names us and is not held, with a few tries; returns as :meth:`release`."""
        for attempt in range(RELEASE_TRIES):
            try:
                return await self._store.evict(lease)
            except AwsError as error:
                log.warning("Could not release lease %s: %s", lease.lease_key, error)
                if attempt + 1 < RELEASE_TRIES:
                    first_s, cap_s = RETRY_FIRST_S, RETRY_CAP_S
                    pause_s = backoff_s(attempt, self._rng, first_s=first_s, cap_s=cap_s)
                    await asyncio.sleep(pause_s)
        self._left_at[lease.lease_key] = self._clock.monotonic()
        return False

    def stop_regaining(self) -> None:
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
        await self._write(
            lease_key,
            token,
            lambda lease, kbps: self._store.checkpoint(
                lease, position, child_shard_ids=child_shard_ids, throughput_kbps=kbps
            ),
        )

    async def _write(
        self,
        lease_key: str,
        token: str,
        write: Callable[[Lease, float | None], Awaitable[Lease]],
    ) -> None:
        async with self.exclusive(lease_key):
            holding = self._held.find(lease_key, token)
            if holding is None:
                raise LeaseLost(lease_key, "it is not held any more")
            requested_at = self._clock.monotonic()
            if self._held.has_lapsed(holding):
                raise LeaseLost(lease_key, "it was not renewed in time")
            # A checkpoint spares a renewal, so it has to say what that would have said.
            measured = self._held.measure(holding)
            try:
                lease = await write(holding.lease, None if measured is None else measured.kbps)
            except LeaseLost as lost:
                self._held.lose(holding, lost.why)
                raise
            self._held.succeed(holding, lease, requested_at, measured)

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
        """Renew what is due until cancelled."""
        await self._rounds.run()

    async def renew_once(self) -> RenewalRound:
        """One round now; see :meth:`RenewalRounds.renew_once`."""
        return await self._rounds.renew_once()
