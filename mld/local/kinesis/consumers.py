"""Registered consumers: register, describe, list, deregister.

Source: Kinesis API reference of the four operations (names, ARNs, states and limits).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mld.local.kinesis.faults import (
    KinesisFault,
    in_use,
    invalid,
    malformed,
    not_found,
    over_limit,
)
from mld.local.kinesis.stream import Consumer
from mld.local.kinesis.tokens import TOKEN_LIFE_S, make_token, read_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.local.kinesis.state import KinesisState
    from mld.local.kinesis.stream import LocalStream

MAX_CONSUMERS = 20
#: Of all streams of the account together.
MAX_CREATING = 5
_CONSUMER_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_CONSUMER_ARN = re.compile(r"(?P<stream>arn:.+)/consumer/(?P<name>[^/:]+):(?P<created_s>\d{1,12})")
_MAX_PAGE = 10_000
_MOST_SHOWN = 100
_KIND = "consumers"


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
