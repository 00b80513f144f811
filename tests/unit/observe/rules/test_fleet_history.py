"""What a watcher remembers, and that it is bounded."""

from dataclasses import replace

from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot, StreamSnapshot, TipSnapshot
from kcl_mld.observe.rules.explain import explain
from kcl_mld.observe.rules.fleet_history import (
    CHANGES,
    FORMER_SHARDS,
    POINTS,
    SAMPLES,
    FleetHistory,
)
from kcl_mld.observe.rules.watching import ExplainRules
from kcl_mld.streams.model.shard import MAX_HASH_KEY, HashRange, Shard
from tests.fakes.lease_world import lease

RULES = ExplainRules(failover_s=10.0)
HALF = 2**127
WHOLE = HashRange(0, MAX_HASH_KEY)


def look(at_s, *leases, **fields):
    rows = {one.lease_key: one for one in leases}
    return FleetSnapshot(began_at=at_s, at=at_s, wall_s=1000 + at_s, leases=rows, **fields)


def key(number):
    return f"shardId-{number:012d}"


def shard(number, keys=WHOLE, parent=None, ended=False):
    return Shard(key(number), keys, "1", "9" if ended else None, parent)


class Watcher:
    """Adds looks, and judges them by the last two."""

    def __init__(self):
        self.history = FleetHistory()
        self.before = None

    def add(self, snapshot):
        looks = [snapshot] if self.before is None else [self.before, snapshot]
        self.history.add(snapshot, explain(looks, RULES))
        self.before = snapshot


def watched(*looks):
    watcher = Watcher()
    for one in looks:
        watcher.add(one)
    return watcher.history


def owned(number, owner, counter=0, **fields):
    return lease(number, lease_owner=owner, lease_counter=counter, **fields)


def tip(at_s, behind_s):
    return TipSnapshot(asked_at=at_s, position=TRIM_HORIZON, behind_s=behind_s)


def test_a_point_counts_and_sums():
    rows = [owned(0, "a", 1, throughput_kbps=2.0), owned(1, "b", 1, throughput_kbps=3.0)]
    later = [replace(one, lease_counter=2) for one in rows]
    tips = {key(0): tip(1, 5.0), key(1): tip(1, 0.0)}
    history = watched(look(0, *rows, lease(2)), look(1, *later, lease(2), tips=tips))
    first, second = history.points
    assert (first.at_s, first.info, first.lag_s, first.throughput_kbps) == (1000, 3, None, None)
    assert (second.ok, second.info, second.warning, second.critical) == (1, 2, 0, 0)
    assert (second.lag_s, second.throughput_kbps, second.moved) == (5.0, 5.0, 0)


def test_leases_that_move_are_counted_through_a_time_without_owner():
    history = watched(
        look(0, owned(0, "a"), owned(1, "b")),
        look(1, lease(0), owned(1, "c")),
        look(2, owned(0, "b"), owned(1, "c")),
        look(3, owned(0, "b"), owned(2, "new")),
        look(4, owned(1, "d")),
    )
    assert [one.moved for one in history.points] == [0, 1, 1, 0, 0]


def test_points_cover_all_of_the_time_and_stay_few():
    watcher = Watcher()
    watcher.add(look(0, owned(0, "a")))
    watcher.add(look(1, owned(0, "a"), tips={key(0): tip(1, 77.0)}))
    count = 5 * POINTS
    for at_s in range(2, count):
        watcher.add(look(at_s, owned(0, f"w{at_s}", at_s, throughput_kbps=1.0)))
    points = watcher.history.points
    assert len(points) <= POINTS
    assert points[-1].at_s == 1000 + count - 1
    assert points[0].lag_s == 77.0
    assert sum(one.moved for one in points) == count - 2
    assert [one.at_s for one in points] == sorted({one.at_s for one in points})
    assert points[-1].throughput_kbps is not None


def test_two_points_become_the_worse_one():
    watcher = Watcher()
    gone = StreamSnapshot(name="s", gone="it was deleted")
    for at_s in range(POINTS):
        streams = (gone,) if at_s == 10 else ()
        watcher.add(look(at_s, owned(0, "a", at_s), streams=streams))
    watcher.add(look(POINTS, owned(0, "a", POINTS)))
    assert [one.critical for one in watcher.history.points[:8]] == [0, 0, 0, 0, 0, 1, 0, 0]


def test_of_a_shard_the_last_changes_and_numbers_stay():
    watcher = Watcher()
    for at_s in range(200):
        watcher.add(look(at_s, owned(0, f"w{at_s // 2}", at_s, throughput_kbps=float(at_s))))
    changes, samples = watcher.history.of_shard(key(0))
    assert len(changes) == CHANGES
    assert len(samples) == SAMPLES
    assert changes[-1].owner == "w99"
    assert changes[-1].checkpoint == "TRIM_HORIZON"
    assert samples[-1].throughput_kbps == 199.0
    watcher.add(look(200))
    assert watcher.history.of_shard(key(0)) is None


def test_a_shard_without_a_readable_row_has_a_history_too():
    history = watched(look(0, broken=((key(0), "no checkpoint"),)))
    changes, samples = history.of_shard(key(0))
    assert [(one.verdict, one.owner, one.checkpoint) for one in changes] == [
        ("UNREADABLE_ROW", None, None)
    ]
    assert samples[0].lag_s is None


def test_the_lineage_says_since_when_a_shard_is_there():
    before = StreamSnapshot(name="s", shards=(shard(0),))
    left, right = HashRange(0, HALF - 1), HashRange(HALF, MAX_HASH_KEY)
    children = (shard(1, left, key(0)), shard(2, right, key(0)))
    after = StreamSnapshot(name="s", shards=(shard(0, ended=True), *children))
    history = watched(
        look(0, lease(0), lease(7, hash_range=None), streams=(before,)),
        look(5, lease(0), streams=(after,)),
        look(9, lease(1, parent_shard_ids=(key(0),)), streams=()),
    )
    found = {one.subject: one for one in history.lineage}
    assert found[key(0)].seen_at_s is None
    assert found[key(0)].is_former
    assert (found[key(1)].seen_at_s, found[key(1)].parents) == (1005, (key(0),))
    assert (found[key(1)].is_open, found[key(1)].hash_range) == (None, ("100", "199"))
    assert (found[key(2)].is_former, found[key(2)].hash_range) == (
        True,
        (str(HALF), str(MAX_HASH_KEY)),
    )
    assert found[key(7)].hash_range is None


def test_former_shards_are_forgotten_at_last():
    watcher = Watcher()
    for at_s in range(4):
        numbers = range(at_s * FORMER_SHARDS // 2, (at_s + 1) * FORMER_SHARDS // 2)
        watcher.add(look(at_s, *(lease(number) for number in numbers)))
    lineage = watcher.history.lineage
    assert sum(one.is_former for one in lineage) == FORMER_SHARDS
    assert key(0) not in {one.subject for one in lineage}
