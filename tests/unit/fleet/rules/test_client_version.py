"""The generations of a fleet: who changes them, and what a worker does in each."""

import re

import pytest

from kcl_mld.config.fleet import ClientVersionConfig
from kcl_mld.fleet.model.state_history import ClientVersion
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules import client_version
from kcl_mld.fleet.rules.client_version import (
    BEHAVIOUR,
    READY_S,
    TRANSITIONS,
    FlipReadiness,
    Mode,
    VersionChange,
    change_at_start,
    followed,
    unready,
)
from kcl_mld.kernel.model.sequence import SHARD_END
from tests.fakes.lease_world import lease

INIT = ClientVersion.CLIENT_VERSION_INIT
UPGRADE = ClientVersion.CLIENT_VERSION_UPGRADE_FROM_2X
V2 = ClientVersion.CLIENT_VERSION_2X
ROLLBACK = ClientVersion.CLIENT_VERSION_3X_WITH_ROLLBACK
V3 = ClientVersion.CLIENT_VERSION_3X


@pytest.mark.parametrize(
    ("stored", "client_version", "state"),
    [
        (INIT, ClientVersionConfig.STAY_2X, INIT),
        (INIT, ClientVersionConfig.UPGRADE, UPGRADE),
        (INIT, ClientVersionConfig.STAY_3X, V3),
        (INIT, ClientVersionConfig.UNSAID, V3),
        (UPGRADE, ClientVersionConfig.STAY_2X, UPGRADE),
        (UPGRADE, ClientVersionConfig.UPGRADE, UPGRADE),
        (UPGRADE, ClientVersionConfig.STAY_3X, UPGRADE),
        (V2, ClientVersionConfig.STAY_2X, V2),
        (V2, ClientVersionConfig.UPGRADE, V2),
        (V2, ClientVersionConfig.STAY_3X, V2),
        (ROLLBACK, ClientVersionConfig.STAY_2X, ROLLBACK),
        (ROLLBACK, ClientVersionConfig.UPGRADE, ROLLBACK),
        (ROLLBACK, ClientVersionConfig.STAY_3X, V3),
        (ROLLBACK, ClientVersionConfig.UNSAID, ROLLBACK),
        (V3, ClientVersionConfig.STAY_2X, V3),
        (V3, ClientVersionConfig.UPGRADE, V3),
        (V3, ClientVersionConfig.STAY_3X, V3),
    ],
)
def test_a_worker_starts_as_javas_table_says(stored, client_version, state):
    change = change_at_start(stored, client_version, is_new=True)
    assert (stored if change is None else TRANSITIONS[stored][change]) is state


@pytest.mark.parametrize(
    "client_version",
    [ClientVersionConfig.UNSAID, ClientVersionConfig.STAY_3X, ClientVersionConfig.STAY_2X],
)
def test_rows_of_a_2x_fleet_stay_rows_of_a_2x_fleet(client_version):
    assert change_at_start(INIT, client_version, is_new=False) is None
    assert (
        change_at_start(INIT, ClientVersionConfig.UPGRADE, is_new=False) is VersionChange.COMPATIBLE
    )


@pytest.mark.parametrize(
    ("current", "stored", "now"),
    [
        (INIT, None, INIT),
        (INIT, UPGRADE, UPGRADE),
        (INIT, V3, V3),
        (INIT, V2, V2),
        (UPGRADE, ROLLBACK, ROLLBACK),
        (UPGRADE, V3, V3),
        (UPGRADE, None, UPGRADE),
        (UPGRADE, INIT, UPGRADE),
        (ROLLBACK, V2, V2),
        (ROLLBACK, UPGRADE, UPGRADE),
        (V2, UPGRADE, UPGRADE),
        (V2, ROLLBACK, ROLLBACK),
        (V3, V2, V3),
        (V3, None, V3),
    ],
)
def test_a_running_worker_follows_what_the_tables_allow(current, stored, now):
    assert followed(current, stored) is now


def test_every_state_has_a_behaviour_and_the_diagram_has_every_change():
    assert set(BEHAVIOUR) == set(TRANSITIONS) == set(ClientVersion)
    assert BEHAVIOUR[UPGRADE].reports
    assert BEHAVIOUR[UPGRADE].mode is Mode.TAKES
    drawn = client_version.mermaid()
    for change in VersionChange:
        assert change.value in drawn


def metrics(*workers, at=1000):
    return [WorkerMetrics(worker, at) for worker in workers]


@pytest.mark.parametrize(
    ("leases", "reports", "has_index", "why"),
    [
        ([], [], True, None),
        ([lease(lease_owner="a")], metrics("a"), False, "index"),
        ([lease(lease_owner="a")], metrics("a"), True, None),
        ([lease(lease_owner="a")], metrics("a", at=961), True, None),
        ([lease(lease_owner="a")], metrics("a", at=960), True, r"worker a .*\(1 of 1 don't\)"),
        ([lease(lease_owner="a"), lease(1, lease_owner="b")], metrics("a"), True, "worker b"),
        ([lease(lease_owner="a"), lease(1)], metrics("a"), True, "no owner"),
        ([lease(lease_owner="a"), lease(1, checkpoint=SHARD_END)], metrics("a"), True, None),
        ([lease(1, checkpoint=SHARD_END, lease_owner="b")], metrics("a"), True, "worker b"),
    ],
)
def test_a_fleet_is_ready_when_every_owner_reports(leases, reports, has_index, why):
    found = unready(leases, reports, 1020.0, has_index=has_index)
    if why is None:
        assert found is None
    else:
        assert re.search(why, found)


def test_it_has_to_be_ready_for_ten_minutes_without_a_break():
    seen = FlipReadiness().seen(None, 5.0)
    seen = seen.seen(None, 500.0)
    assert not seen.is_long_enough(4.0 + READY_S)
    assert seen.is_long_enough(5.0 + READY_S)
    seen = seen.seen("worker b writes no metrics", 500.0)
    assert not seen.is_long_enough(9999.0)
    assert not seen.seen(None, 600.0).is_long_enough(600.0)
