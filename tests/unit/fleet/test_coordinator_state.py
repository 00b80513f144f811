"""The state of a fleet in one table and in three: races, lost answers, moving from one to other."""

import random

import pytest

from kcl_mld.errors import (
    ConfigError,
    Denied,
    MalformedData,
    NotFound,
    TransactionCanceled,
    UnknownOutcome,
    Unreachable,
)
from kcl_mld.fleet.coordinator_state import CoordinatorStateStore
from kcl_mld.fleet.model.state_history import (
    ClientVersion,
    MigrationState,
    StateChange,
    TableMigrationState,
    TableStatus,
)
from kcl_mld.fleet.model.table_layout import Layout, Place
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.state_items import StateItems
from tests.fakes.clock import CountingIds
from tests.fakes.lease_world import TABLE, World, lease
from tests.sim.loop import run

LEASES = Place(TABLE, "leaseKey")
STATE_TABLE = Place(f"{TABLE}-CoordinatorState", "key")
METRICS_TABLE = Place(f"{TABLE}-WorkerMetricStats", "wid")
NEW = MigrationState(StateChange(ClientVersion.CLIENT_VERSION_INIT, "w1", 5)).changed(
    ClientVersion.CLIENT_VERSION_UPGRADE_FROM_2X, "w1", 7
)
FLIPPED = NEW.changed(ClientVersion.CLIENT_VERSION_3X_WITH_ROLLBACK, "w1", 9)
BEGUN = TableMigrationState(StateChange(TableStatus.TABLE_MIGRATION_STATUS_INIT, "w1", 5))
DEPLOYED = BEGUN.changed(TableStatus.TABLE_MIGRATION_STATUS_DEPLOYED, "w1", 6)
PENDING = DEPLOYED.changed(TableStatus.TABLE_MIGRATION_STATUS_PENDING, "w1", 7)
COMPLETE = PENDING.changed(TableStatus.TABLE_MIGRATION_STATUS_COMPLETE, "w1", 8)
METRICS = WorkerMetrics("w1", 100, {"C": (12.5,)}, {"C": (100,)}, 1, 100)


class Tables:
    """The tables of one application."""

    def __init__(self, *, legacy):
        self.world = World()
        self.world.create_table()
        if legacy:
            for place in (STATE_TABLE, METRICS_TABLE):
                self.create(place)

    def create(self, place):
        key = place.key_name
        self.world.model.call(
            "CreateTable",
            {
                "TableName": place.table,
                "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
                "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"}],
                "BillingMode": "PAY_PER_REQUEST",
            },
        )

    def layout(self, status=None):
        named = Layout.named(TABLE)
        if status is None:
            return named
        return Layout(
            named.lease_table,
            named.coordinator_table,
            named.metrics_table,
            status,
            writes_to_lease_table=status is TableStatus.TABLE_MIGRATION_STATUS_PENDING,
        )

    def store(self, status=None, worker="me"):
        return CoordinatorStateStore(
            self.world.dynamodb(worker), self.layout(status), CountingIds(worker), random.Random(0)
        )

    def put(self, place, item):
        self.world.model.call("PutItem", {"TableName": place.table, "Item": item})

    def items(self, place):
        return {item[place.key_name]["S"]: item for item in self.world.model.items(place.table)}

    def operations(self, name):
        return [request for _, operation, request in self.world.requests if operation == name]


def on_one_table(test):
    async def main():
        tables = Tables(legacy=False)
        await test(tables, tables.store())

    run(main())


def on_three_tables(test, status=TableStatus.TABLE_MIGRATION_STATUS_DEPLOYED):
    async def main():
        tables = Tables(legacy=True)
        await test(tables, tables.store(status))

    run(main())


# -- client version -------------------------------------------------------------------------------


def test_the_version_is_said_once_and_changed_where_it_is():
    async def test(tables, store):
        assert await store.client_version() is None
        assert await store.create_client_version(NEW)
        assert await store.client_version() == NEW
        assert not await store.create_client_version(FLIPPED)
        assert await store.change_client_version(NEW, FLIPPED)
        assert await store.client_version() == FLIPPED
        assert tables.items(LEASES)["Migration3.0"]["entityType"]["S"] == "CLIENT_VERSION_MIGRATION"

    on_one_table(test)


