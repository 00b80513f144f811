"""The lease store on the fake table: conditions, lost answers, foreign and broken rows."""

import pytest

from kcl_mld.config.config import LeaseConfig
from kcl_mld.errors import (
    ConditionFailed,
    LeaseLost,
    MalformedData,
    NotFound,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from kcl_mld.kernel.model.sequence import SHARD_END, ExtendedSequenceNumber
from kcl_mld.kernel.pages import REPEATS
from kcl_mld.leases.lease_scan import MAX_SEGMENTS, segments_for
from kcl_mld.leases.model.lease_item import lease_from_item
from kcl_mld.streams.model.shard import HashRange
from tests.fakes.lease_world import TABLE, World, lease, nobody_has_left, on_table_with
from tests.sim.loop import run

KEY = "shardId-000000000000"
MINE = lease(lease_owner="me", lease_counter=7)
POSITION = ExtendedSequenceNumber("12", 3)


on_table = on_table_with(lambda world: world.store())


def stored(world, key=KEY):
    return lease_from_item(world.row(key))


# -- the holder's writes --------------------------------------------------------------------------

WRITES = {
    "renew": lambda store, row: store.renew(row),
    "checkpoint": lambda store, row: store.checkpoint(row, POSITION),
}


@pytest.mark.parametrize("write", WRITES)
def test_the_first_write_of_a_holder_and_a_creation_say_of_which_stream_a_row_is(write):
    async def test(world, store):
        store.holder.stream.arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/s"
        row = await WRITES[write](store, MINE)
        assert row == stored(world)
        assert row.stream_mark == "123456789012:eu-west-1:s"
        assert "kclMldStream" not in world.requests[-1][2]["UpdateExpression"].partition(",")[2]
        await WRITES[write](store, row)
        assert "kclMldStream" not in world.requests[-1][2]["UpdateExpression"]
        await store.create_if_absent(lease(1))
        assert stored(world, "shardId-000000000001").stream_mark == "123456789012:eu-west-1:s"

    on_table(test, MINE)


@pytest.mark.parametrize("write", WRITES)
def test_a_holders_write_raises_the_counter_by_one(write):
    async def test(world, store):
        row = await WRITES[write](store, MINE)
        assert row == stored(world)
        assert row.lease_counter == 8

    on_table(test, MINE)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    "change",
    [{"leaseCounter": 9}, {"leaseCounter": 8, "leaseOwner": "other"}, {"leaseOwner": "other"}],
)
def test_a_holder_whose_row_was_written_by_another_has_lost(write, change):
    async def test(world, store):
        world.change(KEY, **change)
        before = world.row(KEY)
        with pytest.raises(LeaseLost):
            await WRITES[write](store, MINE)
        assert world.row(KEY) == before

    on_table(test, MINE)


@pytest.mark.parametrize("write", WRITES)
def test_a_holder_whose_row_was_deleted_has_lost_and_does_not_bring_it_back(write):
    async def test(world, store):
        with pytest.raises(LeaseLost, match="deleted"):
            await WRITES[write](store, MINE)
        assert world.row(KEY) == {}

    on_table(test)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
def test_a_lost_answer_does_not_lose_the_lease(write, fault):
    async def test(world, store):
        world.fault(fault)
        row = await WRITES[write](store, MINE)
        assert row == stored(world)
        assert row.lease_owner == "me"
        assert row.checkpoint == (POSITION if write == "checkpoint" else MINE.checkpoint)

    on_table(test, MINE)


@pytest.mark.parametrize("write", WRITES)
def test_the_answer_that_proves_a_write_is_one_that_came(write):
    """After a lost answer it is written again: only then is it known when the counter moved."""

    async def test(world, store):
        world.fault("lose answer")
        await WRITES[write](store, MINE)
        assert stored(world).lease_counter == 9

    on_table(test, MINE)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
