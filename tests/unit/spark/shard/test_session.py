"""One shard's conversation: what is written, committed and checkpointed, and what is not."""

import threading
import time

import pytest

from kcl_mld.spark.errors import BatchFailed, Fenced
from kcl_mld.spark.model import Position, ShardKey
from kcl_mld_protocol import Initialize, ProcessRecords, ShardEnded, ShutdownRequested
from tests.unit.spark.shard_kit import WAIT_S, HandClock, MemorySink, record


def records(*sequences):
    return [record(each) for each in sequences]


def until(session, reached):
    """Ticks until something is true; the deliveries are empty."""
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline, session.daemon.lines[-5:]
        session.daemon.deliver()


def test_a_full_batch_is_committed_and_then_checkpointed_by_its_position(bench):
    b = bench(batch__maxRecords="3")
    s = b.session()
    s.daemon.initialize()
    s.daemon.deliver(record(1), record(2, 4), record(2, 5), record(3))
    until(s, lambda: s.daemon.checkpoints)
    assert s.daemon.checkpoints == [Position(2, 5)]
    assert [row[1:] for row in b.sink.rows] == [(1, 0), (2, 4), (2, 5)]
    assert s.end() is None


def test_the_daemon_is_asked_for_ticks_only_if_it_announced_them(bench):
    b = bench(batch__maxDelay="2s")
    with_ticks, without = b.session(shard_id="a"), b.session(shard_id="b", capabilities=())
    for each in (with_ticks, without):
        each.daemon.initialize()
        assert each.end() is None
    assert with_ticks.daemon.ticks == [0.5]
    assert without.daemon.ticks == []


def test_an_idle_tail_is_committed_and_checkpointed_within_the_delay(bench):
    clock = HandClock()
    b = bench(batch__maxDelay="8s")
    s = b.session(clock=clock)
    s.daemon.initialize()
    s.daemon.deliver(*records(1, 2))
    clock.now = 3.9
    s.daemon.deliver()
    assert b.sink.jobs == []
    clock.now = 4.0
    until(s, lambda: s.daemon.checkpoints)
    assert s.daemon.checkpoints == [Position(2)]
    assert s.end() is None


def test_a_restart_drops_what_the_sink_has_and_checkpoints_it(bench):
    b = bench()
    b.sink.marks["shardId-0"] = Position(5)
    s = b.session()
    s.daemon.initialize("2")
    s.daemon.deliver(*records(3, 4))
    assert s.daemon.checkpoints == [Position(4)]  # what was delivered, not the mark beyond it
    s.daemon.deliver(*records(5, 6))
    assert s.daemon.checkpoints == [Position(4), Position(5)]
    s.daemon.shard_ended()
    assert [row[1] for row in b.sink.rows] == [6]
    assert b.sink.committed[0].after == Position(5)
    assert s.end() is None


def test_a_mark_that_lies_behind_the_checkpoint_ends_the_shard(bench):
    """Restored from a backup, say: what lies between would never be written."""
    b = bench()
    b.sink.marks["shardId-0"] = Position(5)
    s = b.session()
    s.daemon.say(Initialize("shardId-0", "8", 0, {}))
    error = s.ended()
    assert isinstance(error, BatchFailed)
    assert "the checkpoint 8.0 lies beyond 5.0" in str(error)
    assert "Set the checkpoint back to 5.0" in str(error)


def test_checkpoints_never_go_back(bench):
    b = bench(batch__maxRecords="1")
    s = b.session()
    s.daemon.initialize()
    for each in range(1, 30):
        s.daemon.deliver(record(each))
    s.daemon.shard_ended()
    positions = s.daemon.checkpoints[:-1]
    assert positions == sorted(set(positions))
    assert s.daemon.checkpoints[-2:] == [Position(29), "END"]
    assert s.end() is None


def test_an_empty_answer_of_the_function_advances_the_shard_too(bench):
    b = bench(lambda df, ctx: type(df)([]))
    s = b.session()
    s.daemon.initialize()
    s.daemon.deliver(*records(1, 2))
    s.daemon.shutdown()
    assert s.daemon.checkpoints == [Position(2)]
    assert b.sink.committed[0].to == Position(2)
    assert s.end() is None