@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
@pytest.mark.parametrize("operation", ["PutItem", "UpdateItem"])
def test_a_version_whose_answer_was_lost_is_known(operation, fault):
    async def test(tables, store):
        if operation == "UpdateItem":
            await store.create_client_version(NEW)
        tables.world.fault(fault, operation)
        if operation == "PutItem":
            assert await store.create_client_version(NEW)
            assert await store.client_version() == NEW
        else:
            assert await store.change_client_version(NEW, FLIPPED)
            assert await store.client_version() == FLIPPED

    on_one_table(test)


def test_of_two_first_words_one_counts_also_when_its_answer_is_lost():
    async def test(tables, store):
        other = tables.store(worker="other")
        assert await other.create_client_version(NEW)
        tables.world.fault("lose request", "PutItem")
        assert not await store.create_client_version(FLIPPED)
        assert await store.client_version() == NEW

    on_one_table(test)


@pytest.mark.parametrize("fault", [None, "lose request"])
def test_a_version_that_another_changed_is_left(fault):
    async def test(tables, store):
        rolled_back = NEW.changed(ClientVersion.CLIENT_VERSION_2X, "KclMigrationTool-rollback", 8)
        await store.create_client_version(rolled_back)
        if fault:
            tables.world.fault(fault)
        assert not await store.change_client_version(NEW, FLIPPED)
        assert await store.client_version() == rolled_back

    on_one_table(test)


def test_a_version_that_was_changed_and_changed_back_is_another():
    async def test(_tables, store):
        back = NEW.changed(ClientVersion.CLIENT_VERSION_2X, "tool", 8).changed(
            ClientVersion.CLIENT_VERSION_UPGRADE_FROM_2X, "tool", 9
        )
        await store.create_client_version(back)
        assert not await store.change_client_version(NEW, FLIPPED)

    on_one_table(test)


def test_a_version_that_is_gone_cannot_be_changed():
    async def test(_tables, store):
        assert not await store.change_client_version(NEW, FLIPPED)
        assert await store.client_version() is None

    on_one_table(test)


def test_unknown_attributes_of_the_version_survive_its_change():
    async def test(tables, store):
        await store.create_client_version(NEW)
        tables.put(LEASES, {**tables.items(LEASES)["Migration3.0"], "theirs": {"S": "x"}})
        assert await store.change_client_version(NEW, FLIPPED)
        assert tables.items(LEASES)["Migration3.0"]["theirs"] == {"S": "x"}

    on_one_table(test)


def test_a_version_of_3_0_is_read_and_changed_in_its_table():
    async def test(tables, store):
        assert await store.create_client_version(NEW)
        assert list(tables.items(STATE_TABLE)) == ["Migration3.0"]
        assert tables.items(LEASES) == {}
        assert await store.change_client_version(NEW, FLIPPED)
        assert (await store.client_version()) == FLIPPED

    on_three_tables(test)


def test_a_version_that_was_moved_meanwhile_is_changed_where_it_is_now():
    async def test(tables, store):
        await tables.store().create_client_version(NEW)
        assert await store.client_version() == NEW
        assert await store.change_client_version(NEW, FLIPPED)
        assert list(tables.items(LEASES)) == ["Migration3.0"]
        assert tables.items(STATE_TABLE) == {}

    on_three_tables(test)


def test_a_version_that_cannot_be_read_is_told():
    async def test(tables, store):
        tables.put(LEASES, {"leaseKey": {"S": "Migration3.0"}, "cv": {"S": "CLIENT_VERSION_9X"}})
        with pytest.raises(MalformedData, match="CLIENT_VERSION_9X"):
            await store.client_version()

    on_one_table(test)


def test_a_write_that_never_gets_an_answer_is_told():
    async def test(tables, store):
        tables.world.fault("lose request", "PutItem", times=9)
        with pytest.raises(UnknownOutcome):
            await store.create_client_version(NEW)
        tables.world.faults.clear()
        tables.world.fault("lose answer", "PutItem")
        tables.world.fault("refuse", "GetItem")
        with pytest.raises(UnknownOutcome) as caught:
            await store.create_client_version(NEW)
        assert isinstance(caught.value.__cause__, Unreachable)

    on_one_table(test)


