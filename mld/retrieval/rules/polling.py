"""When to ask a shard for records, and from where.

Source: KinesisSleepTimeController, PrefetchRecordsPublisher, IteratorBuilder (KCL 3.5.1);
DynamoDBStreamsSleepTimeController (dynamodb-streams-kinesis-adapter 2.3.0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.sequence import TRIM_HORIZON, Sentinel, without_leading_zeros

if TYPE_CHECKING:
    from kcl_mld.config.config import RetrievalConfig
    from kcl_mld.config.stream import SourceTraits
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber

#: Subtracted from our clock when an expired LATEST iterator is replaced by a timestamp: a clock
#: that runs ahead of the service by less than this loses nothing, at the price of a few records
#: older than the start. botocore 1.36 cuts times off to whole seconds: that begins earlier, too.
LATEST_MARGIN_S = 10.0
#: With ``idleBackoff`` a shard without records is read at least so often.
IDLE_BACKOFF_S = 5.0
_MOST_DOUBLINGS = 16
#: What an answer is expected to take before any was seen: the largest one there is, 10 MB of data
#: as base64 text with its field names. It keeps a restart with many full shards within the limit.
LARGEST_ANSWER_BYTES = 14 * 2**20
#: Least expected size of an answer.
SMALLEST_ANSWER_BYTES = 64 * 1024
#: An answer is expected to be at most this many times as large as the last one of its shard.
_GROWTH = 2
#: A shard that is less than this behind has no large answer in store.
_NEAR_TIP_S = 10.0


class IteratorType(StrEnum):
    """``ShardIteratorType`` of GetShardIterator."""

    TRIM_HORIZON = "TRIM_HORIZON"
    LATEST = "LATEST"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
    AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"


@dataclass(frozen=True, slots=True)
class IteratorStart:
    """Where an iterator begins.

    Attributes:
        sequence_number: for the two SEQUENCE_NUMBER types.
        timestamp_s: epoch seconds, for AT_TIMESTAMP.
    """

    type: IteratorType
    sequence_number: str | None = None
    timestamp_s: float | None = None

    @property
    def fits_any_stream(self) -> bool:
        """Whether a stream that was created again under the same name would take it, too."""
        return self.sequence_number is None

    def request(self) -> dict[str, str | float]:
        """The parameters of GetShardIterator."""
        parameters: dict[str, str | float] = {"ShardIteratorType": str(self.type)}
        if self.sequence_number is not None:
            parameters["StartingSequenceNumber"] = self.sequence_number
        if self.timestamp_s is not None:
            parameters["Timestamp"] = self.timestamp_s
        return parameters


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """How far a shard was fetched, as far as a new iterator must know.

    Attributes:
        checkpoint: where reading started.
        last_received: sequence number of the last record received, None before the first.
        latest_since_s: epoch seconds of our first LATEST iterator, None if there was none.
    """

    checkpoint: ExtendedSequenceNumber
    last_received: str | None = None
    latest_since_s: float | None = None


def iterator_start(
    position: ReadPosition, initial_timestamp_s: float | None, traits: SourceTraits
) -> IteratorStart:
    """Where a first or a replaced iterator begins.

    A sequence number is read AT until a record was received, because a checkpoint may lie inside
    an aggregated record, and AFTER from then on. Java reads AFTER from the second iterator on,
    and so skips the rest of such a record, or, at LATEST, all that came in between.

    Args:
        initial_timestamp_s: the configured time of an AT_TIMESTAMP start; without one (the
            configuration changed since the lease was made) reading starts at TRIM_HORIZON.
        traits: without aggregates a checkpoint is always read AFTER, as it was stored: AT would fail
            where that record has just expired, although nothing is lost.
    """
    if position.last_received is not None:
        return IteratorStart(IteratorType.AFTER_SEQUENCE_NUMBER, position.last_received)
    match position.checkpoint.sentinel:
        case Sentinel.LATEST if position.latest_since_s is not None:
            since_s = position.latest_since_s - LATEST_MARGIN_S
            return IteratorStart(IteratorType.AT_TIMESTAMP, timestamp_s=since_s)
        case Sentinel.LATEST:
            return IteratorStart(IteratorType.LATEST)
        case Sentinel.AT_TIMESTAMP if initial_timestamp_s is not None:
            return IteratorStart(IteratorType.AT_TIMESTAMP, timestamp_s=initial_timestamp_s)
        case Sentinel.AT_TIMESTAMP | Sentinel.TRIM_HORIZON:
            return IteratorStart(IteratorType.TRIM_HORIZON)
        case _:
            return _at_number(position.checkpoint.sequence_number, traits)


def range_start(first: ExtendedSequenceNumber, traits: SourceTraits) -> IteratorStart:
    """Where records are read again, the one at ``first`` included."""
    if traits.has_aggregates or first.sentinel is not None:
        return iterator_start(ReadPosition(first), None, traits)
    return IteratorStart(IteratorType.AT_SEQUENCE_NUMBER, first.sequence_number)


def _at_number(number: str, traits: SourceTraits) -> IteratorStart:
    if not traits.has_aggregates:
        return IteratorStart(IteratorType.AFTER_SEQUENCE_NUMBER, number)
    return IteratorStart(IteratorType.AT_SEQUENCE_NUMBER, without_leading_zeros(number))


def begun_earlier(position: ReadPosition, step_s: float) -> ReadPosition | None:
    """Where to begin when the time at which LATEST began is refused as one that is yet to come.

    Our clock was more than :data:`LATEST_MARGIN_S` ahead of the service's. How much is not known, so
    the caller doubles the step until a time is accepted: what came since the start is read, and
    no more than twice the difference of what is older.

    Args:
        step_s: seconds to go back.

    Returns:
        None if the position is no time at which LATEST began.
    """
    is_latest = position.checkpoint.sentinel is Sentinel.LATEST and position.last_received is None
    if not is_latest or position.latest_since_s is None:
        return None
    return replace(position, latest_since_s=max(0.0, position.latest_since_s - step_s))


def after_expiry(position: ReadPosition) -> ReadPosition | None:
    """Where to go on when the records at a position have expired: at the oldest that is left.

    Returns:
        None if that is where reading began.
    """
    if position.last_received is None and position.checkpoint == TRIM_HORIZON:
        return None
    return replace(position, checkpoint=TRIM_HORIZON, last_received=None)


#: A closed shard whose oldest records are refused as expired for this long has none.
EXPIRED_S = 60.0
#: Longest pause before it is asked again.
_REFUSED_S = 10.0


def refused_pause_s(config: RetrievalConfig, refusals: int) -> float:
    """Seconds to sleep while even the oldest records of a shard are refused as expired.

    Args:
        refusals: in a row, >= 1; each doubles the idle time, up to ten seconds.
    """
    doublings = min(refusals - 1, _MOST_DOUBLINGS)
    return max(config.idle_s, min(config.idle_s * (1 << doublings), _REFUSED_S))


def is_catching_up(config: RetrievalConfig, behind_s: float | None) -> bool:
    """Whether a shard is read more often because it is far behind.

    Args:
        behind_s: how far behind the tip the last answer was, or how old its last record; None =
            unknown, as after an answer without records.
    """
    return config.catch_up and behind_s is not None and behind_s > config.catch_up_behind_s


def pause_s(
    config: RetrievalConfig,
    since_success_s: float | None,
    behind_s: float | None,
    empty_reads: int = 0,
    empty_pauses: int = 1,
) -> float:
    """Seconds to sleep before the next GetRecords of a shard (never before its first).

    Args:
        config: ``idle_s``, ``idle_backoff``, ``reduced_tps_threshold_s`` and the mode of
            :func:`is_catching_up`.
        since_success_s: since the end of the previous call; None when that failed. A negative
            value (a clock that stepped back) counts by its distance.
        behind_s: how far behind the tip that call was, None if unknown.
        empty_reads: answers without records at the tip, one after the other, that one included.
        empty_pauses: idle times after such an answer.
    """
    if since_success_s is None:
        return config.idle_s
    since_s = abs(since_success_s)
    idle_s = config.idle_s * (empty_pauses if empty_reads else 1)
    if is_catching_up(config, behind_s):
        idle_s /= config.catch_up_factor
    if config.idle_backoff and empty_reads:
        longer_s = idle_s * 2 ** min(empty_reads - 1, _MOST_DOUBLINGS)
        idle_s = max(idle_s, min(longer_s, IDLE_BACKOFF_S))
    pause = max(0.0, idle_s - since_s)
    if behind_s is not None and behind_s < config.reduced_tps_threshold_s:
        pause = max(pause, config.reduced_tps_threshold_s - since_s)
    return pause


def may_prefetch(
    config: RetrievalConfig,
    batches: int,
    size_bytes: int,
    records: int,
    *,
    is_wanted: bool,
    most: int | None = None,
) -> bool:
    """Whether another batch of a shard may come.

    Args:
        config: the three gates; ``max_pending`` 0 = no read-ahead.
        batches: waiting for delivery.
        size_bytes: payload in them.
        records: number in them.
        is_wanted: whether the consumer is waiting for data right now.
        most: batches that may wait; None = ``max_pending``.
    """
    if config.max_pending == 0:
        return is_wanted and batches == 0
    return batches == 0 or (
        records < config.max_pending_records
        and size_bytes < config.max_pending_bytes
        and batches < (config.max_pending if most is None else most)
    )


def expected_bytes(last_bytes: int, behind_s: float | None, of_others: int) -> int:
    """Bytes to reserve for the next answer of a shard.

    Args:
        behind_s: how far behind the tip that answer was, None if unknown.
        of_others: what an answer for a shard without history is expected to take. A shard that is
            far behind may have as much in store, whatever it answered last.

    Returns:
        From 64 KiB to 14 MiB.
    """
    expected = max(SMALLEST_ANSWER_BYTES, last_bytes * _GROWTH)
    if behind_s is None or behind_s > _NEAR_TIP_S:
        expected = max(expected, of_others)
    return min(expected, LARGEST_ANSWER_BYTES)
