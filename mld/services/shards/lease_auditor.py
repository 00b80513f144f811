"""Looks at the leases of a stream and says whether a shard sync is needed.

Source: PeriodicShardSyncManager.java (KCL 3.5.1): 344-523.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.decide.shards.audit import (
    HoleTracker,
    Standstill,
    abandoned,
    active,
    fill_hash_ranges,
    first_hole,
    is_overdue,
)
from mld.errors import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.model.config.config import Config
    from mld.model.leases.lease import Lease
    from mld.model.streams.shard import HashRange
    from mld.ports.clock import Clock
    from mld.services.leases.lease_store import LeaseStore
    from mld.services.shards.stream_existence import StreamSource

log = logging.getLogger(__name__)


class LeaseAuditor:
    """Remembers what earlier looks saw, as the leader or as one who waits for the leader."""

    def __init__(
        self,
        store: LeaseStore,
        source: StreamSource,
        config: Config,
        clock: Clock,
        *,
        on_abandoned: Callable[[Lease], None] | None = None,
    ) -> None:
        """Audit one stream; the arguments are those of ``ShardSyncer``."""
        self._store = store
        self._detector = source.detector
        self._stream = source.stream
        self._config = config.shards
        self._stands_still_s = 2 * max(config.leases.failover_s, config.shards.audit_interval_s)
        self._clock = clock
        self._on_abandoned = on_abandoned
        self._tracker = HoleTracker()
        self._standstills: dict[str, Standstill] = {}
        #: Keys of leases that were waited for since the last look.
        self._awaited: set[str] = set()
        #: Key of a lease that is waited for -> looks in a row that did not find it.
        self._missed: dict[str, int] = {}

    def expect(self, lease_key: str) -> None:
        """A shard can't end before this lease is there; to be told again and again.

        No hole shows that it is missing: the shard that waits for it covers the keys of its
        children.
        """
        self._awaited.add(lease_key)

    @property
    def sees_hole(self) -> bool:
        """True when the last look found keys that no active lease covers."""
        return self._tracker.count > 0

    def watch(self, leases: tuple[Lease, ...]) -> str | None:
        """Why a worker that does not lead has to sync, or None; asks nobody.

        A hole counts on for the day on which this worker leads. A stream without any lease is left
        to the leader: they may have been deleted on purpose, as those of a former stream.

        Args:
            leases: all rows of the stream, () where no recent ones are known.
        """
        self._standstills = {}
        if not leases:
            return (
                None  # what was counted still counts: a busy worker has no recent rows now and then
            )
        checked = active(leases)
        spans = [lease.hash_range for lease in checked if lease.hash_range is not None]
        if len(spans) < len(checked):
            self._tracker = HoleTracker()
            return None
        hole = first_hole(spans)
        self._tracker = self._tracker.see(hole)
        awaited = self._overdue(leases)
        if hole is None or not is_overdue(self._tracker.count, self._config.audit_confidence):
            return awaited
        return f"{self._uncovered()} and not mended by the leader"

    async def look(self, leases: tuple[Lease, ...]) -> str | None:
        """Why a sync is needed now, or None.

        No lease at all needs one at once; a hole when it was seen unchanged
        ``audit_confidence`` times in a row. Finished leases without a living owner are reported to
        ``on_abandoned``.

        Args:
            leases: all rows of the stream.

        Raises:
            AwsError: the shards, needed for missing hash ranges, could not be listed.
        """
        self._report_abandoned(leases)
        if not leases:
            self._tracker = HoleTracker()
            return "there are none"
        hole = first_hole(await self._active_ranges(leases))
        self._tracker = self._tracker.see(hole)
        awaited = self._overdue(leases)
        if hole is None:
            return awaited
        log.info("Leases of %s: %s", self._stream.name, self._uncovered())
        if self._tracker.count < self._config.audit_confidence:
            return awaited
        return self._uncovered()

    def _uncovered(self) -> str:
        seen = self._tracker
        return f"no lease covers the hash keys {seen.hole}, seen {seen.count} times"

    def _overdue(self, leases: tuple[Lease, ...]) -> str | None:
        """Why a lease that a shard of this worker waits for has to be created, or None."""
        missing, self._awaited = self._awaited - {one.lease_key for one in leases}, set()
        self._missed = {key: self._missed.get(key, 0) + 1 for key in sorted(missing)}
        for key, count in self._missed.items():
            if is_overdue(count, self._config.audit_confidence):
                return (
                    f"{key} is missing, and the end of a shard has waited for it at {count} looks"
                )
        return None

    async def _active_ranges(self, leases: tuple[Lease, ...]) -> list[HashRange]:
        """Hash ranges of the active leases; those that rows of old versions lack are filled in."""
        checked = active(leases)
        if any(lease.hash_range is None for lease in checked):
            shards = await self._detector.list_shards()
            checked, filled = fill_hash_ranges(checked, shards)
            for lease in filled:
                await self._write_hash_range(lease)
        return [lease.hash_range for lease in checked if lease.hash_range is not None]

    async def _write_hash_range(self, lease: Lease) -> None:
        if lease.hash_range is None:
            return
        try:
            await self._store.write_hash_range(lease.lease_key, lease.hash_range)
        except AwsError as error:
            log.warning(
                "The hash range of the lease %s could not be stored: %s", lease.lease_key, error
            )

    def _report_abandoned(self, leases: tuple[Lease, ...]) -> None:
        if self._on_abandoned is None:
            return
        found, self._standstills = abandoned(
            leases, self._standstills, self._clock.monotonic(), self._stands_still_s
        )
        for lease in found:
            self._on_abandoned(lease)
