"""Account and creation epoch of lease keys."""

import datetime as dt

import pytest

from kcl_mld.config.stream import Stream, StreamArn
from kcl_mld.config.stream_list import ListedStream
from kcl_mld.errors import ConfigError, MalformedData
from kcl_mld.streams.rules.stream_identity import (
    arn_of,
    check_regions,
    created_at_s,
    described_stream,
    epoch_of,
    is_of_earlier_stream,
    is_of_later_stream,
    resolved_stream,
)

ACCOUNT = "123456789012"
ARN = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/s"
CREATED_S = 1_700_000_000.123
SECONDS, MILLIS = 1_700_000_000, 1_700_000_000_123
SUMMARY = {"StreamARN": ARN, "StreamCreationTimestamp": CREATED_S}


@pytest.mark.parametrize(
    ("rows", "unit", "epoch"),
    [
        ([], "auto", SECONDS),
        ([], "seconds", SECONDS),
        ([], "millis", MILLIS),
        ([f"{ACCOUNT}:s:{MILLIS}"], "auto", MILLIS),
        ([f"{ACCOUNT}:s:{SECONDS}"], "auto", SECONDS),
        ([f"{ACCOUNT}:s:{SECONDS}000"], "auto", SECONDS * 1000),
        ([f"{ACCOUNT}:s:{MILLIS}"], "seconds", SECONDS),
        ([f"{ACCOUNT}:other:{MILLIS}"], "auto", MILLIS),
        ([f"{ACCOUNT}:other:{SECONDS}", "what", ""], "auto", SECONDS),
        # One stray row does not outvote the others, and a number that is no time has no vote.
        ([f"{ACCOUNT}:{s}" for s in (f"o:{MILLIS}", f"p:{SECONDS}", "q:1")], "auto", SECONDS),
        ([f"{ACCOUNT}:{s}" for s in (f"o:{MILLIS}", f"p:{MILLIS}", "q:1")], "auto", MILLIS),
        (
            [f"{ACCOUNT}:{s}" for s in (f"o:{MILLIS}", f"p:{SECONDS}", f"q:{SECONDS}")],
            "auto",
            SECONDS,
        ),
        # Rows are counted, of this stream and of others.
        (
            [f"{ACCOUNT}:s:{SECONDS}", *[f"{ACCOUNT}:s:{MILLIS}"] * 2],
            "auto",
            MILLIS,
        ),
        (
            [f"{ACCOUNT}:s:{MILLIS}", *[f"{ACCOUNT}:s:{SECONDS}"] * 2],
            "auto",
            SECONDS,
        ),
        ([f"{ACCOUNT}:o:{SECONDS}", *[f"{ACCOUNT}:p:{MILLIS}"] * 2], "auto", MILLIS),
        ([f"{ACCOUNT}:s:{SECONDS - 1}"], "auto", SECONDS),
        ([f"{ACCOUNT}:s:{MILLIS - 1}"], "auto", MILLIS),
        ([f"000011112222:s:{SECONDS}"], "auto", SECONDS),
    ],
)
def test_the_epoch_is_that_of_the_table_where_it_has_one(rows, unit, epoch):
    assert epoch_of(ACCOUNT, "s", CREATED_S, rows, unit) == epoch


def test_a_name_is_resolved_by_the_answer():
    found = resolved_stream(ListedStream("s"), "us-east-1", SUMMARY, [], "auto")
    assert found == Stream("s", ARN, ACCOUNT, SECONDS)
    assert described_stream(ListedStream("s"), "us-east-1").request() == {"StreamName": "s"}


def test_an_arn_is_sent_as_it_stands():
    listed = ListedStream("s", arn=StreamArn.parse(ARN), account=ACCOUNT)
    assert described_stream(listed, "us-east-1").request() == {"StreamName": "s", "StreamARN": ARN}
    summary = {"StreamCreationTimestamp": CREATED_S}
    found = resolved_stream(listed, "us-east-1", summary, [], "millis")
    assert found == Stream("s", ARN, ACCOUNT, MILLIS)


def test_an_identifier_needs_no_answer_and_gets_an_arn():
    listed = ListedStream("s", account=ACCOUNT, epoch=7)
    found = resolved_stream(listed, "cn-north-1", None, [], "auto")
    assert found.identifier == f"{ACCOUNT}:s:7"
    assert found.arn == f"arn:aws-cn:kinesis:cn-north-1:{ACCOUNT}:stream/s"
    assert arn_of(ACCOUNT, "s", "us-gov-west-1").startswith("arn:aws-us-gov:kinesis:us-gov-west-1:")


@pytest.mark.parametrize("summary", [None, {}, {"StreamARN": ARN}])
def test_an_answer_that_says_too_little_is_refused(summary):
    with pytest.raises(MalformedData):
        resolved_stream(ListedStream("s"), "us-east-1", summary, [], "auto")


def test_streams_of_another_region_are_refused():
    listed = ListedStream("s", arn=StreamArn.parse(ARN), account=ACCOUNT)
    check_regions([listed, ListedStream("t")], "us-east-1")
    with pytest.raises(
        ConfigError, match="is in us-east-1, but the Kinesis client is in eu-west-1"
    ):
        check_regions([listed], "eu-west-1")


def test_a_creation_time_comes_in_the_form_of_its_client():
    moment = dt.datetime.fromtimestamp(CREATED_S, dt.UTC)
    assert created_at_s(moment) == CREATED_S
    assert created_at_s(5) == 5.0
    assert created_at_s(None) is created_at_s("yesterday") is None


@pytest.mark.parametrize(
    ("epoch", "earlier"),
    [
        (SECONDS, False),
        (MILLIS, False),
        (SECONDS * 1000, False),
        (SECONDS - 2, True),
        (MILLIS - 2000, True),
        (SECONDS + 100, False),
        (1, False),
    ],
)
def test_leases_of_an_earlier_stream_are_told_by_their_epoch(epoch, earlier):
    assert is_of_earlier_stream(epoch, CREATED_S) is earlier
    assert not is_of_earlier_stream(epoch, None)


def test_leases_of_a_later_stream_are_told_by_their_epoch_in_either_unit():
    assert is_of_later_stream(SECONDS + 1, SECONDS)
    assert is_of_later_stream(MILLIS + 1000, SECONDS)
    assert not is_of_later_stream(MILLIS, SECONDS)
    assert not is_of_later_stream(SECONDS - 9, MILLIS)
