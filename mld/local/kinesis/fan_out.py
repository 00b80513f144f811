"""Fan-out: registered consumers, what a subscription sends, and when it ends.

Nothing runs here. The server of a subscription asks it for the next event, and waits
:attr:`LocalSubscription.pause_s` before the next question. Source: Kinesis API reference of the
four operations on consumers, SubscribeToShard and SubscribeToShardEvent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kcl_mld.local.kinesis.faults import (
    KinesisFault,
    in_use,
    invalid,
    malformed,
    not_found,
    over_limit,
)
from kcl_mld.local.kinesis.records import (
    MAX_RECORDS_READ as MAX_RECORDS,
    children_json,
    millis_behind,
    starting_position,
)
from kcl_mld.local.kinesis.state import TOKEN_LIFE_S, make_token, read_token
from kcl_mld.local.kinesis.stream import Consumer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.local.kinesis.shard import LocalShard
    from kcl_mld.local.kinesis.state import KinesisState
    from kcl_mld.local.kinesis.stream import LocalStream

MAX_CONSUMERS = 20
#: Of all streams of the account together.
MAX_CREATING = 5
_CONSUMER_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_CONSUMER_ARN = re.compile(r"(?P<stream>arn:.+)/consumer/(?P<name>[^/:]+):(?P<created_s>\d{1,12})")
_MAX_PAGE = 10_000
_MOST_SHOWN = 100
_KIND = "consumers"
#: Most bytes of data and partition keys in one event; a longer record comes alone.
MAX_EVENT_BYTES = 1024 * 1024


def register_stream_consumer(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """RegisterStreamConsumer: CREATING first, ACTIVE after the configured time."""
    name = request.get("ConsumerName")
    if not isinstance(name, str) or not _CONSUMER_NAME.fullmatch(name):
        raise malformed("ConsumerName must have 1 to 128 letters, digits, _ . or -.")
    stream = _of_arn(state, request)
    state.count_call("RegisterStreamConsumer", "")  # of the account
    if name in stream.consumers:
        raise in_use(f"Consumer {name} of stream {stream.name} already exists.")
    if len(stream.consumers) >= MAX_CONSUMERS:
        raise over_limit(f"Stream {stream.name} already has {MAX_CONSUMERS} consumers.")
    now_ms = state.now_ms()
    everybody = (c for each in state.streams.values() for c in each.consumers.values())
    if sum(c.status(now_ms) == "CREATING" for c in everybody) >= MAX_CREATING:
        raise over_limit(f"{MAX_CREATING} consumers are being created already.")
    arn = f"{stream.arn}/consumer/{name}:{now_ms // 1000}"
    active_ms = now_ms + int(state.settings.consumer_create_s * 1000)
    consumer = Consumer(name, arn, now_ms, active_ms)
    stream.consumers[name] = consumer
    shown = _shown(state, consumer)
    # The answer is from before the change, however short that is.
    return {"Consumer": {**shown, "ConsumerStatus": "CREATING"}}


def adopt_consumer(state: KinesisState, arn: str) -> None:
    """Have a consumer of exactly that ARN, ACTIVE, as if registered in the second that it names.

    Raises:
        KinesisFault: it is no such ARN, or of no stream that is here.
    """
    found = _CONSUMER_ARN.fullmatch(arn)
    if found is None:
        raise malformed(f"'{arn}' is not the ARN of a consumer.")
    stream = _of_arn(state, {"StreamARN": found["stream"]})
    created_ms = int(found["created_s"]) * 1000
    stream.consumers[found["name"]] = Consumer(found["name"], arn, created_ms, created_ms)


def describe_stream_consumer(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """DescribeStreamConsumer, by consumer ARN or by stream ARN and name."""
    stream, consumer = find_consumer(state, request)
    state.count_call("DescribeStreamConsumer", stream.name)
    return {"ConsumerDescription": {**_shown(state, consumer), "StreamARN": stream.arn}}


def deregister_stream_consumer(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """DeregisterStreamConsumer: DELETING for the configured time, then gone."""
    stream, consumer = find_consumer(state, request)
    state.count_call("DeregisterStreamConsumer", stream.name)
    if consumer.gone_ms is None:
        consumer.gone_ms = state.now_ms() + int(state.settings.consumer_delete_s * 1000)
        stream.settle(state.now_ms())
    return {}


def list_stream_consumers(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """ListStreamConsumers: names in order, at most 100 a page."""
    stream = _of_arn(state, request)
    state.count_call("ListStreamConsumers", stream.name)
    size = request.get("MaxResults", _MOST_SHOWN)
    if not isinstance(size, int) or not 1 <= size <= _MAX_PAGE:
        raise malformed(f"Value '{size}' at 'maxResults' must be between 1 and {_MAX_PAGE}.")
    after = _page_start(stream, request.get("NextToken"), state.now_ms())
    if after and "StreamCreationTimestamp" in request:
        raise invalid("NextToken cannot be used with StreamCreationTimestamp.")
    names = sorted(name for name in stream.consumers if name > after)
    shown = names[: min(size, _MOST_SHOWN)]
    answer: dict[str, Any] = {"Consumers": [_shown(state, stream.consumers[n]) for n in shown]}
    if len(names) > len(shown):
        answer["NextToken"] = make_token(_KIND, stream.arn, state.now_ms(), shown[-1])
    return answer


def find_consumer(state: KinesisState, request: Mapping[str, Any]) -> tuple[LocalStream, Consumer]:
    """The consumer that a request names, by ``ConsumerARN`` or ``StreamARN`` and ``ConsumerName``.

    Raises:
        KinesisFault: ResourceNotFoundException when there is none, also for the ARN of an earlier
            consumer of that name; InvalidArgumentException when the request names two or none.
    """
    arn, name = request.get("ConsumerARN"), request.get("ConsumerName")
    if arn is None:
        if not isinstance(name, str) or "StreamARN" not in request:
            raise invalid("Either ConsumerARN or StreamARN and ConsumerName are required.")
        stream = _of_arn(state, request)
    else:
        stream_arn, found, rest = str(arn).partition("/consumer/")
        if not found:
            raise malformed(f"Value '{arn}' at 'consumerARN' is not the ARN of a consumer.")
        from_arn = rest.rpartition(":")[0]
        if request.get("StreamARN", stream_arn) != stream_arn or (name or from_arn) != from_arn:
            raise invalid(f"ConsumerARN {arn} and the rest of the request name two consumers.")
        stream, name = state.find({"StreamARN": stream_arn}, active=False), from_arn
    consumer = stream.consumers.get(name)
    if consumer is None or arn not in {None, consumer.arn}:
        raise not_found(f"Consumer {arn or name} of stream {stream.name} not found.")
    return stream, consumer


def _of_arn(state: KinesisState, request: Mapping[str, Any]) -> LocalStream:
    if "StreamARN" not in request:
        raise malformed("StreamARN must not be null.")
    return state.find({"StreamARN": request["StreamARN"]})


def _page_start(stream: LocalStream, token: object, now_ms: int) -> str:
    if token is None:
        return ""
    fields = read_token(_KIND, token)
    if fields is None or fields[0] != stream.arn:
        raise invalid("NextToken is invalid.")
    if now_ms - int(fields[1]) > TOKEN_LIFE_S * 1000:
        raise KinesisFault("ExpiredNextTokenException", "NextToken has expired.")
    return fields[2]


def _shown(state: KinesisState, consumer: Consumer) -> dict[str, Any]:
    return {
        "ConsumerName": consumer.name,
        "ConsumerARN": consumer.arn,
        "ConsumerStatus": consumer.status(state.now_ms()),
        "ConsumerCreationTimestamp": consumer.created_ms / 1000,
    }


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