def test_the_end_of_the_shard_is_checkpointed_after_everything_is_durable(bench):
    b = bench(batch__maxRecords="2")
    s = b.session()
    s.daemon.initialize()
    b.sink.gate.clear()
    s.daemon.deliver(*records(1, 2, 3))
    s.daemon.say(ShardEnded())
    assert b.sink.writing.wait(WAIT_S)
    assert s.daemon.checkpoints == []
    b.sink.gate.set()
    s.daemon.await_statuses(3)
    assert s.daemon.checkpoints[-1] == "END"
    assert [row[1] for row in b.sink.rows] == [1, 2, 3]
    assert s.end() is None


def test_a_failed_batch_ends_the_session_and_nothing_later_is_checkpointed(bench):
    b = bench(batch__maxRecords="1")
    s = b.session()
    b.sink.commit_errors = [None, Fenced("somebody else was here")]
    s.daemon.initialize()
    s.daemon.say(ProcessRecords(tuple(records(1, 2, 3)), 7))
    with s.daemon.changed:  # the failure may come before the answer
        assert s.daemon.changed.wait_for(lambda: s.daemon.statuses > 1 or s.daemon.is_over, WAIT_S)
    s.daemon.say(ShardEnded())
    error = s.ended()
    assert isinstance(error, Fenced)
    assert [row[1] for row in b.sink.rows] == [1]
    assert set(s.daemon.checkpoints) <= {Position(1)}


def test_the_end_of_the_shard_is_not_checkpointed_if_a_batch_fails(bench):
    b = bench()
    b.sink.write_errors = [BatchFailed("no room")]
    s = b.session()
    s.daemon.initialize()
    s.daemon.deliver(*records(1))
    s.daemon.say(ShardEnded())
    assert "no room" in str(s.ended())
    assert s.daemon.checkpoints == []


def test_no_commit_starts_after_the_lease_is_lost(bench):
    b = bench(batch__maxRecords="1")
    s = b.session()
    s.daemon.initialize()
    b.sink.gate.clear()
    s.daemon.deliver(*records(1, 2))
    assert b.sink.writing.wait(WAIT_S)
    assert s.session.is_under_way
    s.daemon.lease_lost()
    assert not s.session.is_under_way
    assert len(b.sessions.interrupted) == 1
    b.sink.gate.set()
    assert s.end() is None
    assert (b.sink.committed, s.daemon.checkpoints) == ([], [])
    assert b.sink.discarded.acquire(timeout=WAIT_S)


def test_a_job_that_serves_others_too_is_begun_again_without_a_lost_lease(bench):
    b = bench(batch__maxRecords="1", batch__coalesceWindow="2s")
    one, two = b.session(shard_id="a"), b.session(shard_id="b")
    b.sink.gate.clear()
    for each in (one, two):
        each.daemon.initialize()
    for each in (one, two):
        each.daemon.deliver(record(1))
    assert b.sink.writing.wait(WAIT_S)
    one.daemon.lease_lost()
    b.sink.gate.set()
    two.daemon.shard_ended()
    assert b.sink.jobs == [["a", "b"], ["b"]]
    assert len(b.sessions.interrupted) == 1
    assert [row[0] for row in b.sink.rows] == ["b"]
    assert one.end() is two.end() is None


def test_a_checkpoint_that_is_refused_because_the_lease_is_gone_ends_all_commits(bench):
    b = bench(batch__maxRecords="1")
    s = b.session()
    s.daemon.refuse_checkpoint = ["ShutdownException"]
    s.daemon.initialize()
    s.daemon.deliver(record(1))
    until(s, lambda: not s.daemon.refuse_checkpoint)
    s.daemon.deliver(*records(2, 3))
    s.daemon.lease_lost()
    assert s.end() is None
    assert [row[1] for row in b.sink.rows] == [1]
    assert s.daemon.checkpoints == []


def test_a_checkpoint_is_sent_again_while_the_table_is_busy(bench):
    b = bench()
    s = b.session()
    s.daemon.refuse_checkpoint = ["ThrottlingException", "RuntimeException"]
    s.daemon.initialize()
    s.daemon.deliver(record(1))
    s.daemon.shutdown()
    assert s.daemon.checkpoints == [Position(1)]
    assert s.end() is None


