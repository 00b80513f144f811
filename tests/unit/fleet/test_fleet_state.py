"""Finding out what fleet a table belongs to, and changing it at a start."""

import asyncio

import pytest

from kcl_mld.config.fleet import ClientVersionConfig, FleetConfig
from kcl_mld.errors import Denied, Throttled, UnservableFleet
from kcl_mld.fleet import fleet_state
from kcl_mld.fleet.fleet_state import CREATION_PAUSE_S
from kcl_mld.fleet.model.state_history import ClientVersion
from kcl_mld.fleet.rules.client_version import Mode, VersionChange
from kcl_mld.leases.lease_scan import TableScan
from tests.fakes.fleet_items import COORDINATOR, legacy, migration, status
from tests.fakes.lease_world import TABLE, lease, load_nothing, on_table_with

V3 = ClientVersion.CLIENT_VERSION_3X
UPGRADE = ClientVersion.CLIENT_VERSION_UPGRADE_FROM_2X
ROLLBACK = ClientVersion.CLIENT_VERSION_3X_WITH_ROLLBACK
INIT = ClientVersion.CLIENT_VERSION_INIT


def state(world, worker="me", client_version=ClientVersionConfig.UNSAID, migrates=False, **how):
    config = FleetConfig(client_version=client_version, migrates_tables=migrates)
    return world.fleet_state(worker, config=config, **how)


on_table = on_table_with()


@pytest.mark.parametrize(
    "client_version", [ClientVersionConfig.UNSAID, ClientVersionConfig.STAY_3X]
)
def test_a_new_application_is_one_of_3x_with_javas_item(client_version):
    async def test(world):
        me = state(world, client_version=client_version)
        await me.join(load_nothing, is_new=True)
        assert me.version is V3
        assert me.behaviour.mode is Mode.ASSIGNED
        assert me.has_begun
        item = world.row("Migration3.0")
        (before,) = item.pop("h")["L"]
        assert item.pop("mts")["N"].isdigit()
        assert before["M"].pop("mts")["N"].isdigit()
        assert item == {
            "leaseKey": {"S": "Migration3.0"},
            "cv": {"S": "CLIENT_VERSION_3X"},
            "mb": {"S": "me"},
            "entityType": {"S": "CLIENT_VERSION_MIGRATION"},
        }
        assert before == {"M": {"cv": {"S": "CLIENT_VERSION_INIT"}, "mb": {"S": "me"}}}

    on_table(test)


def test_an_upgrade_names_the_owners_that_may_be_too_old_before_it_is_begun(caplog):
    async def test(world):
        rows = []

        def see(record):
            rows.append(world.row("Migration3.0"))
            return True

        fleet_state.log.addFilter(see)
        try:
            me = state(world, client_version=ClientVersionConfig.UPGRADE)
            await me.join(load_nothing, is_new=False, others={"java-2", "java-1"})
        finally:
            fleet_state.log.removeFilter(see)
        assert caplog.messages[0].startswith("Beginning the upgrade to KCL 3.x")
        assert "such workers: java-1, java-2." in caplog.messages[0]
        assert rows[0] == {}
        assert world.row("Migration3.0")

    on_table(test)


def test_an_upgrade_without_owners_of_others_has_no_such_warning(caplog):
    async def test(world):
        await state(world, client_version=ClientVersionConfig.UPGRADE).join(
            load_nothing, is_new=False
        )
        assert world.row("Migration3.0")
        assert "Beginning the upgrade" not in caplog.text

    on_table(test)


def test_who_stays_2x_writes_nothing():
    async def test(world):
        me = state(world, client_version=ClientVersionConfig.STAY_2X)
        await me.join(load_nothing, is_new=True)
        assert me.version is INIT
        assert world.row("Migration3.0") == {}

    on_table(test)


def test_of_two_that_start_a_fleet_the_slower_one_joins():
    async def test(world):
        both = [state(world, name) for name in "ab"]
        world.fault("slow", "PutItem", seconds=2.0)  # beyond the other's pause
        async with asyncio.TaskGroup() as group:
            for one in both:
                group.create_task(one.join(load_nothing, is_new=True))
        assert [one.version for one in both] == [V3, V3]
        assert sum(one.has_begun for one in both) == 1

    on_table(test)


def test_a_java_worker_that_starts_at_the_same_time_is_left_its_item():
    async def test(world):
        me = state(world)
        async with asyncio.TaskGroup() as group:
            group.create_task(me.join(load_nothing, is_new=True))
            await asyncio.sleep(CREATION_PAUSE_S[0] / 2)
            world.put_item(migration(UPGRADE))
        assert me.version is UPGRADE
        assert not me.has_begun
        assert world.row("Migration3.0")["mb"] == {"S": "java"}

    on_table(test)


