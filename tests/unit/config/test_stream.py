"""Stream names, ARNs and multi-stream identifiers."""

import pytest

from kcl_mld.config.stream import Stream, StreamArn
from kcl_mld.errors import MalformedData

ARN = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/orders"


def test_an_arn_is_read_and_written_back():
    arn = StreamArn.parse(ARN)
    assert (arn.partition, arn.region, arn.account, arn.name) == (
        "aws-cn",
        "cn-north-1",
        "123456789012",
        "orders",
    )
    assert str(arn) == ARN


@pytest.mark.parametrize(
    "text",
    ["", "orders", ARN.replace("kinesis", "sqs"), ARN.replace("123456789012", "12"), ARN + "\n"],
)
def test_anything_else_is_no_arn(text):
    with pytest.raises(MalformedData, match="not the ARN"):
        StreamArn.parse(text)


def test_a_single_stream_names_leases_by_shard():
    stream = Stream("s")
    assert stream.identifier is None
    assert stream.lease_key("shardId-1") == "shardId-1"
    assert stream.request() == {"StreamName": "s"}


def test_a_multi_stream_application_puts_account_name_and_epoch_before_it():
    stream = Stream.parse_identifier("123456789012:s1:1700000000")
    assert stream.identifier == "123456789012:s1:1700000000"
    assert stream.lease_key("shardId-1") == "123456789012:s1:1700000000:shardId-1"


def test_an_arn_goes_into_requests_beside_the_name():
    assert Stream("orders", arn=ARN).request() == {"StreamName": "orders", "StreamARN": ARN}


@pytest.mark.parametrize(
    "text",
    ["", "1:s", "1:s:0", "a:s:1", "1::1", "1:s:1:2", f"1:s:{2**63}", "1:s:" + "9" * 5000],
)
def test_anything_else_is_no_identifier(text):
    with pytest.raises(MalformedData, match="account:stream:creationEpoch"):
        Stream.parse_identifier(text)
