"""Which lines of a child count, with the reasons that end up in a log."""

from __future__ import annotations

import pytest

from kcl_mld_protocol import Action, CheckpointRequest, Foreign, Junk, Status, decode_from_child


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hello", "not JSON"),
        (b'hello {"action":"status"}', "a message behind other output"),
        (b' {"action":"status"', "not JSON"),
        (b'[{"action":"status"', "a message behind other output"),
        (b"null", "a bare null"),
        (b"{}", "no action field"),
        (b"[1,2,3]", "not a JSON object"),
        (b'["checkpoint","x"]', "not a JSON object"),
        (b'{"action":"STATUS"}', "unknown action 'STATUS'"),
        (b'{"action":5}', "unknown action '5'"),
        (b'{"action":"status","extra":1}', "unknown field 'extra'"),
        (b'{"action":"status","responseFor":[]}', "field 'responseFor' is not a scalar"),
        (
            b'{"action":"checkpoint","subSequenceNumber":true}',
            "field 'subSequenceNumber' is not a number",
        ),
        (
            b'{"action":"checkpoint","subSequenceNumber":"x"}',
            "field 'subSequenceNumber' is not a whole",
        ),
        (
            b'{"action":"checkpoint","subSequenceNumber":9223372036854775808}',
            "field 'subSequenceNumber' exceeds",
        ),
        (b'{"action":"checkpoint","subSequenceNumber":1e19}', "field 'subSequenceNumber' exceeds"),
        (
            b'{"action":"checkpoint","sequenceNumber":%s}' % (b"1" * 1001),
            "field 'sequenceNumber' has too many",
        ),
        (b'{"action":"processRecords","records":1}', "field 'records' is not an array"),
        (b'{"action":"processRecords","records":[1]}', "field 'records' holds something"),
        (
            b'{"action":"processRecords","records":[{"data":"%"}]}',
            "field 'records' field 'data' is not base64",
        ),
        (
            b'{"action":"processRecords","records":[{"data":["x"]}]}',
            "field 'records' field 'data' is not base64",
        ),
        (b"NaN", "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_junk_says_why(line, reason):
    verdict = decode_from_child(line)
    assert isinstance(verdict, Junk)
    assert verdict.line == line
    assert verdict.reason.startswith(reason)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"action":"status","responseFor":"initialize"}', Status("initialize")),
        (b'{"action": "status", "responseFor": "initialize"} junk', Status("initialize")),
        (b'["status","initialize"]', Status("initialize")),
        (b'["status",{"responseFor":"initialize"}]', Status("initialize")),
        (b'{"action":"status","responseFor":true}', Status("true")),
        (b'{"action":"status","responseFor":false}', Status("false")),
        (b'{"action":"checkpoint"}', CheckpointRequest(None, None)),
        (b'{"sequenceNumber":-0,"action":"checkpoint"}', CheckpointRequest("0", None)),
        (b'{"action":"checkpoint","sequenceNumber":-0}', CheckpointRequest("-0", None)),
        (b'{"action":"checkpoint","sequenceNumber":1.50}', CheckpointRequest("1.50", None)),
        (b'{"action":"checkpoint","subSequenceNumber":1.9}', CheckpointRequest(None, 1)),
        (b'{"action":"checkpoint","subSequenceNumber":" 7 "}', CheckpointRequest(None, 7)),
        (b'{"action":"checkpoint","subSequenceNumber":"null"}', CheckpointRequest(None, None)),
        (b'{"action":"leaseLost"}', Foreign(Action.LEASE_LOST)),
        (
            b'{"action":"processRecords","records":[null,{"data":[1]},{"data":null}]}',
            Foreign(Action.PROCESS_RECORDS),
        ),
        (
            b'{"action":"processRecords","records":[{"data":"aGk="}]}',
            Foreign(Action.PROCESS_RECORDS),
        ),
        (b'{"action":"processRecords","records":null}', Foreign(Action.PROCESS_RECORDS)),
    ],
)
def test_a_line_that_java_takes_is_taken(line, message):
    assert decode_from_child(line) == message


def test_bytes_that_are_not_utf_8_are_replaced_as_in_java():
    assert decode_from_child(b'{"action":"status","responseFor":"\xff"}') == Status("\ufffd")


@pytest.mark.parametrize(
    ("line", "announced", "meant"),
    [
        (b'{"action":"checkpoint","sequenceNumber":"1","subSequenceNumber":"x"}', (), "checkpoint"),
        (b'{"action":"checkpoint","checkpoint":"12"}', (), "checkpoint"),
        (b'  {"action" : "status","responseFor":"initialize","extra":1}', (), "status"),
        (b'{"action":"checkpoint",', (), "checkpoint"),
        (b'{"action":"tick","more":"x"}', ("tick",), "tick"),
        (b'{"action":"tick","more":"x"}', (), None),
        (b'{"action":"leaseLost","extra":1}', (), None),
        (b'sent {"action":"checkpoint"}', (), "checkpoint"),
        (b'[x] {"action":"tick"}', (), None),
        (b'{"level":"info"}{"action":"status","responseFor":"initialize"}', (), "status"),
        (b"hello", (), None),
        (b"{}", (), None),
    ],
)
def test_junk_says_which_message_it_was_probably_meant_to_be(line, announced, meant):
    junk = decode_from_child(line, announced)
    assert isinstance(junk, Junk)
    assert junk.action == meant
