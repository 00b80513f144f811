"""What all operations share: settings, time, streams, rate limits, and opaque tokens.

Every limit is a bucket of tokens. Data read may overdraw its bucket: a 10 MB answer is given, and
then the shard refuses until 2 MB/s have paid for it. Source: Kinesis Data Streams developer guide,
"Quotas and limits".

Shard iterators and pages of ListShards are opaque texts that say by themselves what they stand for
and when they were made, so the model keeps no table of them. A checksum tells a mangled one.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kcl_mld.local.kinesis.faults import (
    in_use,
    invalid,
    malformed,
    not_found,
    over_limit,
    throttled,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from kcl_mld.local.kinesis.stream import LocalStream

#: Life of an iterator and of a page token (Kinesis API reference: 5 minutes).
TOKEN_LIFE_S = 300
#: Calls a second per shard (data operations) or per stream (control operations).
SHARD_READS_PER_S = 5
SHARD_ITERATORS_PER_S = 5
SHARD_READ_BYTES_PER_S = 2 * 1024 * 1024
SHARD_WRITES_PER_S = 1000
SHARD_WRITE_BYTES_PER_S = 1024 * 1024
STREAM_CALLS_PER_S = {
    "AddTagsToStream": 5,
    "ListStreams": 5,
    "ListTagsForStream": 5,
    "RemoveTagsFromStream": 5,
    "ListShards": 1000,
    "DescribeStreamSummary": 20,
    "DescribeStream": 10,
    "RegisterStreamConsumer": 5,
    "DescribeStreamConsumer": 20,
    "DeregisterStreamConsumer": 5,
    "ListStreamConsumers": 5,
}
#: Of each consumer and shard.
SUBSCRIBES_PER_S = 1
PUSHED_BYTES_PER_S = 2 * 1024 * 1024


def make_token(kind: str, *fields: object) -> str:
    """A token of that kind; fields may not contain line breaks."""
    text = "\n".join((kind, *map(str, fields))).encode()
    return base64.b64encode(zlib.crc32(text).to_bytes(4, "big") + text).decode()


def read_token(kind: str, token: object) -> list[str] | None:
    """The fields of a token; None when it is not one of that kind."""
    if not isinstance(token, str):
        return None
    try:
        raw = base64.b64decode(token, validate=True)
    except (binascii.Error, ValueError):
        return None
    if zlib.crc32(raw[4:]).to_bytes(4, "big") != raw[:4]:
        return None
    found, *fields = raw[4:].decode().split("\n")
    return fields if found == kind else None


@dataclass(slots=True)
class TokenBucket:
    """Tokens that come back with time.

    Args:
        rate: tokens a second; also what the full bucket holds.
    """

    rate: float
    tokens: float = field(init=False)
    seen_s: float = 0.0

    def __post_init__(self) -> None:
        self.tokens = self.rate

    def refill(self, now_s: float) -> float:
        """Tokens there at ``now_s``; negative while overdrawn."""
        self.tokens = min(self.rate, self.tokens + max(0.0, now_s - self.seen_s) * self.rate)
        self.seen_s = now_s
        return self.tokens

    def spend(self, amount: float, now_s: float) -> bool:
        """Spend ``amount``; False, without spending any, if there is less."""
        if self.refill(now_s) < amount:
            return False
        self.tokens -= amount
        return True


class ServiceLimits:
    """Buckets of all streams and shards; answers None or raises the service's error."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str, str], TokenBucket] = {}

    def forget(self, stream: str) -> None:
        """Start anew for a stream that was deleted."""
        self._buckets = {key: b for key, b in self._buckets.items() if key[1] != stream}

    def control(self, operation: str, stream: str, now_s: float) -> None:
        """Count a control call of the stream (empty: of the account).

        Raises:
            KinesisFault: LimitExceededException when there are too many.
        """
        rate = STREAM_CALLS_PER_S.get(operation)
        if rate is not None and not self._bucket(operation, stream, "", rate).spend(1, now_s):
            whose = f"stream {stream}" if stream else "the account"
            raise over_limit(f"Rate exceeded for {whose}: {operation}.")

    def iterator(self, stream: str, shard_id: str, now_s: float) -> None:
        """Count a GetShardIterator."""
        if not self._bucket("iterator", stream, shard_id, SHARD_ITERATORS_PER_S).spend(1, now_s):
            raise throttled(f"Rate exceeded for shard {shard_id} in stream {stream}.")

    def read(self, stream: str, shard_id: str, now_s: float) -> None:
        """Count a GetRecords before its data are known."""
        data = self._bucket("read bytes", stream, shard_id, SHARD_READ_BYTES_PER_S)
        calls = self._bucket("reads", stream, shard_id, SHARD_READS_PER_S)
        if data.refill(now_s) < 0 or not calls.spend(1, now_s):
            raise throttled(f"Rate exceeded for shard {shard_id} in stream {stream}.")

    def was_read(self, stream: str, shard_id: str, size: int) -> None:
        """Charge the bytes that a GetRecords gave."""
        self._bucket("read bytes", stream, shard_id, SHARD_READ_BYTES_PER_S).tokens -= size

    def subscribe(self, stream: str, consumer_arn: str, shard_id: str, now_s: float) -> None:
        """Count a SubscribeToShard."""
        name = f"{consumer_arn} {shard_id}"
        if not self._bucket("subscribes", stream, name, SUBSCRIBES_PER_S).spend(1, now_s):
            raise over_limit(f"Rate exceeded for consumer {consumer_arn} and shard {shard_id}.")

    def may_push(self, stream: str, consumer_arn: str, shard_id: str, now_s: float) -> bool:
        """Whether the events pushed before leave room for another one."""
        name = f"{consumer_arn} {shard_id}"
        return self._bucket("pushed bytes", stream, name, PUSHED_BYTES_PER_S).refill(now_s) >= 0

    def was_pushed(self, stream: str, consumer_arn: str, shard_id: str, size: int) -> None:
        """Charge the bytes of an event."""
        name = f"{consumer_arn} {shard_id}"
        self._bucket("pushed bytes", stream, name, PUSHED_BYTES_PER_S).tokens -= size

    def may_write(self, stream: str, shard_id: str, size: int, now_s: float) -> bool:
        """Whether the shard takes one more record of ``size`` bytes, which is charged if so."""
        data = self._bucket("write bytes", stream, shard_id, SHARD_WRITE_BYTES_PER_S)
        records = self._bucket("writes", stream, shard_id, SHARD_WRITES_PER_S)
        if data.refill(now_s) < size or not records.spend(1, now_s):
            return False
        data.tokens -= size
        return True

    def _bucket(self, what: str, stream: str, shard_id: str, rate: float) -> TokenBucket:
        key = (what, stream, shard_id)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(rate)
        return bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisSettings:
    """How the model behaves where the service leaves room.

    Attributes:
        account_id: twelve digits, part of every ARN.
        create_s: seconds for which a new stream is CREATING.
        delete_s: seconds for which a deleted stream is DELETING.
        reshard_s: seconds for which a stream is UPDATING before its shards change.
        consumer_create_s: seconds for which a new consumer is CREATING.
        consumer_delete_s: seconds for which a deregistered consumer is DELETING.
        subscription_s: seconds after which a subscription ends.
        takeover_s: seconds after an accepted SubscribeToShard in which the next one of the same
            consumer and shard is refused; later it takes over.
        event_interval_s: seconds between the events of a subscription that has caught up.
        empty_event_s: seconds without an event after which an empty one is sent.
        limits: apply the service's rate limits.
        spare_answer_probability: 0 to 1; how often GetRecords answers with nothing although there
            are records, or gives the end of a shard one call after its last record; the same of
            events. The service does both.
    """

    account_id: str = "123456789012"
    region: str = "us-east-1"
    create_s: float = 0.0
    delete_s: float = 0.0
    reshard_s: float = 0.0
    consumer_create_s: float = 0.0
    consumer_delete_s: float = 0.0
    subscription_s: float = 300.0
    takeover_s: float = 5.0
    event_interval_s: float = 0.2
    empty_event_s: float = 5.0
    limits: bool = False
    spare_answer_probability: float = 0.0


