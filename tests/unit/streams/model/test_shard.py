"""Shards and hash ranges."""

import pytest

from kcl_mld.errors import MalformedData
from kcl_mld.streams.model.shard import MAX_HASH_KEY, HashRange, Shard

ENTRY = {
    "ShardId": "shardId-000000000003",
    "ParentShardId": "shardId-000000000001",
    "AdjacentParentShardId": "shardId-000000000000",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(MAX_HASH_KEY)},
    "SequenceNumberRange": {"StartingSequenceNumber": "7", "EndingSequenceNumber": "9"},
}


def without(*path):
    entry = {key: dict(value) if isinstance(value, dict) else value for key, value in ENTRY.items()}
    inner = entry
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return entry


def test_a_listed_shard_is_read_whole():
    shard = Shard.from_response(ENTRY)
    assert shard.shard_id == "shardId-000000000003"
    assert shard.hash_range.is_whole
    assert (shard.starting_sequence_number, shard.ending_sequence_number) == ("7", "9")
    assert not shard.is_open
    assert shard.parent_shard_ids == ("shardId-000000000000", "shardId-000000000001")


def test_a_shard_without_ending_number_is_open_and_one_without_parents_a_root():
    entry = without("SequenceNumberRange", "EndingSequenceNumber")
    del entry["ParentShardId"], entry["AdjacentParentShardId"]
    shard = Shard.from_response(entry)
    assert shard.is_open
    assert shard.parent_shard_ids == ()


def test_an_adjacent_parent_may_come_alone_and_equal_parents_count_once():
    assert Shard.from_response(without("ParentShardId")).parent_shard_ids == (
        "shardId-000000000000",
    )
    twice = ENTRY | {"AdjacentParentShardId": "shardId-000000000001"}
    assert Shard.from_response(twice).parent_shard_ids == ("shardId-000000000001",)


@pytest.mark.parametrize(
    "path",
    [
        ("ShardId",),
        ("HashKeyRange",),
        ("SequenceNumberRange",),
        ("HashKeyRange", "EndingHashKey"),
        ("SequenceNumberRange", "StartingSequenceNumber"),
    ],
)
def test_a_shard_without_a_mandatory_field_is_malformed(path):
    with pytest.raises(MalformedData, match=path[-1]):
        Shard.from_response(without(*path))


@pytest.mark.parametrize("text", ["x", "", "-1", "1_0", " 1", "9" * 41, None])
def test_a_bound_that_is_not_decimal_is_malformed(text):
    with pytest.raises(MalformedData, match="not decimal"):
        HashRange.parse("0", text)


@pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 3), (0, 2**128)])
def test_a_range_outside_the_space_is_malformed(start, end):
    with pytest.raises(MalformedData, match="outside"):
        HashRange(start, end)


def test_a_range_holds_both_its_bounds():
    keys = HashRange.parse("5", "7")
    assert [key in keys for key in (4, 5, 7, 8)] == [False, True, True, False]
    assert not keys.is_whole
    assert not HashRange(0, 7).is_whole
    assert 5 in HashRange(5, 5)
