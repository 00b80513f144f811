"""Two live processes with one worker id: which of them gives up its leases.

Each report returns the item that it replaces. What another process wrote there since the last
report of this one shows that it is alive. The item that the first report replaces does not: it may
be that of a killed process, and a restart under a fixed id does not wait. The younger process gives
up, and reads the other's item instead of writing its own, until it no longer changes or is gone.
Only the clocks by which the processes noted their starts are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcl_mld.fleet.model.worker_life import Instance
    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics


@dataclass(frozen=True, slots=True)
class Twin:
    """An item that another process wrote under this worker's id.

    Attributes:
        instance: that process; None = it is not named, so it is Java or an older version.
        value: ``lut``.
        seen_at: reading of the monotonic clock at which the item was first seen.
    """

    instance: Instance | None
    value: int
    seen_at: float


@dataclass(frozen=True, slots=True)
class DoubledId:
    """What a process knows of others under its worker's id.

    Attributes:
        mine: this process.
        lasts_s: a process whose item has not changed for this long is not alive; two report periods.
        twin: the last item of another one.
        lives: it was written while this process ran.
        has_reported: this process has written the item before.
    """

    mine: Instance
    lasts_s: float
    twin: Twin | None = None
    lives: bool = False
    has_reported: bool = False

    @property
    def stands_aside(self) -> bool:
        """Another process lives that began before this one."""
        other = None if self.twin is None else self.twin.instance
        if not self.lives or other is None:
            return False
        return (self.mine.began_s, self.mine.id) > (other.began_s, other.id)

    @property
    def is_beside_unknown(self) -> bool:
        """Another process lives, and neither of the two knows which one has to give up."""
        return self.lives and self.twin is not None and self.twin.instance is None

    def may_be_doubled(self, now: float) -> bool:
        """An item of another process was seen a short while ago; it may be that of a dead one."""
        return self.twin is not None and now - self.twin.seen_at <= self.lasts_s

    def replaced(self, item: WorkerMetrics | None, now: float) -> DoubledId:
        """After a report.

        Args:
            item: the item before; None = there was none, or it is unknown.
            now: reading of the monotonic clock.
        """
        if item is None or item.instance == self.mine or self._knows(item):
            return replace(self._later(now), has_reported=True)
        twin = Twin(item.instance, item.updated_at_s, now)
        return replace(self, twin=twin, lives=self.has_reported, has_reported=True)

    def looked(self, item: WorkerMetrics | None, now: float) -> DoubledId:
        """After a read without a write; arguments as :meth:`replaced`, ``item`` is the present one."""
        if item is None:
            return replace(self, lives=False)
        if item.instance == self.mine or self._knows(item):
            return self._later(now)
        return replace(self, twin=Twin(item.instance, item.updated_at_s, now), lives=True)

    def _later(self, now: float) -> DoubledId:
        """No other process has written since."""
        return self if self.may_be_doubled(now) else replace(self, lives=False)

    def _knows(self, item: WorkerMetrics) -> bool:
        """Whether that item has been seen before."""
        found = (item.instance, item.updated_at_s)
        return self.twin is not None and (self.twin.instance, self.twin.value) == found