def test_when_reading_fails_too_the_outcome_stays_unknown(write, fault):
    async def test(world, store):
        world.fault(fault)
        world.fault("refuse", "GetItem")
        with pytest.raises(UnknownOutcome):
            await WRITES[write](store, MINE)
        # Whatever happened, the next write finds out.
        row = await WRITES[write](store, MINE)
        assert row == stored(world)
        assert row.lease_owner == "me"

    on_table(test, MINE)


@pytest.mark.parametrize("write", WRITES)
def test_a_lost_answer_and_then_another_owner_is_a_loss(write):
    async def test(world, store):
        world.fault("lose request")
        world.change(KEY, leaseCounter=8, leaseOwner="other")
        with pytest.raises(LeaseLost, match="other"):
            await WRITES[write](store, MINE)

    on_table(test, MINE)


@pytest.mark.parametrize("write", WRITES)
def test_answers_that_are_always_lost_end_as_unknown(write):
    async def test(world, store):
        world.fault("lose answer", times=99)
        with pytest.raises(UnknownOutcome, match="Unresolved"):
            await WRITES[write](store, MINE)
        assert stored(world).lease_owner == "me"

    on_table(test, MINE)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(("fault", "error"), [("throttle", Throttled), ("refuse", Unreachable)])
def test_refused_requests_change_nothing_and_are_not_repeated_here(write, fault, error):
    async def test(world, store):
        world.fault(fault)
        with pytest.raises(error):
            await WRITES[write](store, MINE)
        assert stored(world) == MINE

    on_table(test, MINE)


@pytest.mark.parametrize("write", WRITES)
def test_a_hand_off_that_began_is_learnt_and_does_not_stop_the_holder(write):
    async def test(world, store):
        world.change(KEY, leaseOwner="next", checkpointOwner="me")
        row = await WRITES[write](store, MINE)
        assert (row.lease_owner, row.checkpoint_owner, row.lease_counter) == ("next", "me", 8)
        row = await WRITES[write](store, row)
        assert stored(world) == row
        assert row.lease_counter == 9

    on_table(test, MINE)


@pytest.mark.parametrize("write", WRITES)
def test_a_hand_off_and_a_write_without_an_answer_do_not_stop_the_holder(write):
    """A stop cuts off the write that has just learnt of the hand-off, or the one before it."""

    async def test(world, store):
        world.change(KEY, leaseOwner="next", checkpointOwner="me", leaseCounter=8)
        row = await WRITES[write](store, MINE)
        assert (row.lease_owner, row.checkpoint_owner, row.lease_counter) == ("next", "me", 9)
        assert stored(world) == row

    on_table(test, MINE)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("holder", ["me", "other"])
def test_a_hand_off_that_is_not_one_from_us_loses_the_lease(write, holder):
    async def test(world, store):
        world.change(KEY, checkpointOwner=holder)
        before = world.row(KEY)
        with pytest.raises(LeaseLost):
            await WRITES[write](store, MINE)
        assert world.row(KEY) == before

    on_table(test, MINE)


def test_a_row_that_became_unreadable_or_another_thing_is_lost():
    async def test(world, store):
        world.change(KEY, leaseCounter=8, checkpoint="rubbish")
        with pytest.raises(LeaseLost, match="can't be read"):
            await store.renew(MINE)
        world.put_item({"leaseKey": {"S": KEY}, "entityType": {"S": "STREAM"}})
        with pytest.raises(LeaseLost, match="not a lease"):
            await store.renew(MINE)

    on_table(test, MINE)


def test_a_checkpoint_at_the_end_stores_the_children_too():
    async def test(world, store):
        row = await store.checkpoint(MINE, SHARD_END, child_shard_ids=("shardId-2", "shardId-1"))
        assert row == stored(world)
        assert row.is_finished
        assert row.child_shard_ids == ("shardId-1", "shardId-2")

    on_table(test, MINE)


def test_a_checkpoint_on_top_of_a_renewal_of_unknown_outcome_is_stored():
    async def test(world, store):
        world.fault("lose answer")
        world.fault("refuse", "GetItem")
        with pytest.raises(UnknownOutcome):
            await store.renew(MINE)
        row = await store.checkpoint(MINE, POSITION)
        assert row == stored(world)
        assert (row.checkpoint, row.lease_counter) == (POSITION, 9)

    on_table(test, MINE)


