"""A daemon's end of a shard's pipes, and a sink and a pipeline without Spark."""

from __future__ import annotations

import base64
import json
import queue
import threading
from concurrent.futures import Future

from kcl_mld.spark.config import Facts, read_properties
from kcl_mld.spark.jobs.engine import Engine
from kcl_mld.spark.jobs.submitted_batch import SubmittedBatch
from kcl_mld.spark.model import Position
from kcl_mld.spark.plans.one_call import FunctionCaller
from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.registration import Pipeline
from kcl_mld.spark.rows.app_decoder import AppDecoder
from kcl_mld.spark.shard.session import ShardGate, ShardSession
from kcl_mld_protocol import (
    CheckpointResult,
    Initialize,
    LeaseLost,
    ProcessRecords,
    Record,
    ShardEnded,
    ShutdownRequested,
    encode,
)

#: For what comes at once on a machine that has nothing else to do, a job of Spark's included.
WAIT_S = 300.0


def settings(**more):
    """A configuration; ``more`` has keys with ``__`` for a dot, without ``spark``."""
    given = {
        "spark.sink": "jdbc",
        "spark.sink.path": "/nowhere",
        "spark.batch.coalesceWindow": "0ms",
        **{"spark." + name.replace("__", "."): text for name, text in more.items()},
    }
    return read_properties(given)


def record(sequence, sub=0, data=b"x"):
    return Record(base64.b64encode(data).decode(), "key", str(sequence), 1_700_000_000_000, sub)


class Daemon:
    """Speaks with one session; answers its requests by itself."""

    def __init__(self, shard_id="shardId-0"):
        self.shard_id = shard_id
        self._to_child = queue.Queue()
        self._rest = b""
        self.lines = []
        self.checkpoints = []
        self.ticks = []
        self.keep_alives = 0
        self.refuse_checkpoint = []
        self.changed = threading.Condition()
        self.statuses = 0
        self._said = 0
        self.is_broken = False
        self.is_over = False

    # --- the files of the child ---

    def readline(self):
        return self._to_child.get()

    def write(self, data):
        if self.is_broken:
            raise BrokenPipeError
        with self.changed:
            self._heard(json.loads(data))
            self.changed.notify_all()

    def flush(self):
        pass

    # --- what the test does ---

    def say(self, message):
        """Say it and don't wait. A daemon says nothing before the status of what it said last."""
        assert self.is_over or self.statuses == self._said, self.lines
        self._said += 1
        self._send(message)

    def close(self):
        self._to_child.put(b"")

    def await_statuses(self, count):
        with self.changed:
            done = self.changed.wait_for(lambda: self.statuses >= count or self.is_over, WAIT_S)
            assert done, self.lines
            assert self.statuses >= count, self.lines

    def tell(self, message):
        """Say it and wait for the status."""
        before = self.statuses
        self.say(message)
        self.await_statuses(before + 1)

    def initialize(self, checkpoint="TRIM_HORIZON", sub=0, **extras):
        self.tell(Initialize(self.shard_id, checkpoint, sub, extras))

    def deliver(self, *records):
        self.tell(ProcessRecords(tuple(records), 7))

    def lease_lost(self):
        self.tell(LeaseLost())

    def shard_ended(self):
        self.tell(ShardEnded())

    def shutdown(self):
        self.tell(ShutdownRequested())

    def _send(self, message):
        self._to_child.put(encode(message))

    def _heard(self, line):
        self.lines.append(line)
        match line["action"]:
            case "status":
                self.statuses += 1
            case "checkpoint":
                error = self.refuse_checkpoint.pop(0) if self.refuse_checkpoint else None
                sequence, sub = line["sequenceNumber"], line["subSequenceNumber"]
                if error is None:
                    self.checkpoints.append(
                        "END" if sequence is None else Position(int(sequence), sub)
                    )
                self._send(CheckpointResult(sequence, sub, error))
            case "tick":
                self.ticks.append(line["seconds"])
            case "leaseLost":
                self.keep_alives += 1


