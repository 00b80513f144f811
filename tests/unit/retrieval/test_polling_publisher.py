"""Fetching one shard: cadence, prefetching, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque

import pytest

from kcl_mld.config.config import RetrievalConfig
from kcl_mld.config.stream import Stream
from kcl_mld.errors import (
    ExpiredIterator,
    InvalidArgument,
    NotFound,
    ResourceMissing,
    ServiceError,
    Throttled,
    TrimmedData,
    UnknownOutcome,
)
from kcl_mld.kernel.model.sequence import (
    AT_TIMESTAMP,
    LATEST,
    TRIM_HORIZON,
    ExtendedSequenceNumber as At,
)
from kcl_mld.retrieval.byte_budget import STUCK_S
from kcl_mld.retrieval.polling_publisher import PollingPublisher
from kcl_mld.retrieval.records_publisher import PublisherParts
from kcl_mld.signals.model.metrics import EXPIRED_ITERATOR, GET_RECORDS
from tests.fakes.budget import reserve
from tests.sim.loop import run
from tests.unit.retrieval.publishing import (
    CHILD,
    EPOCH,
    Publishing,
    just,
    records_of,
)


def answer(*numbers, behind=0, following="next", children=None, size=1):
    return json.dumps(
        {
            "Records": records_of(numbers, size),
            "NextShardIterator": following,
            "MillisBehindLatest": behind,
            "ChildShards": children or [],
        }
    ).encode()


END = answer(following=None, children=[CHILD])


async def renewed_in_time():
    """Leases are renewed in time, so reading need not wait."""


class ScriptedKinesis:
    """Answers GetRecords from a list; an exception in it is raised; at its end it is empty.

    Attributes:
        calls: (time, iterator) of each GetRecords.
        iterators: requests of GetShardIterator.
    """

    def __init__(self, *answers):
        self.answers = deque(answers)
        self.iterator_errors = deque()
        self.calls = []
        self.requests = []
        self.iterators = []
        self.iterator_takes_s = 0.0
        self.hold = None

    async def get_shard_iterator(self, **request):
        self.iterators.append(request)
        if self.iterator_errors:
            raise self.iterator_errors.popleft()
        iterator = f"it{len(self.iterators)}"
        await asyncio.sleep(self.iterator_takes_s)
        return {"ShardIterator": iterator}

    async def get_records(self, **request):
        self.calls.append((asyncio.get_running_loop().time(), request["ShardIterator"]))
        self.requests.append(request)
        if self.hold is not None:
            await self.hold.wait()
        result = self.answers.popleft() if self.answers else answer()
        if isinstance(result, Exception):
            raise result
        return result


class Fetching(Publishing):
    """A publisher with everything around it."""

    def __init__(self, *answers, position=TRIM_HORIZON, stream=None, timestamp_s=None, **config):
        super().__init__()
        self.kinesis = ScriptedKinesis(*answers)
        self.position = position
        parts = PublisherParts(
            kinesis=self.kinesis,
            stream=stream or Stream(name="orders"),
            existence=self.existence,
            config=RetrievalConfig(**config),
            budget=self.budget,
            runtime=self.runtime,
            initial_timestamp_s=timestamp_s,
        )
        self.publisher = PollingPublisher("shard-1", parts, renewed_in_time)

    @property
    def times(self):
        return [round(at, 2) for at, _ in self.kinesis.calls]


def fetching(test, *answers, **settings):
    async def main():
        world = Fetching(*answers, **settings)
        async with asyncio.TaskGroup() as group:
            await world.publisher.start(world.position)
            running = group.create_task(world.publisher.run())
            try:
                await test(world)
            finally:
                running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await world.publisher.close()
        assert world.budget.used_bytes == 0

    run(main())


def test_the_first_call_is_made_at_once_and_the_next_after_the_idle_time():
    async def test(world):
        for _ in range(3):
            await world.take()
        assert world.times == [0.0, 1.5, 3.0]

    fetching(test)


def test_near_the_tip_the_reduced_rate_applies():
    async def test(world):
        for _ in range(3):
            await world.take()
        assert world.times == [0.0, 5.0, 10.0]

    fetching(test, reduced_tps_threshold_s=5.0)


def test_a_shard_without_records_is_read_less_and_less_often_until_one_comes():
    async def test(world):
        world.kinesis.answers.extend([answer()] * 4 + [answer(1), answer(), answer(behind=7)])
        for _ in range(8):
            await world.take()
        assert world.times == [0.0, 1.5, 4.5, 9.5, 14.5, 16.0, 17.5, 19.0]

    fetching(test, idle_backoff=True)


@pytest.mark.parametrize(
    ("idle_backoff", "times"),
    [(False, [0.0, 2.0, 4.0, 5.0, 7.0, 9.0]), (True, [0.0, 2.0, 6.0, 7.0, 9.0, 13.0])],
)
def test_a_shard_of_a_table_is_read_half_as_often_after_an_answer_without_records(
    idle_backoff, times
):
    """What the page says of the cost rests on these pauses."""

    async def test(world):
        world.kinesis.answers.extend([answer()] * 2 + [answer(1)])
        for _ in range(6):
            await world.take()
        assert world.times == times

    arn = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders/stream/2026-11-28T07:09:24.310"
    fetching(test, stream=Stream(name="orders", arn=arn), idle_s=1.0, idle_backoff=idle_backoff)


def test_a_shard_that_is_far_behind_may_be_read_more_often_and_that_is_counted():
    async def test(world):
        world.kinesis.answers.extend(
            [answer(1, behind=60_001), answer(2, behind=60_001), answer(3, behind=60_000)]
        )
        for _ in range(5):
            await world.take()
        assert world.times == [0.0, 0.5, 1.0, 2.5, 4.0]
        found = world.metrics.values["ApplicationTracker", "DynamoDBStreamsCatchUpModeActive"]
        assert found == [1, 1]

    fetching(test, catch_up=True)


def test_iterators_follow_the_answers():
    async def test(world):
        for _ in range(3):
            await world.take()
        assert [one for _, one in world.kinesis.calls] == ["it1", "a", "b"]
        assert len(world.kinesis.iterators) == 1

    fetching(test, answer(following="a"), answer(following="b"))


def test_requests_name_the_stream_as_they_should():
    async def test(world):
        await world.take()
        assert world.kinesis.iterators[0] == {
            "StreamName": "orders",
            "StreamARN": "arn",
            "ShardId": "shard-1",
            "ShardIteratorType": "AT_SEQUENCE_NUMBER",
            "StartingSequenceNumber": "7",
        }
        assert world.kinesis.requests[0] == {
            "ShardIterator": "it1",
            "Limit": 500,
            "StreamARN": "arn",
        }

    fetching(test, position=At("7", 2), stream=Stream("orders", arn="arn"), max_records=500)


def test_an_expired_iterator_is_replaced_behind_the_last_record():
    async def test(world):
        assert await world.take_numbers(2) == ["12", "13"]
        assert [one["ShardIteratorType"] for one in world.kinesis.iterators] == [
            "TRIM_HORIZON",
            "AFTER_SEQUENCE_NUMBER",
        ]
        assert world.kinesis.iterators[1]["StartingSequenceNumber"] == "12"
        assert world.metrics.values["ProcessTask", "ExpiredIterator"] == [1]
        assert not EXPIRED_ITERATOR.dimension

    fetching(
        test,
        answer(11, 12),
        ExpiredIterator("GetRecords", "ExpiredIteratorException"),
        answer(13),
    )


def test_an_iterator_that_expires_before_the_first_record_reads_at_again():
    async def test(world):
        assert await world.take_numbers(1) == ["8"]
        assert [one["ShardIteratorType"] for one in world.kinesis.iterators] == [
            "AT_SEQUENCE_NUMBER",
            "AT_SEQUENCE_NUMBER",
        ]

    fetching(
        test,
        answer(),
        ExpiredIterator("GetRecords", "ExpiredIteratorException"),
        answer(8),
        position=At("7", 3),
    )


def test_a_latest_iterator_that_expires_before_the_first_record_leaves_no_hole():
    async def test(world):
        assert await world.take_numbers(1) == ["8"]
        assert world.kinesis.iterators[0]["ShardIteratorType"] == "LATEST"
        assert world.kinesis.iterators[1]["ShardIteratorType"] == "AT_TIMESTAMP"
        assert world.kinesis.iterators[1]["Timestamp"] == pytest.approx(EPOCH - 10, abs=0.01)

    fetching(
        test,
        answer(),
        ExpiredIterator("GetRecords", "ExpiredIteratorException"),
        answer(8),
        position=LATEST,
    )


def test_a_time_that_is_yet_to_come_for_the_service_is_tried_earlier_and_earlier(caplog):
    refused = InvalidArgument("GetShardIterator", "InvalidArgumentException")

    async def test(world):
        await world.publisher.start(LATEST, EPOCH + 310)
        world.kinesis.iterator_errors.extend([refused] * 3)
        assert await world.take_numbers(1) == ["8"]
        times = [each["Timestamp"] - EPOCH for each in world.kinesis.iterators]
        assert times == pytest.approx([300, 290, 270, 230], abs=0.1)
        assert world.publisher.latest_since_s == pytest.approx(EPOCH + 240, abs=0.1)

    fetching(test, answer(8), position=LATEST)
    assert caplog.text.count("the clock of this machine is ahead") == 3


def test_a_rewind_to_before_the_first_latest_iterator_leaves_no_hole():
    async def test(world):
        before = world.publisher.delivered
        assert await world.take_numbers(1) == ["1"]
        world.publisher.rewind(before)
        world.kinesis.answers.append(answer(1))
        assert await world.take_numbers(1) == ["1"]
        assert world.kinesis.iterators[1]["ShardIteratorType"] == "AT_TIMESTAMP"
        assert world.kinesis.iterators[1]["Timestamp"] == pytest.approx(EPOCH - 10, abs=0.01)

    fetching(test, answer(1), position=LATEST)


def test_a_refused_iterator_is_replaced():
    async def test(world):
        assert await world.take_numbers(1) == ["8"]
        assert len(world.kinesis.iterators) == 2

    fetching(test, InvalidArgument("GetRecords", "InvalidArgumentException"), answer(8))


@pytest.mark.parametrize(
    ("error", "last_level"),
    [
        (InvalidArgument("GetShardIterator", "InvalidArgumentException"), "ERROR"),
        (ServiceError("GetShardIterator", "InternalFailure"), "WARNING"),
    ],
)
def test_lasting_trouble_is_told_without_flooding_the_log(caplog, error, last_level):
    caplog.set_level(logging.INFO)

    async def test(world):
        assert await world.take_numbers(1) == ["8"]
        lines = [one for one in caplog.records if one.name == "mld.retrieval"]
        assert 10 <= len(lines) <= 17  # six, and one every half minute
        assert lines[-1].levelname == last_level

    async def main():
        world = Fetching(answer(8))
        world.kinesis.iterator_errors.extend([error] * 200)
        async with asyncio.TaskGroup() as group:
            await world.publisher.start(world.position)
            running = group.create_task(world.publisher.run())
            try:
                await test(world)
            finally:
                running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await world.publisher.close()

    run(main())


@pytest.mark.parametrize(
    "trouble",
    [
        Throttled("GetRecords", "ProvisionedThroughputExceededException"),
        UnknownOutcome("GetRecords", "ReadTimeoutError"),
        ServiceError("GetRecords", "InternalFailure"),
        RuntimeError("a bug"),
        b"not an answer",
        answer(9, following=None),
    ],
)
def test_after_any_failure_the_same_iterator_is_tried_after_the_full_idle_time(trouble):
    async def test(world):
        assert await world.take_numbers(2) == ["7", "8"]
        assert [one for _, one in world.kinesis.calls] == ["it1", "n1", "n1"]
        assert world.times == [0.0, 1.5, 3.0]

    fetching(test, answer(7, following="n1"), trouble, answer(8))


def test_throttling_is_an_error_in_the_log_from_the_sixth_time_on(caplog):
    caplog.set_level(logging.WARNING)

    async def test(world):
        assert await world.take_numbers(1) == ["8"]

    fetching(test, *[Throttled("GetRecords", "x")] * 7, answer(8))
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING"] * 5 + ["ERROR"]  # the seventh within half a minute is left out


def test_a_failed_iterator_request_is_repeated():
    async def test(world):
        world.kinesis.iterator_errors.append(ServiceError("GetShardIterator", "InternalFailure"))
        await asyncio.sleep(0)
        assert await world.take_numbers(1) == ["8"]
        assert world.times == [1.5]

    fetching(test, answer(8))


@pytest.mark.parametrize("where", ["iterator", "records"])
def test_a_shard_that_is_gone_ends_without_children(where):
    async def test(world):
        gone = NotFound("x", "ResourceNotFoundException")
        if where == "iterator":
            world.kinesis.iterator_errors.append(gone)
        else:
            world.kinesis.answers.append(gone)
        batch = await world.take()
        assert batch.is_shard_end
        assert batch.child_shards == ()
        assert batch.millis_behind_latest is None

    fetching(test)


@pytest.mark.parametrize("fate", [ResourceMissing("gone"), Throttled("x", "LimitExceeded"), False])
def test_a_shard_that_is_gone_does_not_end_while_its_stream_is_in_doubt(fate):
    async def test(world):
        world.kinesis.answers.extend([answer(7), NotFound("x", "ResourceNotFoundException")])
        world.existence.fates.extend([fate, False])
        assert await world.take_numbers(1) == ["7"]
        batch = await world.take()
        assert not batch.is_shard_end
        # What was not answered is asked again before the shard is.
        assert world.existence.asked == [("shard-1", "7")] * (1 if fate is False else 2)
        assert len(world.kinesis.iterators) == 2
        assert world.kinesis.iterators[-1]["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"

    fetching(test)


@pytest.mark.parametrize("error", [ExpiredIterator, InvalidArgument])
def test_iterators_that_never_serve_are_an_error_that_is_told_now_and_then(error, caplog):
    async def test(world):
        caplog.clear()
        world.kinesis.answers += [error("GetRecords", "x") for _ in range(30)]
        with caplog.at_level("INFO", "mld.retrieval"):
            await asyncio.sleep(60)
        levels = [one.levelname for one in caplog.records if "iterator" in one.getMessage()]
        assert levels[:6] == ["INFO"] * 5 + ["ERROR"]
        assert len(levels) < 10

    fetching(test)


@pytest.mark.parametrize(
    ("position", "known"), [(TRIM_HORIZON, None), (At("5"), "5")], ids=["horizon", "number"]
)
@pytest.mark.parametrize("error", [ExpiredIterator, InvalidArgument])
def test_an_iterator_that_does_not_serve_is_a_reason_to_doubt_the_stream(error, position, known):
    async def test(world):
        world.kinesis.answers.append(error("GetRecords", "x"))
        await world.take()
        assert world.existence.suspected == [("shard-1", known)]

    fetching(test, position=position)


def test_nothing_is_read_while_the_stream_is_gone():
    """A recreated stream would serve an iterator at TRIM_HORIZON."""

    async def test(world):
        assert await world.take_numbers(1) == ["7"]
        world.existence.is_gone = True
        await asyncio.sleep(5)
        calls = len(world.kinesis.calls)
        await asyncio.sleep(300)
        assert len(world.kinesis.calls) == calls
        world.existence.is_gone = False
        assert await world.take_numbers(1) == ["8"]

    fetching(test, answer(7), answer(), answer(), answer(), answer(8))


@pytest.mark.parametrize("position", [TRIM_HORIZON, LATEST, AT_TIMESTAMP])
@pytest.mark.parametrize("first", [answer(7), END], ids=["records", "the end"])
def test_what_an_unread_shard_has_to_offer_waits_until_the_stream_is_known_to_be_the_same(
    first, position
):
    """Such an iterator would serve a stream that was created again, too."""

    async def test(world):
        world.existence.confirm_s = 0.7
        assert [(await world.take()).is_empty for _ in range(2)] == [True, True]
        assert world.existence.confirmed_at == []
        batch = await world.take()
        assert not batch.is_empty or batch.is_shard_end
        assert world.existence.confirmed_at == [just(3.7)]
        assert world.kinesis.calls[2][0] == just(3.0)
        if not batch.is_shard_end:
            assert await world.take_numbers(1) == ["8"]
            assert len(world.existence.confirmed_at) == 1

    fetching(test, answer(), answer(), first, answer(8), position=position)


def test_a_sequence_number_fits_no_other_stream():
    async def test(world):
        assert await world.take_numbers(2) == ["7", "8"]
        assert world.existence.confirmed_at == []

    fetching(test, answer(7), ExpiredIterator("GetRecords", "x"), answer(8), position=At("5"))


def test_records_of_another_stream_are_dropped():
    async def test(world):
        world.existence.confirmations.append(False)
        assert await world.take_numbers(1) == ["8"]
        assert len(world.kinesis.iterators) == 2
        assert len(world.existence.confirmed_at) == 2

    fetching(test, answer(70), answer(8))


def test_a_rewind_while_the_stream_is_asked_for_drops_the_records():
    async def test(world):
        world.existence.confirm_s = 0.7
        before = world.publisher.delivered
        await asyncio.sleep(0.3)
        world.publisher.rewind(before)
        assert await world.take_numbers(1) == ["8"]
        assert len(world.kinesis.iterators) == 2
        assert len(world.existence.confirmed_at) == 2

    fetching(test, answer(7), answer(8))


def test_the_time_of_a_call_does_not_count_the_look_at_the_stream():
    async def test(world):
        world.existence.confirm_s = 3.0
        await world.take_numbers(1)
        took = [one.value for one in world.metrics.data if one.metric is GET_RECORDS.time]
        assert took == [just(0.0)]

    fetching(test, answer(7))


def test_a_rewind_while_the_stream_is_asked_for_leaves_no_end():
    async def test(world):
        world.kinesis.answers.append(NotFound("x", "ResourceNotFoundException"))
        before = world.publisher.delivered

        async def slowly(_shard_id, _number):
            world.publisher.rewind(before)
            return True

        world.existence.is_trimmed = slowly
        assert not (await world.take()).is_shard_end

    fetching(test)


def test_a_shard_that_is_not_found_is_checked_although_it_is_read_anew_meanwhile():
    """It may be one of another stream, from whose start an iterator would be good, too."""

    async def test(world):
        real, before = world.kinesis.get_records, world.publisher.delivered

        async def gone(**_request):
            world.kinesis.get_records = real
            world.publisher.rewind(before)
            raise NotFound("GetRecords", "ResourceNotFoundException")

        world.kinesis.get_records = gone
        assert await world.take_numbers(1) == ["1"]
        assert world.existence.asked

    fetching(test, answer(1))


def test_nothing_is_fetched_after_the_end():
    async def test(world):
        await world.take()
        batch = await world.take()
        assert batch.is_shard_end
        assert batch.child_shards[0].shard_id == "c"
        await asyncio.sleep(100)
        assert len(world.kinesis.calls) == 2

    fetching(test, answer(1), END)


def test_prefetching_stops_at_the_number_of_batches():
    async def test(world):
        await asyncio.sleep(100)
        assert len(world.kinesis.calls) == 4
        await world.take()
        await asyncio.sleep(100)
        assert len(world.kinesis.calls) == 5

    fetching(test)


def test_prefetching_stops_at_bytes():
    async def test(world):
        await asyncio.sleep(100)
        assert len(world.kinesis.calls) == 2

    fetching(
        test,
        answer(1, size=600),
        answer(2, size=600),
        answer(3, size=600),
        max_pending_bytes=1000,
    )


def test_without_prefetching_a_call_needs_somebody_who_waits():
    async def test(world):
        await asyncio.sleep(100)
        assert world.kinesis.calls == []
        await world.take()
        await asyncio.sleep(100)
        assert len(world.kinesis.calls) == 1

    fetching(test, max_pending=0)


def test_an_interrupted_wait_returns_nothing_and_loses_nothing():
    async def test(world):
        world.kinesis.hold = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(world.publisher.next_batch())
            await asyncio.sleep(1)
            world.publisher.interrupt()
            assert await waiting is None
        world.kinesis.hold.set()
        assert await world.take_numbers(1) == ["1"]

    fetching(test, answer(1))


def test_a_rewind_reads_again_and_drops_what_is_under_way():
    async def test(world):
        before = world.publisher.delivered
        assert await world.take_numbers(1) == ["1"]
        world.kinesis.hold = asyncio.Event()
        await asyncio.sleep(2)  # a call is under way
        world.publisher.rewind(before)
        world.kinesis.answers.extend([answer(1), answer(2)])
        world.kinesis.hold.set()
        assert await world.take_numbers(2) == ["1", "2"]
        assert world.kinesis.iterators[1]["ShardIteratorType"] == "TRIM_HORIZON"

    fetching(test, answer(1), answer(99))


def test_a_rewind_while_an_iterator_is_requested_gets_another_one():
    async def test(world):
        world.kinesis.iterator_takes_s = 3
        await asyncio.sleep(1)
        world.publisher.rewind(world.publisher.delivered)
        assert await world.take_numbers(1) == ["1"]
        assert world.kinesis.calls[0][1] == "it2"

    fetching(test, answer(1))


def test_a_rewind_after_the_end_reads_the_end_again():
    async def test(world):
        before = world.publisher.delivered
        assert (await world.take()).is_shard_end
        world.publisher.rewind(before)
        assert (await world.take()).is_shard_end

    fetching(test, END, END)


def test_while_nobody_waits_nothing_is_read_ahead_beyond_the_memory_budget():
    async def test(world):
        hanging = await reserve(world.budget, 100 * 2**20)
        first = await world.publisher.next_batch()  # it waits, so it gets one beyond the limit
        assert first is not None
        calls = len(world.kinesis.calls)
        await asyncio.sleep(60)
        assert len(world.kinesis.calls) == calls
        first.reservation.release()
        hanging.release()
        assert await world.take_numbers(1) == ["2"]

    fetching(test, answer(1), answer(2))


def test_large_answers_are_read_away_from_the_loop():
    async def test(world):
        assert await world.take_numbers(1) == ["1"]
        assert world.offload.count == 1

    fetching(test, answer(1, size=1_000_000))


def test_a_publisher_that_was_not_started_says_so():
    async def main():
        with pytest.raises(RuntimeError, match="not started"):
            _ = Fetching().publisher.delivered

    run(main())


def test_an_answer_without_an_iterator_is_the_end():
    async def test(world):
        async def nothing(**_request):
            return {}

        world.kinesis.get_shard_iterator = nothing
        assert (await world.take()).is_shard_end

    fetching(test)


def test_far_behind_a_large_answer_is_expected():
    async def test(world):
        await asyncio.sleep(0.1)
        publisher = world.publisher
        world.budget.remember(5_000_000)
        await asyncio.sleep(2)
        assert publisher._expectation() == 5_000_000

    fetching(test, answer(1), answer(2, behind=60_000))


def test_an_end_that_meets_a_rewind_is_dropped_with_the_rest():
    async def test(world):
        before = world.publisher.delivered
        hanging = world.budget.share(is_awaited=lambda: True).spend(100 * 2**20)
        gone = NotFound("GetShardIterator", "ResourceNotFoundException")
        world.kinesis.iterator_errors.append(gone)
        await asyncio.sleep(1)  # it is gone, as it seems, and there is no room for anything
        world.publisher.rewind(before)
        hanging.release()
        assert await world.take_numbers(2) == ["1", "2"]

    fetching(test, answer(1), answer(2))


def test_a_rewind_while_there_is_no_room_asks_only_for_what_is_wanted_then():
    async def test(world):
        hanging = world.budget.share(is_awaited=lambda: True).spend(100 * 2**20)
        await asyncio.sleep(1)
        assert world.kinesis.calls == []
        world.publisher.rewind(world.publisher.delivered)
        hanging.release()
        assert (await world.take()).last_sequence_number == "1"
        assert world.kinesis.calls[0][1] == "it2"

    fetching(test, answer(1))


async def squeeze(world):
    """Another shard needs all the memory; what it needs is taken at once."""
    other = world.budget.share(is_awaited=lambda: True)
    await other.refill(47 * 2**20)
    other.give_back()


def test_read_ahead_that_was_taken_back_comes_again_without_loss_and_in_order():
    async def test(world):
        assert await world.take_numbers(1) == ["1"]
        await asyncio.sleep(STUCK_S + 3)  # three answers are read ahead, and nobody takes them
        asked = len(world.kinesis.calls)
        assert world.budget.used_bytes > 2**20
        await squeeze(world)
        assert world.budget.used_bytes == 0
        await asyncio.sleep(100)
        assert len(world.kinesis.calls) == asked  # nothing is read ahead until the child goes on
        world.kinesis.answers.extend(
            [answer(2, following="c"), answer(3, following="d"), answer(4, following="e")]
        )
        assert await world.take_numbers(3) == ["2", "3", "4"]
        assert [iterator for _, iterator in world.kinesis.calls[asked:]][:3] == ["a", "c", "d"]
        assert len(world.kinesis.iterators) == 1  # the one that got the first of them gets it again

    fetching(
        test,
        answer(1, following="a"),
        answer(2, size=2**20, following="b"),
        answer(3, size=2**20, following="c"),
        answer(4, size=2**20, following="d"),
        max_pending=3,
    )


def test_an_answer_under_way_is_taken_back_too():
    async def test(world):
        assert await world.take_numbers(1) == ["1"]
        world.kinesis.hold = asyncio.Event()
        await asyncio.sleep(STUCK_S + 1)
        assert world.kinesis.calls[-1][1] == "a"
        world.publisher._drop_read_ahead()
        world.kinesis.hold.set()
        await asyncio.sleep(1)
        assert world.budget.used_bytes == 0
        world.kinesis.answers.append(answer(2))
        assert await world.take_numbers(1) == ["2"]
        assert world.kinesis.calls[-1][1] == "a"

    fetching(test, answer(1, following="a"), answer(2))


def test_the_end_of_a_shard_that_was_taken_back_comes_again():
    async def test(world):
        assert await world.take_numbers(1) == ["1"]
        await asyncio.sleep(5)
        world.publisher._drop_read_ahead()
        assert world.budget.used_bytes == 0
        assert (await world.take()).last_sequence_number == "2"
        assert (await world.take()).is_shard_end

    fetching(test, answer(1), answer(2), END, answer(2), END)


def test_an_iterator_that_expired_since_read_ahead_was_taken_back_is_replaced():
    async def test(world):
        assert await world.take_numbers(1) == ["1"]
        await asyncio.sleep(5)
        world.publisher._drop_read_ahead()
        world.kinesis.answers.clear()
        world.kinesis.answers.extend(
            [ExpiredIterator("GetRecords", "ExpiredIteratorException"), answer(2)]
        )
        assert await world.take_numbers(1) == ["2"]
        assert world.kinesis.iterators[1]["StartingSequenceNumber"] == "1"

    fetching(test, answer(1), answer(2))


def test_a_first_iterator_at_latest_that_is_being_asked_for_is_kept():
    async def test(world):
        world.kinesis.iterator_takes_s = 3
        await asyncio.sleep(1)
        world.publisher._drop_read_ahead()
        await asyncio.sleep(100)
        assert await world.take_numbers(1) == ["1"]
        assert len(world.kinesis.iterators) == 1

    fetching(test, answer(1), position=LATEST)


def test_a_batch_that_somebody_waits_for_is_not_taken_back_before_it_is_taken():
    async def test(world):
        world.kinesis.hold = asyncio.Event()
        tell, unserved = world.publisher._arrived.set, []

        def arrived():
            unserved.append(world.publisher._share.is_unserved(STUCK_S))
            tell()

        world.publisher._arrived.set = arrived
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(world.take())
            await asyncio.sleep(10 * STUCK_S)
            world.kinesis.hold.set()
            await waiting
        assert unserved[0] is False

    fetching(test, answer(1))


# -- the stream of a table -----------------------------------------------------------------------

TABLE = Stream(
    name="T",
    arn="arn:aws:dynamodb:us-east-1:123456789012:table/Orders/stream/2026-11-28T07:09:24.310",
)
TRIMMED = TrimmedData("GetRecords", "TrimmedDataAccessException", "too old")


async def refusals(world, count):
    """Last sequence numbers of the next batches, and which follow a position that was refused."""
    found = []
    for _ in range(count):
        fetched = await world.publisher.next_batch()
        fetched.reservation.release()
        found.append((fetched.batch.last_sequence_number, fetched.follows_refusal))
    return found


def test_reading_goes_on_at_the_oldest_record_when_those_at_the_position_expired():
    async def test(world):
        assert await refusals(world, 2) == [("900", True), ("901", False)]
        kinds = [one["ShardIteratorType"] for one in world.kinesis.iterators]
        assert kinds == ["AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON"]

    answers = (TRIMMED, answer("900"), answer("901"))
    fetching(test, *answers, position=At("007"), stream=TABLE)


def test_what_follows_a_refusal_is_known_as_that_when_it_is_read_again():
    async def test(world):
        await asyncio.sleep(5)  # the answers are read ahead
        assert [one.follows_refusal for one in world.publisher.waiting] == [True, False]
        world.publisher._drop_read_ahead()
        assert await refusals(world, 2) == [("900", True), ("901", False)]

    pages = (answer("900"), answer("901"))
    fetching(test, TRIMMED, *pages, *pages, position=At("007"), stream=TABLE, max_pending=2)


def test_a_closed_shard_of_which_nothing_is_left_is_asked_less_and_less_often_and_has_ended():
    async def test(world):
        batch = await world.take()
        assert batch.has_vanished
        assert world.times[:6] == [0.0, 1.5, 4.5, 10.5, 20.5, 30.5]
        assert 60 <= world.times[-1] <= 70.5

    fetching(test, *[TRIMMED] * 100, stream=TABLE)


MISSED = NotFound("GetRecords", "ResourceNotFoundException", "Shard does not exist")


def test_a_shard_of_a_table_that_is_not_found_is_asked_for_again():
    async def test(world):
        assert (await world.take()).last_sequence_number == "1"
        assert not world.existence.asked
        assert world.existence.suspected

    fetching(test, MISSED, MISSED, answer("1"), stream=TABLE)


def test_a_shard_of_a_table_that_is_not_found_for_a_minute_has_ended():
    async def test(world):
        assert (await world.take()).has_vanished
        assert 60 <= world.times[-1] <= 70.5

    fetching(test, *[MISSED] * 100, stream=TABLE)


def test_an_open_shard_is_asked_on():
    async def test(world):
        world.existence.fates.extend([False] * 100)
        assert (await world.take()).last_sequence_number == "1"
        assert world.existence.asked

    fetching(test, *[TRIMMED] * 60, answer("1"), stream=TABLE)


def test_a_shard_may_end_without_children():
    end = json.loads(answer(following=None)) | {"EndedWithoutChildren": True}

    async def test(world):
        batch = await world.take()
        assert (batch.is_shard_end, batch.has_vanished, batch.child_shards) == (True, False, ())

    fetching(test, json.dumps(end).encode(), stream=TABLE)


def test_answers_without_records_are_twice_as_far_apart():
    async def test(world):
        for _ in range(3):
            await world.take()
        assert world.times == [0.0, 3.0, 6.0]

    fetching(test, stream=TABLE)
