"""Start, one consumer per held lease, and the ways to an end; over scripted collaborators."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.app.scheduler import Scheduler, SchedulerParts, StopOutcome
from kcl_mld.app.worker_streams import SingleStream
from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.config.config import (
    AwsConfig,
    ShardConfig,
)
from kcl_mld.config.credentials import CredentialChain
from kcl_mld.errors import (
    ChildFailed,
    LeaseLost,
    MixedTable,
    MldError,
    NotFound,
    ResourceMissing,
    ServiceError,
    Throttled,
    UnservableFleet,
)
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld.leases.lease_renewer import Releases
from kcl_mld.leases.model.lease import HeldLease
from kcl_mld.leases.model.lease_request import LeaseRequest
from kcl_mld.signals.model.conditions import Conditions, Reason
from tests.fakes.clock import LoopClock
from tests.fakes.config import config_with
from tests.fakes.lease_world import CountingMetrics, lease
from tests.fakes.shard_world import simulated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

A, B = "shardId-000000000000", "shardId-000000000001"


class Renewer:
    """Holds what the test says."""

    def __init__(self) -> None:
        self.heartbeat = self  # which nothing here needs
        self.changed = Wakeup()
        self.leases: dict[str, HeldLease] = {}
        self.released: list[str] = []
        self.dropped: list[str] = []
        self.release_takes_s = 0.0
        self.carried_out: list[str] = []
        self.carrying_out_takes_s = 0.0
        self.defect: Exception | None = None
        self.unreleased = self.expired = 0
        self.releases = Releases()
        self._count = 0

    def gain(self, *keys: str, **fields: Any) -> None:
        for key in keys:
            self._count += 1
            held = HeldLease(lease(int(key[-3:]), **fields), f"token-{self._count}", 0.0)
            self.leases[key] = held
        self.changed.wake()

    def lose(self, key: str) -> None:
        del self.leases[key]
        self.changed.wake()

    async def run(self) -> None:
        await asyncio.Event().wait()

    def held(self) -> tuple[HeldLease, ...]:
        return tuple(self.leases[key] for key in sorted(self.leases))

    def get(self, key: str) -> HeldLease | None:
        return self.leases.get(key)

    async def release(self, key: str, token: str) -> bool:
        await asyncio.sleep(self.release_takes_s)
        self.released.append(key)
        if self.defect is not None:
            self.leases.pop(key)
            raise self.defect
        return self.leases.pop(key, None) is not None

    async def carry_out(self, key: str, token: str, request: LeaseRequest, at_s: float) -> bool:
        self.carried_out.append(key)
        await asyncio.sleep(self.carrying_out_takes_s)
        self.gain(key)
        return True

    async def drop(self, key: str, token: str) -> None:
        self.dropped.append(key)
        self.leases.pop(key, None)


class Consumer:
    """Runs until it is told or made to end."""

    def __init__(self, held: HeldLease, world: World) -> None:
        self.lease_key = held.lease.lease_key
        self.held = held
        self.heard: list[str] = []
        self.ends: asyncio.Future[ShutdownReason] = asyncio.get_running_loop().create_future()
        self.was_cancelled = False
        self._world = world

    async def run(self) -> ShutdownReason:
        try:
            reason = await self.ends
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if reason is ShutdownReason.REQUESTED:
            await self._world.renewer.release(self.lease_key, self.held.token)
        return reason

    def end(self, reason: ShutdownReason) -> None:
        if not self.ends.done():
            self.ends.set_result(reason)

    def request_shutdown(self) -> None:
        self.heard.append("stop")
        if self._world.consumers_obey:
            self.end(ShutdownReason.REQUESTED)

    def request_hand_over(self) -> None:
        self.heard.append("hand over")
        if self._world.consumers_obey and self._world.scheduler.state == "stopping":
            self.end(ShutdownReason.REQUESTED)

    def lease_lost(self) -> None:
        self.heard.append("lost")
        self.end(ShutdownReason.LEASE_LOST)

    def parents_changed(self) -> None:
        self.heard.append("parents")


async def forever() -> None:
    await asyncio.Event().wait()


class World:
    """Is coordinator, syncer and cleanup in one.

    Attributes:
        starts: outcomes of the attempts to start, an exception or None; then all succeed.
    """

    def __init__(self, *, grace_s: float = 20.0, attempts: int = 20, **loops: Any) -> None:
        self.renewer = Renewer()
        self.looks_for_leases = 0
        self.metrics = CountingMetrics()
        self.clock = LoopClock()
        self.conditions = Conditions()
        self.starts: list[Exception | None] = []
        self.start_takes_s = 0.0
        self.successors: frozenset[str] = frozenset()
        self.naming_takes_s = 0.0
        self.last_looks = 0
        self.start_count = 0
        self.syncs: list[Exception | None] = []
        self.taking = True
        self.loop_of: dict[str, Callable[[], Awaitable[None]]] = {
            "coordinator": forever,
            "syncer": forever,
            **loops,
        }
        self.made: list[Consumer] = []
        self.consumers_obey = True
        self.arrives_late: str | None = None
        self.refuses_consumers: Exception | None = None
        config = config_with(
            aws=AwsConfig(
                kinesis_credentials=CredentialChain(()),
                kinesis_endpoint="http://k",
                kinesis_region="eu-west-1",
            ),
            shards=ShardConfig(initialization_attempts=attempts, initialization_backoff_s=2.0),
            shutdown_grace_s=grace_s,
        )
        parts = SchedulerParts(
            coordinator=self,  # type: ignore[arg-type]
            streams=SingleStream(Context(Syncer(self), Loop(forever))),  # type: ignore[arg-type]
            cleanup=Loop(forever),  # type: ignore[arg-type]
            new_consumer=self._new_consumer,  # type: ignore[arg-type]
            conditions=self.conditions,
            on_started=lambda: None,
            loops=(("extra", self._extra),),
        )
        self.scheduler = Scheduler(config, parts, self.clock, self.metrics)

    async def _extra(self) -> None:
        await self.loop_of.get("extra", forever)()

    def _new_consumer(self, held: HeldLease) -> Consumer:
        if self.refuses_consumers is not None:
            raise self.refuses_consumers
        consumer = Consumer(held, self)
        self.made.append(consumer)
        return consumer

    async def start(self) -> None:
        self.start_count += 1
        await asyncio.sleep(self.start_takes_s)
        if self.starts and (error := self.starts.pop(0)) is not None:
            raise error

    async def run(self) -> None:
        await self.loop_of["coordinator"]()

    def leases_created(self) -> None:
        self.looks_for_leases += 1

    def stop_taking(
        self, failure: BaseException | None = None, lease_key: str | None = None
    ) -> None:
        self.taking = False
        self.failed = (failure, lease_key)

    async def start_hand_offs(self) -> frozenset[str]:
        await asyncio.sleep(self.naming_takes_s)
        return self.successors

    async def last_look(self) -> None:
        assert not self.renewer.leases, "all were released before"
        self.last_looks += 1

    async def settled(self) -> None:
        if self.arrives_late:
            await asyncio.sleep(1)
            self.renewer.gain(self.arrives_late)

    async def working(self, *keys: str) -> asyncio.Task[StopOutcome]:
        """Start the scheduler and give it these leases."""
        task = asyncio.create_task(self.scheduler.run())
        self.renewer.gain(*keys)
        await asyncio.sleep(0.1)
        return task

    @property
    def keys(self) -> list[str]:
        return [one.lease_key for one in self.scheduler.consumers()]


class Loop:
    def __init__(self, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.run = loop


class Context:
    """The worker's only stream."""

    def __init__(self, syncer: Syncer, existence: Loop) -> None:
        self.syncer = syncer
        self.existence = existence


