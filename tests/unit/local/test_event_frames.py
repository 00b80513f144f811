"""Frames as botocore's own reader takes them apart."""

from __future__ import annotations

import json

import pytest
from botocore.eventstream import ChecksumMismatch, EventStreamBuffer
from hypothesis import given, strategies as st

from kcl_mld.local.event_stream import (
    MODELLED,
    corrupted,
    exception,
    frame,
    initial_response,
    shard_event,
)
from kcl_mld.local.kinesis import KinesisFault

NAMES = st.text("abcdefghijklmnopqrstuvwxyz:-", min_size=1, max_size=255)


@given(
    headers=st.dictionaries(NAMES, st.text(max_size=300), max_size=5),
    payload=st.binary(max_size=2000),
    cut=st.integers(1, 500),
)
def test_what_is_framed_is_read_back_in_pieces_of_any_size(
    headers: dict[str, str], payload: bytes, cut: int
) -> None:
    framed = frame(headers, payload) * 2
    reader = EventStreamBuffer()
    read = []
    for start in range(0, len(framed), cut):
        reader.add_data(framed[start : start + cut])
        read += list(reader)
    assert [(message.headers, message.payload) for message in read] == [(headers, payload)] * 2


def only(framed: bytes) -> tuple[dict[str, str], bytes]:
    reader = EventStreamBuffer()
    reader.add_data(framed)
    (message,) = list(reader)
    return message.headers, message.payload


def test_an_answer_begins_with_the_initial_response() -> None:
    headers, payload = only(initial_response())
    assert headers == {
        ":message-type": "event",
        ":event-type": "initial-response",
        ":content-type": "application/x-amz-json-1.1",
    }
    assert payload == b"{}"


def test_an_event_has_its_json_as_payload() -> None:
    headers, payload = only(shard_event(b'{"Records":[]}'))
    assert headers[":message-type"] == "event"
    assert headers[":event-type"] == "SubscribeToShardEvent"
    assert payload == b'{"Records":[]}'


@pytest.mark.parametrize("code", sorted(MODELLED))
def test_an_exception_has_its_name_and_its_text(code: str) -> None:
    headers, payload = only(exception(KinesisFault(code, "why, ü")))
    assert headers[":message-type"] == "exception"
    assert headers[":exception-type"] == code
    assert json.loads(payload) == {"message": "why, ü"}


def test_other_errors_have_a_code_and_a_message() -> None:
    headers, payload = only(exception(KinesisFault("Throttling", "slow down")))
    assert headers == {
        ":message-type": "error",
        ":error-code": "Throttling",
        ":error-message": "slow down",
    }
    assert payload == b""


def test_a_corrupted_frame_is_noticed() -> None:
    with pytest.raises(ChecksumMismatch):
        only(corrupted(shard_event(b"{}")))
