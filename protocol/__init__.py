"""The multilang protocol of the Kinesis Client Library without I/O: bytes in, events out.

``DaemonConnection`` and ``ChildConnection`` are the two ends; ``kcl_mld_protocol.state`` has the one table
that says what may follow what; ``kcl_mld_protocol.codec`` turns messages into lines and back.
``kcl_mld_protocol.child`` runs a record processor over stdin and stdout, and is the only module here
besides the conformance kit (``kcl_mld_protocol.conform``) that does I/O.

Nothing here imports the daemon, and nothing but the standard library is needed.
"""

from __future__ import annotations

from kcl_mld_protocol.additions import (
    CAPABILITIES,
    CAPABILITIES_VARIABLE,
    capabilities,
)
from kcl_mld_protocol.codec import decode_from_daemon, encode
from kcl_mld_protocol.connection import ChildConnection, DaemonConnection
from kcl_mld_protocol.errors import (
    LineTooLong,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
from kcl_mld_protocol.events import (
    NEED_DATA,
    CheckpointRequested,
    ChildEvent,
    DaemonEvent,
    EndOfStream,
    IgnoredMessage,
    JunkLine,
    NeedData,
    StatusReceived,
    TickRequested,
)
from kcl_mld_protocol.jackson import Foreign, Junk, decode_from_child
from kcl_mld_protocol.linebuffer import LineBuffer
from kcl_mld_protocol.messages import (
    Action,
    CheckpointRequest,
    CheckpointResult,
    ChildMessage,
    DaemonMessage,
    Initialize,
    LeaseLost,
    Message,
    ProcessRecords,
    Record,
    ShardEnded,
    Shutdown,
    ShutdownRequested,
    Status,
    Tick,
)
from kcl_mld_protocol.state import Role, Signal, State, markdown

__all__ = [
    "CAPABILITIES",
    "CAPABILITIES_VARIABLE",
    "NEED_DATA",
    "Action",
    "CheckpointRequest",
    "CheckpointRequested",
    "CheckpointResult",
    "ChildConnection",
    "ChildEvent",
    "ChildMessage",
    "DaemonConnection",
    "DaemonEvent",
    "DaemonMessage",
    "EndOfStream",
    "Foreign",
    "IgnoredMessage",
    "Initialize",
    "Junk",
    "JunkLine",
    "LeaseLost",
    "LineBuffer",
    "LineTooLong",
    "LocalProtocolError",
    "Message",
    "NeedData",
    "ProcessRecords",
    "ProtocolError",
    "Record",
    "RemoteProtocolError",
    "Role",
    "ShardEnded",
    "Shutdown",
    "ShutdownRequested",
    "Signal",
    "State",
    "Status",
    "StatusReceived",
    "Tick",
    "TickRequested",
    "capabilities",
    "decode_from_child",
    "decode_from_daemon",
    "encode",
    "markdown",
]
