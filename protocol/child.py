"""Run a record processor over stdin and stdout: all that a program needs to be a child.

The shape is that of ``amazon_kclpy.v3`` with types, and with four differences on purpose:

* An exception in a callback ends the process with a traceback and exit code 1, so that the daemon
  notices. kclpy prints it and reports success, and the batch is lost.
* ``print`` cannot break the protocol: file descriptor 1 is duplicated for the protocol and then
  pointed at standard error, so prints (also of C libraries and subprocesses) end up in the
  daemon's log.
* ``lease_lost`` gets no checkpointer, since the lease is gone.
* Times are aware datetimes in UTC.

Nothing here is thread-safe: call the checkpointer from the thread that called you.
"""

from __future__ import annotations

import faulthandler
import io
import os
import re
import signal
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from kcl_mld_protocol.additions import FAILURE, SCHEMAS_VARIABLE, capabilities
from kcl_mld_protocol.child_connection import ChildConnection
from kcl_mld_protocol.events import NEED_DATA, ChildEvent, EndOfStream
from kcl_mld_protocol.messages import (
    Action,
    CheckpointRequest,
    CheckpointResult,
    ChildMessage,
    Initialize,
    LeaseLost,
    ProcessRecords,
    Record,
    ShardEnded,
    ShutdownRequested,
    Status,
    Tick,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld_protocol.messages import Scalar

__all__ = [
    "CheckpointError",
    "Checkpointer",
    "InitializeInput",
    "LeaseLostInput",
    "ProcessRecordsInput",
    "Record",
    "RecordFailed",
    "RecordProcessor",
    "ShardEndedInput",
    "ShutdownRequestedInput",
    "capabilities",
    "run",
    "schema_definition",
]
#: A UUID in lower case: no other name is opened in the folder.
_VERSION_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class CheckpointError(Exception):
    """The daemon refused or failed to store a checkpoint.

    Attributes:
        value: name of the error, see ``kcl_mld_protocol.errors``. ``ThrottlingException``: wait and retry.
            ``ShutdownException``: the lease is gone, stop trying. ``IllegalArgumentException``:
            the position is wrong, do not retry it.
    """

    def __init__(self, value: str) -> None:
        self.value = value
        super().__init__(value)


class RecordFailed(Exception):
    """Raised by ``process_records``: one record can't be processed.

    A daemon that announces ``failure`` learns which, and keeps it as a dead letter if it fails again
    and again. To any other daemon it is an exception like every other, which ends the process.
    """

    def __init__(self, record: Record, why: str) -> None:
        self.record = record
        super().__init__(why)

    @property
    def status(self) -> Status:
        """The status that is sent to the daemon."""
        return Status(
            Action.PROCESS_RECORDS,
            str(self),
            self.record.sequence_number,
            self.record.sub_sequence_number,
        )


class Asking(Protocol):
    """Sends a request to the daemon and waits for its result."""

    def ask(self, request: CheckpointRequest) -> CheckpointResult:
        """Block until the result is there."""


class Checkpointer:
    """Stores how far the shard is processed; only usable inside the callback that received it."""

    def __init__(self, wire: Asking) -> None:
        self._wire = wire

    def checkpoint(
        self, sequence_number: str | None = None, sub_sequence_number: int | None = None
    ) -> None:
        """Store a position; returns once the daemon has stored it.

        Args:
            sequence_number: of the last processed record; None = everything handed out so far, and
                in ``shard_ended`` the end of the shard.
            sub_sequence_number: index within a KPL aggregate, >= 0; None = 0.

        Raises:
            CheckpointError: it was not stored; its ``value`` is the reason.
            LocalProtocolError: called outside the callback that the checkpointer was made for.
            RemoteProtocolError: the daemon has ended or answered with something else.
        """
        result = self._wire.ask(CheckpointRequest(sequence_number, sub_sequence_number))
        if result.error is not None:
            raise CheckpointError(result.error)


@dataclass(frozen=True, slots=True)
class InitializeInput:
    """Which shard this process serves, and the checkpoint that reading starts behind.

    Attributes:
        sequence_number: decimal digits, or ``TRIM_HORIZON``, ``LATEST``, ``AT_TIMESTAMP``.
        sub_sequence_number: >= 0.
        extras: further keys that the daemon sent, e.g. the stream of a multi-stream daemon.
    """

    shard_id: str | None
    sequence_number: str | None
    sub_sequence_number: int | None
    extras: Mapping[str, Scalar] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ProcessRecordsInput:
    """A batch.

    Attributes:
        records: in order; empty only if the daemon is set to deliver empty batches.
        millis_behind_latest: distance to the tip of the shard in ms; None if unknown.
        checkpointer: stores positions up to the last record of this batch.
    """

    records: tuple[Record, ...]
    millis_behind_latest: int | None
    checkpointer: Checkpointer


@dataclass(frozen=True, slots=True)
class LeaseLostInput:
    """Nothing to know: another worker has the shard."""


@dataclass(frozen=True, slots=True)
class ShardEndedInput:
    """Carries the checkpointer that must be called."""

    checkpointer: Checkpointer


@dataclass(frozen=True, slots=True)
class ShutdownRequestedInput:
    """Carries the checkpointer for the last checkpoint."""

    checkpointer: Checkpointer


class RecordProcessor(ABC):
    """What a program does with one shard. One instance, one process, one shard.

    Attributes:
        tick_s: set it in ``initialize`` (or in the class) to get an empty batch whenever nothing
            has come for that many seconds, 0.1 to 3600; without effect under a daemon that does
            not announce ``tick``, as Java's.
    """

    tick_s: float | None = None

    def initialize(self, initialize_input: InitializeInput) -> None:  # noqa: B027 - optional
        """Called once, first. No checkpoint is possible here."""

    @abstractmethod
    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Process a batch. The next one comes only after this returns."""

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:  # noqa: B027 - optional
        """Another worker has the shard: drop records without a checkpoint. The process ends next."""

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """The shard is finished; it must be checkpointed, or its children never start."""
        shard_ended_input.checkpointer.checkpoint()

    def shutdown_requested(  # noqa: B027 - optional
        self, shutdown_requested_input: ShutdownRequestedInput
    ) -> None:
        """The worker stops soon: checkpoint the processed records. ``lease_lost`` follows."""


def call(
    processor: RecordProcessor,
    message: Initialize | ProcessRecords | LeaseLost | ShardEnded | ShutdownRequested,
    checkpointer: Checkpointer,
) -> None:
    """Call the method that a message of the daemon is for, with its typed input."""
    match message:
        case Initialize(shard_id, sequence_number, sub_sequence_number, extras):
            processor.initialize(
                InitializeInput(shard_id, sequence_number, sub_sequence_number, extras)
            )
        case ProcessRecords(records, millis_behind_latest):
            processor.process_records(
                ProcessRecordsInput(records, millis_behind_latest, checkpointer)
            )
        case LeaseLost():
            processor.lease_lost(LeaseLostInput())
        case ShardEnded():
            processor.shard_ended(ShardEndedInput(checkpointer))
        case ShutdownRequested():
            processor.shutdown_requested(ShutdownRequestedInput(checkpointer))
        case _ as never:
            assert_never(never)


class Readable(Protocol):
    """The half of a binary file that the runner reads."""

    def readline(self) -> bytes:
        """Bytes up to and including the next newline; empty at the end."""


class Writable(Protocol):
    """The half of a binary file that the runner writes."""

    def write(self, data: bytes, /) -> object:
        """Write all bytes."""

    def flush(self) -> object:
        """Hand them on."""


class _Wire:
    """A child connection with its two files."""

    def __init__(self, stdin: Readable, stdout: Writable, announced: frozenset[str]) -> None:
        self.announced = announced
        self._connection = ChildConnection(announced=announced)
        self._stdin = stdin
        self._stdout = stdout

    def next_message(self) -> ChildEvent:
        """Block until the daemon has sent a message."""
        while (event := self._connection.next_event()) is NEED_DATA:
            self._connection.receive_data(self._stdin.readline())
        return event

    def say(self, message: ChildMessage) -> None:
        """Write one line."""
        self._stdout.write(self._connection.send(message))
        self._stdout.flush()

    def ask(self, request: CheckpointRequest) -> CheckpointResult:
        """Write a request and block until its result is there."""
        self.say(request)
        result = self.next_message()
        assert isinstance(result, CheckpointResult)  # the table lets no other through
        return result


def run(
    processor: RecordProcessor,
    stdin: Readable | None = None,
    stdout: Writable | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Serve the daemon until it closes stdin.

    Args:
        processor: called for every message, in the calling thread.
        stdin: binary file to read from; None = take over file descriptor 0 of the process, which
            then reads as empty for everybody else.
        stdout: binary file to write to; None = take over file descriptor 1, which from then on
            leads to standard error for everybody else, for the rest of the process's life.
        environ: has the daemon's announcements; None = the environment of the process.

    Raises:
        RemoteProtocolError: the daemon broke the protocol.
        Exception: whatever a callback raised. Let it end the process: the traceback reaches the
            daemon's log and exit code 1 reports that the batch has failed.
    """
    wire = _Wire(
        _own_stdin() if stdin is None else stdin,
        _own_stdout() if stdout is None else stdout,
        capabilities(os.environ if environ is None else environ),
    )
    checkpointer = Checkpointer(wire)
    if stdin is None and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # The daemon sends it to a program that hangs: its log shows where.
        faulthandler.register(signal.SIGTERM, file=2, chain=True)
        os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))
    while not isinstance(message := wire.next_message(), EndOfStream):
        # The table knows no result outside a request.
        assert not isinstance(message, CheckpointResult)
        try:
            call(processor, message, checkpointer)
        except RecordFailed as failed:
            if not isinstance(message, ProcessRecords) or FAILURE not in wire.announced:
                raise
            wire.say(failed.status)
            continue
        may_ask = isinstance(message, Initialize) and "tick" in wire.announced
        if may_ask and processor.tick_s is not None:
            wire.say(Tick(processor.tick_s))
        wire.say(Status(message.action))


def _take_over(fd: int, replacement: int) -> int:
    """A private duplicate of ``fd``; ``fd`` itself leads where ``replacement`` does."""
    private = os.dup(fd)
    os.dup2(replacement, fd)
    return private


def schema_definition(
    schema_version_id: str, environ: Mapping[str, str] | None = None
) -> str | None:
    """The definition of a record's schema, which never changes, so its parsed form can be kept.

    Args:
        environ: has the daemon's folder of definitions; None = the environment of the process.

    Returns: None where there is none: the record has no schema, or the daemon sends none.

    Raises:
        ValueError: it is not a version id.
    """
    if not _VERSION_ID.fullmatch(schema_version_id):
        raise ValueError(f"not the id of a schema version: {schema_version_id!r}")
    folder = (os.environ if environ is None else environ).get(SCHEMAS_VARIABLE)
    if not folder:
        return None
    try:
        with open(os.path.join(folder, schema_version_id), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _own_stdin() -> Readable:
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        return os.fdopen(_take_over(0, null), "rb")
    finally:
        os.close(null)


def _own_stdout() -> Writable:
    sys.stdout.flush()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # prints are log lines now
    return os.fdopen(_take_over(1, 2), "wb")
