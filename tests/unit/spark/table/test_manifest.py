"""Manifests, and all histories of two owners who carry them out, or die doing so."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings, strategies as st

from kcl_mld.spark.model import Position, ShardKey
from kcl_mld.spark.table.data_files import DataFile
from kcl_mld.spark.table.manifest import Manifest, Move, Step, next_move
from kcl_mld.spark.table.marks import Judgement, judge

A = ShardKey("app", "stream", "shardId-0")
B = ShardKey("app", "stream/x", "shardId-1", "epoch")
SHARDS = (A, B)
TABLES = ("positions", "clicks", "errors")
FILE = DataFile(
    path="kcl-mld-1/job-1/day=ä b/part-0.parquet",
    size=7,
    modified_ms=1_700_000_000_000,
    rows=3,
    partition_values={"day": "ä b", "hour": None},
    fields=[{"name": "n", "type": {"type": "array"}, "nullable": True, "metadata": {}}],
    nulls=["n"],
)


def test_a_manifest_comes_back_as_it_was():
    ends = {A: Position(2**185, 3), B: Position(5)}
    steps = [Step("positions", {A: None, B: 2**62 - 1}, []), Step("clicks", {A: 0, B: 1}, [FILE])]
    manifest = Manifest(2**62 - 1, ends, steps)
    assert Manifest.decode(manifest.encode()) == manifest


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1, "shards": [["a"]]}']
)
def test_what_is_no_manifest_is_told(text):
    with pytest.raises(ValueError, match=r".+"):
        Manifest.decode(text)


@pytest.mark.parametrize("decides", [True, False])
@pytest.mark.parametrize("verdict", Judgement)
def test_the_first_table_alone_makes_a_manifest_void(verdict, decides):
    wanted = {
        (Judgement.REPEAT, True): Move.COMMIT,
        (Judgement.REPEAT, False): Move.COMMIT,
        (Judgement.STANDS, True): Move.GO_ON,
        (Judgement.STANDS, False): Move.GO_ON,
        (Judgement.LOST, True): Move.VOID,
        (Judgement.LOST, False): Move.GO_ON,
    }
    assert next_move(verdict, decides=decides) is wanted[verdict, decides]


# -- histories ------------------------------------------------------------------------------------


class Crash(Exception):
    """An owner is gone."""


@dataclass
class World:
    """Tables that conflict as delta-rs does, a directory of manifests, records by number.

    Attributes:
        commits: by table: guards and ends of shards, and the rows that were added.
        open: manifests by identity.
        rows: of each manifest: by shard the numbers of its records.
    """

    commits: dict = field(default_factory=lambda: {name: [] for name in TABLES})
    open: dict = field(default_factory=dict)
    rows: dict = field(default_factory=dict)
    identities: itertools.count = field(default_factory=lambda: itertools.count(1))

    def guards(self, table, version, shards):
        found = dict.fromkeys(shards)
        for commit in self.commits[table][:version]:
            found.update({shard: commit[0] for shard in commit[1] if shard in found})
        return found

    def mark(self, table, shard):
        position, guard = 0, None
        for identity, ends, _ in self.commits[table]:
            if shard in ends:
                position, guard = ends[shard].sequence, identity
        return position, guard

    def commit(self, table, version, identity, ends, rows):
        newer = self.commits[table][version:]
        if any(shard in commit[1] for commit in newer for shard in ends):
            raise ConflictError
        self.commits[table].append((identity, ends, rows))

    def content(self, table, shard):
        return [n for _, _, rows in self.commits[table] for n in rows.get(shard, ())]


class ConflictError(Exception):
    """A newer commit names one of the ids."""


def carry_out(world, manifest, step, *, decides):
    """One step, with a pause wherever another process may come between."""
    rows = {} if decides else world.rows[manifest.identity]
    while True:
        yield
        version = len(world.commits[step.table])
        verdict, _ = judge(
            step.before, manifest.identity, world.guards(step.table, version, manifest.ends)
        )
        move = next_move(verdict, decides=decides)
        if move is not Move.COMMIT:
            return move
        yield
        try:
            world.commit(step.table, version, manifest.identity, manifest.ends, rows)
        except ConflictError:
            continue


def finish(world, manifest):
    for step in manifest.steps[1:]:
        yield from carry_out(world, manifest, step, decides=False)
    yield
    world.open.pop(manifest.identity, None)


def begin(world, shard, *, rolls_forward=True):
    """Where a shard stands, once its last batch is in all tables."""
    yield
    position, guard = world.mark("positions", shard)
    yield
    manifest = world.open.get(guard)
    if manifest is not None and rolls_forward:
        yield from finish(world, manifest)
    return position, guard


def owner(world, shards, size, *, rolls_forward=True):
    """Begins shards and commits batches of all of them until it has lost one."""
    known = {}
    for shard in shards:
        known[shard] = yield from begin(world, shard, rolls_forward=rolls_forward)
    while True:
        ends = {shard: Position(known[shard][0] + size) for shard in shards}
        before = {shard: guard for shard, (_, guard) in known.items()}
        identity = next(world.identities)
        steps = [Step("positions", before, [])]
        for table in TABLES[1:]:
            yield
            guards = world.guards(table, len(world.commits[table]), shards)
            steps.append(Step(table, guards, []))
        manifest = Manifest(identity, ends, steps)
        world.rows[identity] = {
            shard: range(known[shard][0] + 1, ends[shard].sequence + 1) for shard in shards
        }
        yield
        world.open[identity] = manifest
        move = yield from carry_out(world, manifest, steps[0], decides=True)
        if move is Move.VOID:
            yield
            world.open.pop(identity, None)
            return
        yield from finish(world, manifest)
        known = {shard: (ends[shard].sequence, identity) for shard in shards}


#: Who owns what: together, apart, or each takes one of the other's.
HOLDS = [(A, B), (A,), (B,), (B, A)]
moves = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["step"] * 12 + ["die"])), max_size=160
)


def play(history, holds, **kind):
    """Up to four processes at a time; one that ends or dies is followed by another."""
    world = World()
    fresh = itertools.cycle(holds)

    def start():
        return owner(world, next(fresh), 2, **kind)

    running = [start() for _ in range(4)]
    for number, what in history:
        if what == "die":
            running[number].close()
            running[number] = start()
            continue
        if next(running[number], "over") == "over":
            running[number] = start()
    for each in running:
        each.close()
    for shard in SHARDS:  # in the end somebody owns each shard, one after the other
        for _ in begin(world, shard, **kind):
            pass
    return world


def faults(world):
    """Tables in which a shard's rows are lost, doubled or out of order."""
    return [
        (table, shard.shard_id, world.content(table, shard))
        for shard in SHARDS
        for table in TABLES[1:]
        if world.content(table, shard) != list(range(1, world.mark("positions", shard)[0] + 1))
    ]


