"""A function that returns more than one job may bring: its batch is computed in halves."""

import logging

import pytest

from kcl_mld.spark.errors import BatchFailed, ResultTooLarge
from kcl_mld.spark.model import Position, Row, ShardBatch, ShardKey
from tests.unit.spark.jobs.test_engine import always, hold_runner, outcome
from tests.unit.spark.shard_kit import MemorySink


class Narrow(MemorySink):
    """Takes so many rows at once."""

    def __init__(self, most):
        super().__init__()
        self.most = most
        self.refused = 0

    def run(self, frame):
        if len(frame.rows) > self.most:
            self.refused += 1
            raise ResultTooLarge(1024)


def batch(shard, first, to, after=None):
    rows = tuple(Row(Position(n), "key", b"x", None) for n in range(first, to + 1))
    return ShardBatch(ShardKey("app", "stream", shard), after, Position(to), rows)


def test_a_batch_is_committed_part_by_part_and_answered_when_all_of_it_stands(bench, caplog):
    caplog.set_level(logging.WARNING)
    b = bench(lambda df, ctx: df, Narrow(3))
    assert outcome(b.engine.submit(batch("a", 1, 10), always)) is None
    assert b.sink.rows == [("a", n, 0) for n in range(1, 11)]
    assert [(each.after, each.to) for each in b.sink.committed] == [
        (None, Position(2)),
        *((Position(n), Position(n + 2)) for n in (2, 4, 6, 8)),
    ]
    assert b.sink.refused == 2
    told = [each.message for each in caplog.records if "maxResultBytes" in each.message]
    assert len(told) == 1
    assert "returns more than spark.sink.maxResultBytes (1024 bytes)" in told[0]


def test_all_shards_of_a_batch_are_in_its_parts_once(bench):
    b = bench(lambda df, ctx: df, Narrow(4))
    busy = hold_runner(b)
    shards = {"a": 3, "b": 5, "c": 1}
    futures = [b.engine.submit(batch(name, 1, to), always) for name, to in shards.items()]
    b.sink.gate.set()
    assert [outcome(each) for each in (busy, *futures)] == [None] * 4
    wanted = [(name, n, 0) for name, to in shards.items() for n in range(1, to + 1)]
    assert sorted(b.sink.rows) == sorted([("busy", 1, 0), *wanted])


def test_a_part_that_fails_is_tried_again_and_nothing_is_doubled(bench):
    b = bench(lambda df, ctx: df, Narrow(2))
    b.sink.write_errors = [None, OSError("a disk that comes back")]
    assert outcome(b.engine.submit(batch("a", 1, 5), always)) is None
    assert b.sink.rows == [("a", n, 0) for n in range(1, 6)]


def test_one_record_of_which_too_much_is_made_is_named(bench):
    b = bench(lambda df, ctx: df, Narrow(0))
    error = outcome(b.engine.submit(batch("a", 7, 9), always))
    assert isinstance(error, BatchFailed)
    assert "for the record of a at 7.0 is more than spark.sink.maxResultBytes" in str(error)
    assert b.sink.rows == []


def test_a_part_that_fails_leaves_the_shards_of_the_other_parts_alone(bench):
    b = bench(lambda df, ctx: df, Narrow(2), retry__attempts="1")
    b.sink.commit_errors = [None, OSError("gone")]
    busy = hold_runner(b)
    futures = [b.engine.submit(batch(name, 1, 2), always) for name in "abc"]
    b.sink.gate.set()
    assert outcome(busy) is None
    first, *others = [outcome(each) for each in futures]
    assert "gone" in str(first)
    assert others == [None, None]
    assert sorted(b.sink.rows) == [
        ("b", 1, 0),
        ("b", 2, 0),
        ("busy", 1, 0),
        ("c", 1, 0),
        ("c", 2, 0),
    ]


def test_each_shard_hears_of_a_record_of_which_too_much_is_made(bench):
    b = bench(lambda df, ctx: df, Narrow(1))
    busy = hold_runner(b)
    futures = [b.engine.submit(batch(name, 1, 2), always) for name in "abc"]
    b.sink.most = 0
    b.sink.gate.set()
    outcome(busy)
    assert all(isinstance(outcome(each), BatchFailed) for each in futures)


@pytest.mark.parametrize("to", [2, 3])
def test_what_was_committed_before_a_part_that_fails_stays(bench, to):
    """The shard begins again behind it, by its mark."""
    b = bench(lambda df, ctx: df, Narrow(1), retry__attempts="1")
    b.sink.commit_errors = [None, OSError("gone")]
    error = outcome(b.engine.submit(batch("a", 1, to), always))
    assert "gone" in str(error)
    assert b.sink.rows == [("a", 1, 0)]
    assert b.sink.marks["a"] == Position(1)


def test_a_later_batch_begins_at_the_last_good_size(bench):
    b = bench(lambda df, ctx: df, Narrow(3))
    assert outcome(b.engine.submit(batch("a", 1, 10), always)) is None
    assert b.sink.refused == 2
    assert outcome(b.engine.submit(batch("a", 11, 20, Position(10)), always)) is None
    assert b.sink.refused == 2
    assert b.sink.rows == [("a", n, 0) for n in range(1, 21)]
