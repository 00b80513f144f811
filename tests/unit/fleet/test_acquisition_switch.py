"""Changing how leases come while the worker runs."""

import asyncio

import pytest

from kcl_mld.fleet.fleet_member import AcquisitionSwitch
from kcl_mld.fleet.rules.client_version import Mode
from tests.fakes.lease_world import World, lease
from tests.sim.loop import run


class Told:
    """A strategy that says what it hears; it ends when stopped."""

    def __init__(self, name, heard, fails=False):
        self._name = name
        self._heard = heard
        self._fails = fails
        self._stopped = asyncio.Event()

    def _hears(self, what):
        self._heard.append(f"{self._name} {what}")

    async def run(self):
        self._hears("runs")
        if self._fails:
            raise ValueError("no table")
        await self._stopped.wait()
        await asyncio.sleep(3)
        self._hears("ends")

    def wake(self):
        self._hears("is woken")

    def stop(self):
        self._hears("stops")
        self._stopped.set()

    async def settled(self):
        await asyncio.sleep(1)
        self._hears("has settled")


def switching(heard, **how):
    return AcquisitionSwitch(
        {
            Mode.TAKES: lambda: Told("taker", heard, **how),
            Mode.ASSIGNED: lambda: Told("discoverer", heard),
        },
        Mode.TAKES,
    )


def test_the_next_strategy_begins_when_the_last_one_has_settled():
    async def main():
        heard = []
        switch = switching(heard)
        task = asyncio.create_task(switch.run())
        await asyncio.sleep(1)
        switch.use(Mode.TAKES)
        switch.wake()
        switch.use(Mode.ASSIGNED)
        assert switch.mode is Mode.ASSIGNED
        await asyncio.sleep(5)
        switch.wake()
        switch.use(Mode.TAKES)
        await asyncio.sleep(5)
        switch.stop()
        switch.use(Mode.ASSIGNED)
        await switch.settled()
        await task
        return heard

    assert run(main()) == [
        "taker runs",
        "taker is woken",
        "taker stops",
        "taker has settled",
        "discoverer runs",
        "discoverer is woken",
        "discoverer stops",
        "discoverer has settled",
        "taker runs",
        "taker stops",
        "taker has settled",
        "taker has settled",
    ]


def test_a_strategy_that_was_changed_before_it_ran_never_runs():
    async def main():
        heard = []
        switch = switching(heard)
        switch.use(Mode.ASSIGNED)
        task = asyncio.create_task(switch.run())
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return heard

    assert run(main()) == ["taker stops", "discoverer runs"]


def test_a_strategy_that_fails_ends_the_worker():
    async def main():
        with pytest.raises(ValueError, match="no table"):
            await switching([], fails=True).run()

    run(main())


def test_what_is_held_stays_held_and_a_take_under_way_is_undone():
    async def main():
        world = World()
        me = world.worker("me")
        await me.start()
        world.put(lease(0))
        takers = []

        def taker():
            takers.append(world.worker("me").taker if takers else me.taker)
            return takers[-1]

        heard = []
        switch = AcquisitionSwitch(
            {Mode.TAKES: taker, Mode.ASSIGNED: lambda: Told("discoverer", heard)}, Mode.TAKES
        )
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(me.renewer.heartbeat.run())
            switching = group.create_task(switch.run())
            await asyncio.sleep(1)
            world.put(lease(1))
            world.fault("slow answer", seconds=2, worker="me")
            switch.wake()
            await asyncio.sleep(1)
            switch.use(Mode.ASSIGNED)
            await asyncio.sleep(60)
            assert heard == ["discoverer runs"]
            assert [held.lease.lease_key for held in me.renewer.held()] == [lease(0).lease_key]
            renewing.cancel()
            switching.cancel()
        return world.owners()

    assert run(main()) == {lease(0).lease_key: "me", lease(1).lease_key: None}
