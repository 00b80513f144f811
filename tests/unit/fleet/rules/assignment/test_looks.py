"""When the leader looks again."""

import pytest

from kcl_mld.fleet.rules.assignment.looks import (
    FAILED_LOOKS,
    asked_pause_s,
    failed_pause_s,
    longest_pause_s,
    look_pause_s,
)


@pytest.mark.parametrize(
    ("quiet_s", "failover_s", "pause_s"),
    [
        (None, 10.0, 2.5),
        (0.0, 10.0, 2.5),
        (7.0, 10.0, 2.5),
        (9.0, 10.0, 1.02),
        (10.0, 10.0, 0.02),
        (0.0, 60.0, 2.5),
    ],
)
def test_the_next_look_comes_when_the_next_lease_expires_and_never_late(
    quiet_s, failover_s, pause_s
):
    assert look_pause_s(quiet_s, failover_s, 2.5) == pytest.approx(pause_s)


@pytest.mark.parametrize(("quiet_s", "pause_s"), [(None, 15.0), (7.4, 15.0), (7.5, 2.52)])
def test_in_a_large_table_only_a_late_renewal_brings_the_look_forward(quiet_s, pause_s):
    assert look_pause_s(quiet_s, 10.0, 15.0) == pytest.approx(pause_s)


@pytest.mark.parametrize(
    ("calm_s", "items", "is_alone", "failover_s", "pause_s"),
    [
        (59.9, 8, True, 10.0, 2.5),
        (0.0, 8, False, 2.0, 0.5),
        (0.0, 8, False, 60.0, 2.5),
        (60.0, 120, False, 10.0, 6.0),
        (60.0, 200, False, 10.0, 10.0),
        (60.0, 301, False, 10.0, 15.0),
        (60.0, 8, True, 10.0, 15.0),
        (60.0, 900, True, 60.0, 15.0),
        (60.0, 8, False, 2.0, 1.2),
    ],
)
def test_a_leader_looks_rarely_at_a_calm_fleet(calm_s, items, is_alone, failover_s, pause_s):
    found = longest_pause_s(calm_s, items, failover_s, is_alone=is_alone)
    assert found == pytest.approx(pause_s)


def test_failures_outlast_a_short_trouble_and_the_first_look_after_one_comes_soon():
    pauses_s = [failed_pause_s(failures, 10.0) for failures in range(1, FAILED_LOOKS)]
    assert pauses_s == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0]
    assert sum(pauses_s) > 10.0


@pytest.mark.parametrize(
    ("since_start_s", "since_look_s", "pause_s"),
    [(0.1, None, 0.2), (2.9, None, 0.2), (3.0, None, 0.0), (9.0, 0.05, 0.15), (9.0, 1.0, 0.0)],
)
def test_only_a_leader_that_has_just_started_waits_for_those_that_start_with_it(
    since_start_s, since_look_s, pause_s
):
    assert asked_pause_s(since_start_s, since_look_s) == pytest.approx(pause_s)
