from __future__ import annotations

import asyncio
import logging

import pytest

from kcl_mld.config.stream import Stream
from kcl_mld.errors import (
    Denied,
    InconsistentShards,
    NotFound,
    ResourceMissing,
    StreamNotReady,
    Throttled,
    UnknownOutcome,
)
from kcl_mld.kernel.model.sequence import (
    LATEST as LATEST_POSITION,
    ExtendedSequenceNumber,
    Sentinel,
)
from kcl_mld.shards.shard_syncer import CONFIRMED_S
from kcl_mld.shards.stream_sync import OUTDATED_S
from kcl_mld.streams.model.shard import HashRange
from tests.fakes.lease_world import lease
from tests.fakes.shard_world import HALF, MOVING, ShardWorld, shard_id, simulated

LATEST, TRIM_HORIZON, AT_TIMESTAMP = Sentinel.LATEST, Sentinel.TRIM_HORIZON, Sentinel.AT_TIMESTAMP
MOVING_POSITION = ExtendedSequenceNumber(MOVING)


def filters(world):
    return [
        request.get("ShardFilter")
        for operation, request in world.calls
        if operation == "ListShards"
    ]


# -- start ---------------------------------------------------------------------------------------


@simulated
async def test_an_empty_table_is_filled_at_once():
    world = ShardWorld(3, LATEST)
    outcome = await world.syncer.sync_if_empty()
    assert world.checkpoints() == {"0": "LATEST", "1": "LATEST", "2": "LATEST"}
    assert filters(world) == [{"Type": "AT_LATEST"}]
    assert outcome.performed
    assert str(outcome) == "shard sync (empty table) created 3 leases"
    assert world.clock.monotonic() < 0.1
    row = world.row(shard_id(1))
    assert row["entityType"] == {"S": "LEASE"}
    assert "leaseOwner" not in row


@simulated
async def test_the_filter_follows_the_initial_position():
    world = ShardWorld(1, AT_TIMESTAMP, timestamp_s=1_700_000_000.0)
    await world.syncer.sync_if_empty()
    assert filters(world) == [{"Type": "AT_TIMESTAMP", "Timestamp": 1_700_000_000.0}]
    assert world.checkpoints() == {"0": "AT_TIMESTAMP"}


@simulated
async def test_a_table_with_leases_is_left_alone():
    world = ShardWorld(2)
    world.put(lease(0, lease_counter=1))
    outcome = await world.syncer.sync_if_empty()
    assert not outcome.performed
    assert str(outcome) == "no shard sync: the table has leases"
    assert world.checkpoints() == {"0": "TRIM_HORIZON"}


@pytest.mark.parametrize("who", ["the same worker", "another worker"])
def test_a_filling_that_stopped_halfway_is_finished_by_the_next_start(who):
    @simulated
    async def main():
        world = ShardWorld(3, LATEST)
        create = world.lease_store.create_if_absent

        async def throttled(row):
            if row.shard_id == shard_id(1):
                raise Throttled("PutItem", "ThrottlingException")
            return await create(row)

        world.lease_store.create_if_absent = throttled
        with pytest.raises(Throttled):
            await world.syncer.sync_if_empty()
        assert set(world.checkpoints()) == {"0"}
        world.lease_store.create_if_absent = create
        if who == "the same worker":  # it knows, although somebody reads the first shard by now
            world.put(lease(0, checkpoint=LATEST_POSITION, lease_owner="b", lease_counter=3))
            syncer = world.syncer
        else:
            syncer = world.new_syncer()
        assert (await syncer.sync_if_empty()).created == (shard_id(1), shard_id(2))
        assert set(world.checkpoints().values()) == {"LATEST"}
        if who == "the same worker":
            assert not (await syncer.sync_if_empty()).performed

    main()


@simulated
async def test_other_items_do_not_make_a_table_full():
    world = ShardWorld(1)
    world.put_item({"leaseKey": {"S": "Migration"}, "entityType": {"S": "MIGRATION"}})
    assert (await world.syncer.sync_if_empty()).created == (shard_id(0),)


@simulated
async def test_unreadable_leases_make_a_table_full():
    world = ShardWorld(1)
    world.put_item({"leaseKey": {"S": shard_id(0)}, "leaseCounter": {"S": "x"}})
    assert not (await world.syncer.sync_if_empty()).performed


