"""Requests of operators to the worker that holds a lease, and the notes left once they are done.

All are attributes of ours alone. A request is a JSON text, so that a condition can name all of it:

* ``kclMldHolder``: the kcl-mld worker that holds the lease. Other programs never write it, so the
  owner is a kcl-mld worker exactly while both are equal.
* ``kclMldRequest``: a request that waits for the holder.
* ``kclMldSteered``: the last request that was carried out, by whom and why.
* ``kclMldPausedUntil``: epoch seconds until which the lease is held and not read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber

HOLDER, REQUEST = "kclMldHolder", "kclMldRequest"
STEERED, PAUSED_UNTIL = "kclMldSteered", "kclMldPausedUntil"


class SteerVerb(StrEnum):
    """What can be requested."""

    RESET = "reset"
    RELEASE = "release"
    PAUSE = "pause"
    RESUME = "resume"
    #: Commands write these themselves; no holder is asked.
    DELETE = "delete"
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """A request, or the note of one that was carried out.

    Attributes:
        request_id: unique per request.
        verb: a :class:`SteerVerb`; requests with another verb are ignored.
        holder: the worker that is asked; "" in a note, or if the row had no living holder.
        expires_s: epoch seconds from which on it is void; 0 in a note.
        sequence_number: with ``reset``, the checkpoint to store.
        sub_sequence_number: of that checkpoint.
        until_s: with ``pause``, epoch seconds at which it ends.
        by: user and host of the command.
        reason: as given with the command.
        before: in a note, the previous checkpoint.
        at_s: in a note, epoch seconds at which it was done.
    """

    request_id: str
    verb: str
    holder: str = ""
    expires_s: float = 0.0
    sequence_number: str | None = None
    sub_sequence_number: int = 0
    until_s: float | None = None
    by: str = ""
    reason: str = ""
    before: str | None = None
    at_s: float | None = None

    @property
    def position(self) -> ExtendedSequenceNumber | None:
        """The checkpoint to store; None unless a reset.

        Raises:
            MalformedData: it is neither a number nor a sentinel.
        """
        if self.sequence_number is None:
            return None
        return ExtendedSequenceNumber(self.sequence_number, self.sub_sequence_number)

    @property
    def text(self) -> str:
        """The text that is stored in the row."""
        return _ENCODER.encode(self).decode()

    def done(self, before: ExtendedSequenceNumber | None, at_s: float) -> LeaseRequest:
        """The note of a request that was carried out, with only what a note needs.

        It is short because renewals of a row above 1 KB cost twice.

        Args:
            before: the previous checkpoint.
            at_s: epoch seconds.
        """
        was = None if before is None else str(before)
        return replace(self, holder="", expires_s=0.0, before=was, at_s=round(at_s, 3))


# Resolve the types at import: two threads must not do that at the same time.
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(LeaseRequest)
_ENCODER.encode(LeaseRequest(request_id="", verb=""))


def request_from(text: str | None) -> LeaseRequest | None:
    """The request of a row; None where there is none, or none that this version understands.

    A row must stay readable whatever the text is. A text that this version would write differently
    is not understood, because no condition could name it.
    """
    if text is None:
        return None
    try:
        request = _DECODER.decode(text)
        position = request.position
        is_same = request.text == text
    except (msgspec.MsgspecError, MalformedData, UnicodeError, RecursionError):
        return None
    is_whole = {
        SteerVerb.RESET: position is not None and not position.is_shard_end,
        SteerVerb.PAUSE: request.until_s is not None,
        SteerVerb.RELEASE: True,
        SteerVerb.RESUME: True,
    }
    return request if is_same and is_whole.get(request.verb) else None  # type: ignore[call-overload]
