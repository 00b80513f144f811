"""Finding assigned leases, in virtual time over the fake table."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kcl_mld.errors import Throttled
from kcl_mld.leases.lease_discoverer import LeaseDiscoverer
from kcl_mld.leases.lease_renewer import RELEASE_TRIES
from kcl_mld.leases.model.lease import HeldLease
from kcl_mld.leases.model.lease_request import LeaseRequest
from kcl_mld.leases.rules.discovery import (
    CALM_PAUSE_S,
    LIVELY_PAUSE_S,
    LIVELY_S,
    WATCH_S,
    Informed,
)
from tests.fakes.lease_world import World, every, lease
from tests.sim.loop import run

A, B = "shardId-000000000000", "shardId-000000000001"


class Finder:
    """One worker that discovers."""

    def __init__(self, world, name="me", **parts):
        worker = world.worker(name)
        self.world = world
        self.store, self.renewer = worker.store, worker.renewer
        self.informed = Informed.NO
        self.discoverer = LeaseDiscoverer(
            self.store,
            self.renewer,
            world.config,
            name,
            world.clock,
            world.metrics,
            **{"is_read": every, "failing": world.failing(), **parts},
            find_informed=lambda: self.informed,
        )

    def keys(self):
        return [held.lease.lease_key for held in self.renewer.held()]

    def count(self, operation):
        return sum(one[1] == operation for one in self.world.requests)

    @asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.discoverer.run()),
                group.create_task(self.renewer.heartbeat.run()),
            ]
            await asyncio.sleep(0)
            yield
            for task in tasks:
                task.cancel()


def with_finder(test, **parts):
    async def main():
        world = World()
        world.create_table()
        await test(world, Finder(world, **parts))

    run(main())


def test_an_assigned_lease_is_held_and_renewed_at_once():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me", lease_counter=4), lease(1, lease_owner="other"))
        outcome = await finder.discoverer.look_once()
        assert outcome.gained == (A,)
        assert str(outcome) == "Took over 1 assigned lease, waiting for 0"
        assert finder.keys() == [A]
        assert world.row(A)["leaseCounter"] == {"N": "5"}
        assert world.row(B)["leaseCounter"] == {"N": "0"}
        token = finder.renewer.held()[0].token
        assert (await finder.discoverer.look_once()).gained == ()
        assert finder.renewer.held()[0].token == token

    with_finder(test)


@pytest.mark.parametrize("way", ["assigned", "taken", "adopted"])
def test_who_gains_a_lease_removes_what_was_asked_before_and_says_so(way, caplog):
    """It went from me to another worker, which knows no requests, and comes back within its time."""
    asked = LeaseRequest(request_id="r", verb="release", holder="me", expires_s=9e9, by="ann@host")

    async def test(world, finder):
        row = lease(0, lease_owner="java" if way == "taken" else "me", lease_counter=4)
        world.put(row, kclMldRequest={"S": asked.text}, kclMldHolder={"S": "me"})
        if way == "assigned":
            await finder.discoverer.look_once()
            (held,) = finder.renewer.held()
        elif way == "adopted":
            await finder.renewer.adopt_own()
            (held,) = finder.renewer.held()
        else:
            held = HeldLease(await finder.store.take(replace(row, request=asked), "me"), "", 0.0)
        assert held.lease.request is None
        assert "kclMldRequest" not in world.row(A)
        assert caplog.messages[0] == (
            f"{A}: removed the request to release of ann@host, asked of me before this worker had "
            "the lease"
        )

    with_finder(test)


def test_beside_rows_of_others_nothing_is_taken_over():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"), lease(1, lease_key="1:s:2:shardId-1"))
        assert (await finder.discoverer.look_once()).gained == ()
        assert world.row(A)["leaseCounter"] == {"N": "0"}

    with_finder(test)


def test_a_lease_in_a_hand_off_is_watched_until_its_old_owner_lets_it_go():
    async def test(world, finder):
        async with finder.running():
            await asyncio.sleep(LIVELY_S + 10)
            world.put(lease(0, lease_owner="me", checkpoint_owner="old", lease_counter=4))
            await asyncio.sleep(CALM_PAUSE_S)
            assert finder.keys() == []
            assert world.row(A)["leaseCounter"] == {"N": "4"}
            scans = finder.count("Scan")
            world.change(A, checkpointOwner=None, leaseCounter=5)
            await asyncio.sleep(WATCH_S + 0.05)
            assert finder.keys() == [A]
            assert finder.count("Scan") - scans <= 1

    with_finder(test)


def test_a_hand_off_that_goes_elsewhere_is_watched_no_more():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me", checkpoint_owner="old"))
        async with finder.running():
            await asyncio.sleep(1)
            world.change(A, leaseOwner="third")
            await asyncio.sleep(3)
            before = finder.count("GetItem")
            await asyncio.sleep(5)
            assert finder.count("GetItem") == before
            assert finder.keys() == []

    with_finder(test)


def test_a_held_lease_that_is_listed_no_more_shows_its_hand_off_before_it_is_due():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"))
        async with finder.running():
            await asyncio.sleep(1)
            assert finder.keys() == [A]
            await asyncio.sleep(LIVELY_PAUSE_S)
            world.change(A, leaseOwner="next", checkpointOwner="me")
            await asyncio.sleep(LIVELY_PAUSE_S + 0.1)
            (held,) = finder.renewer.held()
            assert held.lease.is_handed_over
            counter = world.row(A)["leaseCounter"]
            await asyncio.sleep(LIVELY_PAUSE_S)  # and it is not looked after again
            assert world.row(A)["leaseCounter"] == counter

    with_finder(test)


def test_a_held_lease_that_is_listed_no_more_because_it_is_another_s_is_lost_at_once():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"))
        await finder.discoverer.look_once()
        await asyncio.sleep(1)
        await finder.discoverer.look_once()
        world.change(A, leaseOwner="next", leaseCounter=9)
        await asyncio.sleep(1)
        await finder.discoverer.look_once()
        assert finder.keys() == []

    with_finder(test)


@pytest.mark.parametrize("is_large", [False, True])
def test_a_large_table_is_asked_by_its_index_and_a_small_one_scanned(is_large):
    async def test(world, finder):
        world.create_index()
        if is_large:
            world.put(*(lease(number) for number in range(2, 510)))
        world.put(lease(0, lease_owner="me"))
        async with finder.running():
            await asyncio.sleep(LIVELY_S + 30)
            assert finder.keys() == [A]
            scans, queries = finder.count("Scan"), finder.count("Query")
            world.put(lease(1, lease_owner="me"))
            await asyncio.sleep(CALM_PAUSE_S + 1)
            assert finder.keys() == [A, B]
            asked = finder.count("Scan") - scans, finder.count("Query") - queries
            assert asked[is_large] > 0
            assert asked[not is_large] == 0

    with_finder(test)


def test_a_lease_whose_owner_died_is_found_half_a_second_after_it_was_given_away():
    async def test(world, finder):
        world.put(lease(1, lease_owner="other", lease_counter=1))
        async with finder.running():
            for counter in range(2, 20):  # a worker that lives
                world.change(B, leaseCounter=counter)
                await asyncio.sleep(6)
            scans = finder.count("Scan")
            world.change(B, leaseCounter=99)
            await asyncio.sleep(6)
            assert finder.count("Scan") - scans <= 2
            await asyncio.sleep(world.config.failover_s - 6 + CALM_PAUSE_S)
            world.change(B, leaseOwner="me", leaseCounter=100)
            await asyncio.sleep(0.6)
            assert finder.keys() == [B]

    with_finder(test)


def test_a_lease_that_nobody_has_is_found_half_a_second_after_it_was_given_away():
    async def test(world, finder):
        async with finder.running():
            await asyncio.sleep(LIVELY_S + 30)
            world.put(lease(1))
            await asyncio.sleep(CALM_PAUSE_S + 0.1)
            world.change(B, leaseOwner="me", leaseCounter=1)
            await asyncio.sleep(0.6)
            assert finder.keys() == [B]

    with_finder(test)


def test_who_leads_makes_no_scans_of_its_own():
    async def test(world, finder):
        async def lead():
            while True:
                await finder.store.scan()
                await asyncio.sleep(2.5)

        world.put(lease(1, lease_owner="other", lease_counter=1))
        leading = asyncio.create_task(lead())
        async with finder.running():
            await asyncio.sleep(LIVELY_S + 10)
            before = finder.count("Scan")
            for counter in range(2, 22):
                world.change(B, leaseCounter=counter)
                await asyncio.sleep(7)
            assert finder.count("Scan") - before == 20 * 7 / 2.5
        leading.cancel()

    with_finder(test)


def test_a_lease_that_nobody_may_have_keeps_nobody_awake():
    async def test(world, finder):
        world.put(lease(1))
        async with finder.running():
            await asyncio.sleep(LIVELY_S + 30)
            scans = finder.count("Scan")
            await asyncio.sleep(40)
            assert finder.count("Scan") - scans == 10

    with_finder(test)


def test_without_an_index_a_large_table_is_scanned():
    async def test(world, finder):
        world.put(*(lease(number) for number in range(2, 510)), lease(0, lease_owner="me"))
        await finder.discoverer.look_once()
        await asyncio.sleep(5)
        world.put(lease(1, lease_owner="me"))
        assert (await finder.discoverer.look_once()).gained == (B,)
        assert finder.count("Query") == 1

    with_finder(test)


def test_a_scan_of_this_worker_s_leader_part_spares_the_look_a_request():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"))
        await finder.store.scan()
        before = len(world.requests)
        assert (await finder.discoverer.look_once()).gained == (A,)
        assert [one[1] for one in world.requests[before:]] == ["GetItem", "UpdateItem"]

    with_finder(test)


def test_a_table_that_does_not_answer_is_told_and_nothing_is_lost(caplog):
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"))
        async with finder.running():
            await asyncio.sleep(3)
            world.fault("refuse", "Scan", times=5)
            await asyncio.sleep(3)
            assert finder.keys() == [A]
        assert "Could not find out which leases are assigned to this worker" in caplog.text

    with_finder(test)


def test_a_look_that_fails_for_a_defect_is_not_the_last_one(caplog):
    async def test(world, finder):
        world.fault("refuse", "Scan", error=ValueError("a defect"))
        async with finder.running():
            await asyncio.sleep(1)
            world.put(lease(0, lease_owner="me"))
            await asyncio.sleep(5)
            assert finder.keys() == [A]
        assert "failed unexpectedly" in caplog.text

    with_finder(test)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ("GetItem", Throttled("GetItem", "ThrottlingException")),
        ("UpdateItem", Throttled("UpdateItem", "ThrottlingException")),
        ("GetItem", ValueError("a defect")),
    ],
)
def test_a_lease_that_cannot_be_taken_over_now_is_taken_over_with_the_next_look(operation, error):
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"), lease(1, lease_owner="me"))
        world.fault("refuse", operation, error=error)
        assert len((await finder.discoverer.look_once()).gained) == 1
        await asyncio.sleep(1)
        assert len((await finder.discoverer.look_once()).gained) == 1
        assert finder.keys() == [A, B]

    with_finder(test)


def test_a_lease_that_is_given_elsewhere_meanwhile_is_not_held():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"))
        world.fault("slow", "UpdateItem", seconds=1)
        looking = asyncio.create_task(finder.discoverer.look_once())
        await asyncio.sleep(0.5)
        world.change(A, leaseOwner="other", leaseCounter=9)
        assert (await looking).gained == ()
        assert world.row(A)["leaseOwner"] == {"S": "other"}

    with_finder(test)


def test_leases_of_streams_that_are_not_read_are_left_alone():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"))
        assert (await finder.discoverer.look_once()).gained == ()
        assert world.row(A)["leaseCounter"] == {"N": "0"}

    with_finder(test, is_read=lambda _lease: False)


def test_a_stop_takes_up_nothing_more_and_undoes_what_was_under_way():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"), lease(1, lease_owner="me"))
        world.fault("slow answer", "UpdateItem", seconds=1, times=2)
        running = asyncio.create_task(finder.discoverer.run())
        await asyncio.sleep(0.5)
        finder.discoverer.stop()
        await finder.discoverer.settled()
        assert finder.keys() == []
        assert world.owners() == {A: None, B: None}
        await running

    with_finder(test)


def test_what_cannot_be_undone_is_counted():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"))
        world.fault("slow answer", "UpdateItem", seconds=1)
        running = asyncio.create_task(finder.discoverer.run())
        await asyncio.sleep(0.5)
        finder.discoverer.stop()
        refusal = Throttled("UpdateItem", "x")
        world.fault("refuse", "UpdateItem", error=refusal, times=RELEASE_TRIES)
        await finder.discoverer.settled()
        await running
        assert finder.renewer.unreleased == 1

    with_finder(test)


def test_a_call_is_answered_at_once():
    async def test(world, finder):
        async with finder.running():
            await asyncio.sleep(LIVELY_S + 10.1)
            world.put(lease(0, lease_owner="me"))
            finder.discoverer.wake()
            await asyncio.sleep(0.1)
            assert finder.keys() == [A]

    with_finder(test)


def test_what_this_worker_assigned_to_itself_is_read_at_once_and_alone():
    async def test(world, finder):
        async with finder.running():
            await asyncio.sleep(LIVELY_S + 10.1)
            world.put(lease(0, lease_owner="me"))
            scans = finder.count("Scan")
            finder.discoverer.expect(A)
            await asyncio.sleep(0.1)
            assert finder.keys() == [A]
            assert finder.count("Scan") == scans

    with_finder(test)


def test_a_lease_that_is_expected_while_it_is_taken_up_is_not_waited_for():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"))
        gain = finder.discoverer._store.gain

        async def expected_meanwhile(row):
            finder.discoverer.expect(A)
            return await gain(row)

        finder.discoverer._store.gain = expected_meanwhile
        async with finder.running():
            await asyncio.sleep(1.0)
            assert finder.keys() == [A]
            reads = finder.count("GetItem")
            await asyncio.sleep(5.0)
            assert finder.count("GetItem") == reads
            assert finder.discoverer._coming == set()

    with_finder(test)


def test_a_lapsed_lease_that_still_names_us_is_held_under_another_token():
    async def test(world, finder):
        world.put(lease(0, lease_owner="me"))
        await finder.discoverer.look_once()
        token = finder.renewer.held()[0].token
        await asyncio.sleep(11)
        assert finder.keys() == []
        await finder.discoverer.look_once()
        assert finder.renewer.held()[0].token != token

    with_finder(test)


def test_who_hears_of_assignments_asks_the_index_of_a_large_table_and_looks_when_woken():
    async def test(world, finder):
        world.put(*(lease(number, lease_owner="other") for number in range(30)))
        world.create_index()
        finder.informed = Informed.ANNOUNCED
        async with finder.running():
            await asyncio.sleep(LIVELY_S + 10)
            scans, queries = finder.count("Scan"), finder.count("Query")
            assert scans == 1
            await asyncio.sleep(300)
            assert finder.count("Scan") == scans
            assert finder.count("Query") - queries <= 5
            world.change(A, leaseOwner="me", leaseCounter=1)
            finder.discoverer.wake()
            await asyncio.sleep(0.5)
            assert finder.keys() == [A]

    with_finder(test)


def test_a_leader_looks_at_its_own_scans_only():
    async def test(world, finder):
        world.put(*(lease(number, lease_owner="other") for number in range(8)))
        finder.informed = Informed.LEADS

        async def lead():
            while True:
                await finder.store.scan()
                await asyncio.sleep(15)

        leading = asyncio.create_task(lead())
        async with finder.running():
            await asyncio.sleep(300)
            assert finder.count("Scan") == 20
        leading.cancel()

    with_finder(test)