@pytest.mark.parametrize("rows", [(), (lease(0),)])
@simulated
async def test_a_missing_stream_fails_the_start(rows):
    world = ShardWorld(0)
    world.put(*rows)
    with pytest.raises(NotFound):
        await world.syncer.sync_if_empty()


@simulated
async def test_a_table_with_leases_starts_without_a_shard_list():
    world = ShardWorld(1)
    world.put(lease(0, lease_counter=1))
    world.fail("ListShards", Denied("ListShards", "AccessDeniedException"))
    assert not (await world.syncer.sync_if_empty()).performed


@simulated
async def test_a_table_with_leases_does_not_wait_for_a_shard_list():
    world = ShardWorld(1)
    world.put(lease(0, lease_counter=1))
    world.fail("ListShards", UnknownOutcome("ListShards", "ReadTimeoutError"), 100)
    assert not (await world.syncer.sync_if_empty()).performed
    assert 1.9 < world.clock.monotonic() < 2.1


@simulated
async def test_a_stream_that_is_not_ready_fails_the_start():
    world = ShardWorld(1)
    world.fail("ListShards", StreamNotReady("ListShards", "ResourceInUseException"))
    with pytest.raises(StreamNotReady):
        await world.syncer.sync_if_empty()
    assert world.metrics.values["ShardSyncTask", "Success"] == [0]


class Lists:
    """Answers ListShards from a script; the last answer stays."""

    def __init__(self, world, *answers):
        self.answers = list(answers)
        self.times = []
        self.clock = world.clock
        world.kinesis.list_shards = self.list_shards

    async def list_shards(self, **_request):
        self.times.append(self.clock.monotonic())
        shards = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {"Shards": shards}


def listed(number, start, end, *, parent=None, closed=False):
    sequence = {"StartingSequenceNumber": str(number)}
    if closed:
        sequence["EndingSequenceNumber"] = str(number + 100)
    entry = {
        "ShardId": shard_id(number),
        "HashKeyRange": {"StartingHashKey": str(start), "EndingHashKey": str(end)},
        "SequenceNumberRange": sequence,
    }
    return entry | ({"ParentShardId": shard_id(parent)} if parent is not None else {})


TOP = 2**128 - 1
COMPLETE = [listed(0, 0, HALF - 1), listed(1, HALF, TOP)]
HOLE = [listed(0, 0, HALF - 2), listed(1, HALF, TOP)]


@simulated
async def test_a_list_with_a_hole_is_asked_for_three_times_a_second_apart():
    world = ShardWorld(0)
    lists = Lists(world, HOLE)
    with pytest.raises(InconsistentShards, match="incomplete after 3 tries"):
        await world.syncer.sync_if_empty()
    assert [round(time) for time in lists.times] == [0, 1, 2]
    assert world.checkpoints() == {}


@simulated
async def test_a_list_that_gets_complete_is_used():
    world = ShardWorld(0)
    Lists(world, HOLE, HOLE, COMPLETE)
    await world.syncer.sync_if_empty()
    assert set(world.checkpoints()) == {"0", "1"}


@simulated
async def test_an_empty_list_is_an_error_at_once():
    world = ShardWorld(0)
    lists = Lists(world, [])
    with pytest.raises(InconsistentShards, match="no shards found"):
        await world.syncer.sync_if_empty()
    assert len(lists.times) == 1


@simulated
async def test_two_workers_fill_the_table_together():
    world = ShardWorld(2)
    create = world.lease_store.create_if_absent

    async def late(row):
        if row.shard_id == shard_id(0):
            world.put(lease(0, hash_range=row.hash_range))
        return await create(row)

    world.lease_store.create_if_absent = late
    outcome = await world.syncer.sync_if_empty()
    assert outcome.created == (shard_id(1),)
    assert set(world.checkpoints()) == {"0", "1"}


@simulated
async def test_a_worker_that_listed_other_shards_leaves_the_table_to_the_first():
    world = ShardWorld(1, LATEST)
    whole = world.kinesis.list_shards

    async def meanwhile(**request):
        answer = await whole(**request)
        world.put(lease(7))
        return answer

    world.kinesis.list_shards = meanwhile
    outcome = await world.syncer.sync_if_empty()
    assert not outcome.performed
    assert set(world.checkpoints()) == {"7"}