@pytest.mark.parametrize(
    ("stored", "client_version", "version"),
    [
        (None, ClientVersionConfig.UNSAID, INIT),
        (None, ClientVersionConfig.UPGRADE, UPGRADE),
        (UPGRADE, ClientVersionConfig.STAY_3X, UPGRADE),
        (ROLLBACK, ClientVersionConfig.STAY_3X, V3),
        (ROLLBACK, ClientVersionConfig.UNSAID, ROLLBACK),
    ],
)
@pytest.mark.parametrize("in_old_table", [True, False])
def test_the_file_and_what_is_stored_settle_the_generation(
    stored, client_version, version, in_old_table
):
    async def test(world):
        if in_old_table:
            legacy(world, *([migration(stored, "key")] if stored else []))
        elif stored:
            world.put_item(migration(stored))
        me = state(world, client_version=client_version)
        await me.join(load_nothing, is_new=False)
        assert me.version is version
        items = world.model.items(COORDINATOR if in_old_table else TABLE)
        found = [one["cv"]["S"] for one in items]
        assert found == ([] if version is INIT else [version.value])
        assert me.layout.is_single_table is not in_old_table
        assert me.layout.writes_to_lease_table is not in_old_table

    on_table(test)


@pytest.mark.parametrize(
    ("stored", "migrates", "to_leases", "is_single"),
    [
        ("INIT", False, False, False),
        ("DEPLOYED", False, False, False),
        ("DEPLOYED", True, True, False),
        ("PENDING", True, True, False),
        ("PENDING", False, False, False),
        ("COMPLETE", False, True, True),
    ],
)
def test_items_are_where_the_table_migration_says(stored, migrates, to_leases, is_single):
    async def test(world):
        legacy(world, status(stored))
        me = state(world, migrates=migrates)
        if stored == "COMPLETE":
            world.put_item({**status(stored), "leaseKey": {"S": "TableMigration3.5"}})
        await me.join(load_nothing, is_new=False)
        assert me.layout.writes_to_lease_table is to_leases
        assert me.layout.is_single_table is is_single

    on_table(test)


def test_the_end_of_a_table_migration_is_noticed_and_the_lock_moves():
    async def test(world):
        legacy(world, status("PENDING"))
        world.put_item(migration(V3))
        me = state(world, migrates=True)
        await me.join(load_nothing, is_new=False)
        assert me.layout.lock.table == COORDINATOR
        await me.look()
        world.model.call("PutItem", {"TableName": COORDINATOR, "Item": status("COMPLETE")})
        await me.look()
        assert me.layout.lock.table == TABLE
        assert me.version is V3
        world.model.call("DeleteTable", {"TableName": COORDINATOR})
        await me.look()

    on_table(test)


def test_a_table_of_3_0_that_appears_later_is_joined():
    async def test(world):
        me = state(world)
        await me.join(load_nothing, is_new=False)
        await me.changed.wait(0)
        legacy(world, migration(V3, "key"))
        await me.look()
        assert me.version is V3
        assert me.layout.lock.table == COORDINATOR
        assert await me.changed.wait(0)

    on_table(test)


def test_two_fleets_with_one_set_of_leases_are_refused():
    async def test(world):
        world.put_item(migration(V3))
        legacy(world)
        with pytest.raises(UnservableFleet, match="two fleets"):
            await state(world).join(load_nothing, is_new=False)

    on_table(test)


@pytest.mark.parametrize("key", ["Migration3.0", "TableMigration3.5"])
def test_what_cannot_be_read_is_refused_at_a_start(key):
    async def test(world):
        legacy(world, {"key": {"S": key}, "cv": {"S": "CLIENT_VERSION_4X"}})
        with pytest.raises(UnservableFleet, match=f"the item {key}"):
            await state(world).join(load_nothing, is_new=False)

    on_table(test)


def test_without_leases_to_assign_an_unreadable_item_ends_the_worker_and_with_them_it_goes_on(
    caplog,
):
    async def test(world):
        taking, assigned = state(world), state(world)
        await taking.join(load_nothing, is_new=False)
        world.put_item(migration(V3))
        await assigned.join(load_nothing, is_new=False)
        world.put_item(migration("CLIENT_VERSION_4X"))
        with pytest.raises(UnservableFleet, match="CLIENT_VERSION_4X"):
            await taking.look()
        scan = TableScan((), {"Migration3.0": world.row("Migration3.0")})
        assert assigned.is_outdated(scan)
        await assigned.look()
        await assigned.look()
        assert not assigned.is_outdated(scan)
        assert assigned.version is V3

    on_table(test)
    assert sum("Continuing as before" in line for line in caplog.messages) == 1


