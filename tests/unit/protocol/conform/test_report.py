"""Verdicts add up, the worst one counts, and the table says all of it."""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources

import pytest

from kcl_mld_protocol.conform.report import (
    CHILD_RULES,
    Report,
    Verdict,
    baseline_names,
    differs,
    failed,
    items_by_id,
    judged,
    load_items,
    not_testable,
    passed,
)

ITEMS = load_items()[:3]
IDS = [item.id for item in ITEMS]


def test_every_item_of_the_reference_is_there_once():
    ids = [item.id for item in load_items()]
    assert len(ids) == len(set(ids)) == 156 + len(CHILD_RULES)
    groups = {item.group for item in load_items()}
    assert groups == {"CLI", "PROP", "CFG", "CRED", "WIRE", "CKPT", "LIFE", "SHUT", "PY", "CHILD"}
    assert items_by_id()["WIRE-18"].quirk


def test_every_item_has_a_kit_or_a_reason():
    for item in load_items():
        assert (item.kit is None) is (item.reason is not None), item.id


def test_items_without_a_finding_are_not_testable():
    report = Report(ITEMS)
    assert {finding.verdict for finding in report.findings()} == {Verdict.NOT_TESTABLE}
    assert report.exit_status == 0


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([passed(IDS[0], "a"), failed(IDS[0], "b")], Verdict.FAIL),
        ([failed(IDS[0], "a"), passed(IDS[0], "b")], Verdict.FAIL),
        ([not_testable(IDS[0], "a"), passed(IDS[0], "b")], Verdict.PASS),
        ([differs(IDS[0], "row", "a"), passed(IDS[0], "b")], Verdict.DIFFERS),
        ([judged(IDS[0], ok=[1], evidence="a")], Verdict.PASS),
        ([judged(IDS[0], ok="", evidence="a")], Verdict.FAIL),
    ],
)
def test_the_most_telling_verdict_on_an_item_counts(findings, verdict):
    report = Report(ITEMS)
    for finding in findings:
        report.add(finding)
    assert report.findings()[0].verdict is verdict
    assert report.exit_status == int(verdict is Verdict.FAIL)


def test_the_table_has_item_verdict_evidence_and_totals():
    report = Report(ITEMS)
    report.add(passed(IDS[0], "seen\nit"))
    report.add(differs(IDS[1], "exit-codes", "x" * 500))
    lines = report.text().splitlines()
    assert lines[0].split(maxsplit=2) == [IDS[0], "pass", "seen it"]
    assert "differs (exit-codes)" in lines[1]
    assert lines[1].endswith("…")
    assert lines[-1] == "3 items: 1 pass, 0 fail, 1 differs, 1 not testable"


def test_a_case_that_broke_off_fails_the_run():
    report = Report(ITEMS)
    report.broke_off("a case: OSError: no")
    assert report.exit_status == 1
    assert "broke off: a case" in report.text()


def test_last_words_of_children_that_failed_are_quoted_once_and_cannot_move_the_cursor():
    report = Report(ITEMS)
    said = b"first\n" + b"line\n" * 19 + b"\x1b[2Jboom\n"
    report.quote("one", said)
    report.quote("one", said)
    report.quote("two", said)
    report.quote("two", b" \n")
    text = report.text()
    assert text.count("boom") == 1
    assert "stderr of the child in: one, two\n  line\n" in text
    assert "first" not in text
    assert "\n  \\x1b[2Jboom\n" in text
    assert json.loads(report.json())["stderr"][0]["cases"] == ["one", "two"]


def test_no_more_than_three_different_last_words_are_quoted():
    report = Report(ITEMS)
    for number in range(5):
        report.quote("case", b"pid %d" % number)
    text = report.text()
    assert "pid 2" in text
    assert "pid 3" not in text
    assert "[2 more like this]" in text


def test_the_baseline_file_has_the_whole_evidence():
    report = Report(ITEMS)
    report.add(differs(IDS[0], "exit-codes", "x" * 500))
    baseline = json.loads(report.json())
    assert baseline["totals"] == {"pass": 0, "fail": 0, "differs": 1, "not testable": 2}
    assert baseline["findings"][0]["evidence"] == "x" * 500
    assert baseline["findings"][0]["row"] == "exit-codes"
    assert "row" not in baseline["findings"][1]


@pytest.mark.parametrize("name", baseline_names())
def test_a_shipped_baseline_covers_every_item_of_daemons_and_explains_failures(name):
    path = resources.files("kcl_mld_protocol.conform").joinpath(f"baseline-{name}.json")
    baseline = json.loads(path.read_text("utf-8"))
    wanted = [item.id for item in load_items() if item.group not in {"CHILD", "PY"}]
    assert [finding["item"] for finding in baseline["findings"]] == wanted
    failing = {f["item"] for f in baseline["findings"] if f["verdict"] == "fail"}
    assert failing == set(baseline["explained"])
    assert baseline["note"]
    counted = Counter(finding["verdict"] for finding in baseline["findings"])
    assert {verdict: count for verdict, count in baseline["totals"].items() if count} == counted
