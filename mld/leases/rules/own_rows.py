"""Another living process under this worker's id, by the rows of a 2.x fleet alone.

Nothing else in such a fleet says which process writes: Java 2.x can't list a table with other items
than leases. But a row that names this worker moves by its own writes only, so a counter that is ahead
of the last one, although that was answered, was raised by another process with the same id: of
kcl-mld, or of Java.

A write of this process that got no answer may be what moved the row, so nothing is learned of that
row until the next one is answered. And moves are counted: each is written with a condition on the
counter, so none of ours comes late, but a person may have changed a row by hand.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.leases.model.lease import Lease

#: What a person does.
TODO = "Give each process an id of its own: remove the line workerId, or write workerIdPrefix"
#: So many moves, over more than a failover time, show that the other process lives.
ENOUGH_MOVES = 3
#: So many failover times after the last move it is thought to be gone: a 2.x worker looks at the table
#: every two of them.
GONE_FAILOVERS = 5


class OwnRows:
    """What this process knows of the rows that name its worker.

    Args:
        failover_s: > 0.
    """

    def __init__(self, worker_id: str, failover_s: float) -> None:
        self._worker_id = worker_id
        self._failover_s = failover_s
        #: The counter of each row as far as it is explained; None = a write of ours has no answer.
        self._counters: dict[str, int | None] = {}
        self._moves = 0
        self._first_at = self._last_at = -math.inf
        self._last_key = ""

    def sent(self, lease_key: str) -> int | None:
        """A write of this process begins.

        Returns:
            What :meth:`refused` wants if it was not done.
        """
        known = self._counters.get(lease_key)
        self._counters[lease_key] = None
        return known

    def refused(self, lease_key: str, known: int | None) -> None:
        """It was not done, as the counter had moved; so no earlier write can come late either.

        Args:
            known: what :meth:`sent` returned.
        """
        if known is None:
            self._counters.pop(lease_key, None)  # a scan may have shown another owner meanwhile
        else:
            self._counters[lease_key] = known

    def answered(self, lease: Lease) -> None:
        """It was done, and left the row so."""
        if self._is_own(lease):
            self._counters[lease.lease_key] = lease.lease_counter
        else:
            self._counters.pop(lease.lease_key, None)

    def looked(self, leases: Iterable[Lease], now: float) -> None:
        """After a scan of the whole table, which may be older than the last writes.

        Args:
            now: reading of the monotonic clock.
        """
        rows = {lease.lease_key: lease for lease in leases}
        self._counters = {key: one for key, one in self._counters.items() if key in rows}
        for lease in rows.values():
            self.found(lease, now)

    def found(self, lease: Lease, now: float) -> None:
        """A row as it is stored.

        Args:
            now: reading of the monotonic clock.
        """
        key, counter = lease.lease_key, lease.lease_counter
        if not self._is_own(lease):
            self._counters.pop(key, None)
            return
        known = self._counters.setdefault(key, counter)
        if known is None or counter <= known:
            return
        self._counters[key] = counter
        if self._is_over(now):
            self._moves, self._first_at = 0, now
        self._moves += 1
        self._last_at, self._last_key = now, key

    def moved_by_others(self, now: float) -> str | None:
        """Key of the last lease whose row another process has written; None = there is none.

        Args:
            now: reading of the monotonic clock.
        """
        lasted_s = self._last_at - self._first_at
        if self._is_over(now) or self._moves < ENOUGH_MOVES or lasted_s < self._failover_s:
            return None
        return self._last_key

    def _is_own(self, lease: Lease) -> bool:
        return lease.lease_owner == self._worker_id and lease.checkpoint_owner is None

    def _is_over(self, now: float) -> bool:
        return now - self._last_at > GONE_FAILOVERS * self._failover_s
