"""The mark of a row that a newcomer to a 2.x fleet has taken, and which it removes once it has lived.

In a 2.x fleet nobody assigns leases, and any item but a lease stops Java 2.x from listing the table. So
what is to be known of a process that failed is in the rows that it took: ``kclMldNewcomer``, of ours
alone, which says who took the row and when. A process removes its marks when it has lived for a
while, and when it releases a lease in order. What stays is of one that failed, or was killed.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

NEWCOMER = "kclMldNewcomer"


@dataclass(frozen=True, slots=True)
class NewcomerMark:
    """Who took a row, and when.

    Attributes:
        instance: id of the process.
        worker_id: under which it runs.
        at_s: epoch seconds.
    """

    instance: str
    worker_id: str
    at_s: int

    def text(self) -> str:
        """As it stands in the row."""
        return _ENCODER.encode(self).decode()


# Their types are resolved now: two threads must not do that at once.
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(NewcomerMark)


def newcomer_mark_of(text: str | None) -> NewcomerMark | None:
    """The mark of a row; None where there is none, or none that can be read."""
    try:
        return None if text is None else _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
