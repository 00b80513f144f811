"""Verdicts and the table of a conformance run.

A run passes if nothing fails: a behavior that differs on purpose names the row of
``docs/differences.md`` and does not fail it, an untestable item says why.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from protocol.conform.baselines import Baseline
    from protocol.conform.items import Item

_EVIDENCE_WIDTH = 100


class Verdict(StrEnum):
    """How an implementation did on one item."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    DIFFERS = "differs"
    NOT_TESTABLE = "not testable"


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one item.

    Attributes:
        item_id: e.g. ``WIRE-03``.
        verdict: see :class:`Verdict`.
        evidence: what was seen; for an untestable item the reason.
        row: id of the row in ``docs/differences.md``; only with ``DIFFERS``.
    """

    item_id: str
    verdict: Verdict
    evidence: str
    row: str | None = None


def passed(item_id: str, evidence: str) -> Finding:
    """The implementation does what the item says."""
    return Finding(item_id, Verdict.PASS, evidence)


def failed(item_id: str, evidence: str) -> Finding:
    """The implementation does something else, and nobody decided that."""
    return Finding(item_id, Verdict.FAIL, evidence)


def differs(item_id: str, row: str, evidence: str) -> Finding:
    """The implementation does something else on purpose."""
    return Finding(item_id, Verdict.DIFFERS, evidence, row)


def not_testable(item_id: str, reason: str) -> Finding:
    """The item cannot be judged here."""
    return Finding(item_id, Verdict.NOT_TESTABLE, reason)


def judged(item_id: str, ok: object, evidence: str) -> Finding:
    """Pass or fail by a condition."""
    return passed(item_id, evidence) if ok else failed(item_id, evidence)


class Report:
    """Findings in the order of the items; the worst verdict on an item counts.

    Args:
        items: what the run covers.
        baseline: verdicts to show beside the new ones.
        whole: items without a finding are reported as not testable; else they are left out.
    """

    _ORDER = (Verdict.FAIL, Verdict.DIFFERS, Verdict.PASS, Verdict.NOT_TESTABLE)

    def __init__(
        self, items: Iterable[Item], *, baseline: Baseline | None = None, whole: bool = True
    ) -> None:
        self._items = tuple(items)
        self._baseline = baseline
        self._whole = whole
        self._found: dict[str, Finding] = {}
        self._broken: list[str] = []

    def broke_off(self, why: str) -> None:
        """Note that a case ended early by a mistake of the kit or its surroundings."""
        self._broken.append(why)

    def add(self, finding: Finding) -> None:
        """Keep a finding, unless a worse one is known."""
        known = self._found.get(finding.item_id)
        if known is None or self._rank(finding) < self._rank(known):
            self._found[finding.item_id] = finding

    def _rank(self, finding: Finding) -> int:
        return self._ORDER.index(finding.verdict)

    def findings(self) -> tuple[Finding, ...]:
        """One finding per item, in the order of the items."""
        return tuple(
            self._found.get(item.id)
            or not_testable(item.id, item.reason or "no case of this kit shows it")
            for item in self._items
            if self._whole or item.id in self._found
        )

    @property
    def exit_status(self) -> int:
        """0 if nothing failed and every case came to its end, else 1."""
        bad = any(finding.verdict is Verdict.FAIL for finding in self.findings())
        return int(bad or bool(self._broken))

    def totals(self) -> dict[str, int]:
        """Verdict -> number of items, all verdicts present."""
        counts = Counter(finding.verdict for finding in self.findings())
        return {verdict.value: counts[verdict] for verdict in Verdict}

    def text(self) -> str:
        """The table for people: item, verdict, evidence; then the totals."""
        lines = []
        for finding in self.findings():
            verdict = finding.verdict.value
            if finding.row is not None:
                verdict = f"{verdict} ({finding.row})"
            evidence = " ".join(finding.evidence.split())
            if len(evidence) > _EVIDENCE_WIDTH:
                evidence = evidence[: _EVIDENCE_WIDTH - 1] + "…"
            lines.append([finding.item_id, verdict, *self._elsewhere(finding), evidence])
        count = len(lines)
        if self._baseline is not None:
            lines.insert(0, ["item", "verdict", self._baseline.name, "evidence"])
        totals = ", ".join(f"{count} {verdict}" for verdict, count in self.totals().items())
        broken = [f"broke off: {why}" for why in self._broken]
        return "\n".join([*_aligned(lines), "", *broken, f"{count} items: {totals}"]) + "\n"

    def _elsewhere(self, finding: Finding) -> list[str]:
        """The baseline's verdict on the same item; nothing without a baseline."""
        if self._baseline is None:
            return []
        return [self._baseline.verdicts.get(finding.item_id, "-")]

    def json(self) -> str:
        """The same as one JSON object, for a baseline file."""
        findings = [
            {
                "item": finding.item_id,
                "verdict": finding.verdict.value,
                "evidence": finding.evidence,
                **({"row": finding.row} if finding.row is not None else {}),
            }
            for finding in self.findings()
        ]
        return (
            json.dumps(
                {"totals": self.totals(), "broken": self._broken, "findings": findings}, indent=1
            )
            + "\n"
        )


def _aligned(lines: list[list[str]]) -> list[str]:
    """Lines with columns of equal width; the last column ends as it likes."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    rows = ([*map(str.ljust, line, widths), line[-1]] for line in lines)
    return ["  ".join(row) for row in rows]
