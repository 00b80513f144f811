"""What conformance means, item by item, the verdicts of a run, and its table.

The items come from observing the Java MultiLangDaemon (KCL 3.5.1) and kclpy 3.2.0. Those named
``CHILD-nn`` are the rules that hold for children in any language.

A run passes if nothing fails: a behavior that differs on purpose names the row of
``docs/differences.md`` and does not fail it, an untestable item says why.

A baseline is the verdicts of an earlier run, to compare a new one with: the JSON that ``--json``
writes, with ``implementation``, ``version``, ``note`` and ``explained`` (item -> why the reference
implementation fails it) added by hand.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


Kit: TypeAlias = Literal["child", "daemon"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to show.

    Attributes:
        id: e.g. ``WIRE-03``.
        group: the part of the id before the dash.
        quirk: the Java daemon surprises here; an implementation may decide otherwise.
        then: what the Java daemon (``PY``: kclpy) does.
        kit: which kit judges it; None when neither can.
        reason: why no kit can judge it; None when one can.
    """

    id: str
    group: str
    quirk: bool
    given: str
    then: str
    kit: Kit | None
    reason: str | None


def _child(number: int, given: str, then: str) -> Item:
    return Item(
        id=f"CHILD-{number:02d}",
        group="CHILD",
        quirk=False,
        given=given,
        then=then,
        kit="child",
        reason=None,
    )


#: Rules for a child in any language.
CHILD_RULES = (
    _child(1, "initialize", "answered with its status"),
    _child(2, "processRecords with records", "answered with its status"),
    _child(3, "processRecords with no records and unknown lag", "answered with its status"),
    _child(4, "processRecords of 10,000 records in one line of several MB", "answered in time"),
    _child(5, "partition keys with quotes, control characters and raw UTF-8", "answered"),
    _child(6, "empty data, and data with + and / in base64", "answered"),
    _child(7, "records of a KPL aggregate: one sequence number, several sub-numbers", "answered"),
    _child(8, "shutdownRequested", "answered with its status"),
    _child(9, "leaseLost", "answered, without asking for a checkpoint"),
    _child(10, "shardEnded", "asks for a checkpoint at null or SHARD_END, then answers"),
    _child(11, "any action", "checkpoint requests have only the known fields, of the known types"),
    _child(12, "a checkpoint is refused", "the child lives on and answers the action"),
    _child(13, "any action", "one status, after which it is silent until the next action"),
    _child(14, "any action", "every message has a line of its own"),
    _child(15, "end of stdin after leaseLost", "the process ends within 5 s with exit code 0"),
    _child(16, "end of stdin while idle", "the process ends within 5 s"),
    _child(17, "initialize at digits with a sub-sequence number, or at a sentinel", "answered"),
    _child(18, "initialize with further flat keys", "answered: unknown keys are ignored"),
    _child(19, "end of stdin before initialize", "the process ends within 5 s"),
    _child(20, "leaseLost, and if it is not answered, shutdown", "only leaseLost is answered"),
    _child(
        21,
        "processRecords with no records after one with records",
        "answered; a checkpoint is at null or at a record that was delivered",
    ),
    _child(
        22,
        "shardEnded without any record before",
        "asks for a checkpoint at null or SHARD_END, then answers",
    ),
)


@cache
def load_items() -> tuple[Item, ...]:
    """All items: those of the two reference implementations, then the rules for children."""
    rows = json.loads(files(__name__.rpartition(".")[0]).joinpath("items.json").read_text("utf-8"))
    return tuple(Item(**row) for row in rows) + CHILD_RULES


def items_by_id() -> dict[str, Item]:
    """The items under their ids."""
    return {item.id: item for item in load_items()}


_PREFIX: Final = "baseline-"
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What another implementation did.

    Attributes:
        name: heads its column, e.g. ``java-3.1.3``.
        verdicts: item -> verdict.
    """

    name: str
    verdicts: Mapping[str, str]


def baseline_names() -> tuple[str, ...]:
    """The baselines that ship with the kit, sorted."""
    found = (entry.name for entry in files(__package__).iterdir())
    return tuple(
        sorted(
            name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
            for name in found
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
        )
    )


def load_baseline(name: str) -> Baseline:
    """A baseline by its name, or the report of an earlier run by its path.

    Raises:
        ValueError: there is none of that name, or the file is no report; the text lists the names.
    """
    if name in baseline_names():
        text = files(__package__).joinpath(f"{_PREFIX}{name}{_SUFFIX}").read_text("utf-8")
        return _parse_baseline(name, text)
    try:
        return _parse_baseline(Path(name).stem, Path(name).read_text("utf-8"))
    except OSError as error:
        raise ValueError(_no_report(f"{name} can't be read: {error.strerror}")) from error
    except (ValueError, LookupError, TypeError) as error:
        why = f"{name} is not a report: JSON as --json writes it was expected ({error})"
        raise ValueError(_no_report(why)) from error


def _no_report(why: str) -> str:
    return f"{why}; give the path of a report, or one of: {', '.join(baseline_names())}"


def _parse_baseline(name: str, text: str) -> Baseline:
    findings = json.loads(text)["findings"]
    return Baseline(name, {finding["item"]: finding["verdict"] for finding in findings})


_EVIDENCE_WIDTH = 100
#: Of the stderr of children in cases that failed: last lines of each, different ones shown.
_QUOTED_LINES = 20
_QUOTES = 3
#: What a child writes must not move the cursor of a terminal.
_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != 9}


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
        evidence: the observation; for an untestable item the reason.
        row: id of the row in ``docs/differences.md``; only with ``DIFFERS``.
    """

    item_id: str
    verdict: Verdict
    evidence: str
    row: str | None = None


def passed(item_id: str, evidence: str) -> Finding:
    """The implementation fulfills the item."""
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
        self._quotes: dict[str, list[str]] = {}

    def broke_off(self, why: str) -> None:
        """Note that a case ended early by a mistake of the kit or its surroundings."""
        self._broken.append(why)

    def quote(self, case: str, stderr: bytes) -> None:
        """Keep the last lines that a child wrote to stderr in a case that failed."""
        lines = stderr.decode("utf-8", "replace").rstrip().splitlines()[-_QUOTED_LINES:]
        text = "\n".join(f"  {line.translate(_VISIBLE)}" for line in lines)
        if text and case not in self._quotes.setdefault(text, []):
            self._quotes[text].append(case)

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
        parts = [*_aligned(lines), "", *self._quoted(), *broken, f"{count} items: {totals}"]
        return "\n".join(parts) + "\n"

    def _quoted(self) -> list[str]:
        """What children wrote to stderr where they failed, equal texts once."""
        lines: list[str] = []
        for text, cases in [*self._quotes.items()][:_QUOTES]:
            lines += [f"stderr of the child in: {', '.join(cases)}", text, ""]
        more = len(self._quotes) - _QUOTES
        return [*lines, f"[{more} more like this]", ""] if more > 0 else lines

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
        quotes = [{"cases": cases, "text": text} for text, cases in self._quotes.items()]
        return (
            json.dumps(
                {
                    "totals": self.totals(),
                    "broken": self._broken,
                    "findings": findings,
                    **({"stderr": quotes} if quotes else {}),
                },
                indent=1,
            )
            + "\n"
        )


def _aligned(lines: list[list[str]]) -> list[str]:
    """Lines with columns of equal width; the last column ends as it likes."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    rows = ([*map(str.ljust, line, widths), line[-1]] for line in lines)
    return ["  ".join(row) for row in rows]
