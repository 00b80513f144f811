"""From the records of a batch to the one line that the child reads.

The order is Java's: expand aggregates, take off the frames of a schema registry if there is one,
drop what the last checkpoint covers, find the largest position handed out, write the line. Data
stays the base64 text that Kinesis sent; only what starts like a KPL aggregate or a frame is looked
into.

Batches without aggregates and without anything to drop (almost all) are never looked at record by
record in Python but for the one structure each that the encoder needs.

Source: ProcessTask.java:119-204, 299-333 (KCL 3.5.1).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.children.rules.line import data_bytes, ends_of, line_of, lines_behind, payload_bytes
from kcl_mld.children.rules.routing import split
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.retrieval.model.record import LineRecord
from kcl_mld.retrieval.model.wire import MS_PER_S, arrival_ms, decode_records
from kcl_mld.retrieval.rules.deaggregate import AggregateOutcome, deaggregate, is_aggregated_base64
from kcl_mld.retrieval.rules.schema_frame import may_have_frame, unframe

if TYPE_CHECKING:
    from kcl_mld.children.rules.routing import Part, Route
    from kcl_mld.retrieval.model.record import Batch, KinesisRecord
    from kcl_mld.retrieval.model.schema import Catalogue
    from kcl_mld.retrieval.rules.schema_frame import FailureCount, FailureKey
    from kcl_mld.streams.model.shard import HashRange

#: Base64 of the first 30 bits of the KPL magic; the sixth character is one of ``g`` to ``v``.
AGGREGATE_PREFIX = "84maw"
#: Greater than every text with that prefix, and less than most payloads.
_BEHIND_AGGREGATES = AGGREGATE_PREFIX[:-1] + chr(ord(AGGREGATE_PREFIX[-1]) + 1)


#: Once a line is about so long, the user records of further aggregates wait for the next one: of an
#: answer of 10 MB with records of one byte a single line would have 280 MB. No answer without
#: aggregates becomes so long.
ENOUGH_BYTES = 32 * 2**20
#: Of a record in a line, besides its data.
_RECORD_BYTES = 200
_data_of = attrgetter("data")


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
        checkpoint: as :func:`deliver` got it; likewise the next four. Another route may be set for
            the next line.
    """

    lines: list[LineRecord]
    packed: deque[LineRecord]
    checkpoint: ExtendedSequenceNumber
    hash_range: HashRange | None
    schemas: Catalogue | None
    millis_behind_latest: int | None
    route: Route | None = None

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
        line: the whole ``processRecords`` line; None when there is nothing to deliver, and with a
            route.
        records: user records before the checkpoint filter (metric RecordsProcessed).
        kept: user records in the line; with a route also those that no child gets now. Likewise
            the next three.
        data_bytes: payload of those.
        smallest: smallest position in the line, None without records.
        largest: likewise.
        versions: ids of the schema versions of its records.
        failures: records that stay framed, by why.
        unknown: records by version id that must be looked up first. If there is any, nothing was
            delivered, and the batch is as it was.
        rest: what did not fit into the line, for :func:`deliver_rest`; None = it is the last one.
        parts: with a route, the line as its children get it, by child; empty without records.
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
    parts: tuple[Part, ...] = ()

    def pop_line(self) -> bytes | None:
        """The line, handed over so that it can be freed as soon as it is written."""
        line, self.line = self.line, None
        return line

    def pop_parts(self) -> tuple[Part, ...]:
        """The parts, handed over likewise."""
        parts, self.parts = self.parts, ()
        return parts


def deliver(
    batch: Batch,
    checkpoint: ExtendedSequenceNumber,
    hash_range: HashRange | None,
    *,
    even_if_empty: bool,
    schemas: Catalogue | None = None,
    route: Route | None = None,
) -> Delivery:
    """The line of one batch, or the first of its lines.

    Args:
        batch: its records are taken: the bytes are freed before the line is written.
        checkpoint: the last one stored; records up to it are dropped.
        hash_range: keys of the shard; aggregates that hold a record of another shard are dropped
            whole, because a KPL sends those again. None = no such filter.
        even_if_empty: deliver a batch without records, too.
        schemas: what is known of the versions of a schema registry; None = frames are left alone.
        route: splits each line among several children; None = there is one.

    Raises:
        MalformedData: the records cannot be read; nothing was delivered.
    """
    untouched = None if schemas is None else batch.records
    records = decode_records(batch.take_records())
    millis_behind_latest = batch.millis_behind_latest
    if not records:
        has_line = even_if_empty and route is None
        return Delivery(line_of([], millis_behind_latest) if has_line else None)
    payloads = list(map(_data_of, records))
    is_plain = None not in payloads and not _has_aggregate(payloads)
    if is_plain and schemas is not None and not may_have_frame(payloads):
        schemas = None
    if is_plain and schemas is None and _first(records) > checkpoint:
        lines = _plain_lines(records)
        delivery = Delivery(None, records=len(records))
        if route is not None:
            del records, payloads, untouched
            return _split(delivery, lines, route, millis_behind_latest)
        payload = payload_bytes(payloads)
        del records, payloads, untouched
        return _written(delivery, lines, payload, millis_behind_latest)
    whole = _plain_lines(records)
    del records, payloads
    plain, packed = (whole, deque[LineRecord]()) if is_plain else ([], deque(whole))
    del whole
    rest = RemainingRecords(
        plain, packed, checkpoint, hash_range, schemas, millis_behind_latest, route
    )
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
    lines = lines_behind(rest.checkpoint, lines)
    if not lines and not even_if_empty:
        return delivery
    if rest.route is not None:
        return _split(delivery, lines, rest.route, rest.millis_behind_latest)
    return _written(delivery, lines, data_bytes(lines), rest.millis_behind_latest)


def _written(
    delivery: Delivery, lines: list[LineRecord], payload: int, millis_behind_latest: int | None
) -> Delivery:
    delivery.line = line_of(lines, millis_behind_latest)
    delivery.kept, delivery.data_bytes = len(lines), payload
    if lines:
        delivery.smallest, delivery.largest = ends_of(lines)
    return delivery


def _split(
    delivery: Delivery, lines: list[LineRecord], route: Route, millis_behind_latest: int | None
) -> Delivery:
    """As :func:`_written`, for several children."""
    if not lines:
        return delivery
    smallest, largest = ends_of(lines)
    delivery.parts = parts = split(lines, route, smallest, largest, millis_behind_latest)
    delivery.kept, delivery.smallest, delivery.largest = len(lines), smallest, largest
    is_whole = sum(part.records for part in parts) == len(lines)
    delivery.data_bytes = sum(part.data_bytes for part in parts) if is_whole else data_bytes(lines)
    return delivery


def _first(records: list[KinesisRecord]) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(records[0].sequence_number)


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
