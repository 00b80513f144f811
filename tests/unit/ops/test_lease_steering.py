"""Commands that change leases, on the fake table: lost answers, and others who write meanwhile."""

import asyncio

import pytest

from kcl_mld.errors import Throttled, UnknownOutcome
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.model.lease_item import lease_from_item
from kcl_mld.leases.model.lease_request import LeaseRequest
from kcl_mld.ops.lease_steering import SHIELD_S, LeaseSteering
from kcl_mld.ops.rules.steering import SteerStep, SteerWay
from tests.fakes.lease_world import lease, on_table_with

NINE = ExtendedSequenceNumber("9")
ROW = lease(lease_owner="me", holder="me", lease_counter=7, checkpoint=NINE)
OTHER = lease(1, lease_counter=3, checkpoint=NINE)
KEY = ROW.lease_key
SOON = 3600.0

on_table = on_table_with(
    lambda world: LeaseSteering(world.dynamodb("person"), world.store("person"), world.clock)
)


def request(world, verb="release", **fields):
    position = {"sequence_number": "TRIM_HORIZON"} if verb == "reset" else {}
    wall_s = world.clock.wall()
    return LeaseRequest(
        **{"request_id": "r1", "verb": verb, "expires_s": wall_s + SOON, "by": "a@b"}
        | position
        | fields
    )


def stored(world, key=KEY):
    return lease_from_item(world.row(key))


def written(row=ROW, position=None):
    return SteerStep(lease=row, way=SteerWay.WRITE, position=position)


ASKED = SteerStep(lease=ROW, way=SteerWay.ASK)


@pytest.mark.parametrize("faults", [[], ["lose answer"], ["lose request"], ["lose answer"] * 2])
def test_a_row_at_rest_is_written_once(faults):
    async def test(world, steering):
        for fault in faults:
            world.fault(fault)
        assert await steering.carry_out(written(), request(world, "reset"), 1) is None
        row = stored(world)
        assert (row.checkpoint, row.lease_owner, row.lease_counter) == (TRIM_HORIZON, None, 8)

    on_table(test, ROW)


def test_what_is_not_known_after_several_tries_is_an_error():
    async def test(world, steering):
        for _ in range(3):
            world.fault("lose request")
        with pytest.raises(UnknownOutcome):
            await steering.carry_out(written(), request(world, "reset"), 1)
        assert stored(world).lease_counter == 7

    on_table(test, ROW)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"leaseCounter": 8}, "its owner is me now"),
        ({"leaseOwner": "other"}, "its owner is other now"),
        ({"leaseOwner": None}, "its owner is nobody now"),
    ],
)
@pytest.mark.parametrize("verb", ["reset", "delete"])
def test_a_row_that_was_written_meanwhile_is_left_alone(change, why, verb):
    async def test(world, steering):
        world.change(KEY, **change)
        before = world.row(KEY)
        assert why in await steering.carry_out(written(), request(world, verb), 1)
        assert world.row(KEY) == before

    on_table(test, ROW)


def test_a_row_that_is_gone():
    async def test(world, steering):
        assert await steering.carry_out(written(), request(world), 1) == "its row is gone"
        asked = request(world, holder="me")
        assert await steering.carry_out(ASKED, asked, 1) == "its row is gone"
        assert await steering.carry_out(written(), request(world, "delete"), 1) is None

    on_table(test)


@pytest.mark.parametrize("fault", [None, "lose answer", "lose request"])
def test_a_holder_does_what_it_is_asked_for(fault):
    async def test(world, steering):
        world.change(KEY, kclMldHolder="me")
        asked = request(world, holder="me")
        if fault:
            world.fault(fault)

        async def hold():
            store, row = world.store("me"), ROW
            while row.request is None:
                await asyncio.sleep(1)
                row = await store.renew(row)
            await store.carry_out(row, row.request, 5.0)

        holding = asyncio.ensure_future(hold())
        assert await steering.carry_out(ASKED, asked, 10) is None
        await holding
        assert stored(world).lease_owner is None

    on_table(test, ROW)


