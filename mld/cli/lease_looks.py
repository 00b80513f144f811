"""Looks at a lease table until it shows which owners live."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mld.cli.explain import look, paused
from mld.cli.fleet_access import open_fleet, rules_of
from mld.decide.fleet.explain import explain as explained

if TYPE_CHECKING:
    from mld.model.config.config import Config
    from mld.model.fleet.fleet_snapshot import FleetSnapshot
    from mld.model.fleet.verdict import Explanation

#: Looks in the failover time.
_LOOKS = 4


def looked(
    config: Config, *, once: bool, tip: bool, urls: tuple[str, ...]
) -> tuple[list[FleetSnapshot], Explanation]:
    """Looks until every owner was seen to live, or for the failover time, and what they show."""
    looks = asyncio.run(_looks(config, once=once, tip=tip, urls=urls))
    return looks, explained(looks, rules_of(config))


async def _looks(
    config: Config, *, once: bool, tip: bool, urls: tuple[str, ...]
) -> list[FleetSnapshot]:
    failover_s = config.leases.failover_s
    loop = asyncio.get_running_loop()
    with open_fleet(config, tips=tip, urls=urls) as reader:
        looks = [await look(reader, config)]
        ends_at = looks[0].at + failover_s
        still = {
            key: lease.lease_counter
            for key, lease in looks[0].leases.items()
            if lease.actual_owner is not None and not lease.is_finished
        }
        # A look may take long; the last one has to begin when the time is over.
        while not once and still and looks[-1].began_at < ends_at:
            left_s = max(0.0, ends_at - loop.time())
            await paused(min(left_s, failover_s / _LOOKS), len(looks[-1].leases), left_s)
            looks.append(await look(reader, config, fresh=False))
            now = looks[-1].leases
            still = {
                key: count
                for key, count in still.items()
                if key in now and now[key].lease_counter == count
            }
        return looks
