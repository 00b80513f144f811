"""``kcl-mld leases``: the lease table of an application; ``list``, ``describe`` and ``watch`` read it."""

from __future__ import annotations

import json
from typing import Any

import click

from kcl_mld.cli.arguments import SuggestingGroup
from kcl_mld.cli.explain import chosen
from kcl_mld.cli.fleet_access import looks_at_fleet, observe
from kcl_mld.cli.fleet_documents import fleet_document, lease_as_json
from kcl_mld.cli.lease_copies import export
from kcl_mld.cli.lease_tables import LeaseChoice, described, listed, selects_leases
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.migrate_leases import migrate
from kcl_mld.cli.options import takes_file_and_names, takes_properties_file
from kcl_mld.cli.reset_leases import reset
from kcl_mld.cli.steer_leases import delete, pause, release, resume
from kcl_mld.cli.tables import print_json
from kcl_mld.cli.watch_leases import watch
from kcl_mld.cli.withdraw_leases import withdraw
from kcl_mld.kernel.model.masking import printable
from kcl_mld.leases.rules.lease_report import Grouping
from kcl_mld.observe.rules.lease_list import ListedLease, list_leases, relatives


@click.group("leases", cls=SuggestingGroup)
def leases() -> None:
    """Show or change the lease table of an application."""


for _command in (watch, reset, export, release, pause, resume, withdraw, delete, migrate):
    leases.add_command(_command)


@leases.command("list")
@takes_properties_file()
@selects_leases
@click.option(
    "--by",
    type=click.Choice([str(kind) for kind in Grouping]),
    default=str(Grouping.WORKER),
    show_default=True,
    help="Group by worker, or by the part of a worker id before its first '-'.",
)
@looks_at_fleet()
@click.option("-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table")
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
def list_command(
    file: str,
    *,
    choice: LeaseChoice,
    by: str,
    tip: bool,
    once: bool,
    urls: tuple[str, ...],
    output: str,
    as_json: bool,
) -> int:
    """Print every lease of the application that the properties FILE describes.

    Changes nothing. A live owner increments its lease counters within failoverTimeMillis, so the
    command reads the table until they have changed, or for that time, and shows unchanged leases as
    expired.
    """
    config = read_config(file)
    snapshots, explanation = observe(config, once=once, tip=tip, urls=urls)
    rows = choice.of(list_leases(snapshots, explanation, config.leases.failover_s))
    table = config.leases.table_name
    if output == "jsonl":
        for one in rows:
            click.echo(json.dumps({"table": table, **lease_as_json(one)}))
    elif as_json or output == "json":
        document = fleet_document(table, snapshots[-1], explanation)
        print_json(document | {"leases": [lease_as_json(one) for one in rows]})
    else:
        most = config.leases.max_leases_for_worker
        click.echo(listed(table, rows, snapshots[-1], explanation, Grouping(by), most, str(choice)))
    return 0


@leases.command("describe")
@takes_file_and_names("LEASE...")
@looks_at_fleet()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def describe(
    file: str,
    *,
    names: tuple[str, ...],
    tip: bool,
    once: bool,
    urls: tuple[str, ...],
    output: str,
) -> int:
    """Print all that is known of each LEASE, a shard id or a lease key, and of its relatives.

    Exit code 2: a LEASE has no row that can be read.
    """
    if not names:
        raise click.UsageError("Name a shard id or a lease key behind the properties file")
    config = read_config(file)
    snapshots, explanation = observe(config, once=once, tip=tip, urls=urls)
    table = config.leases.table_name
    named = chosen(explanation, names).shards
    wanted = {one.subject for one in named if one.lease is not None}
    rows = list_leases(snapshots, explanation, config.leases.failover_s)
    found = [one for one in rows if one.lease.lease_key in wanted]
    if output == "json":
        document = fleet_document(table, snapshots[-1], explanation)
        print_json(document | {"leases": [_with_kin(one, rows) for one in found]})
    else:
        click.echo("\n\n".join(described(one, *relatives(one, rows)) for one in found))
    without = [one for one in named if one.lease is None]
    for one in without:
        click.echo(printable(f"{one.subject}: {one.verdict}: {one.cause}. {one.todo}"), err=True)
    return 2 if without else 0


def _with_kin(one: ListedLease, rows: tuple[ListedLease, ...]) -> dict[str, Any]:
    parents, children = relatives(one, rows)
    return lease_as_json(one) | {
        "parent_leases": [lease_as_json(kin) for kin in parents],
        "child_leases": [lease_as_json(kin) for kin in children],
    }
