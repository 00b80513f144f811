from __future__ import annotations

import json
from base64 import b64decode, b64encode
from hashlib import md5
from pathlib import Path

import pytest

from kcl_mld.retrieval.rules.deaggregate import (
    MAGIC,
    AggregateOutcome,
    deaggregate,
    is_aggregated_base64,
)
from kcl_mld.streams.model.shard import HashRange

DATA = Path(__file__).parents[3] / "data"
VECTORS = json.loads((DATA / "kpl.json").read_text())["deaggregation"]
#: Where Java loses what stands behind an unreadable user record.
BEHIND_UNREADABLE = {"pk_index_out_of_range": [(2, b"lost")]}
#: User records "record 0" to "record 99" with the keys user-0 to user-99, packed by aws-kinesis-agg
#: 1.2.3, which says nothing of keys of several shards.
FOREIGN_AGGREGATE = b64decode((DATA / "aws_kinesis_agg.b64").read_text())
LOWER_HALF = HashRange(0, 2**127 - 1)

A = b"\x0a\x01a"  # partition key "a"
B = b"\x0a\x01b"


def frame(message: bytes) -> bytes:
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def user(payload: bytes, index: int = 0, hash_index: int | None = None) -> bytes:
    middle = b"" if hash_index is None else b"\x10" + varint(hash_index)
    return field(3, b"\x08" + varint(index) + middle + field(3, payload))


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_records_are_expanded_as_java_does(vector):
    shard_range = vector["shardRange"]
    hash_range = (
        HashRange.parse(shard_range["startingHashKey"], shard_range["endingHashKey"])
        if shard_range
        else None
    )
    found = []
    for record in vector["input"]:
        result = deaggregate(b64decode(record["dataBase64"]), record["partitionKey"], hash_range)
        found += [
            {
                "sequenceNumber": record["sequenceNumber"],
                "subSequenceNumber": user_record.sub_sequence_number,
                "partitionKey": user_record.partition_key,
                "explicitHashKey": user_record.explicit_hash_key,
                "dataBase64": b64encode(user_record.data).decode(),
                "aggregated": result.outcome is AggregateOutcome.EXPANDED,
            }
            for user_record in result.records
        ]
        if result.outcome is not AggregateOutcome.RAW:
            assert is_aggregated_base64(record["dataBase64"])
    more = BEHIND_UNREADABLE.get(vector["name"], [])
    assert found[: len(found) - len(more)] == vector["expected"]
    assert [
        (one["subSequenceNumber"], b64decode(one["dataBase64"]))
        for one in found[len(found) - len(more) :]
    ] == more


def payloads(message: bytes) -> list[bytes] | None:
    """Data of the user records, or None when the record stays raw."""
    data = frame(message)
    result = deaggregate(data, "outer")
    if result.outcome is AggregateOutcome.RAW:
        assert result.records[0].data is data
        return None
    return [record.data for record in result.records]


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 300_000])
def test_payloads_of_every_length_come_out_whole(size):
    payload = b"x" * size
    assert payloads(A + user(payload) + user(b"next")) == [payload, b"next"]


