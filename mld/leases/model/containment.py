"""Failures of child processes as stored in a lease's row: suspect records and dead-lettered ones.

Both attributes are ours alone: Java's writes keep them, and Java delivers such records again. They
are absent until a child fails under ``childFailurePolicy = deadletter``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber

#: JSON text: the suspects, how often they failed, and why the shard is on hold.
FAILURE = "kclMldFailure"
#: A set of ranges that are dead-lettered but not yet covered by a checkpoint.
SKIP = "kclMldSkip"
#: Most ranges in a row; a shard that would need more is put on hold.
MOST_SKIPPED = 100
_SEPARATOR = ".."
#: Largest sub-sequence number: 64 bits, as in Java.
_MOST_DIGITS = 19


@dataclass(frozen=True, slots=True)
class PositionRange:
    """Records of one shard from ``first`` to ``last``, both included; numbers, no sentinels."""

    first: ExtendedSequenceNumber
    last: ExtendedSequenceNumber

    def holds(self, position: ExtendedSequenceNumber) -> bool:
        """Whether a position is in the range."""
        return self.first <= position <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else _SEPARATOR.join(map(str, self._ends))

    @property
    def _ends(self) -> tuple[ExtendedSequenceNumber, ExtendedSequenceNumber]:
        return self.first, self.last

    @classmethod
    def parse(cls, text: str) -> PositionRange:
        """Parse the text form of a range.

        Raises:
            MalformedData: the text is not a range.
        """
        first, _, last = text.partition(_SEPARATOR)
        return cls(position_of(first), position_of(last or first))


def position_of(text: str) -> ExtendedSequenceNumber:
    """Parse a position, ``number`` or ``number/sub``.

    Raises:
        MalformedData: the text is not a position.
    """
    number, _, sub = text.partition("/")
    if sub and not (sub.isascii() and sub.isdigit() and len(sub) <= _MOST_DIGITS):
        raise MalformedData(f"{text!r:.100} is no position")
    position = ExtendedSequenceNumber(number, int(sub or 0))
    if position.sentinel is not None:
        raise MalformedData(f"{text!r:.100} is no number")
    return position


@dataclass(frozen=True, slots=True)
class FailureNote:
    """The failures of a shard's children.

    Attributes:
        suspects: records that a child failed on; it is unknown which one of them caused it.
        attempts: how often they failed once they could not be halved any further.
        since_ms: epoch milliseconds of their first failure.
        letters_ms: epoch milliseconds of the shard's last dead letters, plus the time spent since
            on retries of failing records.
        held: why the shard is on hold, for operators; None = it is read.
    """

    suspects: PositionRange | None = None
    attempts: int = 0
    since_ms: int = 0
    letters_ms: tuple[int, ...] = ()
    held: str | None = None

    def behind(self, checkpoint: ExtendedSequenceNumber | None) -> FailureNote:
        """The note without suspects that the checkpoint covers."""
        if self.suspects is None or checkpoint is None or self.suspects.last > checkpoint:
            return self
        return FailureNote(letters_ms=self.letters_ms)

    def lifted(self) -> FailureNote:
        """The note for a new owner, who tries again."""
        return replace(self, held=None)

    def text(self) -> str | None:
        """The text for the row; None = nothing to store."""
        stored: dict[str, object] = {}
        if self.suspects is not None:
            stored |= {
                "suspects": str(self.suspects),
                "attempts": self.attempts,
                "sinceMillis": self.since_ms,
            }
        if self.letters_ms:
            stored["lettersMillis"] = self.letters_ms
        if self.held is not None:
            stored["held"] = self.held
        return json.dumps(stored, separators=(",", ":"), ensure_ascii=False) if stored else None


NO_FAILURE = FailureNote()


def failure_of(text: str | None) -> FailureNote:
    """The note in a row; None = the row has none.

    A note that can't be read is ignored: its records are retried, and none is lost.
    """
    try:
        stored = json.loads(text or "{}")
        suspects, held = stored.get("suspects"), stored.get("held")
        return FailureNote(
            suspects=None if suspects is None else PositionRange.parse(suspects),
            attempts=int(stored.get("attempts", 0)),
            since_ms=int(stored.get("sinceMillis", 0)),
            letters_ms=tuple(map(int, stored.get("lettersMillis", ()))),
            held=None if held is None else str(held),
        )
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, MalformedData):
        return NO_FAILURE


def skipped_of(texts: tuple[str, ...]) -> tuple[PositionRange, ...]:
    """The ranges in a row, in their order; what can't be read is ignored and delivered again."""
    found = []
    for text in texts:
        try:
            found.append(PositionRange.parse(text))
        except MalformedData:
            continue
    return tuple(sorted(found, key=lambda one: one.first.key))


def skipped_behind(
    skipped: tuple[PositionRange, ...], checkpoint: ExtendedSequenceNumber | None
) -> tuple[PositionRange, ...]:
    """The ranges that a checkpoint does not cover."""
    if checkpoint is None:
        return skipped
    return tuple(one for one in skipped if one.last > checkpoint)
