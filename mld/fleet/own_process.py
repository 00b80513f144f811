"""This process as one life of its worker, and the item that it leaves when it fails.

Only in a fleet whose leases are assigned, and whose metrics are in the lease table: in a fleet of
2.x an item that is not a lease stops Java workers from listing the table, and no worker would read
it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError, ChildFailed
from kcl_mld.fleet.model.worker_life import FailedLife, Instance
from kcl_mld.leases.rules.newcomers import MOST_WAIT_S, SOON_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.fleet.coordinator_state import CoordinatorStateStore
    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
    from kcl_mld.kernel.ports import Clock, IdSource
    from kcl_mld.leases.model.lease import Lease

log = logging.getLogger("mld.fleet")

#: Longest life that may have been a crash, whatever the leader's wait was.
_SHORT_S = SOON_S + MOST_WAIT_S


class OwnProcess:
    """Records how processes of this worker's id ended.

    Args:
        is_assigned: whether a leader currently assigns the leases.
    """

    def __init__(
        self,
        items: CoordinatorStateStore,
        worker_id: str,
        clock: Clock,
        ids: IdSource,
        is_assigned: Callable[[], bool],
    ) -> None:
        self._items = items
        self._worker_id = worker_id
        self._clock = clock
        self._is_assigned = is_assigned
        #: As its reports have it.
        self.instance = Instance(ids.new_id(), int(clock.service()))
        self._began_at = clock.monotonic()
        self._failed: FailedLife | None = None
        self._has_reported = False

    def _may_note(self) -> bool:
        layout = self._items.layout
        return self._is_assigned() and layout.metrics == layout.leases

    async def reported(self, replaced: WorkerMetrics | None) -> None:
        """Called after a report; the first one may have replaced that of a process that was killed.

        A process that ended normally, or by an error, has deleted its item.

        Args:
            replaced: the previous item.
        """
        is_first, self._has_reported = not self._has_reported, True
        if not is_first or replaced is None or replaced.instance is None:
            return
        before = replaced.instance
        lived_s = replaced.updated_at_s - before.began_s
        if before.id == self.instance.id or lived_s > _SHORT_S:
            return
        life = FailedLife(
            instance=before.id,
            worker_id=self._worker_id,
            lived_s=max(0, lived_s),
            failed_at_s=int(self._clock.service()),
            why="it ended without a word",
        )
        await self._note(life)

    def fail(self, error: BaseException, lease: Lease | None) -> None:
        """This process ends by an error; :meth:`ended` stores it in the table.

        Args:
            lease: at which it failed, with its checkpoint; None = none.
        """
        lived_s = int(self._clock.monotonic() - self._began_at)
        if lease is None and lived_s > _SHORT_S:
            return
        self._failed = FailedLife(
            instance=self.instance.id,
            worker_id=self._worker_id,
            lived_s=lived_s,
            failed_at_s=int(self._clock.service()),
            why=_in_words(error),
            lease_key=None if lease is None else lease.lease_key,
            position=None if lease is None else str(lease.checkpoint),
        )

    async def ended(self) -> None:
        """Called before this process deletes its worker's item."""
        if self._failed is not None:
            await self._note(self._failed)

    async def _note(self, life: FailedLife) -> None:
        if not self._may_note():
            return
        try:
            await self._items.note_failed_life(life)
        except AwsError as error:
            log.info("Could not note in the table that a process of this worker failed: %s", error)


def _in_words(error: BaseException) -> str:
    """The error without texts of a child or a service."""
    if not isinstance(error, ChildFailed):
        return type(error).__name__
    status = "" if error.child_exit_code is None else f" (exit status {error.child_exit_code})"
    return f"its child failed {error.when}{status}"
