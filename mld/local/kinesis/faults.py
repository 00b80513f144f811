"""Errors of the model in the service's own words.

Codes, HTTP statuses and the shape of the messages follow the public API reference of Kinesis Data
Streams; a client tells errors apart by the code alone.
"""

from __future__ import annotations


class KinesisFault(Exception):
    """An error answer of the service; the operation had no effect.

    Attributes:
        code: the service's error name, e.g. ``ResourceNotFoundException``.
        http_status: 400 for the caller's faults, 500 or 503 for the service's own.
    """

    def __init__(self, code: str, message: str, http_status: int = 400) -> None:
        self.code = code
        self.message = message
        self.http_status = http_status
        super().__init__(f"{code}: {message}")


def not_found(what: str) -> KinesisFault:
    """``ResourceNotFoundException``: no such stream, shard or consumer."""
    return KinesisFault("ResourceNotFoundException", what)


def invalid(why: str) -> KinesisFault:
    """``InvalidArgumentException``: an argument is well formed but wrong."""
    return KinesisFault("InvalidArgumentException", why)


def malformed(why: str) -> KinesisFault:
    """``ValidationException``: an argument breaks the request's schema."""
    return KinesisFault("ValidationException", why)


def in_use(why: str) -> KinesisFault:
    """``ResourceInUseException``: the stream is not in the state that the operation needs."""
    return KinesisFault("ResourceInUseException", why)


def over_limit(why: str) -> KinesisFault:
    """``LimitExceededException``: too many calls of a control operation, or too many shards."""
    return KinesisFault("LimitExceededException", why)


def throttled(why: str) -> KinesisFault:
    """``ProvisionedThroughputExceededException``: the shard's data rate is used up."""
    return KinesisFault("ProvisionedThroughputExceededException", why)
