"""The record before a place of a shard, on the embedded Kinesis."""

from __future__ import annotations

import json

import pytest

from kcl_mld.config.stream import Stream
from kcl_mld.errors import MalformedData, MoveRefused, Throttled, TrimmedData
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.retrieval import position_search
from kcl_mld.retrieval.position_search import PositionSearch
from tests.fakes.aggregate import aggregate
from tests.fakes.shard_world import simulated
from tests.unit.retrieval.test_record_peek import SHARD, Shard

HOUR_S = 3600.0


def search(shard, stream=None):
    return PositionSearch(shard.kinesis, stream or Stream("s"), SHARD)


def put_at(shard, *times_s, data=b"x"):
    """Records at these seconds from now on, and the epoch second of now."""
    began_s = shard.clock.wall()
    numbers = []
    for at_s in times_s:
        shard.clock.advance(began_s + at_s - shard.clock.wall())
        numbers.append(ExtendedSequenceNumber(shard.put(data)))
    return numbers, began_s


@simulated
async def test_the_last_record_before_a_time():
    shard = Shard()
    numbers, began_s = put_at(shard, 0, 5, 100, 20 * HOUR_S)
    shard.clock.advance(1)
    for at_s, found in ((5, 0), (5.5, 1), (100, 1), (101, 2), (20 * HOUR_S, 2)):
        position = (await search(shard).before_time(began_s + at_s)).position
        assert position == numbers[found], at_s
    first = await search(shard).before_time(began_s)
    assert (first.position, first.arrived_s) == (TRIM_HORIZON, None)
    near = await search(shard).before_time(began_s + 5.5)
    assert (near.reads, near.records, near.arrived_s) == (1, 4, began_s + 5)


@simulated
async def test_the_tip_is_the_newest_record_however_old():
    shard = Shard()
    assert (await search(shard).tip(shard.clock.wall())).position == TRIM_HORIZON
    (number,), _ = put_at(shard, 0)
    shard.clock.advance(23 * HOUR_S)
    found = await search(shard).tip(shard.clock.wall())
    assert found.position == number
    assert found.reads > 1


@simulated
async def test_an_aggregate_is_done_as_a_whole():
    shard = Shard()
    ((number, after), _) = put_at(
        shard, 0, 1, data=aggregate(("a", b"1"), ("b", b"2"), ("c", b"3"))
    )
    whole = ExtendedSequenceNumber(number.sequence_number, 2)
    assert (await search(shard).before_number(after.sequence_number)).position == whole
    assert (await search(shard).at_number(number.sequence_number)).position == whole
    assert (await search(shard).tip(shard.clock.wall() + 1)).position.sub_sequence_number == 2


@simulated
async def test_by_number():
    shard = Shard()
    numbers, _ = put_at(shard, 0, 3, 3000)
    for number, before in zip(numbers, [TRIM_HORIZON, *numbers], strict=False):
        found = await search(shard).before_number(number.sequence_number)
        assert found.position == before
    assert (await search(shard).at_number(numbers[1].sequence_number)).position == numbers[1]
    for wrong in ("1", str(int(numbers[1].sequence_number) + 1)):
        with pytest.raises(MoveRefused, match=f"has no record {wrong}, or none any more"):
            await search(shard).before_number(wrong)


@simulated
async def test_a_throttled_read_is_made_again():
    shard = Shard()
    numbers, _ = put_at(shard, 0)
    throttled = 2

    async def throttle(_service, operation, _request):
        nonlocal throttled
        if operation == "GetRecords" and throttled:
            throttled -= 1
            raise Throttled("GetRecords", "ProvisionedThroughputExceededException")

    shard.kinesis.before = throttle
    assert (await search(shard).at_number(numbers[0].sequence_number)).position == numbers[0]
    assert not throttled


@simulated
async def test_a_search_that_finds_nothing_for_long_is_given_up():
    shard = Shard()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(position_search, "MOST_READS", 2)
        with pytest.raises(MoveRefused, match="was not found within 2 reads"):
            await search(shard).tip(shard.clock.wall())


