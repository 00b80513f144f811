"""The catalogue of metrics: nothing else is emitted, and names keep the rules of their systems."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from kcl_mld.signals.model import metrics
from kcl_mld.signals.model.metrics import FAMILIES, METRICS, OUTCOME, FamilyKind, Level, Over, Unit

ROOT = Path(__file__).resolve().parents[4]
RECORDED = ROOT / "tests/data/cloudwatch.jsonl"
CATALOGUE = ROOT / "mld/signals/model/metrics.py"
CODE = {path: path.read_text("utf-8") for path in (ROOT / "mld").rglob("*.py") if path != CATALOGUE}


def test_no_metric_is_made_outside_of_the_catalogue():
    makes = re.compile(r"(?<!\w)(?:Metric|Family|CallMetrics)\(")
    # Libraries have types of the same name.
    sinks = {ROOT / "mld/observe/adapters/prometheus.py", ROOT / "mld/observe/adapters/otlp.py"}
    assert {path for path, text in CODE.items() if makes.search(text)} == sinks
    assert not any(
        "import Metric" in CODE[path].partition("kcl_mld.signals.model.metrics")[2]
        for path in sinks
    )
    assert makes.search(CATALOGUE.read_text("utf-8"))


def test_everything_in_the_catalogue_is_emitted_or_read():
    kinds = (metrics.Metric, metrics.CallMetrics, metrics.CreateLease)
    names = [name for name, value in vars(metrics).items() if isinstance(value, kinds)]
    assert len(names) > 50
    words = set(re.findall(r"[A-Z][A-Z_]+", "\n".join(CODE.values())))
    assert [name for name in names if name not in words] == []


def test_each_metric_has_one_row():
    assert [
        key for key, n in Counter((m.operation, m.name) for m in METRICS).items() if n > 1
    ] == []


def test_what_the_java_daemon_has_has_its_unit_here():
    recorded = {
        (row["operation"], row["name"]): row
        for row in map(json.loads, RECORDED.read_bytes().splitlines())
    }
    common = [one for one in METRICS if (one.operation, one.name) in recorded]
    assert len(common) > 30
    for one in common:
        row = recorded[one.operation, one.name]
        unit = "Milliseconds" if one.unit in {Unit.SECONDS, Unit.MILLISECONDS} else None
        assert row["unit"] == (unit or one.unit.value.capitalize()), one
        assert not one.is_own


def test_levels_are_those_that_can_be_asked_for():
    assert {one.level for one in METRICS} == {Level.SUMMARY, Level.DETAILED}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.name)
def test_names_follow_the_rules_of_prometheus(family):
    assert re.fullmatch(r"kcl(_[a-z]+)+", family.name)
    assert family.name.endswith("_total") == (family.kind is FamilyKind.COUNTER)
    base = family.name.removesuffix("_total")
    has_unit = family.unit in {Unit.SECONDS, Unit.BYTES}
    assert base.endswith(("_seconds", "_bytes")) == has_unit
    assert not has_unit or base.endswith(f"_{family.unit}")
    assert re.fullmatch(r"[A-Z1].*\.", family.help, re.DOTALL)
    assert not set(family.labels) & {"le", "stream", "shard", "instance", "job"}


def test_a_histogram_has_no_series_by_shard():
    histograms = [one for one in FAMILIES if one.kind is FamilyKind.HISTOGRAM]
    assert histograms
    assert all(one.over is None and one.labels == () for one in histograms)
    assert all(one.unit is Unit.SECONDS for one in histograms)


def test_a_counter_by_shard_is_the_sum_of_its_shards():
    assert {one.over for one in FAMILIES if one.kind is FamilyKind.COUNTER} == {Over.SUM, None}


def test_a_metric_feeds_a_family_in_its_unit():
    fed = [one for one in METRICS if one.family is not None]
    assert fed
    for one in fed:
        counts_attempts = one.family.labels == (OUTCOME,)
        assert one.family.kind is not FamilyKind.GAUGE
        assert counts_attempts == (one.name.endswith("Success") or one is metrics.HANDED_OFF)
        assert one.unit is one.family.unit
