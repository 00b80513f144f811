"""What tests of publishers share, whichever way the records come."""

from __future__ import annotations

import asyncio
import base64
import random
from collections import deque

import pytest

from kcl_mld.retrieval.byte_budget import ByteBudget
from kcl_mld.signals.runtime import Runtime
from tests.fakes.clock import CountingIds, LoopClock
from tests.unit.children.consumer_world import Inline, RecordedMetrics

EPOCH = 1_700_000_000.0
#: As Kinesis names a child of the shard at its end.
CHILD = {
    "ShardId": "c",
    "ParentShards": ["p"],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
}


def just(seconds):
    return pytest.approx(seconds, abs=0.01, rel=0)


def records_of(numbers, size=1):
    """Records with these sequence numbers, as Kinesis gives them."""
    return [
        {
            "SequenceNumber": str(number),
            "PartitionKey": "k",
            "Data": base64.b64encode(b"x" * size).decode(),
            "ApproximateArrivalTimestamp": 1.0,
        }
        for number in numbers
    ]


class ScriptedExistence:
    """Says what became of a shard that was not found.

    Attributes:
        fates: one per question, an exception is raised; at its end every shard is trimmed.
        suspected: what the publisher asked to look into, shard and sequence number.
        is_gone: the stream was not found.
        confirmations: whether it is the same, one per question; at its end it is.
        confirm_s: how long such an answer takes.
        confirmed_at: when they were given.
    """

    def __init__(self):
        self.is_gone = False
        self.fates = deque()
        self.asked = []
        self.suspected = []
        self.confirmations = deque()
        self.confirm_s = 0.0
        self.confirmed_at = []

    async def confirm(self):
        await asyncio.sleep(self.confirm_s)
        self.confirmed_at.append(asyncio.get_running_loop().time())
        return self.confirmations.popleft() if self.confirmations else True

    async def is_trimmed(self, shard_id, sequence_number):
        self.asked.append((shard_id, sequence_number))
        fate = self.fates.popleft() if self.fates else True
        if isinstance(fate, Exception):
            raise fate
        return fate

    def check_shard(self, shard_id, sequence_number):
        self.suspected.append((shard_id, sequence_number))


class Publishing:
    """What is around a publisher, and how a consumer takes from it."""

    def __init__(self, budget_bytes=48 << 20):
        self.clock = LoopClock(EPOCH)
        self.metrics = RecordedMetrics()
        self.budget = ByteBudget(budget_bytes, self.clock)
        self.offload = Inline()
        self.existence = ScriptedExistence()
        self.runtime = Runtime(
            clock=self.clock,
            rng=random.Random(1),
            ids=CountingIds(),
            metrics=self.metrics,
            offload=self.offload,
        )

    async def take(self):
        fetched = await self.publisher.next_batch()
        assert fetched is not None
        fetched.reservation.release()
        return fetched.batch

    async def take_numbers(self, count):
        """Last sequence numbers of the next non-empty batches."""
        numbers = []
        while len(numbers) < count:
            batch = await self.take()
            if not batch.is_empty:
                numbers.append(batch.last_sequence_number)
        return numbers
