from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kcl_mld.config.stream import Stream
from kcl_mld.kernel.model.sequence import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
    InitialPosition,
    Sentinel,
)
from kcl_mld.leases.model.lease import Lease
from kcl_mld.shards.rules.shardsync import (
    PARENT_PATIENCE_S,
    incompleteness,
    is_unused,
    lease_of_child,
    leases_for_empty_table,
    leases_of_lineage,
    leases_to_create,
    listed_before_parents,
    lost_children,
    shard_filter,
    unexpected_children,
)
from kcl_mld.streams.model.shard import MAX_HASH_KEY, ChildShard, HashRange, Shard

VECTORS = json.loads((Path(__file__).parents[3] / "data" / "shard_sync.json").read_text())
STREAM = Stream("s")
AT_LATEST = InitialPosition(Sentinel.LATEST)
AT_TRIM_HORIZON = InitialPosition(Sentinel.TRIM_HORIZON)


def shard(number, parents=(), *, start=0, end=MAX_HASH_KEY, sequence=0, closed=False):
    return Shard(
        shard_id=f"shardId-{number}",
        hash_range=HashRange(start, end),
        starting_sequence_number=str(sequence),
        ending_sequence_number=str(sequence + 50) if closed else None,
        parent_shard_id=f"shardId-{parents[0]}" if parents else None,
        adjacent_parent_shard_id=f"shardId-{parents[1]}" if len(parents) > 1 else None,
    )


def vector_shard(entry):
    return Shard(
        shard_id=entry["shardId"],
        hash_range=HashRange.parse(entry["startingHashKey"], entry["endingHashKey"]),
        starting_sequence_number=entry["startingSequenceNumber"],
        ending_sequence_number=entry["endingSequenceNumber"],
        parent_shard_id=entry["parentShardId"],
        adjacent_parent_shard_id=entry["adjacentParentShardId"],
    )


def vector_position(vector):
    entry = vector["initialPosition"]
    timestamp_s = entry["timestampMillis"] / 1000 if "timestampMillis" in entry else None
    return InitialPosition(Sentinel(entry["type"]), timestamp_s)


def vector_stream(vector):
    identifier = vector.get("streamIdentifier")
    return Stream.parse_identifier(identifier) if identifier else STREAM


def row(lease):
    return {
        "leaseKey": lease.lease_key,
        "checkpoint": str(lease.checkpoint),
        "parentShardIds": list(lease.parent_shard_ids),
        "startingHashKey": str(lease.hash_range.start),
        "endingHashKey": str(lease.hash_range.end),
    } | (
        {"streamName": lease.stream_identifier, "shardId": lease.shard_id}
        if lease.stream_identifier
        else {}
    )


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_sync_decides_as_java_does(vector):
    shards = [vector_shard(entry) for entry in vector["shards"]]
    position, stream = vector_position(vector), vector_stream(vector)
    wanted_filter = vector["listShardsCall"]
    if vector["leaseTableEmpty"]:
        assert shard_filter(position)["Type"] == wanted_filter
    if not shards:
        assert vector["expectedError"] or not vector["syncPerformed"]
        return
    unexpected = unexpected_children(shards)
    fails = (vector["leaseTableEmpty"] and incompleteness(shards) is not None) or (
        bool(unexpected) and not vector["ignoreUnexpectedChildShards"]
    )
    assert fails == (vector["expectedError"] is not None)
    if fails:
        return
    if vector["leaseTableEmpty"]:
        leases = leases_for_empty_table(stream, shards, position)
    else:
        prefix = f"{stream.identifier}:" if stream.identifier else ""
        leased = {
            entry["leaseKey"].removeprefix(prefix)
            for entry in vector["existingLeases"]
            if entry["leaseKey"].startswith(prefix)
        }
        leases = leases_to_create(stream, shards, leased, position, unexpected=unexpected)
    rows = [row(lease) for lease in leases]
    expected = [
        {**entry, "parentShardIds": sorted(entry["parentShardIds"])}
        for entry in vector["expectedLeases"]
    ]
    if not vector["leaseTableEmpty"] and position.sentinel is Sentinel.LATEST:
        # At LATEST Java skips all of a closed shard.
        closed = {one.shard_id for one in shards if not one.is_open}
        for entry in expected:
            if entry["leaseKey"].rpartition(":")[2] in closed:
                entry["checkpoint"] = "TRIM_HORIZON"
    assert rows == expected


