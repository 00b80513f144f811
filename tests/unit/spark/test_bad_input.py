"""Bad input and bad company: a clear error ends the shard, and nothing is checkpointed."""

import asyncio
import errno
import threading
from functools import partial

import pytest

from kcl_mld.spark import calls
from kcl_mld.spark.calls import call_within
from kcl_mld.spark.errors import BatchFailed, Fenced, RecordRefused, SparkUnreachable
from kcl_mld_protocol import ShardEnded
from tests.unit.spark.shard_kit import Bench, Frame, MemorySink, record


def raises(df, ctx):
    raise ValueError("no such flight")


def leaves(df, ctx):
    raise SystemExit(1)


class Unspeakable(BaseException):
    """Its text can't be made."""

    def __repr__(self):
        raise Unspeakable

    __str__ = __repr__


def is_cancelled(df, ctx):
    raise asyncio.CancelledError("of a task")


def is_unspeakable(df, ctx):
    raise Unspeakable


def says_much(df, ctx):
    raise ValueError("x" * 1_000_000)


def returns_a_list(df, ctx):
    return [1, 2]


def returns_nothing(df, ctx):
    return None


def never_returns(df, ctx):
    threading.Event().wait()


def fine(df, ctx):
    return df


def returns_a_frame(df, ctx):
    return Frame([])


#: Function, errors of the sink's write, properties, what the error says.
CASES = {
    "raises": (raises, [], {}, "ValueError: no such flight"),
    "exits": (leaves, [], {}, "SystemExit: 1"),
    "cancelled": (is_cancelled, [], {}, "function failed on batch stream.shardId-0@start"),
    "unspeakable": (is_unspeakable, [], {}, "Unspeakable: (its text can't be made: Unspeakable)"),
    "says much": (says_much, [], {}, "ValueError: xxx"),
    "a list": (returns_a_list, [], {}, "is of type list; return a DataFrame"),
    "nothing": (returns_nothing, [], {}, "is None; return a DataFrame"),
    "a frame for foreach": (returns_a_frame, [], {"sink": "foreach"}, "writes nowhere"),
    "never returns": (never_returns, [], {"batch__timeout": "1s"}, "within spark.batch.timeout"),
    "a full disk": (fine, OSError(errno.ENOSPC, "the disk is full"), {}, "the disk is full"),
    "a dead cluster": (fine, SparkUnreachable("nobody answers"), {}, "nobody answers"),
    "a bad record": (fine, RecordRefused("the record of x"), {}, "the record of x"),
    "another writer": (fine, Fenced("has lost the shard"), {}, "has lost the shard"),
}


@pytest.mark.parametrize("name", CASES)
def test_it_ends_the_shard_with_a_clear_error_and_without_a_checkpoint(name, monkeypatch):
    monkeypatch.setattr(calls, "call_within", partial(call_within, grace_s=0.01))
    function, errors, more, text = CASES[name]
    sink = MemorySink()
    properties = {key: value for key, value in more.items() if key != "sink"}
    b = Bench(function, sink, name=more.get("sink"), retry__attempts="2", **properties)
    sink.write_errors = [errors] * 2 if isinstance(errors, Exception) else errors
    session = b.session()
    session.daemon.initialize()
    session.daemon.deliver(record(1), record(2))
    session.daemon.say(ShardEnded())
    error = session.ended()
    assert isinstance(error, BatchFailed)
    assert text in str(error)
    assert len(str(error)) < 1000
    assert "shardId-0" in str(error) or name in {"a bad record", "another writer"}
    assert session.daemon.checkpoints == []
    assert sink.committed == []
    b.engine.close()


def test_a_cluster_that_is_gone_before_the_job_begins_ends_the_shard(monkeypatch):
    b = Bench(retry__attempts="2")

    def refuse():
        raise SparkUnreachable("no Spark server answers at cluster:15002")

    monkeypatch.setattr(b.sessions, "get", refuse)
    session = b.session()
    session.daemon.initialize()
    session.daemon.deliver(record(1))
    session.daemon.say(ShardEnded())
    assert "no Spark server answers at cluster:15002" in str(session.ended())
    assert (session.daemon.checkpoints, b.sink.committed) == ([], [])
    b.engine.close()


def test_an_empty_delivery_is_no_batch_and_no_checkpoint():
    b = Bench()
    session = b.session()
    session.daemon.initialize()
    for _ in range(3):
        session.daemon.deliver()
    session.daemon.shutdown()
    assert session.end() is None
    assert (session.daemon.checkpoints, b.sink.jobs) == ([], [])
    b.engine.close()
