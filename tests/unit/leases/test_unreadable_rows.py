"""Rows that can't be read: said, repeated, counted, and a reason against readiness."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

from kcl_mld.leases.lease_scan import REPEAT_S
from kcl_mld.leases.lease_store import LeaseStore
from kcl_mld.signals.model.conditions import Reason
from tests.fakes.lease_world import TABLE, World, lease
from tests.fakes.shard_world import simulated

BAD = {"leaseKey": {"S": "bad"}, "leaseOwner": {"S": "w"}}


def errors(caplog):
    return [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]


async def scanned(world: World, me, minutes: float) -> None:
    for _ in range(int(minutes * 3)):
        await me.store.scan()
        await asyncio.sleep(20)


@simulated
async def test_a_row_that_stays_unreadable_is_said_each_minute_until_it_is_mended(caplog):
    world = World()
    world.create_table()
    world.put(lease(1))
    me = world.worker("me")
    await scanned(world, me, 1)
    assert world.conditions.current() == ()
    assert ("TakeLeases", "UnreadableLeases") not in world.metrics.values

    world.put_item(BAD)
    await scanned(world, me, 5)
    first, *again = errors(caplog)
    assert first == f"The row bad of {TABLE} can't be read: leaseCounter is missing"
    assert len(again) == 4
    (condition,) = world.conditions.current()
    assert condition.reason is Reason.UNREADABLE_ROWS
    assert condition.message == (
        "1 row of the lease table app can't be read, so no worker can take their shards. "
        "Repair them; a row that is deleted loses its checkpoint (bad: leaseCounter is missing)"
    )
    assert set(again) == {condition.message}

    world.model.call("DeleteItem", {"TableName": TABLE, "Key": {"leaseKey": {"S": "bad"}}})
    await scanned(world, me, 5)
    assert len(errors(caplog)) == 5
    assert world.conditions.current() == ()
    mended = "The row bad of app can be read again, or is gone"
    assert caplog.messages.count(mended) == 1
    counts = world.metrics.values["TakeLeases", "UnreadableLeases"]
    assert counts == [1] * 15 + [0]


@simulated
async def test_many_rows_are_named_by_three(caplog):
    world = World()
    world.create_table()
    for number in range(5):
        world.put_item({**BAD, "leaseKey": {"S": f"bad{number}"}})
    me = world.worker("me")
    await me.store.scan()
    await asyncio.sleep(REPEAT_S)
    await me.store.scan()
    assert errors(caplog)[-1].startswith("5 rows of the lease table app can't be read")
    assert errors(caplog)[-1].endswith("bad2: leaseCounter is missing; and 2 more)")
    assert len(errors(caplog)) == 6


@simulated
async def test_a_row_that_gets_another_fault_is_said_again(caplog):
    world = World()
    world.create_table()
    world.put_item(BAD)
    me = world.worker("me")
    await me.store.scan()
    world.put_item({**BAD, "leaseCounter": {"S": "many"}})
    await me.store.scan()
    assert len(errors(caplog)) == 2


@pytest.mark.parametrize(
    ("counter", "why"),
    [
        ({"N": "9" * 38}, "at most 37 digits"),
        (7, "TypeError"),  # of a server that is none
        ({"S": "x" * 10**6}, "leaseCounter is of type S"),
        ({"N": "x" * 10**6}, "leaseCounter is 'xxx"),
    ],
)
@simulated
async def test_whatever_a_row_does_to_its_reader_costs_its_shard_alone(counter, why):
    world = World()
    world.create_table()
    world.put(lease(1))
    dynamodb = world.dynamodb("me")
    (row,) = (await dynamodb.scan(TableName=TABLE))["Items"]
    bad = {**row, "leaseKey": {"S": "bad"}, "leaseCounter": counter}

    async def scan(**_request):
        return {"Items": [row, bad]}

    dynamodb.scan = scan
    found = await LeaseStore(dynamodb, world.config, world.clock, random.Random(0)).scan()
    assert [one.lease_key for one in found.leases] == [lease(1).lease_key]
    ((key, text),) = found.broken
    assert key == "bad"
    assert why in text
    assert len(text) < 200
