"""A fleet of ours: what the daemon's decisions come to, and that the model is faithful to them."""

import math
import random
from collections import Counter

import pytest

from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
from kcl_mld.fleet.rules.assignment.looks import FleetMemory, FleetView, observe
from kcl_mld.simulate.our_worker import remembered
from kcl_mld.simulate.scenario import Load
from kcl_mld.simulate.table import Bill, SimulatedRow, Table
from tests.unit.simulate.world import fleet_after, outcome


def test_two_waves_of_workers_end_at_half_and_half():
    found = outcome("ours", "join 10:groupB@5m", workers=10, shards=50)
    assert found.leases_by_group == {"groupA": 25, "groupB": 25}
    assert (found.fewest, found.most) == (2, 3)
    assert found.time_to_balance_s < 15


def test_groups_come_and_go_and_each_gets_its_share():
    found = outcome(
        "ours", "join 5:groupB@3m", "join 5:groupC@5m", "leave 5:groupA@8m", workers=5, shards=60
    )
    assert found.leases_by_group == {"groupA": 0, "groupB": 30, "groupC": 30}
    assert (found.fewest, found.most, found.free) == (6, 6, 0)


@pytest.mark.parametrize("seed", range(6))
def test_of_two_workers_a_dead_one_is_replaced_within_the_failover_time_and_seven_seconds(seed):
    changes = (f"kill 1:groupB@{400 + 2 * seed}s", "join 1:groupB@1s")
    fleet = fleet_after("ours", *changes, seed=seed, workers=1, shards=8, checkpoint_every_s=1e6)
    assert fleet.lock.owner.group == "groupA"
    assert 8 < fleet.readings.longest_unread_s(900.0) < 17


@pytest.mark.parametrize("seed", range(6))
def test_of_two_workers_a_dead_leader_is_replaced_within_the_failover_time_and_nine_seconds(seed):
    found = outcome("ours", f"kill leader@{400 + 2 * seed}s", seed=seed, workers=2, shards=8)
    assert 8 < found.longest_unread_s < 19


@pytest.mark.parametrize(("who", "late_s"), [("leader", 24.0), ("1", 23.0)])
@pytest.mark.parametrize("seed", range(4))
def test_in_a_quiet_fleet_others_look_for_what_a_dead_worker_had(who, late_s, seed):
    """The leader's look, that of who gets the lease, and its child; Java: 45 s, and 140 to 220 s."""
    found = outcome("ours", f"kill {who}@{400 + 2 * seed}s", seed=seed, workers=6, shards=60)
    assert 8 < found.longest_unread_s < 10 + late_s + 0.5


def test_a_dead_worker_of_a_large_table_is_replaced_though_nobody_has_scanned_it():
    found = outcome("ours", "kill leader@100s", shards=501, duration_s=140.0)
    assert found.free == 0
    assert found.longest_unread_s < 2 * 16


@pytest.mark.parametrize("who", ["1", "leader"])
def test_a_worker_that_is_stopped_reads_until_others_go_on(who):
    found = outcome("ours", f"leave {who}@5m")
    assert found.longest_unread_s < 2
    assert (found.duplicates, found.free) == (0, 0)


@pytest.mark.parametrize("second", ["leave 1@302s", "leave leader@302s", "kill 1@302s"])
def test_others_may_go_while_a_worker_is_leaving(second):
    found = outcome("ours", "leave 1@300s", second)
    assert found.free == 0
    assert sum(found.leases_by_group.values()) == 16


@pytest.mark.parametrize("at", ["300.2s", "300.6s"])
def test_a_worker_that_has_hardly_begun_can_be_stopped(at):
    found = outcome("ours", "join 1:blue@300s", f"leave 1:blue@{at}")
    assert found.free == 0
    assert found.leases_by_group["groupA"] == 16


def test_when_all_are_stopped_nobody_has_a_lease():
    found = outcome("ours", "leave 4@5m")
    assert (found.free, found.leases_by_group) == (16, {"groupA": 0})


def test_planned_moves_read_nothing_twice_and_leave_hardly_a_gap():
    found = outcome("ours", "join 4@5m")
    assert found.moves > 0
    assert found.duplicates == 0
    assert found.longest_unread_s < 1.5


def test_throughput_is_evened_out_as_far_as_shards_allow():
    fleet = fleet_after("ours", load=Load.RANDOM, shards=40)
    rates = Counter()
    for row in fleet.table.rows.values():
        rates[row.owner] += fleet.shares[row.key]
    assert all(0.2 < rate < 0.3 for rate in rates.values())


def test_an_idle_lease_costs_half_of_the_writes_of_java():
    def writes(profile):
        idle = {"workers": 2, "shards": 40, "checkpoint_every_s": 1e6}
        return outcome(profile, **idle).writes_per_hour

    assert writes("ours") == pytest.approx(0.5 * writes("java3"), rel=0.1)


def test_a_checkpoint_counts_as_a_renewal():
    def others(every_s):
        fleet = fleet_after("ours", workers=1, checkpoint_every_s=every_s)
        return fleet.table.bill.writes - 16 * 900 / every_s

    # Between two checkpoints that are 10 s apart one renewal is due, at 6.7 to 7 s.
    assert others(10.0) - others(5.0) == pytest.approx(16 * 900 / 10, rel=0.01)


def test_same_seed_same_answer():
    def once(seed):
        return outcome("ours", "kill 1@3m", "join 2@5m", seed=seed, load=Load.ZIPF, duration_s=600)

    assert once(3) == once(3)
    assert once(3) != once(4)


def test_what_a_follower_remembers_is_what_it_would_have_observed():
    """Looks, renewals, takes, losses and silence, drawn: twice the same memory."""
    limits = AssignmentLimits()
    for seed in range(30):
        rng = random.Random(seed)
        rows = {key: SimulatedRow(key, 1.0) for key in "abcdef"}
        table = Table(rows, Bill(), has_index=True, items=6)
        memory, scans, now = FleetMemory(), [], 0.0
        for _ in range(60):
            now += rng.uniform(0.01, rng.choice([0.1, 1.0, 4.0]))
            step, row = rng.randrange(6), rng.choice(list(rows.values()))
            if step == 0:
                table.assign(row.lease(now), rng.choice("xyz"), now)
                row.renew_from(now + rng.random(), rng.uniform(0.5, 4.0))
            elif step == 1 and row.owner is not None:
                table.release(row.key, now)
            elif step == 2:
                row.fall_silent(now)
            else:
                scans.append(now)
                view = FleetView(
                    leases=tuple(one.lease(now) for one in rows.values()),
                    metrics=(),
                    leader="x",
                    now=now,
                    epoch_s=now,
                )
                memory = observe(memory, view, limits)
        found = remembered(list(rows.values()), scans).sightings
        for key, row in rows.items():
            if row.written_at < scans[-1]:
                was = memory.sightings[key]
                assert found[key].counter == was.counter
                assert found[key].seen_at == was.seen_at or math.isinf(was.seen_at)
            else:
                assert found[key].counter == -1


def test_who_has_never_looked_remembers_nothing():
    assert remembered([SimulatedRow("a", 1.0)], []) == FleetMemory()
