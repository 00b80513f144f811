"""A batch that a child fails on.

What is sent next, what counts as an attempt, what is dead-lettered.

Everything since the checkpoint is sent again to the next child. Only the end of the failed batch is
halved, so that a failing record is found without changing the order or leaving a gap. When the end
can't be halved any further, attempts count; when they are used up, it becomes a dead letter.

Lines are cut as bytes: records are never encoded again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from kcl_mld.errors import ChildReported, ChildTimedOut, ProcessorRaised
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.leases.model.containment import FailureNote, PositionRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcl_mld.config.contain_config import ContainConfig
    from kcl_mld.errors import ChildFailed

#: Dead letters of a shard are counted for this long, not counting the time of attempts: with ten
#: attempts a record takes minutes, and a shard whose records all fail would never be put on hold.
LIMIT_WINDOW_MS = 300_000
#: Version of the dead-letter document.
DOCUMENT_VERSION = 1


class LineEntry(msgspec.Struct, gc=False, rename="camel"):
    """The fields of a record that containment reads."""

    sequence_number: str
    sub_sequence_number: int = 0
    approximate_arrival_timestamp: int | None = None
    schema_version_id: str | None = None

    @property
    def position(self) -> ExtendedSequenceNumber:
        """Position in its shard."""
        return ExtendedSequenceNumber(self.sequence_number, self.sub_sequence_number)


class _RawLine(msgspec.Struct, gc=False, rename="camel"):
    action: str
    records: list[msgspec.Raw]
    millis_behind_latest: int | None


_LINE = msgspec.json.Decoder(_RawLine)
_ENTRY = msgspec.json.Decoder(LineEntry)
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class LinePart:
    """A line for the child, and the largest position in it."""

    line: bytes
    largest: ExtendedSequenceNumber


def entries_of(line: bytes) -> list[LineEntry]:
    """The records of a ``processRecords`` line."""
    return [_ENTRY.decode(raw) for raw in _LINE.decode(line).records]


def cut(
    line: bytes, suspects: PositionRange | None, skipped: Sequence[PositionRange]
) -> list[LinePart]:
    """The lines to send instead of one: dead-lettered records left out, suspects in their own line.

    Args:
        line: ``processRecords``, with its end.
        suspects: records before and after them get lines of their own.
    """
    whole = _LINE.decode(line)
    groups: dict[int, list[tuple[msgspec.Raw, ExtendedSequenceNumber]]] = {}
    for raw in whole.records:
        position = _ENTRY.decode(raw).position
        if any(one.holds(position) for one in skipped):
            continue
        place = 0 if suspects is None else (position > suspects.last) - (position < suspects.first)
        groups.setdefault(place, []).append((raw, position))
    return [
        LinePart(
            _ENCODER.encode_lines(
                [_RawLine(whole.action, [raw for raw, _ in some], whole.millis_behind_latest)]
            ),
            some[-1][1],
        )
        for _, some in sorted(groups.items())
    ]


@dataclass(frozen=True, slots=True)
class FailedLine:
    """A line on which a child failed before it answered.

    Attributes:
        largest_before: the largest position that this child had been given before.
        took_ms: from the line to the failure.
        stderr: its last stderr output; None = it was not kept.
    """

    line: bytes
    error: ChildFailed
    largest_before: ExtendedSequenceNumber
    took_ms: int = 0
    stderr: str | None = None


class Next(Enum):
    """What follows a failure."""

    HALVED = "halved"
    ATTEMPT = "attempt"
    LETTER = "letter"


@dataclass(frozen=True, slots=True)
class FailureJudgement:
    """What follows a failure, and what to store before the next attempt.

    Attributes:
        entries: the suspects, at least one.
        reason: for the dead-letter document.
        may_checkpoint: the child has checkpointed all that it was given before the suspects.
    """

    next: Next
    note: FailureNote
    entries: tuple[LineEntry, ...]
    reason: str
    may_checkpoint: bool
    is_aggregated: bool = False


def judge(
    failed: FailedLine,
    note: FailureNote,
    checkpoint: ExtendedSequenceNumber,
    config: ContainConfig,
    most_attempts: int,
    now_ms: int,
) -> FailureJudgement | None:
    """What follows the failure of a line.

    Args:
        note: of the shard so far.
        checkpoint: the last one stored, perhaps in the middle of the line.
        most_attempts: failures that are followed by another attempt.
        now_ms: epoch milliseconds.

    Returns:
        None = the child has confirmed every record of the line: none caused the failure.
    """
    entries = entries_of(failed.line)
    open_ones = [one for one in entries if one.position > checkpoint]
    if not open_ones:
        return None
    named = _named(open_ones, failed.error)
    chosen = open_ones if named is None else [named]
    is_final = len(chosen) == 1 or not config.bisects
    if not is_final:
        chosen = chosen[: len(chosen) // 2]
    suspects = PositionRange(chosen[0].position, chosen[-1].position)
    before = note.behind(checkpoint).suspects
    is_known = (
        before is not None and suspects.first <= before.last and before.first <= suspects.last
    )
    attempts = (note.attempts if is_known else 0) + 1 if is_final else 0
    noted = replace(
        note,
        suspects=suspects,
        attempts=attempts,
        since_ms=note.since_ms if is_known else now_ms,
        letters_ms=note.letters_ms if is_known else _later(note.letters_ms, failed.took_ms),
        held=None,
    )
    is_old = config.max_record_age_s is not None and _is_older(
        chosen, now_ms - config.max_record_age_s * 1000
    )
    follows = Next.HALVED
    if is_final:
        follows = Next.LETTER if is_old or attempts > most_attempts else Next.ATTEMPT
    earlier = [one.position for one in entries if one.position < suspects.first]
    numbers = Counter(one.sequence_number for one in entries)
    return FailureJudgement(
        follows,
        noted,
        tuple(chosen),
        "age" if is_old and attempts <= most_attempts else reason_of(failed.error),
        max([failed.largest_before, *earlier]) <= checkpoint,
        any(one.sub_sequence_number or numbers[one.sequence_number] > 1 for one in chosen),
    )


def _named(open_ones: Sequence[LineEntry], error: ChildFailed) -> LineEntry | None:
    """The record that the child itself named, if it is in the line."""
    if not isinstance(error, ChildReported) or error.sequence_number is None:
        return None
    wanted = error.sequence_number, error.sub_sequence_number
    return next(
        (one for one in open_ones if (one.sequence_number, one.sub_sequence_number) == wanted), None
    )


def _is_older(entries: Sequence[LineEntry], than_ms: float) -> bool:
    """Whether all of them arrived before a time; a record without a time did not."""
    return all(
        one.approximate_arrival_timestamp is not None
        and one.approximate_arrival_timestamp < than_ms
        for one in entries
    )


def reason_of(error: ChildFailed) -> str:
    """For the document: how a child failed."""
    code = error.child_exit_code
    match error:
        case ChildReported():
            return "status"
        case ProcessorRaised():
            return "exception"
        case ChildTimedOut():
            return "timeout"
        case _ if code is None:
            return "protocol"
        case _:
            return "signal" if code < 0 else "exit"


def is_over_limit(note: FailureNote, limit: int) -> bool:
    """Whether a shard had reached its limit of dead letters when the suspects began to fail."""
    return len(_recent(note)) >= limit


def _recent(note: FailureNote) -> tuple[int, ...]:
    return tuple(one for one in note.letters_ms if one > note.since_ms - LIMIT_WINDOW_MS)


def _later(letters_ms: tuple[int, ...], by_ms: int) -> tuple[int, ...]:
    """The letters' times shifted by the time of attempts, so that attempts don't age them."""
    return tuple(one + max(0, by_ms) for one in letters_ms)


def after_letter(note: FailureNote, now_ms: int) -> FailureNote:
    """The note after a letter was stored: there are no suspects any more."""
    return FailureNote(letters_ms=(*_later(_recent(note), now_ms - note.since_ms), now_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts:
    """The source of a dead letter.

    Attributes:
        stream_created_at: as the service returns it, epoch seconds; None = unknown.
    """

    application: str
    stream_name: str
    stream_arn: str | None
    stream_created_at: float | None
    shard_id: str
    lease_key: str
    worker_id: str
    lease_counter: int

    def letter_id(self, suspects: PositionRange) -> str:
        """An id that is the same for the same records, whichever worker writes it.

        However often.
        """
        named = (
            self.application,
            self.stream_arn,
            self.stream_created_at,
            self.shard_id,
            str(suspects.first),
            str(suspects.last),
        )
        return hashlib.sha256("\n".join(map(str, named)).encode()).hexdigest()


def letter(
    facts: LetterFacts,
    failed: FailedLine,
    judged: FailureJudgement,
    now_ms: int,
    *,
    with_records: bool,
) -> dict[str, Any]:
    """The document of a dead letter.

    Args:
        with_records: include the records as the child got them.
    """
    chosen, note, code = judged.entries, judged.note, failed.error.child_exit_code
    first, last = chosen[0].position, chosen[-1].position
    arrivals = [
        one.approximate_arrival_timestamp
        for one in chosen
        if one.approximate_arrival_timestamp is not None
    ]
    schemas = {one.schema_version_id for one in chosen}
    document: dict[str, Any] = {
        "version": DOCUMENT_VERSION,
        "id": facts.letter_id(PositionRange(first, last)),
        "application": facts.application,
        "streamName": facts.stream_name,
        "streamArn": facts.stream_arn,
        "streamCreatedAt": facts.stream_created_at,
        "shardId": facts.shard_id,
        "leaseKey": facts.lease_key,
        "firstSequenceNumber": first.sequence_number,
        "firstSubSequenceNumber": first.sub_sequence_number,
        "lastSequenceNumber": last.sequence_number,
        "lastSubSequenceNumber": last.sub_sequence_number,
        "recordCount": len(chosen),
        "aggregated": judged.is_aggregated,
        "firstArrivalMillis": min(arrivals, default=None),
        "lastArrivalMillis": max(arrivals, default=None),
        "reason": judged.reason,
        "message": failed.error.why,
        "exitCode": code if code is not None and code >= 0 else None,
        "signal": -code if code is not None and code < 0 else None,
        "attempts": note.attempts,
        "firstFailedAtMillis": note.since_ms,
        "deadLetteredAtMillis": now_ms,
        "workerId": facts.worker_id,
        "leaseCounter": facts.lease_counter,
        "schemaVersionId": schemas.pop() if len(schemas) == 1 else None,
    }
    if failed.stderr is not None:
        document["stderrTail"] = failed.stderr
    if with_records:
        suspects = PositionRange(first, last)
        document["records"] = [
            msgspec.json.decode(raw)
            for raw in _LINE.decode(failed.line).records
            if suspects.holds(_ENTRY.decode(raw).position)
        ]
    return document
