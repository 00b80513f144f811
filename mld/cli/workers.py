"""``kcl-mld workers``: the workers of an application, as its tables and their own pages show them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.cli.arguments import SuggestingGroup
from kcl_mld.cli.fleet_access import looks_at_fleet, observe
from kcl_mld.cli.fleet_documents import fleet_document, worker_as_json
from kcl_mld.cli.lease_tables import COLORS, beside, heading, number, seconds
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import takes_properties_file
from kcl_mld.cli.tables import Column, Section, TableRow, as_table, print_json, terminal
from kcl_mld.observe.model.verdict import VerdictSeverity
from kcl_mld.observe.rules.fleet_workers import fleet_workers
from kcl_mld.observe.rules.lease_list import host_of
from kcl_mld.observe.rules.scraped import page_of, records_per_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.rules.fleet_workers import WorkerState

_LIVES = {True: "alive", False: "silent", None: "unknown"}


@click.group("workers", cls=SuggestingGroup)
def workers() -> None:
    """Show the workers of an application."""


@workers.command("list")
@takes_properties_file()
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="NAME",
    help="Only workers of this workerGroup; may be repeated.",
)
@looks_at_fleet()
@click.option("-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table")
def list_workers(
    file: str,
    *,
    groups: tuple[str, ...],
    tip: bool,
    once: bool,
    urls: tuple[str, ...],
    output: str,
) -> int:
    """Print every worker that owns leases, writes metrics or leads.

    Changes nothing. A worker of a 2.x fleet without leases leaves no trace in the table.
    """
    config = read_config(file)
    snapshots, explanation = observe(config, once=once, tip=tip, urls=urls)
    found = [
        one
        for one in fleet_workers(snapshots[-1], explanation)
        if not groups or one.group in groups
    ]
    choice = " ".join(f"--group {name}" for name in groups)
    table = config.leases.table_name
    documents = [_document(one, snapshots) for one in found]
    if output == "jsonl":
        for document in documents:
            click.echo(json.dumps({"table": table, **document}))
    elif output == "json":
        whole = fleet_document(table, snapshots[-1], explanation) | {"workers": documents}
        print_json(whole)
    else:
        lines = heading(table, sum(one.leases for one in found), explanation, choice)
        if found:
            is_scraped = bool(urls)
            rows = tuple(
                _row(one, document, is_scraped=is_scraped)
                for one, document in zip(found, documents, strict=True)
            )
            columns = _columns(is_scraped=is_scraped)
            lines += ["", as_table(columns, [Section("", rows)], terminal())]
        most = config.leases.max_leases_for_worker
        click.echo("\n".join([*lines, "", *beside(snapshots[-1], explanation, most)]).rstrip("\n"))
    return 0


def _document(one: WorkerState, snapshots: Sequence[FleetSnapshot]) -> dict[str, Any]:
    last = snapshots[-1]
    rates = [
        records_per_s(snapshots, lease)
        for lease in last.leases.values()
        if lease.actual_owner == one.worker and not lease.is_finished
    ]
    known = [rate for rate in rates if rate is not None]
    return worker_as_json(
        one,
        host_of(one.worker, last),
        page_of(last, one.worker),
        sum(known) if known and len(known) == len(rates) else None,
    )


def _columns(*, is_scraped: bool) -> list[Column]:
    columns = [
        Column("worker", least=12),
        Column("lives"),
        Column("leads", rank=2),
        Column("leases", is_number=True),
        Column("host", least=8, rank=4),
        Column("group", least=6, rank=4),
        Column("CPU", is_number=True, rank=3),
        Column("KiB/s", is_number=True, rank=3),
        Column("metrics", is_number=True, rank=5),
    ]
    if is_scraped:
        columns += [
            Column("records/s", is_number=True, rank=1),
            Column("lag", is_number=True, rank=1),
            Column("call", is_number=True, rank=1),
            Column("restarts", is_number=True, rank=1),
        ]
    return columns


def _row(one: WorkerState, document: dict[str, Any], *, is_scraped: bool) -> TableRow:
    cpu = one.cpu_percent
    cells: tuple[str, ...] = (
        one.worker,
        _LIVES[one.lives],
        "leads" if one.leads else "-",
        str(one.leases),
        document["host"] or "-",
        one.group or "-",
        "-" if cpu is None else f"{cpu:.0f} %",
        number(one.throughput_kbps),
        "-" if one.metrics_age_s is None else f"{seconds(one.metrics_age_s)} ago",
    )
    if is_scraped:
        restarts = document["restarts"]
        cells += (
            number(document["records_per_s"]),
            seconds(document["lag_s"]),
            seconds(document["call_s"]),
            "-" if restarts is None else str(restarts),
        )
    color = COLORS[VerdictSeverity.WARNING] if one.lives is False else None
    return TableRow(cells, color)
