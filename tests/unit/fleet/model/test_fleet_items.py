"""Items that 3.x fleets keep beside leases: what is read, what is written, what is refused."""

from dataclasses import replace

import pytest

from kcl_mld.config.reserved_keys import key_taken_by_others
from kcl_mld.errors import MalformedData
from kcl_mld.fleet.model.lock_item import LockItem, lock_from_item, lock_to_item
from kcl_mld.fleet.model.state_history import (
    ClientVersion,
    MigrationState,
    StateChange,
    TableStatus,
    migration_from_item,
    migration_to_item,
    table_migration_from_item,
    table_migration_to_item,
)
from kcl_mld.fleet.model.table_layout import Layout, Place
from kcl_mld.fleet.model.worker_metrics import (
    WorkerMetrics,
    WorstLag,
    metrics_from_item,
    metrics_in,
    metrics_to_item,
)
from kcl_mld.leases.model.owner_index import index_creation, index_status
from kcl_mld.leases.model.table_item import Entity, decimal, decimal_of, entity_of, rounded, text_of

METRICS = WorkerMetrics(
    "w1", 1795252393, {"C": (12.5, -1.0, 0.333333)}, {"C": (100,)}, 1, 1795252390
)
STATE = MigrationState(StateChange(ClientVersion.CLIENT_VERSION_3X, "w1", 1795252290916))
TABLE_STATE = table_migration_from_item(
    {
        "key": {"S": "TableMigration3.5"},
        "tm": {"S": "TABLE_MIGRATION_STATUS_INIT"},
        "mb": {"S": "w1"},
        "mts": {"N": "5"},
    }
)
LOCK = LockItem("w1", 120.0, "94dd2283-2996-4e9f-9b96-485bc8b6638f")


# -- metrics --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key_name", ["leaseKey", "wid"])
def test_metrics_are_read_as_they_were_written(key_name):
    item = metrics_to_item(METRICS, key_name)
    assert item[key_name] == {"S": "w1"}
    assert item["lut"] == {"N": "1795252393"}
    assert item["sts"] == {"M": {"C": {"L": [{"N": "12.5"}, {"N": "-1"}, {"N": "0.333333"}]}}}
    assert item["opr"] == {"M": {"C": {"L": [{"N": "100"}]}}}
    assert (item["sup"], item["slu"]) == ({"N": "1"}, {"N": "1795252390"})
    assert metrics_from_item(item, key_name) == METRICS


def test_a_worker_of_ours_may_say_its_group_and_others_need_not():
    said = replace(
        METRICS,
        group="blue",
        place="box",
        most=330,
        honors_pause=True,
        clock_ahead_s=-300,
        worst_lag=WorstLag("1:s:2:shard a", 31),
    )
    item = metrics_to_item(said, "wid")
    assert item["properties"] == {
        "M": {
            "kclMldWorkerGroup": {"S": "blue"},
            "kclMldMeasuredPlace": {"S": "box"},
            "kclMldMostRenewable": {"S": "330"},
            "kclMldHonorsPause": {"S": "1795252393"},
            "kclMldClockAheadSeconds": {"S": "-300 1795252393"},
            "kclMldWorstLag": {"S": "1795252393 31 1:s:2:shard a"},
        }
    }
    assert metrics_from_item(item, "wid") == said
    # A Java worker that got its id later keeps what it does not know.
    java = item | {"lut": {"N": "1795252423"}}
    assert not metrics_from_item(java, "wid").honors_pause
    assert metrics_from_item(java, "wid").worst_lag is None
    assert "properties" not in metrics_to_item(METRICS, "wid")


@pytest.mark.parametrize(("text", "most"), [("0", 0), ("7", 7), ("-7", None), ("many", None)])
def test_how_many_leases_a_worker_can_renew_is_a_number_or_not_said(text, most):
    item = metrics_to_item(METRICS, "wid") | {
        "properties": {"M": {"kclMldMostRenewable": {"S": text}}}
    }
    assert metrics_from_item(item, "wid") == replace(METRICS, most=most)


@pytest.mark.parametrize("text", ["-300", "-300 1795252391", "soon 1795252393", "300"])
def test_what_was_said_of_a_clock_in_another_report_or_form_does_not_count(text):
    """A worker that does not know the entry leaves it there."""
    item = metrics_to_item(METRICS, "wid") | {
        "properties": {"M": {"kclMldClockAheadSeconds": {"S": text}}}
    }
    assert metrics_from_item(item, "wid").clock_ahead_s is None


