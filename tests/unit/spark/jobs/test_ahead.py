"""A job that is made ready while another one runs: real sessions, engine and threads."""

import threading

import pytest

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.jobs import engine as engine_module
from kcl_mld.spark.model import Position
from kcl_mld_protocol import ProcessRecords
from tests.unit.spark.jobs.test_cut_together import await_checkpoint, begin
from tests.unit.spark.shard_kit import WAIT_S, record


@pytest.fixture(autouse=True)
def any_size_is_made_ready(monkeypatch):
    monkeypatch.setattr(engine_module, "LEAST_AHEAD_BYTES", 1)


def until(condition, what=""):
    """Wait until it holds."""
    for _ in range(int(WAIT_S * 100)):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail(f"never: {what}")


def one_runs(b, *sessions):
    """The first job holds a batch of each shard and is being written."""
    b.sink.gate.clear()
    for each in sessions[1:]:
        each.daemon.deliver(record(1))
    sessions[0].daemon.deliver(record(1), record(2))
    assert b.sink.writing.wait(WAIT_S)
    b.sink.writing.clear()


def test_a_job_as_large_as_the_one_that_runs_is_made_ready_and_then_waits_for_its_turn(bench):
    called = []

    def process(df, ctx):
        called.append(ctx.count)
        return df

    b = bench(process, batch__maxRecords="2")
    one, two = begin(b, "a", "b")
    one_runs(b, one, two)
    two.daemon.deliver(record(2))
    one.daemon.deliver(record(3), record(4))
    until(lambda: len(b.caller.packed) == 1, "the next job is made ready")
    assert b.caller.packed[0] == [("a", Position(2), Position(4)), ("b", Position(1), Position(2))]
    assert called == [3]
    b.sink.gate.set()
    await_checkpoint(one, Position(4))
    await_checkpoint(two, Position(2))
    assert called == [3, 3]
    assert b.sink.commits == [["a", "b"], ["a", "b"]]
    assert one.end() is two.end() is None


def test_a_smaller_job_is_not_cut_before_the_one_that_runs_is_over(bench):
    b = bench(batch__maxRecords="2")
    one, two = begin(b, "a", "b")
    one_runs(b, one, two)
    one.daemon.deliver(record(3), record(4))  # two records are due, three are being written
    threading.Event().wait(0.05)
    assert b.caller.packed == []
    two.daemon.deliver(record(2), record(3))
    until(lambda: len(b.caller.packed) == 1, "the next job is made ready")
    b.sink.gate.set()
    await_checkpoint(one, Position(4))
    assert [sorted(job) for job in b.sink.jobs] == [["a", "b"], ["a", "b"]]
    assert one.end() is two.end() is None


def test_what_a_shard_has_beyond_one_batch_does_not_count_for_the_next_job(bench):
    """Else jobs of half of the shards would follow each other for ever."""
    b = bench(batch__maxRecords="2")
    one, two = begin(b, "a", "b")
    one_runs(b, one, two)
    one.daemon.deliver(*(record(n) for n in range(3, 6)))  # three records, and two fit
    threading.Event().wait(0.05)
    assert b.caller.packed == []
    b.sink.gate.set()
    await_checkpoint(one, Position(4))
    assert one.end() is two.end() is None


def test_full_batches_make_a_job_though_their_records_are_smaller(bench):
    b = bench(batch__maxRecords="2")
    (one,) = begin(b, "a")
    b.sink.gate.clear()
    one.daemon.deliver(record(1, data=b"x" * 100), record(2, data=b"x" * 100))
    assert b.sink.writing.wait(WAIT_S)
    one.daemon.deliver(*(record(n, data=b"x" * 99) for n in (3, 4, 5)))
    until(lambda: len(b.caller.packed) == 1, "the next job is made ready")
    assert b.caller.packed[0] == [("a", Position(2), Position(4))]
    b.sink.gate.set()
    await_checkpoint(one, Position(4))
    assert one.end() is None


def test_what_waits_behind_a_job_that_fails_is_not_called(bench):
    called = []

    def process(df, ctx):
        called.append(ctx.count)
        return df

    b = bench(process, batch__maxRecords="2", retry__attempts="1")
    b.sink.write_errors = [OSError("no disk")]
    (one,) = begin(b, "a")
    one_runs(b, one)
    one.daemon.deliver(record(3), record(4))
    until(lambda: len(b.caller.packed) == 1, "the next job is made ready")
    b.sink.gate.set()
    until(lambda: b.caller.released.count(["a"]) == 3, "both jobs are over")
    one.daemon.say(ProcessRecords((), 7))
    assert isinstance(one.ended(), BatchFailed)
    assert called == [2]
    assert b.sink.committed == []


def test_a_shard_that_is_lost_need_not_wait_for_the_turn_of_its_job(bench):
    b = bench(batch__maxRecords="2")
    first, lost, other = begin(b, "a", "b", "c")
    one_runs(b, first)
    lost.daemon.deliver(record(1))
    other.daemon.deliver(record(1), record(2))
    until(lambda: len(b.caller.packed) == 1, "the next job is made ready")
    lost.daemon.lease_lost()
    assert lost.end() is None  # the job before it is still being written
    assert not b.sink.jobs
    b.sink.gate.set()
    await_checkpoint(first, Position(2))
    await_checkpoint(other, Position(2))
    assert [sorted(job) for job in b.sink.jobs] == [["a"], ["c"]]
    assert [row[0] for row in b.sink.rows] == ["a", "a", "c", "c"]
    assert first.end() is other.end() is None


def test_rows_that_were_made_ready_are_let_go_of_whatever_becomes_of_them(bench):
    b = bench(batch__maxRecords="2")
    first, lost, other = begin(b, "a", "b", "c")
    one_runs(b, first)
    lost.daemon.deliver(record(1))
    other.daemon.deliver(record(1), record(2))
    until(lambda: len(b.caller.packed) == 1, "the next job is made ready")
    lost.daemon.lease_lost()
    other.daemon.lease_lost()
    b.sink.gate.set()
    await_checkpoint(first, Position(2))
    until(lambda: ["b", "c"] in b.caller.released, "both are released")
    assert [each.end() for each in (first, lost, other)] == [None] * 3


def test_rows_that_cannot_be_made_ready_are_met_again_by_the_try(bench, caplog):
    b = bench(batch__maxRecords="2", retry__attempts="1")
    b.caller.pack_errors = [OSError("the disk is full")]
    (one,) = begin(b, "a")
    one_runs(b, one)
    one.daemon.deliver(record(3), record(4))
    until(lambda: len(b.caller.packed) == 1, "the next job is made ready")
    b.sink.gate.set()
    await_checkpoint(one, Position(4))
    assert one.end() is None
