"""What ``kcl-mld explain`` and ``kcl-mld wait`` print."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from mld.model.fleet.verdict import VerdictSeverity
from mld.model.masking import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mld.model.fleet.verdict import Conclusion, Explanation

_COLORS = {VerdictSeverity.CRITICAL: "red", VerdictSeverity.WARNING: "yellow"}
_WIDTH = 100
#: Of the JSON: a key never changes its meaning within one, others may be added.
VERSION = 1


def as_text(table: str, told: Explanation) -> str:
    """For people: a paragraph for what needs one, a line for the rest."""
    count = len(told.shards)
    lines = [
        f"{table}: {count} shard{'s' * (count != 1)}, worst: {told.severity.word} ({_looked(told)})",
        *told.facts,
    ]
    lines = [printable(line) for line in lines]
    for one in (*told.fleet, *told.shards):
        if one.severity >= VerdictSeverity.WARNING:
            lines += ["", *_paragraph(one)]
    rest = [one for one in (*told.fleet, *told.shards) if one.severity < VerdictSeverity.WARNING]
    if rest:
        lines.append("")
        lines += _lines(rest)
    return "\n".join(lines)


def _looked(told: Explanation) -> str:
    if told.looks == 1:
        return "1 look"
    return f"{told.looks} looks, {told.span_s:.1f} s from the first to the last"


def _paragraph(one: Conclusion) -> list[str]:
    color = _COLORS[one.severity]
    head = click.style(f"{one.severity.word.upper()} {one.verdict}", fg=color, bold=True)
    found = [f"{head} {printable(one.subject)}"]
    cause = one.cause
    if one.since_s is not None:
        cause += f" (seen so for {one.since_s:.0f} s)"
    found += _wrapped(f"Why: {cause}.")
    if one.lease is not None:
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


def as_json(table: str, told: Explanation) -> dict[str, Any]:
    """One JSON object; names and verdicts are for programs, sentences for people."""
    return {
        "table": table,
        "severity": told.severity.word,
        "needs_a_person": told.needs_a_person,
        "looks": told.looks,
        "span_s": round(told.span_s, 3),
        "facts": list(told.facts),
        "fleet": [conclusion_as_json(one) for one in told.fleet],
        "shards": [conclusion_as_json(one) | _row_as_json(one) for one in told.shards],
    }


def conclusion_as_json(one: Conclusion) -> dict[str, Any]:
    """One verdict with its reasons."""
    return {
        "subject": one.subject,
        "verdict": str(one.verdict),
        "severity": one.severity.word,
        "cause": one.cause,
        "since_s": None if one.since_s is None else round(one.since_s, 3),
        "do": one.todo,
        "link": one.link,
    }


def _row_as_json(one: Conclusion) -> dict[str, Any]:
    lease = one.lease
    position = None if lease is None else lease.checkpoint
    return {
        "stream": None if lease is None else lease.stream_identifier,
        "shard": None if lease is None else lease.shard_id,
        "owner": None if lease is None else lease.actual_owner,
        "checkpoint": None if position is None else str(position),
        "behind_s": one.behind_s,
        "behind_age_s": None if one.behind_age_s is None else round(one.behind_age_s, 3),
        "lag_s": one.lag_s,
    }