@pytest.mark.parametrize("error", ["IllegalArgumentException", "InvalidStateException"])
def test_any_other_refusal_of_a_checkpoint_ends_the_session(bench, error):
    b = bench()
    s = b.session()
    s.daemon.refuse_checkpoint = [error]
    s.daemon.initialize()
    s.daemon.deliver(record(1))
    s.daemon.say(ShutdownRequested())
    assert error in str(s.ended())


def test_a_refused_end_of_the_shard_ends_the_session(bench):
    s = bench().session()
    s.daemon.refuse_checkpoint = ["InvalidStateException"]
    s.daemon.initialize()
    s.daemon.say(ShardEnded())
    assert "the end of the shard was refused: InvalidStateException" in str(s.ended())


def test_an_end_of_the_shard_that_is_refused_because_the_lease_is_gone_is_answered(bench):
    s = bench().session()
    s.daemon.refuse_checkpoint = ["ShutdownException"]
    s.daemon.initialize()
    s.daemon.shard_ended()
    s.daemon.lease_lost()
    assert s.end() is None


def test_a_shutdown_flushes_and_checkpoints(bench):
    b = bench()
    s = b.session()
    s.daemon.initialize()
    s.daemon.deliver(*records(1, 2))
    assert b.sink.rows == []
    s.daemon.shutdown()
    assert s.daemon.checkpoints == [Position(2)]
    s.daemon.lease_lost()
    assert s.end() is None


def test_a_shutdown_past_its_deadline_leaves_the_rest_without_checkpoint(bench):
    b = bench()
    s = b.session(shutdown_s=0.05)
    s.daemon.initialize()
    b.sink.gate.clear()
    s.daemon.deliver(record(1))
    s.daemon.shutdown()
    b.sink.gate.set()
    s.daemon.lease_lost()
    assert s.end() is None
    assert (s.daemon.checkpoints, b.sink.committed) == ([], [])


def test_the_status_is_withheld_while_a_full_batch_waits_and_checkpoints_go_out(bench):
    b = bench(batch__maxRecords="1")
    s = b.session(keep_alive_s=0.02)
    s.daemon.initialize()
    b.sink.gate.clear()
    s.daemon.say(ProcessRecords(tuple(records(1, 2, 3, 4, 5)), 0))
    with s.daemon.changed:
        assert s.daemon.changed.wait_for(lambda: s.daemon.keep_alives >= 3, WAIT_S)
    assert s.daemon.statuses == 1
    b.sink.gate.set()
    s.daemon.await_statuses(2)
    assert s.daemon.checkpoints  # before the status
    s.daemon.shard_ended()
    assert [row[1] for row in b.sink.rows] == [1, 2, 3, 4, 5]
    assert s.end() is None


def test_signs_of_life_are_said_while_the_shard_is_not_free_and_while_its_mark_is_looked_up(bench):
    class SlowSink(MemorySink):
        def mark(self, shard):
            assert asked.wait(WAIT_S)
            return super().mark(shard)

    asked = threading.Event()
    b = bench(sink=SlowSink())
    with b.gate.hold(ShardKey("app", "stream", "shardId-0", b.config.epoch)):
        s = b.session(keep_alive_s=0.02)
        s.daemon.say(Initialize("shardId-0", "TRIM_HORIZON", 0))
        await_signs(s.daemon, 3)
    await_signs(s.daemon, s.daemon.keep_alives + 3)
    asked.set()
    s.daemon.await_statuses(1)
    before = s.daemon.keep_alives
    s.daemon.shard_ended()
    assert s.end() is None
    assert s.daemon.keep_alives == before


def test_a_session_that_fails_shows_life_while_its_job_ends_so_that_its_own_error_is_told(bench):
    b = bench(batch__maxRecords="1")
    s = b.session(keep_alive_s=0.01)
    s.daemon.initialize()
    b.sink.gate.clear()
    s.daemon.deliver(record(1))
    assert b.sink.writing.wait(WAIT_S)
    s.session._begun.accept = fail
    s.daemon.say(ProcessRecords((record(2),), 0))
    await_signs(s.daemon, 3)
    b.sink.gate.set()
    assert isinstance(s.ended(), KeyError)


def fail(*_):
    raise KeyError("mine")


def await_signs(daemon, count):
    with daemon.changed:
        assert daemon.changed.wait_for(lambda: daemon.keep_alives >= count, WAIT_S), daemon.lines


