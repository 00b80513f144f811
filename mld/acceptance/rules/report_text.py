"""A report as JSON and as a page for people, without the account and without secrets."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kcl_mld.acceptance.rules.judge import CAUSE_WINDOW_S
from kcl_mld.kernel.model.masking import MASK, mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kcl_mld.acceptance.rules.judge import RunReport

#: What the embedded AWS does, measured on a busy machine with two cores where it is a time.
EMBEDDED = {
    "digits of a sequence number, at least": 56,
    "digits of a sequence number, at most": 56,
    "records of a key with a lower sequence number than one put before": 0,
    "seconds until a split was done": 1.1,
    "seconds until a merge was done": 1.1,
    "seconds until CloudWatch had the metrics of stopped workers": 1.0,
}
_LOCAL = "**Run against servers that are not those of AWS: it proves nothing about AWS.**"
_NOT_PROVEN = (
    "In no run: credentials that expire while a worker cannot renew them, throttling, and more than "
    "four open shards."
)

_TWICE = (
    "A record may be given twice only if it was not checkpointed, and if the other child began "
    f"within {CAUSE_WINDOW_S:.0f} s after a worker was killed, stopped or joined, or the first child "
    "was sent leaseLost. Many leases that are lost without one of these show a worker "
    "that is too slow, or a network that fails."
)


def report_json(report: RunReport, account: str) -> str:
    """All figures, as JSON.

    Args:
        account: twelve digits, which are masked.
    """
    described = {
        "passed": report.passed,
        "run": report.run,
        "faults": report.faults,
        "stages": [
            {
                "name": one.name,
                "outcome": one.outcome,
                "reason": one.reason,
                "seconds": round(one.ended_s - one.began_s, 1),
            }
            for one in report.stages
        ],
        "readers": {
            name: {
                "put": one.put,
                "received": one.received,
                "lost": one.lost,
                "given": one.sightings,
                "twice": dict(one.twice),
                "twice_unexplained": one.unexplained,
                "out_of_order": one.out_of_order,
                "out_of_lineage": one.out_of_lineage,
                "workers": one.workers,
                "children": one.children,
                "processed_by_cloudwatch": one.metric,
            }
            for name, one in report.readers.items()
        },
        "latency_seconds": [
            {
                "reader": one.reader,
                "stage": one.stage,
                "records": one.records,
                **{
                    f"p{percent}": round(value, 3)
                    for percent, value in zip((50, 90, 99, 100), one.seconds, strict=True)
                },
            }
            for one in report.latency
        ],
        "requests": [
            {"by": by, "operation": operation, "calls": calls}
            for (by, operation), calls in sorted(report.requests.items())
        ],
        "observed": report.observed,
        "leftovers": report.leftovers,
        "deleted": report.cleaned,
        "estimated_usd": report.estimated_usd,
    }
    return json.dumps(_masked(described, account), indent=2) + "\n"


def report_markdown(report: RunReport, account: str) -> str:
    """The same as a page.

    Args:
        account: twelve digits, which are masked.
    """
    lines = [f"# Acceptance run: {'passed' if report.passed else 'FAILED'}", ""]
    if report.run.get("is_local"):
        lines += [_LOCAL, ""]
    lines += [f"* {name}: {value}" for name, value in report.run.items() if name != "is_local"]
    lines += [*_cost(report), ""]
    if report.faults:
        lines += ["## What is wrong", "", *(f"* {fault}" for fault in report.faults), ""]
    lines += ["## Stages", ""]
    lines += _table(
        ("stage", "outcome", "seconds", "reason"),
        (
            (one.name, one.outcome, f"{one.ended_s - one.began_s:.0f}", one.reason)
            for one in report.stages
        ),
    )
    lines += ["## Records", ""]
    lines += _table(
        (
            *("application", "put", "received", "lost", "given twice", "unexplained"),
            *("out of order", "children before parents", "workers", "children"),
        ),
        (
            (
                name,
                one.put,
                one.received,
                one.lost,
                ", ".join(f"{count} ({cause})" for cause, count in one.twice.items()) or 0,
                one.unexplained,
                one.out_of_order,
                one.out_of_lineage,
                one.workers,
                one.children,
            )
            for name, one in report.readers.items()
        ),
    )
    lines += [
        _TWICE,
        "",
        "## Latency",
        "",
        "Seconds from the put to the child, of the records that were put during a stage.",
        "",
    ]
    lines += _table(
        ("application", "stage", "records", "p50", "p90", "p99", "longest"),
        (
            (one.reader, one.stage, one.records, *(f"{value:.2f}" for value in one.seconds))
            for one in report.latency
        ),
    )
    lines += ["## Requests", "", "Of workers: as CloudWatch has their metrics.", ""]
    lines += _table(
        ("by", "operation", "calls"),
        ((*key, calls) for key, calls in sorted(report.requests.items())),
    )
    lines += ["## Observed", ""]
    lines += _table(
        ("what", "here", "embedded AWS"),
        (
            (name, f"{value:g}", _as_text(EMBEDDED.get(name)))
            for name, value in report.observed.items()
        ),
    )
    return _masked_text("\n".join([*lines, _NOT_PROVEN, ""]), account)


def _cost(report: RunReport) -> list[str]:
    lines = []
    if report.estimated_usd is not None:
        lines.append(f"* estimated cost: ${report.estimated_usd:.2f}")
    if report.cleaned is not None:
        left = ", ".join(report.leftovers) or "nothing"
        lines.append(f"* resources deleted: {report.cleaned}; left over: {left}")
    return lines


def _as_text(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _masked_text(text: str, account: str) -> str:
    return re.sub(rf"(?<!\d){re.escape(account)}(?!\d)", MASK, mask(text))


def _masked(value: Any, account: str) -> Any:
    """Each text of a JSON value masked; keys, too."""
    if isinstance(value, str):
        return _masked_text(value, account)
    if isinstance(value, dict):
        return {_masked(name, account): _masked(one, account) for name, one in value.items()}
    if isinstance(value, list):
        return [_masked(one, account) for one in value]
    return value