def test_the_filter_of_a_timestamp_names_the_moment():
    position = InitialPosition(Sentinel.AT_TIMESTAMP, 12.5)
    assert shard_filter(position) == {"Type": "AT_TIMESTAMP", "Timestamp": 12.5}


@pytest.mark.parametrize(
    ("ranges", "why"),
    [
        ([(0, MAX_HASH_KEY)], None),
        ([(10, MAX_HASH_KEY), (0, 9)], None),
        ([(1, MAX_HASH_KEY)], "below"),
        ([(0, 9), (10, MAX_HASH_KEY - 1)], "above"),
        ([(0, 9), (11, MAX_HASH_KEY)], "a hole"),
        ([(0, 9), (9, MAX_HASH_KEY)], "an overlap"),
    ],
)
def test_a_list_is_complete_only_without_holes_and_overlaps(ranges, why):
    found = incompleteness([shard(n, start=a, end=b) for n, (a, b) in enumerate(ranges)])
    assert found is None if why is None else why in found


def test_a_list_that_makes_a_shard_its_own_ancestor_ends_nevertheless():
    shards = [shard(0, (1,)), shard(1, (0,)), shard(2, (2,))]
    assert leases_to_create(STREAM, shards, set(), AT_TRIM_HORIZON) == ()
    created = leases_to_create(STREAM, shards, set(), AT_LATEST)
    assert [lease.shard_id for lease in created] == ["shardId-0", "shardId-1", "shardId-2"]


def test_ten_thousand_generations_need_no_recursion():
    count = 10_000
    shards = [
        shard(n, (n - 1,) if n else (), sequence=n, closed=n < count - 1) for n in range(count)
    ]
    created = leases_to_create(STREAM, shards, set(), AT_TRIM_HORIZON)
    assert [lease.shard_id for lease in created] == ["shardId-0"]
    leased = {"shardId-0"}
    assert leases_to_create(STREAM, shards, leased, AT_LATEST) == ()


def test_a_child_lease_starts_at_trim_horizon_below_the_parent_of_its_stream():
    stream = Stream("s", account="123456789012", epoch=7)
    parent = Lease(
        lease_key=stream.lease_key("shardId-0"),
        shard_id="shardId-0",
        stream_identifier=stream.identifier,
    )
    child = ChildShard("shardId-1", ("shardId-0",), HashRange(0, 5))
    assert lease_of_child(parent, child) == Lease(
        lease_key="123456789012:s:7:shardId-1",
        shard_id="shardId-1",
        stream_identifier="123456789012:s:7",
        checkpoint=TRIM_HORIZON,
        parent_shard_ids=("shardId-0",),
        hash_range=HashRange(0, 5),
    )


def leases(**checkpoints):
    """Leases by shard id; keywords are ``s<number>=checkpoint``."""
    return {
        f"shardId-{key[1:]}": Lease(
            lease_key=f"shardId-{key[1:]}", shard_id=f"shardId-{key[1:]}", checkpoint=checkpoint
        )
        for key, checkpoint in checkpoints.items()
    }


SPLIT = (
    shard(0, closed=True),
    shard(1, (0,), end=9, sequence=100),
    shard(2, (0,), start=10, sequence=100),
)
READ = ExtendedSequenceNumber("120")


def lost(shards, rows, **options):
    return [lease.shard_id for lease in lost_children(STREAM, shards, rows, **options)]


