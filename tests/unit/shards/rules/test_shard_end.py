from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kcl_mld.kernel.model.sequence import LATEST, SHARD_END
from kcl_mld.leases.model.lease import Lease
from kcl_mld.shards.rules.shard_end import (
    MergeVerdict,
    blocks,
    child_without_parents,
    heirs,
    judge_merge,
    merge_parents,
    noted_children,
)
from kcl_mld.streams.model.shard import ChildShard, HashRange, Shard

ROW = Lease(lease_key="p", shard_id="p", checkpoint=LATEST)


def child(shard_id, *parents):
    return ChildShard(shard_id, parents, HashRange(0, 9))


def listed(shard_id, start, end, *parents):
    both = (*parents, None, None)[:2]
    return Shard(shard_id, HashRange(start, end), "1", None, *both)


def test_the_children_of_a_shard_that_vanished_are_those_that_name_it():
    row = replace(ROW, hash_range=HashRange(0, 9))
    shards = [listed("y", 5, 9, "p"), listed("x", 0, 4, "p"), listed("z", 10, 19, "q")]
    assert heirs(row, shards) == (
        ChildShard("x", ("p",), HashRange(0, 4)),
        ChildShard("y", ("p",), HashRange(5, 9)),
    )
    assert heirs(row, []) == ()


def test_where_the_children_vanished_too_the_oldest_of_its_keys_go_on():
    row = replace(ROW, hash_range=HashRange(10, 19))
    shards = [
        listed("l", 0, 9, "c"),
        listed("m", 5, 12, "c", "d"),
        listed("n", 13, 30, "d"),
        listed("o", 13, 19, "n"),
        listed("r", 0, 30),
        listed("s", 20, 30, "d"),
    ]
    assert [one.shard_id for one in heirs(row, shards)] == ["m", "n"]
    assert heirs(ROW, shards) == ()


def test_only_a_single_child_is_a_merge():
    assert merge_parents([child("c", "a", "b")]) == ("a", "b")
    assert merge_parents([child("c", "a"), child("d", "a")]) is None


@pytest.mark.parametrize("has_room", [True, False])
@pytest.mark.parametrize("has_rows", [True, False])
def test_both_rows_or_none_let_a_merge_go_on(has_rows, has_room):
    for seed in range(100):
        rng = random.Random(seed)
        verdict = judge_merge(rng, has_first=has_rows, has_second=has_rows, has_room=has_room)
        assert verdict is MergeVerdict.GO_ON


@pytest.mark.parametrize("has_first", [True, False])
def test_with_one_row_a_full_worker_waits_and_gives_up_once_in_thirty(has_first):
    rng = random.Random(3)
    verdicts = [
        judge_merge(rng, has_first=has_first, has_second=not has_first, has_room=False)
        for _ in range(30_000)
    ]
    assert 850 < verdicts.count(MergeVerdict.GIVE_UP) < 1150
    assert MergeVerdict.GO_ON not in verdicts


@pytest.mark.parametrize("has_first", [True, False])
def test_with_one_row_a_worker_that_has_room_only_waits(has_first):
    rng = random.Random(3)
    verdicts = {
        judge_merge(rng, has_first=has_first, has_second=not has_first, has_room=True)
        for _ in range(1000)
    }
    assert verdicts == {MergeVerdict.WAIT}


def test_a_child_must_name_a_parent():
    assert child_without_parents([child("c", "a"), child("d")]) == "d"
    assert child_without_parents([child("c", "a")]) is None


@pytest.mark.parametrize(
    ("parent", "blocked"),
    [
        (None, False),
        (ROW, True),
        (Lease(lease_key="p", shard_id="p"), True),
        (Lease(lease_key="p", shard_id="p", checkpoint=SHARD_END), False),
    ],
)
def test_only_an_unfinished_row_blocks_a_child(parent, blocked):
    assert blocks(parent) is blocked


def test_where_shards_roll_over_a_single_child_of_a_single_parent_is_no_merge():
    assert merge_parents([child("c", "a")]) == ("a",)
    assert merge_parents([child("c", "a")], rolls_over=True) is None
    assert merge_parents([child("c", "a", "b")], rolls_over=True) == ("a", "b")


def test_without_hash_ranges_only_children_go_on():
    row = replace(ROW, hash_range=HashRange(0, 1))
    shards = [listed("x", 0, 1, "q"), listed("y", 0, 1, "p")]
    found = heirs(row, shards, has_hash_ranges=False)
    assert [one.shard_id for one in found] == ["y"]
    assert heirs(row, shards[:1], has_hash_ranges=False) == ()


def test_a_row_that_names_itself_among_its_children_names_none():
    assert noted_children(replace(ROW, child_shard_ids=("c", "d"))) == ("c", "d")
    assert noted_children(replace(ROW, child_shard_ids=("a", "c", "p"))) == ()
