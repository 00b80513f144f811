"""One shard's conversation with the daemon, from ``initialize`` to the end of its pipe.

The child may only speak while a message is outstanding, so everything happens in the thread that
reads, before the status is said: take what is over, checkpoint what is durable, ask for what is
due. What has to be waited for is waited for there, with a keep-alive to the daemon whenever one is
due. When more records arrive than Spark takes, the status is withheld, and the daemon stops reading
the shard.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.jobs.cut_schedule import GRANT_S
from kcl_mld.spark.keep_alive import KeepAlive
from kcl_mld.spark.model import Position, ShardKey, position_text
from kcl_mld.spark.shard.batcher import FlushReason, Limits
from kcl_mld.spark.shard.resume import resume_at_checkpoint, resume_at_mark
from kcl_mld.spark.shard.storing import ChildWire, LeaseStorage
from kcl_mld.spark.shard.work import ShardWork
from kcl_mld_protocol import (
    EndOfStream,
    Initialize,
    LeaseLost,
    ProcessRecords,
    ProtocolError,
    ShardEnded,
    ShutdownRequested,
    Status,
    Tick,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kcl_mld.spark.config import Facts, SparkConfig
    from kcl_mld.spark.jobs.engine import Engine
    from kcl_mld.spark.model import Row
    from kcl_mld.spark.ports import Sink
    from kcl_mld.spark.shard.resume import Resume
    from kcl_mld_protocol import DaemonMessage
    from kcl_mld_protocol.child import Readable, Writable

_log = logging.getLogger("mld.spark")
_LONGEST_TICK_S, _SHORTEST_TICK_S = 1.0, 0.1
#: How long a session that ends waits for a commit that has begun, in s.
_LAST_COMMIT_S = 60.0
#: After one of these the daemon only closes the pipes.
_LAST_MESSAGES = (LeaseLost, ShardEnded, ShutdownRequested)


class Pump:
    """The moves of one hold of a shard; used by the thread that serves it.

    Args:
        keep_alive: starts the daemon's time-out for the outstanding message again.
        wake: set, by any thread, when a batch is over or the daemon has gone.
        is_over: True if the daemon or the stub has gone.
        keep_alive_s: how often a keep-alive is due, in s.

    Attributes:
        work: its batches.
    """

    def __init__(
        self,
        name: str,
        work: ShardWork,
        storage: LeaseStorage,
        *,
        clock: Callable[[], float],
        keep_alive: Callable[[], None],
        wake: threading.Event,
        is_over: Callable[[], bool],
        keep_alive_s: float,
    ) -> None:
        self._name = name
        self.work = work
        self._storage = storage
        self._clock = clock
        self._keep_alive = keep_alive
        self._wake = wake
        self._is_over = is_over
        self._sign_s = keep_alive_s

    def accept(self, rows: Sequence[Row], millis_behind: int | None) -> None:
        """Accept a delivery, and return when there is room for the next one.

        Args:
            rows: of the delivery; none if the daemon only gives a turn.
            millis_behind: how far the delivery is behind the tip of the shard, in ms; None =
                unknown.

        Raises:
            SparkChildError: a batch or a checkpoint failed.
        """
        if self.work.is_open:
            self.work.add(rows, self._clock(), millis_behind)
        reason = FlushReason.FLOWING if rows else FlushReason.IDLE
        self._move(reason)
        while self._moves and self.work.is_backed_up:
            self._wait(self._sign_s)
            self._move(reason)
        self.wait_for_room(reason)

    def wait_for_room(self, reason: FlushReason) -> None:
        """Return when the host has room for the next delivery, or when the shard is lost.

        Raises:
            SparkChildError: a batch or a checkpoint failed.
        """
        since = self._clock()
        while self._moves and not self.work.has_room():
            if self._wake.wait(min(self._sign_s, GRANT_S)):
                self._wake.clear()
            now = self._clock()
            if now - since >= self._sign_s and not self._is_over():
                self._keep_alive()
                since = now
            self._move(reason)

    def drain(self, reason: FlushReason, patience_s: float | None = None) -> bool:
        """Make everything durable and checkpoint it.

        Args:
            reason: why; decides whether a tail is cut.
            patience_s: for how long, in s; None = as long as it takes.

        Returns:
            False if the time was over first; True also if the shard was lost meanwhile.

        Raises:
            SparkChildError: a batch or a checkpoint failed.
        """
        self.work.arrived()
        deadline = None if patience_s is None else self._clock() + patience_s
        while True:
            self._move(reason)
            if self.work.is_idle or not self._moves:
                return True
            longest_s = self._sign_s
            if deadline is not None:
                longest_s = min(longest_s, deadline - self._clock())
                if longest_s <= 0:
                    return False
            self._wait(longest_s)

    @property
    def _moves(self) -> bool:
        """False once the shard is lost, a batch has failed or the daemon has gone."""
        return self.work.is_open and not self._is_over()

    def _move(self, reason: FlushReason) -> None:
        """Take, checkpoint and ask until nothing is left to do now."""
        took = True
        while self._moves and took:
            took = self.work.collect()
            self._checkpoint()
            self.work.ask_if_due(self._clock(), reason)

    def _checkpoint(self) -> None:
        position = self.work.due_checkpoint
        if position is None:
            return
        if self._storage.checkpoint(self._name, position):
            self.work.checkpointed(position)
        else:
            self.work.close()

    def _wait(self, seconds: float) -> None:
        """Until a batch is over; if none is in that time, the daemon hears that we are alive."""
        if self._wake.wait(seconds):
            self._wake.clear()
        elif not self._is_over():
            self._keep_alive()


class ShardGate:
    """Lets one session at a time serve a shard.

    A child that was killed leaves a batch in flight; its successor must not read the mark of the
    shard before that batch is committed or failed.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._held: set[ShardKey] = set()

    @contextmanager
    def hold(self, shard: ShardKey) -> Iterator[None]:
        """Wait until no other session holds the shard, then hold it."""
        with self._free:
            self._free.wait_for(lambda: shard not in self._held)
            self._held.add(shard)
        try:
            yield
        finally:
            with self._free:
                self._held.discard(shard)
                self._free.notify_all()