@simulated
async def test_a_failing_write_stops_the_sync_and_keeps_what_was_written():
    world = ShardWorld(3)
    writes = []

    async def create(row):
        writes.append(row.lease_key)
        if len(writes) == 2:
            raise Throttled("PutItem", "ThrottlingException")
        world.put(row)
        return True

    world.lease_store.create_if_absent = create
    with pytest.raises(Throttled):
        await world.syncer.sync_if_empty()
    assert list(world.checkpoints()) == ["0"]
    assert writes == [shard_id(0), shard_id(1)]
    assert world.metrics.values["ShardSyncTask", "CreateLease.Success"] == [1, 0]
    assert world.metrics.values["ShardSyncTask", "SyncShards.Success"] == [0]


@simulated
async def test_open_parents_with_children_stop_the_sync_unless_ignored():
    strange = [listed(0, 0, TOP), listed(1, 0, HALF - 1, parent=0)]
    world = ShardWorld(1)
    world.put(lease(9))
    Lists(world, strange)
    with pytest.raises(InconsistentShards, match=shard_id(1)):
        await world.syncer.sync()
    tolerant = ShardWorld(1, ignore_unexpected_children=True)
    tolerant.put(lease(9))
    Lists(tolerant, strange)
    assert (await tolerant.syncer.sync()).created == (shard_id(0),)


# -- sync of a table with leases -------------------------------------------------------------------


async def resharded(position=TRIM_HORIZON, **options):
    """Shard 0 was split into 1 and 2; its lease is finished, theirs are there."""
    world = ShardWorld(1, position, **options)
    await world.reshard()
    world.calls.clear()
    return world


@simulated
async def test_gaps_are_filled_from_the_unfiltered_list():
    world = await resharded(LATEST)
    world.delete(0, 2)
    outcome = await world.syncer.sync()
    assert outcome.created == (shard_id(2),)
    assert world.checkpoints() == {"1": MOVING, "2": "LATEST"}
    assert filters(world) == [None]


@simulated
async def test_going_back_to_a_closed_ancestor_is_told(caplog):
    world = await resharded(TRIM_HORIZON)
    world.delete(0, 2)
    assert (await world.syncer.sync()).created == (shard_id(0),)
    assert "closed shard" in caplog.text


@simulated
async def test_a_missing_row_of_a_merged_shard_is_made_at_its_beginning(caplog):
    world = ShardWorld(2, LATEST, audit_confidence=2)
    await world.syncer.sync_if_empty()
    world.merge(0, 1)
    world.delete(1)
    await asyncio.sleep(60)
    assert (await world.syncer.audit()).created == ()
    assert (await world.syncer.audit()).created == (shard_id(1),)
    assert world.checkpoints() == {"0": "LATEST", "1": "TRIM_HORIZON"}
    missing = f"no lease covers the hash keys {HALF}-{TOP}, seen 2 times"
    assert f"Leases of s are incomplete: {missing}" in caplog.text
    (error,) = (one.getMessage() for one in caplog.records if one.levelname == "ERROR")
    assert error == (
        f"No lease covers the hash keys {HALF}-{TOP} of s: creating the lease of the closed shard "
        f"{shard_id(1)} at TRIM_HORIZON; it and its children are read from there, perhaps again"
    )


@simulated
async def test_a_missing_row_of_an_open_shard_is_an_error_too(caplog):
    world = ShardWorld(2, LATEST)
    await world.syncer.sync_if_empty()
    assert not caplog.records
    world.delete(1)
    assert (await world.syncer.sync()).created == (shard_id(1),)
    assert world.checkpoints() == {"0": "LATEST", "1": "LATEST"}
    (error,) = (one.getMessage() for one in caplog.records if one.levelname == "ERROR")
    assert f"{HALF}-{TOP} of s: creating the lease of the open shard {shard_id(1)}" in error
    assert "is not read" in error


