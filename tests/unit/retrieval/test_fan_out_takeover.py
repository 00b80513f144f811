"""One shard from hand to hand within the rules of the service, over the model of it."""

from __future__ import annotations

import asyncio
import random

from kcl_mld.config.config import FanOutConfig, RetrievalConfig
from kcl_mld.config.stream import Stream
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.local.kinesis.model import KinesisModel, KinesisSettings
from kcl_mld.retrieval.byte_budget import ByteBudget
from kcl_mld.retrieval.consumer_registration import ConsumerRegistration
from kcl_mld.retrieval.fan_out_publisher import FanOutPublisher
from kcl_mld.retrieval.model.wire import decode_records
from kcl_mld.retrieval.records_publisher import PublisherParts
from kcl_mld.signals.model.conditions import Conditions
from kcl_mld.signals.runtime import Runtime
from tests.fakes.clock import CountingIds, LoopClock
from tests.fakes.fake_kinesis import FakeKinesis
from tests.sim.loop import run
from tests.unit.children.consumer_world import Inline, RecordedMetrics
from tests.unit.retrieval.publishing import ScriptedExistence

SHARD = "shardId-000000000000"


class Service:
    """A stream of one shard."""

    def __init__(self, **settings):
        self.clock = LoopClock()
        self.model = KinesisModel(self.clock.wall, random.Random(1), KinesisSettings(**settings))
        self.model.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})

    def put(self):
        request = {"StreamName": "orders", "PartitionKey": "k", "Data": "YQ=="}
        return self.model.call("PutRecord", request)["SequenceNumber"]

    def worker(self):
        """A publisher of a worker of its own."""
        kinesis, rng = FakeKinesis(self.model), random.Random(2)
        registration = ConsumerRegistration(
            kinesis=kinesis,
            stream=Stream("orders"),
            name="app",
            config=FanOutConfig(),
            conditions=Conditions(),
            clock=self.clock,
            rng=rng,
        )
        runtime = Runtime(
            clock=self.clock,
            rng=rng,
            ids=CountingIds(),
            metrics=RecordedMetrics(),
            offload=Inline(),
        )
        parts = PublisherParts(
            kinesis=kinesis,
            stream=Stream("orders"),
            existence=ScriptedExistence(),
            config=RetrievalConfig(),
            budget=ByteBudget(48 << 20, self.clock),
            runtime=runtime,
        )
        return FanOutPublisher(SHARD, parts, registration)


class Reading:
    """A publisher that runs; leaving it ends it as the consumer does."""

    def __init__(self, publisher, position):
        self.publisher, self.position = publisher, position

    async def __aenter__(self):
        await self.publisher.start(self.position)
        self.running = asyncio.ensure_future(self.publisher.run())
        return self

    async def __aexit__(self, *raised):
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.publisher.close()

    async def next_numbers(self):
        """Sequence numbers of the next batch that has records."""
        while True:
            fetched = await self.publisher.next_batch()
            fetched.reservation.release()
            if not fetched.batch.is_empty:
                records = decode_records(fetched.batch.take_records())
                return [record.sequence_number for record in records]

    async def read_into(self, seen):
        """Until cancelled."""
        while True:
            seen += await self.next_numbers()


def now():
    return asyncio.get_running_loop().time()


def test_a_worker_that_takes_over_at_once_waits_for_the_five_seconds_and_misses_nothing():
    async def main():
        service = Service()
        first = service.put()
        async with Reading(service.worker(), TRIM_HORIZON) as one:
            assert await one.next_numbers() == [first]
        second = service.put()
        async with Reading(service.worker(), ExtendedSequenceNumber(first)) as other:
            # AT the checkpoint: the filter at delivery drops what was done.
            assert await other.next_numbers() == [first, second]
            assert 5.0 <= now() < 7.5

    run(main())


def test_a_worker_that_takes_over_later_does_not_wait_even_if_the_first_one_never_closed():
    async def main():
        service = Service()
        first = service.put()
        async with Reading(service.worker(), TRIM_HORIZON) as one:
            assert await one.next_numbers() == [first]
            await asyncio.sleep(10)
            began, second = now(), service.put()
            async with Reading(service.worker(), ExtendedSequenceNumber(first)) as other:
                assert await other.next_numbers() == [first, second]
                assert now() - began < 2.5

    run(main())


def test_a_worker_that_lost_its_shard_comes_back_only_when_the_service_lets_it():
    """Two that both believe in the shard take it from each other every five seconds at most."""

    async def main():
        service = Service()
        async with (
            Reading(service.worker(), TRIM_HORIZON) as one,
            Reading(service.worker(), TRIM_HORIZON) as other,
        ):
            seen = {one: [], other: []}
            tasks = [asyncio.ensure_future(each.read_into(seen[each])) for each in (one, other)]
            put = []
            for _ in range(60):
                put.append(service.put())
                await asyncio.sleep(1)
            await asyncio.sleep(15)
            for task in tasks:
                task.cancel()
            # Each of them read everything: what one had not got yet it asked for again.
            assert seen[one] == seen[other] == put

    run(main())


def test_renewals_lose_nothing_and_repeat_nothing():
    async def main():
        service = Service(subscription_s=7.0)
        async with Reading(service.worker(), TRIM_HORIZON) as one:
            put, seen = [], []
            reading = asyncio.ensure_future(one.read_into(seen))
            for _ in range(300):
                put.append(service.put())
                await asyncio.sleep(0.2)
            await asyncio.sleep(15)
            reading.cancel()
            assert seen == put

    run(main())