class Syncer:
    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self) -> None:
        await self._world.loop_of["syncer"]()

    async def sync_if_empty(self) -> None:
        if self._world.syncs and (error := self._world.syncs.pop(0)) is not None:
            raise error


@simulated
async def test_a_table_that_answers_a_request_slowly_holds_up_no_other_shard():
    world = World()
    world.renewer.carrying_out_takes_s = 60
    reset = LeaseRequest(
        request_id="r1",
        verb="reset",
        holder="w1",
        expires_s=world.clock.wall() + 900,
        sequence_number="7",
    )
    world.renewer.gain(A, lease_owner="w1", request=reset)
    task = await world.working()
    world.renewer.gain(B)
    await asyncio.sleep(50)
    assert world.keys == [B]
    assert world.renewer.carried_out == [A]
    await asyncio.sleep(10)
    assert world.keys == [A, B]
    assert world.renewer.carried_out == [A]
    assert world.made[1].held.token == world.renewer.leases[A].token
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)


@simulated
async def test_what_a_person_asks_for_and_a_pause_go_by_the_time_of_the_service():
    world = World()
    world.clock.ahead = 1200.0
    true_s = world.clock.wall() - 1200.0
    release = LeaseRequest(request_id="r1", verb="release", holder="w1", expires_s=true_s + 900)
    world.renewer.gain(A, lease_owner="w1", request=release)
    world.renewer.gain(B, lease_owner="w1", paused_until_s=true_s + 60)
    task = await world.working()
    await asyncio.sleep(55)
    assert world.renewer.carried_out == [A]
    assert B not in world.keys
    await asyncio.sleep(10)
    assert B in world.keys
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)


