"""One shard's records by enhanced fan-out: renewal, position, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from itertools import pairwise

import pytest

from kcl_mld.config.config import RetrievalConfig
from kcl_mld.config.stream import Stream
from kcl_mld.errors import (
    InUse,
    InvalidArgument,
    NotFound,
    ResourceMissing,
    ServiceError,
    Throttled,
    UnknownOutcome,
)
from kcl_mld.kernel.model.sequence import (
    AT_TIMESTAMP,
    LATEST,
    TRIM_HORIZON,
    ExtendedSequenceNumber as At,
)
from kcl_mld.retrieval.byte_budget import SLOW_S
from kcl_mld.retrieval.fan_out_publisher import FanOutPublisher
from kcl_mld.retrieval.records_publisher import PublisherParts
from kcl_mld.retrieval.rules.fan_out import MOST_EVENTS
from tests.fakes.budget import reserve
from tests.sim.loop import run
from tests.unit.retrieval.publishing import (
    CHILD,
    EPOCH,
    Publishing,
    just,
    records_of,
)

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/app:1"
BROKEN = UnknownOutcome("SubscribeToShard", "ProtocolError", "ended prematurely")
IN_USE = InUse("SubscribeToShard", "ResourceInUseException")


def event(*numbers, behind=0, continuation=None, children=None, size=1):
    body = {"Records": records_of(numbers, size), "MillisBehindLatest": behind}
    if children is None:
        body["ContinuationSequenceNumber"] = continuation or str(numbers[-1])
    else:
        body["ChildShards"] = children
    return json.dumps(body).encode()


END = event(children=[CHILD])


class ScriptedSubscription:
    """Events of a list; an exception is raised, a number is a pause; then it waits, or ends."""

    def __init__(self, steps):
        self.steps = deque(steps)
        self.is_closed = False
        self.taken = 0
        self._ended = asyncio.Event()

    async def next_event(self):
        while self.steps and not self.is_closed:
            step = self.steps[0]
            if isinstance(step, float | int):
                await asyncio.sleep(step)
                self.steps.popleft()
                continue
            if isinstance(step, Exception):
                raise step
            if step is not None:
                self.steps.popleft()
                self.taken += 1
            return step
        await self._ended.wait()
        return None

    def close(self):
        self.is_closed = True
        self._ended.set()


class ScriptedKinesis:
    """One script per subscription; an exception refuses it; without a script it is silent.

    Attributes:
        requests: (virtual second, StartingPosition).
        subscriptions: those that were accepted.
    """

    def __init__(self, *scripts):
        self.scripts = deque(scripts)
        self.requests = []
        self.subscriptions = []

    async def subscribe_to_shard(self, **request):
        assert (request["ConsumerARN"], request["ShardId"]) == (ARN, "shard-1")
        now = round(asyncio.get_running_loop().time(), 2)
        self.requests.append((now, request["StartingPosition"]))
        script = self.scripts.popleft() if self.scripts else []
        if isinstance(script, Exception):
            raise script
        self.subscriptions.append(ScriptedSubscription(script))
        return self.subscriptions[-1]


class ScriptedRegistration:
    def __init__(self):
        self.is_known = True
        self.failing_since = None
        self.takes_s = 0.0
        self.missed = []
        self.acceptances = 0

    async def arn(self):
        await asyncio.sleep(self.takes_s)
        return ARN

    def accepted(self):
        self.acceptances += 1

    def not_found(self, arn):
        self.missed.append(arn)


class World(Publishing):
    """A publisher with everything around it."""

    def __init__(self, *scripts, position=TRIM_HORIZON, since_s=None, budget=48 << 20, **config):
        super().__init__(budget)
        self.kinesis = ScriptedKinesis(*scripts)
        self.registration = ScriptedRegistration()
        self.position, self.since_s = position, since_s
        self.publisher = FanOutPublisher(
            "shard-1",
            PublisherParts(
                kinesis=self.kinesis,
                stream=Stream("orders"),
                existence=self.existence,
                config=RetrievalConfig(**config),
                budget=self.budget,
                runtime=self.runtime,
            ),
            self.registration,
        )

    @property
    def starts(self):
        return [
            (position["Type"], position.get("SequenceNumber"))
            for _, position in self.kinesis.requests
        ]

    @property
    def times(self):
        return [at for at, _ in self.kinesis.requests]


def pushing(test, *scripts, **settings):
    async def main():
        world = World(*scripts, **settings)
        async with asyncio.TaskGroup() as group:
            await world.publisher.start(world.position, world.since_s)
            running = group.create_task(world.publisher.run())
            try:
                await test(world)
            finally:
                running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await world.publisher.close()
        assert world.budget.used_bytes == 0
        assert all(one.is_closed for one in world.kinesis.subscriptions)

    run(main())


class TestPosition:
    def test_the_first_is_at_and_the_next_after_the_last_event(self):
        async def test(world):
            assert await world.take_numbers(3) == ["11", "12", "13"]
            assert world.starts == [
                ("AT_SEQUENCE_NUMBER", "10"),
                ("AFTER_SEQUENCE_NUMBER", "12"),
            ]

        pushing(test, [event(11), event(12), None], [event(13)], position=At("10", 2))

    def test_an_accepted_subscription_alone_does_not_skip_the_rest_of_an_aggregate(self):
        async def test(world):
            await world.take_numbers(1)
            assert world.starts == [("AT_SEQUENCE_NUMBER", "10")] * 2

        pushing(test, [6.0, None], [event(10)], position=At("10", 2))

    def test_events_without_records_go_on(self):
        async def test(world):
            await world.take_numbers(1)
            assert world.starts == [("TRIM_HORIZON", None), ("AFTER_SEQUENCE_NUMBER", "70")]

        pushing(test, [event(continuation="50"), event(continuation="70"), 6, None], [event(71)])

    def test_latest_is_remembered_by_its_time(self):
        async def test(world):
            await world.take_numbers(1)
            first, second = [position for _, position in world.kinesis.requests]
            assert first == {"Type": "LATEST"}
            assert second == {"Type": "AT_TIMESTAMP", "Timestamp": just(EPOCH - 10)}
            assert world.publisher.latest_since_s == just(EPOCH)

        pushing(test, [7.0, BROKEN], [event(71)], position=LATEST)

    def test_latest_that_was_remembered_before(self):
        async def test(world):
            await world.take()
            assert world.kinesis.requests == [
                (0.0, {"Type": "AT_TIMESTAMP", "Timestamp": EPOCH - 110})
            ]

        pushing(test, [event(1)], position=LATEST, since_s=EPOCH - 100)

    def test_a_time_that_is_yet_to_come_for_the_service_is_tried_earlier(self):
        async def test(world):
            assert await world.take_numbers(1) == ["1"]
            times = [position["Timestamp"] - EPOCH for _, position in world.kinesis.requests]
            assert times == pytest.approx([90, 80, 60])

        refused = InvalidArgument("SubscribeToShard", "InvalidArgumentException")
        pushing(test, refused, refused, [event(1)], position=LATEST, since_s=EPOCH + 100)

    def test_at_latest_nothing_is_skipped_while_the_consumer_is_registered(self):
        async def main():
            world = World([event(1)], position=LATEST)
            world.registration.is_known, world.registration.takes_s = False, 30.0
            await world.publisher.start(LATEST)
            running = asyncio.ensure_future(world.publisher.run())
            await world.take()
            assert world.kinesis.requests == [
                (30.0, {"Type": "AT_TIMESTAMP", "Timestamp": just(EPOCH - 10)})
            ]
            running.cancel()

        run(main())


class TestRenewal:
    def test_after_its_normal_end_a_subscription_is_renewed_at_once(self):
        async def test(world):
            assert await world.take_numbers(2) == ["1", "2"]
            assert world.times == [0.0, 300.0]

        lasting = [event(1), *[50.0, event(continuation="1")] * 6, None]
        pushing(test, lasting, [event(2)])

    def test_events_that_wait_are_kept_over_it(self):
        async def test(world):
            await asyncio.sleep(20)
            assert world.starts[1:] == [("AFTER_SEQUENCE_NUMBER", "2")]
            assert await world.take_numbers(3) == ["1", "2", "3"]

        pushing(test, [event(1), event(2), 6.0, None], [event(3)])

    def test_not_before_the_service_accepts_another(self):
        async def test(world):
            await world.take_numbers(2)
            assert world.times == [0.0, 5.0]

        pushing(test, [event(1), 1.5, None], [event(2)])

    def test_who_comes_within_five_seconds_of_another_worker_waits(self):
        async def test(world):
            await world.take_numbers(1)
            assert 5.0 <= world.times[1] < 6.0
            assert world.publisher.failing_since is None

        pushing(test, IN_USE, [event(1)])

    def test_a_subscription_that_another_replaces_is_tried_again_later(self):
        async def test(world):
            assert await world.take_numbers(2) == ["1", "2"]
            assert 12.0 <= world.times[1] < 13.0
            assert world.starts[1] == ("AFTER_SEQUENCE_NUMBER", "1")

        pushing(test, [event(1), 7.0, IN_USE], [event(2)])

    def test_a_broken_connection_is_made_again_after_a_second(self):
        async def test(world):
            assert await world.take_numbers(2) == ["1", "2"]
            assert world.times == [0.0, 8.0]

        pushing(test, [event(1), 7.0, BROKEN], [event(2)])

    def test_sixty_seconds_of_silence_end_it(self, caplog):
        async def test(world):
            with caplog.at_level(logging.WARNING):
                assert await world.take_numbers(2) == ["1", "2"]
            assert world.times == [0.0, 61.0]
            assert "nothing came for 60 s" in caplog.text
            assert world.kinesis.subscriptions[0].is_closed

        pushing(test, [event(1)], [event(2)])

    def test_subscriptions_that_end_before_any_event_came_are_failures(self, caplog):
        async def test(world):
            with caplog.at_level(logging.WARNING):
                await asyncio.sleep(19)
            assert world.times == [0.0, 5.0, 10.0, 15.0], "paced as the service wants it"
            assert caplog.text.count("accepted, but no event came") == 4
            assert world.publisher.failing_since == pytest.approx(0.0, abs=0.01)
            assert await world.take_numbers(2) == ["1", "2"]
            assert world.publisher.failing_since is None

        pushing(test, [None], [None], [None], [None], [event(1), None], [event(2)])

    def test_silence_does_not_count_while_nothing_is_asked_for(self):
        async def test(world):
            await asyncio.sleep(200)
            assert world.times == [0.0]
            assert await world.take_numbers(MOST_EVENTS) == [str(n) for n in range(MOST_EVENTS)]

        pushing(test, [event(n) for n in range(MOST_EVENTS + 1)])

    def test_throttled_calls_are_repeated_less_and_less(self):
        async def test(world):
            await world.take_numbers(1)
            first, second, third = (after - before for before, after in pairwise(world.times))
            assert 1 <= first <= 2 <= second <= 4 <= third <= 8
            assert world.publisher.failing_since is None

        pushing(test, *[Throttled("SubscribeToShard", "LimitExceeded")] * 3, [event(1)])

    def test_failures_in_a_row_are_known(self):
        async def test(world):
            await asyncio.sleep(20)
            assert world.publisher.failing_since == pytest.approx(0.0, abs=0.01)
            await world.take_numbers(1)
            assert world.publisher.failing_since is None

        errors = [ServiceError("SubscribeToShard", "InternalFailureException")] * 40
        pushing(test, *errors, [event(1)])

    def test_a_consumer_that_cannot_be_registered_fails_its_shards(self):
        async def test(world):
            await asyncio.sleep(1)
            world.registration.failing_since = 0.5
            assert world.publisher.failing_since == 0.5

        pushing(test, [])

    def test_a_refused_position_is_a_reason_to_look_for_the_stream(self):
        async def test(world):
            await world.take_numbers(1)
            assert world.existence.suspected == [("shard-1", "10")]

        refused = InvalidArgument("SubscribeToShard", "InvalidArgumentException")
        pushing(test, refused, [event(11)], position=At("10"))

    def test_what_nobody_foresaw_is_told_and_tried_again(self, caplog):
        async def test(world):
            with caplog.at_level(logging.ERROR):
                assert await world.take_numbers(1) == ["1"]
            assert "unexpected error" in caplog.text

        pushing(test, [RuntimeError("oops")], [event(1)])


class TestBadEvents:
    @pytest.mark.parametrize(
        "bad",
        [
            b"no json",
            b'{"Records": []}',
            event(7, children=[]),
            event(7, children=[CHILD | {"ParentShards": []}]),
            json.dumps(
                {"Records": [], "ContinuationSequenceNumber": "8", "ChildShards": [CHILD]}
            ).encode(),
        ],
    )
    def test_an_event_that_contradicts_itself_is_not_delivered(self, bad):
        async def test(world):
            assert await world.take_numbers(2) == ["1", "2"]
            assert world.starts[1] == ("AFTER_SEQUENCE_NUMBER", "1")

        pushing(test, [event(1), bad, event(99)], [event(2)])


class TestTheEnd:
    def test_the_last_event_has_the_children(self):
        async def test(world):
            assert (await world.take()).last_sequence_number == "1"
            last = await world.take()
            assert last.is_shard_end
            assert [child.shard_id for child in last.child_shards] == ["c"]
            await asyncio.sleep(1000)
            assert len(world.kinesis.requests) == 1

        pushing(test, [event(1), END])

    def test_it_may_have_records(self):
        async def test(world):
            last = await world.take()
            assert (last.last_sequence_number, last.is_shard_end) == ("9", True)
            assert world.publisher.delivered.last_received == "9"

        pushing(test, [event(9, children=[CHILD])])

    def test_a_shard_that_is_past_retention_has_ended(self):
        async def test(world):
            last = await world.take()
            assert last.is_shard_end
            assert not last.child_shards
            assert world.existence.asked == [("shard-1", "10")]

        missing = NotFound("SubscribeToShard", "ResourceNotFoundException")
        pushing(test, missing, position=At("10"))

    def test_a_shard_that_is_listed_lacks_its_consumer(self):
        async def test(world):
            world.existence.fates.append(False)
            assert await world.take_numbers(1) == ["11"]
            assert world.registration.missed == [ARN]

        missing = NotFound("SubscribeToShard", "ResourceNotFoundException")
        pushing(test, missing, [event(11)], position=At("10"))

    def test_while_the_stream_is_gone_it_waits(self):
        async def test(world):
            world.existence.fates.extend(
                [ResourceMissing("gone"), ServiceError("ListShards", "Oops"), False]
            )
            assert await world.take_numbers(1) == ["11"]
            assert len(world.kinesis.requests) == 2

        missing = NotFound("SubscribeToShard", "ResourceNotFoundException")
        pushing(test, missing, [event(11)])

    @pytest.mark.parametrize("position", [TRIM_HORIZON, LATEST, AT_TIMESTAMP])
    @pytest.mark.parametrize("first", [event(7), event(continuation="6")], ids=["full", "empty"])
    def test_the_first_event_waits_until_the_stream_is_known_to_be_the_same(self, first, position):
        """Such a position would serve a stream that was created again, too."""

        async def test(world):
            world.existence.confirm_s = 0.7
            await world.take()
            assert world.existence.confirmed_at == [just(0.7)]
            assert await world.take_numbers(1) == ["8"]
            assert len(world.existence.confirmed_at) == 1

        pushing(test, [first, event(8)], position=position)

    def test_a_sequence_number_fits_no_other_stream(self):
        async def test(world):
            assert await world.take_numbers(2) == ["11", "12"]
            assert world.existence.confirmed_at == []

        pushing(test, [event(11), 6.0, None], [event(12)], position=At("10"))

    def test_events_of_another_stream_are_dropped(self):
        async def test(world):
            world.existence.confirmations.append(False)
            assert await world.take_numbers(1) == ["8"]
            assert world.starts == [("TRIM_HORIZON", None)] * 2
            assert world.kinesis.subscriptions[0].is_closed

        pushing(test, [event(70), event(71)], [event(8)])

    def test_a_rewind_while_the_stream_is_asked_for_drops_the_event(self):
        async def test(world):
            world.existence.confirm_s = 0.7
            before = world.publisher.delivered
            await asyncio.sleep(0.3)
            world.publisher.rewind(before)
            assert await world.take_numbers(1) == ["8"]
            assert len(world.existence.confirmed_at) == 2

        pushing(test, [event(7)], [event(8)])

    def test_nothing_is_asked_of_a_stream_that_is_gone(self):
        async def test(world):
            world.existence.is_gone = True
            await asyncio.sleep(35)
            assert not world.kinesis.requests
            world.existence.is_gone = False
            await world.take_numbers(1)

        pushing(test, [event(1)])


class TestTheConsumer:
    def test_rewinding_subscribes_behind_the_place(self):
        async def test(world):
            await world.take_numbers(1)
            place = world.publisher.delivered
            assert await world.take_numbers(2) == ["2", "3"]
            world.publisher.rewind(place)
            assert world.kinesis.subscriptions[0].is_closed
            assert await world.take_numbers(2) == ["2", "3"]
            assert world.starts[1] == ("AFTER_SEQUENCE_NUMBER", "1")

        pushing(test, [event(1), event(2), event(3)], [event(2), event(3)])

    def test_rewinding_before_the_first_event_reads_at_again(self):
        async def test(world):
            place = world.publisher.delivered
            await world.take_numbers(1)
            world.publisher.rewind(place)
            await world.take_numbers(1)
            assert world.starts == [("AT_SEQUENCE_NUMBER", "10")] * 2

        pushing(test, [event(10)], [event(10)], position=At("10", 2))

    def test_rewinding_from_the_end_gets_the_end_again(self):
        async def test(world):
            await world.take_numbers(1)
            place = world.publisher.delivered
            assert (await world.take()).is_shard_end
            await asyncio.sleep(100)
            world.publisher.rewind(place)
            assert (await world.take()).is_shard_end

        pushing(test, [event(1), END], [END])

    def test_an_interrupted_wait_gets_nothing(self):
        async def test(world):
            waiting = asyncio.ensure_future(world.publisher.next_batch())
            await asyncio.sleep(1)
            world.publisher.interrupt()
            assert await waiting is None

        pushing(test, [])

    def test_no_more_is_asked_for_than_may_wait(self):
        async def test(world):
            await asyncio.sleep(50)
            (subscription,) = world.kinesis.subscriptions
            assert subscription.taken == MOST_EVENTS
            await world.take()
            await asyncio.sleep(1)
            assert subscription.taken == MOST_EVENTS + 1

        pushing(test, [event(n) for n in range(100)])

    def test_without_read_ahead_events_come_one_by_one(self):
        async def test(world):
            await asyncio.sleep(20)
            assert not world.kinesis.subscriptions
            await world.take()
            await asyncio.sleep(20)
            assert world.kinesis.subscriptions[0].taken == 1

        pushing(test, [event(n) for n in range(100)], max_pending=0)

    def test_large_events_are_read_away_from_the_loop(self):
        async def test(world):
            await world.take()
            assert world.offload.count == 1

        pushing(test, [event(1, size=1_000_000)])


class TestMemory:
    def test_every_event_is_accounted_for_until_it_is_released(self):
        async def test(world):
            await asyncio.sleep(1)
            assert world.budget.used_bytes >= 100_000
            fetched = await world.publisher.next_batch()
            assert fetched.reservation.size_bytes >= 100_000
            fetched.reservation.release()

        pushing(test, [event(1, size=100_000)])

    def test_nothing_is_let_in_without_room(self):
        async def main():
            world = World([event(1)], budget=6_000_000)
            await world.publisher.start(TRIM_HORIZON)
            other = await reserve(world.budget, 5_000_000)
            running = asyncio.ensure_future(world.publisher.run())
            await asyncio.sleep(1)
            assert world.kinesis.subscriptions[0].taken == 0
            other.release()
            await asyncio.sleep(1)
            assert world.kinesis.subscriptions[0].taken == 1
            running.cancel()

        run(main())

    def test_read_ahead_that_others_need_is_dropped_and_pushed_again(self):
        async def test(world):
            assert await world.take_numbers(1) == ["1"]
            await asyncio.sleep(SLOW_S + 1)
            world.publisher._drop_read_ahead()
            assert world.kinesis.subscriptions[0].is_closed
            assert world.budget.used_bytes == 0
            await asyncio.sleep(100)
            assert len(world.kinesis.requests) == 1
            assert await world.take_numbers(2) == ["2", "3"]
            assert world.starts[1] == ("AFTER_SEQUENCE_NUMBER", "1")

        pushing(test, [event(1), event(2)], [event(2), event(3)])

    def test_a_subscription_of_which_nothing_is_kept_stays(self):
        async def test(world):
            assert await world.take_numbers(1) == ["1"]
            world.publisher._drop_read_ahead()
            assert world.budget.used_bytes == 0
            assert await world.take_numbers(1) == ["2"]
            assert len(world.kinesis.requests) == 1

        pushing(test, [event(1), 10.0, event(2)])
