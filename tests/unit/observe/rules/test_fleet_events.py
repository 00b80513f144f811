"""What happened between two looks, from looks that were made to show it."""

from dataclasses import replace

import pytest

from kcl_mld.fleet.model.lock_item import LockItem
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.kernel.model.sequence import SHARD_END, ExtendedSequenceNumber
from kcl_mld.observe.model.fleet_snapshot import FleetItems, StreamSnapshot
from kcl_mld.observe.rules.fleet_events import FleetEventKind as Kind, fleet_events, silent_workers
from kcl_mld.streams.model.shard import MAX_HASH_KEY, HashRange, Shard
from tests.fakes.fleet_looks import snapshot as look
from tests.fakes.lease_world import lease

FAILOVER_S = 10.0
KEY = "shardId-000000000000"
W1 = {"lease_owner": "w1"}


def events(*looks):
    """(kind, subject, before, after) of each."""
    return [
        (one.kind, one.subject, one.before, one.after) for one in fleet_events(looks, FAILOVER_S)
    ]


def between(old, new):
    """What happens to a row whose workers are known, and live."""
    others = [lease(n, lease_owner=f"w{n}") for n in (1, 2, 3)]
    moved = [replace(one, lease_counter=1) for one in others]
    return events(look(0, old, *others), look(1, new, *moved))


@pytest.mark.parametrize(
    ("old", "new", "kind", "before", "after"),
    [
        ({}, W1, Kind.LEASE_TAKEN, None, "w1"),
        (W1, {"lease_owner": "w2"}, Kind.LEASE_TAKEN, "w1", "w2"),
        (W1, {}, Kind.LEASE_RELEASED, "w1", None),
        (
            W1,
            {"lease_owner": "w2", "checkpoint_owner": "w1"},
            Kind.HAND_OFF_BEGUN,
            "w1",
            "w2",
        ),
        (
            {"lease_owner": "w2", "checkpoint_owner": "w1"},
            {"lease_owner": "w3", "checkpoint_owner": "w1"},
            Kind.HAND_OFF_BEGUN,
            "w1",
            "w3",
        ),
        (
            {"lease_owner": "w2", "checkpoint_owner": "w1"},
            {"lease_owner": "w2"},
            Kind.HANDED_OVER,
            "w1",
            "w2",
        ),
        (
            {"lease_owner": "w2", "checkpoint_owner": "w1"},
            {"lease_owner": "w3"},
            Kind.LEASE_TAKEN,
            "w1",
            "w3",
        ),
        (W1, {**W1, "checkpoint": SHARD_END}, Kind.SHARD_FINISHED, "w1", None),
        (
            {"checkpoint": ExtendedSequenceNumber("9")},
            {"checkpoint": ExtendedSequenceNumber("8", 2)},
            Kind.CHECKPOINT_REWOUND,
            "9",
            "8/2",
        ),
    ],
)
def test_what_happens_to_a_row(old, new, kind, before, after):
    assert between(lease(0, **old), lease(0, **new)) == [(kind, KEY, before, after)]


def test_a_renewal_and_a_checkpoint_are_no_events():
    old = lease(0, **W1, checkpoint=ExtendedSequenceNumber("8"))
    new = replace(old, lease_counter=5, checkpoint=ExtendedSequenceNumber("9"))
    assert between(old, new) == []
    assert between(lease(0, checkpoint=None), lease(0)) == []


def test_two_things_at_once_are_two_events_of_one_time():
    found = fleet_events(
        [look(0, lease(0, **W1)), look(5, lease(0, lease_owner="w2", checkpoint=SHARD_END))],
        FAILOVER_S,
    )
    assert [(one.time_s, one.kind) for one in found] == [
        (1005, Kind.LEASE_TAKEN),
        (1005, Kind.SHARD_FINISHED),
        (1005, Kind.WORKER_APPEARED),
    ]


