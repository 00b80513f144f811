"""Every crash point and every new cut: each record is in the output once.

The real batcher and the real rules for resuming run against tiny models of sinks. A history is a
list of lives of a process: how it cuts, how much it is handed at a time, and after how many durable
steps it is killed. The last life is never killed. A commit that was under way at a kill may still
happen later, as that of a process that hangs for a while.
"""

import contextlib
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings, strategies as st

from kcl_mld.spark.errors import Fenced
from kcl_mld.spark.model import Position, Row, ShardKey
from kcl_mld.spark.shard.batcher import FlushReason, Limits, ShardBuffer
from kcl_mld.spark.shard.resume import resume_at_mark

SHARD = ShardKey("app", "stream", "shard-1")


class Killed(Exception):
    """The process is gone."""


@dataclass
class Life:
    """How one process behaves.

    Attributes:
        most: records of a batch.
        handed: records of a delivery.
        steps: durable steps until it is killed; None = never.
        hangs: True if the step that it is killed in happens later, in the next life.
        lag: batches that are committed before a checkpoint is sent.
        wakes: before which of its steps a commit that hung in the life before happens.
    """

    most: int
    handed: int
    steps: int | None
    hangs: bool = False
    lag: int = 0
    wakes: int = 0


class Chain:
    """Appends if the predecessor is the end."""

    def __init__(self):
        self.mark = None
        self.rows = []

    def commit(self, batch):
        after, to, rows = batch
        if self.mark != after:
            raise Fenced("the position is taken")
        self.mark = to
        self.rows.extend(rows)


class PathPerRange:
    """Overwrites a path that is named by the first and the last record."""

    mark = None

    def __init__(self):
        self.files = {}

    def commit(self, batch):
        _, to, rows = batch
        self.files[rows[0], to] = rows

    @property
    def rows(self):
        return [row for rows in self.files.values() for row in rows]


class LastSequence:
    """A table whose version is the last position of the batch."""

    mark = None

    def __init__(self):
        self.version = Position(-1)
        self.rows = []

    def commit(self, batch):
        _, to, rows = batch
        if to > self.version:
            self.version = to
            self.rows.extend(rows)


class World:
    """What outlives a process: the lease's row, the sink, and a commit that is still under way."""

    def __init__(self, sink, records):
        self.sink = sink
        self.records = records
        self.checkpoint = None
        self.late = None
        self.fenced = 0

    def live(self, life):
        """One process, to its end or its kill; one that is fenced is started again."""
        while True:
            try:
                return _Process(self, life).run()
            except Killed:
                return None
            except Fenced:
                self.fenced += 1
                assert self.fenced < 100

    def commit_late(self):
        """What an older process had under way happens now, or is refused."""
        late, self.late = self.late, None
        if late is not None:
            with contextlib.suppress(Fenced):
                self.sink.commit(late)


class _Process:
    def __init__(self, world, life):
        self.world = world
        self.life = life
        self.steps = life.steps
        self.taken = 0
        self.resume = resume_at_mark(SHARD, world.checkpoint, world.sink.mark)
        self.buffer = ShardBuffer(
            Limits(life.most, 10**9, 1.0),
            after=self.resume.after,
            drop_through=self.resume.drop_through,
        )
        self.durable = self.resume.drop_through
        self.behind = 0

    def run(self):
        waiting = [
            each
            for each in self.world.records
            if self.world.checkpoint is None or each > self.world.checkpoint
        ]
        while waiting:
            handed, waiting = waiting[: self.life.handed], waiting[self.life.handed :]
            self.buffer.add([Row(each, "", b"x", None) for each in handed], 0.0)
            self.cut_all(FlushReason.FLOWING)
        self.cut_all(FlushReason.SHARD_ENDED)
        self.send_checkpoint()

    def cut_all(self, moment):
        while self.buffer.is_due(0.0, moment):
            self.write(self.buffer.cut_now())

    def write(self, cut):
        world = self.world
        batch = (cut.after, cut.to, [row.position for row in cut.rows])
        assert all(row.position > (cut.after or Position(-1)) for row in cut.rows)  # invariant 6
        self.step(lambda: world.sink.commit(batch), batch)
        self.durable = cut.to
        self.behind += 1
        if self.behind > self.life.lag:
            self.send_checkpoint()

    def send_checkpoint(self):
        delivered = self.buffer.delivered
        if self.durable is None or delivered is None:
            return
        position = min(self.durable, delivered)
        before = self.world.checkpoint
        if before is not None and position <= before:
            return  # invariant 3
        self.step(lambda: setattr(self.world, "checkpoint", position))
        self.behind = 0

    def step(self, act, batch=None):
        if self.taken == self.life.wakes:
            self.world.commit_late()
        self.taken += 1
        if self.steps is not None:
            if self.steps == 0:
                if batch is not None and self.life.hangs:
                    self.world.late = batch
                raise Killed
            self.steps -= 1
        act()


