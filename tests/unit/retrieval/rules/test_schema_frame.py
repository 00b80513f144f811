"""Frames of the Glue Schema Registry, found and taken off in base64."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given, strategies as st

from kcl_mld.retrieval.model.schema import SchemaFailure
from kcl_mld.retrieval.rules.schema_frame import (
    BadPayload,
    FrameHeader,
    header_of,
    may_have_frame,
    payload_of,
    payload_text,
)
from tests.fakes.schema_frames import ORDER_ID, frame


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def is_frame(data: bytes) -> bool:
    """The test of the format, on bytes."""
    return len(data) >= 18 and data[0] == 3 and data[1] in {0, 5}


@given(st.uuids(), st.binary(max_size=300), st.booleans())
def test_what_was_framed_comes_out(version_id, payload, compressed):
    data = text(frame(str(version_id), payload, compressed=compressed))
    header = header_of(data)
    assert header == FrameHeader(str(version_id), compressed)
    assert may_have_frame(["", data])
    assert payload_of(data, header, len(payload)) == payload
    assert base64.b64decode(payload_text(data, header, len(payload))) == payload


@given(
    st.one_of(
        st.binary(max_size=40),
        st.builds(
            lambda start, rest: start + rest,
            st.sampled_from([b"\x03\x00", b"\x03\x05", b"\x03", b"\x03\x01", b"\x02\x00"]),
            st.binary(max_size=30),
        ),
    )
)
def test_the_test_in_base64_is_the_test_of_the_format(data):
    assert (header_of(text(data)) is not None) == is_frame(data)
    if is_frame(data):
        assert may_have_frame([text(data)])


@pytest.mark.parametrize("length", [0, 1, 17, 18, 19])
def test_eighteen_bytes_are_a_frame_of_nothing(length):
    data = frame(ORDER_ID, b"xyz")[:length]
    assert (header_of(text(data)) is not None) == (length >= 18)
    if length == 18:
        header = header_of(text(data))
        assert header is not None
        assert payload_text(text(data), header, 0) == ""


@pytest.mark.parametrize("data", [None, "", "AwA", "AwA" + "!" * 30, "AwA="])
def test_other_texts_are_no_frames(data):
    assert header_of(data) is None


def fails(data: bytes, most_bytes: int = 1000) -> SchemaFailure:
    header = header_of(text(data))
    assert header is not None
    with pytest.raises(BadPayload) as error:
        payload_of(text(data), header, most_bytes)
    return error.value.failure


@pytest.mark.parametrize(
    "spoil",
    [
        lambda payload: b"nonsense",
        lambda payload: b"",
        lambda payload: payload[:-1],
        lambda payload: payload + b"more",
        lambda payload: payload[:-1] + bytes([payload[-1] ^ 1]),
    ],
)
def test_a_payload_that_is_not_one_zlib_stream_stays(spoil):
    header = frame(ORDER_ID, b"", compressed=True)[:18]
    assert fails(header + spoil(zlib.compress(b"some payload"))) is SchemaFailure.NOT_ZLIB


def test_a_bomb_is_defused():
    bomb = frame(ORDER_ID, bytes(50_000_000), compressed=True)
    assert len(bomb) < 50_000
    assert fails(bomb, 1000) is SchemaFailure.TOO_LARGE


def test_the_largest_payload_is_let_through():
    data = text(frame(ORDER_ID, bytes(1000), compressed=True))
    header = header_of(data)
    assert header is not None
    assert payload_of(data, header, 1000) == bytes(1000)
    assert fails(frame(ORDER_ID, bytes(1001), compressed=True)) is SchemaFailure.TOO_LARGE
    assert fails(frame(ORDER_ID, bytes(1001))) is SchemaFailure.TOO_LARGE


def test_base64_that_ends_badly_behind_its_header_stays():
    data = text(frame(ORDER_ID, b"")) + "A"
    header = header_of(data)
    assert header is not None
    with pytest.raises(BadPayload) as error:
        payload_of(data, header, 1000)
    assert error.value.failure is SchemaFailure.UNDECODABLE


def test_payloads_that_begin_otherwise_are_not_looked_into():
    assert not may_have_frame([])
    assert not may_have_frame(["", "AwEA", "AwY", "AwZ0", "Aw", "84maw", "{}"])