def test_a_holder_that_does_nothing_is_asked_no_longer():
    async def test(world, steering):
        world.change(KEY, kclMldHolder="me")
        asked = request(world, holder="me")
        assert "did not do it in time" in await steering.carry_out(ASKED, asked, 3)
        assert stored(world).request is None
        again = asyncio.ensure_future(steering.carry_out(ASKED, asked, 30))
        await asyncio.sleep(2)
        assert stored(world).request == asked
        world.change(KEY, leaseOwner="other")
        assert "did not do it in time" in await again
        assert stored(world).request is None

    on_table(test, ROW)


def test_a_holder_that_withdraws_a_request_could_not_do_it():
    async def test(world, steering):
        world.change(KEY, kclMldHolder="me")
        asked = request(world, holder="me")
        asking = asyncio.ensure_future(steering.carry_out(ASKED, asked, 30))
        await asyncio.sleep(1)
        await world.store("me").withdraw(KEY, asked)
        await asyncio.sleep(1)
        assert asking.done()
        assert await asking == "me could not do it, and its log says why"
        await world.store("me").withdraw(KEY, asked)  # there is nothing to withdraw any more

    on_table(test, ROW)


@pytest.mark.parametrize("end", ["interrupt", "cancel", "error"])
@pytest.mark.parametrize("after_s", [0.0, 0.4, 5.0])
def test_a_command_that_ends_early_takes_back_what_it_asked(end, after_s):
    """Also while the request is on its way: it must not arrive afterwards."""

    async def test(world, steering):
        world.change(KEY, kclMldHolder="me")
        world.fault("slow", "UpdateItem", seconds=0.7)
        asking = asyncio.ensure_future(steering.carry_out(ASKED, request(world, holder="me"), 30))
        await asyncio.sleep(after_s)
        if after_s > 1:
            assert stored(world).request is not None
        if end == "interrupt":
            steering.interrupt()
            assert await asking == "the command was interrupted, and the request was withdrawn"
            assert await steering.carry_out(ASKED, request(world), 1) == (
                "the command was interrupted before"
            )
            assert await steering.carry_out_together([], (), "t") == (
                "the command was interrupted before"
            )
        elif end == "cancel":
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        else:
            world.fault("throttle", "GetItem")
            with pytest.raises(Throttled):
                await asking
        assert steering.asked == {}
        await asyncio.sleep(5)
        assert stored(world).request is None

    on_table(test, ROW)


def test_a_request_that_was_carried_out_at_the_last_moment_is_done():
    async def test(world, steering):
        world.change(KEY, kclMldHolder="me")
        asked = request(world, "pause", holder="me", until_s=9e9)
        asking = asyncio.ensure_future(steering.carry_out(ASKED, asked, 30))
        await asyncio.sleep(0.2)
        await world.store("me").carry_out(stored(world), asked, 5.0)
        steering.interrupt()
        assert await asking is None
        assert steering.asked == {}

    on_table(test, ROW)


@pytest.mark.parametrize("end", ["interrupt", "cancel"])
def test_what_could_not_be_taken_back_is_known(end):
    async def test(world, steering):
        world.change(KEY, kclMldHolder="me")
        asked = request(world, holder="me")
        asking = asyncio.ensure_future(steering.carry_out(ASKED, asked, 30))
        await asyncio.sleep(1)
        world.fault("throttle", "UpdateItem")
        if end == "interrupt":
            steering.interrupt()
            with pytest.raises(Throttled):
                await asking
        else:
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert steering.asked == {KEY: asked}
        assert stored(world).request == asked

    on_table(test, ROW)


def test_a_table_that_does_not_answer_holds_a_command_up_for_its_shield_only():
    async def test(world, steering):
        world.change(KEY, kclMldHolder="me")
        asking = asyncio.ensure_future(steering.carry_out(ASKED, request(world, holder="me"), 30))
        await asyncio.sleep(1)
        world.fault("slow", "UpdateItem", seconds=60.0)
        began_at = world.clock.monotonic()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert world.clock.monotonic() - began_at == pytest.approx(SHIELD_S)
        assert steering.asked

    on_table(test, ROW)


