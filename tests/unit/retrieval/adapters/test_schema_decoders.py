"""Avro and JSON payloads as JSON text, with real serializers, and payloads that mean harm."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import random
import subprocess
import sys
import threading
import time
import uuid

import pytest
from hypothesis import given, strategies as st

from kcl_mld.errors import ConfigError
from kcl_mld.retrieval.adapters.schema_decoders import Decoders
from kcl_mld.retrieval.model.schema import SchemaVersion, Undecodable
from tests.fakes.schema_frames import ORDER, ORDER_AVRO, ORDER_ID, avro

DECODERS = Decoders()


def decoder(schema, data_format="AVRO"):
    definition = schema if isinstance(schema, str) else json.dumps(schema)
    decode = DECODERS(SchemaVersion(ORDER_ID, "s", data_format, definition))
    assert decode is not None
    return decode


def through(schema, value):
    """A value, written as Avro, decoded, and read as JSON."""
    return json.loads(
        decoder({"type": schema} if isinstance(schema, str) else schema)(avro(schema, value))
    )


def test_a_record_comes_out_as_an_object():
    value = {"id": 2**62, "customer": "Ö", "lines": ["a", "b"]}
    decode = DECODERS(ORDER)
    assert decode is not None
    assert decode(avro(ORDER_AVRO, value)) == (
        '{"id":4611686018427387904,"customer":"Ö","lines":["a","b"]}'.encode()
    )


UTC = dt.UTC


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -5, -5),
        ("long", -(2**63), -(2**63)),
        ("double", 0.1, 0.1),
        ("float", 0.5, 0.5),
        ("double", math.nan, None),
        ("double", math.inf, None),
        ("string", 'quote " and \n', 'quote " and \n'),
        ("bytes", b"\x00\xff", "AP8="),
        ({"type": "fixed", "name": "F", "size": 2}, b"\x00\xff", "AP8="),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        (["null", "string", "long"], None, None),
        (["null", "string", "long"], "x", "x"),
        (["null", "string", "long"], 7, 7),
        ({"type": "map", "values": ["null", "int"]}, {"a": 1, "b": None}, {"a": 1, "b": None}),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
            decimal.Decimal("12.340"),
            "12.340",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
            decimal.Decimal("-0.001"),
            "-0.001",
        ),
        (
            {"type": "fixed", "name": "D", "size": 16, "logicalType": "decimal", "precision": 4},
            decimal.Decimal(-9999),
            "-9999",
        ),
        ({"type": "int", "logicalType": "date"}, dt.date(2024, 2, 29), "2024-02-29"),
        (
            {"type": "int", "logicalType": "time-millis"},
            dt.time(13, 37, 0, 250_000),
            "13:37:00.250000",
        ),
        (
            {"type": "long", "logicalType": "time-micros"},
            dt.time(13, 37, 0, 1),
            "13:37:00.000001",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            dt.datetime(2024, 2, 29, 13, 37, 0, 250_000, tzinfo=UTC),
            "2024-02-29T13:37:00.250000Z",
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            "1969-12-31T23:59:59.999999Z",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            dt.datetime(2024, 2, 29, tzinfo=UTC),
            "2024-02-29T00:00:00Z",
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            dt.datetime(2024, 2, 29, 13, 37, 0, 250_000),  # noqa: DTZ001 - it has none
            "2024-02-29T13:37:00.250000",
        ),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            1_700_000_000_123_456_789,
            "2023-11-14T22:13:20.123456789Z",
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-nanos"},
            -1,
            "1969-12-31T23:59:59.999999999",
        ),
        (
            {"type": "string", "logicalType": "uuid"},
            uuid.UUID(ORDER_ID),
            ORDER_ID,
        ),
        (
            {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
            b"\x01\0\0\0\x02\0\0\0\x03\0\0\0",
            "P1M2DT0.003S",
        ),
        # A decimal that is none counts as what it is made of.
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 0},
            b"\x01",
            "AQ==",
        ),
    ],
)
def test_how_each_type_comes_out(schema, value, shown):
    assert through(schema, value) == shown


@pytest.mark.parametrize(
    ("kind", "logical", "value"),
    [
        ("int", "date", 3_000_000),  # the year 10183
        ("int", "date", -800_000),  # before the year 1
        ("int", "time-millis", 86_400_000),
        ("int", "time-millis", -1),
        ("long", "time-micros", 86_400_000_000),
        ("long", "timestamp-millis", 2**62),
        ("long", "timestamp-micros", 300_000_000_000_000_000),
        ("long", "local-timestamp-millis", -(2**62)),
        ("long", "local-timestamp-micros", 2**63 - 1),
        ("string", "uuid", "not a uuid"),
    ],
)
def test_what_a_logical_type_cannot_say_comes_as_it_is(kind, logical, value):
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "odd", "type": {"type": kind, "logicalType": logical}},
            {"name": "id", "type": "long"},
        ],
    }
    plain = {**schema, "fields": [{"name": "odd", "type": kind}, {"name": "id", "type": "long"}]}
    payload = avro(plain, {"odd": value, "id": 7})
    assert json.loads(decoder(schema)(payload)) == {"odd": value, "id": 7}


def test_a_uuid_of_sixteen_bytes_is_the_text_of_a_uuid():
    schema = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    number = uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
    assert json.loads(decoder(schema)(number.bytes)) == str(number)
    short = {**schema, "size": 2}
    assert json.loads(decoder(short)(b"\x00\xff")) == "AP8="


@given(st.decimals(-(10**9), 10**9, places=3, allow_nan=False))
def test_every_decimal_keeps_its_digits(value):
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 13, "scale": 3}
    assert decimal.Decimal(through(schema, value)) == value


def test_json_stays_byte_for_byte():
    decode = decoder("", "JSON")
    text = '{ "big": 12345678901234567890.10, "ö": [1e400] }'.encode()
    assert decode(text) == text


@pytest.mark.parametrize("payload", [b"", b"{", b"NaN", b'"\xff"', b"{}{}", b"[" * 1_000_000])
def test_what_is_not_json_is_not_passed_on_as_such(payload):
    with pytest.raises(Undecodable, match="not JSON"):
        decoder("", "JSON")(payload)


@pytest.mark.parametrize("data_format", ["PROTOBUF", "", "NEW"])
def test_other_formats_are_passed_on(data_format):
    assert DECODERS(SchemaVersion(ORDER_ID, "s", data_format, "message M {}")) is None


@pytest.mark.parametrize(
    "definition",
    ["", "{", "[" * 100_000, '"Missing"', "5"],
)
def test_a_definition_that_is_no_schema_is_refused(definition):
    with pytest.raises(Undecodable):
        decoder(definition)


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ("long", b""),
        ("long", b"\xff" * 30),
        ("string", b"\x06ab"),
        ("string", b"\x04\xff\xfe"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("string", b"\x01"),
        (["null", "long"], b"\x08"),
        ({"type": "array", "items": "long"}, b"\x80\x80\x80\x80\x80\x80\x80\x80\x01\x02"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x08"),
        ({"type": "long", "logicalType": "timestamp-nanos", "x": 1}, b""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x04\x7f\xff"),
        (ORDER_AVRO, b"\x02"),
    ],
)
def test_a_payload_that_does_not_fit_is_told_without_its_content(schema, payload):
    decode = decoder({"type": schema} if isinstance(schema, str) else schema)
    with pytest.raises(Undecodable) as error:
        decode(payload)
    assert str(error.value).isalpha()  # the name of an error


def test_a_payload_with_more_than_one_value_does_not_fit():
    with pytest.raises(Undecodable, match="more than one"):
        decoder('"long"')(b"\x02\x02")


def test_a_decimal_of_a_million_bytes_costs_nothing():
    # The library's own reader takes 200 s for it, and rounds what is shorter.
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    decode = decoder(schema)
    payload = avro("bytes", b"\x7f" * 1_000_000)
    began = time.thread_time()
    with pytest.raises(Undecodable):
        decode(payload)
    assert time.thread_time() - began < 1


def test_random_bytes_are_a_failure_and_never_a_crash():
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": ["null", "string", {"type": "map", "values": "double"}]},
            {"name": "b", "type": {"type": "array", "items": ["null", "long"]}},
            {"name": "c", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        ],
    }
    decode = decoder(schema)
    rng = random.Random(1)
    outcomes = set()
    for _ in range(20_000):
        try:
            json.loads(decode(bytes(rng.choices(range(8), k=rng.randrange(12)))))
        except Undecodable:
            outcomes.add("undecodable")
        else:
            outcomes.add("decoded")
    assert outcomes == {"undecodable", "decoded"}


LIST = {
    "type": "record",
    "name": "List",
    "fields": [
        {"name": "v", "type": {"type": "bytes", "logicalType": "decimal", "precision": 3}},
        {"name": "next", "type": ["null", "List"]},
    ],
}


def in_a_small_thread(work):
    """As the daemon's threads, whose stacks are small."""
    found = []
    before = threading.stack_size(1 << 20)
    thread = threading.Thread(target=lambda: found.append(work()))
    try:
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    return found[0]


