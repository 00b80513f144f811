"""A fleet of looks that are made up, in place of what ``open_fleet`` opens."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import NotFound
from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcl_mld.leases.model.lease import Lease

PROPERTIES = """executableName=app.py
applicationName=app
streamName=s
regionName=us-east-1
AwsCredentialsProvider=EnvironmentVariableCredentialsProvider
failoverTimeMillis=100
"""
#: Epoch seconds of the first look.
BEGINS_S = 1_700_000_000.0


def snapshot(at_s: float, *leases: Lease, took_s: float = 0.1, **fields: Any) -> FleetSnapshot:
    """A look that ended at a time of the monotonic clock."""
    return FleetSnapshot(
        began_at=at_s - took_s,
        at=at_s,
        wall_s=1000 + at_s,
        leases={one.lease_key: one for one in leases},
        **fields,
    )


class Looks:
    """Each look shows what time it is; the counters of living owners move.

    Args:
        *steps: rows of the first, second … look; the last step stays. An exception is raised.
        living: owners.
        takes_s: duration of a look.
        count: looks until Ctrl-C is pressed; None: nobody does.
        fields: of every snapshot.
    """

    def __init__(
        self,
        *steps: tuple[Lease, ...] | BaseException,
        living: tuple[str, ...] = (),
        takes_s: float = 0.0,
        count: int | None = None,
        **fields: Any,
    ) -> None:
        self.steps = steps
        self.living = living
        self.takes_s = takes_s
        self.count = count
        self.fields = fields
        self.fresh: list[bool] = []
        self.tips = False
        self.urls: tuple[str, ...] = ()

    async def look(self, *, fresh: bool) -> FleetSnapshot:
        count = len(self.fresh)
        if count == self.count:
            raise KeyboardInterrupt
        self.fresh.append(fresh)
        if not self.steps:
            raise NotFound("Scan", "ResourceNotFoundException")
        step = self.steps[min(count, len(self.steps) - 1)]
        if isinstance(step, BaseException):
            raise step
        rows = [
            replace(row, lease_counter=count) if row.actual_owner in self.living else row
            for row in step
        ]
        began_at = asyncio.get_running_loop().time()
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        return FleetSnapshot(
            began_at=began_at,
            at=asyncio.get_running_loop().time(),
            wall_s=BEGINS_S + count,
            leases={row.lease_key: row for row in rows},
            **self.fields,
        )

    @contextmanager
    def open(
        self, config: Any, *, tips: bool = False, urls: tuple[str, ...] = ()
    ) -> Iterator[Looks]:
        """In place of ``open_fleet``."""
        assert config.leases.table_name == "app"
        self.tips, self.urls = tips, urls
        yield self
