"""The mark in rows that a newcomer to a 2.x fleet has taken; removed once it has run for a while.

No worker assigns leases in a 2.x fleet, and any item but a lease stops Java 2.x from listing the
table. Information on failed processes is therefore stored in the rows that they took:
``kclMldNewcomer``, ours alone, names the process that took the row and the time. A process removes
its marks when it has run for a while, when it releases a lease normally, and from rows that Java
workers have taken from it. A remaining mark is of a process that failed or was killed.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

NEWCOMER = "kclMldNewcomer"


@dataclass(frozen=True, slots=True)
class NewcomerMark:
    """Which process took a row, and when.

    Attributes:
        instance: id of the process.
        worker_id: its worker id.
        at_s: epoch seconds.
    """

    instance: str
    worker_id: str
    at_s: int

    def text(self) -> str:
        """The text that is stored in the row."""
        return _ENCODER.encode(self).decode()


# Resolve the types at import: two threads must not do that at the same time.
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(NewcomerMark)


def newcomer_mark_of(text: str | None) -> NewcomerMark | None:
    """The mark of a row; None where there is none, or none that can be read."""
    try:
        return None if text is None else _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
