"""The leases that this worker holds: gain, release, and the holder's writes.

:class:`~kcl_mld.leases.heartbeat.Heartbeat` renews them.

Invariant: renewal, checkpoint, release and taking of one lease never overlap (one lock per lease),
so the counter in memory equals the one in the table, or is one behind it after a lost answer.

On any error, the lease in memory stays as it was last known to be stored. A later heartbeat never
stores a failed checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError, LeaseLost, UnknownOutcome
from kcl_mld.kernel.concurrency import for_each
from kcl_mld.leases.heartbeat import Heartbeat, retry_pause_s
from kcl_mld.leases.held_leases import HeldLeases
from kcl_mld.leases.rules.last_look import last_look

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kcl_mld.config.config import LeaseConfig
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.containment import FailureNote, PositionRange
    from kcl_mld.leases.model.lease import HeldLease, Lease
    from kcl_mld.leases.model.lease_request import LeaseRequest
    from kcl_mld.signals.failing_condition import FailingCondition
    from kcl_mld.signals.runtime import Runtime

log = logging.getLogger("mld.leases")

RELEASE_TRIES = 3
#: Reads that show whether the next owner of a lease has left the fleet.
READ_TRIES = 3


@dataclass(slots=True)
class Releases:
    """Rows of leases that were given up, as this worker wrote them.

    Attributes:
        released: rows without an owner.
        handed_over: rows with another worker as the owner.
    """

    released: int = 0
    handed_over: int = 0

    def note(self, row: Lease) -> None:
        """Add a row as stored after its release."""
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
        runtime: Runtime,
        failing: FailingCondition,
        has_left: Callable[[str], Awaitable[bool]],
    ) -> None:
        """Create a renewer without leases.

        Args:
            failing: reports whether leases can be renewed.
            has_left: whether a worker has left the fleet, by a consistent read. No lease is handed
                over to it.
        """
        self._store = store
        self._config = config
        self._worker_id = worker_id
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._has_left = has_left
        self._held = HeldLeases(config, runtime.clock, runtime.ids)
        #: Nothing may be held: another process uses this worker's id.
        self.stands_aside = False
        #: Leases that were released or handed over since the stop began.
        self.releases = Releases()
        #: Renews held leases; its ``run`` must run beside everything else.
        self.heartbeat = Heartbeat(
            store, self._held, config, runtime.clock, runtime.rng, runtime.metrics, failing
        )
        #: Set at every gain and every loss, and when a lease is to be handed over.
        self.changed = self._held.changed
        #: Set when a lease was not renewed in time.
        self.lapses = self._held.lapses
        #: Cleared while renewals are late: takes, starts and reads wait for it.
        self.in_time = self._held.in_time
        #: Cleared while renewals don't keep up: taking leases waits for it.
        self.keeps_up = self._held.keeps_up

    # -- what is held -----------------------------------------------------------------------------

    @property
    def unreleased(self) -> int:
        """Leases that were given up but have to expire, as their rows still name this worker.

        Leases that have expired since are not counted.
        """
        return self._held.unreleased

    @property
    def expired(self) -> int:
        """Number of leases that expired and that no worker is known to have taken."""
        return len(self._held.expired)

    @property
    def deleted(self) -> tuple[Lease, ...]:
        """Leases whose rows were deleted while held, as last written, sorted by key."""
        return tuple(lease for _key, lease in sorted(self._held.deleted.items()))

    def held(self) -> tuple[HeldLease, ...]:
        """Leases that count as held now, sorted by key."""
        return self._held.believed()

    def has_room(self) -> bool:
        """Whether ``maxLeasesForWorker`` allows this worker more leases than it holds.

        Leases of finished shards don't count: they wait for their child shards, which need room.
        """
        unfinished = sum(not held.lease.is_finished for held in self.held())
        return unfinished < self._config.max_leases_for_worker

    def get(self, lease_key: str) -> HeldLease | None:
        """One lease that counts as held now, or None."""
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

        A worker that restarts with the same id continues at once. Rows in a hand-off are left
        alone.

        Args:
            leases: rows of a recent scan; None = scan here.

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
        """Count bytes of payloads sent to the lease's child; ignored for an old token."""
        holding = self._held.find(lease_key, token)
        if holding is not None:
            holding.window.received(size_bytes)

    def write_throughput(self, *, is_written: bool) -> None:
        """Set whether writes store the throughput, as in a fleet with a leader."""
        self._held.writes_throughput = is_written

    async def drop(self, lease_key: str, token: str) -> None:
        """Stop renewing without a write, so that the row expires; does nothing for an old token."""
        holding = self._held.find(lease_key, token)
        if holding is not None:
            self._held.end(holding)

    def lose_all(self, why: str) -> None:
        """End all holdings, because the lease table is gone."""
        self._held.lose_all(why)

    def stand_aside(self, why: str) -> None:
        """End all holdings, and hold nothing until :meth:`go_on`; no row is written."""
        self.stands_aside = True
        self._held.lose_all(why)

    def go_on(self) -> None:
        """Allow holdings again after :meth:`stand_aside`."""
        self.stands_aside = False

    async def release(self, lease_key: str, token: str) -> bool:
        """Give a lease up in the table, so that another worker can take it at once; then drop it.

        Returns:
            True when the row is released. False when the token is old, another worker has the
            lease, or the table could not be written, in which case the lease expires.

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
        """Carry out an operator's request to the holder; the shard is not read meanwhile.

        Afterwards the lease is held under a new token, or given up if that is the request. A
        request that was withdrawn or could not be written changes nothing else. While the outcome
        of the write is unknown, the lease is not held; the next round regains it. A defect affects
        only the request, which is then withdrawn.

        Args:
            request: the request in the row, addressed to this worker.
            at_s: epoch seconds.

        Returns:
            True when the table shows the result; False also when the token is old or the lease is
            lost.
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
                # Continuing from the old row would undo a write that may have happened.
                log.warning("%s: %s may be carried out: %s", lease_key, request.verb, error)
                self._held.set_aside(holding)
                return False
            except AwsError as error:
                log.warning("%s: cannot carry out %s yet: %s", lease_key, request.verb, error)
                # The next renewal reads the request again.
                self._held.hold(replace(holding.lease, request=None), holding.last_success)
                return False
            except Exception:
                log.exception(
                    "%s: %s failed unexpectedly and is withdrawn; the worker continues. Repeat the "
                    "command, or stop the worker first",
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
        """Delete the row of a finished shard; its holding ends without being a loss.

        Returns:
            True when the row is gone, deleted by us or before; False when it is not at SHARD_END.

        Raises:
            AwsError: it is unknown whether the row is gone.
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
        """Release a row that names us but is not held, with a few tries; see :meth:`release`."""
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
        if lease.lease_key not in self._held.expired:  # no other worker waits for this release
            self._held.note_unreleased(lease.lease_key)
        return False

    async def _is_known_to_have_left(self, worker_id: str) -> bool:
        """False also when the read fails, which proves nothing."""
        for attempt in range(READ_TRIES):
            try:
                return await self._has_left(worker_id)
            except AwsError as error:
                log.debug("Could not read whether worker %s has left: %s", worker_id, error)
                if attempt + 1 < READ_TRIES:
                    await asyncio.sleep(retry_pause_s(attempt, self._rng))
        return False

    async def release_left(self) -> bool:
        """After the stop: release rows that name this worker although it does not hold them.

        Leaders, and other workers that stop, may have assigned them before they knew of the stop.

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
        """Stop regaining lapsed leases, because the worker stops."""
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
        """Store failures of child processes; otherwise like :meth:`checkpoint`."""
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
        """Renew one lease now, which shows whether an unanswered write was stored.

        Raises:
            LeaseLost: the lease isn't held under that token any more.
            AwsError: the state is unknown; try again.
        """
        await self._write(lease_key, token, self._store.renew)
        held = self.get(lease_key)
        if held is None or held.token != token:
            raise LeaseLost(lease_key, "it is not held any more")
        return held
