"""Elections: when they are held, and what a failing table does to them."""

import asyncio

from tests.fakes.lease_world import lease, on_table_with

on_table = on_table_with(lambda world: world.worker("me").elector)


def scans(world):
    return sum(operation == "Scan" for _, operation, _ in world.requests)


def test_while_no_lease_has_an_owner_everybody_leads():
    async def test(world, elector):
        assert await elector.is_leader()
        assert elector.leader is None

    on_table(test, lease())


def test_the_owners_of_leases_elect_expired_ones_too():
    async def test(world, elector):
        assert not await elector.is_leader()
        assert elector.leader == "i"

    on_table(test, *(lease(n, lease_owner=name) for n, name in enumerate("abcdefghij")))


def test_elections_are_held_at_the_first_question_after_a_minute_and_then_every_five():
    async def test(world, elector):
        assert await elector.is_leader()
        world.change(lease().lease_key, leaseOwner="other")
        await asyncio.sleep(59)
        assert await elector.is_leader()
        await asyncio.sleep(1.1)
        assert not await elector.is_leader()
        world.change(lease().lease_key, leaseOwner="me")
        await asyncio.sleep(299)
        assert not await elector.is_leader()
        await asyncio.sleep(1.1)
        assert await elector.is_leader()
        assert scans(world) == 3

    on_table(test, lease(lease_owner="me"))


def test_a_failed_listing_keeps_the_old_answer():
    async def test(world, elector):
        assert await elector.is_leader()
        world.fault("refuse", "Scan")
        await asyncio.sleep(61)
        assert await elector.is_leader()
        assert elector.leader == "me"

    on_table(test, lease(lease_owner="me"))


def test_before_the_first_listing_nobody_leads_and_the_next_question_tries_again():
    async def test(world, elector):
        world.fault("refuse", "Scan")
        assert not await elector.is_leader()
        assert await elector.is_leader()

    on_table(test, lease(lease_owner="me"))


def test_a_fresh_scan_of_somebody_else_serves():
    async def test(world, elector):
        await elector._store.scan()
        assert await elector.is_leader()
        assert scans(world) == 1
        await asyncio.sleep(61)
        await elector.is_leader()
        assert scans(world) == 2

    on_table(test, lease(lease_owner="me"))
