"""What services ask of the one who leads, and what is asked of a service that only the leader runs.

Two ways to lead: a 2.x fleet computes its leader from the owners of its leases
(:class:`~mld.services.leases.leader_elector.LeaderElector`), a 3.x fleet has a lock in its table
(:class:`~mld.services.fleet.leader_lock.LeaderLock`). Whoever leads syncs shards, audits and cleans
up; in a 3.x fleet it assigns the leases, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.services.leases.lease_scan import TableScan


class Leadership(Protocol):
    """One way of finding out, or settling, who leads."""

    async def is_leader(self) -> bool:
        """Whether this worker leads, as far as it can know now; cheap enough to ask before a write.

        It asks nobody where a lock decides: a lock is believed until the leader's own clock says
        that others may have taken it. Two workers may nevertheless say yes for a moment, so all
        that a leader does is conditional, or may be done twice.
        """
        ...

    async def release(self) -> None:
        """Stop leading now and let another worker lead; nothing where this worker does not lead.

        Where a lock decides, this worker does not try for it again for a while. Does not raise for
        a failing AWS call: the lock then expires.
        """
        ...

    async def run(self) -> None:
        """Do what leadership takes until cancelled; gives it up when it ends, however it ends."""
        ...


class LeaderDuty(Protocol):
    """What only the leader of a 3.x fleet does: assigning leases.

    Runs beside :meth:`Leadership.run` for as long as the fleet's leases are assigned. If it ends or
    fails, the lock is given up and the worker stops: nobody leads who does not assign.
    """

    async def run(self, leadership: Leadership) -> None:
        """Assign whenever this worker leads, until cancelled.

        It asks ``leadership.is_leader()`` before each run and before it writes, calls
        ``leadership.release()`` after three failed runs in a row, and does not raise for a failing
        AWS call.
        """
        ...

    def wake(self) -> None:
        """Look now: leases were created, released or orphaned."""
        ...

    def observe(self, scan: TableScan) -> None:
        """A look at the table by a worker that does not lead yet: remember its counters.

        A leader that begins without memory needs a failover time until it can tell which leases
        have expired.
        """
        ...

    def waiting(self) -> Mapping[str, float]:
        """Worker id -> seconds that it has to run until it gets leases; of newcomers that wait.

        Empty where this worker does not lead.
        """
        ...

    async def name_successors(self) -> frozenset[str]:
        """This worker stops, leader or not: hand what it holds to other workers; those keys.

        Does not raise for a failing AWS call.
        """
        ...