def test_children_below_a_finished_lease_were_lost():
    assert lost(SPLIT, leases(s0=SHARD_END)) == ["shardId-1", "shardId-2"]
    assert lost(SPLIT, leases(s0=SHARD_END, s1=READ)) == ["shardId-2"]
    found = lost_children(STREAM, SPLIT, leases(s0=SHARD_END, s1=READ))
    assert [lease.checkpoint for lease in found] == [TRIM_HORIZON]


def test_children_below_an_unfinished_lease_are_not_lost_yet():
    assert lost(SPLIT, leases(s0=READ)) == []


def test_children_without_any_ancestor_row_are_left_to_the_sync():
    assert lost(SPLIT, leases(s1=READ)) == []


def test_unexpected_children_are_not_restored():
    assert lost(SPLIT, leases(s0=SHARD_END), unexpected={"shardId-1"}) == ["shardId-2"]


def test_only_the_nearest_lost_generation_is_restored():
    shards = (
        shard(0, closed=True),
        shard(1, (0,), sequence=100, closed=True),
        shard(2, (1,), end=9, sequence=200),
        shard(3, (1,), start=10, sequence=200),
    )
    assert lost(shards, leases(s0=SHARD_END)) == ["shardId-1"]


def test_a_lost_child_of_a_trimmed_finished_parent_is_restored():
    assert lost(SPLIT[1:], leases(s0=SHARD_END, s1=READ)) == ["shardId-2"]


def test_a_merge_child_is_restored_only_when_both_listed_parents_have_finished_rows():
    shards = (
        shard(0, end=9, closed=True),
        shard(1, start=10, closed=True),
        shard(2, (0, 1), sequence=100),
    )
    assert lost(shards, leases(s0=SHARD_END, s1=SHARD_END)) == ["shardId-2"]
    assert lost(shards, leases(s0=SHARD_END, s1=LATEST)) == []
    assert lost(shards, leases(s0=SHARD_END)) == []
    assert lost(shards[1:], leases(s1=SHARD_END)) == ["shardId-2"]


@pytest.mark.parametrize(
    ("fields", "unused"),
    [
        ({}, True),
        ({"lease_owner": "w"}, False),
        ({"lease_counter": 1}, False),
        ({"checkpoint": TRIM_HORIZON}, False),
    ],
)
def test_a_row_is_unused_while_it_is_as_it_was_created(fields, unused):
    row = Lease(**({"lease_key": "a", "shard_id": "a", "checkpoint": LATEST} | fields))
    assert is_unused(row, LATEST) is unused


# -- streams whose shards are listed late ------------------------------------------------------

#: a -> b -> c, d: b was split, c and d are open; e has lost its parents.
LINEAGE = [
    shard("a", closed=True, sequence=1),
    shard("b", ["a"], closed=True, sequence=2),
    shard("c", ["b"], sequence=3),
    shard("d", ["b"], sequence=3),
    shard("e", ["gone"], sequence=1),
]


def lineage(position, leased=(), shards=LINEAGE):
    leased = {f"shardId-{name}" for name in leased}
    rows = leases_of_lineage(STREAM, shards, leased, position)
    return {one.shard_id[-1]: str(one.checkpoint) for one in rows}


def test_all_of_a_lineage_is_leased_from_the_root_down():
    found = lineage(AT_TRIM_HORIZON)
    assert found == dict.fromkeys("abcde", "TRIM_HORIZON")
    assert list(found) == ["a", "e", "b", "c", "d"]
    time = InitialPosition(Sentinel.AT_TIMESTAMP, 1.0)
    assert lineage(time) == dict.fromkeys("abcde", "AT_TIMESTAMP")


def test_latest_begins_at_the_open_shards():
    assert lineage(AT_LATEST) == dict.fromkeys("cde", "LATEST")


@pytest.mark.parametrize("position", [AT_LATEST, AT_TRIM_HORIZON])
def test_below_a_lease_nothing_is_skipped(position):
    assert lineage(position, "ae") == dict.fromkeys("bcd", "TRIM_HORIZON")
    assert lineage(position, "bde") == {"c": "TRIM_HORIZON"}
    assert lineage(position, "cde") == {}