@simulated
async def test_answers_that_say_too_little():
    shard = Shard()
    numbers, _ = put_at(shard, 0)
    get_records = shard.kinesis.get_records

    async def undated(**request):
        answer = json.loads(await get_records(**request))
        for record in answer["Records"]:
            del record["ApproximateArrivalTimestamp"]
        return json.dumps(answer).encode()

    shard.kinesis.get_records = undated
    with pytest.raises(MoveRefused, match="has no arrival time"):
        await search(shard).before_number(numbers[0].sequence_number)

    async def nothing(**_request):
        return {}

    shard.kinesis.get_shard_iterator = nothing
    with pytest.raises(MalformedData, match="without an iterator"):
        await search(shard).tip(shard.clock.wall())


ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/T/stream/2026-11-28T07:09:24.310"


class TableShard:
    """A shard of a table's stream, whose answers do not say where its tip is.

    Args:
        answers: times of the records of each, epoch seconds; behind them are empty ones.
    """

    def __init__(self, *answers):
        self.answers = answers
        self.numbers = {}
        self.starts = []

    def search(self):
        return PositionSearch(self, Stream("s", ARN), SHARD)

    async def get_shard_iterator(self, **request):
        self.starts.append(request["ShardIteratorType"])
        at_s = request.get("Timestamp", 0)
        if (number := request.get("StartingSequenceNumber")) is not None:
            at_s = int(number)
        return {"ShardIterator": f"0 {at_s}"}

    async def get_records(self, **request):
        place, at_s = request["ShardIterator"].split()
        times = self.answers[int(place)] if int(place) < len(self.answers) else ()
        records = [
            {
                "SequenceNumber": f"{one:021d}",
                "PartitionKey": "k",
                "Data": "",
                "ApproximateArrivalTimestamp": one,
            }
            for one in times
            if one >= float(at_s)
        ]
        following = f"{int(place) + 1} {at_s}"
        behind_ms = 5000 if times else None
        answer = {"Records": records, "NextShardIterator": following}
        return json.dumps(answer | {"MillisBehindLatest": behind_ms}).encode()


def number(at_s):
    return ExtendedSequenceNumber(f"{at_s:021d}")


@simulated
async def test_the_tip_of_a_table_stream_is_where_several_answers_have_no_record():
    empty = [()] * (position_search.EMPTY_READS - 1)
    shard = TableShard([100, 200], *empty, [300], *empty, [301])
    found = await shard.search().tip(305)
    assert (found.position, found.arrived_s) == (number(301), 301)
    assert shard.starts == ["AT_TIMESTAMP"]
    # Records that are left out as too old are no sign of the tip.
    old = [[10]] * (3 * position_search.EMPTY_READS)
    assert (await TableShard(*old, [300]).search().tip(305)).position == number(300)


@simulated
async def test_a_table_stream_without_records_is_searched_in_few_steps():
    shard = TableShard()
    found = await shard.search().tip(1_000_000)
    assert (found.position, found.reads) == (TRIM_HORIZON, 4 * position_search.EMPTY_READS)
    assert shard.starts == [*["AT_TIMESTAMP"] * 3, "TRIM_HORIZON"]


@simulated
async def test_of_the_second_of_a_time_all_records_come():
    shard = TableShard([100, 200, 201])
    assert (await shard.search().before_time(200.7)).position == number(100)


@simulated
async def test_a_record_of_a_table_stream_may_come_behind_empty_answers():
    shard = TableShard((), (), [100, 200])
    assert (await shard.search().at_number("200")).position == number(200)
    assert (await shard.search().before_number("200")).position == number(100)

    async def trimmed(**_request):
        raise TrimmedData("GetRecords", "TrimmedDataAccessException")

    shard.get_records = trimmed
    with pytest.raises(MoveRefused, match="or none any more"):
        await shard.search().at_number("200")