@settings(max_examples=400, deadline=None)
@given(moves, st.permutations(HOLDS))
def test_no_crash_and_no_other_owner_loses_or_doubles_a_row_in_any_table(history, holds):
    assert faults(play(history, holds)) == []


@settings(max_examples=150, deadline=None)
@given(moves)
def test_two_owners_who_take_one_shard_each_from_a_third_agree(history):
    assert faults(play(history, [(A, B), (A,), (B,), (A, B)])) == []


def crashed_between(*, rolls_forward):
    """An owner of both shards dies at each step; then each goes to another one at once."""
    for steps in range(1, 40):
        world = World()
        first = owner(world, (A, B), 2)
        for _ in range(steps):
            next(first)
        first.close()
        two = [owner(world, (shard,), 3, rolls_forward=rolls_forward) for shard in SHARDS]
        for _ in range(60):
            for each in two:
                next(each, None)
        for each in two:
            each.close()
        for shard in SHARDS:
            for _ in begin(world, shard, rolls_forward=rolls_forward):
                pass
        yield faults(world)


def test_a_crash_at_every_step_and_two_heirs():
    assert [each for each in crashed_between(rolls_forward=True) if each] == []


def test_heirs_who_do_not_roll_forward_lose_rows():
    """The harness can convict."""
    assert any(crashed_between(rolls_forward=False))