@pytest.mark.parametrize("text", ["1795252393 31", "1795252393 -1 a", "31 a", ""])
def test_a_worst_lag_of_another_form_does_not_count(text):
    item = metrics_to_item(METRICS, "wid") | {"properties": {"M": {"kclMldWorstLag": {"S": text}}}}
    assert metrics_from_item(item, "wid") == METRICS


def test_metrics_of_an_older_version_have_no_type_and_no_support():
    item = {"wid": {"S": "w1"}, "lut": {"N": "7"}, "properties": {"M": {}}}
    assert metrics_from_item(item, "wid") == WorkerMetrics("w1", 7)
    written = metrics_to_item(WorkerMetrics("w1", 7), "wid")
    assert "sup" not in written
    assert "slu" not in written
    assert (written["sts"], written["opr"]) == ({"M": {}}, {"M": {}})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"lut": None}, "lut is missing"),
        ({"lut": {"N": "1.5"}}, "lut is '1.5', not an integer"),
        ({"wid": None}, "wid is missing"),
        ({"sts": {"L": []}}, "sts is of type L, not M"),
        ({"sts": {"M": {"C": {"N": "1"}}}}, "sts.C is of type N, not L"),
        ({"sts": {"M": {"C": {"L": [{"S": "1"}]}}}}, "sts.C has an entry that is not a number"),
        ({"sts": {"M": {"C": {"L": [{"N": "x"}]}}}}, "sts.C has an entry that is not a number"),
        ({"opr": {"M": {"C": {"L": [{"N": "99.5"}]}}}}, "opr.C is '99.5', not an integer"),
        ({"opr": {"M": {"C": {"L": [{"NULL": True}]}}}}, "opr.C is missing"),
    ],
)
def test_metrics_that_cannot_be_read_say_why(changed, said):
    item = {**metrics_to_item(METRICS, "wid"), **changed}
    with pytest.raises(MalformedData, match=said):
        metrics_from_item({name: value for name, value in item.items() if value}, "wid")


def test_metrics_are_found_among_the_other_items_of_a_scan():
    other = WorkerMetrics("w0", 5)
    items = [
        metrics_to_item(METRICS, "leaseKey"),
        lock_to_item(LOCK, "leaseKey"),
        {"leaseKey": {"S": "odd"}, "entityType": {"S": "WORKER_METRIC_STATS"}},
        metrics_to_item(other, "leaseKey"),
    ]
    found = ((other, METRICS), (("odd", "lut is missing"),))
    assert metrics_in(items, "leaseKey") == found


# -- migrations -----------------------------------------------------------------------------------


def test_each_change_of_version_is_kept_newest_first_and_ten_at_most():
    state = STATE
    for number in range(12):
        state = state.changed(ClientVersion.CLIENT_VERSION_2X, f"w{number}", number)
    assert state.state is ClientVersion.CLIENT_VERSION_2X
    assert [change.modified_by for change in state.history] == [f"w{n}" for n in range(10, 0, -1)]
    item = migration_to_item(state, "key")
    assert item["key"] == {"S": "Migration3.0"}
    assert item["entityType"] == {"S": "CLIENT_VERSION_MIGRATION"}
    assert len(item["h"]["L"]) == 10
    assert migration_from_item(item) == state


def test_a_state_without_history_has_no_attribute_for_it():
    assert migration_to_item(STATE, "leaseKey") == {
        "leaseKey": {"S": "Migration3.0"},
        "entityType": {"S": "CLIENT_VERSION_MIGRATION"},
        "cv": {"S": "CLIENT_VERSION_3X"},
        "mb": {"S": "w1"},
        "mts": {"N": "1795252290916"},
    }