@simulated
async def test_a_worker_that_stops_does_not_wait_longer_for_what_a_person_asked():
    world = World(grace_s=5)
    world.renewer.carrying_out_takes_s = 1000
    release = LeaseRequest(
        request_id="r1", verb="release", holder="w1", expires_s=world.clock.wall() + 900
    )
    world.renewer.gain(A, lease_owner="w1", request=release)
    task = await world.working()
    world.scheduler.stop()
    await asyncio.wait_for(task, 6)
    assert not world.made


HANDED_OVER = {"lease_owner": "next", "checkpoint_owner": "me"}


@simulated
async def test_a_table_that_answers_a_release_slowly_holds_up_no_other_shard():
    world = World()
    world.renewer.release_takes_s = 60
    world.renewer.gain(A, **HANDED_OVER)
    task = await world.working()
    world.renewer.gain(B)
    await asyncio.sleep(50)
    assert world.keys == [B]
    assert A in world.renewer.leases
    await asyncio.sleep(10)
    assert world.renewer.released == [A]
    assert world.keys == [B]
    world.renewer.release_takes_s = 0
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)


@simulated
async def test_a_lease_that_is_being_released_is_not_begun_again():
    world = World()
    world.renewer.release_takes_s = 60
    world.renewer.gain(A, **HANDED_OVER)
    task = await world.working()
    world.renewer.gain(A)  # it came back meanwhile
    await asyncio.sleep(30)
    assert world.keys == []
    await asyncio.sleep(31)
    assert world.renewer.released == [A]
    world.renewer.gain(A)
    await asyncio.sleep(0.1)
    assert world.keys == [A]
    world.renewer.release_takes_s = 0
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)


@simulated
async def test_a_defect_in_a_release_costs_its_lease_alone(caplog):
    world = World()
    task = await world.working(B)
    world.renewer.defect = ZeroDivisionError("a defect")
    world.renewer.gain(A, **HANDED_OVER)
    await asyncio.sleep(1)
    (said,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert said.startswith(f"{A}: writing to its lease failed unexpectedly")
    assert world.keys == [B]
    world.renewer.defect = None
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)


# --- start


@simulated
async def test_a_start_that_fails_is_repeated_until_it_works():
    world = World()
    world.starts = [Throttled("Scan", "ThrottlingException"), None]
    world.syncs = [NotFound("ListShards", "ResourceNotFoundException")]
    assert world.scheduler.state == "starting"
    task = await world.working()
    assert world.scheduler.state == "starting"
    (condition,) = world.conditions.current()
    assert condition.reason is Reason.START_FAILS
    assert condition.message.startswith("attempt 1 of 20 to start failed: Scan")
    await asyncio.sleep(5)
    assert world.start_count == 3
    assert world.conditions.current() == ()
    assert world.scheduler.state == "running"
    assert world.metrics.values["Scheduler:Initialize", "Initialize.Success"] == [0, 0, 1]
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)
    assert world.scheduler.state == "stopped"


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (NotFound("ListShards", "ResourceNotFoundException"), ResourceMissing, "correct the name"),
        (NotFound("Scan", "ResourceNotFoundException"), ResourceMissing, "the lease table "),
        (ServiceError("Scan", "InternalServerError"), MldError, "after 3 attempts"),
    ],
)
def test_a_start_that_never_works_is_given_up(error, kind, words):
    @simulated
    async def main():
        world = World(attempts=3)
        world.starts = [error] * 9
        with pytest.raises(kind, match=words) as raised:
            await world.scheduler.run()
        assert raised.value.__cause__ is error
        assert raised.value.exit_code == (4 if kind is ResourceMissing else 1)
        assert world.start_count == 3
        assert asyncio.get_running_loop().time() == pytest.approx(4, abs=0.1)

    main()


