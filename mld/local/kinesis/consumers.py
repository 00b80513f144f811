"""Registered consumers: register, describe, list, deregister. Subscribing is not served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mld.local.kinesis.faults import in_use, malformed, not_found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.local.kinesis.state import KinesisState
    from mld.local.kinesis.stream import Stream


def register_stream_consumer(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """RegisterStreamConsumer: CREATING first, ACTIVE after the configured time."""
    stream = state.find(request)
    name = request.get("ConsumerName")
    if not isinstance(name, str) or not name:
        raise malformed("ConsumerName is required.")
    if name in stream.consumers:
        raise in_use(f"Consumer {name} of stream {stream.name} already exists.")
    now_s = state.now_s()
    stream.consumers[name] = {
        "ConsumerName": name,
        "ConsumerARN": f"{stream.arn}/consumer/{name}:{int(now_s)}",
        "ConsumerCreationTimestamp": round(now_s, 3),
    }
    return {"Consumer": _shown(state, stream.consumers[name])}


def describe_stream_consumer(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """DescribeStreamConsumer, by consumer ARN or by stream and name."""
    stream, name = _named(state, request)
    shown = _shown(state, stream.consumers[name])
    return {"ConsumerDescription": {**shown, "StreamARN": stream.arn}}


def deregister_stream_consumer(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """DeregisterStreamConsumer, at once."""
    stream, name = _named(state, request)
    del stream.consumers[name]
    return {}


def list_stream_consumers(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """ListStreamConsumers, in one page."""
    stream = state.find(request)
    return {"Consumers": [_shown(state, stream.consumers[n]) for n in sorted(stream.consumers)]}


def _shown(state: KinesisState, consumer: dict[str, Any]) -> dict[str, Any]:
    age_s = state.now_s() - consumer["ConsumerCreationTimestamp"]
    created = age_s >= state.settings.consumer_create_s
    return {**consumer, "ConsumerStatus": "ACTIVE" if created else "CREATING"}


def _named(state: KinesisState, request: Mapping[str, Any]) -> tuple[Stream, str]:
    arn = request.get("ConsumerARN")
    if isinstance(arn, str):
        stream_arn, _, rest = arn.partition("/consumer/")
        stream = state.find({"StreamARN": stream_arn})
        name = rest.rpartition(":")[0]
    else:
        stream = state.find(request)
        name = str(request.get("ConsumerName"))
    if name not in stream.consumers:
        raise not_found(f"Consumer {name} of stream {stream.name} not found.")
    return stream, name
