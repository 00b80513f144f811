"""The messages of the multilang protocol as frozen values.

One class per JSON object; field order is the order on the wire. The values are what travels:
``data`` stays base64 text and sequence numbers stay strings.

Source: ``software.amazon.kinesis.multilang.messages`` of KCL 3.5.1. :class:`Tick`
is an addition of kcl-mld, see ``kcl_mld_protocol.additions``.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from kcl_mld_protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What a value of ``Initialize.extras`` may be.
Scalar: TypeAlias = str | int | float | bool | None


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Action(StrEnum):
    """Names in the ``action`` field, as on the wire."""

    INITIALIZE = "initialize"
    PROCESS_RECORDS = "processRecords"
    LEASE_LOST = "leaseLost"
    SHARD_ENDED = "shardEnded"
    SHUTDOWN_REQUESTED = "shutdownRequested"
    CHECKPOINT = "checkpoint"
    STATUS = "status"
    RECORD = "record"
    SHUTDOWN = "shutdown"
    # additions of kcl-mld
    TICK = "tick"


#: The actions that a child answers with a status, in the order of a child's life.
REQUESTS = (
    Action.INITIALIZE,
    Action.PROCESS_RECORDS,
    Action.LEASE_LOST,
    Action.SHARD_ENDED,
    Action.SHUTDOWN_REQUESTED,
)


@dataclass(frozen=True, slots=True)
class Initialize:
    """First message of every child: which shard it serves and where reading starts.

    Attributes:
        shard_id: Kinesis shard id, not the lease key.
        sequence_number: the stored checkpoint: decimal digits, or the sentinels
            ``TRIM_HORIZON``, ``LATEST``, ``AT_TIMESTAMP``, ``SHARD_END``.
        sub_sequence_number: >= 0; 0 for sentinels and records without aggregation.
        extras: further flat keys, written after the others in their own order; empty unless the
            daemon reads several streams. Children ignore keys that they do not know.
    """

    action: ClassVar[Action] = Action.INITIALIZE
    shard_id: str | None
    sequence_number: str | None
    sub_sequence_number: int | None = 0
    extras: Mapping[str, Scalar] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Record:
    """One user record of a batch.

    Attributes:
        data: payload in base64 (standard alphabet, padded, no line breaks); None only if Kinesis
            delivered none.
        partition_key: 1-256 characters as put by the producer.
        sequence_number: decimal digits; shared by all records of one KPL aggregate.
        approximate_arrival_timestamp_ms: epoch milliseconds, truncated.
        sub_sequence_number: index within a KPL aggregate, else 0.
        schema_version_id: UUID of the schema's version; None, as the next two, unless the daemon
            took the frame of a schema registry off. Not written while it is None.
        data_format: ``AVRO``, ``JSON`` or ``PROTOBUF``.
    """

    action: ClassVar[Action] = Action.RECORD
    data: str | None
    partition_key: str | None
    sequence_number: str | None
    approximate_arrival_timestamp_ms: int | None
    sub_sequence_number: int | None = 0
    schema_version_id: str | None = None
    schema_name: str | None = None
    data_format: str | None = None

    @property
    def binary_data(self) -> bytes:
        """The payload, decoded on every access; empty if Kinesis delivered none.

        Raises:
            RemoteProtocolError: ``data`` is not base64.
        """
        try:
            return binascii.a2b_base64(self.data or "", strict_mode=True)
        except ValueError as error:
            raise RemoteProtocolError(f"record {self.sequence_number}: {error}") from error

    @property
    def approximate_arrival_timestamp(self) -> datetime | None:
        """When Kinesis received the record, in UTC (kclpy: local time without a zone).

        Raises:
            RemoteProtocolError: the number of milliseconds is beyond the years 1-9999.
        """
        if self.approximate_arrival_timestamp_ms is None:
            return None
        try:
            return _EPOCH + timedelta(milliseconds=self.approximate_arrival_timestamp_ms)
        except OverflowError as error:
            raise RemoteProtocolError(f"record {self.sequence_number}: {error}") from error


@dataclass(frozen=True, slots=True)
class ProcessRecords:
    """A batch, in order of (sequence number, sub-sequence number); it may be empty.

    Attributes:
        records: never None.
        millis_behind_latest: age of the batch behind the tip of the shard, in ms; None if unknown.
    """

    action: ClassVar[Action] = Action.PROCESS_RECORDS
    records: tuple[Record, ...]
    millis_behind_latest: int | None


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Another worker owns the shard now; checkpoints are refused; stdin closes after the status."""

    action: ClassVar[Action] = Action.LEASE_LOST


@dataclass(frozen=True, slots=True)
class ShardEnded:
    """The shard is read to its end; the child must checkpoint before it answers."""

    action: ClassVar[Action] = Action.SHARD_ENDED


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """The worker stops or hands the lease over; the child may checkpoint a last time."""

    action: ClassVar[Action] = Action.SHUTDOWN_REQUESTED


@dataclass(frozen=True, slots=True)
class CheckpointResult:
    """The daemon's answer to a :class:`CheckpointRequest`.

    Attributes:
        sequence_number: echo of the request.
        sub_sequence_number: echo of the request.
        error: simple name of the exception (``kcl_mld_protocol.errors``), None = stored.
    """

    action: ClassVar[Action] = Action.CHECKPOINT
    sequence_number: str | None
    sub_sequence_number: int | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """A child asks to store its position.

    Attributes:
        sequence_number: None = the largest position handed out so far (at shard end: SHARD_END).
        sub_sequence_number: None = 0; ignored when the sequence number is None.
    """

    action: ClassVar[Action] = Action.CHECKPOINT
    sequence_number: str | None = None
    sub_sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """A child has finished the action named in ``response_for`` (exact wire name).

    Attributes:
        failure: why it has failed, an addition of kcl-mld; None = it has not.
        failed_sequence_number: of the record that it failed at; None = not known.
        failed_sub_sequence_number: of that record; None = 0.
    """

    action: ClassVar[Action] = Action.STATUS
    response_for: str | None
    failure: str | None = None
    failed_sequence_number: str | None = None
    failed_sub_sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """A child wants an empty batch whenever it has waited that long for a message; no answer.

    Attributes:
        seconds: 0.1 to 3600; None or anything else = the daemon logs an error and ignores it.
    """

    action: ClassVar[Action] = Action.TICK
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Legacy message of 1.x daemons; decoded, never sent: kclpy 3.x dies on it."""

    action: ClassVar[Action] = Action.SHUTDOWN
    reason: str | None


DaemonMessage: TypeAlias = (
    Initialize | ProcessRecords | LeaseLost | ShardEnded | ShutdownRequested | CheckpointResult
)
ChildMessage: TypeAlias = Status | CheckpointRequest | Tick
Message: TypeAlias = DaemonMessage | ChildMessage | Shutdown
