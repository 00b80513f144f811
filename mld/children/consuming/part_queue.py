"""What one of several children was assigned and has not answered: one part sent, others waiting."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.children.record_processor import OutgoingLine

if TYPE_CHECKING:
    from kcl_mld.children.rules.routing import Part
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.retrieval.byte_budget import Reservation


@dataclass(slots=True)
class WaitingPart:
    """A part of a line.

    Attributes:
        outgoing: its line; the memory is given back when it is written.
        line_number: of the whole line, from 1.
        before: all records of the child up to here were assigned earlier.
    """

    outgoing: OutgoingLine
    reservation: Reservation
    line_number: int
    records: int
    size_bytes: int
    smallest: ExtendedSequenceNumber
    largest: ExtendedSequenceNumber
    before: ExtendedSequenceNumber
    arrived_s: float | None


class PartQueue:
    """The parts of one child, in order.

    Attributes:
        sent: the one that it has not answered; None = it owes no answer.
        records: in all parts that are not answered; likewise ``size_bytes``.
    """

    def __init__(self) -> None:
        self._waiting: deque[WaitingPart] = deque()
        self.sent: WaitingPart | None = None
        self.records = 0
        self.size_bytes = 0
        #: Epoch seconds at which the oldest record arrived that was dropped and is to be read again.
        self._dropped_s: float | None = None

    def __len__(self) -> int:
        """How many wait to be sent."""
        return len(self._waiting)

    @property
    def is_empty(self) -> bool:
        """True while nothing waits, and no answer is owed."""
        return self.sent is None and not self._waiting

    @property
    def oldest_s(self) -> float | None:
        """Epoch seconds at which the oldest record arrived that is not answered; None without any.

        Those that were dropped count until :meth:`begin_again`.
        """
        oldest = self.sent or (self._waiting[0] if self._waiting else None)
        arrived_s = None if oldest is None else oldest.arrived_s
        return min((s for s in (arrived_s, self._dropped_s) if s is not None), default=None)

    def append(
        self, part: Part, line_number: int, before: ExtendedSequenceNumber, reservation: Reservation
    ) -> None:
        """Let a part wait."""
        self._waiting.append(
            WaitingPart(
                OutgoingLine(part.line, reservation.release),
                reservation,
                line_number,
                part.records,
                len(part.line),
                part.smallest,
                part.largest,
                before,
                part.arrived_s,
            )
        )
        self._count(self._waiting[-1], 1)

    def send(self) -> WaitingPart:
        """The next part, which is sent now."""
        self.sent = self._waiting.popleft()
        return self.sent

    def answered(self) -> None:
        """The part that was sent is answered."""
        if self.sent is not None:
            self._count(self.sent, -1)
            self.sent = None

    def drop(self, behind_line: int = 0) -> ExtendedSequenceNumber | None:
        """Drop what waits.

        Args:
            behind_line: only parts of later lines.

        Returns:
            What was before the first of them; None = there was none.
        """
        self._dropped_s = self.oldest_s
        before = None
        while self._waiting and self._waiting[-1].line_number > behind_line:
            last = self._waiting.pop()
            last.reservation.release()
            self._count(last, -1)
            before = last.before
        return before

    def fail(self) -> None:
        """The process is gone: the part that was sent is to be read again, too."""
        self._dropped_s = self.oldest_s
        if self.sent is not None:
            self.sent.reservation.release()  # its write may not have begun
        self.answered()

    def begin_again(self) -> None:
        """What was dropped is read again."""
        self._dropped_s = None

    def _count(self, part: WaitingPart, sign: int) -> None:
        self.records += sign * part.records
        self.size_bytes += sign * part.size_bytes