def test_a_stream_that_does_not_exist_is_told_at_once_and_waited_for_shortly(caplog):
    @simulated
    async def main():
        world = World()
        why = "Stream orders under account 123456789012 not found."
        world.syncs = [NotFound("ListShards", "ResourceNotFoundException", why)] * 20
        task = await world.working()
        (told,) = caplog.records
        assert told.levelname == "WARNING"
        for part in (
            "the stream s does not exist in eu-west-1 at http://k (",
            why,
            "check streamName",
        ):
            assert part in told.getMessage()
        assert told.getMessage().endswith("; waiting 10 s for it")
        with pytest.raises(ResourceMissing, match="the stream s does not exist") as raised:
            await task
        assert raised.value.exit_code == 4
        assert world.start_count == 6
        assert asyncio.get_running_loop().time() == pytest.approx(10, abs=0.1)

    main()


@simulated
async def test_even_no_attempt_is_one():
    world = World(attempts=0)
    world.starts = [Throttled("Scan", "ThrottlingException")]
    with pytest.raises(MldError, match="after 1 attempts"):
        await world.scheduler.run()


@simulated
async def test_a_fleet_that_cannot_be_served_is_not_tried_again():
    world = World()
    world.starts = [UnservableFleet("3.x")]
    with pytest.raises(UnservableFleet):
        await world.scheduler.run()
    assert world.start_count == 1


@simulated
async def test_a_table_with_rows_of_another_stream_is_not_tried_again():
    world = World()
    world.syncs = [MixedTable("PutItem", "rows of another stream")]
    with pytest.raises(UnservableFleet, match="rows of another") as raised:
        await world.scheduler.run()
    assert raised.value.exit_code == 5
    assert str(raised.value) == "rows of another stream"
    assert world.start_count == 1


@pytest.mark.parametrize("how", ["stop", "stop_now"])
def test_a_stop_interrupts_the_start(how):
    @simulated
    async def main():
        world = World()
        world.start_takes_s = 1000
        task = await world.working()
        getattr(world.scheduler, how)()
        assert await task == StopOutcome(complete=True)
        assert asyncio.get_running_loop().time() < 1
        assert world.scheduler.state == "stopped"

    main()


@simulated
async def test_leases_that_named_us_are_released_when_the_start_is_stopped():
    world = World()
    world.syncs = [NotFound("ListShards", "ResourceNotFoundException")] * 20
    task = await world.working(A)
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)
    assert world.renewer.released == [A]
    assert world.made == []


# --- consumers


@simulated
async def test_every_held_lease_has_one_consumer():
    world = World()
    task = await world.working(B, A)
    assert world.keys == [A, B]
    await asyncio.sleep(10)
    assert len(world.made) == 2
    world.scheduler.stop()
    await task


@simulated
async def test_a_lost_lease_is_told_and_a_regained_one_gets_a_new_consumer():
    world = World()
    task = await world.working(A)
    world.renewer.lose(A)
    await asyncio.sleep(0.1)
    assert world.made[0].heard == ["lost"]
    assert world.keys == []
    world.renewer.gain(A)
    await asyncio.sleep(0.1)
    assert len(world.made) == 2
    # Lost and regained between two looks: the token tells.
    world.renewer.gain(A)
    await asyncio.sleep(0.1)
    assert world.made[1].heard == ["lost"]
    assert len(world.made) == 3
    world.scheduler.stop()
    await task


@simulated
async def test_a_consumer_that_gives_its_lease_up_lets_it_go():
    world = World()
    task = await world.working(A)
    world.made[0].end(ShutdownReason.LEASE_LOST)
    await asyncio.sleep(0.1)
    assert world.renewer.dropped == [A]
    assert world.keys == []
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)


