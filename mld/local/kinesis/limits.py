"""The service's rate limits, off unless asked for.

Every limit is a bucket of tokens. Data read may overdraw its bucket: a 10 MB answer is given, and
then the shard refuses until 2 MB/s have paid for it. Source: Kinesis Data Streams developer guide,
"Quotas and limits".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mld.local.kinesis.faults import over_limit, throttled


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
        """Spend ``amount``; False, and nothing is spent, if it is not there."""
        if self.refill(now_s) < amount:
            return False
        self.tokens -= amount
        return True


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
        """Whether what was pushed before leaves room for another event."""
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