@simulated
async def test_a_list_that_is_older_than_the_table_creates_nothing():
    world = ShardWorld(1)
    await world.syncer.sync_if_empty()
    listed_before = world.detector.list_shards

    async def frozen():
        shards = await listed_before()
        # Meanwhile shard 0 is split, read to its end and cleaned up by others.
        world.split(0)
        world.delete(0)
        world.put(lease(1, checkpoint=MOVING_POSITION, lease_counter=9))
        world.put(lease(2, checkpoint=MOVING_POSITION, lease_counter=9))
        await asyncio.sleep(3600)
        return shards

    world.detector.list_shards = frozen
    outcome = await world.syncer.sync()
    assert not outcome.performed
    assert "too old" in outcome.why
    assert "0" not in world.checkpoints()


@simulated
async def test_a_lost_child_is_restored_below_its_finished_parent(caplog):
    world = await resharded(LATEST)
    world.delete(2)
    outcome = await world.syncer.sync()
    assert outcome.created == (shard_id(2),)
    assert world.checkpoints() == {"0": "SHARD_END", "1": MOVING, "2": "TRIM_HORIZON"}
    assert "is missing although its parents are finished" in caplog.text


@pytest.mark.parametrize("change", ["child appears", "parent goes", "parent was reset"])
@simulated
async def test_a_loss_must_be_confirmed_before_it_is_mended(change):
    world = await resharded(LATEST)
    child = await world.read(2)
    world.delete(2)
    get = world.lease_store.get
    created = []

    async def late(key, *, consistent=False):
        if change == "child appears" and key == shard_id(2):
            world.put(child)
        elif change == "parent goes" and key == shard_id(0):
            world.delete(0)
        elif change == "parent was reset" and key == shard_id(0):
            world.at(0, "TRIM_HORIZON")
        return await get(key, consistent=consistent)

    async def note(row):
        created.append((row.shard_id, str(row.checkpoint)))
        return True

    world.lease_store.get = late
    world.lease_store.create_if_absent = note
    await world.syncer.sync()
    assert created == []


@pytest.mark.parametrize("initial", [LATEST, TRIM_HORIZON])
@simulated
async def test_a_row_that_cannot_be_read_sends_nobody_back_to_its_ancestors(initial):
    """Its parent was read and cleaned up: a lease of that would read a day of records again."""
    world = await resharded(initial)
    world.delete(0)
    world.change(shard_id(2), leaseCounter="x")
    assert (await world.syncer.sync()).created == ()
    assert "0" not in world.checkpoints()


@simulated
async def test_a_row_that_cannot_be_read_keeps_no_other_from_being_restored():
    world = await resharded(LATEST)
    world.change(shard_id(1), leaseCounter="x")
    world.delete(2)
    assert (await world.syncer.sync()).created == (shard_id(2),)


@simulated
async def test_a_list_without_shards_is_not_compared():
    world = ShardWorld(0)
    world.put(lease(0, lease_counter=1))
    Lists(world, [])
    outcome = await world.syncer.sync()
    assert not outcome.performed
    assert world.checkpoints() == {"0": "TRIM_HORIZON"}


@simulated
async def test_leases_of_other_streams_do_not_count():
    stream = Stream("s", account="123456789012", epoch=7)
    world = ShardWorld(1, LATEST, stream=stream)
    other = "123456789012:other:7"
    row = lease(0, lease_key=f"{other}:{shard_id(0)}", stream_identifier=other, lease_counter=4)
    world.put(row)
    outcome = await world.syncer.sync_if_empty()
    assert outcome.created == (f"123456789012:s:7:{shard_id(0)}",)
    assert filters(world)[-1] == {"Type": "AT_LATEST"}
    world.delete(0)
    assert (await world.syncer.sync()).created == outcome.created
    assert filters(world)[-1] == {"Type": "AT_LATEST"}


@simulated
async def test_rows_that_cannot_be_read_count_for_their_own_stream():
    stream = Stream("s", account="123456789012", epoch=7)
    world = ShardWorld(1, stream=stream)
    broken = {"leaseKey": {"S": "123456789012:other:7:x"}, "leaseCounter": {"S": "many"}}
    world.put_item(broken)
    assert (await world.syncer.sync_if_empty()).created
    world.delete(0)
    broken = {"leaseKey": {"S": "123456789012:s:7:x"}, "leaseCounter": {"S": "many"}}
    world.put_item(broken)
    await world.lease_store.scan()
    assert not (await world.new_syncer().sync_if_empty()).performed


