"""What a program sees of the protocol: the inputs of its callbacks, and how it checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, assert_never

from protocol.messages import (
    CheckpointRequest,
    CheckpointResult,
    Initialize,
    LeaseLost,
    ProcessRecords,
    ShardEnded,
    ShutdownRequested,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.messages import Record, Scalar


class CheckpointError(Exception):
    """The daemon refused or failed to store a checkpoint.

    Attributes:
        value: name of the error, see ``protocol.errors``. ``ThrottlingException``: wait and retry.
            ``ShutdownException``: the lease is gone, stop trying. ``IllegalArgumentException``:
            the position is wrong, do not retry it.
    """

    def __init__(self, value: str) -> None:
        self.value = value
        super().__init__(value)


class Asking(Protocol):
    """Says a request to the daemon and waits for its result."""

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
            CheckpointError: it was not stored; its ``value`` says why.
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
        """Another worker has the shard: drop what is not checkpointed. The process ends next."""

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """The shard is finished; it must be checkpointed, or its children never start."""
        shard_ended_input.checkpointer.checkpoint()

    def shutdown_requested(  # noqa: B027 - optional
        self, shutdown_requested_input: ShutdownRequestedInput
    ) -> None:
        """The worker stops soon: checkpoint what is processed. ``lease_lost`` follows."""


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
