"""When the leader looks again."""

import pytest

from mld.decide.looking import failed_pause_s, look_pause_s


@pytest.mark.parametrize(
    ("quiet_s", "failover_s", "pause_s"),
    [
        (None, 10.0, 2.5),
        (0.0, 10.0, 2.5),
        (7.0, 10.0, 2.5),
        (9.0, 10.0, 1.02),
        (10.0, 10.0, 0.02),
        (None, 2.0, 0.5),
        (0.0, 60.0, 2.5),
    ],
)
def test_the_next_look_comes_when_the_next_lease_expires_and_never_late(
    quiet_s, failover_s, pause_s
):
    assert look_pause_s(quiet_s, failover_s) == pytest.approx(pause_s)


def test_three_failures_outlast_a_short_trouble():
    assert 3 * failed_pause_s(10.0) > 10.0
