"""The lease services together."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from kcl_mld.config.config import AwsConfig, ChildConfig, Config, LeaseConfig, StreamConfig
from kcl_mld.config.credentials import CredentialChain
from kcl_mld.config.fleet import ClientVersionConfig, FleetConfig
from kcl_mld.config.stream import Stream
from kcl_mld.errors import Denied, ResourceMissing, Throttled
from kcl_mld.fleet.fleet_member import AcquisitionSwitch, FleetMember
from kcl_mld.fleet.lease_coordinator import (
    LAST_LOOK_PAUSE_S,
    LAST_LOOKS,
    LeaseCoordinator,
)
from kcl_mld.fleet.lease_wiring import LeaseWiring
from kcl_mld.fleet.rules.client_version import Mode
from kcl_mld.leases.lease_taker import LeaseTaker
from kcl_mld.leases.model.reading import RowNotes
from kcl_mld.signals.model.conditions import Conditions
from kcl_mld.signals.ports import AllMetrics
from kcl_mld.signals.runtime import Runtime
from kcl_mld.streams.existence_watch import GIVE_UP_S, WANTED_S
from kcl_mld.streams.identified_stream import IdentifiedStream
from tests.fakes.clock import CountingIds
from tests.fakes.lease_world import TABLE, World, every, lease
from tests.sim.loop import run
from tests.unit.children.consumer_world import Inline


@pytest.mark.parametrize(
    ("client_version", "mode"),
    [(ClientVersionConfig.UNSAID, Mode.ASSIGNED), (ClientVersionConfig.STAY_2X, Mode.TAKES)],
)
def test_a_worker_is_wired_from_its_configuration(client_version, mode):
    async def main():
        world = World()
        config = Config(
            application_name=TABLE,
            worker_id="me",
            stream=StreamConfig(name="s"),
            aws=AwsConfig(kinesis_credentials=CredentialChain(())),
            leases=LeaseConfig(table_name=TABLE),
            child=ChildConfig(argv=("x",)),
            fleet=FleetConfig(client_version=client_version),
        )
        me = LeaseWiring(
            world.dynamodb("me"),
            config,
            Runtime(
                clock=world.clock,
                rng=random.Random(1),
                ids=CountingIds(),
                metrics=AllMetrics(()),
                offload=Inline(),
            ),
            Conditions(),
            stream=IdentifiedStream(Stream("s")),
            find_notes=lambda _lease: RowNotes(),
            is_read=every,
            find_load=None,
            find_worst_lag=lambda: None,
        ).coordinator()
        assert await me.start()
        assert not await me.start()
        world.put(lease())
        assert me.acquisition.mode is mode
        if mode is Mode.ASSIGNED:
            return
        taker = me.acquisition.current
        assert isinstance(taker, LeaseTaker)
        await taker.take_once()
        assert world.owners() == {lease().lease_key: "me"}
        assert await me.elector.is_leader()

    run(main())


class Assigned:
    """A worker that is told which leases it has."""

    def __init__(self, renewer, store):
        self._renewer = renewer
        self._store = store
        self.heard = []

    async def run(self):
        self.heard.append("run")
        for row in (await self._store.scan()).leases:
            self._renewer.hold(await self._store.take(row, "me"), 0.0)
        await asyncio.Event().wait()

    def wake(self):
        self.heard.append("wake")

    def stop(self):
        self.heard.append("stop")

    async def settled(self):
        self.heard.append("settled")


def test_how_a_worker_gets_its_leases_is_given_to_it():
    async def main():
        world = World()
        taking = world.worker("me")
        assigned = Assigned(taking.renewer, taking.store)
        switch = AcquisitionSwitch({Mode.TAKES: lambda: assigned}, Mode.TAKES)
        me = LeaseCoordinator(
            taking.store,
            taking.renewer,
            switch,
            taking.elector,
            taking.fleet,
            taking.table_watch,
            FleetMember(world.fleet_state("me"), switch, taking.elector, None, lambda _mode: None),
        )
        await me.start()
        world.put(lease())
        async with asyncio.TaskGroup() as group:
            task = group.create_task(me.run())
            await asyncio.sleep(60)
            assert [held.lease.lease_key for held in me.renewer.held()] == [lease().lease_key]
            me.leases_created()
            me.stop_taking()
            await me.settled()
            task.cancel()
        assert list(dict.fromkeys(assigned.heard)) == ["run", "wake", "stop", "settled"]

    run(main())


def test_a_worker_that_replaces_a_gracefully_stopped_one_holds_everything_within_a_second():
    async def main():
        world = World()
        old = world.worker("old")
        await old.start()
        world.put(*(lease(n) for n in range(4)))
        await old.taker.take_once()
        old.stop_taking()
        for held in old.renewer.held():
            assert await old.renewer.release(held.lease.lease_key, held.token)
        began_at = world.clock.monotonic()
        new = world.worker("new")
        await new.start()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(new.run())
            while len(new.renewer.held()) < 4:
                await new.renewer.changed.wait(5)
            task.cancel()
        assert world.clock.monotonic() - began_at < 1
        assert set(world.owners().values()) == {"new"}

    run(main())


def test_a_worker_restarted_with_its_old_id_goes_on_at_once():
    async def main():
        world = World()
        first = world.worker("me")
        await first.start()
        world.put(*(lease(n) for n in range(3)))
        await first.taker.take_once()
        again = world.worker("me", seed=2)
        await again.start()
        assert len(again.renewer.held()) == 3

    run(main())


def test_a_draining_worker_keeps_its_leases_alive_and_takes_no_more():
    async def main():
        world = World()
        me = world.worker("me")
        await me.start()
        world.put(lease(0))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(me.run())
            await asyncio.sleep(1)
            me.stop_taking()
            world.put(lease(1))
            await asyncio.sleep(60)
            assert [held.lease.lease_key for held in me.renewer.held()] == [lease(0).lease_key]
            task.cancel()
        assert world.owners()[lease(1).lease_key] is None

    run(main())


@pytest.mark.untraced
def test_of_three_workers_no_two_ever_believe_in_the_same_lease_outside_a_steal():
    """Random outages of one worker at a time; a lease never has two believers who both renew."""

    async def main():
        world = World()
        workers = [world.worker(name) for name in ("a", "b", "c")]
        await workers[0].start()
        world.put(*(lease(n) for n in range(9)))
        rng = random.Random(7)
        overlaps: dict[str, float] = {}
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker.run()) for worker in workers]
            for _ in range(3000):
                await asyncio.sleep(0.5)
                if rng.random() < 0.01:
                    world.faults.clear()
                    kind = rng.choice(("throttle", "refuse", "lose answer", "lose request"))
                    world.fault(kind, "*", times=10**9, worker=rng.choice("abc"))
                elif rng.random() < 0.02:
                    world.faults.clear()
                believers: dict[str, int] = {}
                for worker in workers:
                    for held in worker.renewer.held():
                        key = held.lease.lease_key
                        believers[key] = believers.get(key, 0) + 1
                now = world.clock.monotonic()
                overlaps = {
                    key: overlaps.get(key, now) for key, count in believers.items() if count > 1
                }
                # A stolen lease is believed by its victim until the victim's next renewal, or to
                # the end of its belief when the victim can't reach the table.
                assert all(now - since <= 10.0 for since in overlaps.values())
            world.faults.clear()
            await asyncio.sleep(2 * 20.05 + 3.308)
            held_by = [len(worker.renewer.held()) for worker in workers]
            for task in tasks:
                task.cancel()
        assert sum(held_by) == 9
        assert min(held_by) >= 1

    run(main())


@pytest.mark.parametrize("comes_back", [False, True])
def test_without_the_table_nothing_is_held_and_the_worker_ends(caplog, *, comes_back):
    async def main():
        world = World()
        me = world.worker("me")
        await me.start()
        world.put(*(lease(number) for number in range(3)))
        async with asyncio.TaskGroup() as group:
            working = group.create_task(me.run())
            await asyncio.sleep(30)
            assert len(me.renewer.held()) == 3
            lost_at = []
            world.delete_table()
            if comes_back:
                world.create_table()
            watching = group.create_task(_ends(me))
            while me.renewer.held():
                await me.renewer.changed.wait()
            lost_at.append(world.clock.monotonic() - 30)
            (condition,) = world.conditions.current() or (None,)
            says = await watching
            took_s = world.clock.monotonic() - 30
            working.cancel()
        assert lost_at[0] < world.config.renewal_interval_s + 1
        assert condition is None or condition.reason == "table_deleted"
        (condition,) = world.conditions.current()
        assert condition.message == says
        assert ("created again" in says) is comes_back
        assert took_s < GIVE_UP_S + 2 * WANTED_S

    run(main())
    errors = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    # What its leases had checkpointed is said of each, as for any row that is deleted.
    of_rows = [error for error in errors if error.startswith("The row of lease ")]
    assert len(of_rows) <= 3
    assert len(errors) - len(of_rows) <= 4
    assert all("exit code 4" in error for error in errors if error not in of_rows)


def test_a_new_table_that_others_have_filled_is_noticed_by_its_counters():
    async def main():
        world = World()
        world.create_table()
        world.put(lease(0), lease(1))
        me = world.worker("me")
        await me.start()
        async with asyncio.TaskGroup() as group:
            working = group.create_task(me.run())
            watching = group.create_task(_ends(me))
            await asyncio.sleep(30)
            assert len(me.renewer.held()) == 2
            world.delete_table()
            world.create_table()
            world.put(lease(0), lease(1))
            await asyncio.sleep(world.config.failover_s)
            (condition,) = world.conditions.current()
            assert "created again" in condition.message
            assert await watching == condition.message
            working.cancel()

    run(main())


async def _ends(me):
    with pytest.raises(ResourceMissing) as caught:
        await me.table_watch.run()
    return str(caught.value)


def test_in_a_table_that_was_created_again_nobody_creates_leases():
    async def main():
        world = World()
        me = world.worker("me")
        await me.start()
        assert await me.is_leader()
        world.delete_table()
        world.create_table()
        with pytest.raises(ResourceMissing, match="created again"):
            await me.is_leader()

    run(main())


def test_a_worker_that_does_not_lead_asks_for_no_table():
    async def main():
        world = World()
        world.create_table()
        world.put(lease(lease_owner="other"))
        me = world.worker("me")
        await me.start()
        asked = len(world.requests)
        assert not await me.is_leader()
        assert "DescribeTable" not in [one[1] for one in world.requests[asked:]]

    run(main())


class Looking:
    """A renewer whose looks find what they are told."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def release_left(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def coordinator(renewer, *, is_assigned=True, may_have_twin=False):
    member = SimpleNamespace(is_assigned=is_assigned, may_have_twin=may_have_twin)
    return LeaseCoordinator(None, renewer, None, None, None, None, member)


