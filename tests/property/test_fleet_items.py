"""Items of a 3.x fleet: any value goes both ways; any order of writes keeps what it must."""

from hypothesis import given, strategies as st

from kcl_mld.fleet.model.lock_item import LockItem, lock_from_item, lock_to_item
from kcl_mld.fleet.model.state_history import (
    ClientVersion,
    MigrationState,
    StateChange,
    migration_from_item,
    migration_to_item,
)
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics, metrics_from_item, metrics_to_item
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.leases.model.lease_item import lease_from_item, lease_to_item
from kcl_mld.leases.model.lease_writes import (
    assigning,
    checkpointing,
    hand_off_start,
    releasing,
    renewal,
    taking,
)
from tests.fakes.clock import FakeClock
from tests.fakes.items import checked_item
from tests.fakes.lease_world import TABLE, World, lease

IDS = st.text("abcäβ-:.0", min_size=1, max_size=6)
EPOCH = st.integers(0, 2**40)
NAMES = st.sampled_from(["C", "M", "NI", "NO", "T"])
PERCENT = st.integers(-1_000_000, 100_000_000).map(lambda millionths: millionths / 1e6)
KEY = "shardId-000000000000"


@given(
    st.builds(
        WorkerMetrics,
        IDS,
        EPOCH,
        st.dictionaries(NAMES, st.lists(PERCENT, max_size=10).map(tuple), max_size=5),
        st.dictionaries(NAMES, st.lists(st.integers(0, 100), max_size=3).map(tuple), max_size=5),
        st.none() | st.integers(0, 9),
        st.none() | EPOCH,
    ),
    st.sampled_from(["leaseKey", "wid"]),
)
def test_any_metrics_are_read_as_they_were_stored(metrics, key_name):
    assert metrics_from_item(checked_item(metrics_to_item(metrics, key_name)), key_name) == metrics


CHANGES = st.builds(StateChange, st.sampled_from(ClientVersion), IDS, EPOCH)


@given(st.lists(CHANGES, min_size=1, max_size=14), st.sampled_from(["leaseKey", "key"]))
def test_any_life_of_a_client_version_is_read_as_it_was_stored(changes, key_name):
    first, *later = changes
    state = MigrationState(first)
    for change in later:
        state = state.changed(change.state, change.modified_by, change.modified_ms)
    assert migration_from_item(checked_item(migration_to_item(state, key_name))) == state
    assert [state.now, *state.history] == changes[::-1][:11]


@given(IDS, st.integers(1, 10**9), IDS, st.sampled_from(["leaseKey", "key"]), st.booleans())
def test_any_lock_is_read_as_it_was_stored(owner, duration_ms, version, key_name, has_entity):
    lock = LockItem(owner, duration_ms / 1000, version)
    item = lock_to_item(lock, key_name)
    if not has_entity:  # as 3.0 to 3.4 write it
        del item["entityType"]
    assert lock_from_item(item) == lock


WORKERS = st.sampled_from(["a", "b", "c"])


def hand_off_or_assign(row, worker):
    may_ask = row.lease_owner not in (None, worker) and row.checkpoint_owner is None
    if may_ask:
        return hand_off_start(row, worker)
    return assigning(row, worker, only_unchanged=False)


WRITES = st.one_of(
    st.builds(lambda kbps: lambda row: renewal(row, kbps), st.none() | st.floats()),
    st.builds(
        lambda number: lambda row: checkpointing(row, ExtendedSequenceNumber(str(number))),
        st.integers(0, 2**180),
    ),
    st.builds(lambda worker: lambda row: taking(row, worker), WORKERS),
    st.builds(
        lambda worker, fenced: lambda row: assigning(row, worker, only_unchanged=fenced),
        WORKERS,
        st.booleans(),
    ),
    st.builds(lambda worker: lambda row: hand_off_or_assign(row, worker), WORKERS),
    st.just(releasing),
)


@given(st.lists(WRITES, max_size=12))
def test_any_order_of_writes_leaves_the_row_that_was_promised(writes):
    """Attributes of others stay; the counter rises with each write but the start of a hand-off."""
    world = World(clock=FakeClock())
    world.create_table()
    others = {"theirs": {"S": "x"}, "pendingCheckpointer": {"M": {"k": {"N": "1"}}}}
    row = lease()
    world.put_item({**lease_to_item(row), **others})
    for make in writes:
        write = make(row)
        world.model.call("UpdateItem", {"TableName": TABLE, **write.request})
        item = world.row(KEY)
        assert item == checked_item({**lease_to_item(write.after), **others})
        after = lease_from_item(item)
        assert after == write.after
        is_start = row.checkpoint_owner is None and after.checkpoint_owner is not None
        assert after.lease_counter == row.lease_counter + (0 if is_start else 1)
        row = after
