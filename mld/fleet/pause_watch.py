"""Logs paused leases that are read, might be read, or can't have an owner."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.fleet.model.worker_metrics import honoring
from kcl_mld.leases.rules.pausing import is_paused, named, read_despite_pause

if TYPE_CHECKING:
    from collections.abc import Collection

    from kcl_mld.fleet.rules.assignment.looks import FleetView

log = logging.getLogger("mld.fleet")


class PauseWatch:
    """The logged state of pauses of one worker; each change is logged once."""

    def __init__(self) -> None:
        self._read: dict[str, str] = {}
        self._left: frozenset[str] = frozenset()

    def looked(self, view: FleetView) -> None:
        """Check a view of the fleet, by a leader or another worker."""
        if view.metrics is None:
            return
        read = read_despite_pause(view.leases, honoring(view.metrics), view.epoch_s)
        for key, owner in sorted(read.items() - self._read.items()):
            log.warning(
                "Lease %s is paused, but %s has it, which is not known to honor that and may read it: "
                "stop that worker, or end the pause with kcl-mld leases resume",
                key,
                owner,
            )
        self._read = read

    def left(self, view: FleetView, keys: Collection[str]) -> None:
        """As the leader: log paused leases that get no owner.

        Reason: no worker that honors a pause can own them.
        """
        if new := frozenset(keys) - self._left:
            leases = [lease for lease in view.leases if lease.lease_key in new]
            log.error(
                "No owner for %s before the pause is over: no worker that honors a pause can have more "
                "leases",
                named(leases),
            )
        self._left = frozenset(keys)

    def leaving(self, view: FleetView, worker_id: str, named_keys: Collection[str]) -> None:
        """At a stop: log paused leases that are released without a next owner."""
        known = honoring(view.metrics or ())
        others = {one.worker_id for one in view.metrics or ()} - {worker_id}
        leases = [
            lease
            for lease in view.leases
            if lease.actual_owner == worker_id
            and not lease.is_finished
            and lease.lease_key not in named_keys
            and is_paused(lease, view.epoch_s)
        ]
        if leases and others - known:
            log.error(
                "Released without a next owner, as no worker that is known to honor a pause can have more: "
                "%s; they may be read by %s",
                named(leases),
                ", ".join(sorted(others - known)),
            )