class ShardSession:
    """Serves one shard.

    Args:
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
        config: SparkConfig,
        gate: ShardGate,
        clock: Callable[[], float] | None = None,
        shutdown_s: float = 15.0,
        pause_s: float = 0.5,
    ) -> None:
        self._facts = facts
        self._wire = ChildWire(stdin, stdout, facts.capabilities)
        self._engine = engine
        self._sink = sink
        self._config = config
        self._gate = gate
        self._clock = clock or time.monotonic
        self._shutdown_s = shutdown_s
        self._storage = LeaseStorage(
            self._wire, pause_s, lambda: self._is_abandoned, keep_alive_s=facts.keep_alive_s
        )
        self._wake = threading.Event()
        self._is_abandoned = False
        self._is_over = False
        self._held = ExitStack()
        self._shard = ShardKey(facts.application, facts.stream, "", config.epoch)
        self._pump: Pump | None = None

    def serve(self) -> None:
        """Converse until the daemon closes its end.

        Raises:
            SparkChildError: a batch or a checkpoint failed; nothing later was checkpointed.
        """
        try:
            while not self._is_abandoned:
                message = self._wire.next_message()
                if isinstance(message, EndOfStream):
                    break
                self._answer(message)
                self._is_over = isinstance(message, _LAST_MESSAGES)
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
    def is_under_way(self) -> bool:
        """True once it is known where the shard begins, until its last message is answered."""
        return self._pump is not None and not self._is_over

    def abandon(self) -> None:
        """Stop waiting and checkpointing; called from another thread when the daemon is gone."""
        self._is_abandoned = True
        if self._pump is not None:
            self._pump.work.abandon()
        self._wake.set()

    # --- what the daemon's messages do ------------------------------------------------------

    def _answer(self, message: DaemonMessage) -> None:
        match message:
            case Initialize():
                self._initialize(message)
            case ProcessRecords():
                self._begun.accept(self._wire.rows(message), message.millis_behind_latest)
            case LeaseLost():
                self._lease_lost()
            case ShardEnded():
                self._shard_ended()
            case ShutdownRequested():
                self._shutdown_requested()
            case _:  # a result comes to a request only
                raise BatchFailed(f"{self._name}: the daemon answered without a question")

    def _initialize(self, message: Initialize) -> None:
        """Find where to begin, ask for ticks."""
        shard_id = message.shard_id or self._facts.shard_id or ""
        facts = self._facts
        self._shard = ShardKey(facts.application, facts.stream, shard_id, self._config.epoch)
        checkpoint = Position.of_checkpoint(message.sequence_number, message.sub_sequence_number)
        with self._keep_alives():
            self._held.enter_context(self._gate.hold(self._shard))
        with self._keep_alives():
            if self._config.sink == "foreach":
                resume = resume_at_checkpoint(checkpoint)
            else:
                resume = resume_at_mark(self._shard, checkpoint, self._sink.mark(self._shard))
        tick_s = self._tick_s()
        self._pump = self._new_pump(resume, checkpoint, tick_s)
        if tick_s:
            self._wire.say(Tick(tick_s))
        _log.info("%s: begins behind %s", self._name, position_text(resume.drop_through))
        self._pump.wait_for_room(FlushReason.FLOWING)

    def _lease_lost(self) -> None:
        """Interrupt what runs, forget the rest."""
        work = self._begun.work
        left = f"{work.buffered} records buffered and {work.in_jobs} in jobs are left to others"
        what = left if work.buffered or work.in_jobs else "nothing was buffered or in a job"
        _log.info("%s: the lease is over; %s", self._name, what)
        work.close()

    def _shard_ended(self) -> None:
        """Make everything durable, then checkpoint the end of the shard."""
        self._begun.drain(FlushReason.SHARD_ENDED)
        if not self._begun.work.is_open or self._is_abandoned:
            return
        if not self._storage.checkpoint(self._name, None):
            self._begun.work.close()

    def _shutdown_requested(self) -> None:
        """Make everything durable that the deadline allows, and checkpoint it."""
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

    def _keep_alives(self) -> KeepAlive:
        """While this thread waits for something else than the daemon or a batch."""
        longest_s = self._config.start_timeout_s
        return KeepAlive(self._wire.keep_alive, self._facts.keep_alive_s, longest_s)

    def _new_pump(self, resume: Resume, checkpoint: Position | None, tick_s: float) -> Pump:
        limits = Limits(
            self._config.max_records, self._config.max_bytes, self._config.max_delay_s, tick_s
        )
        return Pump(
            self._name,
            ShardWork(self._shard, resume, checkpoint, limits, self._engine, self._wake.set),
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

    def _end(self) -> None:
        """Let the shard go: nothing is committed from here on, and no commit is under way."""
        if self._pump is not None:
            self._pump.work.close()
            # If a status is owed, this session fails, and the daemon shall hear why.
            keep_alives = self._keep_alives() if self._wire.owes_status else nullcontext()
            with keep_alives:
                wait(self._pump.work.futures(), _LAST_COMMIT_S)
        self._held.close()