NOW_S = 1_795_850_000.0


def of_table(made_s, parent=None, **more):
    """A shard of a table; its id says when it was made."""
    one = shard("x", **more)
    parents = {} if parent is None else {"parent_shard_id": parent.shard_id}
    return replace(one, shard_id=f"shardId-{int(1000 * made_s):020d}-abcdef12", **parents)


@pytest.mark.parametrize(
    ("leased", "position", "found"),
    [
        ((), AT_TRIM_HORIZON, []),
        ((), AT_LATEST, ["LATEST"]),
        (("another",), AT_LATEST, []),
        (("parent",), AT_LATEST, ["TRIM_HORIZON"] * 2),
    ],
)
def test_a_young_shard_waits_until_its_parent_is_listed(leased, position, found):
    """Else it would be read before its parent, whose lease is made when it is listed."""
    parent = of_table(NOW_S - 4 * 3600, closed=True)
    child = of_table(NOW_S - PARENT_PATIENCE_S + 1, parent, closed=True)
    below = of_table(NOW_S - 10, child)
    shards = [child, below]
    keys = {parent.shard_id if one == "parent" else one for one in leased}
    waiting = listed_before_parents(shards, keys, NOW_S)
    assert waiting == ({} if parent.shard_id in keys else {child.shard_id: parent.shard_id})
    rows = leases_of_lineage(STREAM, shards, keys, position, waiting)
    assert [str(row.checkpoint) for row in rows] == found
    assert listed_before_parents([parent, *shards], (), NOW_S) == {}
    assert listed_before_parents([child], {child.shard_id}, NOW_S) == {}


def test_a_shard_whose_parent_is_not_listed_for_an_hour_is_read():
    parent = of_table(NOW_S - 5 * 3600)
    child = of_table(NOW_S - PARENT_PATIENCE_S, parent)
    assert listed_before_parents([child], (), NOW_S) == {}
    assert listed_before_parents([LINEAGE[-1]], (), NOW_S) == {}


@pytest.mark.parametrize("position", [AT_LATEST, AT_TRIM_HORIZON])
def test_a_shard_beside_a_leased_one_does_not_have_their_parents_read_again(position):
    """Of two children one was listed late, and the lease of their parent was cleaned up since."""
    assert lineage(position, "de") == {"c": "TRIM_HORIZON"}


def test_a_gap_above_a_lease_is_not_filled():
    assert lineage(AT_TRIM_HORIZON, "cde") == {}


def test_where_all_shards_are_closed_the_last_ones_count_as_open():
    closed = [shard("a", closed=True), shard("b", ["a"], sequence=1, closed=True)]
    assert lineage(AT_LATEST, shards=closed) == {"b": "LATEST"}
    assert lineage(AT_TRIM_HORIZON, shards=closed) == dict.fromkeys("ab", "TRIM_HORIZON")
    # So do those of a stream that was disabled meanwhile, of which no shard is open.
    assert lineage(AT_TRIM_HORIZON, "x", shards=closed) == dict.fromkeys("ab", "TRIM_HORIZON")
    assert lineage(AT_LATEST, "a", shards=closed) == {"b": "TRIM_HORIZON"}
    assert lineage(AT_LATEST, "b", shards=closed) == {}


def test_at_the_first_sync_a_closed_shard_whose_child_is_not_listed_yet_gets_a_lease():
    """Else its child, which is listed later, would begin at LATEST of that time."""
    between = [*LINEAGE, shard("f", closed=True)]
    assert lineage(AT_LATEST, shards=between) == dict.fromkeys("cdef", "LATEST")
    assert lineage(AT_LATEST, "cde", shards=between) == {}


def test_a_shard_that_is_its_own_ancestor_ends_the_walk():
    circle = [shard("a", ["b"]), shard("b", ["a"])]
    assert lineage(AT_TRIM_HORIZON, shards=circle) == dict.fromkeys("ab", "TRIM_HORIZON")
