"""``kcl-mld explain`` and ``wait``: what each shard of a fleet does, and what a person has to do."""

from __future__ import annotations

import asyncio
import re
import textwrap
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING

import click

from kcl_mld.cli.arguments import DAY_S, Finite, is_named
from kcl_mld.cli.fleet_access import (
    LOOKS,
    looks_at_fleet,
    open_fleet,
    pause_with_progress,
    rules_of,
    take_snapshot,
)
from kcl_mld.cli.fleet_documents import VERSION, as_json
from kcl_mld.cli.lease_tables import COLORS
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import takes_file_and_names, takes_properties_file
from kcl_mld.cli.tables import print_json
from kcl_mld.errors import ConfigError, ResourceMissing
from kcl_mld.kernel.model.masking import printable
from kcl_mld.kernel.model.text import lasted
from kcl_mld.observe.model.verdict import Verdict, VerdictSeverity
from kcl_mld.observe.rules.explain import Awaited, explain as explained, missing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.config.config import Config
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.model.verdict import Conclusion, Explanation

_WIDTH = 100
_DIGITS = re.compile(r"[0-9]+")
#: Shards of one cause; ``-o json`` has all.
_MOST_NAMED = 10
#: Exit code of a fleet that is not well, or did not become so in time.
NEEDS_A_PERSON = 7


def _print_verdict(_context: click.Context, _option: click.Parameter, name: str | None) -> None:
    """What a verdict means, from the package: needs no file and no network."""
    if name is None:
        return
    text = resources.files("kcl_mld.cli").joinpath("verdicts.md").read_text("utf-8")
    (part,) = (part for part in text.split("## ") if part.startswith(f"{name}\n"))
    click.echo(part.rstrip())
    raise click.exceptions.Exit(0)


@click.command("explain")
@takes_file_and_names("[SHARD]...")
@looks_at_fleet(with_stalled_after=True)
@click.option(
    "--for",
    "for_s",
    type=Finite(0, DAY_S, least_open=True),
    metavar="SECONDS",
    help="Take snapshots for this long; default: two of them, failoverTimeMillis apart.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--verdict",
    type=click.Choice([str(one) for one in Verdict], case_sensitive=False),
    is_eager=True,
    expose_value=False,
    callback=_print_verdict,
    metavar="NAME",
    help="Print what a verdict means and what to do about it, then exit; needs no FILE.",
)
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
    config = read_config(file)
    rules = rules_of(config, stalled_after_s)
    span_s = 0.0 if once else for_s or config.leases.failover_s
    snapshots = asyncio.run(_snapshots(config, span_s, tip=tip, urls=urls))
    explanation = chosen(explained(snapshots, rules), names)
    table = config.leases.table_name
    if output == "json":
        print_json({"version": VERSION, **as_json(table, explanation)})
    else:
        click.echo(as_text(table, explanation))
    return NEEDS_A_PERSON if explanation.needs_a_person else 0


async def _snapshots(
    config: Config, span_s: float, *, tip: bool, urls: tuple[str, ...]
) -> list[FleetSnapshot]:
    """One snapshot, or the first, the last, and those between them, failoverTimeMillis apart."""
    with open_fleet(config, tips=tip, urls=urls) as reader:
        snapshots = [await take_snapshot(reader, config)]
        ends_at = snapshots[0].at + span_s
        loop = asyncio.get_running_loop()
        while (left_s := ends_at - loop.time()) > 0:
            failover_s = config.leases.failover_s
            pause_s = left_s if left_s < 2 * failover_s else failover_s
            await pause_with_progress(pause_s, len(snapshots[-1].leases), left_s)
            snapshots.append(await take_snapshot(reader, config, fresh=left_s <= pause_s))
        return snapshots


def chosen(explanation: Explanation, shards: tuple[str, ...]) -> Explanation:
    """The shards that were asked for, and the fleet; all without names.

    Raises:
        ConfigError: there is no such shard.
    """
    if not shards:
        return explanation
    for name in shards:
        if not any(is_named(one.subject, name) for one in explanation.shards):
            raise ConfigError(f"{name} is neither a lease of the table nor a shard without one")
    kept = [
        one for one in explanation.shards if any(is_named(one.subject, name) for name in shards)
    ]
    return replace(explanation, shards=tuple(kept))


def as_text(table: str, explanation: Explanation) -> str:
    """For people: a paragraph for what needs one, a line for the rest."""
    count = len(explanation.shards)
    lines = [
        f"{table}: {count} shard{'s' * (count != 1)}, worst: {explanation.severity.word} ({_looked(explanation)})",
        *explanation.facts,
    ]
    lines = [printable(line) for line in lines]
    for alike in _by_cause((*explanation.fleet, *explanation.shards)):
        lines += ["", *_paragraph(alike)]
    rest = [
        one
        for one in (*explanation.fleet, *explanation.shards)
        if one.severity < VerdictSeverity.WARNING
    ]
    if rest:
        lines.append("")
        lines += _lines(rest)
    return "\n".join(lines)


