"""What a worker does as one of its fleet, generation by generation."""

import asyncio
from types import SimpleNamespace

import pytest

from kcl_mld.config.fleet import ClientVersionConfig, FleetConfig
from kcl_mld.errors import ConfigError
from kcl_mld.fleet.fleet_member import AcquisitionSwitch, FleetMember, FleetServices
from kcl_mld.fleet.fleet_state import CREATION_PAUSE_S
from kcl_mld.fleet.fleet_upgrade import (
    INDEX_LOOK_S,
    INDEX_PATIENCE,
    IndexKeeper,
    MigrationReadyMonitor,
)
from kcl_mld.fleet.model.state_history import ClientVersion
from kcl_mld.fleet.rules.client_version import READY_S, Mode
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld.leases.rules.discovery import Informed
from tests.fakes.fleet_items import migration
from tests.fakes.lease_world import lease, on_table_with
from tests.fakes.reporting import reporter_with


class Leading:
    """Leads, or not, as it is told; notes what it hears."""

    informed = Informed.NO
    is_suspect = False

    def __init__(self, heard, leads=True):
        self._heard = heard
        self.leads = leads
        self.calls = 0
        self.suspected = Wakeup()

    def call_leader(self):
        self.calls += 1

    async def call(self):
        self.calls += 1

    async def is_leader(self):
        return self.leads

    async def release(self):
        self._heard.append("release")

    async def run(self):
        self._heard.append("lock runs")
        try:
            await asyncio.Event().wait()
        finally:
            self._heard.append("lock is given up")


class Assigning:
    """What the leader does."""

    def __init__(self, heard):
        self._heard = heard
        self.fails = asyncio.Event()
        self.ends = asyncio.Event()

    async def run(self, leadership):
        assert await leadership.is_leader()
        self._heard.append("assigns")
        await self.fails.wait()
        if not self.ends.is_set():
            raise ConfigError("cannot assign")

    def wake(self):
        self._heard.append("is woken")

    async def start_hand_offs(self):
        self._heard.append(("names", self.world.row("me")))
        return frozenset({"named"})

    def observe(self, scan):
        """Nobody looks here."""


class Getting:
    """A way to get leases."""

    def __init__(self, name, heard):
        self._name, self._heard = name, heard

    async def run(self):
        await asyncio.Event().wait()

    def wake(self):
        """Nobody asks."""

    def stop(self):
        self._heard.append(f"{self._name} stops")

    async def settled(self):
        """Nothing is under way."""


class Member:
    """One worker's part in a fleet on a table."""

    def __init__(self, world, client_version=ClientVersionConfig.UNSAID):
        self.world = world
        self.heard = []
        self.items = world.fleet_items("me")
        config = FleetConfig(client_version=client_version)
        self.state = world.fleet_state("me", config=config, items=self.items)
        self.store = world.store()
        self.elected = Leading(self.heard)
        self.assigner = Assigning(self.heard)
        self.assigner.world = world
        runtime = world.runtime("me")
        reporter = reporter_with(self.items, config, "me", runtime)
        ready = MigrationReadyMonitor(
            self.state, self.items, self.store, self.elected.is_leader, world.clock
        )
        index = IndexKeeper(self.store, self.elected, self.elected, self.state)
        self.services = FleetServices(
            lock=Leading(self.heard),
            assigner=self.assigner,
            process=world.own_process("me", self.items),
            twins=SimpleNamespace(may_have_twin=True),
            reporting=(reporter.run, index.run),
            upgrading=(ready.run,),
            assigning=(),
        )
        switch = AcquisitionSwitch(
            {
                Mode.TAKES: lambda: Getting("taker", self.heard),
                Mode.ASSIGNED: lambda: Getting("discoverer", self.heard),
            },
            Mode.TAKES,
        )
        self.switch = switch
        self.times_made = 0
        self.member = FleetMember(
            self.state, switch, self.elected, self.make_services, lambda _mode: None
        )

    def make_services(self):
        self.times_made += 1
        return self.services

    def has_index(self):
        table = self.world.model.call("DescribeTable", {"TableName": "app"})["Table"]
        return bool(table.get("GlobalSecondaryIndexes"))


on_table = on_table_with()