def test_rows_are_made_and_deleted_but_not_by_becoming_unreadable():
    assert events(look(0), look(1, lease(0))) == [(Kind.LEASE_CREATED, KEY, None, None)]
    looks = (look(0, lease(0, **W1)), look(1))
    assert events(*looks) == [(Kind.LEASE_DELETED, KEY, "w1", None)]
    (deleted,) = fleet_events(looks, FAILOVER_S)
    assert deleted.checkpoint == "TRIM_HORIZON"
    broken = ((KEY, "no counter"),)
    assert events(look(0, lease(0)), look(1, broken=broken)) == []
    assert events(look(0, broken=broken), look(1, lease(0))) == []


def test_one_look_shows_no_events():
    assert events(look(0, lease(0, **W1))) == []


def shard(number):
    return Shard(f"shardId-{number:012d}", HashRange(0, MAX_HASH_KEY), "1")


def test_a_shard_appears_in_a_stream_whose_shards_were_known():
    def stream(*shards):
        return (StreamSnapshot(name="s", identifier="1:s:2", shards=shards),)

    same = stream(shard(0))
    appeared = [(Kind.SHARD_APPEARED, "1:s:2:shardId-000000000001", None, None)]
    assert events(look(0, streams=same), look(1, streams=same)) == []
    assert events(look(0, streams=same), look(1, streams=stream(shard(0), shard(1)))) == appeared
    unknown = (StreamSnapshot(name="s", identifier="1:s:2"),)
    assert events(look(0, streams=unknown), look(1, streams=same)) == []
    assert events(look(0, streams=same), look(1, streams=unknown)) == []
    assert events(look(0), look(1, streams=same)) == []


def test_a_worker_appears_falls_silent_and_returns():
    def at(at_s, counter, other=0):
        rows = lease(0, **W1, lease_counter=counter), lease(1, **W1, lease_counter=other)
        return look(at_s, *rows)

    looks = [look(0, lease(0), lease(1)), at(1, 1), at(6, 2), at(11, 2), at(17, 2), at(20, 2)]
    assert (Kind.WORKER_APPEARED, "w1", None, None) in events(*looks[:2])
    assert events(*looks[:3]) == []
    assert events(*looks[:4]) == []  # still for 4.9 s
    assert events(*looks[:5]) == [(Kind.WORKER_SILENT, "w1", None, None)]
    assert events(*looks) == []
    # One row that moves is enough.
    assert events(*looks, at(21, 2, other=1)) == [(Kind.WORKER_APPEARED, "w1", None, None)]


def test_a_worker_without_leases_is_silent_by_its_metrics():
    def at(at_s, written_at_s):
        return look(at_s, items=FleetItems(metrics=(WorkerMetrics("w9", written_at_s),)))

    assert events(look(0), at(1, 1000)) == [(Kind.WORKER_APPEARED, "w9", None, None)]
    assert events(at(1, 1000), at(60, 1000)) == []
    assert events(at(60, 1000), at(61, 1000)) == [(Kind.WORKER_SILENT, "w9", None, None)]
    assert events(at(61, 1000), at(62, 1062)) == [(Kind.WORKER_APPEARED, "w9", None, None)]
    unknown = look(61, items=None)
    assert events(at(60, 1000), unknown) == []
    assert events(unknown, at(62, 1000)) == []
    assert silent_workers([unknown], FAILOVER_S) == frozenset()


def test_the_leader_changes():
    def led(owner, *, is_released=False):
        return FleetItems(lock=LockItem(owner, 8.0, "1", is_released))

    nobody, first, second = FleetItems(), led("w1"), led("w2")
    assert events(look(0, items=first), look(1, items=second)) == [
        (Kind.LEADER_CHANGED, "fleet", "w1", "w2")
    ]
    assert events(look(0, items=nobody), look(1, items=first)) == [
        (Kind.LEADER_CHANGED, "fleet", None, "w1")
    ]
    released = led("w1", is_released=True)
    assert events(look(0, items=first), look(1, items=released)) == [
        (Kind.LEADER_CHANGED, "fleet", "w1", None)
    ]
    assert events(look(0, items=first), look(1, items=None)) == []