def test_the_state_of_the_table_migration_goes_both_ways():
    state = TABLE_STATE.changed(TableStatus.TABLE_MIGRATION_STATUS_DEPLOYED, "w2", 6)
    item = table_migration_to_item(state, "key")
    assert item == {
        "key": {"S": "TableMigration3.5"},
        "entityType": {"S": "TABLE_MIGRATION"},
        "tm": {"S": "TABLE_MIGRATION_STATUS_DEPLOYED"},
        "mb": {"S": "w2"},
        "mts": {"N": "6"},
        "h": {
            "L": [
                {
                    "M": {
                        "tm": {"S": "TABLE_MIGRATION_STATUS_INIT"},
                        "mb": {"S": "w1"},
                        "mts": {"N": "5"},
                    }
                }
            ]
        },
    }
    assert table_migration_from_item(item) == state


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cv": {"S": "CLIENT_VERSION_4X"}}, "cv is 'CLIENT_VERSION_4X', which is not known"),
        ({"cv": {"N": "3"}}, "cv is of type N, not S"),
        ({"mb": {"NULL": True}}, "mb is missing"),
        ({"mts": {"S": "5"}}, "mts is of type S, not N"),
        ({"h": {"L": [{"S": "x"}]}}, "h is of type S, not M"),
        ({"h": {"L": [{"NULL": True}]}}, "h is missing"),
        ({"h": {"L": [{"M": {}}]}}, "cv is missing"),
    ],
)
def test_a_state_that_cannot_be_read_says_why(changed, said):
    with pytest.raises(MalformedData, match=said):
        migration_from_item({**migration_to_item(STATE, "key"), **changed})


# -- the lock -------------------------------------------------------------------------------------


def test_the_lock_is_stored_with_its_duration_as_text():
    assert lock_to_item(LOCK, "leaseKey") == {
        "leaseKey": {"S": "Leader"},
        "ownerName": {"S": "w1"},
        "leaseDuration": {"S": "120000"},
        "recordVersionNumber": {"S": "94dd2283-2996-4e9f-9b96-485bc8b6638f"},
        "entityType": {"S": "LEADER"},
    }
    old = lock_to_item(LOCK, "key")
    del old["entityType"]  # as 3.0 to 3.4 write it
    assert lock_from_item(old) == LOCK
    assert lock_from_item({**old, "isReleased": {"S": "1"}}).is_released


def test_the_lock_says_when_its_owner_has_assigned_leases():
    lock = LockItem("worker of mine", 8.0, "v", assigned="an id")
    item = lock_to_item(lock, "leaseKey")
    assert item["kclMldAssigned"] == {"S": "an id worker of mine"}
    assert lock_from_item(item) == lock
    assert lock_from_item({**item, "kclMldCalled": {"S": "5"}}).called == "5"
    # A Java worker that takes the lock in place keeps the attribute.
    assert lock_from_item({**item, "ownerName": {"S": "java"}}).assigned is None


@pytest.mark.parametrize(
    ("duration", "said"),
    [
        ({"N": "120000"}, "leaseDuration is of type N, not S"),
        ({"S": "2 min"}, "leaseDuration is '2 min', not milliseconds"),
        ({"NULL": True}, "leaseDuration is missing"),
    ],
)
def test_a_lock_whose_duration_cannot_be_read_says_why(duration, said):
    with pytest.raises(MalformedData, match=said):
        lock_from_item({**lock_to_item(LOCK, "key"), "leaseDuration": duration})


# -- which is which -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "key_name", "entity"),
    [
        ({"leaseKey": {"S": "a"}}, "leaseKey", Entity.LEASE),
        ({"leaseKey": {"S": "a"}, "entityType": {"S": "LEASE"}}, "leaseKey", Entity.LEASE),
        ({"leaseKey": {"S": "a"}, "entityType": {"S": "STREAM"}}, "leaseKey", Entity.STREAM),
        ({"leaseKey": {"S": "a"}, "entityType": {"S": "NEW"}}, "leaseKey", None),
        ({"leaseKey": {"S": "Leader"}}, "leaseKey", Entity.LEADER),
        ({"key": {"S": "Leader"}}, "key", Entity.LEADER),
        ({"key": {"S": "Migration3.0"}}, "key", Entity.CLIENT_VERSION_MIGRATION),
        ({"key": {"S": "TableMigration3.5"}}, "key", Entity.TABLE_MIGRATION),
        ({"key": {"S": "whatever"}}, "key", None),
        ({"wid": {"S": "w1"}}, "wid", Entity.WORKER_METRIC_STATS),
    ],
)
def test_an_item_is_what_its_type_says_or_else_its_key(item, key_name, entity):
    assert entity_of(item, key_name) is entity


