"""A newcomer to a 2.x fleet, in virtual time over the fake table."""

import asyncio

from kcl_mld.errors import ChildFailed
from kcl_mld.leases.model.newcomer import NewcomerMark, newcomer_mark_of
from kcl_mld.leases.newcomer import Newcomer
from tests.fakes.lease_world import lease, on_table_with

A, B, C = (lease(number).lease_key for number in range(3))
FAILED = ChildFailed(A, "initialize", "it ended", 1)


def newcomer(world, name="me"):
    return world.worker(name, newcomer=Newcomer(name, f"{name}-1", world.clock))


on_table = on_table_with(newcomer)


def mark(world, key):
    text = world.row(key).get("kclMldNewcomer", {}).get("S")
    return newcomer_mark_of(text)


def gone(number, key, world, age_s=5):
    """A row whose last holder failed while it was new."""
    left = NewcomerMark(f"x{number}-1", f"x{number}", int(world.clock.wall()) - age_s)
    world.change(key, kclMldNewcomer=left.text())
    return left


def test_a_newcomer_marks_what_it_takes_until_it_has_held_a_lease_for_a_minute():
    async def test(world, me):
        await me.taker.take_once()
        assert mark(world, A) == NewcomerMark("me-1", "me", int(world.clock.wall()))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(me.renewer.heartbeat.run())
            await asyncio.sleep(50)
            assert mark(world, A) is not None
            await asyncio.sleep(30)
            assert mark(world, A) is None
            world.put(lease(1))
            await me.taker.take_once()
            assert mark(world, B) is None
            task.cancel()

    on_table(test, lease(0))


def test_a_mark_in_a_row_that_java_has_taken_is_removed():
    async def test(world, me):
        await me.taker.take_once()
        world.change(A, leaseOwner="java", leaseCounter=7)
        before = world.row(A)
        world.fault("throttle")
        await me.taker.take_once()
        assert mark(world, A) is not None
        await me.taker.take_once()
        assert {**world.row(A), "kclMldNewcomer": before["kclMldNewcomer"]} == before
        assert mark(world, A) is None
        assert mark(world, B) is not None

    on_table(test, lease(0), lease(1))


def test_one_that_is_asked_to_stop_removes_its_marks():
    async def test(world, me):
        await me.taker.take_once()
        for held in me.renewer.held():
            await me.renewer.release(held.lease.lease_key, held.token)
        assert mark(world, A) is None
        assert mark(world, B) is None

    on_table(test, lease(0), lease(1))


def test_one_that_fails_leaves_the_mark_at_the_lease_at_which_it_failed():
    async def test(world, me):
        await me.taker.take_once()
        me.stop_taking(FAILED, A)
        for held in me.renewer.held():
            await me.renewer.release(held.lease.lease_key, held.token)
        assert mark(world, A).instance == "me-1"
        assert mark(world, B) is None

    on_table(test, lease(0), lease(1))


def test_one_that_fails_at_no_lease_leaves_all_marks():
    async def test(world, me):
        await me.taker.take_once()
        me.stop_taking(RuntimeError("a defect"))
        for held in me.renewer.held():
            await me.renewer.release(held.lease.lease_key, held.token)
        assert None not in (mark(world, A), mark(world, B))

    on_table(test, lease(0), lease(1))


def test_where_others_failed_a_newcomer_takes_one_lease_first_and_says_so(caplog):
    async def test(world, me):
        gone(1, A, world)
        await me.taker.take_once()
        assert len(me.renewer.held()) == 1
        assert world.owners()[A] is None
        await me.taker.take_once()
        assert len(me.renewer.held()) == 1
        async with asyncio.TaskGroup() as group:
            task = group.create_task(me.renewer.heartbeat.run())
            await asyncio.sleep(70)
            await me.taker.take_once()
            task.cancel()
        assert set(world.owners().values()) == {"me"}

    on_table(test, lease(0), lease(1), lease(2))
    assert (
        caplog.text.count("1 process failed soon after taking leases, the last one as worker x1")
        == 1
    )


def test_the_mark_of_another_process_stays_for_ten_minutes():
    async def test(world, me):
        async with asyncio.TaskGroup() as group:
            await me.taker.take_once()
            task = group.create_task(me.renewer.heartbeat.run())
            await asyncio.sleep(80)
            world.put(lease(1))
            left = gone(1, B, world)
            await me.taker.take_once()
            assert mark(world, B) == left
            await asyncio.sleep(500)
            assert mark(world, B) == left
            await asyncio.sleep(120)
            assert mark(world, B) is None
            task.cancel()

    on_table(test, lease(0))


def test_a_lease_that_is_stolen_from_a_newcomer_loses_its_mark():
    async def test(world, me):
        async with asyncio.TaskGroup() as group:
            await me.taker.take_once()
            task = group.create_task(me.renewer.heartbeat.run())
            await asyncio.sleep(80)
            for number in range(1, 5):
                world.put(lease(number, lease_owner="new"))
                world.change(
                    lease(number).lease_key,
                    kclMldNewcomer=NewcomerMark("new-1", "new", int(world.clock.wall())).text(),
                )
            await me.taker.take_once()
            stolen = [key for key, owner in world.owners().items() if owner == "me" and key != A]
            assert len(stolen) == 1
            assert mark(world, stolen[0]) is None
            task.cancel()

    on_table(test, lease(0))
