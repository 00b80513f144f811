"""DynamoDB Streams as the daemon relies on it: in process, over HTTP and on DynamoDB Local."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.table_targets import table_of
from tests.contract.targets import Refused

if TYPE_CHECKING:
    from tests.contract.table_targets import TableTarget

IMAGES = {
    "KEYS_ONLY": set(),
    "NEW_IMAGE": {"NewImage"},
    "OLD_IMAGE": {"OldImage"},
    "NEW_AND_OLD_IMAGES": {"NewImage", "OldImage"},
}

#: Of records that have been trimmed, and of a shard that is gone as well.
GONE = {"TrimmedDataAccessException", "ResourceNotFoundException"}


def described(tables: TableTarget, arn: str, **more: Any) -> dict[str, Any]:
    answer = tables.call("DescribeStream", StreamArn=arn, **more)
    stream: dict[str, Any] = answer["StreamDescription"]
    return stream


def shards_of(tables: TableTarget, arn: str, **more: Any) -> list[dict[str, Any]]:
    shards: list[dict[str, Any]] = described(tables, arn, **more)["Shards"]
    return shards


def shard_ids(tables: TableTarget, arn: str, **more: Any) -> list[str]:
    return [shard["ShardId"] for shard in shards_of(tables, arn, **more)]


def iterator(
    tables: TableTarget, arn: str, shard: str, kind: str = "TRIM_HORIZON", **more: Any
) -> str:
    asked = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": kind, **more}
    text: str = tables.call("GetShardIterator", **asked)["ShardIterator"]
    return text


def read(tables: TableTarget, place: str, **more: Any) -> tuple[list[dict[str, Any]], str | None]:
    answer = tables.call("GetRecords", ShardIterator=place, **more)
    return answer["Records"], answer.get("NextShardIterator")


def keys_of(records: list[dict[str, Any]]) -> list[str]:
    return [record["dynamodb"]["Keys"]["pk"]["S"] for record in records]


def numbers_of(records: list[dict[str, Any]]) -> list[str]:
    return [record["dynamodb"]["SequenceNumber"] for record in records]


def all_of(tables: TableTarget, arn: str, shard: str, *how: str, **more: Any) -> list[Any]:
    """Records from a place to the tip, or to the end of the shard."""
    place: str | None = iterator(tables, arn, shard, *how, **more)
    found: list[Any] = []
    while place is not None:
        records, place = read(tables, place)
        if not records:
            break
        found += records
    return found


def refused(tables: TableTarget, operation: str, **request: Any) -> str:
    with pytest.raises(Refused) as caught:
        tables.call(operation, **request)
    return caught.value.code


# --- the stream and its shards --------------------------------------------------------------------


def test_a_new_stream_is_described(table_streams: TableTarget) -> None:
    arn = table_streams.new_table("NEW_IMAGE")
    stream = described(table_streams, arn)
    assert stream["StreamArn"] == arn
    assert arn.endswith(f":table/{stream['TableName']}/stream/{stream['StreamLabel']}")
    assert stream["StreamStatus"] == "ENABLED"
    assert stream["StreamViewType"] == "NEW_IMAGE"
    assert stream["KeySchema"] == [{"AttributeName": "pk", "KeyType": "HASH"}]
    assert "LastEvaluatedShardId" not in stream
    (shard,) = stream["Shards"]
    assert shard.keys() == {"ShardId", "SequenceNumberRange"}
    assert 28 <= len(shard["ShardId"]) <= 65
    assert shard["SequenceNumberRange"].keys() == {"StartingSequenceNumber"}
    assert 21 <= len(shard["SequenceNumberRange"]["StartingSequenceNumber"]) <= 40


def test_streams_are_listed(table_streams: TableTarget) -> None:
    arns = [table_streams.new_table() for _ in range(2)]
    for arn in arns:
        (listed,) = table_streams.call("ListStreams", TableName=table_of(arn))["Streams"]
        assert listed["StreamArn"] == arn
        assert listed["TableName"] == table_of(arn)
    found: list[str] = []
    place: dict[str, str] = {}
    while True:
        answer = table_streams.call("ListStreams", Limit=1, **place)
        found += [one["StreamArn"] for one in answer["Streams"]]
        if "LastEvaluatedStreamArn" not in answer:
            break
        place = {"ExclusiveStartStreamArn": answer["LastEvaluatedStreamArn"]}
    assert len(found) == len(set(found))
    assert set(arns) <= set(found)


def test_a_shard_that_is_replaced_ends_with_its_last_record(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    (parent,) = shard_ids(table_streams, arn)
    table_streams.put(arn, "a")
    table_streams.put(arn, "b")
    waiting = iterator(table_streams, arn, parent, "LATEST")
    table_streams.replace_shards()
    table_streams.put(arn, "c")
    closed, child = shards_of(table_streams, arn)
    assert (closed["ShardId"], child["ParentShardId"]) == (parent, parent)
    assert child["ShardId"] > parent
    records, following = read(table_streams, iterator(table_streams, arn, parent))
    assert (keys_of(records), following) == (["a", "b"], None)
    assert closed["SequenceNumberRange"]["EndingSequenceNumber"] == numbers_of(records)[-1]
    assert "EndingSequenceNumber" not in child["SequenceNumberRange"]
    assert read(table_streams, waiting) == ([], None)
    of_child = all_of(table_streams, arn, child["ShardId"])
    assert keys_of(of_child) == ["c"]
    assert int(numbers_of(of_child)[0]) > int(numbers_of(records)[-1])


def test_a_shard_without_records_ends_where_it_starts(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    table_streams.replace_shards()
    closed, _ = shards_of(table_streams, arn)
    numbers = closed["SequenceNumberRange"]
    assert numbers["StartingSequenceNumber"] == numbers["EndingSequenceNumber"]
    for kind in ("TRIM_HORIZON", "LATEST"):
        place = iterator(table_streams, arn, closed["ShardId"], kind)
        assert read(table_streams, place) == ([], None)


def test_shards_are_listed_by_pages(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    for _ in range(4):
        table_streams.replace_shards()
    whole = shard_ids(table_streams, arn)
    assert whole == sorted(whole)
    assert len(whole) == 5
    paged: list[str] = []
    more: dict[str, Any] = {}
    while True:
        page = described(table_streams, arn, Limit=2, **more)
        assert len(page["Shards"]) <= 2
        paged += [shard["ShardId"] for shard in page["Shards"]]
        if "LastEvaluatedShardId" not in page:
            break
        more = {"ExclusiveStartShardId": page["LastEvaluatedShardId"]}
    assert paged == whole


def test_the_filter_lists_the_children_of_a_shard(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    for _ in range(2):
        table_streams.replace_shards()
    root, child, leaf = shard_ids(table_streams, arn)
    for parent, expected in ((root, [child]), (child, [leaf]), (leaf, [])):
        only = {"Type": "CHILD_SHARDS", "ShardId": parent}
        assert shard_ids(table_streams, arn, ShardFilter=only) == expected


def test_a_disabled_stream_is_read_to_its_end(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    table_streams.put(arn, "a")
    table_streams.disable(arn)
    stream = described(table_streams, arn)
    assert stream["StreamStatus"] == "DISABLED"
    (shard,) = stream["Shards"]
    assert "EndingSequenceNumber" in shard["SequenceNumberRange"]
    records, following = read(table_streams, iterator(table_streams, arn, shard["ShardId"]))
    assert (keys_of(records), following) == (["a"], None)


def test_a_stream_that_is_enabled_again_is_another_one(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    table_streams.put(arn, "a")
    table_streams.disable(arn)
    later = table_streams.enable(arn)
    assert later > arn
    table_streams.put(arn, "b")
    listed = table_streams.call("ListStreams", TableName=table_of(arn))["Streams"]
    assert sorted(one["StreamArn"] for one in listed) == [arn, later]
    for one, keys in ((arn, ["a"]), (later, ["b"])):
        (shard,) = shard_ids(table_streams, one)
        assert keys_of(all_of(table_streams, one, shard)) == keys


def test_the_stream_of_a_deleted_table_stays(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    table_streams.put(arn, "a")
    table_streams.delete_table(arn)
    stream = described(table_streams, arn)
    assert stream["StreamStatus"] == "DISABLED"
    (shard,) = stream["Shards"]
    assert keys_of(all_of(table_streams, arn, shard["ShardId"])) == ["a"]


def test_what_is_not_there_is_not_found(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    (shard,) = shard_ids(table_streams, arn)
    other = arn.replace(table_of(arn), "Nothing")
    of_none = {"StreamArn": other, "ShardId": shard, "ShardIteratorType": "LATEST"}
    assert refused(table_streams, "DescribeStream", StreamArn=other) == "ResourceNotFoundException"
    assert refused(table_streams, "GetShardIterator", **of_none) == "ResourceNotFoundException"
    of_shard = {**of_none, "StreamArn": arn, "ShardId": f"{shard[:-8]}ffffffff"}
    assert refused(table_streams, "GetShardIterator", **of_shard) == "ResourceNotFoundException"


# --- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("view_type", sorted(IMAGES))
def test_changes_come_in_order_with_their_images(
    table_streams: TableTarget, view_type: str
) -> None:
    arn = table_streams.new_table(view_type)
    (shard,) = shard_ids(table_streams, arn)
    table_streams.put(arn, "a", 1)
    table_streams.put(arn, "a", 2)
    table_streams.delete(arn, "a")
    records = all_of(table_streams, arn, shard)
    assert [one["eventName"] for one in records] == ["INSERT", "MODIFY", "REMOVE"]
    first, second = ({"pk": {"S": "a"}, "n": {"N": text}} for text in "12")
    has = (
        {"NewImage": first},
        {"OldImage": first, "NewImage": second},
        {"OldImage": second},
    )
    for record, images in zip(records, has, strict=True):
        change = record["dynamodb"]
        assert change["StreamViewType"] == view_type
        assert change["Keys"] == {"pk": {"S": "a"}}
        shown = {name: change[name] for name in ("OldImage", "NewImage") if name in change}
        assert shown == {name: images[name] for name in images.keys() & IMAGES[view_type]}
    numbers = numbers_of(records)
    assert sorted(numbers, key=int) == numbers
    assert len(set(numbers)) == 3
    assert all(21 <= len(number) <= 40 for number in numbers)


def test_a_write_that_changes_nothing_is_no_change(table_streams: TableTarget) -> None:
    if table_streams.name == "model":
        pytest.skip("the model gets changes, not writes")
    arn = table_streams.new_table()
    (shard,) = shard_ids(table_streams, arn)
    table_streams.put(arn, "a", 1)
    table_streams.put(arn, "a", 1)
    table_streams.delete(arn, "b")
    assert keys_of(all_of(table_streams, arn, shard)) == ["a"]


def test_reading_goes_on_where_it_was(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    (shard,) = shard_ids(table_streams, arn)
    for key in "abc":
        table_streams.put(arn, key)
    records, place = read(table_streams, iterator(table_streams, arn, shard), Limit=2)
    assert keys_of(records) == ["a", "b"]
    records, place = read(table_streams, place or "", Limit=2)
    assert keys_of(records) == ["c"]
    records, place = read(table_streams, place or "")
    assert records == []
    table_streams.put(arn, "d")
    records, _ = read(table_streams, place or "")
    assert keys_of(records) == ["d"]


def test_iterators_start_at_latest_and_at_and_after_a_number(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    (shard,) = shard_ids(table_streams, arn)
    for key in "abc":
        table_streams.put(arn, key)
    second = numbers_of(all_of(table_streams, arn, shard))[1]
    latest = iterator(table_streams, arn, shard, "LATEST")
    table_streams.put(arn, "d")
    assert keys_of(read(table_streams, latest)[0]) == ["d"]
    for kind, keys in (("AT_SEQUENCE_NUMBER", "bcd"), ("AFTER_SEQUENCE_NUMBER", "cd")):
        found = all_of(table_streams, arn, shard, kind, SequenceNumber=second)
        assert keys_of(found) == [*keys]


def test_iterators_start_at_a_time(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    (shard,) = shard_ids(table_streams, arn)
    table_streams.put(arn, "a")
    table_streams.advance(1)
    table_streams.put(arn, "b")
    records = all_of(table_streams, arn, shard)
    first, last = (record["dynamodb"]["ApproximateCreationDateTime"] for record in records)
    assert keys_of(all_of(table_streams, arn, shard, "AT_TIMESTAMP", Timestamp=first)) == ["a", "b"]
    assert keys_of(all_of(table_streams, arn, shard, "AT_TIMESTAMP", Timestamp=last)) == ["b"]
    assert keys_of(all_of(table_streams, arn, shard, "AT_TIMESTAMP", Timestamp=0)) == ["a", "b"]
    asked = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "AT_TIMESTAMP"}
    assert refused(table_streams, "GetShardIterator", **asked, Timestamp=1e11) == (
        "ValidationException"
    )


@pytest.mark.parametrize("count", [2, 3])
def test_an_item_stays_in_one_of_the_shards_that_replace_another(
    table_streams: TableTarget, count: int
) -> None:
    if table_streams.name == "dynamodb-local":
        pytest.skip("a shard of DynamoDB Local has one child")
    arn = table_streams.new_table()
    (parent,) = shard_ids(table_streams, arn)
    table_streams.replace_shards(count)
    children = shards_of(table_streams, arn)[1:]
    assert [one["ParentShardId"] for one in children] == [parent] * count
    for value in range(2):
        for key in range(30):
            table_streams.put(arn, str(key), value)
    found = [
        keys_of(all_of(table_streams, arn, shard_id))
        for shard_id in (one["ShardId"] for one in children)
    ]
    assert all(found)
    assert sorted(key for keys in found for key in keys) == sorted(map(str, [*range(30)] * 2))
    for keys in found:
        half = len(keys) // 2
        assert keys[:half] == keys[half:]


def test_shards_are_replaced_after_four_hours(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    table_streams.put(arn, "a")
    table_streams.advance(4)
    table_streams.put(arn, "b")
    first, second = shard_ids(table_streams, arn)
    assert keys_of(all_of(table_streams, arn, first)) == ["a"]
    assert keys_of(all_of(table_streams, arn, second)) == ["b"]


def test_what_is_older_than_a_day_is_gone(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    table_streams.put(arn, "a")
    table_streams.put(arn, "b")
    table_streams.advance(2)
    (*_, shard) = shard_ids(table_streams, arn)
    table_streams.put(arn, "c")
    place = iterator(table_streams, arn, shard)
    *_, last = numbers_of(all_of(table_streams, arn, shard))
    table_streams.advance(25)
    table_streams.put(arn, "d")
    left = [
        key
        for shard_id in shard_ids(table_streams, arn)
        for key in keys_of(readable(table_streams, arn, shard_id))
    ]
    assert left == ["d"]
    with pytest.raises(Refused) as caught:  # by DynamoDB Local when it is read
        all_of(table_streams, arn, shard, "AT_SEQUENCE_NUMBER", SequenceNumber=last)
    assert caught.value.code in GONE
    assert refused(table_streams, "GetRecords", ShardIterator=place) in {
        "ExpiredIteratorException",
        "TrimmedDataAccessException",
    }


def readable(tables: TableTarget, arn: str, shard_id: str) -> list[Any]:
    """Records of a shard; none where all of them have been trimmed."""
    try:
        return all_of(tables, arn, shard_id)
    except Refused as error:
        if error.code not in GONE:
            raise
        return []


def test_iterators_expire(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    (shard,) = shard_ids(table_streams, arn)
    table_streams.put(arn, "a")
    place = iterator(table_streams, arn, shard)
    table_streams.advance(1)
    assert refused(table_streams, "GetRecords", ShardIterator=place) == "ExpiredIteratorException"


@pytest.mark.parametrize(
    "wrong",
    [
        {"ShardIteratorType": "NEWEST"},
        {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER"},
        {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "SequenceNumber": "1"},
        {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "SequenceNumber": "x" * 21},
    ],
    ids=["type", "without a number", "short", "letters"],
)
def test_iterators_that_make_no_sense_are_refused(
    table_streams: TableTarget, wrong: dict[str, str]
) -> None:
    arn = table_streams.new_table()
    (shard,) = shard_ids(table_streams, arn)
    asked = {"StreamArn": arn, "ShardId": shard, **wrong}
    assert refused(table_streams, "GetShardIterator", **asked) == "ValidationException"


def test_reads_that_make_no_sense_are_refused(table_streams: TableTarget) -> None:
    arn = table_streams.new_table()
    (shard,) = shard_ids(table_streams, arn)
    assert refused(table_streams, "GetRecords", ShardIterator="x") == "ValidationException"
    place = iterator(table_streams, arn, shard)
    for limit in (0, 1001):
        code = refused(table_streams, "GetRecords", ShardIterator=place, Limit=limit)
        assert code == "ValidationException"
