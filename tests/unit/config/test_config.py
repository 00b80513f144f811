"""Periods that follow from the failover time, as the Java daemon computes them."""

import pytest

from kcl_mld.config.config import LeaseConfig


@pytest.mark.parametrize(
    ("failover_s", "renewal_s", "taker_s", "timeout_s"),
    [
        (10.0, 3.308, 20.05, 2.1),
        (0.078, 0.001, 0.206, 0.2),
        (1.0, 0.308, 2.05, 0.25),
        (3.0, 0.975, 6.05, 0.75),
        (60.0, 19.975, 120.05, 5.0),
    ],
)
def test_periods_follow_from_the_failover_time(failover_s, renewal_s, taker_s, timeout_s):
    leases = LeaseConfig(table_name="t", failover_s=failover_s)
    assert leases.renewal_interval_s == pytest.approx(renewal_s)
    assert leases.taker_interval_s == pytest.approx(taker_s)
    assert leases.request_timeout_s == pytest.approx(timeout_s)
