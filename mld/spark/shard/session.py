"""One shard's conversation with the daemon, from ``initialize`` to the end of its pipe.

The child may only speak while a message is outstanding, so everything happens in the thread that
reads, before the status is said: see :mod:`mld.spark.shard.pump`. When more records arrive than Spark
takes, the status is withheld, and the daemon stops reading the shard.
"""

from __future__ import annotations

import logging
import re
import threading
import uuid
from concurrent.futures import wait
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, NoReturn

from mld.spark.calls import SystemMonotonicClock
from mld.spark.errors import BatchFailed
from mld.spark.keep_alive import KeepAlive
from mld.spark.model import ShardKey, position_text
from mld.spark.pipeline import SparkRecordProcessor
from mld.spark.shard.batcher import FlushReason, Limits
from mld.spark.shard.beginning import find_beginning, stored_checkpoint
from mld.spark.shard.pump import Pump
from mld.spark.shard.storing import LeaseStorage
from mld.spark.shard.wire import ChildWire
from mld.spark.shard.work import ShardWork
from protocol import (
    CheckpointResult,
    EndOfStream,
    Initialize,
    IntentResult,
    ProcessRecords,
    ProtocolError,
    Status,
    Tick,
)
from protocol.processor import Checkpointer, RecordProcessor, call

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.spark.config import SparkConfig
    from mld.spark.facts import Facts, ShardGate
    from mld.spark.jobs.engine import Engine
    from mld.spark.model import Position, WriteIntent
    from mld.spark.pipeline import Pipeline
    from mld.spark.ports import IntentStore, MonotonicClock, Sink
    from mld.spark.shard.resume import Resume
    from protocol import ChildEvent
    from protocol.child import Readable, Writable
    from protocol.processor import (
        InitializeInput,
        LeaseLostInput,
        ProcessRecordsInput,
        ShardEndedInput,
        ShutdownRequestedInput,
    )

_log = logging.getLogger(__name__)

_LONGEST_TICK_S, _SHORTEST_TICK_S = 1.0, 0.1
#: How long a session that ends waits for a commit that has begun, in s.
_LAST_COMMIT_S = 60.0
_CAPITAL = re.compile("[A-Z]")


class _Refusing:
    """Stands behind the checkpointer of the user's methods."""

    def ask(self, request: object) -> NoReturn:
        """Refuse: a checkpoint of the user's own would lose or repeat records."""
        del request
        raise BatchFailed(
            "a SparkRecordProcessor never checkpoints: checkpoints follow the commits by themselves"
        )


