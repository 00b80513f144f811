"""Leader election in a 2.x fleet; the leader does the common work: shard sync and hole audit.

The leader is computed from the owners of the leases. A 3.x fleet has a lock in its table instead
(:class:`~kcl_mld.fleet.leader_lock.LeaderLock`), and its leader also assigns the leases.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError
from kcl_mld.fleet.rules.leader_election import leader_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_scan import TableScan
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import Lease

log = logging.getLogger("mld.fleet")

#: Source: DeterministicShuffleShardSyncLeaderDecider.java:59-60 (3.5.1).
FIRST_ELECTION_S = 60.0
ELECTION_INTERVAL_S = 300.0
#: Age up to which another service's scan is used: a taker scans as often, and elections may be late.
FRESH_S = 20.0


class LeaderElector:
    """Elects when asked and due; for up to five minutes there may be two leaders or none.

    All work of a leader must therefore be safe when done twice or late.

    Args:
        is_read: owners of leases for which it is False don't count, because their stream is gone
            and no worker takes such leases from an owner that is gone, too.
    """

    def __init__(
        self,
        store: LeaseStore,
        worker_id: str,
        clock: Clock,
        is_read: Callable[[Lease], bool],
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._clock = clock
        self._is_read = is_read
        self._elections = 0
        self._due_at = 0.0
        #: Worker id of the leader by the last election; None = no lease has an owner.
        self.leader: str | None = None

    async def is_leader(self) -> bool:
        """True when this worker leads; every worker leads while no lease has an owner.

        A failed scan keeps the old result; before the first election the result is then False.

        Source: DeterministicShuffleShardSyncLeaderDecider.isLeader (3.5.1).
        """
        if self._elections == 0 or self._clock.monotonic() >= self._due_at:
            await self._elect()
        return self._elections > 0 and self.leader in (None, self._worker_id)

    async def _elect(self) -> None:
        try:
            scan = self._fresh_scan() or await self._store.scan()
        except AwsError as error:
            log.warning(
                "Could not determine the leader of the fleet; next try in %.0f s: %s",
                FIRST_ELECTION_S,
                error,
            )
            self._due_at = self._clock.monotonic() + FIRST_ELECTION_S
            return
        owners = [lease.lease_owner for lease in scan.leases if self._is_read(lease)]
        before, self.leader = self.leader, leader_of(owners)
        if before != self.leader or self._elections == 0:
            log.info(
                "Leader of the fleet (does the shard sync): %s",
                self.leader or "every worker, because no lease has an owner",
            )
        pause_s = ELECTION_INTERVAL_S if self._elections else FIRST_ELECTION_S
        self._elections += 1
        self._due_at = self._clock.monotonic() + pause_s

    def _fresh_scan(self) -> TableScan | None:
        """The last scan of another reader, if it is hardly older than one of our own."""
        scan = self._store.last_scan
        if scan is None or self._clock.monotonic() - scan.started_at > FRESH_S:
            return None
        return scan