@pytest.mark.parametrize("faults", [[], ["lose answer"], ["lose request"]])
def test_the_request_of_a_command_that_is_gone_is_withdrawn_as_it_was_read(faults):
    async def test(world, steering):
        world.change(KEY, kclMldHolder="me")
        asked = request(world, holder="me")
        other = request(world, holder="me", request_id="r2")
        world.change(KEY, kclMldRequest=asked.text)
        step, withdrawal = written(stored(world)), request(world, "withdraw")
        for fault in faults:
            world.fault(fault)
        assert await steering.carry_out(step, withdrawal, 1) is None
        assert stored(world).request is None
        assert stored(world).lease_counter == ROW.lease_counter
        assert await steering.carry_out(step, withdrawal, 1) is None  # it is gone
        assert await steering.carry_out(written(), withdrawal, 1) is None  # nothing was asked
        world.change(KEY, kclMldRequest=asked.text)
        await world.store("me").carry_out(stored(world), asked, 5.0)
        why = await steering.carry_out(step, withdrawal, 1)
        assert why == "me has done it meanwhile"
        world.change(KEY, kclMldRequest=other.text, kclMldSteered=None)
        assert await steering.carry_out(step, withdrawal, 1) is None
        assert stored(world).request == other

    on_table(test, ROW)


def test_a_request_that_cannot_be_read_is_named():
    async def test(world, steering):
        world.change(KEY, kclMldHolder="me", kclMldRequest="{")
        why = await steering.carry_out(ASKED, request(world, holder="me"), 30)
        assert "kclMldRequest can't be read" in why
        world.change(KEY, kclMldHolder="other")
        why = await steering.carry_out(ASKED, request(world, holder="me"), 30)
        assert "written meanwhile" in why

    on_table(test, ROW)


def test_one_request_waits_at_a_time():
    async def test(world, steering):
        world.change(KEY, kclMldHolder="me")
        first = request(world, holder="me")
        waiting = asyncio.ensure_future(steering.carry_out(ASKED, first, 30))
        await asyncio.sleep(1)
        second = request(world, "resume", holder="me", request_id="r2")
        why = await steering.carry_out(ASKED, second, 30)
        assert why == (
            "another request waits for its holder: release by a@b; kcl-mld leases withdraw takes it "
            "back"
        )
        assert stored(world).request == first
        waiting.cancel()

    on_table(test, ROW)


def test_a_holder_that_changed_is_not_asked():
    async def test(world, steering):
        world.change(KEY, leaseOwner="java")
        why = await steering.carry_out(ASKED, request(world, holder="me"), 3)
        assert "its owner is java now" in why

    on_table(test, ROW)


@pytest.mark.parametrize("faults", [0, 1, 2])
def test_rows_change_together_or_not_at_all(faults):
    async def test(world, steering):
        new = lease(2)
        rows = (ROW, OTHER, new)
        pairs = [
            (
                SteerStep(lease=row, way=SteerWay.TOGETHER, position=TRIM_HORIZON),
                request(world, "reset"),
            )
            for row in rows
        ]
        keys = {ROW.lease_key, OTHER.lease_key}
        world.change(KEY, leaseCounter=8)
        why = await steering.carry_out_together(pairs, keys, "t1")
        assert why == f"nothing was changed: written meanwhile were {KEY}"
        assert stored(world, OTHER.lease_key).checkpoint == NINE
        assert not world.row(new.lease_key)
        world.change(KEY, leaseCounter=7)
        for _ in range(faults):
            world.fault("lose answer", "TransactWriteItems")
        assert await steering.carry_out_together(pairs, keys, "t2") is None
        for row in rows:
            assert stored(world, row.lease_key).checkpoint == TRIM_HORIZON
        assert stored(world, OTHER.lease_key).lease_counter == 4

    on_table(test, ROW, OTHER)


def test_a_transaction_without_an_answer_is_an_error_after_several_tries():
    async def test(world, steering):
        for _ in range(3):
            world.fault("lose request", "TransactWriteItems")
        step = SteerStep(lease=ROW, way=SteerWay.TOGETHER, position=TRIM_HORIZON)
        with pytest.raises(UnknownOutcome):
            await steering.carry_out_together([(step, request(world, "reset"))], {KEY}, "t")

    on_table(test, ROW)