# -- table migration ------------------------------------------------------------------------------


def test_the_table_migration_is_driven_through_the_legacy_table():
    async def test(tables, store):
        assert await store.has_legacy_table()
        assert await store.table_migration() is None
        assert await store.create_table_migration(BEGUN)
        assert not await store.create_table_migration(DEPLOYED)
        assert await store.change_table_migration(BEGUN, DEPLOYED)
        assert not await store.change_table_migration(BEGUN, DEPLOYED.changed(*_again(DEPLOYED)))
        assert await store.table_migration() == DEPLOYED
        assert tables.items(LEASES) == {}
        assert not await store.delete_table_migration(BEGUN)
        assert await store.delete_table_migration(DEPLOYED)
        assert await store.delete_table_migration(DEPLOYED)
        assert await store.table_migration() is None

    on_three_tables(test)


def _again(state):
    return state.state, "other", 99


@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
def test_a_deletion_whose_answer_was_lost_is_known(fault):
    async def test(tables, store):
        await store.create_table_migration(BEGUN)
        tables.world.fault(fault, "DeleteItem")
        assert await store.delete_table_migration(BEGUN)
        assert tables.items(STATE_TABLE) == {}

    on_three_tables(test)


def test_an_application_of_one_table_has_no_other():
    async def test(tables, store):
        assert not await store.has_legacy_table()
        store.layout = tables.layout(TableStatus.TABLE_MIGRATION_STATUS_INIT)
        assert await store.table_migration() is None
        assert await store.items_to_move() == []
        assert await store.legacy_metrics() == ((), ())

    on_one_table(test)


def test_whether_there_are_three_tables_must_be_known():
    async def test(tables, store):
        tables.world.fault("refuse", "DescribeTable", error=Denied("DescribeTable", "x"))
        with pytest.raises(Denied):
            await store.has_legacy_table()

    on_one_table(test)


def test_a_lease_table_that_is_gone_is_told():
    async def test(tables, store):
        tables.world.delete_table()
        with pytest.raises(NotFound):
            await store.client_version()
        with pytest.raises(NotFound):
            await store.worker_metrics()

    on_one_table(test)


def stream(number):
    return {
        "key": {"S": f"123456789012:s{number}:1700000000"},
        "entityType": {"S": "STREAM"},
        "streamId": {"S": f"id-{number}"},
    }


async def fill(tables, store):
    """A legacy table with a lock, a migration and many streams; the version has no type."""
    tables.put(STATE_TABLE, {"key": {"S": "Leader"}, "ownerName": {"S": "w1"}})
    await store.create_table_migration(DEPLOYED)
    await store.create_client_version(FLIPPED)
    item = tables.items(STATE_TABLE)["Migration3.0"]
    tables.put(STATE_TABLE, {n: v for n, v in item.items() if n != "entityType"})
    for number in range(60):
        tables.put(STATE_TABLE, stream(number))


def test_all_but_the_lock_and_the_migration_itself_moves_into_the_lease_table():
    async def test(tables, store):
        await fill(tables, store)
        assert len(await store.items_to_move()) == 61
        assert await store.move_items("w1") == 61
        assert sorted(tables.items(STATE_TABLE)) == ["Leader", "TableMigration3.5"]
        moved = tables.items(LEASES)
        assert len(moved) == 61
        assert moved["Migration3.0"]["entityType"] == {"S": "CLIENT_VERSION_MIGRATION"}
        assert moved["123456789012:s7:1700000000"] == {
            "leaseKey": {"S": "123456789012:s7:1700000000"},
            "entityType": {"S": "STREAM"},
            "streamId": {"S": "id-7"},
        }
        assert await store.client_version() == FLIPPED
        sizes = [len(r["TransactItems"]) for r in tables.operations("TransactWriteItems")]
        assert sizes == [51, 51, 23]
        assert await store.items_to_move() == []
        assert await store.move_items("w1") == 0

    on_three_tables(test)


