"""``kcl-mld explain``: what each shard of a fleet does, and what a person has to do."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from mld.cli.arguments import Finite
from mld.cli.explain_report import VERSION, as_json, as_text
from mld.cli.fleet_access import DAY_S, looks_at_fleet, open_fleet, rules_of
from mld.cli.loading import build
from mld.cli.options import takes_file_and_names
from mld.decide.fleet.explain import explain as explained
from mld.errors import ConfigError, NotFound, ResourceMissing

if TYPE_CHECKING:
    from mld.model.config.config import Config
    from mld.model.fleet.fleet_snapshot import FleetSnapshot
    from mld.model.fleet.verdict import Explanation
    from mld.services.fleet.fleet_reader import FleetReader

#: Exit code of a fleet that is not well, or did not become so in time.
NEEDS_A_PERSON = 7


@click.command("explain")
@takes_file_and_names("[SHARD]...")
@looks_at_fleet(with_stalled_after=True)
@click.option(
    "--for",
    "for_s",
    type=Finite(0, DAY_S, least_open=True),
    metavar="SECONDS",
    help="Look again and again for so long; default: two looks, failoverTimeMillis apart.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def explain(
    file: str,
    *,
    names: tuple[str, ...],
    tip: bool,
    once: bool,
    urls: tuple[str, ...],
    for_s: float | None,
    stalled_after_s: float,
    output: str,
) -> int:
    """Say of each shard what it does: a paragraph where a person has to do something.

    Works for every fleet of KCL 2.x and 3.x, Java workers included, from any machine that has the
    properties FILE, and changes nothing. The table has no times, so it is read twice,
    failoverTimeMillis apart. SHARD, a shard id or a lease key, leaves the others out. Exit code 7:
    something needs a person.
    """
    if once and for_s is not None:
        raise click.UsageError("--once and --for exclude each other")
    config = build(file, worker_id="nobody").require()
    rules = rules_of(config, stalled_after_s)
    span_s = 0.0 if once else for_s or config.leases.failover_s
    looks = asyncio.run(_looks(config, span_s, tip=tip, urls=urls))
    told = chosen(explained(looks, rules), names)
    table = config.leases.table_name
    if output == "json":
        click.echo(json.dumps({"version": VERSION, **as_json(table, told)}, indent=2))
    else:
        click.echo(as_text(table, told))
    return NEEDS_A_PERSON if told.needs_a_person else 0


async def _looks(
    config: Config, span_s: float, *, tip: bool, urls: tuple[str, ...]
) -> list[FleetSnapshot]:
    """One look, or the first, the last, and those between them, failoverTimeMillis apart."""
    with open_fleet(config, tips=tip, urls=urls) as reader:
        looks = [await look(reader, config)]
        ends_at = looks[0].at + span_s
        loop = asyncio.get_running_loop()
        while (left_s := ends_at - loop.time()) > 0:
            failover_s = config.leases.failover_s
            pause_s = left_s if left_s < 2 * failover_s else failover_s
            await paused(pause_s, len(looks[-1].leases), left_s)
            looks.append(await look(reader, config, fresh=left_s <= pause_s))
        return looks


async def look(reader: FleetReader, config: Config, *, fresh: bool = True) -> FleetSnapshot:
    """One look.

    Raises:
        ResourceMissing: there is no lease table.
        AwsError: it can't be read.
    """
    try:
        return await reader.look(fresh=fresh)
    except NotFound:
        raise ResourceMissing(
            f"the lease table {config.leases.table_name} does not exist; it is created when the "
            "application starts for the first time"
        ) from None


async def paused(pause_s: float, leases: int, left_s: float) -> None:
    """Wait, and say so on a terminal."""
    if not sys.stderr.isatty():
        await asyncio.sleep(pause_s)
        return
    while pause_s > 0:
        text = f"{leases} leases; looking again, to see what moves: {left_s:.0f} s left "
        click.echo(f"\r{text}", err=True, nl=False)
        step_s = min(1.0, pause_s)
        await asyncio.sleep(step_s)
        pause_s, left_s = pause_s - step_s, left_s - step_s
    click.echo(f"\r{' ' * 79}\r", err=True, nl=False)


def chosen(told: Explanation, shards: tuple[str, ...]) -> Explanation:
    """The shards that were asked for, and the fleet; all without names.

    Raises:
        ConfigError: there is no such shard.
    """
    if not shards:
        return told
    for name in shards:
        if not any(is_named(one.subject, name) for one in told.shards):
            raise ConfigError(f"{name} is neither a lease of the table nor a shard without one")
    kept = [one for one in told.shards if any(is_named(one.subject, name) for name in shards)]
    return replace(told, shards=tuple(kept))


def is_named(key: str, name: str) -> bool:
    """Whether a word means a lease: its key, or its shard id."""
    return key == name or key.endswith(f":{name}")
