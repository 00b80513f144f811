"""Marks as numbers of application transactions, and what the guards prove."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from kcl_mld.spark.model import Position, ShardKey
from kcl_mld.spark.table.marks import (
    NO_MARK,
    EpochState,
    Judgement,
    Mark,
    app_id,
    epoch_state,
    guard_id,
    is_set_back,
    judge,
    output_id,
    output_property,
    read_mark,
    transactions,
)

A = ShardKey("app", "stream", "shardId-0")
B = ShardKey("app", "stream", "shardId-1")
names = st.text(min_size=1, max_size=6)
keys = st.builds(ShardKey, names, names, names, names)


@given(st.integers(0, 2**186 - 1), st.integers(0, 2**62 - 1), st.integers(0, 2**62 - 1))
def test_every_position_comes_back_exactly(sequence, sub, guard):
    numbers = transactions(A, Position(sequence, sub), guard)
    assert len(numbers) == 5
    assert all(0 <= number < 2**63 for number in numbers.values())
    assert read_mark(A, numbers.get) == Mark(Position(sequence, sub), guard)


@pytest.mark.parametrize(
    ("position", "guard"),
    [(Position(2**186), 1), (Position(1, 2**62), 1), (Position(1), 2**62), (Position(1), -1)],
)
def test_what_does_not_fit_is_refused(position, guard):
    with pytest.raises(ValueError, match="does not fit"):
        transactions(A, position, guard)


@given(keys, keys)
def test_no_two_shards_share_an_id(one, other):
    assert (guard_id(one) == guard_id(other)) == (one == other)


def test_names_with_slashes_are_kept_apart():
    assert guard_id(ShardKey("a/b", "c", "d", "e")) != guard_id(ShardKey("a", "b/c", "d", "e"))
    assert app_id(A, "guard") == guard_id(A) == "kcl-mld/app/0/stream/shardId-0/guard"
    assert output_id("a/b", "0", "begin") == "kcl-mld/a%2Fb/0/begin"
    assert output_property("app", "0", "epoch") == "kclMld.epoch.app.0"


def test_a_shard_that_no_commit_names_has_no_mark():
    assert read_mark(A, {}.get) == NO_MARK


def test_a_part_of_a_mark_is_none():
    numbers = transactions(A, Position(5), 7)
    del numbers[guard_id(A)]
    with pytest.raises(ValueError, match="only a part"):
        read_mark(A, numbers.get)


@pytest.mark.parametrize(
    ("now", "verdict", "moved"),
    [
        ({A: 1, B: None}, Judgement.REPEAT, set()),
        ({A: 9, B: 9}, Judgement.STANDS, set()),
        ({A: 9, B: 5}, Judgement.STANDS, set()),  # somebody has built on it since
        ({A: 5, B: None}, Judgement.LOST, {A}),
        ({A: 5, B: 6}, Judgement.LOST, {A, B}),
        ({A: None, B: None}, Judgement.LOST, {A}),  # a mark that was dropped
    ],
)
def test_the_guards_say_what_became_of_a_commit(now, verdict, moved):
    assert judge({A: 1, B: None}, 9, now) == (verdict, frozenset(moved))


@pytest.mark.parametrize(
    ("has_property", "has_transaction", "state"),
    [
        (True, True, EpochState.BEGUN),
        (True, False, EpochState.MARKS_DROPPED),
        (False, True, EpochState.SET_BACK),
        (False, False, EpochState.NEW),
    ],
)
def test_two_records_of_the_beginning_tell_what_was_done_to_the_table(
    has_property, has_transaction, state
):
    assert epoch_state(has_property=has_property, has_transaction=has_transaction) is state


class Table:
    """A log that conflicts as delta-rs does, and loses answers.

    A commit is refused only if one newer than its snapshot names the same id; an answer may be lost
    whether it was refused, did not arrive, or stands.
    """

    def __init__(self):
        self.commits = []

    def snapshot(self):
        return len(self.commits)

    def guards(self, snapshot, shards):
        found = dict.fromkeys(shards)
        for commit in self.commits[:snapshot]:
            found.update({shard: guard for shard, (guard, _) in commit.items() if shard in found})
        return found

    def commit(self, snapshot, change, fate):
        """``fate``: kept, lost-before, or lost-after; True = it was answered."""
        if fate == "lost-before":
            return False
        if any(set(newer) & set(change) for newer in self.commits[snapshot:]):
            return False
        self.commits.append(change)
        return fate == "kept"


class Writer:
    """One that follows the rules, a step at a time; it may be behind others at any moment."""

    def __init__(self, table, shards, numbers, refreshes_late=False):
        self.table, self.numbers, self.refreshes_late = table, numbers, refreshes_late
        self.shards = set(shards)
        self.known = dict.fromkeys(shards)
        self.at = dict.fromkeys(shards, 0)
        self.begun = None

    def begin(self):
        """A hold begins: read the marks."""
        now = self.table.guards(self.table.snapshot(), self.known)
        for shard in self.known:
            self.known[shard] = now[shard]
            self.at[shard] = sum(len(c[shard][1]) for c in self.table.commits if shard in c)
        self.shards = set(self.known)

    def look(self):
        """Snapshot and judgement; what is left to do next is a commit."""
        if not self.shards:
            self.begin()
        if self.begun is None:
            rows = {s: range(self.at[s], self.at[s] + 2) for s in self.shards}
            self.begun = next(self.numbers), rows
        identity, rows = self.begun
        snapshot = self.table.snapshot()
        before = {shard: self.known[shard] for shard in rows}
        verdict, moved = judge(before, identity, self.table.guards(snapshot, rows))
        if verdict is Judgement.REPEAT:
            return snapshot
        if verdict is Judgement.STANDS:
            for shard in rows:
                self.known[shard] = identity
                self.at[shard] += len(rows[shard])
        self.shards -= moved
        self.begun = None
        return None

    def commit(self, snapshot, fate):
        identity, rows = self.begun
        if self.refreshes_late:
            snapshot = self.table.snapshot()
        change = {shard: (identity, rows[shard]) for shard in rows}
        self.table.commit(snapshot, change, fate)


def rows_of(table, shard):
    return [row for commit in table.commits if shard in commit for row in commit[shard][1]]


steps = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["kept", "lost-before", "lost-after"])),
    max_size=60,
)


def play(moves, **options):
    """Two writers of the same shards, their looks and commits in any order."""
    numbers = iter(range(1, 10_000))
    table = Table()
    writers = [Writer(table, (A, B), numbers, **options) for _ in range(2)]
    looked = [None, None]
    for who, fate in moves:
        if looked[who] is None:
            looked[who] = writers[who].look()
        else:
            writers[who].commit(looked[who], fate)
            looked[who] = None
    return table


@given(steps)
def test_no_lost_answer_and_no_other_writer_loses_or_doubles_a_row(moves):
    table = play(moves)
    for shard in (A, B):
        found = rows_of(table, shard)
        assert found == list(range(len(found)))


def test_the_same_with_a_refresh_between_look_and_commit_doubles_rows():
    """That the harness can convict: both look, then both commit on what is newest."""
    moves = [(0, "kept"), (1, "kept"), (0, "kept"), (1, "kept")]
    found = rows_of(play(moves, refreshes_late=True), A)
    assert found == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("text", "number", "is_back"),
    [(None, None, False), ("7", 7, False), ("5", 7, True), (None, 7, True), ("7", None, True)],
)
def test_a_property_and_a_number_of_one_step_tell_of_a_restore(text, number, is_back):
    assert is_set_back(text, number) is is_back
