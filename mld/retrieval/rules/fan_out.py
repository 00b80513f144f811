"""Enhanced fan-out: where a subscription begins, when the next one is due, how much may come.

Source: FanOutRecordsPublisher, FanOutConsumerRegistration, ShardConsumerSubscriber (KCL 3.5.1), and
the limits of SubscribeToShard in the API reference.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from kcl_mld.errors import InUse, LimitExceeded, MalformedData, Throttled
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.retrieval.rules.polling import SMALLEST_ANSWER_BYTES

if TYPE_CHECKING:
    import random

    from kcl_mld.errors import MldError
    from kcl_mld.retrieval.rules.polling import IteratorStart

#: The service refuses another subscription to a shard within so long of an accepted one.
RENEWAL_DISTANCE_S = 5.0
#: Spread over those who wait for that to pass.
_RENEWAL_SPREAD_S = 1.0
#: After a failure that says nothing about load.
_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0
#: What an event is expected to take while its shard is behind: what is pushed in a second, 2 MB of
#: data as base64 text.
LARGEST_EVENT_BYTES = 2_800_000
_GROWTH = 2
_NEAR_TIP_MS = 10_000
#: Events of a shard that wait for its child. Source: the demand of ShardConsumerSubscriber.
MOST_EVENTS = 8


def starting_position(start: IteratorStart) -> dict[str, str | float]:
    """``StartingPosition`` of SubscribeToShard."""
    position: dict[str, str | float] = {"Type": str(start.type)}
    if start.sequence_number is not None:
        position["SequenceNumber"] = start.sequence_number
    if start.timestamp_s is not None:
        position["Timestamp"] = start.timestamp_s
    return position


def renewal_pause_s(
    error: MldError | None, failures: int, since_accepted_s: float | None, rng: random.Random
) -> float:
    """Seconds until a shard is subscribed to again.

    Java tries again every second, whatever the reason.

    Args:
        error: why the last one was refused or ended; None = the service ended it as it should, or
            we gave it up.
        failures: how many failed in a row, that one included.
        since_accepted_s: since the service last accepted one of ours; None = it never did.
    """
    distance_s = 0.0
    if since_accepted_s is not None:
        distance_s = max(0.0, RENEWAL_DISTANCE_S - since_accepted_s)
    match error:
        case None:
            pause_s = 0.0
        case InUse():
            pause_s = RENEWAL_DISTANCE_S + rng.random() * _RENEWAL_SPREAD_S
        case Throttled() | LimitExceeded() | MalformedData():
            attempt = max(0, failures - 1)
            first_s = 2 * _RETRY_S  # of which half is random
            pause_s = backoff_s(attempt, rng, first_s=first_s, cap_s=_LONGEST_RETRY_S)
        case _:
            pause_s = _RETRY_S
    return max(distance_s, pause_s)


def expected_event_bytes(last_bytes: int | None, millis_behind_latest: int | None) -> int:
    """What to reserve for the next event of a shard, in bytes.

    Args:
        last_bytes: size of its last event; None before the first.
        millis_behind_latest: how far behind that one was; None if unknown.
    """
    if last_bytes is None or millis_behind_latest is None or millis_behind_latest > _NEAR_TIP_MS:
        return LARGEST_EVENT_BYTES
    return min(LARGEST_EVENT_BYTES, max(SMALLEST_ANSWER_BYTES, last_bytes * _GROWTH))


class ConsumerStep(Enum):
    """What to do about a registered consumer."""

    REGISTER = auto()
    WAIT = auto()  #: until it is active, or gone
    USE = auto()


def consumer_step(status: object) -> ConsumerStep:
    """The next step of registration.

    Args:
        status: ``ConsumerStatus``; None = there is no such consumer.
    """
    match status:
        case None:
            return ConsumerStep.REGISTER
        case "ACTIVE":
            return ConsumerStep.USE
        case _:
            return ConsumerStep.WAIT
