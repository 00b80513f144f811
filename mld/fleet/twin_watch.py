"""Detects another live process with this worker's id, by the item that both report to.

Of two kcl-mld processes, the younger one gives up its leases, takes nothing and does not lead,
until the other is gone. Beside a process whose start is unknown, both continue, and this one
reports that it is not ready.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.fleet.rules.doubled_id import DoubledId
from kcl_mld.leases.rules.own_rows import TODO
from kcl_mld.signals.model.conditions import Conditions, Reason

if TYPE_CHECKING:
    from kcl_mld.fleet.coordinator_state import CoordinatorStateStore
    from kcl_mld.fleet.model.worker_life import Instance
    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_renewer import LeaseRenewer

log = logging.getLogger("mld.fleet")


class TwinWatch:
    """Decides whether this process has to stand aside, and makes it do so.

    Args:
        instance: this process, as in its reports.
        lasts_s: a process whose item has not changed for this long is dead.
    """

    def __init__(
        self,
        items: CoordinatorStateStore,
        worker_id: str,
        instance: Instance,
        lasts_s: float,
        clock: Clock,
        renewer: LeaseRenewer,
        conditions: Conditions,
    ) -> None:
        self._items = items
        self._worker_id = worker_id
        self._clock = clock
        self._renewer = renewer
        self._conditions = conditions
        self._known = DoubledId(instance, lasts_s)

    @property
    def stands_aside(self) -> bool:
        """This process gives up its leases, and reports nothing."""
        return self._known.stands_aside

    @property
    def may_have_twin(self) -> bool:
        """Another process may hold rows that name this worker."""
        return self._known.may_be_doubled(self._clock.monotonic())

    def reported(self, replaced: WorkerMetrics | None) -> None:
        """Called after a report; ``replaced`` is the previous item, None if unknown."""
        self._becomes(self._known.replaced(replaced, self._clock.monotonic()))

    async def look(self) -> None:
        """While standing aside: check whether the other process is still alive.

        Raises:
            AwsError: unknown.
        """
        item = await self._items.metrics_of(self._worker_id)
        self._becomes(self._known.looked(item, self._clock.monotonic()))

    def _becomes(self, after: DoubledId) -> None:
        before, self._known = self._known, after
        was, is_now = _state(before), _state(after)
        if was == is_now:
            return
        worker = self._worker_id
        if after.stands_aside:
            text = (
                f"Another living process, which began before this one, has the id {worker}: this"
                f" process gives up its leases and takes none until that one is gone. {TODO}"
            )
            log.error("%s", text)
            self._conditions.report(Reason.DOUBLED_ID, text)
            self._renewer.stand_aside("another process with this worker id began before this one")
        elif after.is_beside_unknown:
            text = (
                f"Another living process has the id {worker}: both take each other's leases. {TODO}"
            )
            log.error("%s", text)
            self._conditions.report(Reason.DOUBLED_ID, text)
        elif after.lives:
            log.warning(
                "Another living process, which began after this one, has the id %s and is to give up"
                " its leases. %s",
                worker,
                TODO,
            )
        else:
            log.warning("No other living process has the id %s any more", worker)
        if before.stands_aside and not after.stands_aside:
            self._renewer.go_on()
        if not (after.stands_aside or after.is_beside_unknown):
            self._conditions.clear(Reason.DOUBLED_ID)


def _state(known: DoubledId) -> tuple[bool, bool, bool]:
    return known.stands_aside, known.is_beside_unknown, known.lives