@simulated
async def test_a_stream_created_again_is_told_at_start(caplog):
    world = ShardWorld(1)
    world.put(lease(0, hash_range=None))
    world.at(0, "12")
    caplog.set_level(logging.ERROR)
    await world.syncer.sync_if_empty()
    assert "deleted and created again: 1 of its leases" in caplog.text
    assert world.checkpoints() == {"0": "12"}


@simulated
async def test_only_three_signs_of_recreation_are_spelled_out(caplog):
    world = ShardWorld(5)
    for number in range(5):
        world.put(lease(number, lease_counter=1))
    await world.syncer.sync_if_empty()
    assert "5 of its leases" in caplog.text
    assert "; ..." in caplog.text


# -- audit ------------------------------------------------------------------------------------------


@simulated
async def test_only_the_leader_asks_for_anything():
    world = ShardWorld(1)
    world.leader.leads = False
    outcome = await world.syncer.audit()
    assert not outcome.performed
    assert world.requests == []
    assert world.checkpoints() == {}


@simulated
async def test_an_audit_fills_an_empty_table_at_once():
    world = ShardWorld(2)
    assert (await world.syncer.audit()).created == (shard_id(0), shard_id(1))


@simulated
async def test_a_hole_is_mended_when_it_was_seen_three_times():
    world = await resharded(LATEST)
    world.delete(2)
    task = asyncio.get_running_loop().create_task(world.syncer.run())
    seen = []
    for _ in range(4):
        await asyncio.sleep(61 if not seen else 120)
        seen.append(sorted(world.checkpoints()))
    assert seen == [["0", "1"], ["0", "1"], ["0", "1", "2"], ["0", "1", "2"]]
    task.cancel()
    audit = "PeriodicShardSyncManager"
    assert world.metrics.values[audit, "NumStreamsToSync"] == [0, 0, 1, 0]
    assert world.metrics.values[audit, "NumStreamsWithPartialLeases"] == [1, 1, 1, 0]
    assert world.metrics.values[audit, "Success"] == [1, 1, 1, 1]


@simulated
async def test_covered_keys_need_no_sync():
    world = await resharded()
    outcome = await world.syncer.audit()
    assert str(outcome) == "no shard sync: nothing is missing"
    assert world.count("ListShards") == 0


@simulated
async def test_a_new_leader_counts_on():
    world = await resharded(LATEST)
    world.delete(2)
    await world.lease_store.scan()
    await asyncio.sleep(60)
    for leads in (False, False):
        world.leader.leads = leads
        assert not (await world.syncer.audit()).performed
    world.leader.leads = True
    assert (await world.syncer.audit()).created == (shard_id(2),)


@simulated
async def test_syncs_keep_their_distance():
    world = ShardWorld(2, audit_confidence=1)
    await world.syncer.sync_if_empty()
    world.delete(1)
    assert "too recent" in str(await world.syncer.audit())
    assert world.metrics.total("PeriodicShardSyncManager", "NumSkippedShardSyncTask") == 1
    await asyncio.sleep(61)
    assert (await world.syncer.audit()).created == (shard_id(1),)


@simulated
async def test_missing_hash_ranges_are_filled_in_before_the_check():
    world = ShardWorld(2)
    world.put(lease(0, hash_range=None), lease(1, hash_range=None))
    assert str(await world.syncer.audit()) == "no shard sync: nothing is missing"
    assert world.row(shard_id(1))["endingHashKey"] == {"S": str(TOP)}


@simulated
async def test_a_hash_range_that_cannot_be_written_is_used_nevertheless():
    world = ShardWorld(2)
    world.put(lease(0, hash_range=None), lease(1, hash_range=None))
    world.fault("throttle", "UpdateItem", times=10)
    assert str(await world.syncer.audit()) == "no shard sync: nothing is missing"


@pytest.mark.parametrize("error", [None, RuntimeError("a defect")])
def test_a_failing_audit_is_repeated(error):
    @simulated
    async def main():
        world = ShardWorld(1)
        world.fault("refuse", "Scan", error=error)
        task = asyncio.get_running_loop().create_task(world.syncer.run())
        await asyncio.sleep(62)
        assert world.checkpoints() == {}
        assert world.metrics.values["PeriodicShardSyncManager", "Success"] == [0]
        await asyncio.sleep(120)
        assert world.checkpoints() == {"0": "TRIM_HORIZON"}
        task.cancel()

    main()


