"""What people do to a 3.x fleet while it works, and judges that notice who does it wrong."""

from __future__ import annotations

import dataclasses

import pytest

from kcl_mld.fleet import coordinator_state, fleet_state, leader_lock, lease_assigner
from kcl_mld.fleet.model.state_history import ClientVersion
from kcl_mld.fleet.rules import client_version, table_migration
from kcl_mld.fleet.rules.client_version import Behaviour, Mode
from kcl_mld.fleet.standby_leader import StandbyLeader
from kcl_mld.fleet.state_items import StateItems
from tests.sim import fleet_judge
from tests.sim.changes import Changes
from tests.sim.fleet import judge
from tests.sim.plan import Plan

pytestmark = pytest.mark.sim

CALM = Plan(seed=1, workers=2, shards=3, is_assigned=True, chaos_s=60)
FAULTY = dataclasses.replace(
    CALM, workers=3, faults=("kill", "stop", "freeze", "throttle", "slow", "join"), chaos_s=200
)
ROLLBACK = Changes(
    starts_as="CLIENT_VERSION_3X_WITH_ROLLBACK", generations=("rollback",), every_s=30.0
)
MOVE = Changes(is_legacy=True, moves_from="TABLE_MIGRATION_STATUS_DEPLOYED", bake_s=20.0)
LOSS = Changes(is_legacy=True, losses=("coordinator", "metrics"), lost_s=60.0)


def convicted(plan):
    return {violation.rule for violation in judge(plan).violations}


def changed(plan, changes, **more):
    return dataclasses.replace(plan, changes=dataclasses.replace(changes, **more))


@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize(
    "generations", [("rollback",), ("rollback", "rollforward", "flip", "settle")]
)
def test_a_fleet_is_rolled_back_and_forward_in_the_midst_of_faults(generations, is_legacy):
    plan = changed(FAULTY, ROLLBACK, generations=generations, is_legacy=is_legacy)
    verdict = judge(plan)
    assert not verdict.violations, verdict.report()


@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_fleet_with_java_workers_of_3x_is_rolled_back_and_forward_too(seed, is_legacy):
    ways = ("rollback", "rollforward", "flip")
    plan = changed(FAULTY, ROLLBACK, generations=ways, is_legacy=is_legacy, every_s=120.0)
    verdict = judge(dataclasses.replace(plan, seed=seed, workers=2, peers=2, shards=5))
    assert not verdict.violations, verdict.report()
    assert verdict.counts["leader"] > 1


@pytest.mark.parametrize("seed", range(3))
def test_three_tables_become_one_though_a_leader_dies_at_each_step(seed):
    plan = dataclasses.replace(changed(FAULTY, MOVE, kills=5), seed=seed)
    verdict = judge(plan)
    assert not verdict.violations, verdict.report()


def test_tables_stay_three_while_a_worker_of_3_1_is_there():
    plan = changed(CALM, MOVE, moves_from="", old_worker_s=90.0)
    verdict = judge(plan)
    assert not verdict.violations, verdict.report()


def test_a_worker_of_3_1_that_starts_again_during_the_move_only_delays_it():
    """It writes what was moved once more; no leader could ever move on."""
    verdict = judge(changed(CALM, MOVE, bake_s=90.0, returns_s=40.0))
    assert not verdict.violations, verdict.report()


@pytest.mark.parametrize("lost_s", [5.0, 120.0])
def test_tables_of_the_fleet_that_are_lost_and_restored_lose_nothing(lost_s):
    verdict = judge(changed(FAULTY, LOSS, lost_s=lost_s))
    assert not verdict.violations, verdict.report()


# -- planted faults --------------------------------------------------------------------------------


def test_a_leader_that_believes_in_its_lock_for_too_long_is_noticed(monkeypatch):
    monkeypatch.setattr(leader_lock, "believed_until", lambda requested_at, _s: requested_at + 99)
    plan = dataclasses.replace(CALM, faults=("partition",), fault_every_s=5.0, chaos_s=200)
    assert "S10" in convicted(plan)


def test_a_leader_that_leads_on_after_a_rollback_is_noticed(monkeypatch):
    behaviour = client_version.BEHAVIOUR | {
        ClientVersion.CLIENT_VERSION_2X: Behaviour(Mode.ASSIGNED, reports=True)
    }
    monkeypatch.setattr(fleet_state, "BEHAVIOUR", behaviour)
    assert "S12" in convicted(changed(CALM, ROLLBACK))


def test_a_table_that_is_read_after_it_was_left_is_noticed(monkeypatch):
    monkeypatch.setattr(fleet_judge, "SETTLE_S", 5.0)

    async def asks(self, _scan):
        await self._items.legacy_metrics()
        return True

    monkeypatch.setattr(StandbyLeader, "_is_standby", asks)
    assert "S13" in convicted(changed(CALM, MOVE, bake_s=5.0))


def test_attributes_that_are_not_moved_are_noticed(monkeypatch):
    renamed = coordinator_state._renamed

    def forget(item, source, target):
        return {
            name: value for name, value in renamed(item, source, target).items() if name != "team"
        }

    monkeypatch.setattr(coordinator_state, "_renamed", forget)
    assert "S14" in convicted(changed(CALM, MOVE))


def test_attributes_that_a_change_removes_are_noticed(monkeypatch):
    async def change(self, place, key, attributes, expected):
        item = {place.key_name: {"S": key}, **attributes}
        await self._dynamodb.put_item(TableName=place.table, Item=item)
        return True

    monkeypatch.setattr(StateItems, "change", change)
    assert "S14" in convicted(changed(CALM, MOVE))


def test_tables_that_never_become_one_are_noticed(monkeypatch):
    transitions = table_migration.TRANSITIONS | {table_migration.PENDING: {}}
    monkeypatch.setattr(table_migration, "TRANSITIONS", transitions)
    assert "L8" in convicted(changed(CALM, MOVE))


def test_leases_that_no_leader_assigns_are_noticed(monkeypatch):
    plan_assignment = lease_assigner.plan_assignment

    def none(*arguments):
        return dataclasses.replace(plan_assignment(*arguments), moves=())

    monkeypatch.setattr(lease_assigner, "plan_assignment", none)
    assert "L1" in convicted(CALM)
