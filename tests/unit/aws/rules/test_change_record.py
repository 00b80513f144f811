"""Changes of a table as records of Kinesis, compared with what the Java adapter's 1.x daemon passed on."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from kcl_mld.aws.rules.change_record import kinesis_answer, read_changes
from kcl_mld.errors import MalformedData

RECORDED = json.loads(
    (Path(__file__).parents[3] / "data" / "dynamodb_streams" / "records.json").read_text("utf-8")
)
CHANGE = {"SequenceNumber": "000000000000000000007", "ApproximateCreationDateTime": 5}


def page(*records, following="next"):
    body = {"Records": records} | ({"NextShardIterator": following} if following else {})
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def record(**change):
    return {"eventID": "e", "dynamodb": CHANGE | change}


def data_of(kinesis_record):
    return base64.b64decode(json.loads(kinesis_record)["Data"]).decode()


def with_identity_last(text):
    """The data of 1.x, where the identity is the first member."""
    members = json.loads(text)
    if "userIdentity" in members:
        members["userIdentity"] = members.pop("userIdentity")
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: one["wire"]["eventID"])
def test_the_data_is_that_of_the_1x_daemon_byte_for_byte(recorded):
    (found,) = read_changes(page(recorded["wire"])).records
    theirs = recorded["v1_record"]
    assert data_of(found) == with_identity_last(recorded["v1_data"])
    ours = json.loads(found)
    assert ours["SequenceNumber"] == ours["PartitionKey"] == theirs["sequenceNumber"]
    assert (
        round(ours["ApproximateArrivalTimestamp"] * 1000) == (theirs["approximateArrivalTimestamp"])
    )


def test_only_the_place_of_the_identity_differs():
    assert any("userIdentity" in one["wire"] for one in RECORDED)
    assert all(
        with_identity_last(one["v1_data"]) == one["v1_data"]
        for one in RECORDED
        if "userIdentity" not in one["wire"]
    )


def test_images_are_the_bytes_that_came():
    body = page(record(NewImage="IMAGE")).replace(b'"IMAGE"', b'{"n": {"N":"1E+20"}, "\\u00e9":1}')
    (found,) = read_changes(body).records
    assert '"NewImage":{"n": {"N":"1E+20"}, "\\u00e9":1}' in data_of(found)


def test_members_that_are_not_known_stand_last():
    (found,) = read_changes(
        page({"new": 1, "userIdentity": {"type": "Service", "more": 2}, **record(more=3)})
    ).records
    assert data_of(found) == (
        '{"eventID":"e","dynamodb":{"ApproximateCreationDateTime":5000,'
        '"SequenceNumber":"000000000000000000007","more":3},'
        '"userIdentity":{"type":"Service","more":2},"new":1}'
    )


def test_an_identity_of_null_is_left_out():
    (found,) = read_changes(page({**record(), "userIdentity": None})).records
    assert "userIdentity" not in data_of(found)


def test_times_are_cut_off_at_the_millisecond():
    (found,) = read_changes(page(record(ApproximateCreationDateTime=1795849740.129999))).records
    assert json.loads(found)["ApproximateArrivalTimestamp"] == 1795849740.129


def test_a_change_without_a_time_is_passed_on_and_never_left_out():
    body = page({"dynamodb": {"SequenceNumber": "1"}}, record())
    assert len(read_changes(body, 10_000).records) == 1
    assert "ApproximateArrivalTimestamp" not in json.loads(read_changes(body, 10_000).records[0])
    assert read_changes(body, 10_000).last_ms == 5000


def test_changes_before_the_start_are_left_out():
    body = page(*(record(ApproximateCreationDateTime=at) for at in (1, 2, 3)), following=None)
    found = read_changes(body, 2000)
    assert [json.loads(one)["ApproximateArrivalTimestamp"] for one in found.records] == [2, 3]
    assert (found.following, found.last_ms) == (None, 3000)


def test_an_empty_page_has_no_time():
    assert read_changes(page()).last_ms is None


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b'{"Records":[{"eventID":"e"}]}',
        b'{"Records":[{"dynamodb":{}}]}',
        b'{"Records":[{"dynamodb":{"SequenceNumber":"1","ApproximateCreationDateTime":"x"}}]}',
        b'{"Records":[{"dynamodb":{"SequenceNumber":"1","ApproximateCreationDateTime":1e999999}}]}',
    ],
)
def test_what_cannot_be_read_is_said(body):
    with pytest.raises(MalformedData, match="GetRecords"):
        read_changes(body)


def test_the_answer_has_the_form_of_kinesis():
    assert json.loads(kinesis_answer([b"1", b"2"], "i", 5)) == {
        "NextShardIterator": "i",
        "MillisBehindLatest": 5,
        "Records": [1, 2],
    }
    assert json.loads(kinesis_answer([], None, None, b',"ChildShards":[3]')) == {
        "NextShardIterator": None,
        "MillisBehindLatest": None,
        "ChildShards": [3],
        "Records": [],
    }
