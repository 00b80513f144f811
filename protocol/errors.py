"""Errors of the protocol package, and the error names that travel inside checkpoint results.

There are two kinds of mistakes: ours (:class:`LocalProtocolError`) and the peer's
(:class:`RemoteProtocolError`). No input, however broken, makes this package raise anything else.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """Something broke the multilang protocol. Abstract: one of the two subclasses is raised."""

    def __init__(self, message: str) -> None:
        if type(self) is ProtocolError:
            raise TypeError("ProtocolError is abstract: raise a Local or a RemoteProtocolError")
        super().__init__(message)


class LocalProtocolError(ProtocolError):
    """This side asked for something illegal: a bug in the caller. Fix the caller."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol or went away: end the conversation and report the message."""


class LineTooLong(RemoteProtocolError):
    """A line exceeded the size limit; what follows of it is dropped, later lines are readable.

    Attributes:
        prefix: the first bytes of the line, for a log.
    """

    def __init__(self, prefix: bytes, limit_bytes: int) -> None:
        self.prefix = prefix
        self.limit_bytes = limit_bytes
        super().__init__(f"a line is longer than {limit_bytes} bytes")


#: For a child that ended or fell silent at one of these.
_NEW_IN_KCL_2 = frozenset({"leaseLost", "shardEnded"})


def advice_on_1x(action: str) -> str:
    """What may be wrong with a child that did not answer an action, and what to do about it.

    The protocol of KCL 1.x has ``shutdown`` instead of two of the actions.

    Returns:
        One sentence without a full stop; empty if the action is as old as the protocol.
    """
    if action not in _NEW_IN_KCL_2:
        return ""
    return (
        f"Children for the 1.x protocol do not know {action}: "
        "use amazon_kclpy (or aws-kcl) 2 or later"
    )


#: The position is not acceptable: outside [last checkpoint, largest delivered], not digits.
ILLEGAL_ARGUMENT = "IllegalArgumentException"
#: This worker no longer holds the lease: stop, do not retry.
SHUTDOWN = "ShutdownException"
#: The lease table throttled the write: wait and retry.
THROTTLING = "ThrottlingException"
#: The lease table is unusable, or the action in progress carries no checkpointer.
INVALID_STATE = "InvalidStateException"
#: Any other error answered by the lease table, or no answer in time.
DEPENDENCY = "KinesisClientLibDependencyException"
#: The lease table was not reached at all (Java wraps the client-side error).
UNREACHABLE = "RuntimeException"

#: Every name above. Others are possible: Java sends the simple name of whatever was thrown.
ERROR_NAMES = (
    ILLEGAL_ARGUMENT,
    SHUTDOWN,
    THROTTLING,
    INVALID_STATE,
    DEPENDENCY,
    UNREACHABLE,
)
