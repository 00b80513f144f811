"""The leases that this worker holds: how they are gained and let go, and the holder's writes.

They are renewed by :class:`~mld.leases.heartbeat.Heartbeat`.

Invariant: renewal, checkpoint, release and taking of one lease never overlap (one lock a lease), so
the counter in memory is the one in the table, or one behind it after a lost answer.

On any error the lease in memory stays as it was last known to be stored; a failed checkpoint is
never carried into the table by a later heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mld.errors import AwsError, LeaseLost, UnknownOutcome
from mld.kernel.concurrency import for_each
from mld.leases.heartbeat import Heartbeat, retry_pause_s
from mld.leases.held_leases import HeldLeases
from mld.leases.rules.last_look import last_look

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterable

    from mld.config.config import LeaseConfig
    from mld.kernel.model.sequence import ExtendedSequenceNumber
    from mld.kernel.ports import Clock, IdSource
    from mld.leases.lease_store import LeaseStore
    from mld.leases.model.containment import FailureNote, PositionRange
    from mld.leases.model.lease import HeldLease, Lease
    from mld.leases.model.lease_request import LeaseRequest
    from mld.signals.conditions import FailingCondition
    from mld.signals.ports import Metrics

log = logging.getLogger("mld.leases")

RELEASE_TRIES = 3
#: Reads of what tells whether the next owner of a lease has left the fleet.
READ_TRIES = 3


async def _has_not(_worker_id: str) -> bool:
    """Nobody is known to have left the fleet."""
    return False


@dataclass(slots=True)
class Releases:
    """What became of the rows of leases that were given up, as this worker wrote them.

    Attributes:
        released: without an owner.
        handed_over: with another worker as the owner.
    """

    released: int = 0
    handed_over: int = 0

    def note(self, row: Lease) -> None:
        """A row as it is stored after its release."""
        if row.lease_owner is None:
            self.released += 1
        else:
            self.handed_over += 1


class LeaseRenewer:
    """Holds leases until another worker has them or they expire."""

    def __init__(
        self,
        store: LeaseStore,
        config: LeaseConfig,
        worker_id: str,
        clock: Clock,
        rng: random.Random,
        ids: IdSource,
        metrics: Metrics,
        failing: FailingCondition | None = None,
    ) -> None:
        """Hold nothing yet; ``failing`` shows whether leases can be renewed."""
        self._store = store
        self._config = config
        self._worker_id = worker_id
        self._clock = clock
        self._rng = rng
        self._held = HeldLeases(config, clock, ids)
        #: Nothing may be held: another process works under this worker's id.
        self.stands_aside = False
        #: Leases that were released or handed over since the stop began.
        self.releases = Releases()
        #: Whether a worker has left the fleet, by a consistent read: it gets no lease handed over.
        self.has_left: Callable[[str], Awaitable[bool]] = _has_not
        #: Renews what is held; run it beside all else.
        self.heartbeat = Heartbeat(store, self._held, config, clock, rng, metrics, failing)
        #: Woken at every gain and every loss, and when a lease is to be handed over.
        self.changed = self._held.changed
        #: Woken when a lease was not renewed in time.
        self.lapses = self._held.lapses
        #: Cleared while renewals are late: who would take, start or read something waits for it.
        self.in_time = self._held.in_time
        #: Cleared while renewals don't keep up: who would take leases waits for it.
        self.keeps_up = self._held.keeps_up

    # -- what is held -----------------------------------------------------------------------------

    @property
    def unreleased(self) -> int:
        """Leases that were given up but still name this worker in the table, so they have to expire.

        Those that have expired since are not counted.
        """
        return self._held.unreleased

    @property
    def expired(self) -> int:
        """Leases that were not renewed in time, and that nobody is known to have taken since."""
        return len(self._held.expired)

    @property
    def deleted(self) -> tuple[Lease, ...]:
        """Leases that this worker held when their rows were deleted, as it last wrote them, by key."""
        return tuple(lease for _key, lease in sorted(self._held.deleted.items()))

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
        return self._held.get(lease_key)

    def exclusive(self, lease_key: str) -> asyncio.Lock:
        """The lock that orders all writes of this worker to one lease."""
        return self._held.lock(lease_key)

    def hold(self, lease: Lease, requested_at: float) -> HeldLease:
        """Hold a lease from now on, under a new token.

        Args:
            lease: the row as we have just written it.
            requested_at: reading of ``Clock.monotonic`` *before* that write was sent.
        """
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
                renewed = await self._store.gain(lease)
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

    def write_throughput(self, *, is_written: bool) -> None:
        """Whether rows store the throughput of their leases: in a fleet whose leader assigns them."""
        self._held.writes_throughput = is_written

    async def drop(self, lease_key: str, token: str) -> None:
        """Stop renewing, without a write; the row lapses by itself. Nothing for an old token."""
        holding = self._held.find(lease_key, token)
        if holding is not None:
            self._held.end(holding)

    def lose_all(self, why: str) -> None:
        """Hold nothing any more: there is no table in which a lease could be ours."""
        self._held.lose_all(why)

    def stand_aside(self, why: str) -> None:
        """Hold nothing, and let nothing be held until :meth:`go_on`; no row is written."""
        self.stands_aside = True
        self._held.lose_all(why)

    def go_on(self) -> None:
        """Leases may be held again."""
        self.stands_aside = False

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
                self._held.note_unreleased(lease_key)
                raise
            finally:
                self._held.end(holding)

    async def carry_out(
        self, lease_key: str, token: str, request: LeaseRequest, at_s: float
    ) -> bool:
        """Do what a person asks of the holder; nobody reads the shard meanwhile.

        The lease is held anew afterwards, under a new token, or given up if that is the request.
        A request that was withdrawn, or that could not be written, changes nothing else. While it
        is not known whether it was written, the lease is not held; the next round regains it. A
        defect costs the request alone, which is withdrawn.

        Args:
            request: of the row, addressed to us.
            at_s: epoch seconds.

        Returns:
            True when the table shows it; False also when the token is old or the lease is lost.
        """
        async with self.exclusive(lease_key):
            holding = self._held.find(lease_key, token)
            if holding is None or self._held.has_lapsed(holding):
                return False
            requested_at = self._clock.monotonic()
            try:
                lease = await self._store.carry_out(holding.lease, request, at_s)
            except LeaseLost as lost:
                self._held.lose(holding, lost.why)
                return False
            except UnknownOutcome as error:
                # Who went on from the row as it was would undo what may be done.
                log.warning("%s: %s may be carried out: %s", lease_key, request.verb, error)
                self._held.set_aside(holding)
                return False
            except AwsError as error:
                log.warning("%s: cannot carry out %s yet: %s", lease_key, request.verb, error)
                # The next renewal brings the request again.
                self._held.hold(replace(holding.lease, request=None), holding.last_success)
                return False
            except Exception:
                log.exception(
                    "%s: %s failed unexpectedly and is withdrawn; the worker goes on. Ask again, or"
                    " stop the worker before",
                    lease_key,
                    request.verb,
                )
                self._held.set_aside(holding)
                await self._withdraw(lease_key, request)
                return False
            if lease.actual_owner == self._worker_id:
                self._held.hold(lease, requested_at)
            else:  # released, and perhaps taken since
                self._held.end(holding)
            return lease.has_done(request)

    async def _withdraw(self, lease_key: str, request: LeaseRequest) -> None:
        try:
            await self._store.withdraw(lease_key, request)
        except Exception as error:  # noqa: BLE001 - the request stands until it expires
            text = "%s: cannot withdraw %s, which is tried again: %s"
            log.warning(text, lease_key, request.verb, error)

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
                row = await self._store.evict(lease, self._is_known_to_have_left)
            except AwsError as error:
                log.warning("Could not release lease %s: %s", lease.lease_key, error)
                if attempt + 1 < RELEASE_TRIES:
                    await asyncio.sleep(retry_pause_s(attempt, self._rng))
            else:
                if row is None:
                    return False
                self.releases.note(row)
                self._held.forget_unreleased(lease.lease_key)
                return True
        if lease.lease_key not in self._held.expired:  # of such nobody waits for us
            self._held.note_unreleased(lease.lease_key)
        return False

    async def _is_known_to_have_left(self, worker_id: str) -> bool:
        """A read that fails proves nothing."""
        for attempt in range(READ_TRIES):
            try:
                return await self.has_left(worker_id)
            except AwsError as error:
                log.debug("Could not read whether worker %s has left: %s", worker_id, error)
                if attempt + 1 < READ_TRIES:
                    await asyncio.sleep(retry_pause_s(attempt, self._rng))
        return False

    async def release_left(self) -> bool:
        """After the stop: release rows that name this worker although it does not hold them.

        Leaders, and other workers that stop, may have named it before they knew that it stops.

        Returns:
            True while other workers are still about to hand leases over to this one.

        Raises:
            AwsError: the table could not be read.
        """
        scan = await self._store.scan(consistent=True)
        held = {one.lease.lease_key for one in self.held()}
        found = last_look(scan.leases, self._worker_id, held)
        await for_each(found.to_release, self._config.renewal_threads, self._release_row)
        return found.are_coming

    async def _release_row(self, lease: Lease) -> None:
        async with self.exclusive(lease.lease_key):
            await self.give_back(lease)

    def stop_regaining(self) -> None:
        """From now on a lease that lapsed is not picked up again (the worker is stopping)."""
        self._held.close()
        self.releases = Releases()

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

    async def contain(
        self,
        lease_key: str,
        token: str,
        failure: FailureNote,
        skipped: tuple[PositionRange, ...],
    ) -> None:
        """Store what children failed at; otherwise like :meth:`checkpoint`."""
        await self._write(
            lease_key,
            token,
            lambda lease, kbps: self._store.contain(lease, failure, skipped, kbps),
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
            await self.heartbeat.write(holding, requested_at, write)

    async def refresh(self, lease_key: str, token: str) -> HeldLease:
        """Renew one lease now, and so learn what a write without an answer has left in its row.

        Raises:
            LeaseLost: the lease isn't held under that token any more.
            AwsError: nothing is known; try again.
        """
        await self._write(lease_key, token, self._store.renew)
        held = self.get(lease_key)
        if held is None or held.token != token:
            raise LeaseLost(lease_key, "it is not held any more")
        return held
