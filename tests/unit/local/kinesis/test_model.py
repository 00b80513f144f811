"""What the contract suite cannot show: retention, limits, chance, faults, determinism."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from kcl_mld.local.kinesis import KinesisFault, KinesisSettings
from tests.unit.local.kinesis.model_world import FIRST, HOUR_S, SECOND, THIRD, World, encoded

MAX_KEY = (1 << 128) - 1


# --- retention ------------------------------------------------------------------------------


def test_records_older_than_retention_vanish() -> None:
    world = World()
    world.put("old")
    world.now_s += 20 * HOUR_S
    (number,) = world.put("young")
    world.now_s += 5 * HOUR_S
    assert world.read(world.iterator())[0] == ["young"]
    at = {"kind": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": number}
    assert world.read(world.iterator(**at))[0] == ["young"]


def test_a_trimmed_sequence_number_reads_from_the_oldest_record_left() -> None:
    world = World()
    (number,) = world.put("old")
    world.now_s += 20 * HOUR_S
    world.put("young")
    world.now_s += 5 * HOUR_S
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        iterator = world.iterator(kind=kind, StartingSequenceNumber=number)
        assert world.read(iterator)[0] == ["young"]


def test_positions_and_sizes_survive_the_freeing_of_trimmed_records() -> None:
    world = World()
    world.put(*("x" * 10 for _ in range(5000)))
    world.now_s += 20 * HOUR_S
    world.put("y" * 600_000, "z" * 600_000)
    world.now_s += 5 * HOUR_S
    texts, answer = world.read(world.iterator())
    assert [len(text) for text in texts] == [600_000, 600_000]
    numbers = [record["SequenceNumber"] for record in answer["Records"]]
    after = world.iterator(kind="AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[0])
    assert [text[0] for text in world.read(after)[0]] == ["z"]
    (last,) = world.put("new")
    assert int(last) > int(numbers[1])


def test_closed_shards_leave_the_listing_after_retention() -> None:
    world = World()
    world.now_s += HOUR_S
    world.split()
    world.now_s += 24 * HOUR_S
    assert world.shard_ids() == [FIRST, SECOND, THIRD]
    world.now_s += 1
    assert world.shard_ids() == [SECOND, THIRD]
    assert world.refused("GetShardIterator", ShardId=FIRST, ShardIteratorType="LATEST") == (
        "ResourceNotFoundException"
    )


def test_an_iterator_of_a_shard_that_left_finds_nothing() -> None:
    world = World()
    world.split()
    world.now_s += 24 * HOUR_S
    iterator = world.iterator()
    world.now_s += 1
    assert world.refused("GetRecords", ShardIterator=iterator) == "ResourceNotFoundException"


def test_at_trim_horizon_moves_with_retention() -> None:
    world = World()
    world.now_s += HOUR_S
    world.split()
    chosen = {"Type": "AT_TRIM_HORIZON"}
    assert world.shard_ids(ShardFilter=chosen) == [FIRST]
    world.now_s += 24 * HOUR_S
    assert world.shard_ids(ShardFilter=chosen) == [SECOND, THIRD]


def test_longer_retention_keeps_records() -> None:
    world = World()
    world.call("IncreaseStreamRetentionPeriod", RetentionPeriodHours=48)
    world.put("a")
    world.now_s += 40 * HOUR_S
    assert world.read(world.iterator())[0] == ["a"]
    assert world.refused("IncreaseStreamRetentionPeriod", RetentionPeriodHours=1) == (
        "InvalidArgumentException"
    )


# --- filters at the exact moment ------------------------------------------------------------


def test_at_timestamp_never_gives_a_parent_and_its_child() -> None:
    world = World()
    world.now_s += 10
    world.split()
    for offset, expected in ((-0.001, [FIRST]), (0, [SECOND, THIRD]), (5, [SECOND, THIRD])):
        chosen = {"Type": "AT_TIMESTAMP", "Timestamp": world.now_s + offset}
        assert world.shard_ids(ShardFilter=chosen) == expected
    early = {"Type": "AT_TIMESTAMP", "Timestamp": 5}
    assert world.shard_ids(ShardFilter=early) == [FIRST]


@pytest.mark.parametrize(
    "chosen",
    [{"Type": "AT_TIMESTAMP"}, {"Type": "AFTER_SHARD_ID"}, {"Type": "SOMETHING"}, {"Type": None}],
)
def test_incomplete_filters_are_refused(chosen: dict[str, Any]) -> None:
    assert World().refused("ListShards", ShardFilter=chosen) in {
        "InvalidArgumentException",
        "ValidationException",
    }


def test_a_filter_and_a_starting_shard_do_not_mix() -> None:
    code = World().refused(
        "ListShards", ShardFilter={"Type": "AT_LATEST"}, ExclusiveStartShardId=FIRST
    )
    assert code == "InvalidArgumentException"


def test_page_tokens_expire_and_die_with_their_stream() -> None:
    world = World(shards=3)
    token = world.call("ListShards", MaxResults=1)["NextToken"]
    world.now_s += 301
    assert world.refused("ListShards", NextToken=token) == "ExpiredNextTokenException"
    token = world.call("ListShards", MaxResults=1)["NextToken"]
    world.now_s += 1
    world.call("DeleteStream")
    world.call("CreateStream", ShardCount=3)
    assert world.refused("ListShards", NextToken=token) == "InvalidArgumentException"
    assert world.refused("ListShards", NextToken="junk") == "InvalidArgumentException"
    assert world.refused("ListShards", MaxResults=0) == "ValidationException"


# --- recreated streams ----------------------------------------------------------------------


def test_a_recreated_stream_knows_nothing_of_the_old_one() -> None:
    world = World()
    (number,) = world.put("a")
    iterator = world.iterator()
    world.call("DeleteStream")
    world.now_s += 5
    world.call("CreateStream", ShardCount=1)
    assert world.refused("GetRecords", ShardIterator=iterator) == "ResourceNotFoundException"
    code = world.refused(
        "GetShardIterator",
        ShardId=FIRST,
        ShardIteratorType="AFTER_SEQUENCE_NUMBER",
        StartingSequenceNumber=number,
    )
    assert code == "InvalidArgumentException"


def test_a_stream_takes_time_to_come_and_go() -> None:
    world = World(create_s=5, delete_s=5)
    assert world.refused("ListShards") == "ResourceInUseException"
    world.now_s += 5
    assert world.shard_ids() == [FIRST]
    world.call("DeleteStream")
    summary = world.call("DescribeStreamSummary")["StreamDescriptionSummary"]
    assert summary["StreamStatus"] == "DELETING"
    assert world.refused("ListShards") == "ResourceInUseException"
    world.now_s += 5
    assert world.refused("ListShards") == "ResourceNotFoundException"
    assert world.model.call("ListStreams", {})["StreamNames"] == []


# --- addressing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({}, "InvalidArgumentException"),
        ({"StreamName": ""}, "InvalidArgumentException"),
        ({"StreamARN": "x"}, "ValidationException"),
        (
            {"StreamARN": "arn:aws:kinesis:us-east-1:999999999999:stream/s"},
            "ResourceNotFoundException",
        ),
        (
            {"StreamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/s", "StreamName": "t"},
            "InvalidArgumentException",
        ),
    ],
)
def test_streams_must_be_named_well(request_: dict[str, Any], code: str) -> None:
    with pytest.raises(KinesisFault) as caught:
        World().model.call("ListShards", request_)
    assert caught.value.code == code


def test_an_unknown_operation_is_refused() -> None:
    assert World().refused("Dance") == "UnknownOperationException"


# --- reading --------------------------------------------------------------------------------


def test_the_body_is_the_json_text_of_the_answer() -> None:
    world = World()
    world.call("PutRecord", Data=encoded("ä"), PartitionKey='quote " and \\ and é')
    body = world.model.body("GetRecords", {"ShardIterator": world.iterator()})
    answer = json.loads(body)
    (record,) = answer["Records"]
    assert record["PartitionKey"] == 'quote " and \\ and é'
    assert record["ApproximateArrivalTimestamp"] == world.now_s
    assert answer["MillisBehindLatest"] == 0


def test_arrival_times_never_go_back_within_a_shard() -> None:
    world = World()
    world.put("a")
    world.now_s -= 100
    world.put("b")
    world.now_s += 200
    _, answer = world.read(world.iterator())
    times = [record["ApproximateArrivalTimestamp"] for record in answer["Records"]]
    assert times == sorted(times)


def test_a_future_timestamp_is_refused() -> None:
    world = World()
    code = world.refused(
        "GetShardIterator",
        ShardId=FIRST,
        ShardIteratorType="AT_TIMESTAMP",
        Timestamp=world.now_s + 1,
    )
    assert code == "InvalidArgumentException"
    for bad in ({"ShardIteratorType": "AT_TIMESTAMP"}, {"ShardIteratorType": "SIDEWAYS"}):
        assert world.refused("GetShardIterator", ShardId=FIRST, **bad)


def test_millis_behind_is_the_age_of_the_last_record_given() -> None:
    world = World()
    world.put("a")
    world.now_s += 10
    world.put("b")
    world.now_s += 5
    texts, answer = world.read(world.iterator(), Limit=1)
    assert texts == ["a"]
    assert answer["MillisBehindLatest"] == 15_000
    _, answer = world.read(answer["NextShardIterator"])
    assert answer["MillisBehindLatest"] == 0


def test_a_single_record_above_the_cap_is_still_given() -> None:
    world = World()
    world.put("x" * (10 * 1024 * 1024 - 1), "y")
    texts, answer = world.read(world.iterator())
    assert len(texts) == 1
    assert answer["MillisBehindLatest"] > 0


def test_spare_answers_hold_back_records_but_lose_none() -> None:
    world = World(spare_answer_probability=0.7)
    wanted = [str(number) for number in range(40)]
    world.put(*wanted)
    world.split()
    iterator: str | None = world.iterator()
    found: list[str] = []
    empty = 0
    calls = 0
    while iterator is not None:
        texts, answer = world.read(iterator, Limit=7)
        calls += 1
        empty += not texts
        if not texts and "ChildShards" not in answer:
            assert answer["MillisBehindLatest"] > 0
        found += texts
        iterator = answer.get("NextShardIterator")
        assert calls < 100
    assert found == wanted
    assert empty > 0


# --- resharding -----------------------------------------------------------------------------


def test_a_reshard_takes_effect_when_its_time_is_over() -> None:
    world = World(reshard_s=30)
    world.split()
    world.put("to the parent", key=MAX_KEY)
    assert world.shard_ids() == [FIRST]
    world.now_s += 30
    assert world.shard_ids() == [FIRST, SECOND, THIRD]
    assert world.read(world.iterator())[0] == ["to the parent"]
    world.put("to the child", key=MAX_KEY)
    assert world.read(world.iterator(THIRD))[0] == ["to the child"]


def test_children_start_above_their_parents_end_even_within_one_second() -> None:
    world = World()
    world.put("a")
    world.split()
    world.split(SECOND, 1 << 100)
    shards = {shard["ShardId"]: shard for shard in world.call("ListShards")["Shards"]}
    for shard in shards.values():
        if parent := shard.get("ParentShardId"):
            ended = int(shards[parent]["SequenceNumberRange"]["EndingSequenceNumber"])
            assert int(shard["SequenceNumberRange"]["StartingSequenceNumber"]) > ended


def test_closed_shards_cannot_be_changed_again() -> None:
    world = World()
    world.split()
    code = world.refused("SplitShard", ShardToSplit=FIRST, NewStartingHashKey="77")
    assert code == "InvalidArgumentException"
    assert world.refused("SplitShard", ShardToSplit=SECOND, NewStartingHashKey="x") == (
        "ValidationException"
    )


@pytest.mark.parametrize("target", [2, 3, 5, 8])
def test_any_allowed_shard_count_covers_the_whole_range(target: int) -> None:
    world = World(shards=4)
    world.call("UpdateShardCount", TargetShardCount=target, ScalingType="UNIFORM_SCALING")
    listed = world.call("ListShards", ShardFilter={"Type": "AT_LATEST"})["Shards"]
    ranges = sorted(
        (int(s["HashKeyRange"]["StartingHashKey"]), int(s["HashKeyRange"]["EndingHashKey"]))
        for s in listed
    )
    assert len(ranges) == target
    assert ranges[0][0] == 0
    assert ranges[-1][1] == MAX_KEY
    for (_, end), (start, _) in itertools.pairwise(ranges):
        assert start == end + 1


@pytest.mark.parametrize(
    "request_",
    [
        {"TargetShardCount": 9, "ScalingType": "UNIFORM_SCALING"},
        {"TargetShardCount": 0, "ScalingType": "UNIFORM_SCALING"},
        {"TargetShardCount": 4},
    ],
)
def test_other_shard_counts_are_refused(request_: dict[str, Any]) -> None:
    assert World(shards=4).refused("UpdateShardCount", **request_)


def test_the_limits_of_the_account_count_open_shards_and_streams_on_demand() -> None:
    world = World(shards=4)
    on_demand = {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}
    world.call("CreateStream", **on_demand, StreamName="on-demand")
    limits = world.call("DescribeLimits")
    assert (limits["OpenShardCount"], limits["OnDemandStreamCount"]) == (4, 1)
    assert limits["ShardLimit"] > 4


# --- limits ---------------------------------------------------------------------------------

THROTTLED = "ProvisionedThroughputExceededException"


def test_five_reads_a_second_and_no_more() -> None:
    world = World(limits=True)
    iterator = world.iterator()
    for _ in range(5):
        world.read(iterator)
    assert world.refused("GetRecords", ShardIterator=iterator) == THROTTLED
    world.now_s += 0.2
    world.read(iterator)


def test_a_large_answer_closes_the_shard_until_it_is_paid_for() -> None:
    world = World()
    for _ in range(12):
        world.put("x" * 1_000_000)
    world.model.settings = KinesisSettings(limits=True)
    _, answer = world.read(world.iterator())
    iterator = answer["NextShardIterator"]
    world.now_s += 3.5
    assert world.refused("GetRecords", ShardIterator=iterator) == THROTTLED
    world.now_s += 1
    assert world.read(iterator)[0]


def test_writes_are_limited_by_count_and_by_bytes() -> None:
    world = World(limits=True, shards=2)
    small = [{"PartitionKey": "k", "Data": "", "ExplicitHashKey": "0"}] * 500
    assert world.call("PutRecords", Records=small)["FailedRecordCount"] == 0
    assert world.call("PutRecords", Records=small)["FailedRecordCount"] == 0
    answer = world.call("PutRecords", Records=small)
    assert answer["FailedRecordCount"] == 500
    assert answer["Records"][0]["ErrorCode"] == THROTTLED
    other = {"PartitionKey": "k", "ExplicitHashKey": str(MAX_KEY)}
    assert world.call("PutRecord", Data=encoded("x" * 900_000), **other)
    assert world.refused("PutRecord", Data=encoded("x" * 900_000), **other) == THROTTLED


def test_control_calls_are_limited_per_stream() -> None:
    world = World(limits=True)
    for _ in range(20):
        world.call("DescribeStreamSummary")
    assert world.refused("DescribeStreamSummary") == "LimitExceededException"
    for _ in range(5):
        world.iterator()
    assert world.refused("GetShardIterator", ShardId=FIRST, ShardIteratorType="LATEST") == THROTTLED
    world.call("DeleteStream")
    world.call("CreateStream", ShardCount=1)
    world.iterator()


# --- the rest -------------------------------------------------------------------------------


def test_a_hook_may_turn_any_call_into_an_error() -> None:
    world = World()
    seen: list[str] = []

    def before(operation: str, _request: Any) -> None:
        seen.append(operation)
        if operation == "PutRecord":
            raise KinesisFault("InternalFailure", "for a test", 500)

    world.model.before = before
    assert world.refused("PutRecord", PartitionKey="k", Data="") == "InternalFailure"
    world.model.before = None
    assert world.read(world.iterator())[0] == []
    assert seen == ["PutRecord"]


@pytest.mark.parametrize(
    "record",
    [
        {"PartitionKey": "k"},
        {"PartitionKey": "k", "Data": "not base64!"},
        {"Data": ""},
        {"PartitionKey": "k" * 257, "Data": ""},
        {"PartitionKey": "k", "Data": "", "ExplicitHashKey": "x"},
    ],
)
def test_bad_records_are_refused_and_nothing_is_stored(record: dict[str, Any]) -> None:
    world = World()
    good = {"PartitionKey": "k", "Data": ""}
    assert world.refused("PutRecords", Records=[good, record])
    assert world.read(world.iterator())[0] == []


def test_streams_are_listed_and_described_in_pages() -> None:
    world = World(shards=3)
    for name in ("a", "b"):
        world.model.call("CreateStream", {"StreamName": name, "ShardCount": 1})
    first = world.model.call("ListStreams", {"Limit": 2})
    assert (first["StreamNames"], first["HasMoreStreams"]) == (["a", "b"], True)
    rest = world.model.call("ListStreams", {"NextToken": first["NextToken"]})
    assert rest["StreamNames"] == ["s"]
    page = world.call("DescribeStream", Limit=2)["StreamDescription"]
    assert page["HasMoreShards"]
    last = world.call("DescribeStream", ExclusiveStartShardId=SECOND)["StreamDescription"]
    assert [shard["ShardId"] for shard in last["Shards"]] == [THIRD]
    assert world.refused("DescribeStream", Limit=0) == "ValidationException"


@pytest.mark.parametrize(
    "request_",
    [
        {"StreamName": "", "ShardCount": 1},
        {"StreamName": "x", "ShardCount": 0},
        {"StreamName": "x"},
        {"StreamName": "x", "ShardCount": 10_001},
    ],
)
def test_bad_streams_are_refused(request_: dict[str, Any]) -> None:
    assert World().refused("CreateStream", **request_)


def test_on_demand_streams_start_with_four_shards() -> None:
    world = World()
    world.call(
        "CreateStream",
        StreamName="d",
        StreamModeDetails={"StreamMode": "ON_DEMAND"},
        Tags={"a": "b"},
    )
    summary = world.call("DescribeStreamSummary", StreamName="d")["StreamDescriptionSummary"]
    assert summary["OpenShardCount"] == 4
    assert summary["StreamModeDetails"] == {"StreamMode": "ON_DEMAND"}
    world.call("AddTagsToStream", StreamName="d", Tags={"c": "d"})
    tags = world.call("ListTagsForStream", StreamName="d")["Tags"]
    assert tags == [{"Key": "a", "Value": "b"}, {"Key": "c", "Value": "d"}]


def test_equal_calls_at_equal_times_give_equal_answers() -> None:
    def life() -> str:
        world = World(spare_answer_probability=0.3, reshard_s=1)
        answers: list[Any] = [world.put(*"abcdefgh")]
        world.split()
        world.now_s += 1
        answers.append(world.call("ListShards"))
        iterator: str | None = world.iterator()
        while iterator is not None:
            answer = world.call("GetRecords", ShardIterator=iterator, Limit=2)
            answers.append(answer)
            iterator = answer.get("NextShardIterator")
        return json.dumps(answers)

    assert life() == life()


# --- tags and lists of streams --------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "request_", "code"),
    [
        ("AddTagsToStream", {"Tags": {}}, "ValidationException"),
        ("AddTagsToStream", {"Tags": {"": "x"}}, "ValidationException"),
        ("AddTagsToStream", {"Tags": {"k": "v" * 257}}, "ValidationException"),
        (
            "AddTagsToStream",
            {"Tags": {str(number): "" for number in range(51)}},
            "InvalidArgumentException",
        ),
        ("RemoveTagsFromStream", {"TagKeys": []}, "ValidationException"),
        ("ListTagsForStream", {"Limit": 51}, "ValidationException"),
        ("ListStreams", {"Limit": 0}, "ValidationException"),
    ],
)
def test_bad_requests_about_tags_and_lists_are_refused(
    operation: str, request_: dict[str, Any], code: str
) -> None:
    assert World().refused(operation, **request_) == code


@pytest.mark.parametrize("operation", ["ListStreams", "ListTagsForStream"])
def test_lists_are_limited_to_five_calls_a_second_and_account(operation: str) -> None:
    world = World(limits=True)
    for _ in range(5):
        world.call(operation)
    assert world.refused(operation) == "LimitExceededException"
    world.now_s += 0.2
    world.call(operation)
