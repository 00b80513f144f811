"""Streams of tables: what only our own model can show; the rest is in the contract suite."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from kcl_mld.local.dynamodb_streams import TableStreams, TableStreamSettings
from kcl_mld.local.kinesis import KinesisFault

TABLE = "arn:aws:dynamodb:eu-west-1:123456789012:table/Orders"
KEYS = [
    {"AttributeName": "sk", "KeyType": "RANGE"},
    {"AttributeName": "pk", "KeyType": "HASH"},
]
HOUR_S = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_800_000_000.75

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def streams(clock: Clock) -> TableStreams:
    return TableStreams(clock)


@pytest.fixture
def arn(streams: TableStreams) -> str:
    return streams.enable(TABLE, "NEW_AND_OLD_IMAGES", KEYS)


def change(key: str, sort: str = "0", size: int = 0) -> dict[str, Any]:
    keys = {"pk": {"S": key}, "sk": {"S": sort}}
    image = {**keys, "data": {"S": "x" * size}}
    dynamodb = {"Keys": keys, "NewImage": image, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    return {"eventName": "INSERT", "eventVersion": "1.0", "dynamodb": dynamodb}


def call(streams: TableStreams, operation: str, **request: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(streams.call(operation, request, "eu-west-1"))
    return answer


def shards(streams: TableStreams, arn: str, **more: Any) -> list[dict[str, Any]]:
    described = call(streams, "DescribeStream", StreamArn=arn, **more)["StreamDescription"]
    found: list[dict[str, Any]] = described["Shards"]
    return found


def read(streams: TableStreams, arn: str, shard: str, kind: str, **more: Any) -> dict[str, Any]:
    asked = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": kind, **more}
    place = call(streams, "GetShardIterator", **asked)["ShardIterator"]
    return call(streams, "GetRecords", ShardIterator=place)


def test_a_shard_is_listed_late_by_each_kind_of_list(
    streams: TableStreams, clock: Clock, arn: str
) -> None:
    streams.settings = TableStreamSettings(listing_delay_s=30)
    (parent,) = shards(streams, arn)
    streams.replace_shards(2)
    only = {"Type": "CHILD_SHARDS", "ShardId": parent["ShardId"]}
    (closed,) = shards(streams, arn)
    assert "EndingSequenceNumber" in closed["SequenceNumberRange"]
    assert shards(streams, arn, ShardFilter=only) == []
    clock.now_s += 30
    assert len(shards(streams, arn)) == 3
    assert len(shards(streams, arn, ShardFilter=only)) == 2


def test_shards_are_replaced_at_the_age_of_the_settings(
    streams: TableStreams, clock: Clock, arn: str
) -> None:
    streams.settings = TableStreamSettings(shard_s=60)
    clock.now_s += 59.9
    assert len(shards(streams, arn)) == 1
    clock.now_s += 0.2
    assert len(shards(streams, arn)) == 2
    clock.now_s += 120
    found = shards(streams, arn)
    assert [one.get("ParentShardId") for one in found] == [
        None,
        *(one["ShardId"] for one in found[:-1]),
    ]
    created_ms = [int(one["ShardId"].split("-")[1]) for one in found]
    assert [later - earlier for earlier, later in pairwise(created_ms)] == [60_000] * 3


def test_after_years_there_are_the_shards_of_a_day(
    streams: TableStreams, clock: Clock, arn: str
) -> None:
    streams.append(arn, [change("a")])
    clock.now_s += 3e8
    found = shards(streams, arn)
    assert 6 <= len(found) <= 8
    # Those of the years between were not even made.
    assert int(found[-1]["ShardId"].split("-")[2], 16) <= 9
    for one in found:
        assert read(streams, arn, one["ShardId"], "TRIM_HORIZON")["Records"] == []


def test_only_the_partition_key_decides_the_shard(streams: TableStreams, arn: str) -> None:
    streams.replace_shards(5)
    streams.append(arn, [change("a", str(number)) for number in range(20)])
    counts = [
        len(read(streams, arn, one["ShardId"], "TRIM_HORIZON")["Records"])
        for one in shards(streams, arn)
    ]
    assert sorted(counts) == [0, 0, 0, 0, 0, 20]


def test_a_change_is_as_of_the_service(streams: TableStreams, arn: str) -> None:
    streams.append(arn, [change("a")])
    (shard,) = shards(streams, arn)
    (record,) = read(streams, arn, shard["ShardId"], "TRIM_HORIZON")["Records"]
    assert record["awsRegion"] == "eu-west-1"
    assert record["eventVersion"] == "1.1"
    assert record["dynamodb"]["ApproximateCreationDateTime"] == 1_800_000_000


def test_an_answer_has_at_most_a_mebibyte_and_at_least_a_record(
    streams: TableStreams, arn: str
) -> None:
    big = 400 * 1024
    streams.append(
        arn,
        [change(key, size=size) for key, size in zip("abcd", (big, big, big, 9**7), strict=True)],
    )
    (shard,) = shards(streams, arn)
    answer = read(streams, arn, shard["ShardId"], "TRIM_HORIZON")
    counts = []
    while answer["Records"]:
        counts.append(len(answer["Records"]))
        answer = call(streams, "GetRecords", ShardIterator=answer["NextShardIterator"])
    assert counts == [2, 1, 1]


def test_a_position_before_the_oldest_record_is_refused(
    streams: TableStreams, clock: Clock, arn: str
) -> None:
    streams.settings = TableStreamSettings(shard_s=3e8)
    (shard,) = shards(streams, arn)
    streams.append(arn, [change("a"), change("b")])
    clock.now_s += 12 * HOUR_S
    streams.append(arn, [change("c")])
    records = read(streams, arn, shard["ShardId"], "TRIM_HORIZON")["Records"]
    first, second, third = (one["dynamodb"]["SequenceNumber"] for one in records)
    start = shard["SequenceNumberRange"]["StartingSequenceNumber"]
    clock.now_s += 13 * HOUR_S
    for kind, number in (
        ("AT_SEQUENCE_NUMBER", start),
        ("AT_SEQUENCE_NUMBER", first),
        ("AT_SEQUENCE_NUMBER", second),
        ("AFTER_SEQUENCE_NUMBER", first),
    ):
        with pytest.raises(KinesisFault) as caught:
            read(streams, arn, shard["ShardId"], kind, SequenceNumber=number)
        assert caught.value.code == "TrimmedDataAccessException"
    for kind, number in (("AFTER_SEQUENCE_NUMBER", second), ("AT_SEQUENCE_NUMBER", third)):
        answer = read(streams, arn, shard["ShardId"], kind, SequenceNumber=number)
        assert [one["dynamodb"]["SequenceNumber"] for one in answer["Records"]] == [third]
    beyond = str(int(third) + 1)
    with pytest.raises(KinesisFault, match="Invalid SequenceNumber"):
        read(streams, arn, shard["ShardId"], "AT_SEQUENCE_NUMBER", SequenceNumber=beyond)


def test_an_iterator_that_waited_while_records_were_trimmed_is_refused(
    streams: TableStreams, clock: Clock, arn: str
) -> None:
    streams.settings = TableStreamSettings(iterator_s=1e6, shard_s=3e8)
    (shard,) = shards(streams, arn)
    asked = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
    place = call(streams, "GetShardIterator", **asked)["ShardIterator"]
    streams.append(arn, [change("a")])
    clock.now_s += 25 * HOUR_S
    with pytest.raises(KinesisFault) as caught:
        call(streams, "GetRecords", ShardIterator=place)
    assert caught.value.code == "TrimmedDataAccessException"
    streams.append(arn, [change("b")])
    records = read(streams, arn, shard["ShardId"], "TRIM_HORIZON")["Records"]
    assert [one["dynamodb"]["Keys"]["pk"]["S"] for one in records] == ["b"]


def test_a_disabled_stream_is_gone_after_a_day(
    streams: TableStreams, clock: Clock, arn: str
) -> None:
    streams.disable(arn)
    clock.now_s += 24 * HOUR_S
    assert len(call(streams, "ListStreams")["Streams"]) == 1
    clock.now_s += 1
    assert call(streams, "ListStreams")["Streams"] == []
    with pytest.raises(KinesisFault) as caught:
        shards(streams, arn)
    assert caught.value.code == "ResourceNotFoundException"


def test_a_list_has_the_streams_of_its_region(streams: TableStreams, arn: str) -> None:
    other = streams.enable(TABLE.replace("eu-west-1", "us-east-1"), "KEYS_ONLY", KEYS)
    listed = json.loads(streams.call("ListStreams", {}, "us-east-1"))["Streams"]
    assert [one["StreamArn"] for one in listed] == [other]
    assert [one["StreamArn"] for one in call(streams, "ListStreams")["Streams"]] == [arn]


@pytest.mark.parametrize(
    ("operation", "wrong", "code"),
    [
        ("PutRecords", {}, "UnknownOperationException"),
        ("DescribeStream", {"StreamArn": 1}, "ResourceNotFoundException"),
        ("DescribeStream", {"Limit": 101}, "ValidationException"),
        ("DescribeStream", {"ShardFilter": {"Type": "AT_LATEST"}}, "ValidationException"),
        ("DescribeStream", {"ShardFilter": {"Type": "CHILD_SHARDS"}}, "ValidationException"),
        ("GetRecords", {"ShardIterator": "a|1|bnVsbA=="}, "ValidationException"),
    ],
)
def test_what_makes_no_sense_is_refused(
    streams: TableStreams, arn: str, operation: str, wrong: dict[str, Any], code: str
) -> None:
    with pytest.raises(KinesisFault) as caught:
        call(streams, operation, **{"StreamArn": arn, **wrong})
    assert caught.value.code == code
