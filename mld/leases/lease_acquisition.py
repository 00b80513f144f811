"""What all strategies of getting leases have in common."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kcl_mld.kernel.concurrency import Wakeup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kcl_mld.errors import AwsError
    from kcl_mld.leases.lease_renewer import LeaseRenewer
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.signals.failing_condition import FailingCondition

log = logging.getLogger("mld.leases")


class LeaseAcquisition(ABC):
    """The strategy by which a worker gets leases; the renewer then holds them.

    A worker of a 2.x fleet takes its share (:class:`~kcl_mld.leases.lease_taker.LeaseTaker`). A worker
    of a 3.x fleet finds the leases that the leader assigned to it
    (:class:`~kcl_mld.leases.lease_discoverer.LeaseDiscoverer`).

    Args:
        renewer: holds the leases.
    """

    def __init__(self, store: LeaseStore, renewer: LeaseRenewer, failing: FailingCondition) -> None:
        self._failing = failing
        #: Why a lease could not be gained in the last cycle.
        self._refusal: AwsError | None = None
        self._store = store
        self._renewer = renewer
        self._woken = Wakeup()
        self._is_stopping = False
        self._under_way: set[str] = set()

    @abstractmethod
    async def run(self) -> None:
        """Get leases until cancelled, or until :meth:`stop`."""

    def wake(self) -> None:
        """Start the next cycle now, because leases were created."""
        self._woken.wake()

    def stop(self) -> None:
        """Gain no more leases; a gain in progress is undone."""
        self._is_stopping = True
        self._woken.wake()

    async def settled(self) -> None:
        """After :meth:`stop`: wait until gains in progress are held or given back."""
        for lease_key in sorted(self._under_way):
            async with self._renewer.exclusive(lease_key):
                pass

    def _report_failing(self, table: str) -> None:
        """Report whether the leases of a cycle could be written."""
        if self._refusal is None:
            self._failing.resolved()
        else:
            self._failing.failed(
                f"Leases of table {table} can't be taken by this worker", self._refusal
            )

    def _may_hold(self) -> bool:
        return not self._is_stopping and not self._renewer.stands_aside

    @asynccontextmanager
    async def _alone(self, lease_key: str) -> AsyncIterator[None]:
        """Hold the lease's lock during a gain, so that no late write of ours interferes."""
        self._under_way.add(lease_key)
        try:
            async with self._renewer.exclusive(lease_key):
                yield
        finally:
            self._under_way.discard(lease_key)