@simulated
async def test_a_finished_shard_stays_held_without_a_consumer_and_wakes_those_that_wait_for_it():
    world = World()
    task = await world.working(A, B)
    world.made[0].end(ShutdownReason.SHARD_END)
    await asyncio.sleep(5)
    assert world.keys == [B]
    assert list(world.renewer.leases) == [A, B]
    assert world.made[1].heard == ["parents"]
    assert world.looks_for_leases == 1
    # Held anew, e.g. after it was lost, it is looked at again.
    world.renewer.gain(A)
    await asyncio.sleep(0.1)
    assert world.keys == [A, B]
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)


@simulated
async def test_a_shard_that_others_had_finished_wakes_nobody():
    world = World()
    task = await world.working(B)
    world.renewer.gain(A, checkpoint=SHARD_END)
    await asyncio.sleep(0.1)
    world.made[1].end(ShutdownReason.SHARD_END)
    await asyncio.sleep(0.1)
    assert world.keys == [B]
    assert world.looks_for_leases == 0
    assert world.made[0].heard == []
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)


@simulated
async def test_the_lease_of_a_finished_shard_is_released_at_the_stop():
    world = World()
    task = await world.working(A)
    world.made[0].end(ShutdownReason.SHARD_END)
    await asyncio.sleep(0.1)
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)
    assert world.renewer.released == [A]


@simulated
async def test_a_lease_that_cannot_be_read_is_given_up():
    world = World()
    world.refuses_consumers = LeaseLost(A, "its row has no checkpoint")
    task = await world.working(A)
    assert world.renewer.dropped == [A]
    world.refuses_consumers = None
    world.renewer.gain(B)
    await asyncio.sleep(0.1)
    assert world.keys == [B]
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)


@simulated
async def test_a_defect_in_starting_consumers_ends_the_worker_in_order():
    world = World()
    task = await world.working(A)
    world.refuses_consumers = ZeroDivisionError("a defect")
    world.renewer.gain(B)
    with pytest.raises(ZeroDivisionError):
        await task
    assert world.made[0].heard == ["stop"]
    assert sorted(world.renewer.released) == [A, B]


# --- stopping


@simulated
async def test_a_stop_asks_every_consumer_and_ends_when_all_are_done():
    world = World()
    task = await world.working(A, B)
    world.scheduler.stop()
    await asyncio.sleep(0)
    assert await task == StopOutcome(complete=True)
    assert not world.taking
    assert [one.heard for one in world.made] == [["stop"], ["stop"]]
    assert sorted(world.renewer.released) == [A, B]


@simulated
async def test_a_lease_whose_taking_was_under_way_is_released_too():
    world = World()
    task = await world.working(A)
    world.arrives_late = B
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)
    assert world.renewer.released == [A, B]


@simulated
async def test_no_consumer_is_started_while_the_worker_stops():
    world = World()
    world.consumers_obey = False
    task = await world.working(A)
    world.scheduler.stop()
    await asyncio.sleep(0.1)
    assert world.scheduler.state == "stopping"
    world.renewer.gain(B)
    await asyncio.sleep(5)
    assert world.keys == [A]
    world.made[0].end(ShutdownReason.REQUESTED)
    assert await task == StopOutcome(complete=True)
    assert sorted(world.renewer.released) == [A, B]


@simulated
async def test_a_grace_that_is_over_cuts_the_stop_short():
    world = World(grace_s=7.0)
    world.consumers_obey = False
    task = await world.working(A, B)
    world.scheduler.stop()
    world.made[1].end(ShutdownReason.REQUESTED)
    assert await task == StopOutcome(complete=False, leases_left=1)
    assert asyncio.get_running_loop().time() == pytest.approx(7.1, abs=0.1)
    assert world.made[0].was_cancelled
    assert world.renewer.released == [B]


@simulated
async def test_leases_that_cannot_be_released_in_time_are_counted():
    world = World(grace_s=3.0)
    world.renewer.release_takes_s = 1000
    task = await world.working(A)
    world.made[0].end(ShutdownReason.SHARD_END)
    await asyncio.sleep(0.1)
    world.scheduler.stop()
    assert await task == StopOutcome(complete=False, leases_left=1)


@simulated
async def test_a_lease_whose_release_failed_is_counted():
    world = World()
    task = await world.working(A)
    world.renewer.unreleased = 1
    world.scheduler.stop()
    assert await task == StopOutcome(complete=False, leases_left=1)


