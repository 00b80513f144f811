"""Cycles of taking, in virtual time."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from kcl_mld.config.config import LeaseConfig
from kcl_mld.leases.lease_renewer import RELEASE_TRIES
from kcl_mld.leases.model.lease_item import lease_from_item
from kcl_mld.signals.model.conditions import Conditions, Reason
from tests.fakes.lease_world import TABLE, lease, on_table_with

on_table = on_table_with(lambda world: world.worker("me"))


@asynccontextmanager
async def running(*workers):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(worker.run()) for worker in workers]
        yield
        for task in tasks:
            task.cancel()


def fresh(count):
    return [lease(number) for number in range(count)]


def keys(held):
    return [one.lease.lease_key for one in held]


def test_a_fresh_sole_worker_takes_everything_at_once():
    async def test(world, me):
        outcome = await me.taker.take_once()
        assert set(outcome.taken) == set(world.owners())
        assert set(world.owners().values()) == {"me"}
        assert len(me.renewer.held()) == 4
        assert str(outcome) == (
            "Took 4 leases: they have no owner (held before: 0 of 4, target: 4, workers: 1)"
        )
        assert str(await me.taker.take_once()) == (
            "Took no leases: this worker has its share (held: 4 of 4, target: 4, workers: 1)"
        )

    on_table(test, *fresh(4))


def test_what_is_taken_is_believed_from_the_start_of_the_request():
    async def test(world, me):
        world.fault("slow answer", seconds=2)
        await me.taker.take_once()
        (held,) = me.renewer.held()
        assert held.valid_until == pytest.approx(9.775, abs=0.001)
        assert held.lease == lease_from_item(world.row(held.lease.lease_key))

    on_table(test, lease())


def test_the_leases_of_a_dead_worker_are_taken_after_two_scans():
    async def test(world, me):
        async with running(me):
            await asyncio.sleep(10)
            # The dead worker may be alive, and nothing is stolen so soon after a start.
            assert set(world.owners().values()) == {"dead"}
            await asyncio.sleep(0.1)
            assert set(world.owners().values()) == {"me"}

    on_table(test, *(lease(n, lease_owner="dead") for n in range(3)))


def test_the_cycle_has_java_s_pause():
    async def test(world, me):
        async with running(me):
            await asyncio.sleep(20.05 * 3 + 1)
        scans = sum(operation == "Scan" for _, operation, _ in world.requests)
        assert scans == 4

    on_table(test, lease())


def test_an_empty_table_is_looked_at_more_often():
    async def test(world, me):
        async with running(me):
            await asyncio.sleep(1)
            world.put(lease())
            await asyncio.sleep(2.1)
            assert world.owners() == {lease().lease_key: "me"}

    on_table(test)


def test_a_woken_taker_looks_at_once():
    async def test(world, me):
        async with running(me):
            await asyncio.sleep(4)
            world.put(lease(1))
            me.taker.wake()
            await asyncio.sleep(0.01)
            assert world.owners()[lease(1).lease_key] == "me"

    on_table(test, lease())


def test_a_woken_taker_steals_nothing_before_its_interval():
    async def test(world, me):
        other = world.worker("other")
        await other.taker.take_once()
        stolen_after = {}
        async with running(me), asyncio.TaskGroup() as group:
            renewing = group.create_task(other.renewer.heartbeat.run())
            for seconds in range(45):
                me.taker.wake()
                await asyncio.sleep(1)
                stolen_after[seconds + 1] = list(world.owners().values()).count("me")
            renewing.cancel()
        assert [stolen_after[seconds] for seconds in (10, 12, 30, 32)] == [0, 1, 1, 2]

    on_table(test, *fresh(8))


def test_a_failed_scan_is_repeated_soon_and_said(caplog):
    async def test(world, me):
        world.fault("refuse", "Scan")
        async with running(me):
            await asyncio.sleep(1)
            assert "could not be read" in caplog.text
            await asyncio.sleep(3)
            assert len(me.renewer.held()) == 1
        assert world.metrics.values["TakeLeases", "Success"] == [0, 1]

    on_table(test, lease())


def test_two_workers_end_up_with_half_each():
    async def test(world, me):
        other = world.worker("other")
        async with running(me, other):
            await asyncio.sleep(100)
            owners = list(world.owners().values())
            assert sorted((owners.count("me"), owners.count("other"))) == [3, 3]
            assert keys(me.renewer.held()) == [k for k, o in world.owners().items() if o == "me"]

    on_table(test, *fresh(6))


def test_a_throttled_take_is_tried_three_times():
    async def test(world, me):
        world.fault("throttle", times=2)
        assert (await me.taker.take_once()).taken
        world.put(lease(1))
        world.fault("throttle", times=3)
        outcome = await me.taker.take_once()
        assert outcome.missed == (lease(1).lease_key,)
        assert str(outcome).startswith("Took 0 of 1 lease: they have no owner")

    on_table(test, lease())


def test_a_take_whose_answer_is_lost_is_held():
    async def test(world, me):
        world.fault("lose answer")
        assert (await me.taker.take_once()).taken
        assert len(me.renewer.held()) == 1

    on_table(test, lease())


def test_a_take_waits_for_a_write_of_an_earlier_holding():
    async def test(world, me):
        async with asyncio.TaskGroup() as group, me.renewer.exclusive(lease().lease_key):
            cycle = group.create_task(me.taker.take_once())
            await asyncio.sleep(5)
            assert world.owners() == {lease().lease_key: None}
        assert cycle.result().taken

    on_table(test, lease())


def test_a_lost_race_is_no_error():
    async def test(world, me):
        async def other_is_faster(_service, operation, _request):
            if operation == "UpdateItem" and world.owners()[lease().lease_key] is None:
                world.change(lease().lease_key, leaseOwner="other", leaseCounter=1)

        me.store._dynamodb.before = other_is_faster
        outcome = await me.taker.take_once()
        assert (outcome.taken, outcome.missed) == ((), (lease().lease_key,))
        assert me.renewer.held() == ()
        assert world.metrics.values["TakeLeases", "UntakenLeases"] == [1]

    on_table(test, lease())


SIX_OF_BAZ = [lease(n, lease_owner="baz") for n in range(6)]


@pytest.mark.parametrize(
    ("change", "stolen"),
    [
        ({}, True),
        ({"leaseCounter": 1}, False),
        ({"leaseOwner": "other"}, False),
    ],
)
def test_after_a_slow_scan_only_unchanged_leases_are_stolen(change, stolen):
    async def test(world, me):
        world.fault("slow answer", "Scan", seconds=2)

        async def meanwhile():
            await asyncio.sleep(1)
            for row in SIX_OF_BAZ:
                if change:
                    world.change(row.lease_key, **change)

        async with asyncio.TaskGroup() as group:
            cycle = group.create_task(me.taker.take_once())
            group.create_task(meanwhile())
        assert bool(cycle.result().taken) is stolen
        assert cycle.result().missed == ()

    on_table(test, *SIX_OF_BAZ)


def test_after_a_slow_scan_a_deleted_lease_is_not_stolen_and_breaks_nothing():
    async def test(world, me):
        world.fault("slow answer", "Scan", seconds=2)

        async def meanwhile():
            await asyncio.sleep(1)
            for row in SIX_OF_BAZ:
                world.model.call(
                    "DeleteItem", {"TableName": TABLE, "Key": {"leaseKey": {"S": row.lease_key}}}
                )

        async with asyncio.TaskGroup() as group:
            cycle = group.create_task(me.taker.take_once())
            group.create_task(meanwhile())
        assert (cycle.result().taken, cycle.result().missed) == ((), ())

    on_table(test, *SIX_OF_BAZ)


def test_when_the_second_look_fails_the_condition_decides():
    async def test(world, me):
        world.fault("slow answer", "Scan", seconds=2)
        world.fault("throttle", "GetItem")
        assert len((await me.taker.take_once()).taken) == 1

    on_table(test, *SIX_OF_BAZ)


def test_a_stopped_taker_ends_its_loop_and_takes_nothing_more():
    async def test(world, me):
        async with asyncio.TaskGroup() as group:
            group.create_task(me.taker.run())
            await asyncio.sleep(1)
            me.taker.stop()
            await asyncio.sleep(0)
        assert world.clock.monotonic() < 2
        world.put(lease(1))
        assert (await me.taker.take_once()).missed == (lease(1).lease_key,)

    on_table(test, lease())


@pytest.mark.parametrize("refusals", [0, 1, RELEASE_TRIES])
def test_a_lease_taken_while_stopping_is_given_back_with_a_few_tries(refusals):
    is_left = refusals == RELEASE_TRIES

    async def test(world, me):
        world.fault("slow answer", seconds=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(me.taker.take_once())
            await asyncio.sleep(0.5)
            me.stop_taking()
            if refusals:
                world.fault("throttle", times=refusals)
            await me.settled()
            assert world.owners() == {lease().lease_key: "me" if is_left else None}
        assert me.renewer.held() == ()
        assert me.renewer.unreleased == is_left

    on_table(test, lease())


def test_after_an_outage_a_lapsed_lease_is_regained_with_the_next_heartbeat():
    async def test(world, me):
        async with running(me):
            await asyncio.sleep(1)
            (before,) = me.renewer.held()
            world.fault("throttle", times=10**9)
            await asyncio.sleep(11)
            assert me.renewer.held() == ()
            world.faults.clear()
            await asyncio.sleep(3.4)
            (after,) = me.renewer.held()
            assert after.token != before.token

    on_table(test, lease())


def test_a_defect_in_one_take_does_not_cut_off_the_others(caplog):
    async def test(world, me):
        world.fault("slow", error=RuntimeError("a defect"), seconds=0.001)
        outcome = await me.taker.take_once()
        assert (len(outcome.taken), len(outcome.missed)) == (3, 1)
        assert "failed unexpectedly" in caplog.text

    on_table(test, *fresh(4))


def test_a_defect_in_a_cycle_does_not_end_the_taking(caplog):
    async def test(world, me):
        world.fault("slow", "Scan", error=RuntimeError("a defect"), seconds=0.001)
        async with running(me):
            await asyncio.sleep(21)
            assert len(me.renewer.held()) == 1
        assert "Taking leases failed unexpectedly; next try in 20 s" in caplog.text

    on_table(test, lease())


def test_java_s_metrics_are_sent():
    async def test(world, me):
        await me.taker.take_once()
        sent = {
            name: values[0]
            for (operation, name), values in world.metrics.values.items()
            if operation == "TakeLeases" and not name.endswith("Time")
        }
        assert sent == {
            "ListLeases.Success": 1,
            "NumWorkers": 1,
            "ExpiredLeases": 6,
            "VeryOldLeases": 6,
            "LeaseSpillover": 2,
            "TotalLeases": 6,
            "NeededLeases": 4,
            "LeasesToTake": 4,
            "TakeLease.Success": 1,
            "TakenLeases": 4,
            "UntakenLeases": 0,
            "Success": 1,
        }

    on_table(test, *fresh(6), config=LeaseConfig(table_name=TABLE, max_leases_for_worker=4))


def test_with_a_slow_table_a_round_takes_what_can_be_renewed_and_the_next_one_comes_soon(caplog):
    async def test(world, me):
        world.fault("slow answer", seconds=0.2, times=1_000_000)
        outcome = await me.taker.take_once()
        assert 300 <= len(outcome.taken) <= 360
        assert outcome.left == 600 - len(outcome.taken)
        assert str(outcome).startswith(f"Took {len(outcome.taken)} of 600 leases")
        async with running(me):
            await asyncio.sleep(30 - 3.5)
            assert len(me.renewer.held()) == 600
            await asyncio.sleep(60)
            assert len(me.renewer.held()) == 600
        assert "Lost lease" not in caplog.text

    on_table(test, *fresh(600))


def test_nothing_is_taken_while_renewals_are_late():
    async def test(world, me):
        me.renewer.keeps_up.clear()
        taking = asyncio.create_task(me.taker.take_once())
        await asyncio.sleep(1)
        assert set(world.owners().values()) == {None}
        me.renewer.keeps_up.set()
        assert len((await taking).taken) == 4

    on_table(test, *fresh(4))


def test_late_renewals_are_shown_to_whoever_could_wait():
    async def test(world, me):
        await me.taker.take_once()
        async with running(me):
            await asyncio.sleep(5)
            assert me.renewer.in_time.is_set()
            world.fault("refuse", times=1_000_000)
            await asyncio.wait_for(_cleared(me.renewer.keeps_up), 10)
            assert me.renewer.in_time.is_set()
            await asyncio.wait_for(_cleared(me.renewer.in_time), 10)
            assert len(me.renewer.held()) == 10
            world.faults.clear()
            await asyncio.wait_for(me.renewer.in_time.wait(), 5)
            await asyncio.wait_for(me.renewer.keeps_up.wait(), 5)

    async def _cleared(event):
        while event.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    on_table(test, *fresh(10))


# -- another process with this worker's id --------------------------------------------------------


def reasons(world):
    return [one.reason for one in world.conditions.current()]


@pytest.mark.parametrize("count", [1, 4])
def test_of_two_processes_with_one_id_one_at_least_says_so_until_the_other_is_gone(count, caplog):
    """That which loses its leases to the other one; who keeps them may not notice."""

    async def test(world, me):
        async with running(me):
            await asyncio.sleep(30)
            twins = Conditions()
            twin = world.worker("me", seed=1, twins=twins)
            await twin.renewer.adopt_own()
            async with running(twin):
                await asyncio.sleep(90)
                said = [*reasons(world), *(one.reason for one in twins.current())]
                assert set(said) == {Reason.DOUBLED_ID}
                assert caplog.text.count("Another living process has the id me: it writes") == len(
                    said
                )
            await asyncio.sleep(90)
            assert reasons(world) == []
            assert len(me.renewer.held()) == count

    on_table(test, *fresh(count))


@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
def test_writes_of_this_process_without_an_answer_are_no_other_process(fault, caplog):
    async def test(world, me):
        async with running(me):
            for _turn in range(30):
                await asyncio.sleep(7)
                world.fault(fault, times=2)
                assert reasons(world) == []
        assert "Another living process" not in caplog.text

    on_table(test, *fresh(2))


def test_a_process_that_follows_a_dead_one_under_its_id_is_alone(caplog):
    async def test(world, me):
        async with running(me):
            await asyncio.sleep(33)
        later = world.worker("me", seed=1)
        await later.renewer.adopt_own()
        async with running(later):
            for _look in range(20):
                await asyncio.sleep(7)
                assert reasons(world) == []
        assert "Another living process" not in caplog.text

    on_table(test, *fresh(4))


def test_a_worker_says_when_the_other_process_with_its_id_is_gone(caplog):
    async def test(world, me):
        older = world.worker("me", seed=1, twins=Conditions())
        await older.taker.take_once()
        async with running(me):
            async with running(older):
                await asyncio.sleep(90)
                assert reasons(world) == [Reason.DOUBLED_ID]
                assert len(older.renewer.held()) == 4
            await asyncio.sleep(90)
            assert reasons(world) == []
            assert "No other process writes to rows of worker me any more" in caplog.text
            assert len(me.renewer.held()) == 4

    on_table(test, *fresh(4))


def test_a_worker_that_stops_takes_back_what_it_says_of_another_process():
    async def test(world, me):
        await me.taker.take_once()
        key = me.renewer.held()[0].lease.lease_key
        for _turn in range(4):
            row = lease_from_item(world.row(key))
            world.change(key, leaseCounter=row.lease_counter + 1)
            await asyncio.sleep(4)
            await me.taker.take_once()
        assert reasons(world) == [Reason.DOUBLED_ID]
        me.taker.stop()
        assert reasons(world) == []

    on_table(test, lease())
