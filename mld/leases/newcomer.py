"""Marks the leases that this process takes while it is a newcomer to a 2.x fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.leases.model.lease_writes import marking_newcomer, without_newcomer
from kcl_mld.leases.model.newcomer import NewcomerMark
from kcl_mld.leases.rules.newcomers import QUIET_S, SOON_S

if TYPE_CHECKING:
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.lease_writes import LeaseWrite


class Newcomer:
    """Whether this process is still a newcomer, and which marks its writes add or remove.

    Args:
        instance: id of this process.
    """

    def __init__(self, worker_id: str, instance: str, clock: Clock) -> None:
        self.instance = instance
        self._worker_id = worker_id
        self._clock = clock
        self._began_at = clock.monotonic()
        self._first_held_at: float | None = None
        self._has_failed = False
        self._failed_key: str | None = None

    @property
    def lived_s(self) -> float:
        """Seconds since the start."""
        return self._clock.monotonic() - self._began_at

    @property
    def is_proven(self) -> bool:
        """Whether it has held a lease for a minute."""
        first = self._first_held_at
        return first is not None and self._clock.monotonic() - first >= SOON_S

    def fail(self, lease_key: str | None) -> None:
        """Note that this process fails.

        Args:
            lease_key: the lease whose child failed; None = the marks stay in all rows.
        """
        self._has_failed, self._failed_key = True, lease_key

    def taking(self, write: LeaseWrite, *, steals: bool) -> LeaseWrite:
        """Add the mark of a newcomer to a take.

        Args:
            steals: the owner is alive, and so is the newcomer whose mark the row may have.
        """
        if not self.is_proven:
            at_s = int(self._clock.service())
            return marking_newcomer(write, NewcomerMark(self.instance, self._worker_id, at_s))
        return without_newcomer(write) if steals else write

    def is_false(self, lease: Lease) -> bool:
        """Whether a row has a mark of this process and is another worker's.

        Java, and versions that know no marks, leave it there when they take the lease, as if this
        process had failed.
        """
        mark = lease.newcomer
        is_mine = mark is not None and mark.instance == self.instance
        return is_mine and lease.lease_owner not in (None, self._worker_id)

    def holding(self, write: LeaseWrite) -> LeaseWrite:
        """Let any other write of the holder remove a mark that no longer applies."""
        if self._first_held_at is None:
            self._first_held_at = self._clock.monotonic()
        mark = write.before.newcomer
        if mark is None:
            return write
        if mark.instance != self.instance:
            is_old = self._clock.service() - mark.at_s > QUIET_S
            return without_newcomer(write) if is_old else write
        if self.is_proven:
            return without_newcomer(write)
        releases = write.after.lease_owner is None
        failed_here = self._has_failed and self._failed_key in (None, write.before.lease_key)
        return without_newcomer(write) if releases and not failed_here else write