@pytest.mark.parametrize("index", [0, 1, 127, 128, 300])
def test_indexes_of_every_length_find_their_key(index):
    keys = b"".join(field(1, str(number).encode()) for number in range(301))
    hash_keys = b"".join(field(2, str(number).encode()) for number in range(301))
    message = keys + hash_keys + user(b"x", index, index) + user(b"y", index)
    first, second = deaggregate(frame(message), "outer").records
    assert (first.partition_key, first.explicit_hash_key) == (str(index), str(index))
    assert (second.partition_key, second.explicit_hash_key) == (str(index), None)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(A + b"\x0b\x0c" + user(b"x"), id="unknown group"),
        pytest.param(A + b"\x0b\x13\x08\x01\x14\x0c" + user(b"x"), id="nested groups"),
        pytest.param(A + b"\x0b" * 100 + b"\x0c" * 100 + user(b"x"), id="a hundred groups"),
        pytest.param(A + b"\x81\x01" + b"8" * 8 + b"\x8d\x01" + b"4444" + user(b"x"), id="fixed"),
        pytest.param(b"\x8a\x00\x01a" + user(b"x"), id="overlong tag"),
        pytest.param(b"\x0a\x81\x80\x80\x00a" + user(b"x"), id="overlong length"),
        pytest.param(A + b"\x1a\x85\x80\x00\x08\x00\x1a\x01x", id="overlong record length"),
        pytest.param(A + b"\x1a\x06\x08\x00\x1a\x81\x00x", id="overlong data length"),
        pytest.param(A + b"\x1a\x05\x1a\x01x\x08\x00", id="data before index"),
        pytest.param(A + b"\x1a\x08\x08\x00\x1a\x01y\x1a\x01x", id="last data wins"),
        pytest.param(A + b"\x1a\x0a\x08\x00\x22\x03\x0a\x01t\x1a\x01x", id="tagged"),
        pytest.param(A + b"\x1a\x07\x08\x00\x1a\x01x\x28\x05", id="unknown field after the data"),
        pytest.param(A + b"\x1a\x0e\x08" + b"\x80" * 9 + b"\x01\x1a\x01x", id="ten bytes of index"),
    ],
)
def test_unusual_encodings_are_read(message):
    assert payloads(message) == [b"x"]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(A + b"\x0c", id="end of no group"),
        pytest.param(A + b"\x0b", id="open group"),
        pytest.param(A + b"\x0b\x14", id="wrong end of group"),
        pytest.param(A + b"\x0b" * 101 + b"\x0c" * 101, id="too many groups"),
        pytest.param(A + b"\x0e\x00", id="wire type 6"),
        pytest.param(A + b"\x80\x00", id="field 0, overlong"),
        pytest.param(A + b"\x28" + b"\x80" * 10 + b"\x00", id="eleven bytes of number"),
        pytest.param(A + b"\x28", id="no number"),
        pytest.param(A + b"\x29" + b"8" * 7, id="cut fixed64"),
        pytest.param(A + b"\x0a\x02a", id="cut key"),
        pytest.param(A + b"\x1a\x7f\x08\x00", id="cut record"),
        pytest.param(A + b"\x3a\x7fa", id="cut field of nobody"),
        pytest.param(A + b"\x1a", id="record without length"),
        pytest.param(A + b"\x1a\x00", id="empty record"),
        pytest.param(A + b"\x1a\x01\x08" + user(b"x"), id="record of one byte"),
        pytest.param(A + b"\x1a\x02\x08\x00" + user(b"x"), id="record without data"),
        pytest.param(A + b"\x1a\x00" + user(b"x"), id="empty record before another"),
        pytest.param(A + b"\x0a" + b"\xff" * 4 + b"\x0f", id="negative length"),
        pytest.param(A + b"\x1a\x09\x08\x00\x22\x02\x12\x00\x1a\x01x", id="tag without key"),
        pytest.param(A + b"\x1a\x06\x08\x00\x1a\x01x\x28", id="unfinished record"),
    ],
)
def test_what_java_cannot_parse_stays_raw(message):
    assert payloads(message) is None


def test_groups_in_a_record_count_its_own_depth():
    inside = b"\x08\x00\x1a\x01x"
    assert payloads(A + field(3, inside + b"\x2b" * 99 + b"\x2c" * 99)) == [b"x"]
    assert payloads(A + field(3, inside + b"\x2b" * 100 + b"\x2c" * 100)) is None


def test_records_around_unreadable_ones_are_delivered():
    message = A + user(b"x") + user(b"y", 3) + user(b"z") + user(b"w", 0, 7)
    result = deaggregate(frame(message), "outer")
    assert [(one.sub_sequence_number, one.data) for one in result.records] == [(0, b"x"), (2, b"z")]
    assert result.outcome is AggregateOutcome.EXPANDED
    assert (result.unreadable, result.outside) == (2, 0)
    assert result.error.startswith("sub-sequence number 1: ")


