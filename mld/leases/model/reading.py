"""Until when a shard was read, and records that were lost, as stored in its row.

Both attributes are JSON texts of ours alone; they are added to writes that are made anyway, and
Java's writes keep them. ``kclMldReadUntil`` is void below the checkpoint that it names: a worker
that moves the checkpoint back makes it void, and one that moves it on leaves a lower bound.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.signals.model.metrics import PassCause

READ_UNTIL, LOSS = "kclMldReadUntil", "kclMldLoss"
#: A loss is shown for this many seconds.
SHOWN_S = 24 * 3600.0
#: The stored time is updated when it is this many seconds old, so most renewals don't change it.
COARSE_S = 60.0


@dataclass(frozen=True, slots=True)
class ReadNote:
    """All records that arrived before a time are covered by a checkpoint.

    Attributes:
        until_s: epoch seconds, by the clock of Kinesis; 0 = no record is known to be covered.
        checkpoint: a position that covers them; the note is valid for it and for later ones.
    """

    until_s: float
    checkpoint: ExtendedSequenceNumber

    def holds_at(self, checkpoint: ExtendedSequenceNumber | None) -> bool:
        """Whether it is valid for a row with that checkpoint."""
        return checkpoint is not None and self.checkpoint <= checkpoint

    def text(self) -> str:
        """The text for the row."""
        stored = {"untilMillis": round(1000 * self.until_s), "checkpoint": str(self.checkpoint)}
        return json.dumps(stored, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LossNote:
    """Records that were lost, or may be; several losses within a day are merged into one range.

    Attributes:
        is_certain: records existed and can't be read any more; False = it is unknown if there were
            any.
        cause: ``trimmed``, ``expired`` or ``vanished``.
        at_s: epoch seconds at which it was found.
        first: the position after which records are missing.
        first_s: epoch seconds until which the shard is known to have been read; None = unknown.
        last: sequence number of the next record that could be read; None = there was none.
        last_s: epoch seconds at which that record arrived, or until which there is known to be
            none.
        count: how often it was found.
    """

    is_certain: bool
    cause: PassCause
    at_s: float
    first: str
    first_s: float | None = None
    last: str | None = None
    last_s: float | None = None
    count: int = 1

    def after(self, earlier: LossNote | None) -> LossNote:
        """Merge with an earlier loss that is still shown."""
        if earlier is None or not earlier.is_shown(self.at_s):
            return self
        return replace(
            self,
            is_certain=self.is_certain or earlier.is_certain,
            cause=self.cause if self.is_certain or not earlier.is_certain else earlier.cause,
            first=earlier.first,
            first_s=earlier.first_s,
            count=self.count + earlier.count,
        )

    def is_shown(self, now_s: float) -> bool:
        """Whether it is less than a day old."""
        return now_s - self.at_s < SHOWN_S

    def text(self) -> str:
        """The text for the row; pages show it too."""
        stored = {
            "certain": self.is_certain,
            "cause": self.cause.value,
            "atMillis": round(1000 * self.at_s),
            "after": self.first,
            "afterMillis": _millis(self.first_s),
            "before": self.last,
            "beforeMillis": _millis(self.last_s),
            "count": self.count,
        }
        present = {name: value for name, value in stored.items() if value is not None}
        return json.dumps(present, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class RowNotes:
    """Notes that are added to a holder's write.

    Attributes:
        read: None = nothing is known.
        loss: None = none was found.
    """

    read: ReadNote | None = None
    loss: LossNote | None = None


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else round(1000 * seconds)


def _seconds(millis: object) -> float | None:
    return None if millis is None else float(int(str(millis))) / 1000


_UNREADABLE = (
    *(ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError),
    MalformedData,
)


def read_note_of(text: str | None) -> ReadNote | None:
    """The note of a row; None where there is none that can be read."""
    try:
        stored = json.loads(text or "")
        number, _, sub = str(stored["checkpoint"]).partition("/")
        return ReadNote(
            int(stored["untilMillis"]) / 1000, ExtendedSequenceNumber(number, int(sub or 0))
        )
    except _UNREADABLE:
        return None


def loss_note_of(text: str | None) -> LossNote | None:
    """The loss of a row; None where there is none that can be read."""
    try:
        stored = json.loads(text or "")
        last = stored.get("before")
        return LossNote(
            is_certain=stored["certain"] is True,
            cause=PassCause(stored["cause"]),
            at_s=int(stored["atMillis"]) / 1000,
            first=str(stored["after"]),
            first_s=_seconds(stored.get("afterMillis")),
            last=None if last is None else str(last),
            last_s=_seconds(stored.get("beforeMillis")),
            count=int(stored.get("count", 1)),
        )
    except _UNREADABLE:
        return None