async def stop(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_services_of_a_new_fleet_are_made_while_its_item_waits():
    async def test(world):
        me = Member(world)
        joining = asyncio.create_task(me.state.join(me.member.prepare, is_new=True))
        await asyncio.sleep(CREATION_PAUSE_S[0])
        assert world.row("Migration3.0") == {}
        assert me.times_made == 1
        await joining
        assert world.row("Migration3.0") != {}
        me.member.follow()
        assert me.member.leadership is me.services.lock
        assert me.times_made == 1

    on_table(test)


def test_one_of_a_new_fleet_reports_leads_assigns_and_has_the_index_created():
    async def test(world):
        me = Member(world)
        await me.state.join(me.member.prepare, is_new=True)
        task = asyncio.create_task(me.member.run())
        await asyncio.sleep(1)
        assert me.switch.mode is Mode.ASSIGNED
        assert me.member.leadership is me.services.lock
        assert world.row("me") != {}
        assert me.has_index()
        me.member.wake()
        assert me.heard == ["taker stops", "lock runs", "assigns", "is woken"]
        assert me.services.lock.calls == 1
        me.member.leave()
        await asyncio.sleep(1)
        assert me.heard[-1] == "lock is given up"
        assert world.row("me") == {}
        assert me.times_made == 1
        assert not task.done()
        await stop(task)

    on_table(test)


def test_the_metrics_of_a_worker_that_stops_are_gone_before_it_names_next_owners():
    """Of two workers that stopped at once each named the other one."""

    async def test(world):
        me = Member(world)
        assert await me.member.start_hand_offs() == frozenset()  # nothing has run yet
        assert not me.member.may_have_twin
        await me.state.join(me.member.prepare, is_new=True)
        task = asyncio.create_task(me.member.run())
        await asyncio.sleep(1)
        world.fault("slow", "DeleteItem", seconds=3)
        me.member.leave()
        assert await me.member.start_hand_offs() == {"named"}
        assert me.member.may_have_twin
        assert me.heard[-1] == ("names", {})
        await stop(task)

    on_table(test)


def test_one_of_a_2x_fleet_does_nothing_of_it():
    async def test(world):
        me = Member(world)
        await me.state.join(me.member.prepare, is_new=False)
        task = asyncio.create_task(me.member.run())
        await asyncio.sleep(100)
        assert me.heard == []
        assert me.member.leadership is me.elected
        assert world.row("me") == {}
        assert not me.has_index()
        assert me.times_made == 0
        await stop(task)

    on_table(test, lease(lease_owner="me"))


def test_a_rollback_gives_the_lead_up_and_takes_leases_again_and_a_rollforward_reports_again():
    async def test(world):
        world.put_item(migration(ClientVersion.CLIENT_VERSION_3X_WITH_ROLLBACK))
        me = Member(world)
        await me.state.join(me.member.prepare, is_new=False)
        getting = asyncio.create_task(me.switch.run())
        task = asyncio.create_task(me.member.run())
        await asyncio.sleep(1)
        world.put_item(migration(ClientVersion.CLIENT_VERSION_2X))
        await me.state.look()
        await asyncio.sleep(1)
        assert me.heard == [
            "taker stops",
            "lock runs",
            "assigns",
            "lock is given up",
            "discoverer stops",
        ]
        assert me.switch.mode is Mode.TAKES
        assert world.row("me") == {}
        world.put_item(migration(ClientVersion.CLIENT_VERSION_UPGRADE_FROM_2X))
        await me.state.look()
        await asyncio.sleep(1)
        assert world.row("me") != {}
        assert me.switch.mode is Mode.TAKES
        await stop(task)
        await stop(getting)

    on_table(test, lease(lease_owner="me"))


@pytest.mark.parametrize("fails", [True, False])
def test_nobody_leads_who_does_not_assign(fails):
    async def test(world):
        me = Member(world)
        await me.state.join(me.member.prepare, is_new=True)
        if not fails:
            me.assigner.ends.set()
        task = asyncio.create_task(me.member.run())
        await asyncio.sleep(1)
        me.assigner.fails.set()
        with pytest.raises(ConfigError if fails else RuntimeError):
            await task
        assert me.heard[-1] == "lock is given up"
        assert world.row("me") == {}

    on_table(test)


def test_a_leader_says_that_a_fleet_is_ready_also_when_it_was_from_the_first_look(caplog):
    caplog.set_level("INFO")

    async def test(world):
        me = Member(world, client_version=ClientVersionConfig.UPGRADE)
        await me.state.join(me.member.prepare, is_new=False)
        task = asyncio.create_task(me.member.run())
        await asyncio.sleep(300)
        assert (
            caplog.messages.count("The fleet is ready for KCL 3.x; it switches in ten minutes") == 1
        )
        await stop(task)

    on_table(test, lease(0, lease_owner="me"))


def test_a_fleet_is_flipped_ten_minutes_after_every_owner_reports(caplog):
    caplog.set_level("INFO")

    async def test(world):
        me = Member(world, client_version=ClientVersionConfig.UPGRADE)
        await me.state.join(me.member.prepare, is_new=False)
        task = asyncio.create_task(me.member.run())
        await asyncio.sleep(600)
        assert "worker other writes no metrics (1 of 2 don't)" in caplog.text
        world.fault("refuse", "Scan")
        world.change("shardId-000000000001", leaseOwner="me")
        await asyncio.sleep(READY_S)
        assert me.state.version is ClientVersion.CLIENT_VERSION_UPGRADE_FROM_2X
        me.elected.leads = False
        await asyncio.sleep(120)
        me.elected.leads = True
        await asyncio.sleep(READY_S)
        assert me.state.version is ClientVersion.CLIENT_VERSION_UPGRADE_FROM_2X
        await asyncio.sleep(125)
        assert me.state.version is ClientVersion.CLIENT_VERSION_3X_WITH_ROLLBACK
        assert me.switch.mode is Mode.ASSIGNED
        assert me.heard[-2:] == ["lock runs", "assigns"]
        await stop(task)

    on_table(
        test,
        lease(0, lease_owner="me"),
        lease(1, lease_owner="other"),
        lease(2, checkpoint=SHARD_END),
    )


def test_who_did_not_begin_the_generation_creates_the_index_only_as_a_patient_leader(caplog):
    async def test(world):
        leading = Leading([], leads=False)
        keeper = IndexKeeper(world.store(), leading, leading, world.fleet_state("me"))
        world.fault("throttle", "DescribeTable", times=1)
        task = asyncio.create_task(keeper.run())
        await asyncio.sleep(INDEX_LOOK_S * (INDEX_PATIENCE + 1))
        table = world.model.call("DescribeTable", {"TableName": "app"})["Table"]
        assert not table.get("GlobalSecondaryIndexes")
        leading.leads = True
        await asyncio.sleep(INDEX_LOOK_S * 2)
        table = world.model.call("DescribeTable", {"TableName": "app"})["Table"]
        assert table["GlobalSecondaryIndexes"]
        await asyncio.sleep(INDEX_LOOK_S * 4)
        asked = len(world.requests)
        await asyncio.sleep(INDEX_LOOK_S * 4)
        assert len(world.requests) == asked
        await stop(task)

    on_table(test)
    assert sum("index of leases by owner" in line for line in caplog.messages) == 1