@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
def test_a_move_whose_answer_was_lost_is_done_once(fault):
    async def test(tables, store):
        await fill(tables, store)
        tables.world.fault(fault, "TransactWriteItems")
        assert await store.move_items("w1") == 61
        assert len(tables.items(LEASES)) == 61

    on_three_tables(test)


def test_a_move_without_an_answer_is_told():
    async def test(tables, store):
        await fill(tables, store)
        tables.world.fault("lose request", "TransactWriteItems", times=3)
        with pytest.raises(UnknownOutcome):
            await store.move_items("w1")

    on_three_tables(test)


def test_only_the_leader_moves_items():
    async def test(tables, store):
        await fill(tables, store)
        with pytest.raises(TransactionCanceled) as caught:
            await store.move_items("w2")
        assert caught.value.reasons[0] == "ConditionalCheckFailed"
        assert tables.items(LEASES) == {}

    on_three_tables(test)


def test_an_item_that_nobody_would_know_in_the_lease_table_stays():
    async def test(tables, store):
        await fill(tables, store)
        tables.put(STATE_TABLE, {"key": {"S": "odd"}, "x": {"S": "y"}})
        with pytest.raises(MalformedData, match="item odd of table app-CoordinatorState"):
            await store.move_items("w1")
        assert tables.items(LEASES) == {}

    on_three_tables(test)


def test_an_item_of_a_type_of_a_later_version_moves_as_it_is():
    async def test(tables, store):
        await fill(tables, store)
        tables.put(STATE_TABLE, {"key": {"S": "odd"}, "entityType": {"S": "NEWER"}})
        assert await store.move_items("w1") == 62
        assert tables.items(LEASES)["odd"]["entityType"] == {"S": "NEWER"}

    on_three_tables(test)


def test_what_is_written_again_after_it_was_moved_replaces_what_was_moved():
    """A worker of 3.1 that starts writes its ``Migration3.0`` again: no leader could ever move on."""

    async def test(tables, store):
        await fill(tables, store)
        await store.move_items("w1")
        moved = tables.items(LEASES)["Migration3.0"]
        tables.put(LEASES, {**moved, "team": {"S": "blue"}})
        again = {"key": {"S": "Migration3.0"}, "cv": {"S": "CLIENT_VERSION_3X"}}
        again |= {"mb": {"S": "java"}, "mts": {"N": "5"}}
        tables.put(STATE_TABLE, again)
        assert await store.move_items("w1") == 1
        item = tables.items(LEASES)["Migration3.0"]
        assert (item["mb"], item["mts"], item["team"]) == ({"S": "java"}, {"N": "5"}, {"S": "blue"})
        assert await store.items_to_move() == []

    on_three_tables(test)


def test_what_has_the_key_of_something_else_is_not_moved():
    async def test(tables, store):
        await fill(tables, store)
        tables.put(LEASES, {"leaseKey": {"S": "Migration3.0"}, "entityType": {"S": "STREAM"}})
        with pytest.raises(MalformedData, match=r"item Migration3\.0 is in table"):
            await store.move_items("w1")

    on_three_tables(test)


def test_the_end_of_the_migration_is_said_in_both_tables_by_its_leader():
    async def test(tables, store):
        await fill(tables, tables.store(TableStatus.TABLE_MIGRATION_STATUS_DEPLOYED))
        await store.change_table_migration(DEPLOYED, PENDING)
        with pytest.raises(TransactionCanceled):
            await store.complete_table_migration(PENDING, COMPLETE, "w2")
        with pytest.raises(TransactionCanceled):
            await store.complete_table_migration(DEPLOYED, COMPLETE, "w1")
        assert "TableMigration3.5" not in tables.items(LEASES)
        await store.complete_table_migration(PENDING, COMPLETE, "w1")
        assert await store.table_migration() == COMPLETE
        store.layout = tables.layout()
        assert await store.table_migration() == COMPLETE

    on_three_tables(test, TableStatus.TABLE_MIGRATION_STATUS_PENDING)


# -- metrics --------------------------------------------------------------------------------------


