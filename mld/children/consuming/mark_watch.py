"""Notices that the checkpoint of a shard waits for one of its children.

The others go on, and what they confirm is not stored: after a restart it would be read again, and
once the records of the one that waits expire they are lost.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.children.model.consumer_status import UNCONFIRMED_S
from kcl_mld.children.rules.loss import RISK
from kcl_mld.kernel.model.text import lasted

if TYPE_CHECKING:
    from kcl_mld.children.consuming.consumer_context import ConsumerContext
    from kcl_mld.children.consuming.shared_checkpoint import SharedCheckpoint

log = logging.getLogger("mld.children")

#: Longest time between two looks, in seconds.
LOOK_S = 5.0


class MarkWatch:
    """The watch of one hold of a lease: one warning and one error each time the mark stands."""

    def __init__(self, context: ConsumerContext, shared: SharedCheckpoint) -> None:
        self._context = context
        self._shared = shared
        self._clock = context.parts.runtime.clock
        self._mark = shared.position
        self._since = self._clock.monotonic()
        self._logged = logging.NOTSET

    @property
    def unconfirmed_s(self) -> float | None:
        """For how long the mark has waited for a child; None while no child owes a confirmation."""
        return self._clock.monotonic() - self._since if self._shared.owes else None

    async def run(self) -> None:
        """Look until cancelled, and store a mark that moved without a confirmation.

        It does where an answer confirms a batch, and where a child without a record of its own reads
        again. It stays ahead of the row where a write failed.
        """
        while True:
            await self._shared.moved.wait(LOOK_S)
            self.look()
            if self._context.shutdown.reason is None:
                await self._shared.settle()

    def look(self) -> None:
        """Note whether the mark moved, and log if it stands for too long."""
        shared, mark = self._shared, self._shared.position
        if mark != self._mark or not shared.owes:
            self._mark, self._since, self._logged = mark, self._clock.monotonic(), logging.NOTSET
            return
        waited_s = self._clock.monotonic() - self._since
        retention_s = self._context.stream_context.existence.retention_s
        if retention_s and waited_s >= RISK * retention_s:
            level, what = logging.ERROR, f"; records expire after {lasted(retention_s)}"
        elif waited_s >= UNCONFIRMED_S:
            level, what = logging.WARNING, ""
        else:
            return
        if level > self._logged:
            self._logged = level
            log.log(
                level,
                "%s: has not confirmed its records behind %s for %s, so the checkpoint of the shard "
                "does not move%s",
                shared.slowest.name,
                mark,
                lasted(waited_s),
                what,
                extra={"shard_id": self._context.shard_id},
            )
