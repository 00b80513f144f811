"""What a calm fleet asks of its table: no more than Java's workers, whose periods are known."""

import pytest

from benchmarks.calm_minute import java, ours

pytestmark = pytest.mark.sim


@pytest.mark.parametrize(("leases", "workers"), [(1, 1), (4, 1), (4, 4), (28, 1)])
def test_a_calm_fleet_of_3x_reads_no_more_than_javas(leases, workers):
    found, size = ours("3.x", leases, workers)
    theirs = java("3.x", leases, workers, size)
    assert found.reads <= theirs.reads
    assert found.read_units <= theirs.read_units
    if leases >= 4:
        assert found.writes <= 0.75 * theirs.writes


@pytest.mark.parametrize("workers", [1, 3])
def test_a_calm_fleet_of_2x_reads_no_more_units_than_javas(workers):
    """It has more calls: DescribeTable, which costs no units."""
    found, size = ours("2.x", 4, workers)
    theirs = java("2.x", 4, workers, size)
    assert found.reads - found.calls["DescribeTable"] <= theirs.reads + 0.5  # the window is 3 min
    assert found.read_units <= theirs.read_units + 0.25
    assert found.writes <= 0.75 * theirs.writes
