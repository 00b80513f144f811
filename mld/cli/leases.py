"""``kcl-mld leases``: the lease table of an application; ``list`` reads it."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from mld.adapters.aws import clients
from mld.adapters.aws.credentials import make_session, require_credentials
from mld.adapters.aws.dynamodb import BotocoreDynamoDb
from mld.adapters.aws.regions import resolve_region
from mld.adapters.calls import CallPool
from mld.adapters.system_clock import RandomIds, SystemClock
from mld.cli.arguments import SuggestingGroup
from mld.cli.loading import build
from mld.cli.migrate_leases import migrate
from mld.cli.options import takes_properties_file
from mld.decide.fleet.fleet_report import fleet_report
from mld.decide.leases.lease_life import state_of
from mld.decide.leases.lease_report import Grouping, group_leases, left_free, told_free
from mld.errors import MldError, NotFound, ResourceMissing
from mld.model.leases.lease_item import is_moving
from mld.model.masking import printable
from mld.services.fleet.fleet_reader import fleet_items
from mld.services.leases.lease_store import LeaseStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mld.decide.fleet.fleet_report import FleetReport
    from mld.model.config.config import Config
    from mld.model.leases.lease import Lease
    from mld.model.leases.table_layout import Layout
    from mld.ports.aws import DynamoDb
    from mld.ports.clock import Clock, IdSource
    from mld.services.leases.lease_scan import TableScan

_HEADINGS = ("owner", "counter", "checkpoint", "switches", "parents", "children", "state")
#: The columns before them, of keys without and with a stream.
_LEASE, _STREAM_AND_SHARD = ("lease",), ("stream", "shard")
#: Columns with numbers, aligned right.
_NUMBERS = {"counter", "switches"}
#: The table is read so often in the failover time.
_LOOKS = 4


@click.group("leases", cls=SuggestingGroup)
def leases() -> None:
    """Show the lease table of an application, or convert its keys."""


leases.add_command(migrate)


@leases.command("list")
@takes_properties_file()
@click.option(
    "--by",
    type=click.Choice([str(kind) for kind in Grouping]),
    default=str(Grouping.WORKER),
    show_default=True,
    help="Group by worker, or by the part of a worker id before its first '-'.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.option("--once", is_flag=True, help="Read the table once; this can't show expired leases.")
def list_leases(file: str, *, by: str, as_json: bool, once: bool) -> int:
    """Print every lease of the application that the properties FILE describes.

    Changes nothing. A live owner increments its lease counters within failoverTimeMillis, so the
    command reads the table until they have changed, or for that time, and shows unchanged leases as
    expired. For a fleet of KCL 3.x it also shows the leader and workers that get no leases.
    """
    config = build(file, worker_id="nobody").require()
    scan, expired, fleet = asyncio.run(_scan(config, once=once))
    groups = group_leases(scan.leases, Grouping(by))
    if as_json:
        listed = _as_json(config.leases.table_name, by, groups, scan, expired)
        click.echo(json.dumps(listed | {"fleet": _fleet_as_json(fleet)}, indent=2))
    else:
        _print(config.leases.table_name, groups, scan, expired)
        most = config.leases.max_leases_for_worker
        if free := left_free(scan.leases, most):
            click.echo(f"\n{told_free(len(free), most)}")
        for line in [fleet] if isinstance(fleet, str) else fleet.lines() if fleet else ():
            click.echo(f"\n{printable(line)}")
    return 0


async def _scan(
    config: Config, *, once: bool
) -> tuple[TableScan, frozenset[str], FleetReport | str | None]:
    """The leases, those that have expired, and the fleet.

    Of the fleet, why it can't be told; None = it is none of 3.x.
    """
    settings = clients.patient_dynamodb_settings(config)
    region = resolve_region(settings.region)
    session = make_session(
        config.aws.dynamodb_credentials or config.aws.kinesis_credentials, region
    )
    require_credentials(session, "AwsCredentialsProvider")
    with closing(CallPool("leases", 1)) as pool:
        dynamodb = BotocoreDynamoDb(clients.make_client(session, settings), pool)
        clock = SystemClock()
        try:
            store = LeaseStore(dynamodb, config.leases, clock)
            scan = await store.scan()
            expired: frozenset[str] = frozenset()
            if not once:
                scan, expired = await _expired(store, scan, config.leases.failover_s, clock)
        except NotFound:
            raise ResourceMissing(
                f"the lease table {config.leases.table_name} does not exist; it is created when "
                "the application starts for the first time"
            ) from None
        layout = config.fleet.layout(config.application_name, config.leases.table_name)
        try:
            return scan, expired, await read_fleet(dynamodb, layout, clock, RandomIds())
        except MldError as error:
            return scan, expired, f"What the fleet does can't be told: {error}"


async def read_fleet(
    dynamodb: DynamoDb, layout: Layout, clock: Clock, ids: IdSource
) -> FleetReport | None:
    """What a 3.x fleet has beside its leases, in either layout; changes nothing.

    Args:
        dynamodb: where the tables are.
        layout: their names.
        clock: tells the age of metrics.
        ids: not used for reading.

    Returns:
        None where no item says that this is a 3.x fleet.

    Raises:
        AwsError: a table could not be read. One of 3.0 to 3.4 that is denied counts as absent.
        MalformedData: an item can't be read.
    """
    items = await fleet_items(dynamodb, layout, ids)
    if items.version is None:
        return None
    return fleet_report(items.version, items.lock, items.metrics, clock.wall())


async def _expired(
    store: LeaseStore, scan: TableScan, failover_s: float, clock: Clock
) -> tuple[TableScan, frozenset[str]]:
    """The newest scan, and the keys of owned leases whose counter stood still for the failover time."""
    ends_at = scan.finished_at + failover_s
    still = {
        lease.lease_key: lease.lease_counter
        for lease in scan.leases
        if lease.lease_owner is not None and not lease.is_finished
    }
    while still and (left_s := ends_at - clock.monotonic()) > 0:
        await asyncio.sleep(min(left_s, failover_s / _LOOKS))
        scan = await store.scan()
        still = {
            lease.lease_key: lease.lease_counter
            for lease in scan.leases
            if still.get(lease.lease_key) == lease.lease_counter
        }
    return scan, frozenset(still)


def _fleet_as_json(fleet: FleetReport | str | None) -> dict[str, Any] | None:
    if fleet is None:
        return None
    if isinstance(fleet, str):
        return {"error": fleet}
    lock = fleet.lock
    return {
        "version": fleet.version.value,
        "leader": None if lock is None else lock.owner,
        "lock_s": None if lock is None else lock.duration_s,
        "workers": [{"worker": name, "metrics_age_s": age_s} for name, age_s in fleet.workers],
    }


def _as_json(
    table: str,
    by: str,
    groups: dict[str, tuple[Lease, ...]],
    scan: TableScan,
    expired: frozenset[str],
) -> dict[str, Any]:
    moving = _moving(scan)
    return {
        "table": table,
        by + "s": [
            {by: name or None, "leases": [_lease_as_json(lease, expired) for lease in rows]}
            for name, rows in groups.items()
        ],
        "other_items": sorted(set(scan.foreign) - set(moving)),
        "moving": moving,
        "unreadable": [{"lease": key, "why": why} for key, why in scan.broken],
    }


def _state(lease: Lease, expired: frozenset[str]) -> str:
    """As the row says, unless it was seen that its owner does not renew it."""
    return "expired" if lease.lease_key in expired else str(state_of(lease))


def _lease_as_json(lease: Lease, expired: frozenset[str]) -> dict[str, Any]:
    return {
        "lease": lease.lease_key,
        "stream": lease.stream_identifier,
        "shard": lease.shard_id,
        "owner": lease.lease_owner,
        "checkpoint_owner": lease.checkpoint_owner,
        "counter": lease.lease_counter,
        "checkpoint": None if lease.checkpoint is None else lease.checkpoint.sequence_number,
        "sub_sequence_number": (
            None if lease.checkpoint is None else lease.checkpoint.sub_sequence_number
        ),
        "switches": lease.owner_switches_since_checkpoint,
        "parents": list(lease.parent_shard_ids),
        "children": list(lease.child_shard_ids),
        "state": _state(lease, expired),
    }


def _print(
    table: str,
    groups: dict[str, tuple[Lease, ...]],
    scan: TableScan,
    expired: frozenset[str],
) -> None:
    total = len(scan.leases)
    click.echo(f"{table}: {total} lease{'s' * (total != 1)}")
    with_stream = any(lease.stream_identifier is not None for lease in scan.leases)
    headings = (_STREAM_AND_SHARD if with_stream else _LEASE) + _HEADINGS
    rows = {
        name: [_cells(lease, expired, with_stream=with_stream) for lease in owned]
        for name, owned in groups.items()
    }
    widths = [
        max(len(heading), *(len(row[column]) for owned in rows.values() for row in owned))
        if rows
        else len(heading)
        for column, heading in enumerate(headings)
    ]
    for name, owned in rows.items():
        click.echo()
        click.echo(click.style(f"{printable(name) or '(nobody)'}: {len(owned)}", bold=True))
        _print_table(headings, owned, widths)
    moving = _moving(scan)
    others = sorted(set(scan.foreign) - set(moving))
    if others:
        click.echo(f"\nItems that are no leases: {', '.join(map(printable, others))}")
    if moving:
        click.echo(
            f"\nOn their way to other keys, so no worker runs; go on with kcl-mld leases migrate: "
            f"{', '.join(map(printable, moving))}"
        )
    for key, why in scan.broken:
        click.echo(f"\nCan't be read: {printable(key)}: {printable(why)}")


def _moving(scan: TableScan) -> list[str]:
    return sorted(key for key, item in scan.foreign.items() if is_moving(item))


def _print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int]
) -> None:
    for row in (headings, *rows):
        cells = [
            f"{cell:>{width}}" if heading in _NUMBERS else f"{cell:<{width}}"
            for heading, cell, width in zip(headings, row, widths, strict=True)
        ]
        click.echo("  " + "  ".join(cells).rstrip())


def _cells(lease: Lease, expired: frozenset[str], *, with_stream: bool) -> tuple[str, ...]:
    owner = lease.lease_owner or "-"
    if lease.checkpoint_owner is not None:
        owner = f"{lease.checkpoint_owner} > {owner}"
    named = (lease.stream_identifier or "-", lease.shard_id) if with_stream else (lease.lease_key,)
    return (
        *map(printable, named),
        printable(owner),
        str(lease.lease_counter),
        str(lease.checkpoint or "-"),
        str(lease.owner_switches_since_checkpoint),
        printable(",".join(lease.parent_shard_ids)) or "-",
        printable(",".join(lease.child_shard_ids)) or "-",
        _state(lease, expired),
    )
