"""Metrics that CloudWatch shows late, or never, by a clock that the test moves."""

import pytest

from kcl_mld.acceptance import metrics_read
from kcl_mld.acceptance.metrics_read import read_metrics
from kcl_mld.acceptance.recording import RunRecording
from kcl_mld.signals.model.metrics import RECORDS_PROCESSED


class Fleet:
    workers = ()

    def __init__(self, reader):
        self.reader = reader

    def given_to_stopped(self):
        return 7


@pytest.fixture
def read(monkeypatch, tmp_path):
    """Reads metrics that are there after some time; what was written down, and how long it took."""

    def do(after_s):
        now = [1000.0]
        monkeypatch.setattr(metrics_read.time, "monotonic", lambda: now[0])

        class CloudWatch:
            def get_metric_statistics(self, **request):
                points = [{"Sum": 7.0, "SampleCount": 2.0}] if now[0] >= 1000 + after_s else []
                return {"Datapoints": points}

        class Budget:
            def sleep(self, seconds):
                now[0] += seconds

        recording = RunRecording(tmp_path / "recording.jsonl")
        recording.append("run")
        fleets = [Fleet("polling"), Fleet("fan-out")]
        read_metrics(CloudWatch(), fleets, ["s0"], 0.0, Budget(), recording)
        totals = {
            line["reader"]: line["total"]
            for line in recording.lines()
            if line["what"] == "metric" and line["name"] == RECORDS_PROCESSED.name
        }
        return totals, now[0] - 1000

    return do


def test_metrics_may_take_a_quarter_of_an_hour(read):
    totals, took_s = read(after_s=890)
    assert totals == {"polling": 7.0, "fan-out": 7.0}
    assert 890 <= took_s <= 900


def test_all_fleets_together_are_waited_for_a_quarter_of_an_hour_and_none_at_all_is_judged(read):
    totals, took_s = read(after_s=10_000)
    assert totals == {"polling": 0.0, "fan-out": 0.0}
    assert 900 < took_s <= 915