def test_a_lost_lease_leaves_what_is_buffered_and_what_is_in_jobs_and_says_so(bench, caplog):
    caplog.set_level("INFO")
    b = bench(batch__maxRecords="2")
    s = b.session()
    s.daemon.initialize()
    b.sink.gate.clear()
    s.daemon.deliver(*records(1, 2, 3))
    assert b.sink.writing.wait(WAIT_S)
    s.daemon.lease_lost()
    b.sink.gate.set()
    assert s.end() is None
    assert "the lease is over; 1 records buffered and 2 in jobs are left to others" in caplog.text


def test_a_lease_that_ends_with_nothing_left_is_no_loss(bench, caplog):
    caplog.set_level("INFO")
    s = bench().session()
    s.daemon.initialize()
    s.daemon.lease_lost()
    assert s.end() is None
    assert "the lease is over; nothing was buffered or in a job" in caplog.text


def test_a_withheld_status_ends_when_the_child_is_given_up(bench):
    b = bench(batch__maxRecords="1")
    s = b.session()
    s.daemon.initialize()
    b.sink.gate.clear()
    s.daemon.say(ProcessRecords(tuple(records(1, 2, 3, 4, 5)), 0))
    assert b.sink.writing.wait(WAIT_S)
    s.session.abandon()
    b.sink.gate.set()
    assert s.ended() is None
    assert (s.daemon.checkpoints, s.daemon.statuses) == ([], 1)


def test_a_child_that_is_given_up_late_takes_nothing_from_the_next_one(bench):
    b = bench(batch__maxRecords="1")
    old = b.session()
    old.daemon.initialize()
    assert old.end() is None
    new = b.session()
    new.daemon.initialize()
    b.sink.gate.clear()
    answered = new.daemon.statuses
    new.daemon.say(ProcessRecords(tuple(records(1, 2)), 0))
    assert b.sink.writing.wait(WAIT_S)
    old.session.abandon()
    assert b.sessions.interrupted == []
    b.sink.gate.set()
    new.daemon.await_statuses(answered + 1)  # a daemon says nothing before the status
    # Batches that end before the session looks share one checkpoint, that of the last.
    until(new, lambda: Position(2) in new.daemon.checkpoints)
    assert new.end() is None
    assert new.daemon.checkpoints in ([Position(1), Position(2)], [Position(2)])
    assert [each.to for each in b.sink.committed] == [Position(1), Position(2)]


def test_the_end_of_the_pipe_drops_the_buffer_without_checkpoint(bench):
    b = bench()
    s = b.session()
    s.daemon.initialize()
    s.daemon.deliver(*records(1, 2))
    assert s.end() is None
    assert (b.sink.rows, s.daemon.checkpoints) == ([], [])


def test_a_daemon_that_is_gone_ends_the_session_quietly(bench):
    s = bench().session()
    s.daemon.initialize()
    s.daemon.is_broken = True
    s.daemon.say(ProcessRecords((), 0))
    assert s.ended() is None


def test_a_daemon_that_breaks_the_protocol_ends_the_session(bench):
    s = bench().session()
    s.daemon._to_child.put(b"nonsense\n")
    assert "the conversation with the daemon failed" in str(s.ended())


def test_a_successor_waits_until_the_commit_of_the_session_before_is_over(bench):
    b = bench(batch__maxRecords="1")
    first = b.session()
    first.daemon.initialize()
    b.sink.gate.clear()
    first.daemon.deliver(record(1))
    assert b.sink.writing.wait(WAIT_S)
    first.daemon.close()
    second = b.session()
    second.daemon.say(Initialize("shardId-0", "TRIM_HORIZON", 0))
    with second.daemon.changed:
        assert not second.daemon.changed.wait_for(lambda: second.daemon.statuses, 0.05)
    b.sink.gate.set()
    second.daemon.await_statuses(1)
    assert first.ended() is second.end() is None


def test_a_shard_is_held_only_while_it_is_served(bench):
    b = bench()
    s = b.session()
    s.daemon.initialize()
    key = ShardKey("app", "stream", "shardId-0", "0")
    held = threading.Event()

    def hold():
        with b.gate.hold(key):
            held.set()

    waiting = threading.Thread(target=hold, daemon=True)
    waiting.start()
    assert not held.wait(0.05)
    assert s.end() is None
    assert held.wait(WAIT_S)
