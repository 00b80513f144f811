"""A stream that is read, with its ARN and creation time as soon as they are known."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from kcl_mld.config.stream import parse_arn
from kcl_mld.errors import MalformedData

if TYPE_CHECKING:
    from kcl_mld.config.stream import Stream


class IdentifiedStream:
    """One per stream and worker: ``StreamExistence`` learns ARN and creation time.

    Args:
        created: ``StreamCreationTimestamp`` if it was just read.
    """

    def __init__(self, stream: Stream, created: object = None) -> None:
        self.stream = stream
        #: ARN of the stream; None while it is unknown.
        self.arn = stream.arn
        #: ``StreamCreationTimestamp`` as the service returned it; None while it is unknown.
        self.created = created

    @property
    def mark(self) -> str | None:
        """``account:region:name`` of the stream; None while its ARN is unknown."""
        try:
            return None if self.arn is None else parse_arn(self.arn).mark
        except MalformedData:
            return None

    @property
    def created_at_s(self) -> float | None:
        """Epoch seconds at which the stream was created; None while unknown."""
        if isinstance(self.created, datetime):
            return self.created.timestamp()
        return float(self.created) if isinstance(self.created, int | float) else None