@pytest.mark.parametrize(
    ("answers", "looks"),
    [
        ((False,), 1),
        ((True, True, False), 3),
        ((Throttled("Scan", "x"), True, False), 3),
        ((Denied("Scan", "x"),), 1),
    ],
)
def test_a_worker_that_stops_looks_until_nobody_hands_it_leases(answers, looks):
    async def main():
        began_s = asyncio.get_running_loop().time()
        renewer = Looking(*answers)
        await coordinator(renewer).last_look()
        assert renewer.answers == list(answers[-1:])
        took_s = asyncio.get_running_loop().time() - began_s
        assert took_s == pytest.approx((looks - 1) * LAST_LOOK_PAUSE_S, abs=0.01)

    run(main())


def test_a_worker_that_stops_does_not_wait_long_for_leases():
    async def main():
        began_s = asyncio.get_running_loop().time()
        await coordinator(Looking(True)).last_look()
        took_s = asyncio.get_running_loop().time() - began_s
        assert took_s == pytest.approx((LAST_LOOKS - 1) * LAST_LOOK_PAUSE_S, abs=0.01)

    run(main())


def test_in_a_2x_fleet_nobody_gives_leases_to_a_worker():
    run(coordinator(None, is_assigned=False).last_look())


def test_leases_of_another_process_with_the_same_id_are_left_to_it():
    run(coordinator(None, may_have_twin=True).last_look())
