"""What a person asks of the worker that holds a lease, and what is left in the row once it is done.

Both are attributes of ours alone, JSON texts, so that a condition can name the whole request:

* ``kclMldHolder``: the worker of ours that holds the lease. A worker of another program never
  writes it, so an owner is one of ours exactly while both are equal.
* ``kclMldRequest``: a request that waits for its holder.
* ``kclMldSteered``: the last request that was carried out, by whom and why.
* ``kclMldPausedUntil``: epoch seconds until which the lease is held and not read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from mld.errors import MalformedData
from mld.kernel.model.sequence import ExtendedSequenceNumber

HOLDER, REQUEST = "kclMldHolder", "kclMldRequest"
STEERED, PAUSED_UNTIL = "kclMldSteered", "kclMldPausedUntil"


class SteerVerb(StrEnum):
    """What may be asked for."""

    RESET = "reset"
    RELEASE = "release"
    PAUSE = "pause"
    RESUME = "resume"
    #: No holder is asked for these.
    DELETE = "delete"
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """A request, or the note of one that was carried out.

    Attributes:
        request_id: made anew for each.
        verb: what a holder is asked for, a :class:`SteerVerb`; requests with another word are not read.
        holder: the worker that is asked; "" = the row was at rest, nobody was asked; or a note.
        expires_s: epoch seconds from which on it is void; 0 with a note.
        sequence_number: with ``reset``, the checkpoint to store.
        sub_sequence_number: of that checkpoint.
        until_s: with ``pause``, epoch seconds at which it ends.
        by: user and host of the command.
        reason: as it was given.
        before: with a note, the checkpoint that there was.
        at_s: with a note, epoch seconds at which it was done.
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
        """As it stands in the row."""
        return _ENCODER.encode(self).decode()

    def done(self, before: ExtendedSequenceNumber | None, at_s: float) -> LeaseRequest:
        """The note of it, without what it no longer needs: above 1 KB a row's renewals cost twice.

        Args:
            before: the checkpoint that there was.
            at_s: epoch seconds.
        """
        was = None if before is None else str(before)
        return replace(self, holder="", expires_s=0.0, before=was, at_s=round(at_s, 3))


# Their types are resolved now: two threads must not do that at once.
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(LeaseRequest)
_ENCODER.encode(LeaseRequest(request_id="", verb=""))


def request_from(text: str | None) -> LeaseRequest | None:
    """The request of a row; None where there is none, or none that this version understands.

    A row must stay readable whatever stands in it. A text that this version would write otherwise
    is not understood: no condition could name it.
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
