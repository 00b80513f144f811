"""A leader's writes through the store: races, lost answers, rows that vanish."""

import pytest

from kcl_mld.errors import ConditionFailed, Denied, NotFound, Throttled, UnknownOutcome
from kcl_mld.kernel.pages import REPEATS
from kcl_mld.leases.model.lease_item import lease_from_item
from kcl_mld.leases.model.lease_writes import assigning
from tests.fakes.lease_world import TABLE, World, lease, on_table_with
from tests.sim.loop import run

KEY = "shardId-000000000000"
OWNED = lease(lease_owner="a", lease_counter=7)
ENDING = lease(lease_owner="b", checkpoint_owner="a", lease_counter=7)

MOVES = {
    "assign": lambda store, row: store.leader.assign(row, "c", only_unchanged=False),
    "assign unchanged": lambda store, row: store.leader.assign(row, "c", only_unchanged=True),
    "hand over": lambda store, row: store.leader.start_hand_off(row, "c"),
}


on_table = on_table_with(lambda world: world.store())


def stored(world):
    return lease_from_item(world.row(KEY))


@pytest.mark.parametrize("move", MOVES)
def test_a_move_gives_the_row_as_it_is_stored(move):
    async def test(world, store):
        row = await MOVES[move](store, OWNED)
        assert row == stored(world)
        assert row.lease_owner == "c"

    on_table(test, OWNED)


def test_a_row_that_can_not_be_read_after_its_move_is_nobodys(caplog):
    async def test(world, store):
        assert await store.leader.assign(stored(world), "c", only_unchanged=True) is None
        assert "can't be read: leaseCounter is" in caplog.text

    on_table(test, lease(lease_owner="a", lease_counter=10**37 - 1))


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("change", [{"leaseOwner": "other"}, {"checkpointOwner": "other"}])
def test_a_move_of_what_was_written_meanwhile_is_not_done(move, change):
    async def test(world, store):
        world.change(KEY, **change)
        before = world.row(KEY)
        assert await MOVES[move](store, OWNED) is None
        assert world.row(KEY) == before

    on_table(test, OWNED)


@pytest.mark.parametrize(("move", "is_done"), [("assign", True), ("assign unchanged", False)])
def test_a_renewal_at_the_last_moment_wins_where_the_counter_is_named(move, is_done):
    async def test(world, store):
        world.change(KEY, leaseCounter=8)
        row = await MOVES[move](store, OWNED)
        assert (row is not None) == is_done
        assert stored(world).lease_owner == ("c" if is_done else "a")
        assert stored(world).lease_counter == (9 if is_done else 8)

    on_table(test, OWNED)


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
def test_a_lost_answer_is_resolved(move, fault):
    async def test(world, store):
        world.fault(fault)
        row = await MOVES[move](store, OWNED)
        assert row == stored(world)
        assert row.lease_owner == "c"
        assert row.lease_counter == (7 if move == "hand over" else 8)

    on_table(test, OWNED)


@pytest.mark.parametrize("move", MOVES)
def test_an_answer_that_stays_away_is_told(move):
    async def test(world, store):
        world.fault("lose request", times=9)
        with pytest.raises(UnknownOutcome):
            await MOVES[move](store, OWNED)

    on_table(test, OWNED)


@pytest.mark.parametrize("move", MOVES)
def test_a_move_that_is_refused_again_and_again_says_by_what(move):
    """DynamoDB Local refuses conditions that hold, while it makes an index."""
    refused = ConditionFailed("UpdateItem", "ConditionalCheckFailedException")

    async def test(world, store):
        world.fault("refuse", "UpdateItem", error=refused, times=10)
        with pytest.raises(UnknownOutcome) as raised:
            await MOVES[move](store, OWNED)
        assert f"{KEY} is stored as it was read (owner a, counter 7)" in str(raised.value)
        assert "the last one: UpdateItem: ConditionalCheckFailedException" in str(raised.value)

    on_table(test, OWNED)


@pytest.mark.parametrize("move", MOVES)
def test_a_deleted_lease_is_not_moved(move):
    async def test(world, store):
        assert await MOVES[move](store, OWNED) is None
        assert world.row(KEY) == {}

    on_table(test)


def test_a_row_that_cannot_be_read_is_left_alone(caplog):
    async def test(world, store):
        world.put_item({"leaseKey": {"S": KEY}, "entityType": {"S": "STREAM"}})
        assert await store.leader.assign(OWNED, "c", only_unchanged=False) is None
        assert "item shardId-000000000000 is not a lease" in caplog.text

    on_table(test)