class KinesisState:
    """Streams of one account in one region.

    Args:
        clock: epoch seconds; called once or twice per operation.
        rng: used only where :attr:`KinesisSettings.spare_answer_probability` is above 0.
        settings: behavior; may be replaced at any time.
    """

    def __init__(
        self, clock: Callable[[], float], rng: random.Random, settings: KinesisSettings
    ) -> None:
        self.settings = settings
        self.streams: dict[str, LocalStream] = {}
        self.limits = ServiceLimits()
        self._clock = clock
        self._rng = rng

    def now_s(self) -> float:
        """Epoch seconds."""
        return self._clock()

    def now_ms(self) -> int:
        """Epoch milliseconds, the resolution of arrival times."""
        return int(self._clock() * 1000)

    def is_spared(self) -> bool:
        """Whether this answer of GetRecords holds something back."""
        probability = self.settings.spare_answer_probability
        return probability > 0 and self._rng.random() < probability

    def arn_prefix(self) -> str:
        """What the ARN of every stream here begins with."""
        return f"arn:aws:kinesis:{self.settings.region}:{self.settings.account_id}:stream/"

    def find(self, request: Mapping[str, Any], *, active: bool = True) -> LocalStream:
        """The stream that a request names, with everything due done.

        Raises:
            KinesisFault: ResourceNotFoundException when it does not exist;
                ResourceInUseException when ``active`` and it is neither ACTIVE nor UPDATING.
        """
        return self.named(self._name_in(request), active=active)

    def named(self, name: str, *, active: bool = True) -> LocalStream:
        """As :meth:`find`, for a stream's name."""
        stream = self.streams.get(name)
        if stream is not None:
            stream.settle(self.now_ms())
            stream = self.streams.get(name)
        if stream is None:
            account = self.settings.account_id
            raise not_found(f"Stream {name} under account {account} not found.")
        if active and stream.status not in {"ACTIVE", "UPDATING"}:
            raise in_use(f"Stream {name} is {stream.status}, not ACTIVE or UPDATING.")
        return stream

    def count_call(self, operation: str, stream: str) -> None:
        """Count a control call where limits are on."""
        if self.settings.limits:
            self.limits.control(operation, stream, self.now_s())

    def _name_in(self, request: Mapping[str, Any]) -> str:
        name, arn = request.get("StreamName"), request.get("StreamARN")
        if arn is None:
            if not isinstance(name, str) or not name:
                raise invalid("Either StreamName or StreamARN is required.")
            return name
        if not isinstance(arn, str) or ":stream/" not in arn:
            raise malformed(f"Value '{arn}' at 'streamARN' is not the ARN of a stream.")
        prefix, _, from_arn = arn.partition(":stream/")
        if f"{prefix}:stream/" != self.arn_prefix():
            raise not_found(f"Stream {arn} not found.")
        if name is not None and name != from_arn:
            raise invalid(f"StreamName {name} and StreamARN {arn} name two streams.")
        return from_arn.split("/", 1)[0]
