"""A process beside another one with its worker's id: what it gives up, and when it goes on."""

import asyncio

import pytest

from kcl_mld.config.fleet import FleetConfig
from kcl_mld.fleet.model.worker_life import Instance
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics, metrics_to_item
from kcl_mld.fleet.own_process import OwnProcess
from kcl_mld.fleet.twin_watch import TwinWatch
from kcl_mld.signals.model.conditions import Conditions, Reason
from tests.fakes.lease_world import lease, on_table_with
from tests.fakes.reporting import reporter_with

KEY = lease().lease_key
ELDER = Instance("elder", 0)
LATER = Instance("later", 2**40)


class Twin:
    """This process, on a table that another one writes to."""

    def __init__(self, world):
        self.world = world
        self.items = world.fleet_items("me")
        self.renewer = world.worker("me").renewer
        self.conditions = Conditions()
        runtime = world.runtime("me")
        process = OwnProcess(self.items, "me", world.clock, runtime.ids, lambda: True)
        self.instance = process.instance
        self.watch = TwinWatch(
            self.items, "me", self.instance, 60.0, world.clock, self.renewer, self.conditions
        )
        self.reporter = reporter_with(
            self.items, FleetConfig(), "me", runtime, process=process, twins=self.watch
        )

    def other_reports(self, instance, at_s):
        metrics = WorkerMetrics("me", at_s, instance=instance)
        self.world.put_item(metrics_to_item(metrics, "leaseKey"))

    def reasons(self):
        return [one.reason for one in self.conditions.current()]


on_table = on_table_with(Twin)


def test_beside_an_older_process_nothing_is_held_or_reported_until_it_is_gone(caplog):
    async def test(world, twin):
        await twin.renewer.adopt_own()
        await twin.reporter.report_once()
        assert twin.renewer.get(KEY) is not None
        twin.other_reports(ELDER, 5)
        before = world.row(KEY)
        await twin.reporter.report_once()
        assert twin.watch.stands_aside
        assert twin.watch.may_have_twin
        assert twin.renewer.held() == ()
        assert twin.renewer.stands_aside
        assert world.row(KEY) == before
        assert twin.reasons() == [Reason.DOUBLED_ID]
        twin.other_reports(ELDER, 6)
        item = world.row("me")
        await asyncio.sleep(30)
        await twin.reporter.report_once()
        assert world.row("me") == item
        await asyncio.sleep(61)
        await twin.reporter.report_once()
        assert world.row("me") != item
        assert not twin.renewer.stands_aside
        assert twin.reasons() == []

    on_table(test, lease(lease_owner="me"))
    assert "this process gives up its leases" in caplog.text
    assert "No other living process has the id me" in caplog.text


def test_beside_a_younger_process_the_leases_are_kept(caplog):
    async def test(world, twin):
        await twin.renewer.adopt_own()
        await twin.reporter.report_once()
        twin.other_reports(LATER, 5)
        await twin.reporter.report_once()
        assert twin.renewer.get(KEY) is not None
        assert twin.reasons() == []
        assert twin.watch.may_have_twin

    on_table(test, lease(lease_owner="me"))
    assert "is to give up its leases" in caplog.text


def test_beside_a_process_that_does_not_say_when_it_began_both_go_on(caplog):
    async def test(world, twin):
        await twin.renewer.adopt_own()
        await twin.reporter.report_once()
        twin.other_reports(None, 5)
        await twin.reporter.report_once()
        assert twin.renewer.get(KEY) is not None
        assert twin.reasons() == [Reason.DOUBLED_ID]
        await asyncio.sleep(61)
        await twin.reporter.report_once()
        assert twin.reasons() == []

    on_table(test, lease(lease_owner="me"))
    assert "both take each other's leases" in caplog.text


@pytest.mark.parametrize("instance", [ELDER, LATER, None])
def test_the_item_of_a_dead_process_holds_nothing_up(instance):
    async def test(world, twin):
        twin.other_reports(instance, 5)
        for _report in range(3):
            await twin.reporter.report_once()
            await asyncio.sleep(15)
        assert not twin.watch.stands_aside
        assert twin.reasons() == []

    on_table(test)


def test_an_item_that_can_not_be_read_is_none():
    async def test(world, twin):
        assert await twin.items.metrics_of("me") is None
        world.put_item({"leaseKey": {"S": "me"}, "entityType": {"S": "WORKER_METRIC_STATS"}})
        assert await twin.items.metrics_of("me") is None

    on_table(test)
