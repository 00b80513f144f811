"""Warns of limits of this machine that several children for each shard would meet."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from kcl_mld.errors import LeaseLost
from kcl_mld.ops.rules.doctor import CheckSeverity, judge_limits, most_held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kcl_mld.children.consuming.stream_context import StreamRegistry
    from kcl_mld.config.config import Config
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.ops.rules.doctor import MachineLimits

log = logging.getLogger("mld.app")

#: Between two checks: the leases of a new application are known only by the next scan, and the
#: memory of children once they run.
PERIOD_S = 60.0


class ChildLimits:
    """Judges the limits as ``kcl-mld doctor`` does, and says each of them once.

    Args:
        child_bytes: memory of the largest child; None = not known.
    """

    def __init__(
        self,
        config: Config,
        store: LeaseStore,
        registry: StreamRegistry,
        limits: MachineLimits,
        child_bytes: Callable[[], int | None],
    ) -> None:
        self._config = config
        self._store = store
        self._registry = registry
        self._limits = limits
        self._child_bytes = child_bytes
        self._logged: set[str] = set()

    async def run(self) -> None:
        """Check at the start, and then every minute."""
        while True:
            self._check()
            await asyncio.sleep(PERIOD_S)

    def _check(self) -> None:
        scan = self._store.last_scan
        streams = self._streams(() if scan is None else scan.leases)
        most = most_held(streams, self._config.leases.max_leases_for_worker)
        for check in judge_limits(self._limits, most, self._child_bytes()):
            if check.severity is CheckSeverity.WARNING and check.subject not in self._logged:
                self._logged.add(check.subject)
                log.warning("Limit of %s: %s; %s", check.subject, check.text, check.todo)

    def _streams(self, leases: Iterable[Lease]) -> Iterable[tuple[int, int]]:
        """Number of shards that are not finished, by their number of children."""
        shards: Counter[int] = Counter()
        for lease in leases:
            try:
                own = self._registry.of(lease).children
            except LeaseLost:
                continue  # of a stream that is not read here
            if not lease.is_finished:
                shards[own or self._config.child.per_shard] += 1
        return [(count, children) for children, count in shards.items()]