@simulated
async def test_without_a_grace_nobody_is_asked():
    world = World(grace_s=0.0)
    task = await world.working(A)
    world.scheduler.stop()
    assert await task == StopOutcome(complete=False, leases_left=1)
    assert world.made[0].heard == []
    assert world.made[0].was_cancelled


@simulated
async def test_without_a_grace_and_without_leases_the_stop_is_complete():
    world = World(grace_s=0.0)
    task = await world.working()
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)


@simulated
async def test_stop_now_cuts_the_stop_short():
    world = World(grace_s=1000.0)
    world.consumers_obey = False
    task = await world.working(A)
    world.scheduler.stop()
    await asyncio.sleep(1)
    world.scheduler.stop_now()
    assert await task == StopOutcome(complete=False, leases_left=1)
    assert world.made[0].was_cancelled
    assert world.renewer.released == []


@simulated
async def test_stop_now_waits_for_no_release():
    world = World(grace_s=1000.0)
    world.renewer.release_takes_s = 500
    task = await world.working(A)
    world.made[0].end(ShutdownReason.SHARD_END)
    await asyncio.sleep(0.1)
    world.scheduler.stop()
    await asyncio.sleep(1)
    world.scheduler.stop_now()
    world.scheduler.stop_now()
    assert await task == StopOutcome(complete=False, leases_left=1)
    assert asyncio.get_running_loop().time() < 2


@simulated
async def test_stop_now_alone_asks_nobody():
    world = World()
    task = await world.working(A)
    world.scheduler.stop_now()
    assert await task == StopOutcome(complete=False, leases_left=1)
    assert world.made[0].heard == []


@simulated
async def test_stop_now_ends_consumers_that_have_not_begun():
    world = World()
    task = await world.working()
    # The consumer is made at the next step of the loop, and begins at the one after it.
    world.renewer.gain(A)
    while not world.made:  # noqa: ASYNC110
        await asyncio.sleep(0)
    world.scheduler.stop_now()
    assert await task == StopOutcome(complete=False, leases_left=1)
    assert world.keys == []


@simulated
async def test_a_cancelled_scheduler_leaves_nothing_behind():
    world = World()
    task = await world.working(A)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.made[0].was_cancelled
    assert asyncio.all_tasks() == {asyncio.current_task()}


# --- failures


@simulated
async def test_a_failed_child_ends_the_worker_after_the_others_were_drained(caplog):
    world = World()
    task = await world.working(A, B)
    world.made[0].ends.set_exception(ChildFailed(A, "processRecords", "it ended", 7))
    with pytest.raises(ChildFailed, match="exit status 7"):
        await task
    assert world.made[1].heard == ["stop"]
    assert sorted(world.renewer.released) == [A, B]
    assert world.scheduler.state == "stopped"
    # Why it failed is said by its consumer, once.
    said = [each for each in caplog.records if "child" in each.message]
    assert [(each.levelname, each.message) for each in said] == [
        ("WARNING", f"{A}: its child failed, so the worker stops")
    ]


@simulated
async def test_the_first_failure_is_the_one_that_is_told():
    world = World()
    world.consumers_obey = False
    task = await world.working(A, B)
    world.made[0].ends.set_exception(ChildFailed(A, "processRecords", "first"))
    await asyncio.sleep(1)
    world.made[1].ends.set_exception(ChildFailed(B, "processRecords", "second"))
    with pytest.raises(ChildFailed, match="first"):
        await task


@simulated
async def test_a_worker_that_stops_by_itself_says_why_and_at_which_lease():
    world = World()
    task = await world.working(A, B)
    error = ChildFailed(A, "processRecords", "it ended")
    world.made[0].ends.set_exception(error)
    with pytest.raises(ChildFailed):
        await task
    assert world.failed == (error, A)


@simulated
async def test_a_child_that_fails_while_the_worker_is_asked_to_stop_is_no_failure_of_its_life():
    world = World()
    world.consumers_obey = False
    task = await world.working(A, B)
    world.scheduler.stop()
    world.made[0].ends.set_exception(ChildFailed(A, "shutdownRequested", "it ended"))
    world.made[1].ends.set_result(ShutdownReason.REQUESTED)
    with pytest.raises(ChildFailed):
        await task
    assert world.failed[0] is None


