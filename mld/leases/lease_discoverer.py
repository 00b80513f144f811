"""Finds the leases that a leader has assigned to this worker, and holds them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError, LeaseLost, MalformedData
from kcl_mld.kernel.concurrency import for_each
from kcl_mld.kernel.model.text import counted
from kcl_mld.leases.lease_acquisition import LeaseAcquisition
from kcl_mld.leases.rules.discovery import (
    WATCH_S,
    Informed,
    Ownership,
    Watched,
    is_small,
    judge_found,
    look_pause_s,
    may_ask_index,
    unsettled_pause_s,
    vanished,
    watch,
    watches,
)
from kcl_mld.signals.model.metrics import DISCOVERY, NUM_LEASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kcl_mld.config.config import LeaseConfig
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_renewer import LeaseRenewer
    from kcl_mld.leases.lease_scan import TableScan
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import HeldLease, Lease
    from kcl_mld.signals.failing_condition import FailingCondition
    from kcl_mld.signals.ports import Metrics

log = logging.getLogger("mld.leases")

#: A scan made for another purpose is reused if it is no older than this share of the pause.
FRESH = 0.75


@dataclass(frozen=True, slots=True)
class DiscoveryOutcome:
    """The result of one discovery cycle; ``str()`` is one sentence.

    Attributes:
        gained: lease keys that are held now.
        coming: lease keys that their old owners have not released yet.
        error: why the assigned leases could not be listed.
    """

    gained: tuple[str, ...] = ()
    coming: tuple[str, ...] = ()
    error: str | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"Could not find out which leases are assigned to this worker: {self.error}"
        gained = counted(len(self.gained), "assigned lease", "assigned leases")
        return f"Took over {gained}, waiting for {len(self.coming)}"


class LeaseDiscoverer(LeaseAcquisition):
    """The :class:`~kcl_mld.leases.lease_acquisition.LeaseAcquisition` of a 3.x fleet.

    A lease that is found is renewed at once, so that no leader sees an unchanged counter. A held
    lease that is *not* listed any more is checked at once: another worker may be its next owner,
    and its next renewal would show that much later.

    Args:
        renewer: holds the leases that are found.
        config: section ``leases``.
        metrics: gets Java's ``LeaseDiscovery`` data.
        is_read: leases for which it is False are ignored: their streams are no longer read.
        find_informed: how this worker learns, other than by its scans, that it got a lease.
    """

    def __init__(  # noqa: PLR0913 - what surrounds it
        self,
        store: LeaseStore,
        renewer: LeaseRenewer,
        config: LeaseConfig,
        worker_id: str,
        clock: Clock,
        metrics: Metrics,
        is_read: Callable[[Lease], bool],
        *,
        failing: FailingCondition,
        find_informed: Callable[[], Informed],
    ) -> None:
        super().__init__(store, renewer, failing)
        self._find_informed = find_informed
        self._config = config
        self._worker_id = worker_id
        self._clock = clock
        self._metrics = metrics
        self._is_read = is_read
        #: Keys of leases that are being handed over to this worker.
        self._coming: set[str] = set()
        #: Lease key -> token under which the list of the table named this worker.
        self._seen: dict[str, str] = {}
        #: Leases of other workers by key, while the table is scanned.
        self._watched: dict[str, Watched] = {}
        self._changed_at = clock.monotonic()
        self._is_asked = False
        self._by_index = False
        #: The last cycle reused a scan of this worker's leader, which has more information.
        self._is_spared = False

    def wake(self) -> None:
        """Start the next cycle now, because leases were created."""
        self._is_asked = True
        super().wake()

    def expect(self, lease_key: str) -> None:
        """This worker, as the leader, has assigned a lease to itself, or seen that it got one."""
        self._coming.add(lease_key)
        self._changed_at = self._clock.monotonic()
        self._woken.wake()

    async def run(self) -> None:
        """Run a cycle at once, then at pauses and when woken, until stopped or cancelled.

        While this runs, and after :meth:`stop` until it is cancelled, renewals store the throughput
        of held leases for the leader.
        """
        self._renewer.write_throughput(is_written=True)
        try:
            await self._run()
        finally:
            self._renewer.write_throughput(is_written=False)

    async def _run(self) -> None:
        look_at = self._clock.monotonic()
        while not self._is_stopping:
            try:
                if self._is_asked or self._clock.monotonic() >= look_at:
                    outcome = await self.look_once()
                    log.log(_level(outcome), "%s", outcome)
                    look_at = self._clock.monotonic() + self._pause_s()
                else:
                    await self._take_up(sorted(self._coming))
            except Exception:
                # A defect in one cycle must not end the discovery.
                log.exception("Looking for assigned leases failed unexpectedly")
                look_at = self._clock.monotonic() + self._config.renewal_interval_s
            pause_s = look_at - self._clock.monotonic()
            if self._coming:
                pause_s = min(pause_s, WATCH_S)
            if not self._is_stopping:
                await self._woken.wait(pause_s)

    async def look_once(self) -> DiscoveryOutcome:
        """List the leases that name this worker, hold the new ones and check the missing ones."""
        started_at = self._clock.monotonic()
        is_asked, self._is_asked = self._is_asked, False
        try:
            listed = await self._listed(may_be_old=not is_asked)
        except AwsError as error:
            self._metrics.add(DISCOVERY.success, 0)
            return DiscoveryOutcome(error=str(error))
        held = {one.lease.lease_key: one for one in self._renewer.held()}
        tokens = {key: one.token for key, one in held.items()}
        await self._look_after(held[key] for key in vanished(tokens, listed, self._seen))
        self._seen = {key: tokens[key] for key in listed if key in tokens}
        self._refusal = None
        gained = await self._take_up(sorted((listed | self._coming) - tokens.keys()))
        self._report_failing(self._config.table_name)
        self._metrics.call(DISCOVERY, self._clock.monotonic() - started_at, succeeded=True)
        self._metrics.add(NUM_LEASES, len(listed))
        return DiscoveryOutcome(tuple(gained), tuple(sorted(self._coming)))

    async def _listed(self, *, may_be_old: bool) -> set[str]:
        """Keys of the rows that name this worker; the list may be slightly out of date.

        Comes from a recent scan, else from the index. If the table is small or has no index, it is
        scanned.
        """
        scan = self._store.last_scan
        now = self._clock.monotonic()
        is_fresh = scan is not None and now - scan.started_at <= self._pause_s() * FRESH
        self._is_spared = is_fresh and may_be_old
        if scan is None or not self._is_spared:
            if scan is not None and self._may_ask_index(scan):
                listed = await self._store.owner_index.keys_of(self._worker_id)
                if listed is not None:
                    self._by_index, self._watched = True, {}
                    return set(listed)
            scan = await self._store.scan()
        self._by_index = False
        self._watched = watch(self._watched, scan.leases, self._worker_id, scan.finished_at)
        return {one.lease_key for one in scan.leases if one.lease_owner == self._worker_id}

    def _may_ask_index(self, scan: TableScan) -> bool:
        """Whether the index costs less than a scan, by what the last scan showed."""
        is_announced = self._find_informed() is Informed.ANNOUNCED
        return may_ask_index(len(scan.leases)) or (is_announced and not is_small(scan.items))

    async def _look_after(self, missing: Iterable[HeldLease]) -> None:
        """Renew held leases that are no longer listed; this shows a hand-off or a loss."""

        async def renew(held: HeldLease) -> None:
            if held.lease.is_handed_over:
                return
            self._changed_at = self._clock.monotonic()
            try:
                await self._renewer.refresh(held.lease.lease_key, held.token)
            except (AwsError, LeaseLost) as error:
                log.debug("A lease is not listed as ours any more: %s", error)

        await for_each(missing, self._config.renewal_threads, renew)

    async def _take_up(self, lease_keys: Iterable[str]) -> list[str]:
        """Hold those of the leases that are ours; returns their keys."""
        gained: list[str] = []
        # As in a cycle of the taker: no more than can be renewed.
        ends_at = self._clock.monotonic() + self._config.renewal_interval_s

        async def take_up(lease_key: str) -> None:
            await self._renewer.keeps_up.wait()
            if self._clock.monotonic() >= ends_at:
                self._changed_at = self._clock.monotonic()  # the next cycle comes soon
                return
            if not self._may_hold() or self._store.conflict is not None:
                return
            try:
                async with self._alone(lease_key):
                    if await self._take_up_alone(lease_key):
                        gained.append(lease_key)
            except Exception:
                # A defect in one lease must not stop the others, whose writes may have happened.
                log.exception("Taking over lease %s failed unexpectedly", lease_key)

        await for_each(lease_keys, self._config.renewal_threads, take_up)
        if gained:
            self._changed_at = self._clock.monotonic()
        return sorted(gained)

    async def _take_up_alone(self, lease_key: str) -> bool:
        if self._renewer.get(lease_key) is not None:
            self._coming.discard(lease_key)
            return False
        row = await self._row_if_ours(lease_key)
        if row is None:
            return False
        requested_at = self._clock.monotonic()
        try:
            renewed = await self._store.gain(row)
        except (AwsError, LeaseLost) as error:
            log.warning("Could not take over the assigned lease %s: %s", lease_key, error)
            if isinstance(error, AwsError):
                self._refusal = error
            return False
        if self._renewer.stands_aside:
            return False  # the row belongs to the other process
        if self._is_stopping:
            await self._renewer.give_back(renewed)
            return False
        self._renewer.hold(renewed, requested_at)
        return True

    async def _row_if_ours(self, lease_key: str) -> Lease | None:
        """The row of a lease that may be held now; notes leases that are in a hand-off."""
        try:
            row = await self._store.get(lease_key, consistent=True)
        except (AwsError, MalformedData) as error:
            log.debug("Could not read lease %s: %s", lease_key, error)
            return None
        found = judge_found(row, self._worker_id)
        if found is not Ownership.COMING:
            self._coming.discard(lease_key)
        elif lease_key not in self._coming:
            self._coming.add(lease_key)
            self._changed_at = self._clock.monotonic()
        is_ours = found is Ownership.OURS and row is not None and self._is_read(row)
        return row if is_ours else None

    def _pause_s(self) -> float:
        now, failover_s = self._clock.monotonic(), self._config.failover_s
        informed, scan = self._find_informed(), self._store.last_scan
        quiet_s = now - self._changed_at
        pause_s = look_pause_s(quiet_s, failover_s, by_index=self._by_index, informed=informed)
        if not watches(0 if scan is None else scan.items, informed):
            return pause_s
        soon_s = unsettled_pause_s(self._watched.values(), now, failover_s)
        return pause_s if soon_s is None or self._is_spared else min(pause_s, soon_s)


def _level(outcome: DiscoveryOutcome) -> int:
    if outcome.error is not None:
        return logging.WARNING
    return logging.INFO if outcome.gained else logging.DEBUG