def play(sink, records, lives):
    """Run a history; the output's rows."""
    world = World(sink, records)
    for life in [*lives, Life(3, 4, None, wakes=2)]:
        world.live(life)
    world.commit_late()
    return world


positions = st.lists(
    st.builds(Position, st.integers(0, 12), st.integers(0, 2)), max_size=24, unique=True
).map(sorted)
some_lives = st.lists(
    st.builds(
        Life, st.integers(1, 5), st.integers(1, 7), st.integers(0, 9), st.booleans(),
        st.integers(0, 2), st.integers(0, 5),
    ),
    max_size=6,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(records=positions, lives=some_lives)
def test_each_record_is_in_the_output_once_whatever_is_killed_and_however_it_is_cut(records, lives):
    """Invariants 2, 3, 4, 6 and 7."""
    world = play(Chain(), records, lives)
    assert sorted(world.sink.rows) == records
    assert world.checkpoint == (records[-1] if records else None)


#: Committed, killed before the checkpoint, and cut differently when it is delivered again.
RECUT = [Life(5, 5, 1), Life(8, 8, None)]
TEN = [Position(each) for each in range(10)]


@pytest.mark.parametrize("sink", [PathPerRange, LastSequence])
def test_the_harness_convicts_sinks_that_trust_the_range_of_a_batch(sink):
    doubled = Counter(play(sink(), TEN, RECUT).sink.rows)
    assert {position for position, times in doubled.items() if times > 1} == set(TEN[:5])


def test_the_same_history_leaves_the_good_sink_unharmed():
    assert sorted(play(Chain(), TEN, RECUT).sink.rows) == TEN


@pytest.mark.parametrize("kind", [PathPerRange, LastSequence])
def test_random_histories_convict_them_too(kind):
    found = []

    @settings(max_examples=200, deadline=None, database=None, derandomize=True)
    @given(records=positions, lives=some_lives)
    def look(records, lives):
        found.append(sorted(play(kind(), records, lives).sink.rows) != records)

    look()
    assert any(found)


def test_a_second_writer_after_the_same_position_is_refused():
    """Invariant 5, in the model."""
    chain = Chain()
    chain.commit((None, Position(2), [Position(1), Position(2)]))
    with pytest.raises(Fenced):
        chain.commit((None, Position(3), [Position(1), Position(2), Position(3)]))
    assert chain.rows == [Position(1), Position(2)]


def test_a_writer_that_hangs_and_wakes_up_is_caught_in_both_orders():
    """It wins and the new process is fenced, or it comes too late and is refused itself."""
    hanging = Life(5, 5, 0, hangs=True)
    wins = play(Chain(), TEN, [hanging, Life(8, 8, None, wakes=0)])
    loses = play(Chain(), TEN, [hanging, Life(8, 8, None, wakes=1)])
    assert (wins.fenced, loses.fenced) == (1, 0)
    assert sorted(wins.sink.rows) == sorted(loses.sink.rows) == TEN
