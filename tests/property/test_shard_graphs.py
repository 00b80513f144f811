"""Shard sync against a second, naive, recursive wording of its rule, on random families."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from kcl_mld.config.stream import Stream
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON, InitialPosition, Sentinel
from kcl_mld.leases.model.lease import Lease
from kcl_mld.shards.rules.audit import first_hole
from kcl_mld.shards.rules.shardsync import (
    incompleteness,
    leases_for_empty_table,
    leases_to_create,
    lost_children,
    unexpected_children,
)
from kcl_mld.streams.model.shard import MAX_HASH_KEY, HashRange, Shard

STREAM = Stream("s")
SEEDS = st.integers(0, 2**64)
POSITIONS = st.sampled_from(
    [
        InitialPosition(Sentinel.LATEST),
        InitialPosition(Sentinel.TRIM_HORIZON),
        InitialPosition(Sentinel.AT_TIMESTAMP, 5.0),
    ]
)


class Family:
    """A stream that was split and merged at random."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.time = 0
        self.shards: dict[str, Shard] = {}
        count = rng.randint(1, 4)
        for number in range(count):
            start = MAX_HASH_KEY * number // count + (number > 0)
            self.add(HashRange(start, MAX_HASH_KEY * (number + 1) // count), ())
        for _ in range(rng.randint(0, 12)):
            self.time += 10
            self.split() if rng.random() < 0.6 else self.merge()

    def add(self, keys: HashRange, parents: tuple[str, ...]) -> None:
        shard_id = f"shardId-{len(self.shards)}"
        named = list(parents)
        self.rng.shuffle(named)
        if len(named) == 1:  # a lone parent may stand in either field
            named.insert(self.rng.randint(0, 1), None)
        first, second = (*named, None, None)[:2]
        self.shards[shard_id] = Shard(shard_id, keys, str(self.time), None, first, second)

    def open(self) -> list[Shard]:
        shards = [shard for shard in self.shards.values() if shard.is_open]
        return sorted(shards, key=lambda shard: shard.hash_range)

    def close(self, shard: Shard) -> None:
        self.shards[shard.shard_id] = Shard(
            shard.shard_id,
            shard.hash_range,
            shard.starting_sequence_number,
            str(self.time - 1),
            shard.parent_shard_id,
            shard.adjacent_parent_shard_id,
        )

    def split(self) -> None:
        shard = self.rng.choice(self.open())
        keys = shard.hash_range
        middle = (keys.start + keys.end) // 2
        self.close(shard)
        self.add(HashRange(keys.start, middle), (shard.shard_id,))
        self.add(HashRange(middle + 1, keys.end), (shard.shard_id,))

    def merge(self) -> None:
        shards = self.open()
        if len(shards) < 2:
            return
        at = self.rng.randrange(len(shards) - 1)
        left, right = shards[at], shards[at + 1]
        self.close(left)
        self.close(right)
        keys = HashRange(left.hash_range.start, right.hash_range.end)
        self.add(keys, (left.shard_id, right.shard_id))

    def trimmed(self) -> list[Shard]:
        """The listed shards: some of the oldest closed ones are gone; any order."""
        shards = list(self.shards.values())
        gone = self.rng.randint(0, len(shards))
        listed = [
            shard
            for number, shard in enumerate(shards)
            if shard.is_open or number >= gone or self.rng.random() < 0.3
        ]
        self.rng.shuffle(listed)
        return listed

    def some(self) -> set[str]:
        share = self.rng.choice([0.0, 0.2, 0.5, 0.8])
        return {shard_id for shard_id in self.shards if self.rng.random() < share}


def naive(shards, leased, position, unexpected=frozenset()):
    """Section 1.6 word by word: set of shard ids to create."""
    by_id = {shard.shard_id: shard for shard in shards}

    def parents(shard_id):
        shard = by_id[shard_id]
        named = {shard.parent_shard_id, shard.adjacent_parent_shard_id}
        return {parent for parent in named if parent in by_id}

    def covered(shard_id):
        return shard_id in leased or any(covered(parent) for parent in parents(shard_id))

    def latest(shard_id):
        if shard_id in leased:
            return set()
        if not covered(shard_id):
            return {shard_id}
        return set().union(*(latest(parent) for parent in parents(shard_id)))

    def horizon(shard_id):
        if shard_id in leased:
            return set()
        if not parents(shard_id):
            return {shard_id}
        return set().union(*(horizon(parent) for parent in parents(shard_id)))

    walk = latest if position.sentinel is Sentinel.LATEST else horizon
    return set().union(
        *(
            walk(shard.shard_id)
            for shard in shards
            if shard.is_open and shard.shard_id not in leased and shard.shard_id not in unexpected
        )
    )


@settings(max_examples=400, deadline=None)
@given(SEEDS, POSITIONS)
def test_gaps_are_those_of_the_naive_rule(seed, position):
    family = Family(random.Random(seed))
    shards, leased = family.trimmed(), family.some()
    unexpected = {shard_id for shard_id in family.some() if family.rng.random() < 0.2}
    created = leases_to_create(STREAM, shards, leased, position, unexpected=unexpected)
    assert {lease.shard_id for lease in created} == naive(shards, leased, position, unexpected)
    closed = {shard.shard_id for shard in shards if not shard.is_open}
    for lease in created:
        skips_all = position.sentinel is Sentinel.LATEST and lease.shard_id in closed
        assert lease.checkpoint == (TRIM_HORIZON if skips_all else position.checkpoint)
    starts = {shard.shard_id: int(shard.starting_sequence_number) for shard in shards}
    order = [(starts[lease.shard_id], lease.shard_id) for lease in created]
    assert order == sorted(order)
    listed_parents = {shard.shard_id: set(shard.parent_shard_ids) for shard in shards}
    assert all(set(row.parent_shard_ids) == listed_parents[row.shard_id] for row in created)


@settings(max_examples=150, deadline=None)
@given(SEEDS, POSITIONS)
def test_an_interrupted_sync_ends_as_an_uninterrupted_one(seed, position):
    family = Family(random.Random(seed))
    shards, leased = family.trimmed(), family.some()
    planned = [lease.shard_id for lease in leases_to_create(STREAM, shards, leased, position)]
    for done in range(len(planned)):
        half = leased | set(planned[:done])
        rest = {lease.shard_id for lease in leases_to_create(STREAM, shards, half, position)}
        assert half | rest == leased | set(planned)
    assert leases_to_create(STREAM, shards, leased | set(planned), position) == ()


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_the_open_shards_of_a_stream_are_complete_and_without_hole(seed):
    family = Family(random.Random(seed))
    shards = family.open()
    family.rng.shuffle(shards)
    assert incompleteness(shards) is None
    assert unexpected_children(list(family.shards.values())) == ()
    assert first_hole([shard.hash_range for shard in family.shards.values()]) is None
    assert first_hole([shard.hash_range for shard in shards]) is None
    if len(shards) > 1:
        lost = shards.pop()
        assert incompleteness(shards) is not None
        assert first_hole([shard.hash_range for shard in shards]) is not None
        assert first_hole([*(shard.hash_range for shard in shards), lost.hash_range]) is None
    rows = leases_for_empty_table(STREAM, shards, InitialPosition(Sentinel.LATEST))
    assert len(rows) == len(shards)


@settings(max_examples=200, deadline=None)
@given(SEEDS, POSITIONS)
def test_restoring_lost_children_and_syncing_covers_every_open_shard(seed, position):
    """After a run to the end of all that was created, every open shard has a lease."""
    family = Family(random.Random(seed))
    shards = family.trimmed()
    by_id = {shard.shard_id: shard for shard in shards}
    leases = {key: row(key, family.rng.random() < 0.6) for key in sorted(family.some())}
    for _round in range(len(family.shards) + 2):
        lost = lost_children(STREAM, shards, leases)
        for lease in lost:
            named = by_id[lease.shard_id].parent_shard_ids
            assert all(leases[parent].is_finished for parent in named if parent in leases)
            assert any(parent in leases for parent in named)
            assert lease.checkpoint == TRIM_HORIZON
        leases |= {lease.shard_id: lease for lease in lost}
        for lease in leases_to_create(STREAM, shards, leases, position):
            leases[lease.shard_id] = lease
        for key in list(leases):
            if key not in by_id or not by_id[key].is_open:  # vanished shards end, too
                leases[key] = row(key, finished=True)
    assert {shard.shard_id for shard in shards if shard.is_open} <= set(leases)


def row(shard_id, finished):
    checkpoint = SHARD_END if finished else TRIM_HORIZON
    return Lease(lease_key=shard_id, shard_id=shard_id, checkpoint=checkpoint)


@pytest.mark.parametrize("seed", range(3))
def test_families_have_splits_merges_and_trimmed_parents(seed):
    """The generator reaches what the properties are about."""
    rng = random.Random(seed)
    families = [Family(rng) for _ in range(50)]
    assert any(len(s.parent_shard_ids) == 2 for f in families for s in f.shards.values())
    assert any(len(s.parent_shard_ids) == 1 for f in families for s in f.shards.values())
    lists = [(family, family.trimmed()) for family in families]
    assert any(
        parent not in {s.shard_id for s in listed}
        for _family, listed in lists
        for s in listed
        for parent in s.parent_shard_ids
    )
