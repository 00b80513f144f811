"""Noticing fleets that this worker cannot serve, at start and later."""

import asyncio

import pytest

from kcl_mld.errors import Denied, MixedTable, Throttled, UnservableFleet
from kcl_mld.leases.model.lease_move import staged
from tests.fakes.lease_rows import multi, single
from tests.fakes.lease_world import TABLE, create_table, lease, load_nothing, on_table_with

COORDINATOR = f"{TABLE}-CoordinatorState"
UNKNOWN = "CLIENT_VERSION_4X"


def migration(version, key="leaseKey"):
    return {
        key: {"S": "Migration3.0"},
        "cv": {"S": version},
        "mb": {"S": "java"},
        "mts": {"N": "1"},
        "entityType": {"S": "CLIENT_VERSION_MIGRATION"},
    }


def create_coordinator_table(world, version=None):
    create_table(world.model, COORDINATOR, "key")
    if version:
        world.model.call("PutItem", {"TableName": COORDINATOR, "Item": migration(version, "key")})


on_table = on_table_with(lambda world: world.worker("me"))


def test_a_rolled_back_fleet_and_an_empty_coordinator_table_are_served():
    async def test(world, me):
        create_coordinator_table(world)
        world.put_item(migration("CLIENT_VERSION_2X"))
        await me.fleet.check(load_nothing)

    on_table(test, lease())


@pytest.mark.parametrize("in_lease_table", [True, False])
def test_an_unknown_generation_is_refused_at_start(in_lease_table):
    async def test(world, me):
        if in_lease_table:
            world.put_item(migration(UNKNOWN))
        else:
            create_coordinator_table(world, UNKNOWN)
        with pytest.raises(UnservableFleet, match=UNKNOWN):
            await me.start()

    on_table(test, lease())


def test_without_permission_on_the_coordinator_table_the_lease_table_decides(caplog):
    async def test(world, me):
        denied = Denied("DescribeTable", "AccessDeniedException")
        world.fault("refuse", "DescribeTable", times=10, error=denied)
        await me.fleet.check(load_nothing)
        await me.fleet.check(load_nothing)
        assert sum("3.0-3.4 workers" in line for line in caplog.messages) == 1
        world.put_item(migration(UNKNOWN))
        with pytest.raises(UnservableFleet):
            await me.fleet.check(load_nothing)

    on_table(test, lease())


def test_at_start_a_table_that_cannot_be_read_is_an_error():
    async def test(world, me):
        world.fault("throttle", "GetItem")
        with pytest.raises(Throttled):
            await me.fleet.check(load_nothing)

    on_table(test, lease())


async def until_refused(me):
    try:
        await me.fleet.run()
    except UnservableFleet as refused:
        return str(refused)
    raise AssertionError


def test_an_unknown_generation_in_the_lease_table_is_noticed_with_the_next_scan():
    async def test(world, me):
        await me.start()
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(until_refused(me))
            work = group.create_task(me.run())
            await asyncio.sleep(11)
            world.put_item(migration(UNKNOWN))
            await asyncio.sleep(19)
            assert not watch.done()
            await asyncio.sleep(0.2)
            assert watch.done()
            work.cancel()
        assert UNKNOWN in watch.result()

    on_table(test, lease())


def test_one_in_the_coordinator_table_is_noticed_within_a_minute_although_reads_fail(caplog):
    async def test(world, me):
        create_coordinator_table(world)
        await me.fleet.check(load_nothing)
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(until_refused(me))
            await asyncio.sleep(30)
            world.fault("throttle", "GetItem")
            create_coordinator_item = migration(UNKNOWN, "key")
            world.model.call("PutItem", {"TableName": COORDINATOR, "Item": create_coordinator_item})
            await asyncio.sleep(31)
            assert "Could not check whether the fleet uses KCL 3.x" in caplog.text
            assert not watch.done()
            await asyncio.sleep(60)
            assert watch.done()

    on_table(test, lease())


OTHERS = {
    "streamName": lambda: single(0, streamName={"S": "1:s:2"}),
    "several streams": lambda: multi(0),
    "on its way": lambda: staged(single(0), multi(0)["leaseKey"]["S"]),
    "another stream": lambda: single(0, kclMldStream={"S": "1:r:other"}),
}


def marking(me):
    me.store.holder.stream.arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/s"
    return me


@pytest.mark.parametrize("row", OTHERS)
def test_rows_of_others_are_refused_at_start(row):
    async def test(world, me):
        world.put_item(OTHERS[row]())
        with pytest.raises(UnservableFleet, match="the lease table"):
            await marking(me).start()

    on_table(test, lease(1))


@pytest.mark.parametrize("row", OTHERS)
def test_beside_rows_of_others_held_leases_go_on_and_all_else_waits(row, caplog):
    async def test(world, me):
        await marking(me).start()
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(me.fleet.run()), group.create_task(me.run())]
            await asyncio.sleep(1)
            assert [one.lease.lease_key for one in me.renewer.held()] == [lease(1).lease_key]
            other = OTHERS[row]()
            world.put_item(other)
            world.put(lease(2))
            first = await me.taker.take_once()
            assert str(first) == "Took no leases: the lease table has rows of others"
            counter = int(world.row(lease(1).lease_key)["leaseCounter"]["N"])
            await asyncio.sleep(120)
            assert world.owners()[lease(2).lease_key] is None
            assert int(world.row(lease(1).lease_key)["leaseCounter"]["N"]) > counter + 10
            (condition,) = (
                one for one in world.conditions.current() if one.reason == "foreign_rows"
            )
            assert other["leaseKey"]["S"] in condition.message
            untouched = world.row(lease(2).lease_key)
            for write in (
                me.store.create_if_absent(lease(3)),
                me.store.take(lease(2), "me"),
                me.store.leader.assign(lease(2), "me", only_unchanged=True),
                me.store.leader.start_hand_off(lease(2, lease_owner="w"), "me"),
                me.store.delete(lease(2).lease_key, only_finished=False),
            ):
                with pytest.raises(MixedTable):
                    await write
            assert world.row(lease(2).lease_key) == untouched
            assert not world.row(lease(3).lease_key)
            key = {"leaseKey": other["leaseKey"]}
            world.model.call("DeleteItem", {"TableName": TABLE, "Key": key})
            await asyncio.sleep(60)
            assert world.owners() == {lease(1).lease_key: "me", lease(2).lease_key: "me"}
            assert world.conditions.current() == ()
            for loop in loops:
                loop.cancel()

    on_table(test, lease(1))
    said = [line for line in caplog.messages if "until these rows are gone" in line]
    assert 2 <= len(said) <= 3
    assert "Resolved" in caplog.text
