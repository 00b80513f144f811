"""What a worker may hold of what names it, and how soon it looks."""

import pytest

from mld.decide.discovery import Found, judge_found, look_pause_s, may_ask_index, vanished
from tests.fakes.lease_world import lease


@pytest.mark.parametrize(
    ("owner", "holder", "found"),
    [
        ("me", None, Found.OURS),
        ("me", "old", Found.COMING),
        ("me", "me", Found.OTHERS),
        ("other", None, Found.OTHERS),
        ("other", "me", Found.OTHERS),
        (None, None, Found.OTHERS),
    ],
)
def test_a_lease_is_ours_when_its_row_names_us_alone(owner, holder, found):
    assert judge_found(lease(lease_owner=owner, checkpoint_owner=holder), "me") is found


def test_a_row_that_is_gone_is_nobodys():
    assert judge_found(None, "me") is Found.OTHERS


@pytest.mark.parametrize(
    ("quiet_s", "failover_s", "pause_s"),
    [(0, 10, 1), (59, 10, 1), (60, 10, 5), (60, 4, 2), (0, 4, 0.4), (60, 100, 5)],
)
def test_looks_are_frequent_while_things_change(quiet_s, failover_s, pause_s):
    assert look_pause_s(quiet_s, failover_s) == pytest.approx(pause_s)


def test_a_small_table_is_scanned():
    assert not may_ask_index(500)
    assert may_ask_index(501)


def test_only_what_was_listed_can_vanish():
    held = {"new": "t1", "kept": "t2", "gone": "t3", "regained": "t5"}
    seen = {"kept": "t2", "gone": "t3", "regained": "t4", "lost": "t6"}
    assert vanished(held, {"kept"}, seen) == ["gone"]
