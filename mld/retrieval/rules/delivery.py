"""From the records of a batch to the one line that the child reads.

The order is Java's: expand aggregates, take off the frames of a schema registry if there is one,
drop what the last checkpoint covers, find the largest position handed out, write the line. Data
stays the base64 text that Kinesis sent; only what starts like a KPL aggregate or a frame is looked
into.

The line is byte-equal to what ``protocol.codec`` writes, and ten times faster: batches without
aggregates and without anything to drop (almost all) are never looked at record by record in Python
but for the one structure each that the encoder needs.

Source: ProcessTask.java:119-204, 299-333 (KCL 3.5.1).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mld.kernel.model.sequence import ExtendedSequenceNumber
from mld.retrieval.model.record import LineRecord
from mld.retrieval.model.wire import MS_PER_S, arrival_ms, decode_records
from mld.retrieval.rules.deaggregate import AggregateOutcome, deaggregate, is_aggregated_base64
from mld.retrieval.rules.schema_frame import may_have_frame, unframe

if TYPE_CHECKING:
    from mld.retrieval.model.record import Batch, KinesisRecord
    from mld.retrieval.model.schema import Catalogue
    from mld.retrieval.rules.schema_frame import FailureCount, FailureKey
    from mld.streams.model.shard import HashRange

#: Base64 of the first 30 bits of the KPL magic; the sixth character is one of ``g`` to ``v``.
AGGREGATE_PREFIX = "84maw"
#: Greater than every text with that prefix, and less than most payloads.
_BEHIND_AGGREGATES = AGGREGATE_PREFIX[:-1] + chr(ord(AGGREGATE_PREFIX[-1]) + 1)


class _Line(msgspec.Struct, gc=False, rename="camel"):
    action: str
    records: list[LineRecord]
    millis_behind_latest: int | None


#: Once a line is about so long, the user records of further aggregates wait for the next one: of an
#: answer of 10 MB with records of one byte a single line would have 280 MB. No answer without
#: aggregates becomes so long.
ENOUGH_BYTES = 32 * 2**20
#: Of a record in a line, besides its data.
_RECORD_BYTES = 200
_ENCODER = msgspec.json.Encoder()
_data_of = attrgetter("data")
_tail_of = itemgetter(slice(-2, None))
#: Every escape of a JSON text, so that a backslash that is escaped itself is never taken apart.
_ESCAPE = re.compile(rb"\\(?:u00([01][0-9a-f])|.)", re.DOTALL)


class Missing(NamedTuple):
    """User records of one aggregate that no child gets.

    Attributes:
        records: how many user records.
        why: of those that can't be read, one clause; None = they were left out because of user
            records outside the shard.
    """

    sequence_number: str
    records: int
    why: str | None = None


@dataclass(slots=True)
class RemainingRecords:
    """Records of a batch that wait for a line of their own.

    Attributes:
        lines: expanded, still framed.
        packed: behind these, records of Kinesis that may be aggregates.
        checkpoint: as :func:`deliver` got it; likewise the next three.
    """

    lines: list[LineRecord]
    packed: deque[LineRecord]
    checkpoint: ExtendedSequenceNumber
    hash_range: HashRange | None
    schemas: Catalogue | None
    millis_behind_latest: int | None

    @property
    def size_bytes(self) -> int:
        """Of their data as text."""
        return sum(len(line.data or "") for some in (self.lines, self.packed) for line in some)

    def take(self, missing: list[Missing]) -> list[LineRecord]:
        """The records of the next line, handed over.

        Args:
            missing: gets what is left out.
        """
        lines, self.lines = self.lines, []
        made = 0
        # An unknown schema is looked up before the first line, so that all must be seen there.
        while self.packed and (made < ENOUGH_BYTES or self.schemas is not None):
            expanded = _expand(self.packed.popleft(), self.hash_range, missing)
            made += sum(len(line.data or "") for line in expanded)
            made += len(expanded) * _RECORD_BYTES
            lines += expanded
        return lines


@dataclass(slots=True)
class Delivery:
    """What a batch became.

    Attributes:
        line: the whole ``processRecords`` line; None when there is nothing to deliver.
        records: user records before the checkpoint filter (metric RecordsProcessed).
        kept: user records in the line.
        data_bytes: payload of those.
        smallest: smallest position in the line, None without records.
        largest: likewise.
        versions: ids of the schema versions of its records.
        failures: records that stay framed, by why.
        unknown: records by version id that must be looked up first. If there is any, nothing was
            delivered, and the batch is as it was.
        rest: what did not fit into the line, for :func:`deliver_rest`; None = it is the last one.
    """

    line: bytes | None
    records: int = 0
    kept: int = 0
    data_bytes: int = 0
    smallest: ExtendedSequenceNumber | None = None
    largest: ExtendedSequenceNumber | None = None
    missing: tuple[Missing, ...] = ()
    versions: frozenset[str] = frozenset()
    failures: dict[FailureKey, FailureCount] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)
    rest: RemainingRecords | None = None

    def pop_line(self) -> bytes | None:
        """The line, handed over so that it can be freed as soon as it is written."""
        line, self.line = self.line, None
        return line


def deliver(
    batch: Batch,
    checkpoint: ExtendedSequenceNumber,
    hash_range: HashRange | None,
    *,
    even_if_empty: bool,
    schemas: Catalogue | None = None,
) -> Delivery:
    """The line of one batch, or the first of its lines.

    Args:
        batch: its records are taken: the bytes are freed before the line is written.
        checkpoint: the last one stored; records up to it are dropped.
        hash_range: keys of the shard; aggregates that hold a record of another shard are dropped
            whole, because a KPL sends those again. None = no such filter.
        even_if_empty: deliver a batch without records, too.
        schemas: what is known of the versions of a schema registry; None = frames are left alone.

    Raises:
        MalformedData: the records cannot be read; nothing was delivered.
    """
    untouched = None if schemas is None else batch.records
    records = decode_records(batch.take_records())
    millis_behind_latest = batch.millis_behind_latest
    if not records:
        return Delivery(_line([], millis_behind_latest) if even_if_empty else None)
    payloads = list(map(_data_of, records))
    is_plain = None not in payloads and not _has_aggregate(payloads)
    if is_plain and schemas is not None and not may_have_frame(payloads):
        schemas = None
    if is_plain and schemas is None and _position(records[0].sequence_number) > checkpoint:
        lines = _plain_lines(records)
        delivery = Delivery(None, records=len(records))
        data_bytes = _payload_bytes(payloads)
        del records, payloads, untouched
        return _written(delivery, lines, data_bytes, millis_behind_latest)
    whole = _plain_lines(records)
    del records, payloads
    plain, packed = (whole, deque[LineRecord]()) if is_plain else ([], deque(whole))
    del whole
    rest = RemainingRecords(plain, packed, checkpoint, hash_range, schemas, millis_behind_latest)
    del plain
    delivery = deliver_rest(rest, even_if_empty=even_if_empty)
    if delivery.unknown:
        batch.records = untouched
    return delivery


def deliver_rest(rest: RemainingRecords, *, even_if_empty: bool = False) -> Delivery:
    """The next line of a batch that is too large for one; see :attr:`Delivery.rest`.

    Args:
        rest: of the line before; taken.
        even_if_empty: deliver a line without records, too.
    """
    missing: list[Missing] = []
    lines = rest.take(missing)
    delivery = Delivery(None, missing=tuple(missing), rest=rest if rest.packed else None)
    if rest.schemas is not None:
        unframed = unframe(lines, rest.schemas)
        if unframed.unknown:
            return Delivery(None, unknown=unframed.unknown)
        lines = unframed.lines
        delivery.versions, delivery.failures = unframed.versions, unframed.failures
        if unframed.rest:
            delivery.rest = replace(rest, lines=unframed.rest)
    delivery.records = len(lines)
    lines = _behind(rest.checkpoint, lines)
    if not lines and not even_if_empty:
        return delivery
    data_bytes = _payload_bytes([payload for payload in map(_data_of, lines) if payload])
    return _written(delivery, lines, data_bytes, rest.millis_behind_latest)


def _written(
    delivery: Delivery, lines: list[LineRecord], data_bytes: int, millis_behind_latest: int | None
) -> Delivery:
    delivery.line = _line(lines, millis_behind_latest)
    delivery.kept, delivery.data_bytes = len(lines), data_bytes
    ends = sorted(map(_position_of, _ends(lines)))
    delivery.smallest, delivery.largest = (ends[0], ends[-1]) if ends else (None, None)
    return delivery


def _position(sequence_number: str, sub_sequence_number: int = 0) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(sequence_number, sub_sequence_number)


def _position_of(line: LineRecord) -> ExtendedSequenceNumber:
    return _position(line.sequence_number, line.sub_sequence_number)


def _behind(checkpoint: ExtendedSequenceNumber, lines: list[LineRecord]) -> list[LineRecord]:
    """What follows the checkpoint; Kinesis delivers in order, so only the beginning is compared."""
    done = 0
    while done < len(lines) and _position_of(lines[done]) <= checkpoint:
        done += 1
    return lines[done:] if done else lines


def _ends(lines: list[LineRecord]) -> list[LineRecord]:
    """Kinesis delivers in order: the first or, always in truth, the last record is the largest."""
    return [lines[0], lines[-1]] if lines else []


def _plain_lines(records: list[KinesisRecord]) -> list[LineRecord]:
    """As :func:`_plain` for all, without a call each."""
    try:
        return [
            LineRecord(
                record.data,
                record.partition_key,
                record.sequence_number,
                int(record.approximate_arrival_timestamp * MS_PER_S),  # type: ignore[operator]
            )
            for record in records
        ]
    except (TypeError, ArithmeticError):  # a record without arrival time, or out of range
        return list(map(_plain, records))


def _plain(record: KinesisRecord) -> LineRecord:
    return LineRecord(
        record.data,
        record.partition_key,
        record.sequence_number,
        arrival_ms(record.approximate_arrival_timestamp),
    )


def _has_aggregate(payloads: list[str]) -> bool:
    """Whether any starts with the prefix; comparing first rules out most, and is cheaper."""
    return any(
        payload.startswith(AGGREGATE_PREFIX) for payload in payloads if payload < _BEHIND_AGGREGATES
    )


def _payload_bytes(payloads: list[str]) -> int:
    """Length of the decoded data: three bytes for four characters, less the padding."""
    padding = "".join(map(_tail_of, payloads)).count("=")
    return sum(map(len, payloads)) * 3 // 4 - padding


def _expand(
    plain: LineRecord, hash_range: HashRange | None, missing: list[Missing]
) -> list[LineRecord]:
    """The user records of one Kinesis record."""
    data = _decoded(plain.data)
    if data is None:
        return [plain]
    result = deaggregate(data, plain.partition_key or "", hash_range)
    if result.unreadable:
        missing.append(Missing(plain.sequence_number, result.unreadable, result.error))
    if result.dropped:
        missing.append(Missing(plain.sequence_number, result.dropped))
    if result.outcome is AggregateOutcome.RAW:
        return [plain]
    return [
        LineRecord(
            b64encode(user.data).decode(),
            user.partition_key,
            plain.sequence_number,
            plain.approximate_arrival_timestamp,
            user.sub_sequence_number,
        )
        for user in result.records
    ]


def _decoded(data: str | None) -> bytes | None:
    """The payload of what may be an aggregate; None for all that is certainly none."""
    if data is None or not is_aggregated_base64(data):
        return None
    try:
        return b64decode(data)
    except ValueError:
        return None


def _line(lines: list[LineRecord], millis_behind_latest: int | None) -> bytes:
    line = _Line("processRecords", lines, millis_behind_latest)
    encoded = _ENCODER.encode_lines([line])
    # Jackson writes the hex digits of escapes in upper case. This is where the two can differ.
    # A single byte is searched for at memory speed, the whole escape is not.
    return _ESCAPE.sub(_upper, encoded) if b"\\" in encoded else encoded


def _upper(escape: re.Match[bytes]) -> bytes:
    return b"\\u00" + escape[1].upper() if escape[1] else escape[0]
