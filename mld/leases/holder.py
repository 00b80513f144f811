"""What the holder of leases adds to its writes, and what it has to know of one without an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError, UnknownOutcome
from kcl_mld.leases.model.reading import RowNotes

if TYPE_CHECKING:
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.lease_writes import FindNotes
    from kcl_mld.leases.newcomer import Newcomer
    from kcl_mld.leases.rules.own_rows import OwnRows
    from kcl_mld.streams.identified_stream import IdentifiedStream


def _no_notes(_lease: Lease) -> RowNotes:
    return RowNotes()


class UnresolvedWrite(UnknownOutcome):
    """The outcome of a write is unknown, and earlier ones of the same holder were stored.

    Attributes:
        row: the lease as last read; the next write is on top of it.
    """

    def __init__(self, error: AwsError, row: Lease) -> None:
        self.row = row
        super().__init__(error.operation, error.code, error.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A worker that writes rows as the holder of their leases.

    Attributes:
        stream: the only one of the application, whose ARN the rows are to show; None = there are
            several.
        find_notes: what the lease's consumer adds to a write.
        newcomer: marks the rows that this process takes; None = no marks.
        own_rows: records writes of other processes to this worker's rows; None = not recorded.
    """

    stream: IdentifiedStream | None = None
    find_notes: FindNotes = _no_notes
    newcomer: Newcomer | None = None
    own_rows: OwnRows | None = None

    @property
    def stream_mark(self) -> str | None:
        """``account:region:name`` of the only stream; None while it is unknown."""
        return None if self.stream is None else self.stream.mark
