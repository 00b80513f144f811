"""Is it still the stream, the shard, the table that the worker began with?"""

from __future__ import annotations

import pytest

from kcl_mld.config.stream import DYNAMODB_STREAMS
from kcl_mld.leases.rules.table_existence import missing_table
from kcl_mld.streams.model.shard import HashRange, Shard
from kcl_mld.streams.rules.existence import (
    LISTED_S,
    ShardExistence,
    beginnings,
    disabled_stream,
    is_another_stream,
    missing_stream,
    recreated_stream,
    shard_existence,
)


def shard(number, start="100"):
    return Shard(f"shardId-{number:012d}", HashRange(0, 1), start)


@pytest.mark.parametrize(
    ("number", "sequence_number", "expected"),
    [
        (5, None, ShardExistence.LISTED),
        (5, "100", ShardExistence.LISTED),
        (5, "99", ShardExistence.FOREIGN),
        (3, None, ShardExistence.TRIMMED),
        (3, "7", ShardExistence.TRIMMED),
        (6, None, ShardExistence.TRIMMED),
        (8, None, ShardExistence.FOREIGN),
    ],
)
def test_a_stream_forgets_its_oldest_shards_first(number, sequence_number, expected):
    listed = [shard(5), shard(7)]
    assert shard_existence(shard(number).shard_id, sequence_number, listed, 1e9) is expected


@pytest.mark.parametrize(
    ("later", "is_another"),
    [
        ([shard(4), shard(5)], False),
        ([shard(5), shard(6), shard(7)], False),
        ([shard(6), shard(7)], False),
        ([shard(4), shard(5, "101")], True),
        ([shard(0), shard(1)], True),
        ([], False),
    ],
)
def test_a_stream_uses_no_shard_number_twice(later, is_another):
    assert is_another_stream(beginnings([shard(4), shard(5)]), later) is is_another


def test_without_an_earlier_list_any_stream_is_the_same():
    assert not is_another_stream({}, [shard(0)])


@pytest.mark.parametrize(
    ("summary", "created", "says"),
    [
        (None, None, "stream orders was deleted. Its leases in table app stay"),
        ({"StreamStatus": "DELETING"}, 1, "stream orders is being deleted"),
        (
            {"StreamStatus": "CREATING", "StreamCreationTimestamp": 2},
            1,
            "created again (the new one was created at 2, not at 1). The leases in table app",
        ),
    ],
)
def test_what_is_wrong_with_a_stream(summary, created, says):
    why = missing_stream("orders", "app", summary, created)
    assert why is not None
    assert says in why


@pytest.mark.parametrize("created", [None, 1])
@pytest.mark.parametrize("now", [None, 1])
def test_a_stream_of_the_same_or_an_unknown_creation_is_the_same(now, created):
    summary = {"StreamStatus": "ACTIVE", "StreamCreationTimestamp": now}
    assert missing_stream("orders", "app", summary, created) is None


def test_a_recreated_stream_says_what_to_do():
    assert "delete that table, or use another" in recreated_stream("orders", "app", "why")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (None, "lease table app was deleted"),
        ({"TableStatus": "DELETING", "TableId": "a"}, "lease table app is being deleted"),
        ({"TableStatus": "ACTIVE", "TableId": "b"}, "was deleted and created again"),
        ({"TableStatus": "ACTIVE", "TableId": "a"}, None),
        ({"TableStatus": "ACTIVE"}, None),
    ],
)
def test_what_is_wrong_with_a_table(table, says):
    why = missing_table("app", table, "a")
    assert (why is None) is (says is None)
    assert (says or "") in (why or "")


def test_a_table_without_an_id_is_known_by_its_creation():
    table = {"TableStatus": "ACTIVE", "CreationDateTime": 2}
    assert missing_table("app", table, 1) is not None
    assert missing_table("app", table, 2) is None
    assert missing_table("app", table, None) is None


@pytest.mark.parametrize(
    ("number", "sequence_number", "expected"),
    [
        (5, None, ShardExistence.TRIMMED),  # closed, and its records are gone
        (7, "1", ShardExistence.LISTED),
        (3, None, ShardExistence.TRIMMED),
        (8, None, ShardExistence.LISTED),  # not listed yet
    ],
)
def test_no_shard_of_a_table_is_one_of_another_stream(number, sequence_number, expected):
    closed = Shard(shard(5).shard_id, HashRange(0, 1), "1", "2")
    listed = [closed, shard(7)]
    found = shard_existence(shard(number).shard_id, sequence_number, listed, 1e9, DYNAMODB_STREAMS)
    assert found is expected


def test_a_shard_that_is_younger_than_its_records_are_kept_is_listed_late():
    made_s = 1_795_850_000.0
    older, newer = (f"shardId-{int(1000 * at_s):020d}-0000000a" for at_s in (made_s, made_s + 60))
    listed = [Shard(newer, HashRange(0, 1), "1", None)]

    def found(age_s):
        return shard_existence(older, None, listed, made_s + age_s, DYNAMODB_STREAMS)

    assert found(LISTED_S - 1) is ShardExistence.LISTED
    assert found(LISTED_S) is ShardExistence.TRIMMED


@pytest.mark.parametrize("summary", [None, {}, {"StreamStatus": "ACTIVE"}])
def test_a_stream_that_is_not_disabled(summary):
    assert disabled_stream(summary, is_one_of_many=False) is None


@pytest.mark.parametrize("status", ["DISABLING", "DISABLED"])
@pytest.mark.parametrize(
    ("newer", "is_one_of_many", "known", "todo"),
    [
        ("arn:x", False, "newest stream is arn:x", "a worker with an applicationName of its own"),
        ("arn:x", True, "newest stream is arn:x", "add the newest stream to streams, or restart"),
        (None, False, "no newer stream of the table is known (LatestStreamArn", "a worker with"),
    ],
)
def test_a_stream_that_was_disabled(status, newer, is_one_of_many, known, todo):
    summary = {"StreamStatus": status, "NewerStreamARN": newer}
    cause, does = disabled_stream(summary, is_one_of_many=is_one_of_many)
    assert cause.startswith("it was disabled, and is read to its end; its records stay 24 hours; ")
    assert known in cause
    assert does.startswith(todo)


def test_a_newest_stream_that_may_not_be_looked_for_is_not_said_to_be_missing():
    summary = {"StreamStatus": "DISABLED", "NewerStreamARN": None, "NewerStreamDenied": True}
    cause, _ = disabled_stream(summary, is_one_of_many=False)
    assert "newest stream is not known, because dynamodb:ListStreams is not allowed" in cause
    assert "no newer stream" not in cause