class HandClock:
    """Time that only a test moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Frame:
    """Rows with the few methods that a plan needs here."""

    def __init__(self, rows):
        self.rows = rows

    def withColumn(self, *_):  # noqa: N802 - Spark's name
        return self

    sparkSession = None  # noqa: N815 - Spark's name


class FakeSession:
    def addTag(self, tag):  # noqa: N802 - Spark's name
        pass

    def clearTags(self):  # noqa: N802 - Spark's name
        pass


class FakeSessions:
    def __init__(self):
        self.interrupted = []
        self.renewed = 0
        self.session = FakeSession()

    def get(self):
        return self.session

    def renew(self, lost=None):
        self.renewed += 1

    def start(self, session, work):
        threading.Thread(target=work, daemon=True).start()

    def interrupt(self, tag):
        self.interrupted.append(tag)

    def close(self):
        pass


class MemorySink:
    """Keeps what is committed, all batches of a job or none; fenced by marks.

    Can be told to fail and to wait.
    """

    def __init__(self, *, has_marks=True):
        self.has_marks = has_marks
        self.marks = {}
        self.rows = []
        self.jobs = []
        self.frames = []
        self.committed = []
        self.commits = []
        self.write_errors = []
        self.commit_errors = []
        self.poison = {}
        self.discarded = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.writing = threading.Event()

    def prepare(self, spark):
        pass

    def mark(self, shard):
        return self.marks.get(shard.shard_id)

    def run(self, frame):
        """What Spark does with the rows; those in ``poison`` make it fail."""
        for row in frame.rows if frame else ():
            if (error := self.poison.get(row)) is not None:
                raise error

    def write(self, frame, batches):
        self.frames.append(frame)
        self.run(frame)
        self.writing.set()
        assert self.gate.wait(WAIT_S)
        self.jobs.append([batch.shard.shard_id for batch in batches])
        if self.write_errors and (error := self.write_errors.pop(0)) is not None:
            raise error
        return list(batches)

    def commit_all(self, staged, batches):
        if self.commit_errors and (error := self.commit_errors.pop(0)) is not None:
            raise error
        assert list(staged) == list(batches)
        lost = {each.shard for each in batches if self._is_moved(each)}
        if lost:
            return {
                each.shard: CommitOutcome.LOST if each.shard in lost else CommitOutcome.AGAIN
                for each in batches
            }
        for each in batches:
            self.committed.append(each)
            self.rows.extend((each.shard.shard_id, *row.position) for row in each.rows)
            self.marks[each.shard.shard_id] = each.to
        self.commits.append(sorted(each.shard.shard_id for each in batches))
        return dict.fromkeys([each.shard for each in batches], CommitOutcome.STANDS)

    def _is_moved(self, batch):
        return self.has_marks and self.marks.get(batch.shard.shard_id) != batch.after

    def discard(self, staged):
        self.discarded.release()


class MemoryLetters:
    """Keeps dead letters, each once; can be told to fail."""

    def __init__(self):
        self.kept = {}
        self.errors = []

    def keep(self, letters):
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        for each in letters:
            self.kept[each.shard.shard_id, *each.row.position] = each.error


class FakeCaller(FunctionCaller):
    """Calls the function without Spark: a frame is a list of rows."""

    sink = None

    def __init__(self, *args):
        super().__init__(*args)
        self.packed = []
        self.pack_errors = []
        self.released = []

    def pack(self, whole):
        self.packed.append(
            sorted((each.shard.shard_id, each.after, each.to) for each in whole.parts)
        )
        if self.pack_errors and (error := self.pack_errors.pop(0)) is not None:
            raise error
        return super().pack(whole)

    def release(self, whole):
        super().release(whole)
        self.released.append(sorted(each.shard.shard_id for each in whole.parts))

    def probe(self, spark, whole):
        self.sink.run(self._asked(spark, whole))

    def source(self, spark, whole, packed=None):
        return Frame(
            [(part.shard.shard_id, *row.position) for part in whole.parts for row in part.rows]
        )

    def keep_bad_rows(self, spark, whole):
        pass


class QueuedEngine(Engine):
    """An engine that also takes single batches, as a cut of all shards makes them."""

    def submit(self, batch, fence, hold=None):
        with self._changed:
            one = SubmittedBatch(batch, fence, Future(), self._clock(), hold)
            self._queue.append(one)
            self._fail_if_closed()
            self._start_runner()
            self._changed.notify_all()
        return one.future


class Bench:
    """An engine over a memory sink, and sessions on it."""

    def __init__(self, function=lambda df, ctx: df, sink=None, name=None, **properties):
        self.sink = sink or MemorySink()
        self.sessions = FakeSessions()
        named = {} if name is None else {"sink": name}
        self.config = settings(**named, **properties)
        self.gate = ShardGate()
        decoder = AppDecoder(Pipeline(function), self.config)
        caller = FakeCaller(function, self.config, decoder)
        caller.sink = self.sink
        self.caller = caller
        self.letters = MemoryLetters() if self.config.sets_aside else None
        self.engine = QueuedEngine(
            self.sessions,
            self.sink,
            caller,
            self.config,
            keep_letters=self.letters and self.letters.keep,
            pause_s=0.001,
        )

    def session(self, **more):
        more.setdefault("gate", self.gate)
        return Session(self.engine, self.sink, self.config, **more)


class Session:
    """A session in a thread of its own, with its daemon."""

    def __init__(
        self,
        engine,
        sink,
        config,
        *,
        capabilities=("tick",),
        shard_id="shardId-0",
        keep_alive_s=1.0,
        **more,
    ):
        self.daemon = Daemon(shard_id)
        self.error = None
        facts = Facts("app", "stream", frozenset(capabilities), shard_id, keep_alive_s)
        more.setdefault("gate", ShardGate())
        self.session = ShardSession(
            facts,
            self.daemon,
            self.daemon,
            engine=engine,
            sink=sink,
            config=config,
            pause_s=0.001,
            **more,
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        try:
            self.session.serve()
        except Exception as error:  # noqa: BLE001 - for the test
            self.error = error
        finally:
            with self.daemon.changed:
                self.daemon.is_over = True
                self.daemon.changed.notify_all()

    def end(self):
        self.daemon.close()
        return self.ended()

    def ended(self):
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        return self.error


__all__ = [
    "Bench",
    "Daemon",
    "Engine",
    "FakeSessions",
    "MemorySink",
    "Session",
    "record",
    "settings",
]
