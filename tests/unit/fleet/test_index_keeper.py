"""The index of leases by owner: made where it is missing, and asked for where it may not be made."""

import asyncio

import pytest

from kcl_mld.errors import Denied
from kcl_mld.fleet.fleet_upgrade import (
    INDEX_LATER_S,
    INDEX_LOOK_S,
    INDEX_PATIENCE,
    IndexKeeper,
)
from tests.fakes.fleet_items import Lead
from tests.fakes.lease_world import TABLE, World
from tests.sim.loop import run


def keeping(test, *, leads=True, begins=False):
    async def main():
        world = World()
        world.create_table()
        state = world.fleet_state("me")
        state.has_begun = begins
        lead = Lead(is_mine=leads)
        task = asyncio.create_task(IndexKeeper(world.store(), lead, lead, state).run())
        await asyncio.sleep(1)
        await test(world)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())


def indexes(world):
    return list(world.model.tables[TABLE].indexes)


@pytest.mark.parametrize(("leads", "begins"), [(True, False), (False, True), (False, False)])
def test_who_began_the_generation_makes_it_at_once_and_a_leader_after_a_minute(leads, begins):
    async def test(world):
        assert len(indexes(world)) == begins
        await asyncio.sleep(INDEX_PATIENCE * INDEX_LOOK_S + 1)
        assert len(indexes(world)) == (begins or leads)

    keeping(test, leads=leads, begins=begins)


def test_one_that_is_deleted_by_hand_comes_back():
    """Java workers of the fleet found no leases from then on."""

    async def test(world):
        await asyncio.sleep(INDEX_PATIENCE * INDEX_LOOK_S + 30)
        assert indexes(world)
        world.model.tables[TABLE].indexes.clear()
        await asyncio.sleep(INDEX_LATER_S + (INDEX_PATIENCE + 1) * INDEX_LOOK_S)
        assert indexes(world)

    keeping(test)


def test_a_missing_permission_is_said_once_whenever_it_is_met(caplog):
    """It was said only by the very first look, which does not create."""

    async def test(world):
        error = Denied("UpdateTable", "AccessDeniedException", "no")
        world.fault("refuse", "UpdateTable", times=10**6, error=error)
        await asyncio.sleep(600)
        assert not indexes(world)

    keeping(test)
    (said,) = caplog.messages
    assert "Java workers find no leases without it" in said
    assert said.endswith("Allow dynamodb:UpdateTable on this table")
