"""Kinesis as the daemon relies on it: the same cases in process, over HTTP and on an emulator."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.targets import Refused, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

_numbers = itertools.count()
MAX_KEY = (1 << 128) - 1
FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
MIDDLE = str(1 << 127)


def new_stream(kinesis: Target, shards: int = 1) -> str:
    name = f"stream-{next(_numbers)}"
    kinesis.call("CreateStream", StreamName=name, ShardCount=shards)
    until_active(kinesis, name)
    return name


def until_active(kinesis: Target, stream: str) -> list[str]:
    """Wait; the states seen on the way."""
    seen: list[str] = []
    for _ in range(100):
        seen.append(summary(kinesis, stream)["StreamStatus"])
        if seen[-1] == "ACTIVE":
            return seen
        kinesis.advance(0.1)
    raise AssertionError(f"{stream} stays {seen[-1]}")


def summary(kinesis: Target, stream: str) -> dict[str, Any]:
    answer = kinesis.call("DescribeStreamSummary", StreamName=stream)
    described: dict[str, Any] = answer["StreamDescriptionSummary"]
    return described


def put(kinesis: Target, stream: str, *data: bytes, hash_key: str = "0") -> list[str]:
    """Put records into the shard of a hash key; their sequence numbers."""
    return [
        kinesis.call(
            "PutRecord", StreamName=stream, PartitionKey="k", Data=datum, ExplicitHashKey=hash_key
        )["SequenceNumber"]
        for datum in data
    ]


def iterator(kinesis: Target, stream: str, shard: str = FIRST, **how: Any) -> str:
    how = how or {"ShardIteratorType": "TRIM_HORIZON"}
    answer = kinesis.call("GetShardIterator", StreamName=stream, ShardId=shard, **how)
    text: str = answer["ShardIterator"]
    return text


def read(kinesis: Target, position: str, **more: Any) -> dict[str, Any]:
    return kinesis.call("GetRecords", ShardIterator=position, **more)


def read_data(kinesis: Target, stream: str, shard: str = FIRST, **how: Any) -> list[bytes]:
    """Data of all records from a position until nothing is behind."""
    position: str | None = iterator(kinesis, stream, shard, **how)
    found: list[bytes] = []
    for _ in range(20):
        assert position is not None
        answer = read(kinesis, position)
        found += [record["Data"] for record in answer["Records"]]
        position = answer.get("NextShardIterator")
        if position is None or not answer["MillisBehindLatest"]:
            return found
    raise AssertionError("never at the tip")


def read_to_end(kinesis: Target, stream: str, shard: str) -> tuple[list[bytes], dict[str, Any]]:
    """Data of a closed shard and the answer that ended it."""
    position: str | None = iterator(kinesis, stream, shard)
    found: list[bytes] = []
    for _ in range(20):
        answer = read(kinesis, position or "")
        found += [record["Data"] for record in answer["Records"]]
        position = answer.get("NextShardIterator")
        if position is None:
            return found, answer
    raise AssertionError("the shard never ends")


def shard_ids(kinesis: Target, **request: Any) -> list[str]:
    answer = kinesis.call("ListShards", **request)
    return [shard["ShardId"] for shard in answer["Shards"]]


def refused(kinesis: Target, operation: str, **request: Any) -> str:
    """The code of the error that a call must give."""
    with pytest.raises(Refused) as caught:
        kinesis.call(operation, **request)
    return caught.value.code


def split(kinesis: Target, stream: str, shard: str = FIRST, at: str = MIDDLE) -> list[str]:
    kinesis.call("SplitShard", StreamName=stream, ShardToSplit=shard, NewStartingHashKey=at)
    return until_active(kinesis, stream)


def merge(kinesis: Target, stream: str, shard: str, adjacent: str) -> list[str]:
    kinesis.call(
        "MergeShards", StreamName=stream, ShardToMerge=shard, AdjacentShardToMerge=adjacent
    )
    return until_active(kinesis, stream)


# --- streams --------------------------------------------------------------------------------


def test_a_new_stream_is_described(kinesis: Target) -> None:
    stream = new_stream(kinesis, 3)
    described = summary(kinesis, stream)
    assert described["StreamName"] == stream
    assert described["StreamARN"].endswith(f":stream/{stream}")
    assert described["OpenShardCount"] == 3
    assert described["RetentionPeriodHours"] == 24
    assert described["StreamModeDetails"] == {"StreamMode": "PROVISIONED"}
    assert described["StreamCreationTimestamp"].tzinfo is not None
    assert described["ConsumerCount"] == 0


def test_a_missing_stream_is_not_found(kinesis: Target) -> None:
    for operation in ("DescribeStreamSummary", "ListShards", "DeleteStream"):
        assert refused(kinesis, operation, StreamName="nowhere") == "ResourceNotFoundException"


def test_a_second_stream_of_the_same_name_is_refused(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    code = refused(kinesis, "CreateStream", StreamName=stream, ShardCount=1)
    assert code == "ResourceInUseException"


def test_a_stream_is_named_by_its_arn_too(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    put(kinesis, stream, b"a")
    arn = summary(kinesis, stream)["StreamARN"]
    assert shard_ids(kinesis, StreamARN=arn) == [FIRST]
    answer = kinesis.call(
        "GetShardIterator", StreamARN=arn, ShardId=FIRST, ShardIteratorType="TRIM_HORIZON"
    )
    got = kinesis.call("GetRecords", ShardIterator=answer["ShardIterator"], StreamARN=arn)
    assert [record["Data"] for record in got["Records"]] == [b"a"]
    put_by_arn = kinesis.call("PutRecord", StreamARN=arn, PartitionKey="k", Data=b"b")
    assert put_by_arn["ShardId"] == FIRST


def test_a_deleted_stream_is_gone(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    position = iterator(kinesis, stream)
    kinesis.call("DeleteStream", StreamName=stream)
    kinesis.advance(2)
    assert refused(kinesis, "ListShards", StreamName=stream) == "ResourceNotFoundException"
    assert refused(kinesis, "GetRecords", ShardIterator=position) == "ResourceNotFoundException"


# --- putting --------------------------------------------------------------------------------


def test_a_key_goes_to_the_shard_of_its_md5(kinesis: Target) -> None:
    stream = new_stream(kinesis, 2)
    keys = [f"key-{number}" for number in range(20)]
    answer = kinesis.call(
        "PutRecords",
        StreamName=stream,
        Records=[{"PartitionKey": key, "Data": key.encode()} for key in keys],
    )
    assert answer["FailedRecordCount"] == 0
    for key, result in zip(keys, answer["Records"], strict=True):
        place = int.from_bytes(hashlib.md5(key.encode()).digest(), "big")
        assert result["ShardId"] == (SECOND if place >= 1 << 127 else FIRST)


def test_an_explicit_hash_key_wins(kinesis: Target) -> None:
    stream = new_stream(kinesis, 2)
    put(kinesis, stream, b"low", hash_key="0")
    put(kinesis, stream, b"high", hash_key=str(MAX_KEY))
    assert read_data(kinesis, stream, FIRST) == [b"low"]
    assert read_data(kinesis, stream, SECOND) == [b"high"]


def test_sequence_numbers_rise_and_name_their_shard(kinesis: Target) -> None:
    stream = new_stream(kinesis, 2)
    numbers = [int(text) for text in put(kinesis, stream, b"a", b"b", b"c", hash_key=str(MAX_KEY))]
    assert numbers == sorted(set(numbers))
    for number in numbers:
        assert len(str(number)) == 56
        assert number.bit_length() == 186
        assert (number >> 4) & 0xFFFFFFFF == 1


def test_bad_puts_are_refused(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    too_many = [{"PartitionKey": "k", "Data": b""}] * 501
    assert refused(kinesis, "PutRecords", StreamName=stream, Records=too_many)
    assert refused(kinesis, "PutRecord", StreamName=stream, PartitionKey="", Data=b"x")
    beyond = str(MAX_KEY + 1)
    assert (
        refused(
            kinesis,
            "PutRecord",
            StreamName=stream,
            PartitionKey="k",
            Data=b"x",
            ExplicitHashKey=beyond,
        )
        == "InvalidArgumentException"
    )


# --- reading --------------------------------------------------------------------------------


def test_records_come_back_as_they_were_put(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    data = [b"", b"a", bytes(range(256)), "żółw".encode()]
    key = 'k"\\/é\n'
    for datum in data:
        kinesis.call("PutRecord", StreamName=stream, PartitionKey=key, Data=datum or b"-")
    answer = read(kinesis, iterator(kinesis, stream))
    assert [record["Data"] for record in answer["Records"]] == [datum or b"-" for datum in data]
    for record in answer["Records"]:
        assert record["PartitionKey"] == key
        assert record["ApproximateArrivalTimestamp"].tzinfo is not None
        assert record["SequenceNumber"].isdigit()
    assert answer["MillisBehindLatest"] == 0
    assert answer["NextShardIterator"]


def test_every_iterator_type_starts_where_it_says(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    numbers = put(kinesis, stream, b"a", b"b", b"c")
    latest = iterator(kinesis, stream, ShardIteratorType="LATEST")
    at = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": numbers[1]}
    after = {**at, "ShardIteratorType": "AFTER_SEQUENCE_NUMBER"}
    assert read_data(kinesis, stream) == [b"a", b"b", b"c"]
    assert read_data(kinesis, stream, **at) == [b"b", b"c"]
    assert read_data(kinesis, stream, **after) == [b"c"]
    put(kinesis, stream, b"d")
    assert [r["Data"] for r in read(kinesis, latest)["Records"]] == [b"d"]


def test_a_timestamp_finds_the_first_record_at_or_after_it(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    put(kinesis, stream, b"a")
    kinesis.advance(1.1)
    put(kinesis, stream, b"b")
    records = read(kinesis, iterator(kinesis, stream))["Records"]
    time_of_b = records[1]["ApproximateArrivalTimestamp"]
    kinesis.advance(1.1)
    for when, expected in (
        (time_of_b - timedelta(milliseconds=500), [b"b"]),
        (time_of_b + timedelta(milliseconds=500), []),
        (time_of_b - timedelta(days=1), [b"a", b"b"]),
    ):
        how = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": when}
        assert read_data(kinesis, stream, **how) == expected


def test_a_shards_starting_number_reads_from_its_first_record(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    put(kinesis, stream, b"a")
    (shard,) = kinesis.call("ListShards", StreamName=stream)["Shards"]
    start = shard["SequenceNumberRange"]["StartingSequenceNumber"]
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        how = {"ShardIteratorType": kind, "StartingSequenceNumber": start}
        assert read_data(kinesis, stream, **how) == [b"a"]


@pytest.mark.parametrize(
    "number",
    ["0", "12345", "4" + "9" * 55, "not a number"],
    ids=["0", "12345", "made up", "not a number"],
)
def test_a_foreign_sequence_number_is_refused(kinesis: Target, number: str) -> None:
    stream = new_stream(kinesis)
    put(kinesis, stream, b"a")
    code = refused(
        kinesis,
        "GetShardIterator",
        StreamName=stream,
        ShardId=FIRST,
        ShardIteratorType="AFTER_SEQUENCE_NUMBER",
        StartingSequenceNumber=number,
    )
    assert code == "InvalidArgumentException"


def test_a_missing_shard_is_not_found(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    code = refused(
        kinesis,
        "GetShardIterator",
        StreamName=stream,
        ShardId="shardId-000000000009",
        ShardIteratorType="LATEST",
    )
    assert code == "ResourceNotFoundException"


def test_a_malformed_iterator_is_refused(kinesis: Target) -> None:
    assert refused(kinesis, "GetRecords", ShardIterator="nonsense") == "InvalidArgumentException"


def test_an_old_iterator_expires(kinesis: Target) -> None:
    if kinesis.name == "kinesis-local":
        pytest.skip("it would take five minutes")
    stream = new_stream(kinesis)
    position = iterator(kinesis, stream)
    kinesis.advance(290)
    assert read(kinesis, position)["Records"] == []
    kinesis.advance(11)
    assert refused(kinesis, "GetRecords", ShardIterator=position) == "ExpiredIteratorException"


def test_a_limit_cuts_the_answer_and_the_next_iterator_goes_on(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    put(kinesis, stream, b"a", b"b", b"c")
    first = read(kinesis, iterator(kinesis, stream), Limit=2)
    assert [record["Data"] for record in first["Records"]] == [b"a", b"b"]
    second = read(kinesis, first["NextShardIterator"], Limit=2)
    assert [record["Data"] for record in second["Records"]] == [b"c"]
    assert second["MillisBehindLatest"] == 0


def test_a_reader_that_is_behind_sees_how_far(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    put(kinesis, stream, b"a")
    kinesis.advance(1.2)
    put(kinesis, stream, b"b")
    answer = read(kinesis, iterator(kinesis, stream), Limit=1)
    assert 1000 <= answer["MillisBehindLatest"] < 60_000


def test_limits_out_of_range_are_refused(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    position = iterator(kinesis, stream)
    for limit in (0, 10_001):
        assert refused(kinesis, "GetRecords", ShardIterator=position, Limit=limit)


def test_one_answer_holds_at_most_ten_megabytes(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    megabyte = bytes(1_000_000)
    for _ in range(12):
        put(kinesis, stream, megabyte)
    first = read(kinesis, iterator(kinesis, stream))
    assert 5 <= len(first["Records"]) <= 10
    assert first["MillisBehindLatest"] > 0
    rest = read(kinesis, first["NextShardIterator"])
    assert len(first["Records"]) + len(rest["Records"]) == 12


# --- resharding -----------------------------------------------------------------------------


def test_a_split_makes_two_children_and_ends_the_parent(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    put(kinesis, stream, b"before")
    seen = split(kinesis, stream)
    assert seen[0] == "UPDATING"
    put(kinesis, stream, b"low", hash_key="0")
    put(kinesis, stream, b"high", hash_key=str(MAX_KEY))
    parent, low, high = kinesis.call("ListShards", StreamName=stream)["Shards"]
    assert int(parent["SequenceNumberRange"]["EndingSequenceNumber"])
    for child in (low, high):
        assert child["ParentShardId"] == FIRST
        assert child.get("AdjacentParentShardId") is None
        assert "EndingSequenceNumber" not in child["SequenceNumberRange"]
        starts = int(child["SequenceNumberRange"]["StartingSequenceNumber"])
        assert starts > int(parent["SequenceNumberRange"]["StartingSequenceNumber"])
    assert low["HashKeyRange"] == {
        "StartingHashKey": "0",
        "EndingHashKey": str(int(MIDDLE) - 1),
    }
    assert high["HashKeyRange"] == {"StartingHashKey": MIDDLE, "EndingHashKey": str(MAX_KEY)}
    data, last = read_to_end(kinesis, stream, FIRST)
    assert data == [b"before"]
    assert children(last) == [(low["ShardId"], [FIRST]), (high["ShardId"], [FIRST])]
    assert [child["HashKeyRange"] for child in last["ChildShards"]] == [
        low["HashKeyRange"],
        high["HashKeyRange"],
    ]
    assert read_data(kinesis, stream, low["ShardId"]) == [b"low"]
    assert read_data(kinesis, stream, high["ShardId"]) == [b"high"]


def children(answer: dict[str, Any]) -> Sequence[tuple[str, list[str]]]:
    return sorted((child["ShardId"], child["ParentShards"]) for child in answer["ChildShards"])


def test_a_merge_makes_one_child_of_two_parents(kinesis: Target) -> None:
    stream = new_stream(kinesis, 2)
    put(kinesis, stream, b"a", hash_key="0")
    put(kinesis, stream, b"b", hash_key=str(MAX_KEY))
    assert merge(kinesis, stream, FIRST, SECOND)[0] == "UPDATING"
    child = kinesis.call("ListShards", StreamName=stream)["Shards"][2]
    assert child["ParentShardId"] == FIRST
    assert child["AdjacentParentShardId"] == SECOND
    assert child["HashKeyRange"] == {"StartingHashKey": "0", "EndingHashKey": str(MAX_KEY)}
    for shard, data in ((FIRST, [b"a"]), (SECOND, [b"b"])):
        found, last = read_to_end(kinesis, stream, shard)
        assert found == data
        assert children(last) == [(child["ShardId"], [FIRST, SECOND])]


def test_an_iterator_from_before_the_split_reads_to_the_end(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    latest = iterator(kinesis, stream, ShardIteratorType="LATEST")
    put(kinesis, stream, b"a")
    split(kinesis, stream)
    answer = read(kinesis, latest)
    assert [record["Data"] for record in answer["Records"]] == [b"a"]
    while "NextShardIterator" in answer:
        answer = read(kinesis, answer["NextShardIterator"])
    assert len(answer["ChildShards"]) == 2


def test_a_closed_shard_gives_an_iterator_after_its_last_record(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    (number,) = put(kinesis, stream, b"a")
    split(kinesis, stream)
    for how in (
        {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": number},
        {"ShardIteratorType": "LATEST"},
    ):
        answer = read(kinesis, iterator(kinesis, stream, **how))
        assert answer["Records"] == []
        assert answer.get("NextShardIterator") is None
        assert len(answer["ChildShards"]) == 2


def test_reshards_that_make_no_sense_are_refused(kinesis: Target) -> None:
    stream = new_stream(kinesis, 3)
    third = "shardId-000000000002"
    for operation, request in (
        ("SplitShard", {"ShardToSplit": FIRST, "NewStartingHashKey": "0"}),
        ("SplitShard", {"ShardToSplit": FIRST, "NewStartingHashKey": str(MAX_KEY)}),
        ("MergeShards", {"ShardToMerge": FIRST, "AdjacentShardToMerge": third}),
    ):
        code = refused(kinesis, operation, StreamName=stream, **request)
        assert code == "InvalidArgumentException"
    missing = {"ShardToSplit": "shardId-000000000077", "NewStartingHashKey": "5"}
    assert refused(kinesis, "SplitShard", StreamName=stream, **missing) == (
        "ResourceNotFoundException"
    )


def test_a_reshard_during_another_is_refused(kinesis: Target) -> None:
    stream = new_stream(kinesis, 2)
    request = {"StreamName": stream, "ShardToSplit": FIRST, "NewStartingHashKey": "77"}
    kinesis.call("SplitShard", **request)
    assert refused(kinesis, "SplitShard", **request) == "ResourceInUseException"
    until_active(kinesis, stream)


def test_shards_can_be_counted_up(kinesis: Target) -> None:
    stream = new_stream(kinesis, 2)
    kinesis.call(
        "UpdateShardCount",
        StreamName=stream,
        TargetShardCount=4,
        ScalingType="UNIFORM_SCALING",
    )
    until_active(kinesis, stream)
    assert summary(kinesis, stream)["OpenShardCount"] == 4


# --- ListShards -----------------------------------------------------------------------------


def grown(kinesis: Target) -> str:
    """0 -> 1, 2; then 1 + 2 -> 3."""
    stream = new_stream(kinesis)
    kinesis.advance(1.1)
    split(kinesis, stream)
    kinesis.advance(1.1)
    merge(kinesis, stream, SECOND, "shardId-000000000002")
    return stream


def test_pages_follow_a_token_alone(kinesis: Target) -> None:
    stream = new_stream(kinesis, 5)
    first = kinesis.call("ListShards", StreamName=stream, MaxResults=2)
    second = kinesis.call("ListShards", NextToken=first["NextToken"], MaxResults=2)
    third = kinesis.call("ListShards", NextToken=second["NextToken"], MaxResults=2)
    assert third.get("NextToken") is None
    listed = [s["ShardId"] for page in (first, second, third) for s in page["Shards"]]
    assert listed == [f"shardId-{number:012d}" for number in range(5)]


def test_a_token_beside_a_stream_is_refused(kinesis: Target) -> None:
    stream = new_stream(kinesis, 2)
    token = kinesis.call("ListShards", StreamName=stream, MaxResults=1)["NextToken"]
    code = refused(kinesis, "ListShards", StreamName=stream, NextToken=token)
    assert code == "InvalidArgumentException"


def test_listing_starts_after_a_shard(kinesis: Target) -> None:
    stream = new_stream(kinesis, 3)
    assert shard_ids(kinesis, StreamName=stream, ExclusiveStartShardId=FIRST) == [
        SECOND,
        "shardId-000000000002",
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("AT_LATEST", [3]), ("FROM_TRIM_HORIZON", [0, 1, 2, 3]), (None, [0, 1, 2, 3])],
)
def test_a_filter_by_place_selects_shards(
    kinesis: Target, kind: str | None, expected: list[int]
) -> None:
    stream = grown(kinesis)
    request = {"ShardFilter": {"Type": kind}} if kind else {}
    listed = shard_ids(kinesis, StreamName=stream, **request)
    assert listed == [f"shardId-{number:012d}" for number in expected]


def test_at_trim_horizon_selects_the_shards_open_at_the_start(kinesis: Target) -> None:
    stream = grown(kinesis)
    listed = shard_ids(kinesis, StreamName=stream, ShardFilter={"Type": "AT_TRIM_HORIZON"})
    assert listed == [FIRST]


def test_after_shard_id_selects_what_follows(kinesis: Target) -> None:
    stream = grown(kinesis)
    chosen = {"Type": "AFTER_SHARD_ID", "ShardId": SECOND}
    assert shard_ids(kinesis, StreamName=stream, ShardFilter=chosen) == [
        "shardId-000000000002",
        "shardId-000000000003",
    ]


def test_a_filter_by_time_selects_the_shards_open_then(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    put(kinesis, stream, b"a")
    record = read(kinesis, iterator(kinesis, stream))["Records"][0]
    early = record["ApproximateArrivalTimestamp"]
    kinesis.advance(2.1)
    split(kinesis, stream)
    kinesis.advance(2.1)
    put(kinesis, stream, b"b")
    late = read(kinesis, iterator(kinesis, stream, SECOND))["Records"][0]
    later = late["ApproximateArrivalTimestamp"]
    for kind, when, expected in (
        ("AT_TIMESTAMP", early, [0]),
        ("AT_TIMESTAMP", later, [1, 2]),
        ("FROM_TIMESTAMP", early, [0, 1, 2]),
        ("FROM_TIMESTAMP", later, [1, 2]),
    ):
        listed = shard_ids(
            kinesis, StreamName=stream, ShardFilter={"Type": kind, "Timestamp": when}
        )
        assert listed == [f"shardId-{number:012d}" for number in expected], (kind, when)


def test_a_filter_holds_for_all_pages(kinesis: Target) -> None:
    stream = grown(kinesis)
    first = kinesis.call(
        "ListShards",
        StreamName=stream,
        MaxResults=1,
        ShardFilter={"Type": "AFTER_SHARD_ID", "ShardId": FIRST},
    )
    second = kinesis.call("ListShards", NextToken=first["NextToken"], MaxResults=1)
    assert [shard["ShardId"] for shard in first["Shards"] + second["Shards"]] == [
        SECOND,
        "shardId-000000000002",
    ]


# --- names and tags of streams --------------------------------------------------------------


def test_streams_are_listed_in_order_page_by_page(kinesis: Target) -> None:
    mine = sorted(new_stream(kinesis) for _ in range(3))
    found: list[str] = []
    request: dict[str, Any] = {"Limit": 2}
    while True:
        answer = kinesis.call("ListStreams", **request)
        assert len(answer["StreamNames"]) <= 2
        found += answer["StreamNames"]
        if not answer["HasMoreStreams"]:
            break
        request["ExclusiveStartStreamName"] = found[-1]
    assert found == sorted(found)
    assert [name for name in found if name in mine] == mine


def test_tags_are_added_changed_removed_and_listed_page_by_page(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    assert tags(kinesis, stream) == {}
    kinesis.call("AddTagsToStream", StreamName=stream, Tags={"a": "1", "b": "", "c": "3"})
    kinesis.call("AddTagsToStream", StreamName=stream, Tags={"a": "2"})
    assert tags(kinesis, stream) == {"a": "2", "b": "", "c": "3"}
    first = kinesis.call("ListTagsForStream", StreamName=stream, Limit=2)
    assert [tag["Key"] for tag in first["Tags"]] == ["a", "b"]
    assert first["HasMoreTags"]
    rest = kinesis.call("ListTagsForStream", StreamName=stream, ExclusiveStartTagKey="b")
    assert [tag["Key"] for tag in rest["Tags"]] == ["c"]
    assert not rest["HasMoreTags"]
    kinesis.call("RemoveTagsFromStream", StreamName=stream, TagKeys=["a", "never"])
    assert tags(kinesis, stream) == {"b": "", "c": "3"}


def tags(kinesis: Target, stream: str) -> dict[str, str]:
    answer = kinesis.call("ListTagsForStream", StreamName=stream)
    return {tag["Key"]: tag["Value"] for tag in answer["Tags"]}


def test_tags_of_a_missing_stream_are_not_found(kinesis: Target) -> None:
    with pytest.raises(Refused, match="ResourceNotFoundException"):
        kinesis.call("ListTagsForStream", StreamName="absent")


# --- consumers ------------------------------------------------------------------------------


def new_consumer(kinesis: Target, stream: str, name: str = "app") -> str:
    """The ARN of a consumer that is ACTIVE."""
    arn = summary(kinesis, stream)["StreamARN"]
    made = kinesis.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName=name)["Consumer"]
    for _ in range(50):
        found = kinesis.call("DescribeStreamConsumer", ConsumerARN=made["ConsumerARN"])
        if found["ConsumerDescription"]["ConsumerStatus"] == "ACTIVE":
            consumer: str = made["ConsumerARN"]
            return consumer
        kinesis.advance(0.2)
    raise AssertionError(f"{name} stays CREATING")


def subscribed(kinesis: Target, consumer: str, shard: str = FIRST, **position: Any) -> Any:
    position = position or {"Type": "TRIM_HORIZON"}
    return kinesis.events(ConsumerARN=consumer, ShardId=shard, StartingPosition=position)


def subscription_refused(kinesis: Target, *args: Any, **more: Any) -> str:
    with pytest.raises(Refused) as caught:
        subscribed(kinesis, *args, **more)
    return caught.value.code


def received(kinesis: Target, consumer: str, wanted: int = 1, **position: Any) -> list[bytes]:
    """Data of the records that come first, until there are so many."""
    found: list[bytes] = []
    with contextlib.closing(subscribed(kinesis, consumer, **position)) as events:
        for event in events:
            found += [record["Data"] for record in event["Records"]]
            if len(found) >= wanted:
                break
    return found


def test_a_consumer_is_registered_and_found(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    arn = summary(kinesis, stream)["StreamARN"]
    made = kinesis.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="app")["Consumer"]
    found: dict[str, Any] = {}
    for _ in range(50):
        found = kinesis.call("DescribeStreamConsumer", StreamARN=arn, ConsumerName="app")
        if found["ConsumerDescription"]["ConsumerStatus"] == "ACTIVE":
            break
        kinesis.advance(0.2)
    assert found["ConsumerDescription"]["ConsumerARN"] == made["ConsumerARN"]
    by_arn = kinesis.call("DescribeStreamConsumer", ConsumerARN=made["ConsumerARN"])
    assert by_arn["ConsumerDescription"]["ConsumerName"] == "app"
    code = refused(kinesis, "RegisterStreamConsumer", StreamARN=arn, ConsumerName="app")
    assert code == "ResourceInUseException"
    code = refused(kinesis, "DescribeStreamConsumer", StreamARN=arn, ConsumerName="other")
    assert code == "ResourceNotFoundException"


def test_consumers_are_listed_and_deregistered(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    arn = summary(kinesis, stream)["StreamARN"]
    # kinesis-local takes a name away from any stream that has it, so nobody else has these.
    first, second = (new_consumer(kinesis, stream, name) for name in ("leaves", "stays"))
    listed = kinesis.call("ListStreamConsumers", StreamARN=arn)["Consumers"]
    assert {consumer["ConsumerARN"] for consumer in listed} == {first, second}
    assert summary(kinesis, stream)["ConsumerCount"] == 2
    kinesis.call("DeregisterStreamConsumer", ConsumerARN=first)
    for _ in range(300):
        listed = kinesis.call("ListStreamConsumers", StreamARN=arn)["Consumers"]
        if len(listed) == 1:
            break
        assert listed[0]["ConsumerStatus"] == "DELETING"
        kinesis.advance(0.2)
    assert listed[0]["ConsumerName"] == "stays"
    code = refused(kinesis, "DescribeStreamConsumer", ConsumerARN=first)
    assert code == "ResourceNotFoundException"


def test_a_subscription_gets_what_is_there_and_what_comes(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    consumer = new_consumer(kinesis, stream)
    (number,) = put(kinesis, stream, b"a")
    events = subscribed(kinesis, consumer)
    first = next(event for event in events if event["Records"])
    (record,) = first["Records"]
    assert (record["Data"], record["PartitionKey"]) == (b"a", "k")
    assert record["SequenceNumber"] == number
    assert first["MillisBehindLatest"] == 0
    assert int(first["ContinuationSequenceNumber"]) >= int(number)
    put(kinesis, stream, b"b")
    second = next(event for event in events if event["Records"])
    assert second["Records"][0]["Data"] == b"b"
    events.close()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("TRIM_HORIZON", b"a"),
        ("AT_SEQUENCE_NUMBER", b"b"),
        ("AFTER_SEQUENCE_NUMBER", b"c"),
        ("AT_TIMESTAMP", b"c"),
    ],
)
def test_a_subscription_begins_where_it_is_told(
    kinesis: Target, kind: str, expected: bytes
) -> None:
    stream = new_stream(kinesis)
    consumer = new_consumer(kinesis, stream)
    numbers = put(kinesis, stream, b"a", b"b")
    kinesis.advance(0.1)
    put(kinesis, stream, b"c")
    kinesis.advance(0.1)
    position: dict[str, Any] = {"Type": kind}
    if "SEQUENCE" in kind:
        position["SequenceNumber"] = numbers[1]
    if kind == "AT_TIMESTAMP":
        last = read(kinesis, iterator(kinesis, stream))["Records"][-1]
        position["Timestamp"] = last["ApproximateArrivalTimestamp"]
    assert received(kinesis, consumer, **position)[0] == expected


def test_a_continuation_leads_on(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    first, second = (new_consumer(kinesis, stream, name) for name in ("one", "two"))
    put(kinesis, stream, b"a")
    with contextlib.closing(subscribed(kinesis, first)) as events:
        event = next(event for event in events if event["Records"])
    number = event["ContinuationSequenceNumber"]
    put(kinesis, stream, b"b")
    after = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
    assert received(kinesis, second, **after) == [b"b"]


def test_a_subscription_ends_with_its_shard(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    consumer = new_consumer(kinesis, stream)
    put(kinesis, stream, b"a")
    kinesis.call("SplitShard", StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey=MIDDLE)
    until_active(kinesis, stream)
    with contextlib.closing(subscribed(kinesis, consumer)) as stream_of_events:
        events = list(itertools.islice(stream_of_events, 3))
    assert [record["Data"] for event in events for record in event["Records"]] == [b"a"]
    assert "ContinuationSequenceNumber" not in events[-1]
    assert [child["ParentShards"] for child in events[-1]["ChildShards"]] == [[FIRST]] * 2
    assert all("ContinuationSequenceNumber" in event for event in events[:-1])


def test_a_second_subscription_is_refused_for_five_seconds(kinesis: Target) -> None:
    stream = new_stream(kinesis)
    consumer, other = (new_consumer(kinesis, stream, name) for name in ("one", "two"))
    put(kinesis, stream, b"a")
    events = subscribed(kinesis, consumer)
    assert next(events)
    assert subscription_refused(kinesis, consumer) == "ResourceInUseException"
    assert received(kinesis, other) == [b"a"]
    kinesis.advance(5.5)
    assert received(kinesis, consumer) == [b"a"]
    with pytest.raises(Refused, match="ResourceInUseException"):
        list(events)


@pytest.mark.parametrize("missing", ["consumer", "shard", "number"])
def test_a_subscription_to_nothing_is_refused(kinesis: Target, missing: str) -> None:
    stream = new_stream(kinesis)
    consumer = new_consumer(kinesis, stream)
    if missing == "consumer":
        code = subscription_refused(kinesis, consumer.replace("/app:", "/other:"))
        assert code == "ResourceNotFoundException"
    elif missing == "shard":
        code = subscription_refused(kinesis, consumer, "shardId-000000000009")
        assert code == "ResourceNotFoundException"
    else:
        wrong = {"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": "12345"}
        assert subscription_refused(kinesis, consumer, **wrong) == "InvalidArgumentException"