def test_a_schema_that_refers_to_itself_is_read_as_deep_as_is_safe():
    value = {"v": decimal.Decimal(7), "next": {"v": decimal.Decimal(-8), "next": None}}
    assert through(LIST, value) == {"v": "7", "next": {"v": "-8", "next": None}}
    decode = decoder(LIST)

    def outcome(levels):
        # The library's compiled reader ends the process at some hundred levels.
        try:
            return len(decode(b"\x02\x07\x02" * levels + b"\x02\x07\x00"))
        except Undecodable as error:
            return str(error)

    assert in_a_small_thread(lambda: outcome(100)) > 1000
    for levels in (1_000, 100_000):
        assert in_a_small_thread(lambda n=levels: outcome(n)) == "RecursionError"


def test_without_a_safe_reader_such_a_schema_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastavro._read_py", None)
    monkeypatch.delattr("fastavro._read_py", raising=False)
    version = SchemaVersion(ORDER_ID, "s", "AVRO", json.dumps(LIST))
    with pytest.raises(Undecodable, match="refers to itself"):
        Decoders()(version)
    assert Decoders()(ORDER) is not None


def test_the_deepest_schema_fits_into_the_stack_of_a_small_thread():
    schema = "long"
    for _ in range(63):
        schema = {"type": "array", "items": schema}
    payload = b"\x02" * 64 + b"\x00" * 63
    decoded = in_a_small_thread(lambda: decoder(schema)(payload))
    assert decoded == b"[" * 63 + b"1" + b"]" * 63


def test_without_the_extra_the_daemon_says_what_to_install():
    program = (
        "import sys; sys.modules['fastavro'] = None\n"
        "from kcl_mld.retrieval.adapters.schema_decoders import Decoders\n"
        "from kcl_mld.errors import ConfigError\n"
        "try: Decoders()\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(
        ConfigError(
            "decode needs the package fastavro: pip install 'kcl-mld[schemas]'",
            key="glueSchemaRegistry.mode",
        )
    )
