"""``kcl-mld wait``: for deployments, until all shards have a living owner, or are read up to the tip."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from mld.cli.arguments import Finite
from mld.cli.explain import NEEDS_A_PERSON, look, paused
from mld.cli.explain_report import as_text
from mld.cli.fleet_access import DAY_S, open_fleet, rules_of
from mld.cli.loading import build
from mld.cli.options import takes_properties_file
from mld.decide.fleet.explain import Awaited, explain as explained, missing
from mld.errors import ResourceMissing

if TYPE_CHECKING:
    from mld.model.config.config import Config
    from mld.model.fleet.fleet_snapshot import FleetSnapshot
    from mld.model.fleet.verdict import Explanation

#: Looks in one failover time.
_LOOKS = 4


@click.command("wait")
@takes_properties_file()
@click.option(
    "--for",
    "awaited",
    type=click.Choice([str(kind) for kind in Awaited]),
    required=True,
    help="What to wait for.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Finite(0, DAY_S),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Then it is given up.",
)
@click.option(
    "--within",
    "within_s",
    type=Finite(0, DAY_S),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="A shard is caught up whose checkpoint is no further behind.",
)
def wait(file: str, *, awaited: str, timeout_s: float, within_s: float) -> int:
    """Wait until the fleet of the properties FILE does its work.

    all-owned: every shard has a lease, and a worker renews it. caught-up: besides, no checkpoint is
    further behind than --within; a lease at LATEST that was never checkpointed counts. Exit code 7,
    with what is missing, when the time is over.
    """
    config = build(file, worker_id="nobody").require()
    told = asyncio.run(_wait(config, Awaited(awaited), timeout_s, within_s))
    if told is None:
        return 0
    click.echo(f"Gave up after {timeout_s:g} s: not {awaited}. What is missing:")
    click.echo(as_text(config.leases.table_name, told))
    return NEEDS_A_PERSON


async def _wait(
    config: Config, awaited: Awaited, timeout_s: float, within_s: float
) -> Explanation | None:
    """What was missing at the end; None = nothing.

    Raises:
        ResourceMissing: there was no lease table until the end.
    """
    rules = rules_of(config)
    failover_s = config.leases.failover_s
    looks: list[FleetSnapshot] = []
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + timeout_s
    with open_fleet(config, tips=awaited is Awaited.CAUGHT_UP) as reader:
        while True:
            try:
                looks.append(await look(reader, config, fresh=not looks))
            except ResourceMissing:
                left_s = ends_at - loop.time()
                if left_s <= 0:
                    raise
                # A worker that starts for the first time makes the table.
                await paused(min(left_s, failover_s / _LOOKS), 0, left_s)
                continue
            newest_s = looks[-1].at
            looks = [one for one in looks if newest_s - one.at <= rules.late_s + failover_s]
            told = missing(explained(looks, rules), awaited, within_s)
            left_s = ends_at - loop.time()
            if told is None or left_s <= 0:
                return told
            await paused(min(left_s, failover_s / _LOOKS), len(looks[-1].leases), left_s)
