"""De-aggregation: what a producer packs comes out, and no bytes make it raise."""

from __future__ import annotations

from base64 import b64encode
from hashlib import md5

from hypothesis import given, settings, strategies as st

from kcl_mld.retrieval.rules.deaggregate import (
    MAGIC,
    AggregateOutcome,
    deaggregate,
    is_aggregated_base64,
)
from kcl_mld.streams.model.shard import MAX_HASH_KEY, HashRange

RANGES = st.none() | st.tuples(st.integers(0, MAX_HASH_KEY), st.integers(0, MAX_HASH_KEY)).map(
    lambda ends: HashRange(min(ends), max(ends))
)
#: Tags, short lengths and varint parts of the message: random bytes that get far.
LIKELY = st.sampled_from(b"\x0a\x12\x1a\x08\x10\x22\x0b\x0c\x00\x01\x02\x03\x04\x05\x80\xff a7")
MESSAGES = st.binary(min_size=1, max_size=300) | st.lists(LIKELY, min_size=1).map(bytes)


def frame(message: bytes) -> bytes:
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


def varint(number: int, padding: int = 0) -> bytes:
    out = bytearray()
    while number >= 0x80 or padding:
        out.append(number & 0x7F | 0x80)
        if number < 0x80:
            padding -= 1
        number >>= 7
    return bytes([*out, number])


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


@settings(max_examples=600, deadline=None)
@given(MESSAGES, RANGES)
def test_no_message_makes_it_raise(message, hash_range):
    data = frame(message)
    result = deaggregate(data, "outer", hash_range)
    if result.outcome is AggregateOutcome.RAW:
        ((partition_key, hash_key, payload, sub),) = result.records
        assert (partition_key, hash_key, sub) == ("outer", None, 0)
        assert payload is data
    elif result.outcome is AggregateOutcome.DROPPED:
        assert result.records == ()
    else:
        subs = [record.sub_sequence_number for record in result.records]
        assert subs == list(range(len(subs)))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=100), RANGES)
def test_other_bytes_stay_as_they_are(data, hash_range):
    for candidate in (data, MAGIC + data):
        assert deaggregate(candidate, "outer", hash_range).outcome is AggregateOutcome.RAW


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_was_packed_comes_out(data):
    keys = data.draw(st.lists(st.text(max_size=20), min_size=1, max_size=200))
    hash_keys = data.draw(st.lists(st.integers(0, MAX_HASH_KEY).map(str), max_size=200))
    users = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, len(keys) - 1),
                st.none() | st.integers(0, len(hash_keys) - 1) if hash_keys else st.none(),
                st.binary(max_size=200),
                st.integers(0, 2),
            ),
            max_size=30,
        )
    )
    parts = [field(1, key.encode()) for key in keys] + [field(2, k.encode()) for k in hash_keys]
    for index, hash_index, payload, padding in users:
        middle = b"" if hash_index is None else b"\x10" + varint(hash_index, padding)
        parts.append(field(3, b"\x08" + varint(index, padding) + middle + field(3, payload)))
    tables = parts[: len(keys) + len(hash_keys)]
    records = parts[len(keys) + len(hash_keys) :]
    message = b"".join(records + tables if data.draw(st.booleans()) else tables + records)
    result = deaggregate(frame(message), "outer")
    assert result.error is None
    assert [tuple(record) for record in result.records] == [
        (keys[index], None if hash_index is None else hash_keys[hash_index], payload, sub)
        for sub, (index, hash_index, payload, _padding) in enumerate(users)
    ]
    assert is_aggregated_base64(b64encode(frame(message)).decode())


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6), RANGES)
def test_one_foreign_key_drops_the_whole_aggregate(names, hash_range):
    table = b"".join(field(1, name.encode()) for name in names)
    records = [field(3, b"\x08" + varint(n) + field(3, b"x")) for n in range(len(names))]
    result = deaggregate(frame(table + b"".join(records)), "outer", hash_range)
    hashes = [
        int.from_bytes(md5(name.encode(), usedforsecurity=False).digest(), "big") for name in names
    ]
    inside = all(key in (hash_range or HashRange(0, MAX_HASH_KEY)) for key in hashes)
    assert (result.outcome is AggregateOutcome.EXPANDED) == inside


@given(st.binary(max_size=40))
def test_the_prefix_test_never_misses_an_aggregate(tail):
    data = MAGIC + tail
    assert is_aggregated_base64(b64encode(data).decode()) or len(data) < 21
