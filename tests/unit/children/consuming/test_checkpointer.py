"""Checkpoint requests: what is written, retried, and answered."""

from __future__ import annotations

import asyncio
import random

import pytest

from kcl_mld.children.consuming.checkpointer import RETRY_S, ShardCheckpointer
from kcl_mld.errors import (
    Denied,
    LeaseLost,
    NotFound,
    ServiceError,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber as At
from kcl_mld.leases.model.lease import HeldLease, Lease
from tests.fakes.clock import LoopClock
from tests.sim.loop import run
from tests.unit.children.consumer_world import RecordedMetrics

THROTTLED = Throttled("UpdateItem", "ProvisionedThroughputExceededException")


class ScriptedRenewer:
    """Raises what it is told, then accepts."""

    def __init__(self, *troubles):
        self.troubles = list(troubles)
        self.written = []
        self.delay_s = 0.0

    async def checkpoint(self, lease_key, token, position, *, child_shard_ids=()):
        await asyncio.sleep(self.delay_s)
        if self.troubles:
            raise self.troubles.pop(0)
        self.written.append((lease_key, token, position, child_shard_ids))


class Asking:
    """A checkpointer and what it told."""

    def __init__(self, *troubles, checkpoint=TRIM_HORIZON):
        self.renewer = ScriptedRenewer(*troubles)
        self.metrics = RecordedMetrics()
        self.stored = 0
        self.lost = 0
        lease = Lease(lease_key="key", shard_id="shard", checkpoint=checkpoint)
        self.checkpointer = ShardCheckpointer(
            HeldLease(lease, "token", 0.0),
            self.renewer,
            LoopClock(),
            random.Random(1),
            self.metrics,
            self._on_stored,
            self._on_lost,
        )

    def _on_stored(self):
        self.stored += 1

    def _on_lost(self):
        self.lost += 1


def asking(test, *troubles, **settings):
    async def main():
        await test(Asking(*troubles, **settings))

    run(main())


def test_a_stored_position_is_written_under_the_token():
    async def test(world):
        world.checkpointer.delivered(At("7", 2))
        assert await world.checkpointer.checkpoint(None, None) is None
        assert world.renewer.written == [("key", "token", At("7", 2), ())]
        assert world.checkpointer.last == At("7", 2)
        assert world.stored == 1
        assert world.metrics.values["ProcessTask", "UpdateLease.Success"] == [1]

    asking(test)


def test_the_same_position_again_is_not_written():
    async def test(world):
        world.checkpointer.delivered(At("7"))
        for _ in range(2):
            assert await world.checkpointer.checkpoint("7", None) is None
        assert len(world.renewer.written) == 1

    asking(test)


def test_a_refused_position_is_not_written():
    async def test(world):
        assert await world.checkpointer.checkpoint("7", 0) == "IllegalArgumentException"
        assert world.renewer.written == []

    asking(test)


@pytest.mark.parametrize(
    ("trouble", "name"),
    [
        (LeaseLost("key", "taken"), "ShutdownException"),
        (NotFound("UpdateItem", "ResourceNotFoundException"), "InvalidStateException"),
        (ServiceError("UpdateItem", "InternalServerError"), "KinesisClientLibDependencyException"),
        (Denied("UpdateItem", "AccessDenied"), "KinesisClientLibDependencyException"),
        (UnknownOutcome("UpdateItem", "timeout"), "KinesisClientLibDependencyException"),
        (Unreachable("UpdateItem", "refused"), "KinesisClientLibDependencyException"),
    ],
)
def test_failed_writes_have_javas_names_and_change_nothing(trouble, name):
    async def test(world):
        world.checkpointer.delivered(At("7"))
        assert await world.checkpointer.checkpoint(None, None) == name
        assert world.checkpointer.last == TRIM_HORIZON
        assert world.lost == (name == "ShutdownException")
        assert world.stored == 0
        assert world.metrics.values["ProcessTask", "UpdateLease.Success"] == [0]
        assert await world.checkpointer.checkpoint(None, None) is None

    asking(test, trouble)


def test_throttling_is_repeated_before_the_child_hears_of_it():
    async def test(world):
        world.checkpointer.delivered(At("7"))
        assert await world.checkpointer.checkpoint(None, None) is None
        assert len(world.renewer.written) == 1

    asking(test, THROTTLED, THROTTLED)


def test_lasting_throttling_is_told_within_two_seconds():
    async def test(world):
        world.checkpointer.delivered(At("7"))
        began = asyncio.get_running_loop().time()
        assert await world.checkpointer.checkpoint(None, None) == "ThrottlingException"
        assert 1.0 < asyncio.get_running_loop().time() - began <= RETRY_S

    asking(test, *[THROTTLED] * 100)


def test_requests_are_served_one_after_the_other():
    async def test(world):
        world.renewer.delay_s = 1.0
        world.checkpointer.delivered(At("9"))
        async with asyncio.TaskGroup() as group:
            first = group.create_task(world.checkpointer.checkpoint("7", None))
            second = group.create_task(world.checkpointer.checkpoint("5", None))
        assert first.result() is None
        assert second.result() == "IllegalArgumentException"

    asking(test)


def test_the_end_of_a_shard_is_stored_with_its_children():
    async def test(world):
        world.checkpointer.delivered(At("7"))
        world.checkpointer.end_shard(("c1", "c2"))
        assert not world.checkpointer.has_ended
        assert await world.checkpointer.checkpoint("7", None) is None
        assert world.renewer.written == [("key", "token", SHARD_END, ("c1", "c2"))]
        assert world.checkpointer.has_ended
        assert world.metrics.values["ShutdownTask", "UpdateLease.Success"] == [1]

    asking(test)


def test_a_new_child_starts_at_the_last_stored_position():
    async def test(world):
        world.checkpointer.delivered(At("7"))
        await world.checkpointer.checkpoint("5", None)
        world.checkpointer.end_shard(("c1",))
        world.checkpointer.start_over()
        assert await world.checkpointer.checkpoint("SHARD_END", None) == "IllegalArgumentException"
        assert await world.checkpointer.checkpoint(None, None) is None
        assert len(world.renewer.written) == 1

    asking(test)


def test_a_row_without_a_checkpoint_cannot_be_consumed():
    async def main():
        with pytest.raises(LeaseLost, match="no checkpoint"):
            Asking(checkpoint=None)

    run(main())