class ShardSession(RecordProcessor):
    """Serves one shard; the app's processor passes the daemon's messages on to it.

    Args:
        facts: where the child works.
        stdin: binary file from the daemon.
        stdout: binary file to the daemon.
        engine: where batches are run.
        sink: asked for the shard's mark.
        pipeline: makes the processor of the shard.
        config: batch limits, epoch, intent store.
        gate: lets one session at a time serve a shard.
        intents: a store of its own for intents; None = the lease's row, through the daemon.
        clock: for the ages of records.
        new_id: makes application ids unique.
        shutdown_s: how long a requested shutdown may flush, in s; less than the daemon's grace.
        pause_s: before a refused checkpoint is sent again, in s; doubles.
    """

    def __init__(  # noqa: PLR0913 - the wiring of one conversation
        self,
        facts: Facts,
        stdin: Readable,
        stdout: Writable,
        *,
        engine: Engine,
        sink: Sink,
        pipeline: Pipeline,
        config: SparkConfig,
        gate: ShardGate,
        intents: IntentStore | None = None,
        clock: MonotonicClock | None = None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:12],
        shutdown_s: float = 15.0,
        pause_s: float = 0.5,
    ) -> None:
        self._facts = facts
        self._wire = ChildWire(stdin, stdout, facts.capabilities)
        self._engine = engine
        self._sink = sink
        self._pipeline = pipeline
        self._config = config
        self._gate = gate
        self._intents = intents
        self._clock = clock or SystemMonotonicClock()
        self._new_id = new_id
        self._shutdown_s = shutdown_s
        self._storage = LeaseStorage(
            self._wire, pause_s, lambda: self._is_abandoned, keep_alive_s=facts.keep_alive_s
        )
        self._wake = threading.Event()
        self._is_abandoned = False
        self._held = ExitStack()
        self._processor: SparkRecordProcessor | None = None
        self._shard = ShardKey(facts.application, facts.stream, "", config.epoch)
        self._pump: Pump | None = None
        self._message: ChildEvent | None = None
        self._reached = False

    def serve(self) -> None:
        """Converse until the daemon closes its end.

        Raises:
            SparkChildError: a batch or a checkpoint failed; nothing later was checkpointed.
        """
        try:
            while not self._is_abandoned:
                message = self._wire.next_message(keep_records=self._wants_records)
                if isinstance(message, EndOfStream):
                    break
                self._message = message
                self._answer(message)
                if not self._is_abandoned:
                    self._wire.say(Status(message.action))
        except ProtocolError as error:
            raise BatchFailed(
                f"{self._name}: the conversation with the daemon failed: {error}"
            ) from error
        except (BrokenPipeError, ConnectionError):
            _log.info("%s: the daemon has ended", self._name)
        finally:
            self._end()

    @property
    def has_begun(self) -> bool:
        """True once it is known where the shard begins."""
        return self._pump is not None

    def abandon(self) -> None:
        """Stop waiting and checkpointing; called from another thread when the daemon is gone."""
        self._is_abandoned = True
        if self._pump is not None:
            self._pump.work.abandon()
        self._wake.set()

    # --- what the daemon's messages do ------------------------------------------------------

    def initialize(self, initialize_input: InitializeInput) -> None:
        """Find where to begin, ask for ticks."""
        self._reached = True
        with self._keep_alives():
            resume = find_beginning(
                self._shard,
                initialize_input,
                config=self._config,
                sink=self._sink,
                intents=self._intents,
                capabilities=self._facts.capabilities,
                new_id=self._new_id,
            )
        for warning in resume.warnings:
            _log.warning("%s", warning)
        tick_s = self._tick_s()
        self._pump = self._new_pump(resume, stored_checkpoint(initialize_input), tick_s)
        if tick_s:
            self._wire.say(Tick(tick_s))
        _log.info(
            "%s: begins behind %s%s",
            self._name,
            position_text(resume.drop_through),
            f", repeats batch {resume.next_number}" if resume.forced_to else "",
        )
        self._pump.wait_for_room(FlushReason.FLOWING)

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Buffer, cut, submit what is due, checkpoint what is durable; wait while it is too much."""
        self._reached = True
        assert isinstance(self._message, ProcessRecords)
        rows = self._wire.rows(self._message)
        self._begun.accept(rows, process_records_input.millis_behind_latest)

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:
        """Interrupt what runs, forget the rest."""
        del lease_lost_input
        self._reached = True
        work = self._begun.work
        left = f"{work.buffered} records buffered and {work.in_jobs} in jobs are left to others"
        what = left if work.buffered or work.in_jobs else "nothing was buffered or in a job"
        _log.info("%s: the lease is over; %s", self._name, what)
        work.close()

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """Make everything durable, then checkpoint the end of the shard."""
        del shard_ended_input
        self._reached = True
        self._begun.drain(FlushReason.SHARD_ENDED)
        if not self._begun.work.is_open or self._is_abandoned:
            return
        if not self._storage.checkpoint(self._name, None):
            self._begun.work.close()

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """Make everything durable that the deadline allows, and checkpoint it."""
        del shutdown_requested_input
        self._reached = True
        if (
            self._begun.drain(FlushReason.STOPPING, self._shutdown_s)
            or not self._begun.work.is_open
        ):
            return
        _log.warning(
            "%s: not everything was durable %g s after the shutdown was requested; the rest is "
            "left to the next worker, without a checkpoint",
            self._name,
            self._shutdown_s,
        )
        self._begun.work.close()

    # --- how ----------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self._shard.shard_id or self._facts.shard_id or "a shard"

    @property
    def _begun(self) -> Pump:
        if self._pump is None:
            raise BatchFailed(f"{self._name}: the daemon never sent initialize")
        return self._pump

    @property
    def _wants_records(self) -> bool:
        """True if the user's processor looks at the records itself."""
        hook = type(self._processor).process_records if self._processor else None
        return hook not in (None, SparkRecordProcessor.process_records)

    def _answer(self, message: ChildEvent) -> None:
        if isinstance(message, Initialize):
            self._open(message)
        processor = self._processor
        if processor is None:
            raise BatchFailed(f"{self._name}: the daemon never sent initialize")
        # A result comes to a request only, and the end was met before.
        assert not isinstance(message, CheckpointResult | IntentResult | EndOfStream)
        self._reached = False
        call(processor, message, Checkpointer(_Refusing()))
        if not self._reached:
            name = _CAPITAL.sub(lambda found: f"_{found[0].lower()}", message.action)
            raise BatchFailed(
                f"{self._name}: {type(processor).__name__}.{name} must call super().{name}(…)"
            )
        if self._pump is not None and self._pump.failure is not None:
            raise self._pump.failure  # the user's method kept it to itself

    def _open(self, message: Initialize) -> None:
        shard_id = message.shard_id or self._facts.shard_id or ""
        facts = self._facts
        self._shard = ShardKey(facts.application, facts.stream, shard_id, self._config.epoch)
        with self._keep_alives():
            self._held.enter_context(self._gate.hold(self._shard))
        self._processor = self._pipeline.open(self._shard, feed=self)
        self._held.callback(self._pipeline.close, self._shard)

    def _keep_alives(self) -> KeepAlive:
        """While this thread waits for something else than the daemon or a batch."""
        longest_s = self._config.start_timeout_s
        return KeepAlive(self._wire.keep_alive, self._facts.keep_alive_s, longest_s)

    def _new_pump(self, resume: Resume, checkpoint: Position | None, tick_s: float) -> Pump:
        limits = Limits(
            self._config.max_records, self._config.max_bytes, self._config.max_delay_s, tick_s
        )
        keep = self._keep_intent if self._sink.uses_intents else None
        return Pump(
            self._name,
            ShardWork(self._shard, resume, checkpoint, limits, self._engine, keep, self._wake.set),
            self._storage,
            clock=self._clock,
            keep_alive=self._wire.keep_alive,
            wake=self._wake,
            is_over=lambda: self._is_abandoned,
            keep_alive_s=self._facts.keep_alive_s,
        )

    def _tick_s(self) -> float:
        if "tick" not in self._facts.capabilities:
            return 0.0
        return max(_SHORTEST_TICK_S, min(_LONGEST_TICK_S, self._config.max_delay_s / 4))

    def _keep_intent(self, intent: WriteIntent) -> None:
        if self._intents is not None:
            with self._keep_alives():
                self._intents.store(self._shard, intent)
        elif not self._storage.intend(self._name, intent):
            self._begun.work.close()

    def _end(self) -> None:
        """Let the shard go: nothing is committed from here on, and no commit is under way."""
        if self._pump is not None:
            self._pump.work.close()
            # If a status is owed, this session fails, and the daemon shall hear why.
            keep_alives = self._keep_alives() if self._wire.owes_status else nullcontext()
            with keep_alives:
                wait(self._pump.work.futures(), _LAST_COMMIT_S)
        self._held.close()