def test_a_refusal_without_the_row_is_followed_by_a_consistent_read():
    async def test(world, store):
        world.fault("refuse", error=ConditionFailed("UpdateItem"))
        row = await store.renew(MINE)
        assert row.lease_counter == 8
        (read,) = [request for _, operation, request in world.requests if operation == "GetItem"]
        assert read["ConsistentRead"] is True

    on_table(test, MINE)


def test_a_refusal_without_the_row_and_without_a_read_is_the_error_of_the_read():
    async def test(world, store):
        world.fault("refuse", error=ConditionFailed("UpdateItem"))
        world.fault("throttle", "GetItem")
        with pytest.raises(Throttled):
            await store.renew(MINE)

    on_table(test, MINE)


# -- release --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [None, "lose answer", "lose request"])
def test_a_released_lease_has_no_owner(fault):
    async def test(world, store):
        if fault:
            world.fault(fault)
        assert await store.evict(MINE, nobody_has_left)
        assert "leaseOwner" not in world.row(KEY)
        assert stored(world).lease_counter == 8

    on_table(test, MINE)


def test_an_unanswered_release_after_which_another_has_taken_it_was_a_release():
    async def test(world, store):
        world.fault("lose request")
        world.change(KEY, leaseCounter=9, leaseOwner="other")
        assert await store.evict(MINE, nobody_has_left)

    on_table(test, MINE)


def test_a_lease_of_another_is_not_released():
    async def test(world, store):
        world.change(KEY, leaseCounter=8, leaseOwner="other")
        assert not await store.evict(MINE, nobody_has_left)
        assert stored(world).lease_owner == "other"

    on_table(test, MINE)


def test_releasing_during_a_hand_off_hands_over():
    async def test(world, store):
        world.change(KEY, leaseOwner="next", checkpointOwner="me")
        assert await store.evict(MINE, nobody_has_left)
        row = stored(world)
        assert (row.lease_owner, row.checkpoint_owner, row.lease_counter) == ("next", None, 8)

    on_table(test, MINE)