@pytest.mark.parametrize(
    ("worker_id", "why"),
    [
        ("Leader", "the key of an item"),
        ("Migration3.0", "the key of an item"),
        ("TableMigration3.5", "the key of an item"),
        ("shardId-000000000007", "the key of a lease"),
        ("kclMldFailedLife:a", "that kcl-mld keeps"),
        ("123456789012:s:1700000000", "of a stream or of a lease"),
        ("123456789012:s:1700000000:shardId-000000000007", "of a stream or of a lease"),
        ("orders", "the name of the stream"),
    ],
)
def test_a_worker_id_that_is_another_items_key_is_told(worker_id, why):
    assert why in (key_taken_by_others(worker_id, ("orders",)) or "")


@pytest.mark.parametrize("worker_id", ["host:17:4f1c2d", "leader", "w1", "shardId-x"])
def test_other_worker_ids_are_free(worker_id):
    assert key_taken_by_others(worker_id, ("orders",)) is None


# -- where it lives -------------------------------------------------------------------------------

LEASES, STATE_TABLE, METRICS_TABLE = (
    Place("app", "leaseKey"),
    Place("app-CoordinatorState", "key"),
    Place("app-WorkerMetricStats", "wid"),
)


def test_a_new_application_has_one_table():
    layout = Layout.named("app")
    assert layout.is_single_table
    assert layout.lock == layout.coordinator == layout.metrics == layout.table_migration == LEASES
    assert layout.coordinator_reads == layout.metrics_reads == (LEASES,)


def test_an_application_of_three_tables_is_read_in_both_places_and_led_in_the_old_one():
    layout = Layout(
        "app",
        "app-CoordinatorState",
        "app-WorkerMetricStats",
        TableStatus.TABLE_MIGRATION_STATUS_DEPLOYED,
        writes_to_lease_table=False,
    )
    assert layout.lock == layout.coordinator == layout.table_migration == STATE_TABLE
    assert layout.metrics == METRICS_TABLE
    assert layout.coordinator_reads == (STATE_TABLE, LEASES)
    assert layout.metrics_reads == (METRICS_TABLE, LEASES)


def test_a_fleet_about_to_have_one_table_writes_there_and_keeps_its_lock():
    layout = Layout(
        "app",
        "app-CoordinatorState",
        "app-WorkerMetricStats",
        TableStatus.TABLE_MIGRATION_STATUS_PENDING,
    )
    assert layout.lock == STATE_TABLE
    assert layout.coordinator == layout.metrics == LEASES


def test_tables_have_the_names_that_the_file_gives_them():
    layout = Layout.named("app", "leases", "state", "metrics")
    assert (layout.lease_table, layout.coordinator_table, layout.metrics_table) == (
        *("leases", "state", "metrics"),
    )


# -- the index ------------------------------------------------------------------------------------


def test_the_index_of_a_provisioned_table_gets_its_capacity():
    capacity = {"ReadCapacityUnits": 100, "WriteCapacityUnits": 50}
    table = {"ProvisionedThroughput": {**capacity, "NumberOfDecreasesToday": 0}}
    (update,) = index_creation(table)["GlobalSecondaryIndexUpdates"]
    assert update["Create"]["ProvisionedThroughput"] == capacity


@pytest.mark.parametrize("table", [{"BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"}}, {}])
def test_the_index_of_a_table_on_demand_or_of_one_that_says_nothing_gets_none(table):
    (update,) = index_creation(table)["GlobalSecondaryIndexUpdates"]
    assert "ProvisionedThroughput" not in update["Create"]


def test_the_status_of_the_index_is_found_among_others():
    other = {"IndexName": "other", "IndexStatus": "ACTIVE"}
    ours = {"IndexName": "LeaseOwnerToLeaseKeyIndex", "IndexStatus": "CREATING"}
    assert index_status({}) is None
    assert index_status({"GlobalSecondaryIndexes": [other]}) is None
    assert index_status({"GlobalSecondaryIndexes": [other, ours]}) == "CREATING"


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (100.0, "100"),
        (0.0000014, "0.000001"),
        (0.0000005, "0.000001"),
        (0.0000004, "0"),
        (309.5526, "309.5526"),
        (1234567.25, "1234567.25"),
    ],
)
def test_numbers_have_six_decimals_at_most(value, text):
    assert decimal(value) == {"N": text}
    assert rounded(value) == float(text)


def test_a_number_that_is_none_is_told():
    assert decimal_of({}, "a") is None
    assert decimal_of({"a": {"N": "1.0E-6"}}, "a") == 1e-06
    with pytest.raises(MalformedData, match="a is 'x', not a number"):
        decimal_of({"a": {"N": "x"}}, "a")
    assert text_of({"a": {"NULL": True}}, "a") is None
