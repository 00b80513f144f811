"""Which fleets a 2.x worker can join."""

import pytest

from mld.decide.fleet import FleetVersion, check_stream_mode, fleet_version
from mld.errors import UnservableFleet
from tests.fakes.lease_world import lease


def item(version):
    return {"cv": {"S": version}, "leaseKey": {"S": "Migration3.0"}}


@pytest.mark.parametrize(
    ("items", "version"),
    [
        ({}, FleetVersion.V2),
        ({"app": None, "app-CoordinatorState": None}, FleetVersion.V2),
        ({"app": item("CLIENT_VERSION_2X")}, FleetVersion.V2),
        ({"app": item("CLIENT_VERSION_UPGRADE_FROM_2X")}, FleetVersion.UPGRADING),
        (
            {"app": item("CLIENT_VERSION_UPGRADE_FROM_2X"), "x": item("CLIENT_VERSION_2X")},
            FleetVersion.UPGRADING,
        ),
    ],
)
def test_fleets_without_an_assigning_leader_can_be_joined(items, version):
    assert fleet_version(items) is version


@pytest.mark.parametrize("version", ["CLIENT_VERSION_3X", "CLIENT_VERSION_3X_WITH_ROLLBACK"])
@pytest.mark.parametrize("table", ["app", "app-CoordinatorState"])
def test_a_3x_fleet_is_refused_with_version_and_ways_out(table, version):
    with pytest.raises(UnservableFleet) as refused:
        fleet_version({"other": item("CLIENT_VERSION_2X"), table: item(version)})
    for expected in (table, version, "Keep the Java daemon", "applicationName"):
        assert expected in str(refused.value)


@pytest.mark.parametrize("unreadable", [item("CLIENT_VERSION_4X"), {}, {"cv": {"N": "3"}}])
def test_a_migration_item_that_cannot_be_understood_is_refused(unreadable):
    with pytest.raises(UnservableFleet, match="does not know"):
        fleet_version({"app": unreadable})


MULTI_KEY = "123456789012:s1:1700000000:shardId-000000000000"


@pytest.mark.parametrize(
    "row",
    [lease(lease_key=MULTI_KEY, stream_identifier="123456789012:s1:1700000000"),
     lease(lease_key=MULTI_KEY)],
)  # fmt: skip
def test_rows_of_a_multi_stream_application_are_refused_in_single_stream_mode(row):
    with pytest.raises(UnservableFleet, match="rows of a multi-stream application"):
        check_stream_mode([lease(), row], is_multi_stream=False)
    check_stream_mode([row], is_multi_stream=True)


def test_rows_of_a_single_stream_application_are_refused_in_multi_stream_mode():
    with pytest.raises(UnservableFleet, match="rows of a single-stream application"):
        check_stream_mode([lease()], is_multi_stream=True)
    check_stream_mode([lease()], is_multi_stream=False)
    check_stream_mode([], is_multi_stream=False)
