"""SubscribeToShard: what a subscription sends, and when it ends.

Nothing runs here. Whoever serves a subscription asks it for the next event, and waits
:attr:`LocalSubscription.pause_s` before the next question. Source: Kinesis API reference,
SubscribeToShard and SubscribeToShardEvent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mld.local.kinesis.consumers import find_consumer
from mld.local.kinesis.faults import in_use, malformed, not_found
from mld.local.kinesis.positions import starting_position
from mld.local.kinesis.reading import MAX_RECORDS, children_json, millis_behind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.local.kinesis.faults import KinesisFault
    from mld.local.kinesis.shard import LocalShard
    from mld.local.kinesis.state import KinesisState
    from mld.local.kinesis.stream import Consumer, LocalStream

#: Most bytes of data and partition keys in one event; a longer record comes alone.
MAX_EVENT_BYTES = 1024 * 1024


class LocalSubscription:
    """An accepted SubscribeToShard; made by :func:`subscribe`.

    Attributes:
        is_over: it has ended: behind the last event of the shard, after the configured time, or
            with an error.
        ran_its_time: it has ended because it was as old as a subscription gets.
        pause_s: seconds to wait before :meth:`next_event` is asked again; 0 when there is more.
    """

    def __init__(
        self,
        state: KinesisState,
        stream: LocalStream,
        consumer: Consumer,
        shard: LocalShard,
        position: int,
    ) -> None:
        self.is_over = False
        self.pause_s = 0.0
        self.ran_its_time = False
        self._state = state
        self._stream = stream
        self._consumer = consumer
        self._shard = shard
        self._position = position
        self._opened_s = self._sent_s = state.now_s()

    @property
    def age_s(self) -> float:
        """Seconds since it was accepted."""
        return self._state.now_s() - self._opened_s

    def next_event(self) -> bytes | None:
        """The event that is due: JSON text of a ``SubscribeToShardEvent``.

        Returns:
            None when there is nothing to send now, or never more (:attr:`is_over`).

        Raises:
            KinesisFault: the service ends the subscription with this exception.
        """
        if self.is_over:
            return None
        now_s = self._state.now_s()
        if (fault := self._fault()) is not None:
            self.is_over = True
            raise fault
        settings = self._state.settings
        if self.age_s >= settings.subscription_s:
            self.is_over = self.ran_its_time = True
            return None
        self.pause_s = settings.event_interval_s
        event = self._event(now_s)
        if event is not None:
            self._sent_s = now_s
        return event

    def _fault(self) -> KinesisFault | None:
        state, stream, consumer, shard = self._state, self._stream, self._consumer, self._shard
        stream.settle(state.now_ms())
        if state.streams.get(stream.name) is not stream:
            return not_found(f"Stream {stream.name} was deleted.")
        is_registered = stream.consumers.get(consumer.name) is consumer
        if not is_registered or consumer.gone_ms is not None:
            return not_found(f"Consumer {consumer.arn} was deregistered.")
        if consumer.subscriptions.get(shard.shard_id) is not self:
            return _other_subscription(state, stream, consumer, shard)
        if stream.shards.get(shard.shard_id) is not shard:
            return not_found(f"Shard {shard.shard_id} in stream {stream.name} is gone.")
        return None

    def _event(self, now_s: float) -> bytes | None:
        shard, state = self._shard, self._state
        start = max(self._position, shard.start)
        limits = state.limits if state.settings.limits else None
        names = (self._stream.name, self._consumer.arn, shard.shard_id)
        if limits is not None and not limits.may_push(*names, now_s):
            return None
        stop = shard.slice_end(start, MAX_RECORDS, MAX_EVENT_BYTES)
        ends = not shard.is_open and stop == shard.end
        if stop == start and not ends and now_s - self._sent_s < state.settings.empty_event_s:
            return None
        if state.is_spared():
            # An empty event before the records, or an end behind them.
            stop, ends = (stop if ends else start), ends and stop == start
        if limits is not None:
            limits.was_pushed(*names, shard.bytes_between(start, stop))
        if ends or stop < shard.end or not shard.is_open:
            self.pause_s = 0.0
        self._position, self.is_over = stop, ends
        now_ms = state.now_ms()
        return b'{"Records":[%b],"MillisBehindLatest":%d,%b}' % (
            shard.json_between(start, stop),
            millis_behind(shard, start, stop, now_ms),
            b'"ChildShards":%b' % children_json(self._stream, shard)
            if ends
            else b'"ContinuationSequenceNumber":"%b"' % shard.continuation(stop, now_ms).encode(),
        )


def subscribe(state: KinesisState, request: Mapping[str, Any]) -> LocalSubscription:
    """SubscribeToShard: accept it, or refuse it as the service does."""
    if not isinstance(request.get("ConsumerARN"), str):
        raise malformed("ConsumerARN must not be null.")
    starting = request.get("StartingPosition")
    if not isinstance(starting, dict):
        raise malformed("StartingPosition must not be null.")
    stream, consumer = find_consumer(state, {"ConsumerARN": request["ConsumerARN"]})
    state.named(stream.name)  # refuses while it is neither ACTIVE nor UPDATING
    shard_id, now_s = request.get("ShardId"), state.now_s()
    if state.settings.limits:
        state.limits.subscribe(stream.name, consumer.arn, str(shard_id), now_s)
    if (status := consumer.status(state.now_ms())) != "ACTIVE":
        raise in_use(f"Consumer {consumer.arn} is {status}, not in ACTIVE status.")
    shard = stream.shard(shard_id)
    if shard is None:
        raise not_found(
            f"Shard {shard_id} in stream {stream.name} under account "
            f"{state.settings.account_id} does not exist"
        )
    position = starting_position(
        stream,
        shard,
        now_s,
        kind=starting.get("Type"),
        sequence=starting.get("SequenceNumber"),
        timestamp=starting.get("Timestamp"),
    )
    last = consumer.subscriptions.get(shard.shard_id)
    # One that ran its time is out of the way: with the service's own times it always is.
    if last is not None and not last.ran_its_time and last.age_s < state.settings.takeover_s:
        raise _other_subscription(state, stream, consumer, shard)
    subscription = LocalSubscription(state, stream, consumer, shard, position)
    consumer.subscriptions[shard.shard_id] = subscription
    return subscription


def _other_subscription(
    state: KinesisState, stream: LocalStream, consumer: Consumer, shard: LocalShard
) -> KinesisFault:
    account = state.settings.account_id
    return in_use(
        "Another active subscription exists for this consumer: "
        f"{account}:{stream.name}:{shard.shard_id}:{consumer.name}"
    )
