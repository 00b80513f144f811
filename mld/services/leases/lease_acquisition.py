"""How a worker gets its leases."""

from __future__ import annotations

from typing import Protocol


class LeaseAcquisition(Protocol):
    """The strategy by which leases come to this worker; what it gets, the renewer holds.

    A worker of a 2.x fleet takes its share
    (:class:`~mld.services.leases.lease_taker.LeaseTaker`); in a 3.x fleet a leader assigns it.
    """

    async def run(self) -> None:
        """Get leases until cancelled, or until :meth:`stop`."""
        ...

    def wake(self) -> None:
        """Look now: leases were created."""
        ...

    def stop(self) -> None:
        """Get nothing more; what is under way is undone."""
        ...

    async def settled(self) -> None:
        """After :meth:`stop`: return when nothing is under way any more."""
        ...
