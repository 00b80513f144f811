"""How a worker gets its leases: what all ways have in common."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mld.kernel.concurrency import Wakeup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mld.errors import AwsError
    from mld.leases.lease_renewer import LeaseRenewer
    from mld.leases.lease_store import LeaseStore
    from mld.signals.conditions import FailingCondition

log = logging.getLogger("mld.leases")


class LeaseAcquisition(ABC):
    """The strategy by which leases come to this worker; what it gets, the renewer holds.

    A worker of a 2.x fleet takes its share
    (:class:`~mld.leases.lease_taker.LeaseTaker`), one of a 3.x fleet finds what a leader
    assigned to it (:class:`~mld.leases.lease_discoverer.LeaseDiscoverer`).

    Args:
        renewer: holds what is gained.
    """

    def __init__(
        self, store: LeaseStore, renewer: LeaseRenewer, failing: FailingCondition | None
    ) -> None:
        self._failing = failing
        #: Why a lease could not be gained in the last look.
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
        """Look now: leases were created."""
        self._woken.wake()

    def stop(self) -> None:
        """Get nothing more; what is under way is undone."""
        self._is_stopping = True
        self._woken.wake()

    async def settled(self) -> None:
        """After :meth:`stop`: wait until what was under way is held or given back."""
        for lease_key in sorted(self._under_way):
            async with self._renewer.exclusive(lease_key):
                pass

    def _report_failing(self, table: str) -> None:
        """Whether what should be gained in a look could be written."""
        if self._failing is None:
            return
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
        """While a lease is being gained: no late write of an earlier holding meets the new one."""
        self._under_way.add(lease_key)
        try:
            async with self._renewer.exclusive(lease_key):
                yield
        finally:
            self._under_way.discard(lease_key)
