"""What a worker may hold of what names it, and how soon it looks."""

import pytest

from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld.leases.rules.discovery import (
    Informed,
    Ownership,
    Watched,
    is_small,
    judge_found,
    look_pause_s,
    may_ask_index,
    unsettled_pause_s,
    vanished,
    watch,
    watches,
)
from tests.fakes.lease_world import lease


@pytest.mark.parametrize(
    ("owner", "holder", "found"),
    [
        ("me", None, Ownership.OURS),
        ("me", "old", Ownership.COMING),
        ("me", "me", Ownership.OTHERS),
        ("other", None, Ownership.OTHERS),
        ("other", "me", Ownership.OTHERS),
        (None, None, Ownership.OTHERS),
    ],
)
def test_a_lease_is_ours_when_its_row_names_us_alone(owner, holder, found):
    assert judge_found(lease(lease_owner=owner, checkpoint_owner=holder), "me") is found


def test_a_row_that_is_gone_is_nobodys():
    assert judge_found(None, "me") is Ownership.OTHERS


@pytest.mark.parametrize(
    ("quiet_s", "failover_s", "pause_s"),
    [(0, 10, 1), (59, 10, 1), (60, 10, 4), (60, 4, 1.6), (0, 4, 0.4), (60, 100, 4)],
)
def test_looks_are_frequent_while_things_change(quiet_s, failover_s, pause_s):
    assert look_pause_s(quiet_s, failover_s) == pytest.approx(pause_s)


@pytest.mark.parametrize(
    ("quiet_s", "failover_s", "pause_s"), [(0, 10, 1), (60, 10, 2.5), (60, 4, 1), (60, 100, 2.5)]
)
def test_who_sees_only_its_own_leases_looks_more_often(quiet_s, failover_s, pause_s):
    assert look_pause_s(quiet_s, failover_s, by_index=True) == pytest.approx(pause_s)


@pytest.mark.parametrize(
    ("quiet_s", "informed", "pause_s"),
    [
        (0, Informed.ANNOUNCED, 1),
        (60, Informed.ANNOUNCED, 60),
        (0, Informed.LEADS, 60),
        (60, Informed.LEADS, 60),
    ],
)
def test_who_hears_of_assignments_looks_for_what_it_missed(quiet_s, informed, pause_s):
    for by_index in (False, True):
        found = look_pause_s(quiet_s, 10, by_index=by_index, informed=informed)
        assert found == pytest.approx(pause_s)


@pytest.mark.parametrize(
    ("items", "informed", "found"),
    [
        (24, Informed.ANNOUNCED, True),
        (25, Informed.ANNOUNCED, False),
        (25, Informed.NO, True),
        (24, Informed.LEADS, False),
    ],
)
def test_who_need_not_look_watches_the_leases_of_others_where_a_scan_is_cheap(
    items, informed, found
):
    assert watches(items, informed) is found
    assert is_small(items) is (items <= 24)


def test_the_leases_of_others_are_watched():
    first = watch(
        {},
        [
            lease(0, lease_owner="me"),
            lease(1, lease_owner="other", checkpoint_owner="me"),
            lease(2, lease_owner="other", lease_counter=4),
            lease(3, lease_owner="other", checkpoint=SHARD_END),
            lease(4),
        ],
        "me",
        7.0,
    )
    moved, free = lease(2).lease_key, lease(4).lease_key
    assert first == {moved: Watched(4, 7.0, False), free: Watched(0, 7.0, True)}
    same = watch(first, [lease(2, lease_owner="other", lease_counter=4), lease(4)], "me", 9.0)
    assert same == first
    changed = watch(
        first, [lease(2, lease_owner="other", lease_counter=5), lease(4, lease_owner="x")], "me", 9
    )
    assert changed == {moved: Watched(5, 9, False), free: Watched(0, 9, False)}


@pytest.mark.parametrize(
    ("watched", "now", "pause_s"),
    [
        ([], 0.0, None),
        ([Watched(1, 0.0, False)], 3.0, 4.51),
        ([Watched(1, 0.0, False), Watched(1, 1.0, False)], 3.0, 4.51),
        ([Watched(1, 0.0, False)], 7.5, 0.5),
        ([Watched(1, 0.0, False)], 19.9, 0.5),
        ([Watched(1, 0.0, False)], 20.0, None),
        ([Watched(1, 0.0, True)], 0.0, 0.5),
        ([Watched(1, 0.0, True), Watched(1, 19.0, False)], 20.0, 6.51),
    ],
)
def test_looks_are_frequent_while_a_lease_may_be_given_away(watched, now, pause_s):
    assert unsettled_pause_s(watched, now, 10.0) == (
        None if pause_s is None else pytest.approx(pause_s)
    )


def test_a_small_table_is_scanned():
    assert not may_ask_index(500)
    assert may_ask_index(501)


def test_only_what_was_listed_can_vanish():
    held = {"new": "t1", "kept": "t2", "gone": "t3", "regained": "t5"}
    seen = {"kept": "t2", "gone": "t3", "regained": "t4", "lost": "t6"}
    assert vanished(held, {"kept"}, seen) == ["gone"]