def test_a_stale_hand_off_is_ended_in_favor_of_its_next_owner():
    async def test(world, store):
        world.fault("lose answer")
        row = await store.leader.assign(ENDING, "b", only_unchanged=False)
        assert row == stored(world)
        assert (row.lease_owner, row.checkpoint_owner, row.lease_counter) == ("b", None, 8)

    on_table(test, ENDING)


def test_a_lost_assignment_to_the_present_owner_is_known_by_its_counter():
    async def test(world, store):
        world.fault("lose answer")
        row = await store.leader.assign(OWNED, "a", only_unchanged=True)
        assert row == stored(world)
        assert row.lease_counter == 8

    on_table(test, OWNED)


@pytest.mark.parametrize("error", [Throttled("UpdateItem", "x"), NotFound("UpdateItem", "x")])
def test_other_errors_go_to_the_leader(error):
    async def test(world, store):
        world.fault("refuse", "UpdateItem", error=error)
        with pytest.raises(type(error)):
            await store.leader.assign(OWNED, "c", only_unchanged=False)
        assert stored(world) == OWNED

    on_table(test, OWNED)


def test_unknown_attributes_survive_a_move():
    async def test(world, store):
        former = {"M": {"n": {"N": "3"}}}
        world.put_item({**world.row(KEY), "theirs": {"S": "x"}, "kclMldIntent": former})
        row = await store.leader.start_hand_off(OWNED, "c")
        await store.leader.assign(row, "d", only_unchanged=False)
        assert world.row(KEY)["theirs"] == {"S": "x"}
        assert world.row(KEY)["kclMldIntent"] == former

    on_table(test, OWNED)


# -- the index ------------------------------------------------------------------------------------


def with_index(test, *rows, **settings):
    async def main():
        world = World()
        world.create_table()
        world.put(*rows)
        store = world.store()
        while not await store.table.ensure_index():
            pass
        for name, value in settings.items():
            setattr(world.model.settings, name, value)
        await test(world, store)

    run(main())


def test_a_worker_finds_the_leases_that_name_it_page_by_page():
    rows = [lease(number, lease_owner="ab"[number % 2]) for number in range(7)]

    async def test(_world, store):
        keys = tuple(f"shardId-{number:012d}" for number in (0, 2, 4, 6))
        assert await store.owner_index.keys_of("a") == keys
        assert await store.owner_index.keys_of("c") == ()

    with_index(test, *rows, page_items=2)


def test_without_an_index_there_is_no_answer_and_none_while_it_is_filled():
    async def test(world, store):
        assert await store.owner_index.keys_of("a") is None
        world.model.settings.create_s = 60
        assert not await store.table.ensure_index()
        assert not await store.table.index_can_be_asked()
        assert await store.owner_index.keys_of("a") is None
        world.model.settings.create_s = 0
        world.model.tables[TABLE].indexes["LeaseOwnerToLeaseKeyIndex"]["active_s"] = 0
        assert await store.table.index_can_be_asked()
        assert await store.owner_index.keys_of("a") == (KEY,)

    on_table(test, lease(lease_owner="a"))


def test_an_index_of_a_table_that_is_gone_has_no_answer_and_the_table_is_looked_at():
    async def test(world, store):
        world.delete_table()
        assert await store.owner_index.keys_of("a") is None
        assert not await store.table.ensure_index()
        assert not await store.table.index_can_be_asked()
        await store.table_check_wanted.wait(0.1)

    on_table(test)


@pytest.mark.parametrize("error", [Throttled("Query", "Throttling"), Denied("Query", "Denied")])
def test_an_index_that_does_not_answer_is_said_once_and_has_no_answer(caplog, error):
    """A worker without the permission, or beside a throttled index, never found its leases."""

    async def test(world, store):
        for _ in range(2):
            times = 3 * (1 + REPEATS) if isinstance(error, Throttled) else 3
            world.fault("refuse", "Query", error=error, times=times)
            for _ in range(3):
                assert await store.owner_index.keys_of("a") is None
            assert await store.owner_index.keys_of("a") == (KEY,)

    with caplog.at_level("WARNING", "mld.leases"):
        with_index(test, lease(lease_owner="a"))
    assert len(caplog.messages) == 2
    assert all("the table is scanned instead" in text for text in caplog.messages)


def test_an_assignment_judges_a_row_that_somebody_deleted_meanwhile():
    async def test(world, store):
        world.fault("lose request")
        world.fault("refuse", "GetItem", error=Throttled("GetItem", "x"))
        with pytest.raises(UnknownOutcome):
            await store.leader.assign(OWNED, "c", only_unchanged=True)
        assert stored(world) == assigning(OWNED, "c", only_unchanged=True).before

    on_table(test, OWNED)