@simulated
async def test_a_defect_in_a_consumer_ends_the_worker_in_order():
    world = World()
    task = await world.working(A, B)
    world.made[0].ends.set_exception(ZeroDivisionError("a defect"))
    with pytest.raises(ZeroDivisionError, match="a defect"):
        await task
    assert world.made[1].heard == ["stop"]


@pytest.mark.parametrize(
    ("error", "level"), [(UnservableFleet("3.x"), "ERROR"), (KeyError("a defect"), "ERROR")]
)
@pytest.mark.parametrize("loop", ["coordinator", "syncer", "extra"])
def test_a_loop_that_fails_drains_the_worker(loop, error, level, caplog):
    @simulated
    async def main():
        async def fail():
            await asyncio.sleep(3)
            raise error

        world = World(**{loop: fail})
        task = await world.working(A)
        with pytest.raises(type(error)):
            await task
        assert world.made[0].heard == ["stop"]
        assert world.renewer.released == [A]

    with caplog.at_level(logging.ERROR):
        main()
    assert any("The worker stops" in record.message for record in caplog.records)
    assert {record.levelname for record in caplog.records} == {level}
    is_defect = isinstance(error, KeyError)
    assert bool(caplog.records[0].exc_info) is is_defect


@simulated
async def test_a_failure_while_the_stop_is_on_is_told_too():
    async def fail():
        await asyncio.sleep(3)
        raise UnservableFleet("3.x")

    world = World(extra=fail)
    world.consumers_obey = False
    task = await world.working(A)
    world.scheduler.stop()
    await asyncio.sleep(5)
    world.made[0].end(ShutdownReason.REQUESTED)
    with pytest.raises(UnservableFleet):
        await task


# --- hand-over


@simulated
async def test_a_consumer_is_asked_to_hand_over_and_a_lease_without_one_is_handed_over():
    world = World()
    task = await world.working(A)
    world.renewer.leases[A] = replace(
        world.renewer.leases[A],
        lease=replace(world.renewer.leases[A].lease, lease_owner="next", checkpoint_owner="me"),
    )
    world.renewer.gain(B, lease_owner="next", checkpoint_owner="me")
    await asyncio.sleep(0.1)
    assert world.renewer.released == [B]
    assert world.keys == [A]
    assert "hand over" in world.made[0].heard
    world.scheduler.stop()
    await task


@simulated
async def test_a_lease_that_was_regained_is_handed_over_when_its_old_consumer_has_ended():
    world = World()
    task = await world.working(A)
    world.renewer.gain(A, lease_owner="next", checkpoint_owner="me")  # under another token
    await asyncio.sleep(0)
    assert world.renewer.released == []
    await asyncio.sleep(0.1)
    assert world.made[0].heard == ["lost"]
    assert world.renewer.released == [A]
    assert len(world.made) == 1
    world.scheduler.stop()
    await task


@simulated
async def test_a_worker_that_stops_reads_on_until_the_next_owners_can_know_it():
    world = World()
    task = await world.working(A, B)
    world.successors = frozenset({A})
    began_at = asyncio.get_running_loop().time()
    world.scheduler.stop()
    await asyncio.sleep(4)
    assert [one.heard for one in world.made] == [[], []]
    assert await task == StopOutcome(complete=True)
    assert asyncio.get_running_loop().time() - began_at == pytest.approx(6.7, abs=0.2)
    assert [one.heard[:1] for one in world.made] == [["hand over"], ["stop"]]
    assert world.last_looks == 1


@simulated
async def test_a_table_too_slow_to_name_next_owners_leaves_the_children_their_time(caplog):
    world = World()
    task = await world.working(A)
    world.successors, world.naming_takes_s = frozenset({A}), 60.0
    world.scheduler.stop()
    assert await task == StopOutcome(complete=True)
    assert world.made[0].heard == ["stop"]
    assert "too slow to name the next owners" in caplog.text


@pytest.mark.parametrize("when_s", [0.5, 3.0])
def test_a_second_signal_does_not_wait_for_next_owners(when_s):
    @simulated
    async def main():
        world = World()
        task = await world.working(A)
        world.successors, world.naming_takes_s = frozenset({A}), 1.0
        world.scheduler.stop()
        await asyncio.sleep(when_s)
        world.scheduler.stop_now()
        assert not (await task).complete
        assert asyncio.get_running_loop().time() < when_s + 1

    main()
