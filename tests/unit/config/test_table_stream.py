"""The stream of a DynamoDB table in a file, and what is refused beside it."""

from __future__ import annotations

import pytest

from mld.config.build import build_config
from mld.config.config import RetrievalMode
from mld.config.findings import Severity
from mld.config.stream import (
    DYNAMODB_STREAMS,
    KINESIS,
    StreamArn,
    TableStreamArn,
    parse_arn,
    traits_of,
)
from mld.errors import MalformedData
from mld.streams.rules.stream_identity import stream_to_read

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders/stream/2026-11-28T07:09:24.310"
LOCAL = "arn:aws:dynamodb:ddblocal:000000000000:table/Orders/stream/2026-11-28T07:09:24.310"
NAME = "us-east-1$123456789012$Orders$2026-11-28T07_09_24.310"


def built(*lines, key="streamArn", arn=ARN):
    text = "\n".join(
        [
            "executableName = child.py",
            f"{key} = {arn}",
            "applicationName = app",
            "AwsCredentialsProvider = DefaultCredentialsProvider",
            *lines,
        ]
    )
    return build_config(text.encode(), "app.properties", worker_id="w")


def errors(*lines, **more):
    found = built(*lines, **more).findings
    return {one.key: one for one in found if one.severity is Severity.ERROR}


@pytest.mark.parametrize("key", ["streamArn", "streamName"])
def test_either_key_may_have_the_arn(key):
    config = built(key=key).require()
    assert (config.stream.name, config.stream.arn) == (NAME, ARN)
    assert config.stream.traits is DYNAMODB_STREAMS
    assert config.stream.region == "us-east-1"
    assert config.retrieval.mode is RetrievalMode.POLLING
    assert (config.retrieval.idle_s, config.retrieval.max_records) == (1.0, 1000)
    stream = stream_to_read(config.stream, "us-east-1", None)
    assert stream.request() == {"StreamName": NAME, "StreamARN": ARN}
    assert stream.traits is DYNAMODB_STREAMS


def test_a_file_of_the_1x_daemon_has_no_finding():
    lines = ("idleTimeBetweenReadsInMillis = 500", "maxRecords = 500", "regionName = us-east-1")
    found = built(*lines, key="streamName")
    assert not found.findings
    assert (found.require().retrieval.idle_s, found.require().retrieval.max_records) == (0.5, 500)


def test_an_arn_of_dynamodb_local_goes_with_any_region():
    config = built("regionName = eu-west-1", arn=LOCAL).require()
    assert config.stream.region == "eu-west-1"
    assert built(arn=LOCAL).require().stream.region is None


@pytest.mark.parametrize(
    ("line", "key", "says"),
    [
        ("regionName = eu-west-1", "regionName", "the DynamoDB stream is in us-east-1"),
        ("kinesisClient.region = eu-west-1", "kinesisClient.region", "is in us-east-1"),
        ("retrievalMode = FANOUT", "retrievalMode", "without enhanced fan-out"),
        ("fanoutConfig.consumerName = c", "fanoutConfig.consumerName", "without enhanced fan-out"),
        (
            "fanoutConfig.consumerArn = arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:1",
            "fanoutConfig.consumerArn",
            "without enhanced fan-out",
        ),
        ("glueSchemaRegistry.enabled = true", "glueSchemaRegistry.enabled", "have no schema"),
        (
            "kinesisEndpoint = https://kinesis.us-east-1.amazonaws.com",
            "kinesisEndpoint",
            "is not an endpoint of DynamoDB Streams",
        ),
        (
            "kinesisEndpoint = https://dynamodb.us-east-1.amazonaws.com",
            "kinesisEndpoint",
            "is not an endpoint of DynamoDB Streams",
        ),
        ("streamName = orders", "streamName", "names another stream than streamArn"),
    ],
)
def test_what_does_not_go_with_it_is_refused_by_its_line(line, key, says):
    found = errors(line)
    assert list(found) == [key]
    assert says in str(found[key])
    assert found[key].line == 5
    assert found[key].suggestion


CATCH_UP = ("catchupMillisBehindLatestThreshold = 5000", "catchupScalingFactor = 4")


def test_it_may_be_read_more_often_far_behind():
    retrieval = built().require().retrieval
    assert (retrieval.catch_up, retrieval.catch_up_behind_s) == (False, 60.0)
    assert retrieval.catch_up_factor == 3
    found = built("catchupEnabled = true", *CATCH_UP)
    retrieval = found.require().retrieval
    assert {one.severity for one in found.findings} == {Severity.INFO}
    assert (retrieval.catch_up, retrieval.catch_up_behind_s) == (True, 5.0)
    assert retrieval.catch_up_factor == 4
    warned = [one.key for one in built(*CATCH_UP).findings if one.severity is Severity.WARNING]
    assert warned == ["catchupMillisBehindLatestThreshold", "catchupScalingFactor"]
    for line in CATCH_UP:
        assert errors(line.replace("5000", "0").replace("4", "0"))


def test_keys_of_the_catch_up_have_no_effect_with_a_kinesis_stream():
    lines = ("streamName = orders", "catchupEnabled = true", *CATCH_UP)
    found = built(*lines, key="# x")
    warned = {one.key for one in found.findings if "Kinesis" in one.text}
    assert len(warned) == 3
    assert not found.require().retrieval.catch_up


def test_its_own_endpoint_is_accepted():
    assert not errors("kinesisEndpoint = https://streams.dynamodb.us-east-1.amazonaws.com")


def test_the_same_arn_may_stand_twice():
    assert not errors(f"streamName = {ARN}")


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:dynamodb:us-east-1:123456789012:table/Orders",
        "arn:aws:dynamodb:us-east-1:12:table/Orders/stream/2026-11-28T07:09:24.310",
    ],
)
def test_another_arn_of_dynamodb_is_refused_with_the_form(arn):
    found = errors(arn=arn)
    assert list(found) == ["streamArn"]
    assert "LatestStreamArn" in found["streamArn"].suggestion


def test_several_streams_of_tables_are_refused():
    found = errors("multiStream = true", f"streams = {ARN}", key="# x")
    assert list(found) == ["streams"]
    assert "DynamoDB" in str(found["streams"])


def test_an_arn_shows_its_service():
    assert isinstance(parse_arn(ARN), TableStreamArn)
    kinesis = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
    assert isinstance(parse_arn(kinesis), StreamArn)
    assert traits_of(kinesis) is traits_of(None) is traits_of("orders") is KINESIS
    assert str(parse_arn(ARN)) == ARN
    assert parse_arn(ARN).mark == f"123456789012:us-east-1:{NAME}"
    with pytest.raises(MalformedData, match="DynamoDB stream"):
        parse_arn("arn:aws:dynamodb:us-east-1:123456789012:table/T")
