"""Small fleets played to the end: every lease gets an owner, and the counts settle."""

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest

from kcl_mld.leases.rules.taking import TakeLimits, look, plan_taking
from tests.fakes.lease_world import lease

LIMITS = TakeLimits(failover_s=10.0, max_leases=100, max_steal=1, prefer_very_old=True)


def play(owners, workers, cycles):
    """Workers take turns; owners who aren't playing are dead. Returns leases by owner."""
    leases = [lease(n, lease_owner=owner) for n, owner in enumerate(owners)]
    seen = {worker: {} for worker in workers}
    rngs = {worker: random.Random(worker) for worker in workers}
    now = 0.0
    for _ in range(cycles):
        now += 20.05
        leases = [
            replace(row, lease_counter=row.lease_counter + 6) if row.lease_owner in workers else row
            for row in leases
        ]
        for worker in workers:
            seen[worker] = look(seen[worker], leases, now)
            plan = plan_taking(leases, seen[worker], now, worker, (), LIMITS, rngs[worker])
            taken = {row.lease_key for row in plan.leases}
            leases = [
                replace(row, lease_owner=worker, lease_counter=row.lease_counter + 1)
                if row.lease_key in taken
                else row
                for row in leases
            ]
    return Counter(row.lease_owner for row in leases)


@pytest.mark.parametrize("count", range(1, 7))
@pytest.mark.parametrize("workers", [("a",), ("a", "b"), ("a", "b", "c")])
def test_every_lease_finds_a_living_owner_and_the_fleet_is_balanced(count, workers):
    for owners in itertools.product((None, "a", "dead"), repeat=count):
        held = play(owners, workers, cycles=4 + count)
        assert sum(held.values()) == count
        assert set(held) <= set(workers)
        share = -(-count // len(workers))
        assert max(held.values()) <= share + 1
        assert min(held[worker] for worker in workers) >= count // len(workers) - 1


def test_a_hundred_joining_a_hundred_settle_at_three_and_two():
    old = [f"o{n:03d}" for n in range(20)]
    new = [f"n{n:03d}" for n in range(20)]
    held = play([worker for worker in old for _ in range(5)], old + new, cycles=12)
    assert sum(held.values()) == 100
    assert set(held.values()) == {2, 3}
