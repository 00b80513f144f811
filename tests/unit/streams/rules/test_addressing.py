"""Which stream a streamArn leads to."""

import pytest

from kcl_mld.config.config import StreamConfig
from kcl_mld.config.stream import Stream
from kcl_mld.errors import ConfigError
from kcl_mld.streams.rules.stream_identity import stream_to_read

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


def config(arn=ARN, *, addressing=False):
    return StreamConfig(name="orders", arn=arn, arn_addressing=addressing)


def test_a_stream_without_an_arn_is_addressed_by_name():
    assert stream_to_read(config(None), "eu-west-1", None) == Stream("orders")


def test_the_arn_is_sent_where_region_and_account_are_those_of_the_caller():
    assert stream_to_read(config(), "eu-west-1", "123456789012") == Stream("orders", arn=ARN)


def test_with_an_unknown_account_the_name_alone_is_sent_as_java_does():
    assert stream_to_read(config(), "eu-west-1", None) == Stream("orders")


@pytest.mark.parametrize(
    ("region", "account"),
    [("us-east-1", "123456789012"), ("eu-west-1", "999999999999"), ("us-east-1", None)],
)
def test_an_arn_of_another_region_or_account_is_refused_and_both_ways_out_are_named(
    region, account
):
    with pytest.raises(ConfigError) as caught:
        stream_to_read(config(), region, account)
    assert caught.value.key == "streamArn"
    assert "streamName=orders" in str(caught.value)
    assert "streamArnAddressing=arn" in str(caught.value)


def test_arn_addressing_reads_the_stream_of_another_account():
    stream = stream_to_read(config(addressing=True), "eu-west-1", "999999999999")
    assert stream == Stream("orders", arn=ARN)


def test_arn_addressing_still_needs_the_client_in_the_arns_region():
    with pytest.raises(ConfigError, match="regionName=eu-west-1"):
        stream_to_read(config(addressing=True), "us-east-1", None)


def test_a_malformed_arn_is_a_configuration_error():
    with pytest.raises(ConfigError, match="not the ARN"):
        stream_to_read(config("arn:aws:s3:::bucket"), "eu-west-1", None)