def test_metrics_are_written_over_those_before_and_leave_what_others_added():
    async def test(tables, store):
        await store.report(METRICS)
        tables.put(LEASES, {**tables.items(LEASES)["w1"], "properties": {"M": {}}})
        later = WorkerMetrics("w1", 130, {}, {}, 1, 130)
        await store.report(later)
        assert await store.worker_metrics() == (later,)
        assert tables.items(LEASES)["w1"]["properties"] == {"M": {}}

    on_one_table(test)


@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
def test_metrics_whose_answer_was_lost_are_written(fault):
    async def test(tables, store):
        tables.world.fault(fault)
        await store.report(METRICS)
        assert await store.worker_metrics() == (METRICS,)

    on_one_table(test)


def test_metrics_never_overwrite_another_kind_of_item():
    async def test(tables, store):
        tables.world.put(lease(lease_key="w1"))
        before = tables.items(LEASES)
        with pytest.raises(ConfigError, match="w1 is the key of another item in table app"):
            await store.report(METRICS)
        assert tables.items(LEASES) == before

    on_one_table(test)


@pytest.mark.parametrize("worker_id", ["Leader", "shardId-000000000007", "1:s:2"])
def test_no_metrics_are_written_under_a_key_that_another_item_may_get(worker_id):
    async def test(tables, store):
        with pytest.raises(ConfigError, match=f"workerId: {worker_id} is the "):
            await store.report(WorkerMetrics(worker_id, 5))
        assert tables.items(LEASES) == {}

    on_one_table(test)


def test_metrics_of_3_0_are_in_their_own_table_and_those_of_newer_workers_in_both():
    async def test(tables, store):
        await store.report(METRICS)
        await store.report(WorkerMetrics("Leader", 1))
        await store.delete_metrics(METRICS_TABLE, WorkerMetrics("Leader", 1))
        old = {"wid": {"S": "w0"}, "lut": {"N": "90"}, "sts": {"M": {}}, "opr": {"M": {}}}
        tables.put(METRICS_TABLE, old)
        tables.put(METRICS_TABLE, {"wid": {"S": "odd"}})
        await tables.store().report(WorkerMetrics("w2", 95))
        tables.world.put(lease())
        assert [one.worker_id for one in await store.worker_metrics()] == ["w0", "w1", "w2"]
        legacy, broken = await store.legacy_metrics()
        assert [one.worker_id for one in legacy] == ["w0", "w1"]
        assert broken == (("odd", "lut is missing"),)

    on_three_tables(test)


def test_metrics_are_deleted_unless_their_worker_lives():
    async def test(tables, store):
        await store.report(METRICS)
        assert not await store.delete_metrics(LEASES, WorkerMetrics("w1", 99))
        assert await store.delete_metrics(LEASES, METRICS)
        assert tables.items(LEASES) == {}
        assert await store.delete_metrics(LEASES, METRICS)

    on_one_table(test)


# -- the items below ------------------------------------------------------------------------------


def test_a_table_is_read_page_by_page():
    async def test(tables, _store):
        items = StateItems(tables.world.dynamodb("me"), random.Random(0))
        for number in range(7):
            await items.create(LEASES, {"leaseKey": {"S": f"k{number}"}, "a": {"N": "1"}})
        tables.world.model.settings.page_items = 2
        assert len(await items.all(LEASES)) == 7

    on_one_table(test)


def test_a_change_refused_after_a_lost_answer_was_our_own():
    """The first send came late: behind the read, before the second one."""

    async def test(tables, _store):
        items = StateItems(tables.world.dynamodb("me"), random.Random(0))
        await items.create(LEASES, {"leaseKey": {"S": "k"}, "a": {"N": "1"}})
        tables.world.fault("lose request")

        async def late(_service, operation, _request):
            if operation == "UpdateItem" and not tables.world.faults[0].times:
                item = {"leaseKey": {"S": "k"}, "a": {"N": "2"}}
                tables.put(LEASES, item)

        dynamodb = items._dynamodb
        before = dynamodb.before

        async def both(service, operation, request):
            await late(service, operation, request)
            await before(service, operation, request)

        dynamodb.before = both
        assert await items.change(LEASES, "k", {"a": {"N": "2"}}, {"a": {"N": "1"}})

    on_one_table(test)
