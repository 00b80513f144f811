"""The workers of a fleet, from looks that were made to show them."""

from dataclasses import replace

from kcl_mld.fleet.model.lock_item import LockItem
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld.observe.model.fleet_snapshot import FleetItems, FleetSnapshot
from kcl_mld.observe.rules.explain import explain
from kcl_mld.observe.rules.fleet_workers import WorkerState, fleet_workers
from kcl_mld.observe.rules.watching import ExplainRules
from tests.fakes.lease_world import lease

RULES = ExplainRules(failover_s=10.0)


def look(at_s, *leases, **fields):
    rows = {one.lease_key: one for one in leases}
    return FleetSnapshot(began_at=at_s, at=at_s, wall_s=1000 + at_s, leases=rows, **fields)


def workers(*looks):
    return {one.worker: one for one in fleet_workers(looks[-1], explain(looks, RULES))}


def test_who_renews_lives_and_who_does_not_is_silent():
    rows = [lease(n, lease_owner=owner) for n, owner in enumerate(("a", "a", "b", "c"))]
    moved = [replace(rows[0], lease_counter=1), *rows[1:3], replace(rows[3], lease_counter=1)]
    found = workers(look(0, *rows), look(12, *moved), look(14, *moved))
    assert {name: (one.leases, one.silent, one.lives) for name, one in found.items()} == {
        "a": (2, 1, True),
        "b": (1, 1, False),
        "c": (1, 0, True),
    }
    assert list(found) == ["b", "a", "c"]


def test_one_look_tells_nothing_of_a_life():
    assert workers(look(0, lease(0, lease_owner="a")))["a"].lives is None


def test_finished_leases_and_those_of_nobody_count_for_nobody():
    rows = [lease(0, lease_owner="a", checkpoint=SHARD_END), lease(1)]
    assert workers(look(0, *rows)) == {}


def test_a_hand_off_counts_for_the_old_owner():
    found = workers(look(0, lease(0, lease_owner="new", checkpoint_owner="old")))
    assert found["old"].leases == 1
    assert "new" not in found


def test_what_metrics_say():
    metrics = (
        WorkerMetrics("a", 950, {"C": (10.0, 20.0, -1.0)}, group="blue"),
        WorkerMetrics("a", 940, {"C": (99.0,)}),
        WorkerMetrics("idle", 990),
        WorkerMetrics("gone", 100),
    )
    items = FleetItems(lock=LockItem("leader", 1.0, "v"), metrics=metrics)
    row = lease(0, lease_owner="a", throughput_kbps=7.5)
    found = workers(look(0, row), look(1, replace(row, lease_counter=1), items=items))
    assert found["a"] == WorkerState(
        worker="a",
        leases=1,
        lives=True,
        group="blue",
        cpu_percent=20.0,
        throughput_kbps=7.5,
        metrics_age_s=51.0,
    )
    assert found["idle"].lives is True
    assert found["idle"].cpu_percent is None
    assert found["gone"].lives is False
    assert (found["leader"].leads, found["leader"].lives) == (True, None)
    # A dead worker's last speed is no throughput.
    assert workers(look(0, row), look(20, row))["a"].throughput_kbps is None


def test_a_fleet_whose_items_are_not_known():
    found = workers(look(0, lease(0, lease_owner="a"), items=None, items_unknown="denied"))
    assert found["a"].metrics_age_s is None
