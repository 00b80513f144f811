"""What metrics say of a worker."""

import pytest

from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules.assignment.looks import is_failing, is_valid, readings, utilization


@pytest.mark.parametrize(
    ("samples", "value"),
    [((50.0, -1.0, 30.0), 40.0), ((), 0.0), ((-1.0,), 0.0), ((10.0, 20.0, 40.0), 27.5)],
)
def test_utilization_is_an_average_that_skips_failed_samples(samples, value):
    assert utilization(samples, 0.5) == value


def test_only_the_newest_sample_makes_a_worker_fail():
    assert is_failing(WorkerMetrics("a", 0, {"C": (1.0, -1.0)}, {}))
    assert not is_failing(WorkerMetrics("a", 0, {"C": (-1.0, 1.0), "M": ()}, {}))


def test_metrics_are_valid_without_any_or_with_an_operating_range_for_each():
    assert is_valid(WorkerMetrics("a", 0))
    assert is_valid(WorkerMetrics("a", 0, {"C": (1.0,)}, {"C": (80, 0)}))
    assert not is_valid(WorkerMetrics("a", 0, {"C": (1.0,), "M": (1.0,)}, {"C": (80,)}))


def test_a_metric_counts_from_its_second_sample_on():
    metrics = WorkerMetrics("a", 0, {"C": (9.0, 5.0), "M": (1.0,)}, {"C": (80,), "M": (80,)})
    assert readings(metrics, 0.5) == {"C": 7.0}