def test_records_outside_the_shard_are_counted():
    result = deaggregate(FOREIGN_AGGREGATE, "user-0", LOWER_HALF)
    assert (result.outcome, result.records) == (AggregateOutcome.DROPPED, [])
    assert (result.dropped, result.unreadable) == (100, 0)
    assert 0 < result.outside < 100
    assert len(deaggregate(FOREIGN_AGGREGATE, "user-0").records) == 100


@pytest.mark.parametrize(
    ("order", "delivered", "dropped"),
    [
        ("a?b", [b"a"], 1),  # as Java, which stops at the unreadable one
        ("a?ab", [b"a"], 2),
        ("b?a", [], 2),
        ("?ab", [], 2),
    ],
)
def test_what_java_delivers_of_a_damaged_aggregate_is_always_delivered(order, delivered, dropped):
    hash_of_a = int.from_bytes(md5(b"a", usedforsecurity=False).digest(), "big")
    message = A + B + b"".join(user(one.encode(), "ab?".index(one)) for one in order)
    result = deaggregate(frame(message), "outer", HashRange(hash_of_a, hash_of_a))
    assert [one.data for one in result.records] == delivered
    assert (result.dropped, result.outside, result.unreadable) == (dropped, 1, 1)


@pytest.mark.parametrize(
    ("hash_key", "count", "has_error"),
    [
        ("7", 1, False),
        ("+7", 1, False),
        ("007", 1, False),
        ("-0", 1, False),
        ("\u0667", 1, False),  # ARABIC-INDIC DIGIT SEVEN
        (str(2**128 - 1), 1, False),
        (str(2**128), 0, False),
        ("-1", 0, False),
        ("9" * 5000, 0, False),
        ("0" * 5000, 1, False),
        ("", 0, True),
        ("+", 0, True),
        ("1_0", 0, True),
        ("7\n", 0, True),
        ("\U0001d7ce", 0, True),  # a digit beyond UCS-2
    ],
)
def test_explicit_hash_keys_are_numbers_as_java_reads_them(hash_key, count, has_error):
    message = A + field(2, hash_key.encode()) + user(b"x", 0, 0)
    result = deaggregate(frame(message), "outer")
    assert len(result.records) == count
    assert (result.error is not None) == has_error


@pytest.mark.parametrize(
    ("encoded", "decoded"),
    [
        ("\u00e4".encode(), "\u00e4"),
        (b"\xff", "\ufffd"),
        (b"a\xed\xa0\x80b", "a\ufffdb"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xe2\x82", "\ufffd"),
    ],
)
def test_invalid_text_is_replaced_as_java_does(encoded, decoded):
    (record,) = deaggregate(frame(field(1, encoded) + user(b"x")), "outer").records
    assert record.partition_key == decoded


def test_the_range_is_asked_once_a_key_and_never_when_it_is_whole():
    hash_of_a = int.from_bytes(md5(b"a", usedforsecurity=False).digest(), "big")
    data = frame(A + B + user(b"1") + user(b"2"))
    only_a = HashRange(hash_of_a, hash_of_a)
    assert len(deaggregate(data, "outer", only_a).records) == 2
    assert deaggregate(frame(A + B + user(b"1") + user(b"2", 1)), "o", only_a).records == []
    assert len(deaggregate(data, "outer", HashRange(0, 2**128 - 1)).records) == 2


@pytest.mark.parametrize(
    ("text", "maybe"),
    [
        (b64encode(frame(A)).decode(), True),
        (b64encode(MAGIC + b"\xff" * 17).decode(), True),
        (b64encode(MAGIC + b"\xff" * 14).decode(), False),
        (b64encode(b"\xf3\x89\x9a\xc3" + b"\xff" * 30).decode(), False),
        (b64encode(b"\xf3\x89\x9a\xb2" + b"\xff" * 30).decode(), False),
        ("", False),
    ],
)
def test_the_prefix_of_the_base64_tells_what_cannot_be_an_aggregate(text, maybe):
    assert is_aggregated_base64(text) is maybe