@simulated
async def test_finished_leases_that_nobody_holds_are_handed_to_the_cleanup():
    world = await resharded()
    world.change(shard_id(0), leaseOwner="dead", leaseCounter=5)
    await world.syncer.audit()
    await asyncio.sleep(239)
    world.change(shard_id(0), leaseCounter=6)
    await world.syncer.audit()
    await asyncio.sleep(120)
    await world.syncer.audit()
    assert world.cleanup.queued == ()
    await asyncio.sleep(120)
    await world.syncer.audit()
    assert world.cleanup.queued == (shard_id(0),)


@simulated
async def test_an_unknown_outcome_of_a_sync_comes_out():
    world = ShardWorld(1)
    world.fail("ListShards", UnknownOutcome("ListShards", "ReadTimeoutError"), 6)
    with pytest.raises(UnknownOutcome):
        await world.syncer.audit()


class Replaced:
    """A leader for so many answers; then its table is another one, or it has a successor."""

    def __init__(self, answers, *, is_gone):
        self.answers, self.is_gone = answers, is_gone

    async def is_leader(self):
        self.answers -= 1
        if self.answers < 0 and self.is_gone:
            raise ResourceMissing("the lease table was deleted and created again")
        return self.answers >= 0

    async def check_table(self):
        raise AssertionError("only who does not lead asks so")


def scan_slowly(world):
    scan = world.lease_store.scan

    async def slowly():
        await asyncio.sleep(CONFIRMED_S + 1)
        return await scan()

    world.lease_store.scan = slowly


@simulated
async def test_a_table_that_is_replaced_during_a_slow_audit_gets_no_rows():
    world = ShardWorld(2)
    world.leader = Replaced(1, is_gone=True)
    syncer = world.new_syncer()
    scan_slowly(world)
    with pytest.raises(ResourceMissing):
        await syncer.audit()
    assert world.checkpoints() == {}


@simulated
async def test_who_gets_a_successor_during_a_slow_audit_writes_no_rows():
    world = ShardWorld(2)
    world.leader = Replaced(1, is_gone=False)
    syncer = world.new_syncer()
    scan_slowly(world)
    outcome = await syncer.audit()
    assert outcome.performed
    assert outcome.created == ()
    assert world.checkpoints() == {}


@simulated
async def test_a_slow_audit_asks_again_and_goes_on():
    world = ShardWorld(2)
    world.leader = Replaced(2, is_gone=False)
    syncer = world.new_syncer()
    scan_slowly(world)
    assert (await syncer.audit()).created == (shard_id(0), shard_id(1))


@simulated
async def test_a_lost_child_is_not_restored_by_who_got_a_successor():
    world = await resharded(LATEST)
    world.delete(2)
    world.leader = Replaced(0, is_gone=False)
    syncer = world.new_syncer()
    assert (await syncer.sync()).created == ()
    assert sorted(world.checkpoints()) == ["0", "1"]


# -- in the leader's stead ----------------------------------------------------------------------


async def looks(world, count):
    """Audits two minutes apart, each soon after a scan of the taker; leases created by each."""
    created = []
    for _ in range(count):
        await asyncio.sleep(119)
        await world.lease_store.scan()
        await asyncio.sleep(1)
        created.append((await world.syncer.audit()).created)
    return created


async def leaderless(**options):
    world = await resharded(LATEST, **options)
    world.leader.leads = False
    return world


@simulated
async def test_a_hole_that_no_leader_mends_is_mended_by_any_worker():
    world = await leaderless()
    world.delete(2)
    world.calls.clear()
    assert await looks(world, 5) == [()] * 5
    assert world.count("ListShards") == 0
    assert await looks(world, 1) == [(shard_id(2),)]
    assert world.metrics.values.get(("PeriodicShardSyncManager", "NumStreamsToSync")) is None


@simulated
async def test_a_hole_that_stays_is_tried_again_as_late():
    world = await leaderless()
    world.delete(2)
    world.fail("ListShards", InconsistentShards("ListShards", "InconsistentShards"))
    await looks(world, 5)
    with pytest.raises(InconsistentShards):
        await looks(world, 1)
    assert await looks(world, 6) == [*[()] * 5, (shard_id(2),)]


