"""How far a shard is done that several children share: the mark that its lease stores.

A child gets its records in order and confirms them as it likes. The mark is the position up to
which all of them are confirmed, so that any worker, a Java worker too, may begin behind it. Each
position is that of a user record, as a child of its own would checkpoint it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber

#: From so many unconfirmed parts on the oldest become one: a child that confirms nothing would fill
#: the memory. The mark may then be less exact, never wrong.
MOST_PARTS = 1_000
#: Parts of a child that wait to be sent; far fewer, so that those that become one were all sent.
MOST_WAITING = 100


class AssignedPart(NamedTuple):
    """What one child was assigned of one line, or of several.

    Attributes:
        before: all of the child's records up to here were assigned earlier.
        last: its last record in the part.
    """

    before: ExtendedSequenceNumber
    last: ExtendedSequenceNumber


@dataclass(slots=True)
class ChildProgress:
    """How far one of the children is.

    Attributes:
        floor: all of its records up to here are assigned.
        confirmed: its last checkpoint, or where it began.
        parts: assigned and not confirmed, in order.
    """

    floor: ExtendedSequenceNumber
    confirmed: ExtendedSequenceNumber
    parts: deque[AssignedPart]

    @classmethod
    def starting_at(cls, position: ExtendedSequenceNumber) -> ChildProgress:
        """At the begin of a hold: the checkpoint of the lease."""
        return cls(position, position, deque())

    @property
    def edge(self) -> ExtendedSequenceNumber:
        """All of its records up to here are confirmed."""
        return max(self.confirmed, self.parts[0].before) if self.parts else self.floor

    @property
    def owes(self) -> bool:
        """True while a record that it was assigned is not confirmed."""
        return bool(self.parts)

    def assign(self, last: ExtendedSequenceNumber | None, edge: ExtendedSequenceNumber) -> None:
        """A line was assigned.

        Args:
            last: its last record in it; None = it has none.
            edge: the last record of the line; nothing happens if the floor is there already.
        """
        if edge <= self.floor:
            return
        if last is not None:
            if len(self.parts) >= MOST_PARTS:
                oldest = self.parts.popleft()
                self.parts[0] = AssignedPart(oldest.before, self.parts[0].last)
            self.parts.append(AssignedPart(self.floor, last))
        self.floor = edge

    def confirm(self, position: ExtendedSequenceNumber) -> None:
        """It is done with its records up to a position; an earlier one changes nothing."""
        self.confirmed = max(self.confirmed, position)
        while self.parts and self.parts[0].last <= self.confirmed:
            self.parts.popleft()

    def take_back(self, before: ExtendedSequenceNumber) -> None:
        """Its records behind a position are no longer assigned; they were not sent to it.

        Args:
            before: :attr:`AssignedPart.before` of the first that was not sent.
        """
        while self.parts and self.parts[-1].before >= before:
            self.parts.pop()
        self.floor = before

    def start_over(self) -> None:
        """Its process is gone: the next one begins behind what is confirmed."""
        self.floor = self.confirmed = self.edge
        self.parts.clear()


def mark(children: Iterable[ChildProgress]) -> ExtendedSequenceNumber:
    """The position up to which all children are done.

    It never goes back, because no child's :attr:`ChildProgress.edge` does.
    """
    return min(child.edge for child in children)
