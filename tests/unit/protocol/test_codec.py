"""One message, one line: the exact bytes, and what a child makes of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kcl_mld_protocol import (
    CheckpointRequest,
    CheckpointResult,
    Initialize,
    Junk,
    LeaseLost,
    LocalProtocolError,
    ProcessRecords,
    Record,
    RemoteProtocolError,
    ShardEnded,
    Shutdown,
    ShutdownRequested,
    Status,
    decode_from_daemon,
    encode,
)

RECORD = Record("aGk=", "pk", "200", 1, 0)

LINES = [
    (
        Initialize("shardId-0", "TRIM_HORIZON", 0),
        b'{"action":"initialize","shardId":"shardId-0","sequenceNumber":"TRIM_HORIZON","subSequenceNumber":0}\n',
    ),
    (
        Initialize("shardId-0", "49", 3, {"stream": "a", "n": 1, "f": 1.5, "b": True, "z": None}),
        (
            b'{"action":"initialize","shardId":"shardId-0","sequenceNumber":"49","subSequenceNumber":3,'
            b'"stream":"a","n":1,"f":1.5,"b":true,"z":null}\n'
        ),
    ),
    (
        Initialize(None, None, None),
        b'{"action":"initialize","shardId":null,"sequenceNumber":null,"subSequenceNumber":null}\n',
    ),
    (
        ProcessRecords((RECORD,), 5),
        (
            b'{"action":"processRecords","records":[{"data":"aGk=","partitionKey":"pk","sequenceNumber":"200",'
            b'"approximateArrivalTimestamp":1,"subSequenceNumber":0,"action":"record"}],"millisBehindLatest":5}\n'
        ),
    ),
    (
        ProcessRecords((), None),
        b'{"action":"processRecords","records":[],"millisBehindLatest":null}\n',
    ),
    (
        ProcessRecords((Record(None, None, None, None, None), RECORD), 0),
        (
            b'{"action":"processRecords","records":[{"data":null,"partitionKey":null,"sequenceNumber":null,'
            b'"approximateArrivalTimestamp":null,"subSequenceNumber":null,"action":"record"},'
            b'{"data":"aGk=","partitionKey":"pk","sequenceNumber":"200",'
            b'"approximateArrivalTimestamp":1,"subSequenceNumber":0,"action":"record"}],"millisBehindLatest":0}\n'
        ),
    ),
    (LeaseLost(), b'{"action":"leaseLost"}\n'),
    (ShardEnded(), b'{"action":"shardEnded"}\n'),
    (ShutdownRequested(), b'{"action":"shutdownRequested"}\n'),
    (
        CheckpointResult("12", None),
        b'{"action":"checkpoint","sequenceNumber":"12","subSequenceNumber":null,"error":null}\n',
    ),
    (
        CheckpointResult("12", 0, "IllegalArgumentException"),
        b'{"action":"checkpoint","sequenceNumber":"12","subSequenceNumber":0,"error":"IllegalArgumentException"}\n',
    ),
]


@pytest.mark.parametrize(("message", "line"), LINES)
def test_a_message_of_the_daemon_has_exactly_these_bytes_and_comes_back(message, line):
    assert encode(message) == line
    assert decode_from_daemon(line.rstrip(b"\n")) == message


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (Status("initialize"), b'{"action":"status","responseFor":"initialize"}\n'),
        (Status(None), b'{"action":"status","responseFor":null}\n'),
        (
            CheckpointRequest(),
            b'{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}\n',
        ),
        (
            CheckpointRequest("7", 1),
            b'{"action":"checkpoint","sequenceNumber":"7","subSequenceNumber":1}\n',
        ),
    ],
)
def test_a_message_of_the_child_has_exactly_these_bytes(message, line):
    assert encode(message) == line


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ('"', '\\"'),
        ("\\", "\\\\"),
        ("\n", "\\n"),
        ("\b\t\f\r", "\\b\\t\\f\\r"),
        ("\x01", "\\u0001"),
        ("\x0b\x1f", "\\u000B\\u001F"),
        ("/\x7f\x80", "/\x7f\x80"),
        ("\u2028\u2029", "\u2028\u2029"),
        ("é漢😀", "é漢😀"),
        ("\ud800", "?"),
    ],
)
def test_strings_are_escaped_as_jackson_does(text, literal):
    line = encode(ProcessRecords((Record("", text, "1", 0),), 0))
    assert f'"partitionKey":"{literal}"'.encode() in line


def test_the_legacy_shutdown_is_read_but_never_written():
    assert decode_from_daemon(b'{"action":"shutdown","reason":"ZOMBIE"}') == Shutdown("ZOMBIE")
    assert decode_from_daemon(b'{"action":"shutdown"}') == Shutdown(None)
    with pytest.raises(LocalProtocolError, match="never sent"):
        encode(Shutdown("ZOMBIE"))


@pytest.mark.parametrize("value", [object(), float("nan")])
def test_an_extra_that_is_no_json_scalar_is_refused(value):
    with pytest.raises(LocalProtocolError, match="cannot be encoded"):
        encode(Initialize("s", "1", 0, {"x": value}))


def test_fields_that_a_child_does_not_know_are_ignored():
    assert decode_from_daemon(b' {"x":[1],"action":"leaseLost"} ') == LeaseLost()
    assert decode_from_daemon(
        b'{"action":"initialize","shardId":"s","sequenceNumber":"1","subSequenceNumber":0,'
        b'"a":"b","c":{},"d":[]}'
    ) == Initialize("s", "1", 0, {"a": "b"})
    assert decode_from_daemon(
        b'{"action":"checkpoint","sequenceNumber":"1","subSequenceNumber":2}'
    ) == CheckpointResult("1", 2, None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"action":"leaseLost"} x', "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"a":NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{}", "unknown action None"),
        (b'{"action":1}', "unknown action 1"),
        (b'{"action":[]}', "unknown action"),
        (b'{"action":"status"}', "unknown action 'status'"),
        (b'{"action":"initialize"}', "field 'shardId' is missing"),
        (b'{"action":"initialize","shardId":1}', "field 'shardId' is not a string"),
        (
            b'{"action":"initialize","shardId":"s","sequenceNumber":"1","subSequenceNumber":true}',
            "field 'subSequenceNumber' is not a whole number",
        ),
        (b'{"action":"processRecords","records":{}}', "field 'records' is not an array"),
        (
            b'{"action":"processRecords","records":[1],"millisBehindLatest":0}',
            "a record is not an object",
        ),
        (
            b'{"action":"processRecords","records":[],"millisBehindLatest":1.5}',
            "field 'millisBehindLatest' is not a whole number",
        ),
        (
            b'{"action":"processRecords","records":[{}],"millisBehindLatest":0}',
            "field 'data' is missing",
        ),
        (
            b'{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null,"error":1}',
            "field 'error' is not a string",
        ),
    ],
)
def test_a_line_that_no_daemon_writes_is_junk(line, reason):
    verdict = decode_from_daemon(line)
    assert isinstance(verdict, Junk)
    assert verdict.line == line
    assert verdict.reason.startswith(reason)


def test_a_record_gives_its_payload_and_time():
    assert RECORD.binary_data == b"hi"
    assert Record("+/v7", "k", "1", 0).binary_data == b"\xfb\xfb\xfb"
    assert Record("", "k", "1", 0).binary_data == b""
    assert Record(None, "k", "1", None).binary_data == b""
    assert Record("", "k", "1", None).approximate_arrival_timestamp is None
    assert Record("", "k", "1", 1_500).approximate_arrival_timestamp == datetime(
        1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC
    )


def test_a_broken_payload_or_time_is_the_daemons_fault():
    with pytest.raises(RemoteProtocolError, match="record 7"):
        _ = Record("%%", "k", "7", 0).binary_data
    with pytest.raises(RemoteProtocolError, match="record 7"):
        _ = Record("é", "k", "7", 0).binary_data
    with pytest.raises(RemoteProtocolError, match="record 7"):
        _ = Record("", "k", "7", 2**62).approximate_arrival_timestamp


def test_messages_can_be_keys():
    assert len({Initialize("s", "1", 0, {"a": 1}), LeaseLost(), LeaseLost()}) == 2


VERSION = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"


def test_a_record_with_a_schema_has_flat_keys_and_one_without_has_none():
    record = Record("aGk=", "pk", "200", 1, 0, VERSION, 'or"ders', "AVRO")
    line = encode(ProcessRecords((record, RECORD), 0))
    assert (
        b'"action":"record","schemaVersionId":"b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63",'
        b'"schemaName":"or\\"ders","dataFormat":"AVRO"},{"data"'
    ) in line
    assert line.count(b"schemaName") == 1
    assert decode_from_daemon(line) == ProcessRecords((record, RECORD), 0)


def test_keys_of_a_schema_that_are_no_texts_are_somebody_elses():
    line = encode(ProcessRecords((RECORD,), 0)).replace(
        b'"action":"record"', b'"schemaName":{"a":1}'
    )
    assert decode_from_daemon(line) == ProcessRecords((RECORD,), 0)
