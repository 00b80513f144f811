"""Larger fleets without faults: balance, also beside scripted Java-like workers."""

import random
from types import SimpleNamespace

import pytest

from tests.sim.fleet import judge
from tests.sim.java_peer import JavaPeer, Seen
from tests.sim.plan import Plan

pytestmark = pytest.mark.sim


@pytest.mark.parametrize(
    ("workers", "peers", "shards"), [(1, 0, 12), (5, 0, 24), (2, 2, 13), (1, 3, 9)]
)
def test_a_fleet_evens_out(workers, peers, shards):
    plan = Plan(
        seed=workers,
        workers=workers,
        peers=peers,
        shards=shards,
        failover_s=2.0,
        chaos_s=20,
        put_every_s=2.0,
    )
    verdict = judge(plan)
    assert not verdict.violations, verdict.report()


def test_workers_that_come_later_get_their_share_without_anybody_waiting_for_a_failover():
    plan = Plan(seed=5, workers=2, shards=12, failover_s=2.0, faults=("join",), chaos_s=40)
    verdict = judge(plan)
    assert not verdict.violations, verdict.report()
    assert verdict.counts["steal"] > 0
    assert verdict.counts.get("failover", 0) == 0


def scripted_choice(owners, *, seed=1, is_before_2_6=False, free_since=float("-inf")):
    """What the scripted Java-like worker "me" would take; leases by owner, all seen before."""
    peer = object.__new__(JavaPeer)
    peer._is_before_2_6 = is_before_2_6
    peer.worker_id, peer._rng, peer._failover_s = "me", random.Random(seed), 10.0
    peer.fleet = SimpleNamespace()
    peer._seen = {}
    for owner, count in owners.items():
        for number in range(count):
            item = {"leaseCounter": {"N": "1"}}
            if owner != "nobody":
                item["leaseOwner"] = {"S": owner}
            stamp_s = 100.0 if owner != "nobody" else free_since
            peer._seen[f"{owner}{number}"] = Seen(item, stamp_s)
    return peer._choose(100.0)


@pytest.mark.parametrize(
    ("owners", "count"),
    [
        ({"nobody": 3, "bar": 1}, 3),  # very old: all of them, beyond the target
        ({"bar": 2, "baz": 2, "me": 1}, 0),
        ({"bar": 1, "baz": 5}, 1),
        ({"nobody": 1, "bar": 3}, 1),
        ({"bar": 3, "me": 3}, 0),
        ({"bar": 2, "baz": 2}, 1),  # two short, and nobody above the target: one
    ],
)
def test_the_scripted_worker_takes_as_java_does(owners, count):
    chosen = scripted_choice(owners)
    assert len(chosen) == count
    assert not any(key.startswith("me") for key in chosen)


@pytest.mark.parametrize(
    ("owners", "free_since", "before", "since"),
    [
        ({"nobody": 2, "me": 2}, 100.0, 0, 2),  # just released: the counter has moved
        ({"nobody": 2, "me": 2}, 85.0, 2, 2),  # at the second look
        ({"nobody": 4, "bar": 1, "me": 1}, 100.0, 0, 2),  # "nobody" is the fullest worker
        ({"nobody": 3, "bar": 1}, float("-inf"), 3, 3),  # new to this worker
    ],
)
def test_before_2_6_java_goes_by_the_counter_and_not_by_the_missing_owner(
    owners, free_since, before, since
):
    for is_before_2_6, count in ((True, before), (False, since)):
        chosen = scripted_choice(owners, is_before_2_6=is_before_2_6, free_since=free_since)
        assert len(chosen) == count