@pytest.mark.parametrize("fault", [None, "lose answer", "lose request"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_lease_whose_next_owner_has_left_is_released(fault, is_known):
    """Both workers stop: the other one would be the owner of a lease that nobody reads."""

    async def test(world, store):
        asked = []

        async def has_left(worker):
            asked.append(worker)
            return True

        world.change(KEY, leaseOwner="next", checkpointOwner="me")
        if fault:
            world.fault(fault)
        row = await store.evict(stored(world) if is_known else MINE, has_left)
        assert row == stored(world)
        assert (row.lease_owner, row.checkpoint_owner, row.lease_counter) == (None, None, 8)
        assert set(asked) == {"next"}

    on_table(test, MINE)


def test_nobody_is_asked_about_where_a_lease_has_no_next_owner():
    async def test(world, store):
        assert (await store.evict(MINE, None)).lease_owner is None

    on_table(test, MINE)


# -- taking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [None, "lose answer", "lose request"])
@pytest.mark.parametrize("owner", [None, "old"])
def test_a_lease_is_taken_from_whom_the_scan_showed(fault, owner):
    async def test(world, store):
        if fault:
            world.fault(fault)
        row = await store.take(lease(lease_owner=owner), "me")
        assert row == stored(world)
        assert row.lease_owner == "me"
        assert row.owner_switches_since_checkpoint == (1 if owner else 0)

    on_table(test, lease(lease_owner=owner))


@pytest.mark.parametrize("fault", [None, "lose request"])
def test_of_two_takers_one_wins(fault):
    async def test(world, store):
        assert await store.take(lease(lease_counter=4), "other")
        if fault:
            world.fault(fault)
        assert await store.take(lease(lease_counter=4), "me") is None
        assert stored(world).lease_owner == "other"

    on_table(test, lease(lease_counter=4))


def test_a_deleted_lease_is_not_taken():
    async def test(world, store):
        assert await store.take(lease(), "me") is None
        assert world.row(KEY) == {}

    on_table(test)


def test_taking_without_any_answer_ends_as_unknown():
    async def test(world, store):
        world.fault("lose answer", times=99)
        with pytest.raises(UnknownOutcome):
            await store.take(lease(), "me")

    on_table(test, lease())


# -- rows -----------------------------------------------------------------------------------------


def test_a_row_is_created_once():
    async def test(world, store):
        assert await store.create_if_absent(lease())
        assert not await store.create_if_absent(lease(lease_owner="x"))
        assert stored(world) == lease()

    on_table(test)


@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
def test_creating_survives_a_lost_answer(fault):
    async def test(world, store):
        world.fault(fault, "PutItem")
        assert await store.create_if_absent(lease())
        assert stored(world) == lease()

    on_table(test)


def test_a_row_that_is_further_on_was_not_created_by_us():
    async def test(world, store):
        world.fault("lose request", "PutItem")
        assert not await store.create_if_absent(lease())

    on_table(test, MINE)


def test_a_row_that_cannot_be_read_was_not_created_by_us():
    async def test(world, store):
        world.change(MINE.lease_key, leaseCounter="x")
        world.fault("lose request", "PutItem")
        assert not await store.create_if_absent(lease())

    on_table(test, MINE)


def test_creating_without_any_answer_ends_as_unknown():
    async def test(world, store):
        world.fault("lose request", "PutItem", times=99)
        with pytest.raises(UnknownOutcome):
            await store.create_if_absent(lease())

    on_table(test)


def test_children_and_hash_range_are_filled_in_without_touching_the_counter():
    async def test(world, store):
        assert await store.write_children(KEY, ("shardId-1",))
        assert await store.write_hash_range(KEY, HashRange(3, 4))
        row = stored(world)
        assert (row.child_shard_ids, row.hash_range) == (("shardId-1",), HashRange(3, 4))
        assert row.lease_counter == 7

    on_table(test, MINE)


def test_nothing_is_filled_into_a_row_that_is_gone_nor_a_range_that_java_cannot_read():
    async def test(world, store):
        assert not await store.write_children("gone", ("shardId-1",))
        assert not await store.write_hash_range("gone", HashRange(3, 4))
        assert not await store.write_hash_range(KEY, HashRange(3, 3))
        assert stored(world) == MINE
        assert world.row("gone") == {}

    on_table(test, MINE)


def test_filling_in_is_repeated_after_a_lost_answer_but_not_for_ever():
    async def test(world, store):
        world.fault("lose answer", times=2)
        assert await store.write_children(KEY, ("shardId-1",))
        world.fault("lose answer", times=3)
        with pytest.raises(UnknownOutcome):
            await store.write_children(KEY, ("shardId-1",))

    on_table(test, MINE)


FINISHED = lease(checkpoint=SHARD_END)


@pytest.mark.parametrize("fault", [None, "lose answer", "lose request"])
def test_a_finished_lease_is_deleted(fault):
    async def test(world, store):
        if fault:
            world.fault(fault, "DeleteItem")
        assert await store.delete(KEY, only_finished=True)
        assert world.row(KEY) == {}
        assert await store.delete(KEY, only_finished=True)

    on_table(test, FINISHED)


def test_an_unfinished_lease_is_deleted_only_when_that_is_wanted():
    async def test(world, store):
        assert not await store.delete(KEY, only_finished=True)
        assert stored(world) == MINE
        assert await store.delete(KEY, only_finished=False)
        assert world.row(KEY) == {}

    on_table(test, MINE)


def test_what_is_no_lease_is_never_deleted():
    async def test(world, store):
        world.put_item({"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}})
        assert not await store.delete("Leader", only_finished=False)
        assert world.row("Leader")

    on_table(test)


def test_deleting_without_any_answer_ends_as_unknown():
    async def test(world, store):
        world.fault("lose request", "DeleteItem", times=99)
        with pytest.raises(UnknownOutcome):
            await store.delete(KEY, only_finished=False)

    on_table(test, MINE)


# -- reading --------------------------------------------------------------------------------------


def test_one_lease_can_be_read():
    async def test(world, store):
        assert await store.get(KEY) == MINE
        assert await store.get("gone", consistent=True) is None
        world.put_item({"leaseKey": {"S": "w1"}, "entityType": {"S": "WORKER_METRIC_STATS"}})
        with pytest.raises(MalformedData):
            await store.get("w1")

    on_table(test, MINE)


def test_a_scan_sorts_leases_sets_aside_what_is_none_and_what_cannot_be_read():
    async def test(world, store):
        world.put(lease(2), lease(1))
        world.put_item({"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}})
        world.put_item({"leaseKey": {"S": "bad"}, "leaseOwner": {"S": "w"}})
        scan = await store.scan()
        assert [row.lease_key for row in scan.leases] == [lease(1).lease_key, lease(2).lease_key]
        assert list(scan.foreign) == ["Leader"]
        assert scan.broken == (("bad", "leaseCounter is missing"),)
        assert store.last_scan is scan
        assert await store.scanned.wait(0)

    on_table(test)


def test_the_next_scan_reads_anew_whatever_has_changed_in_a_row():
    async def test(world, store):
        world.put(lease(1), lease(2), lease(3), lease(4))
        before = {row.lease_key: row for row in (await store.scan()).leases}
        kept, raised, broken, gone = sorted(before)
        world.change(raised, leaseCounter=9)
        world.change(broken, leaseCounter=None)
        key = {"leaseKey": {"S": gone}}
        world.model.call("DeleteItem", {"TableName": TABLE, "Key": key})
        scan = await store.scan()
        assert [row.lease_key for row in scan.leases] == [kept, raised]
        assert scan.leases[0] is before[kept]
        assert scan.leases[1].lease_counter == 9
        for _ in range(2):
            assert (await store.scan()).broken == ((broken, "leaseCounter is missing"),)
        world.put(lease(4, lease_owner="new"), lease(3))
        assert (await store.scan()).leases == (*scan.leases, lease(3), lease(4, lease_owner="new"))

    on_table(test)


@pytest.mark.parametrize("segments", [0, 1, 4])
def test_all_pages_of_all_segments_are_read(segments):
    async def test(world, store):
        world.model.settings.page_items = 3
        scan = await store.scan()
        assert len(scan.leases) == 20
        assert len({row.lease_key for row in scan.leases}) == 20

    on_table(
        test,
        *(lease(n) for n in range(20)),
        config=LeaseConfig(table_name=TABLE, scan_segments=segments),
    )


@pytest.mark.parametrize("segments", [1, 4])
def test_a_scan_that_fails_anywhere_fails(segments):
    async def test(world, store):
        world.fault("refuse", "Scan")
        with pytest.raises(Unreachable):
            await store.scan()
        assert store.last_scan is None

    on_table(test, lease(), config=LeaseConfig(table_name=TABLE, scan_segments=segments))


def test_a_throttled_page_of_a_scan_is_read_again():
    """A leader whose scan fails three times leaves its fleet without one."""

    async def test(world, store):
        world.fault("throttle", "Scan", times=REPEATS)
        assert [row.lease_key for row in (await store.scan()).leases] == [KEY]
        world.fault("throttle", "Scan", times=1 + REPEATS)
        with pytest.raises(Throttled):
            await store.scan()

    on_table(test, lease())


@pytest.mark.parametrize(
    ("size", "segments"),
    [(0, 1), (2**30 // 5, 1), (int(0.21 * 2**30), 2), (100 * 2**30, MAX_SEGMENTS)],
)
def test_large_tables_are_scanned_in_segments(size, segments):
    assert segments_for(size) == segments


def test_without_its_table_nothing_works():
    async def main():
        store = World().store()
        with pytest.raises(NotFound):
            await store.scan()
        with pytest.raises(NotFound):
            await store.renew(MINE)

    run(main())
