"""One shard's conversation with the daemon, from ``initialize`` to the end of its pipe.

The child may only speak while a message is outstanding, so everything happens in the thread that
reads: cut, submit, collect what is durable, checkpoint it. When more records arrive than Spark
takes, the status is withheld: the daemon then stops reading the shard.
"""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import wait
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

from mld.spark.batcher import Limits, Moment
from mld.spark.calls import SystemClock
from mld.spark.errors import BatchFailed, ConfigError
from mld.spark.model import Intent, Position, ShardKey, parse_position, position_text
from mld.spark.pipeline import SparkRecordProcessor
from mld.spark.resume import (
    MARKED_SINKS,
    Resume,
    resume_intent,
    resume_marked,
    resume_unmarked,
)
from mld.spark.shard_work import ShardWork
from mld.spark.wire import ChildWire
from protocol import (
    CheckpointRequest,
    EndOfStream,
    Initialize,
    Intent as IntentRequest,
    LeaseLost,
    ProcessRecords,
    ProtocolError,
    ShardEnded,
    ShutdownRequested,
    Status,
    Tick,
    intent_in,
)
from protocol.errors import DEPENDENCY, SHUTDOWN, THROTTLING, UNREACHABLE
from protocol.processor import (
    Checkpointer,
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    ShardEndedInput,
    ShutdownRequestedInput,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.spark.config import SparkConfig
    from mld.spark.engine import Engine
    from mld.spark.facts import Facts, ShardGate
    from mld.spark.model import Row
    from mld.spark.pipeline import Pipeline
    from mld.spark.ports import Clock, IntentStore, Sink
    from mld.spark.wire import Readable, Writable
    from protocol import ChildEvent

_log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 5.0
_LONGEST_TICK_S, _SHORTEST_TICK_S = 1.0, 0.1
#: The table is busy or out of reach: what was refused may be asked again.
_PASSING = frozenset({THROTTLING, DEPENDENCY, UNREACHABLE})
_ATTEMPTS = 6
#: How long a session that ends waits for a commit that has begun, in s.
_LAST_COMMIT_S = 60.0


class ShardSession:
    """Serves one shard; implements ``pipeline.ShardFeed``.

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
        clock: Clock | None = None,
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
        self._clock = clock or SystemClock()
        self._new_id = new_id
        self._shutdown_s = shutdown_s
        self._pause_s = pause_s
        self._wake = threading.Event()
        self._is_abandoned = False
        self._held = ExitStack()
        self._processor: SparkRecordProcessor | None = None
        self._shard = ShardKey(facts.application, facts.stream, "", config.epoch)
        self._work: ShardWork | None = None
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
            raise BatchFailed(f"{self._name}: the conversation broke: {error}") from error
        except (BrokenPipeError, ConnectionError):
            _log.info("%s: the daemon went away", self._name)
        finally:
            self._end()

    def abandon(self) -> None:
        """Stop waiting and checkpointing; called from another thread when the daemon is gone."""
        self._is_abandoned = True
        if self._work is not None:
            self._engine.abandon(self._shard)
        self._wake.set()

    # --- what the daemon's messages do ------------------------------------------------------

    def initialize(self, initialize_input: InitializeInput) -> None:
        """Find where to begin, ask for ticks."""
        self._reached = True
        checkpoint = Position.of_checkpoint(
            initialize_input.sequence_number, initialize_input.sub_sequence_number
        )
        resume = self._resume(initialize_input, checkpoint)
        for warning in resume.warnings:
            _log.warning("%s", warning)
        tick_s = self._tick_s()
        limits = Limits(
            self._config.max_records, self._config.max_bytes, self._config.max_delay_s, tick_s
        )
        keep = self._keep_intent if self._sink.uses_intents else None
        self._work = ShardWork(
            self._shard, resume, checkpoint, limits, self._engine, keep, self._wake.set
        )
        if tick_s:
            self._wire.say(Tick(tick_s))
        _log.info(
            "%s: begins behind %s%s",
            self._name,
            position_text(resume.drop_through),
            f", repeats batch {resume.next_number}" if resume.forced_to else "",
        )

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Buffer, cut, submit what is due, checkpoint what is durable; wait while it is too much."""
        self._reached = True
        assert isinstance(self._message, ProcessRecords)
        rows: list[Row] = self._wire.rows(self._message)
        if self._opened.is_open:
            behind = process_records_input.millis_behind_latest
            self._opened.add(rows, self._clock.monotonic(), behind)
        moment = Moment.FLOWING if rows else Moment.IDLE
        self._pump(moment)
        while self._opened.is_open and self._opened.is_backed_up and not self._is_abandoned:
            self._wait(_KEEP_ALIVE_S)
            self._pump(moment)

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:
        """Interrupt what runs, forget the rest."""
        del lease_lost_input
        self._reached = True
        _log.info("%s: the lease is lost; %d records dropped", self._name, self._opened.buffered)
        self._opened.close()

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """Make everything durable, then checkpoint the end of the shard."""
        del shard_ended_input
        self._reached = True
        self._drain(Moment.SHARD_ENDED, None)
        if not self._opened.is_open or self._is_abandoned:
            return
        error = self._ask_patiently(lambda: self._wire.ask(CheckpointRequest()))
        if error == SHUTDOWN:
            self._opened.close()
        elif error is not None:
            raise BatchFailed(f"{self._name}: the end of the shard was not stored: {error}")

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """Make everything durable that the deadline allows, and checkpoint it."""
        del shutdown_requested_input
        self._reached = True
        deadline = self._clock.monotonic() + self._shutdown_s
        if self._drain(Moment.STOPPING, deadline) or not self._opened.is_open:
            return
        _log.warning(
            "%s: not everything was durable %g s after the shutdown was requested; the rest is "
            "left to the next worker, without a checkpoint",
            self._name,
            self._shutdown_s,
        )
        self._opened.close()

    # --- how ----------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self._shard.shard_id or self._facts.shard_id or "a shard"

    @property
    def _opened(self) -> ShardWork:
        if self._work is None:
            raise BatchFailed(f"{self._name}: the daemon never sent initialize")
        return self._work

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
        self._reached = False
        refusing = _RefusingCheckpointer()
        match message:
            case Initialize(shard_id, sequence, sub, extras):
                name = "initialize"
                processor.initialize(InitializeInput(shard_id, sequence, sub, extras))
            case ProcessRecords(records, behind):
                name = "process_records"
                processor.process_records(ProcessRecordsInput(records, behind, refusing))
            case LeaseLost():
                name = "lease_lost"
                processor.lease_lost(LeaseLostInput())
            case ShardEnded():
                name = "shard_ended"
                processor.shard_ended(ShardEndedInput(refusing))
            case ShutdownRequested():
                name = "shutdown_requested"
                processor.shutdown_requested(ShutdownRequestedInput(refusing))
            case _:  # a result outside a request: the connection lets none through
                return
        if not self._reached:
            raise BatchFailed(
                f"{self._name}: {type(processor).__name__}.{name} must call super().{name}(…)"
            )

    def _open(self, message: Initialize) -> None:
        shard_id = message.shard_id or self._facts.shard_id or ""
        facts = self._facts
        self._shard = ShardKey(facts.application, facts.stream, shard_id, self._config.epoch)
        self._held.enter_context(self._gate.hold(self._shard))
        self._processor = self._pipeline.open(self._shard, feed=self)
        self._held.callback(self._pipeline.close, self._shard)

    def _resume(self, given: InitializeInput, checkpoint: Position | None) -> Resume:
        if not self._sink.uses_intents:
            if self._config.sink in MARKED_SINKS:
                return resume_marked(self._shard, checkpoint, self._sink.mark(self._shard))
            return resume_unmarked(checkpoint)
        text = str(checkpoint) if checkpoint else str(given.sequence_number)
        intent = self._stored_intent(given)
        return resume_intent(self._shard, checkpoint, text, intent, self._new_id())

    def _stored_intent(self, given: InitializeInput) -> Intent | None:
        if self._intents is not None:
            return self._intents.load(self._shard)
        if "intent" not in self._facts.capabilities:
            raise ConfigError(
                "this daemon keeps no intents (KCL_MLD_CAPABILITIES does not name 'intent'): set "
                "spark.intent.store=file with spark.intent.path, or =dynamodb with "
                "spark.intent.table"
            )
        if (found := intent_in(given.extras)) is None:
            return None
        try:
            to = Position.parse(found.to)
            return Intent(found.number, parse_position(found.after), to, found.app_id)
        except ValueError as error:
            raise BatchFailed(f"{self._name}: the intent of the lease: {error}") from error

    def _tick_s(self) -> float:
        if "tick" not in self._facts.capabilities:
            return 0.0
        return max(_SHORTEST_TICK_S, min(_LONGEST_TICK_S, self._config.max_delay_s / 4))

    def _pump(self, moment: Moment) -> bool:
        """Collect, checkpoint and submit until nothing is left to do now; True if it did a thing."""
        did = False
        while self._opened.is_open and not self._is_abandoned:
            moved = self._opened.collect()
            self._checkpoint()
            moved |= self._opened.submit(self._clock.monotonic(), moment)
            if not moved:
                return did
            did = True
        return did

    def _drain(self, moment: Moment, deadline: float | None) -> bool:
        """Run until nothing is left; False if the deadline came first."""
        while True:
            self._pump(moment)
            if self._opened.is_idle or not self._opened.is_open or self._is_abandoned:
                return True
            patience = _KEEP_ALIVE_S
            if deadline is not None:
                patience = min(patience, deadline - self._clock.monotonic())
                if patience <= 0:
                    return False
            self._wait(patience)

    def _wait(self, seconds: float) -> None:
        """Until a batch is over, but tell the daemon every few seconds that we are alive."""
        if self._wake.wait(seconds):
            self._wake.clear()
        elif not self._is_abandoned:
            self._wire.keep_alive()

    def _checkpoint(self) -> None:
        position = self._opened.due_checkpoint
        if position is None:
            return
        request = CheckpointRequest(str(position.sequence), position.sub)
        error = self._ask_patiently(lambda: self._wire.ask(request))
        if error is None:
            self._opened.checkpointed(position)
        elif error == SHUTDOWN:
            _log.info("%s: a checkpoint was refused because the lease is lost", self._name)
            self._opened.close()
        else:
            self._opened.close()
            raise BatchFailed(f"{self._name}: the checkpoint {position} was refused: {error}")

    def _keep_intent(self, intent: Intent) -> None:
        if self._intents is not None:
            self._intents.store(self._shard, intent)
            return
        after, to = position_text(intent.after), str(intent.to)
        request = IntentRequest(intent.number, after, to, intent.app_id)
        error = self._ask_patiently(lambda: self._wire.ask(request))
        if error == SHUTDOWN:
            _log.info("%s: an intent was refused because the lease is lost", self._name)
            self._opened.close()
        elif error is not None:
            self._opened.close()
            raise BatchFailed(
                f"{self._name}: the intent of batch {intent.number} was refused: {error}"
            )

    def _ask_patiently(self, ask: Callable[[], str | None]) -> str | None:
        """Ask again while the lease table is busy or out of reach; the last error's name."""
        error = ask()
        for attempt in range(_ATTEMPTS - 1):
            if error not in _PASSING or self._is_abandoned:
                break
            threading.Event().wait(self._pause_s * 2**attempt)
            error = ask()
        return error

    def _end(self) -> None:
        """Let the shard go: nothing is committed from here on, and no commit is under way."""
        if self._work is not None:
            self._work.close()
            wait(self._work.futures(), _LAST_COMMIT_S)
        self._held.close()


class _RefusingCheckpointer(Checkpointer):
    """Checkpoints follow the commits; the user's own would lose or repeat records."""

    def __init__(self) -> None:
        """Nobody is asked."""

    def checkpoint(
        self, sequence_number: str | None = None, sub_sequence_number: int | None = None
    ) -> NoReturn:
        """Refuse.

        Raises:
            BatchFailed: always.
        """
        del sequence_number, sub_sequence_number
        raise BatchFailed(
            "a SparkRecordProcessor never checkpoints: checkpoints follow the commits by themselves"
        )
