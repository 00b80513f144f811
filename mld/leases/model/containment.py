"""What a row says of records that children fail at: the suspects, and what was set aside.

Two attributes, ours alone: Java's writes keep them, and Java delivers such records again. They are
absent until a child fails under ``childFailurePolicy = deadletter``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from mld.errors import MalformedData
from mld.kernel.model.sequence import ExtendedSequenceNumber

#: A text in JSON: the suspects, how often they failed, and why nothing is read.
FAILURE = "kclMldFailure"
#: A set of ranges that are dead-lettered although no checkpoint covers them.
SKIP = "kclMldSkip"
#: Most ranges of a row; a shard that would need more is held.
MOST_SKIPPED = 100
_SEPARATOR = ".."
#: Of a sub-sequence number: 64 bits, as in Java.
_MOST_DIGITS = 19


@dataclass(frozen=True, slots=True)
class PositionRange:
    """Records of one shard from ``first`` to ``last``, both included; numbers, no sentinels."""

    first: ExtendedSequenceNumber
    last: ExtendedSequenceNumber

    def holds(self, position: ExtendedSequenceNumber) -> bool:
        """Whether a record is one of them."""
        return self.first <= position <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else _SEPARATOR.join(map(str, self._ends))

    @property
    def _ends(self) -> tuple[ExtendedSequenceNumber, ExtendedSequenceNumber]:
        return self.first, self.last

    @classmethod
    def parse(cls, text: str) -> PositionRange:
        """The range of a text.

        Raises:
            MalformedData: it is none.
        """
        first, _, last = text.partition(_SEPARATOR)
        return cls(position_of(first), position_of(last or first))


def position_of(text: str) -> ExtendedSequenceNumber:
    """A position as it is shown: ``number`` or ``number/sub``.

    Raises:
        MalformedData: it is none.
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
    """What is known of the failures of a shard's children.

    Attributes:
        suspects: a child failed at one of them, and nothing is known of which.
        attempts: how often they failed when they could not be halved any more.
        since_ms: epoch milliseconds of their first failure.
        letters_ms: epoch milliseconds of the last dead letters of the shard, moved on by the time that
            failing records were tried since.
        held: why nothing is read, for people; None = it is read.
    """

    suspects: PositionRange | None = None
    attempts: int = 0
    since_ms: int = 0
    letters_ms: tuple[int, ...] = ()
    held: str | None = None

    def behind(self, checkpoint: ExtendedSequenceNumber | None) -> FailureNote:
        """What still matters at a checkpoint: suspects that it covers are none."""
        if self.suspects is None or checkpoint is None or self.suspects.last > checkpoint:
            return self
        return FailureNote(letters_ms=self.letters_ms)

    def lifted(self) -> FailureNote:
        """A new owner tries again."""
        return replace(self, held=None)

    def text(self) -> str | None:
        """As the row holds it; None = it says nothing."""
        said: dict[str, object] = {}
        if self.suspects is not None:
            said |= {
                "suspects": str(self.suspects),
                "attempts": self.attempts,
                "sinceMillis": self.since_ms,
            }
        if self.letters_ms:
            said["lettersMillis"] = self.letters_ms
        if self.held is not None:
            said["held"] = self.held
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False) if said else None


NO_FAILURE = FailureNote()


def failure_of(text: str | None) -> FailureNote:
    """The note of a row; None = the row has none.

    One that can't be read says nothing: records are then tried anew, and none is lost.
    """
    try:
        said = json.loads(text or "{}")
        suspects, held = said.get("suspects"), said.get("held")
        return FailureNote(
            suspects=None if suspects is None else PositionRange.parse(suspects),
            attempts=int(said.get("attempts", 0)),
            since_ms=int(said.get("sinceMillis", 0)),
            letters_ms=tuple(map(int, said.get("lettersMillis", ()))),
            held=None if held is None else str(held),
        )
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, MalformedData):
        return NO_FAILURE


def skipped_of(texts: tuple[str, ...]) -> tuple[PositionRange, ...]:
    """The ranges of a row in their order; what can't be read is delivered again."""
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
    """Those that a checkpoint does not cover."""
    if checkpoint is None:
        return skipped
    return tuple(one for one in skipped if one.last > checkpoint)
