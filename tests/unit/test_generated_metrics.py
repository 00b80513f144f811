"""Alerts and dashboard name metrics that there are, and promtool accepts them."""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from tests.generated_metrics import dashboard, series_names, shard_series
from tests.markdown_pages import ROOT

ALERTS = ROOT / "properties/alerts.yml"
DASHBOARD = ROOT / "properties/grafana-dashboard.json"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="there is no promtool: apt-get install prometheus"
)


def rules():
    (group,) = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return group["rules"]


def expressions():
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(shown) > 15
    return [*shown, *(rule["expr"] for rule in rules())]


def test_the_dashboard_is_what_the_catalogue_says():
    assert DASHBOARD.read_text("utf-8") == dashboard()


def test_every_name_in_an_expression_is_a_series_of_the_catalogue():
    known = series_names() | {"process_resident_memory_bytes", "process_start_time_seconds"}
    for text in expressions():
        names = re.findall(r"\b(?:kcl|process)_[a-z_]+", text)
        assert names, text
        assert set(names) <= known, text


def test_an_expression_means_the_same_with_series_by_shard():
    by_shard = shard_series()
    for text in expressions():
        for name in re.findall(r"\bkcl_[a-z_]+", text):
            if name in by_shard:
                wanted = "max" if by_shard[name] else "sum"
                assert re.search(
                    rf"\b{wanted}(?: by \([a-z, ]+\))? ?\(.*{name}", text, re.DOTALL
                ), text


def test_alerts_say_what_to_do():
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}


@needs_promtool
def test_promtool_accepts_the_alerts():
    done = subprocess.run(
        [PROMTOOL, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout


@needs_promtool
def test_alerts_fire_when_they_should(tmp_path):
    cases = (ROOT / "tests/data/alerts_test.yml").read_text("utf-8")
    (tmp_path / "cases.yml").write_text(cases.replace("RULES", str(ALERTS)))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", "cases.yml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("text", expressions())
def test_promtool_can_read_each_expression(tmp_path, text):
    rule = {"groups": [{"name": "g", "rules": [{"record": "r", "expr": text}]}]}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule))
    done = subprocess.run(
        [PROMTOOL, "check", "rules", "rules.yml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