def _looked(explanation: Explanation) -> str:
    if explanation.looks == 1:
        return "1 look"
    return f"{explanation.looks} looks, {explanation.span_s:.1f} s from the first to the last"


def _by_cause(conclusions: Iterable[Conclusion]) -> list[list[Conclusion]]:
    """Verdicts that need a person, by cause; in each, the one that has lasted longest comes first."""
    groups: dict[tuple[object, ...], list[Conclusion]] = {}
    for one in conclusions:
        if one.severity >= VerdictSeverity.WARNING:
            owner = one.lease.actual_owner if one.lease is not None else None
            # Of two shards, ids and figures differ.
            cause, todo = _DIGITS.sub("#", one.cause), _DIGITS.sub("#", one.todo)
            groups.setdefault((one.severity, one.verdict, cause, todo, owner), []).append(one)
    return [
        sorted(alike, key=lambda one: -(0.0 if one.since_s is None else one.since_s))
        for alike in groups.values()
    ]


def _paragraph(alike: list[Conclusion]) -> list[str]:
    one = alike[0]
    color = COLORS[one.severity]
    head = click.style(f"{one.severity.word.upper()} {one.verdict}", fg=color, bold=True)
    found = [f"{head} {printable(one.subject)}"]
    if len(alike) > 1:
        subjects = [each.subject for each in alike]
        named = ", ".join(subjects[:_MOST_NAMED])
        more = len(subjects) - _MOST_NAMED
        shards = f"{named}, and {more} more" if more > 0 else named
        found = [f"{head} {len(alike)} shards", *_wrapped(f"Shards: {shards}.")]
    cause = one.cause
    if one.since_s is not None:
        cause += f" (seen so for {lasted(one.since_s)})"
    found += _wrapped(f"Why{f', of {one.subject}' if len(alike) > 1 else ''}: {cause}.")
    if one.lease is not None and len(alike) == 1:
        owner = one.lease.actual_owner or "nobody"
        position = one.lease.checkpoint or "-"
        found += _wrapped(f"Owner {owner}, checkpoint {position}.")
    if one.todo:
        found += _wrapped(f"Do: {one.todo}.")
    return [*found, f"  See {one.link}"]


def _wrapped(text: str) -> list[str]:
    indent = "  "
    return textwrap.wrap(
        printable(text),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _lines(judgements: Iterable[Conclusion]) -> list[str]:
    rows = [
        (
            one.severity.word,
            str(one.verdict),
            printable(one.subject),
            printable((one.lease.actual_owner if one.lease else None) or "-"),
            printable(one.cause),
        )
        for one in judgements
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, (*widths, 0), strict=True))
        for row in rows
    ]


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
    help="Give up after this time.",
)
@click.option(
    "--within",
    "within_s",
    type=Finite(0, DAY_S),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Greatest lag of a checkpoint at which a shard counts as caught up.",
)
def wait(file: str, *, awaited: str, timeout_s: float, within_s: float) -> int:
    """Wait until the fleet of the properties FILE does its work.

    all-owned: every shard has a lease, and a worker renews it. caught-up: besides, no checkpoint is
    further behind than --within; a lease at LATEST that was never checkpointed counts. Exit code 7,
    with what is missing, when the time is over.
    """
    config = read_config(file)
    explanation = asyncio.run(_wait(config, Awaited(awaited), timeout_s, within_s))
    if explanation is None:
        return 0
    click.echo(f"Gave up after {timeout_s:g} s: not {awaited}. What is missing:")
    click.echo(as_text(config.leases.table_name, explanation))
    return NEEDS_A_PERSON


async def _wait(
    config: Config, awaited: Awaited, timeout_s: float, within_s: float
) -> Explanation | None:
    """The condition that was not met in the end; None = all were met.

    Raises:
        ResourceMissing: there was no lease table until the end.
    """
    rules = rules_of(config)
    failover_s = config.leases.failover_s
    snapshots: list[FleetSnapshot] = []
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + timeout_s
    with open_fleet(config, tips=awaited is Awaited.CAUGHT_UP) as reader:
        while True:
            try:
                snapshots.append(await take_snapshot(reader, config, fresh=not snapshots))
            except ResourceMissing:
                left_s = ends_at - loop.time()
                if left_s <= 0:
                    raise
                # A worker that starts for the first time makes the table.
                await pause_with_progress(min(left_s, failover_s / LOOKS), 0, left_s)
                continue
            newest_s = snapshots[-1].at
            snapshots = [one for one in snapshots if newest_s - one.at <= rules.late_s + failover_s]
            explanation = missing(explained(snapshots, rules), awaited, within_s)
            left_s = ends_at - loop.time()
            if explanation is None or left_s <= 0:
                return explanation
            await pause_with_progress(
                min(left_s, failover_s / LOOKS), len(snapshots[-1].leases), left_s
            )
