"""Our lease items beside those that the Java daemon 3.5.1 left in its tables."""

import json
from pathlib import Path

import pytest

from kcl_mld.fleet.model.lock_item import lock_from_item, lock_to_item
from kcl_mld.fleet.model.state_history import migration_from_item, migration_to_item
from kcl_mld.fleet.model.worker_metrics import metrics_from_item, metrics_to_item
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.model.lease_item import is_lease_item, lease_from_item, lease_to_item
from kcl_mld.leases.model.lease_request import HOLDER
from kcl_mld.leases.model.newcomer import NEWCOMER
from kcl_mld.leases.model.table_item import Entity, entity_of
from kcl_mld.streams.model.shard import HashRange
from tests.fakes.lease_world import World, lease
from tests.sim.loop import run

RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "lease_tables.jsonl").read_text().splitlines()
]
#: Written by 3.x workers only.
ONLY_3X = {"throughputKBps", "checkpointOwner"}


def items():
    for recording in RECORDED:
        for table, rows in recording["tables"].items():
            for item in rows:
                yield pytest.param(
                    item,
                    id=f"{recording['scenario']}-{recording['stage']}-{table}-"
                    f"{item['leaseKey']['S'][-20:]}",
                )


def sorted_sets(item):
    return {
        name: {kind: sorted(value) if kind == "SS" else value for kind, value in attribute.items()}
        for name, attribute in item.items()
    }


def comparable(item):
    """Without order in sets, without what only 3.x writes, and without who of us holds it."""
    left_out = {*ONLY_3X, HOLDER, NEWCOMER}
    return {name: value for name, value in sorted_sets(item).items() if name not in left_out}


def shape(item):
    return {name: next(iter(value)) for name, value in comparable(item).items()}


def written_by_us(item):
    """What we store of what we read of an item."""
    match entity_of(item, "leaseKey"):
        case Entity.LEASE:
            return lease_to_item(lease_from_item(item))
        case Entity.LEADER:
            return lock_to_item(lock_from_item(item), "leaseKey")
        case Entity.CLIENT_VERSION_MIGRATION:
            return migration_to_item(migration_from_item(item), "leaseKey")
        case Entity.WORKER_METRIC_STATS:
            return metrics_to_item(metrics_from_item(item, "leaseKey"), "leaseKey")
    raise AssertionError(item)


@pytest.mark.parametrize("item", list(items()))
def test_every_recorded_item_is_one_that_we_write_alike(item):
    assert sorted_sets(written_by_us(item)) == sorted_sets(item)
    assert is_lease_item(item) == (entity_of(item, "leaseKey") is Entity.LEASE)


def recorded(stage, key):
    for recording in RECORDED:
        if recording["scenario"] == "life" and recording["stage"] == stage:
            (item,) = [item for item in recording["tables"]["life"] if item["leaseKey"]["S"] == key]
            return item
    raise AssertionError(stage)


def test_the_recordings_are_all_there():
    assert len(RECORDED) == 75
    assert sum(is_lease_item(item.values[0]) for item in items()) > 100


def test_one_shard_from_creation_to_its_end_leaves_the_rows_that_java_leaves():
    zero, two, three = (f"shardId-{number:012d}" for number in (0, 2, 3))
    middle = 170141183460469231731687303715884105726
    quarter = 85070591730234615865843651857942052862

    async def main():
        world = World()
        world.create_table()
        store = world.store()
        row = lease(0, hash_range=HashRange(0, middle))
        assert await store.create_if_absent(row)
        created = recorded("02-leases-created-unassigned", zero)
        assert comparable(world.row(zero)) == comparable(created)

        row = await store.take(row, "w1")
        row = await store.renew(await store.renew(row))
        running = recorded("03-running-first-batch", zero)
        assert comparable(world.row(zero)) == comparable(running)

        after = recorded("04-after-checkpoint", zero)
        position = ExtendedSequenceNumber(after["checkpoint"]["S"])
        row = await store.checkpoint(await store.renew(await store.renew(row)), position)
        assert comparable(world.row(zero)) == comparable(after)

        for child, keys in ((two, HashRange(0, quarter)), (three, HashRange(quarter + 1, middle))):
            number = int(child[-2:])
            made = lease(number, hash_range=keys, parent_shard_ids=(zero,), checkpoint=TRIM_HORIZON)
            assert await store.create_if_absent(made)
            born = recorded("06-right-after-SHARD_END", child)
            assert comparable(world.row(child)) == comparable(born)
        assert await store.write_children(zero, (two, three))
        while row.lease_counter < 19:
            row = await store.renew(row)
        await store.checkpoint(row, SHARD_END)
        ended = recorded("06-right-after-SHARD_END", zero)
        assert comparable(world.row(zero)) == comparable(ended)
        assert shape(world.row(zero)) == shape(ended)

    run(main())