def test_a_rollback_and_a_rollforward_are_followed_and_a_lost_item_is_not():
    async def test(world):
        world.put_item(migration(ROLLBACK))
        me = state(world)
        await me.join(load_nothing, is_new=False)
        for version in (ClientVersion.CLIENT_VERSION_2X, UPGRADE, ROLLBACK):
            world.put_item(migration(version))
            await me.look()
            assert me.version is version
        world.model.call(
            "DeleteItem", {"TableName": TABLE, "Key": {"leaseKey": {"S": "Migration3.0"}}}
        )
        await me.look()
        assert me.version is ROLLBACK

    on_table(test)


def test_a_scan_that_shows_something_else_is_a_reason_to_look_and_decides_nothing():
    async def test(world):
        me = state(world)
        await me.join(load_nothing, is_new=False)
        assert not me.is_outdated(TableScan((), {}))
        old = migration(UPGRADE)
        world.put_item(old)
        scan = TableScan((), {"Migration3.0": old})
        assert me.is_outdated(scan)
        await me.look()
        assert not me.is_outdated(scan)
        world.put_item(migration(ROLLBACK))
        await me.look()
        assert me.is_outdated(scan)
        await me.look()
        assert me.version is ROLLBACK

    on_table(test)


def test_the_leader_flips_a_fleet_once_and_only_where_the_table_says_so():
    async def test(world):
        me, other = state(world, client_version=ClientVersionConfig.UPGRADE), state(world, "b")
        await me.join(load_nothing, is_new=False)
        await other.join(load_nothing, is_new=False)
        assert await me.flip(VersionChange.READY)
        assert me.version is ROLLBACK
        assert not await other.flip(VersionChange.READY)
        item = world.row("Migration3.0")
        assert [one["M"]["cv"]["S"] for one in item["h"]["L"]] == [
            "CLIENT_VERSION_UPGRADE_FROM_2X",
            "CLIENT_VERSION_INIT",
        ]
        world.put_item(migration(UPGRADE))
        world.fault("slow", "UpdateItem", seconds=1.0)
        async with asyncio.TaskGroup() as group:
            flipping = group.create_task(me.flip(VersionChange.READY))
            await asyncio.sleep(0.5)
            world.put_item(migration("CLIENT_VERSION_2X"))
        assert not flipping.result()
        world.model.call(
            "DeleteItem", {"TableName": TABLE, "Key": {"leaseKey": {"S": "Migration3.0"}}}
        )
        assert not await me.flip(VersionChange.READY)

    on_table(test)


def test_without_permission_nothing_is_begun_and_it_is_said_once(caplog):
    async def test(world):
        denied = Denied("DescribeTable", "AccessDeniedException")
        world.fault("refuse", "DescribeTable", times=3, error=denied)
        me = state(world)
        await me.join(load_nothing, is_new=True)
        await me.look()
        assert me.version is INIT
        world.faults.clear()
        await me.join(load_nothing, is_new=True)
        assert me.version is V3

    on_table(test)
    assert sum("dynamodb:DescribeTable" in line for line in caplog.messages) == 1
    assert sum("Working as a KCL 2.x worker" in line for line in caplog.messages) == 1


def test_without_permission_a_fleet_of_2x_is_joined_without_a_word_about_beginning(caplog):
    async def test(world):
        denied = Denied("DescribeTable", "AccessDeniedException")
        world.fault("refuse", "DescribeTable", times=3, error=denied)
        me = state(world)
        await me.join(load_nothing, is_new=False)
        assert me.version is INIT

    on_table(test)
    assert not any("Working as a KCL 2.x worker" in line for line in caplog.messages)


def test_who_begins_a_fleet_says_who_cannot_join_it(caplog):
    async def test(world):
        await state(world).join(load_nothing, is_new=True)

    caplog.set_level("INFO")
    on_table(test)
    (line,) = (line for line in caplog.messages if "new application" in line)
    assert "Java workers older than 3.5" in line
    assert "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1" in line


def test_a_table_that_does_not_answer_is_an_error():
    async def test(world):
        world.fault("throttle", "GetItem")
        with pytest.raises(Throttled):
            await state(world).join(load_nothing, is_new=True)
        world.put(lease())

    on_table(test)