@simulated
async def test_a_hole_that_closes_in_time_is_forgotten():
    world = await leaderless()
    world.delete(2)
    await looks(world, 5)
    world.put(lease(2, hash_range=HashRange(HALF, TOP)))
    await looks(world, 1)
    world.delete(2)
    assert await looks(world, 5) == [()] * 5


async def expecting(world, count):
    """As many looks while the end of a shard waits for a lease; whether each listed the shards."""
    listed = []
    for _ in range(count):
        world.calls.clear()
        world.syncer.expect(shard_id(9))
        await looks(world, 1)
        listed.append(world.count("ListShards") == 1)
    return listed


@simulated
async def test_what_the_end_of_a_shard_waits_for_is_looked_for_though_no_key_is_uncovered():
    for leads in (True, False):
        world = await leaderless()
        world.leader.leads = leads
        assert await expecting(world, 12) == [*[False] * 5, True] * 2


@simulated
async def test_what_is_waited_for_no_more_is_forgotten():
    world = await leaderless()
    await expecting(world, 5)
    await looks(world, 1)
    assert await expecting(world, 5) == [False] * 5
    world.put(lease(9, hash_range=HashRange(HALF, TOP)))
    assert await expecting(world, 5) == [False] * 5


@simulated
async def test_without_leading_nobody_fills_a_table_without_leases():
    """They may have been deleted on purpose."""
    world = await leaderless()
    world.delete(0, 1, 2)
    assert await looks(world, 12) == [()] * 12


@simulated
async def test_without_leading_leases_that_are_deleted_after_the_look_stay_away():
    world = await leaderless()
    world.delete(2)
    await looks(world, 5)
    await asyncio.sleep(60)
    await world.lease_store.scan()
    world.delete(0, 1)
    assert "deleted meanwhile" in str(await world.syncer.audit())
    assert world.checkpoints() == {}


@simulated
async def test_without_leading_leases_without_hash_range_say_nothing():
    world = await leaderless()
    world.delete(2)
    world.put(lease(1, hash_range=None))
    assert await looks(world, 6) == [()] * 6


@simulated
async def test_without_leading_an_old_scan_says_nothing_and_ends_no_count():
    """A worker whose scans fail now and then never mended what it saw all the time."""
    world = await leaderless()
    world.delete(2)
    assert await looks(world, 5) == [()] * 5
    await asyncio.sleep(130)
    assert not (await world.syncer.audit()).performed
    (created,) = await looks(world, 1)
    assert created


@simulated
async def test_who_mends_a_hole_without_leading_writes_into_no_other_table():
    world = await leaderless()
    world.delete(2)
    await looks(world, 5)

    async def replaced():
        raise ResourceMissing("the lease table was deleted and created again")

    world.leader.check_table = replaced
    with pytest.raises(ResourceMissing):
        await looks(world, 1)
    assert sorted(world.checkpoints()) == ["0", "1"]


@simulated
async def test_who_mends_a_hole_without_leading_asks_for_the_table_every_other_second():
    world = ShardWorld(8, LATEST)
    await world.syncer.sync_if_empty()
    world.leader.leads = False
    world.delete(*range(1, 8))
    await looks(world, 5)
    asked = []

    async def check_table():
        asked.append(world.clock.monotonic())

    create = world.lease_store.create_if_absent

    async def slowly(row):
        await asyncio.sleep(CONFIRMED_S / 2 + 0.1)
        return await create(row)

    world.leader.check_table = check_table
    world.lease_store.create_if_absent = slowly
    await looks(world, 1)
    assert len(world.checkpoints()) == 8
    assert len(asked) == 4


@simulated
async def test_who_mends_a_hole_without_leading_stops_when_the_table_was_read_long_ago():
    """What is missing there may have been created, read, finished and cleaned up since."""
    world = ShardWorld(4, LATEST)
    await world.syncer.sync_if_empty()
    world.leader.leads = False
    world.delete(1, 2, 3)
    await looks(world, 5)
    create = world.lease_store.create_if_absent

    async def slowly(row):
        await asyncio.sleep(OUTDATED_S / 2 + 1)
        return await create(row)

    world.lease_store.create_if_absent = slowly
    assert await looks(world, 1) == [(shard_id(1), shard_id(2))]
    assert sorted(world.checkpoints()) == ["0", "1", "2"]
