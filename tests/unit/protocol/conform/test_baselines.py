"""Baselines ship with the kit and stand beside new verdicts."""

from __future__ import annotations

import json

import pytest

from kcl_mld_protocol.conform.report import (
    Baseline,
    Report,
    baseline_names,
    load_baseline,
    load_items,
    passed,
)


def test_the_shipped_baselines_have_names():
    assert "java-3.1.3" in baseline_names()
    for name in baseline_names():
        assert load_baseline(name).name == name


def test_a_report_of_an_earlier_run_is_a_baseline(tmp_path):
    path = tmp_path / "before.json"
    path.write_text(json.dumps({"findings": [{"item": "CLI-01", "verdict": "fail"}]}))
    before = load_baseline(str(path))
    assert before == Baseline("before", {"CLI-01": "fail"})


@pytest.mark.parametrize("text", [None, "no json", "[]", "{}", '{"findings": [1]}'])
def test_what_is_no_report_is_refused_with_the_names(tmp_path, text):
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=r"java-3\.1\.3"):
        load_baseline(str(path))


def test_the_baseline_has_a_column_of_its_own():
    about = load_items()[:2]
    verdicts = {about[0].id: "differs"}
    report = Report(about, baseline=Baseline("before", verdicts))
    for item in about:
        report.add(passed(item.id, "seen"))
    head, first, second, *_ = report.text().splitlines()
    assert head.split() == ["item", "verdict", "before", "evidence"]
    assert first.split() == [about[0].id, "pass", "differs", "seen"]
    assert second.split() == [about[1].id, "pass", "-", "seen"]


def test_a_part_of_the_cases_reports_only_what_it_came_to():
    report = Report(load_items(), whole=False)
    report.add(passed("CLI-01", "seen"))
    assert [finding.item_id for finding in report.findings()] == ["CLI-01"]
    assert report.text().endswith("1 items: 1 pass, 0 fail, 0 differs, 0 not testable\n")


def test_a_report_without_findings_has_an_empty_table():
    assert Report((), whole=False).text().splitlines()[-1].startswith("0 items")
