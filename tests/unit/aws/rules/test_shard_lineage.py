from __future__ import annotations

import pytest

from kcl_mld.aws.rules.shard_lineage import asks_again, child_shards, children_of, listed_shards


def entry(shard_id, parent=None, end=None):
    numbers = {"StartingSequenceNumber": "1"} | ({"EndingSequenceNumber": end} if end else {})
    found = {"ShardId": shard_id, "SequenceNumberRange": numbers}
    return found | ({"ParentShardId": parent} if parent else {})


def ends(entries):
    return {
        one["ShardId"]: one["SequenceNumberRange"].get("EndingSequenceNumber")
        for one in listed_shards(entries)
    }


def test_shards_have_the_hash_keys_of_javas_rows():
    assert listed_shards([entry("b", "a", "9")]) == [
        {
            "ShardId": "b",
            "ParentShardId": "a",
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
            "SequenceNumberRange": {"StartingSequenceNumber": "1", "EndingSequenceNumber": "9"},
        }
    ]


def test_of_two_entries_the_later_page_counts():
    assert ends([entry("a"), entry("b"), entry("a", end="5")]) == {"a": "5", "b": None}


def test_a_parent_that_is_listed_as_open_is_closed():
    assert ends([entry("a"), entry("b", "a"), entry("c", "b", "7")]) == {
        "a": str(2**63 - 1),
        "b": str(2**63 - 1),
        "c": "7",
    }


def test_only_shards_that_name_it_are_its_children():
    entries = [entry("a"), entry("c", "a"), entry("b", "a"), entry("d", "b"), entry("b", "a")]
    assert [one["ShardId"] for one in children_of("a", entries)] == ["c", "b", "b"]
    assert child_shards("a", children_of("a", entries)) == [
        {
            "ShardId": child,
            "ParentShards": ["a"],
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
        }
        for child in ("b", "c")
    ]


@pytest.mark.parametrize(
    ("waited_s", "since_s", "asks"),
    [(0.0, 100.0, True), (5, 0.9, False), (5, 1, True), (10, 9, False), (10, 10, True)],
)
def test_a_child_is_asked_for_each_second_and_later_every_ten(waited_s, since_s, asks):
    assert asks_again(waited_s, since_s) is asks
