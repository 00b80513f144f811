"""All shards of a host are cut in one moment: real sessions, engine and threads, a sink in memory."""

import threading

import pytest

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.jobs import engine as engine_module
from kcl_mld.spark.model import Position
from kcl_mld_protocol import ShardEnded, ShutdownRequested
from tests.unit.spark.shard_kit import WAIT_S, HandClock, record


def begin(b, *names, **more):
    sessions = [b.session(shard_id=name, **more) for name in names]
    for each in sessions:
        each.daemon.initialize()
    return sessions


def await_checkpoint(session, position):
    """Give a session turns until its newest checkpoint is this one."""
    for _ in range(int(WAIT_S * 100)):
        if position in session.daemon.checkpoints:
            return
        session.daemon.deliver()
        threading.Event().wait(0.01)
    pytest.fail(f"{session.daemon.checkpoints}")


def await_commits(b, session, count):
    """Give a session turns until so many batches are committed."""
    for _ in range(int(WAIT_S * 100)):
        if len(b.sink.committed) >= count:
            return
        session.daemon.deliver()
        threading.Event().wait(0.01)
    pytest.fail(f"{len(b.sink.committed)} batches")


def test_one_shard_that_is_due_takes_all_along_and_each_checkpoints_its_own(bench):
    b = bench(batch__maxRecords="3")
    due, *others = begin(b, "a", "b", "c", "d")
    for each in others[:2]:
        each.daemon.deliver(record(5))
    due.daemon.deliver(record(1), record(2), record(3))
    await_commits(b, due, 3)
    assert [sorted(job) for job in b.sink.jobs] == [["a", "b", "c"]]
    await_checkpoint(due, Position(3))
    for each in others[:2]:
        await_checkpoint(each, Position(5))
    assert others[2].daemon.checkpoints == []
    assert [each.end() for each in [due, *others]] == [None] * 4


def test_one_idle_tail_ends_the_wait_of_all(bench):
    clock = HandClock()
    b = bench(batch__maxDelay="8s")
    early, late = begin(b, "a", "b", clock=clock)
    early.daemon.deliver(record(1))
    clock.now = 3.0
    late.daemon.deliver(record(1))
    late.daemon.deliver()
    assert b.sink.jobs == []
    clock.now = 4.0
    await_commits(b, early, 2)
    assert b.sink.jobs == [["a", "b"]]
    clock.now = 8.0
    await_checkpoint(late, Position(1))
    early.daemon.deliver()
    assert b.sink.jobs == [["a", "b"]]
    assert early.end() is late.end() is None


def test_what_comes_during_a_job_is_one_job_afterwards(bench):
    b = bench(batch__maxRecords="1")
    sessions = begin(b, "a", "b", "c")
    b.sink.gate.clear()
    sessions[0].daemon.deliver(record(1))
    assert b.sink.writing.wait(WAIT_S)
    for each in sessions[1:]:
        each.daemon.deliver(record(1))
    sessions[0].daemon.deliver(record(2))
    b.sink.gate.set()
    await_commits(b, sessions[0], 4)
    assert [sorted(job) for job in b.sink.jobs] == [["a"], ["a", "b", "c"]]
    assert [each.end() for each in sessions] == [None] * 3


def test_a_job_is_bounded_as_a_whole_with_a_fair_share_for_each(bench, monkeypatch):
    monkeypatch.setattr(engine_module, "MAX_JOB_BYTES", 60)
    b = bench(batch__maxBytes="100", batch__coalesceWindow="2s")
    hot, cold = begin(b, "hot", "cold")
    cold.daemon.deliver(record(1, data=b"x" * 10), record(2, data=b"x" * 10))
    hot.daemon.deliver(*(record(n, data=b"x" * 10) for n in range(1, 11)))
    await_commits(b, hot, 2)
    first = {each.shard.shard_id: each.to for each in b.sink.committed[:2]}
    assert first == {"hot": Position(4), "cold": Position(2)}
    hot.daemon.shard_ended()
    assert [row[1] for row in b.sink.rows if row[0] == "hot"] == list(range(1, 11))
    assert hot.end() is cold.end() is None


def test_a_shard_that_is_lost_before_the_moment_is_not_cut(bench):
    b = bench(batch__maxRecords="2")
    lost, due = begin(b, "a", "b")
    lost.daemon.deliver(record(1))
    lost.daemon.lease_lost()
    due.daemon.deliver(record(1), record(2))
    await_commits(b, due, 1)
    assert b.sink.jobs == [["b"]]
    assert lost.end() is due.end() is None
    assert lost.daemon.checkpoints == []


def test_a_shard_that_is_lost_while_its_batch_is_written_keeps_nothing_of_it(bench):
    b = bench(batch__maxRecords="2")
    lost, due = begin(b, "a", "b")
    lost.daemon.deliver(record(1))
    b.sink.gate.clear()
    due.daemon.deliver(record(1), record(2))
    assert b.sink.writing.wait(WAIT_S)
    lost.daemon.lease_lost()
    b.sink.gate.set()
    await_commits(b, due, 1)
    assert b.sink.jobs == [["b", "a"], ["b"]]
    assert [each.shard.shard_id for each in b.sink.committed] == ["b"]
    assert lost.end() is due.end() is None


def test_a_stop_or_a_shards_end_takes_the_others_along_and_waits_for_its_own(bench):
    b = bench()
    ends, stops, goes_on = begin(b, "a", "b", "c")
    for each in (ends, stops, goes_on):
        each.daemon.deliver(record(1))
    ends.daemon.shard_ended()
    assert ends.daemon.checkpoints == [Position(1), "END"]
    stops.daemon.deliver(record(2))
    stops.daemon.shutdown()
    assert stops.daemon.checkpoints[-1] == Position(2)
    await_checkpoint(goes_on, Position(1))
    assert [sorted(job) for job in b.sink.jobs] == [["a", "b", "c"], ["b"]]
    assert [each.end() for each in (ends, stops, goes_on)] == [None] * 3


def test_a_failed_shard_is_not_cut_again_and_the_others_are(bench):
    b = bench(lambda df, ctx: df if ctx.shard_id == "b" else 1 / 0, batch__maxRecords="1")
    bad, good = begin(b, "a", "b")
    bad.daemon.deliver(record(1), record(2))
    bad.daemon.say(ShardEnded())
    assert isinstance(bad.ended(), BatchFailed)
    good.daemon.deliver(record(1))
    await_commits(b, good, 1)
    good.daemon.deliver(record(2))
    good.daemon.shard_ended()
    assert good.daemon.checkpoints[-2:] == [Position(2), "END"]
    assert b.sink.jobs == [["b"], ["b"]]
    assert good.end() is None


def test_who_waits_for_the_moment_when_the_process_ends_is_told(bench):
    b = bench(batch__maxRecords="1")
    running, waiting = begin(b, "a", "b")
    b.sink.gate.clear()
    running.daemon.deliver(record(1))
    assert b.sink.writing.wait(WAIT_S)
    waiting.daemon.deliver(record(1))
    waiting.daemon.say(ShutdownRequested())
    b.engine.close()
    assert "this process is ending" in str(waiting.ended())
    late = b.session(shard_id="c")
    late.daemon.initialize()
    late.daemon.deliver(record(1))
    late.daemon.say(ShutdownRequested())
    assert "this process is ending" in str(late.ended())
    b.sink.gate.set()
