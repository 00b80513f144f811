"""When a schema registry is asked, and when it is left alone."""

from __future__ import annotations

from kcl_mld.kernel.rules.backoff import MissLimit, Outage


def test_misses_are_bounded_and_come_back_with_time():
    limit = MissLimit(3, interval_s=6.0)
    assert [limit.spend(100.0) for _ in range(5)] == [True, True, True, False, False]
    assert not limit.spend(105.9)
    assert limit.spend(106.1)
    assert not limit.spend(106.1)
    assert [limit.spend(10_000.0) for _ in range(4)] == [True, True, True, False]


def test_what_was_found_costs_nothing():
    limit = MissLimit(1, interval_s=6.0)
    for _ in range(100):
        assert limit.spend(0.0)
        limit.give_back()
    limit.give_back()
    assert limit.spend(0.0)
    assert not limit.spend(0.0)


def test_an_outage_is_waited_for_longer_each_time():
    outage = Outage(first_s=5.0, longest_s=15.0)
    assert not outage.lasts(0.0)
    now = 0.0
    for pause_s in (5.0, 10.0, 15.0, 15.0):
        outage.failed(now)
        outage.failed(now + 1)  # asked together with the first
        assert outage.lasts(now + pause_s - 0.1)
        now += pause_s
        assert not outage.lasts(now)
    outage.answered()
    outage.failed(now)
    assert outage.lasts(now + 4.9)
    assert not outage.lasts(now + 5.0)
    outage.answered()
    assert not outage.lasts(now + 1)
