"""Whether records were lost, by the gap between a position and the next record.

A record that expired unread leaves no trace: a shard from which ten records expired answers like a
quiet one whose checkpointed record expired. Earlier knowledge distinguishes three cases: some were
lost, some may be, none can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.text import lasted
from kcl_mld.leases.model.reading import LossNote, ReadNote
from kcl_mld.signals.model.metrics import PassCause
from kcl_mld.streams.model.shard import creation_in_id

if TYPE_CHECKING:
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber

#: The shortest retention of any stream.
LEAST_RETENTION_S = 24 * 3600.0
#: The first record that is left is next to those that have just expired: there were some before it.
EDGE_S = 60.0
#: The year 10000, in epoch seconds: no record arrives then or later.
END_OF_TIME_S = 253_402_300_800.0
#: Share of the retention from which an age is a risk.
RISK = 0.8
#: Marks that are kept for checkpoints to come; of more every second one goes.
MOST_MARKS = 128


class LossVerdict(Enum):
    """The classification of a gap."""

    LOST = "records were lost"
    MAY_BE_LOST = "records may be lost"


@dataclass(frozen=True, slots=True)
class KnownReading:
    """What is known of a shard at a position.

    Attributes:
        position: everything up to it was read.
        until_s: epoch seconds; all records that arrived before are at or below the position. None =
            not known.
        waiting_s: epoch seconds; a record behind the position is known that had arrived by then.
            None = none is known.
    """

    position: ExtendedSequenceNumber
    until_s: float | None = None
    waiting_s: float | None = None


def judge_gap(
    known: KnownReading,
    first_arrival_s: float | None,
    now_s: float,
    retention_s: float | None,
    created_s: float | None = None,
    *,
    is_end: bool = False,
) -> LossVerdict | None:
    """Whether records between a position and the next one that can be read are lost.

    Args:
        first_arrival_s: epoch seconds at which that one arrived; None = there is none, as far as the
            tip of the shard.
        now_s: epoch seconds at which it was read.
        retention_s: of the stream; None = not known.
        created_s: epoch seconds at which the stream was created; None = not known.
        is_end: nothing will come behind the position, because the shard ends.

    Returns:
        None where none can be lost, and for a quiet shard: where nothing comes behind a position,
        and nothing is known to have come, nothing is said before the end of the shard; nor there if
        it is not known until when the shard was read.
    """
    horizon_s = now_s - _at_least(retention_s, first_arrival_s, now_s)
    if any(one is not None and one >= horizon_s for one in (known.until_s, created_s)):
        return None
    waiting_s = known.waiting_s
    if waiting_s is not None and (
        first_arrival_s is None
        or first_arrival_s > waiting_s
        or first_arrival_s <= horizon_s + EDGE_S
    ):
        return LossVerdict.LOST
    was_read_too_early = is_end and known.until_s is not None
    return LossVerdict.MAY_BE_LOST if first_arrival_s is not None or was_read_too_early else None


def shard_created_s(shard_id: str, now_s: float) -> float | None:
    """Epoch seconds before which a shard has no record.

    Returns:
        None where the id does not have it, and for a time that is yet to come.
    """
    created_s = creation_in_id(shard_id)
    return None if created_s is None or created_s > now_s + EDGE_S else created_s


def _at_least(retention_s: float | None, first_arrival_s: float | None, now_s: float) -> float:
    """What is known of the retention: no record is older than it."""
    if retention_s is not None:
        return retention_s
    return max(LEAST_RETENTION_S, 0.0 if first_arrival_s is None else now_s - first_arrival_s)


def judge_vanished(
    known: KnownReading, now_s: float, retention_s: float | None, created_s: float | None = None
) -> LossVerdict | None:
    """Whether records of a shard are lost that the service has forgotten before its end was read.

    It was closed at least for the retention, so whoever read all within the retention read all.
    That is not so of a shard that is younger than its records are kept, and gone all the same.

    Args:
        now_s: epoch seconds.
        retention_s: of the stream; None = not known.
        created_s: epoch seconds at which the shard was made; None = not known.
    """
    horizon_s = now_s - (LEAST_RETENTION_S if retention_s is None else retention_s)
    is_young = created_s is not None and created_s >= horizon_s
    if not is_young and known.until_s is not None and known.until_s >= horizon_s:
        return None
    return LossVerdict.MAY_BE_LOST if known.waiting_s is None else LossVerdict.LOST


def risk(
    checkpoint_s: float | None, reading_s: float | None, retention_s: float | None
) -> str | None:
    """A sentence on a shard whose records are about to expire; None = they are not.

    Args:
        checkpoint_s: age of the time until which all is checkpointed; None = unknown.
        reading_s: the same of the read position, after which a record waits; None = none is known
            to wait.
        retention_s: of the stream; None = unknown, and the result is None.
    """
    if retention_s is None:
        return None
    stay = f"records stay for {lasted(retention_s)}"
    if reading_s is not None and reading_s >= RISK * retention_s:
        return (
            f"records are about to expire unread: reading is {lasted(reading_s)} behind, and {stay}. "
            "Raise the retention of the stream, or make the consumer faster"
        )
    if checkpoint_s is not None and checkpoint_s >= RISK * retention_s:
        return (
            f"nothing that arrived in the last {lasted(checkpoint_s)} is checkpointed, and {stay}: a "
            "restart loses what is older. See why the child does not checkpoint"
        )
    return None


#: Besides :func:`sentence`, where the service refused the position.
REFUSED = (
    "DynamoDB Streams refused the first of these positions: it keeps records for some 24 hours"
    " (TrimmedDataAccessException)"
)


def sentence(note: LossNote) -> str:
    """A sentence on a loss, without shard and full stop."""
    lost = "were LOST" if note.is_certain else "MAY BE LOST"
    since = _utc(note.first_s, "read until ")
    until = "no record is left" if note.last is None else f"{note.last} ({_utc(note.last_s)})"
    which = f"those between {note.first} ({since}) and {until}"
    if note.last is None:
        which = f"those after {note.first} ({since}), of which {until}"
    if not note.is_certain:
        which += ", if there were any"
    why = (
        "its shard was gone before it was read to its end"
        if note.cause is PassCause.VANISHED
        else "they were past the retention of the stream before they were read"
    )
    return f"records {lost}: {which}: {why}"


def _utc(epoch_s: float | None, before: str = "") -> str:
    """The time as text, for any value in a row."""
    if epoch_s is None or not 0 <= epoch_s < END_OF_TIME_S:
        return "not known when"
    return before + datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="seconds")


def loss_note(
    verdict: LossVerdict,
    cause: PassCause,
    known: KnownReading,
    at_s: float,
    first: tuple[str | None, float | None],
) -> LossNote:
    """The note of a loss for the row.

    Args:
        at_s: epoch seconds at which it was found.
        first: sequence number and arrival of the next record that can be read.
    """
    return LossNote(
        is_certain=verdict is LossVerdict.LOST,
        cause=cause,
        at_s=at_s,
        first=str(known.position),
        first_s=known.until_s or None,
        last=first[0],
        last_s=at_s if first[1] is None else first[1],
    )


class ReadMarks:
    """Until when a shard was read, for each checkpoint that may still be stored.

    A mark says that all records that arrived before a time are at or below a position. It stays true,
    so any of them may be left out: what is known is then a little less.
    """

    def __init__(self) -> None:
        self._marks: list[ReadNote] = []

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, position: ExtendedSequenceNumber, until_s: float) -> None:
        """Remember one; positions and times rise."""
        marks = self._marks
        if marks and marks[-1].checkpoint.key == position.key:
            until_s = max(until_s, marks.pop().until_s)
        marks.append(ReadNote(until_s, position))
        if len(marks) > MOST_MARKS:
            del marks[1::2]

    def at(self, checkpoint: ExtendedSequenceNumber) -> ReadNote | None:
        """The latest that holds for a checkpoint; None = none is known."""
        found = [mark for mark in self._marks if mark.holds_at(checkpoint)]
        return max(found, key=lambda mark: mark.until_s, default=None)

    def forget_before(self, checkpoint: ExtendedSequenceNumber) -> None:
        """A checkpoint is stored, so that those below the one that holds for it matter no more."""
        best = self.at(checkpoint)
        if best is not None:
            self._marks = [mark for mark in self._marks if mark.checkpoint >= best.checkpoint]
