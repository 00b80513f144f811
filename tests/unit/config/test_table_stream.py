"""The stream of a DynamoDB table in a file, and what is refused beside it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kcl_mld.aws.clients import kinesis_settings, make_client
from kcl_mld.config.build import build_config
from kcl_mld.config.config import RetrievalMode
from kcl_mld.config.findings import Severity
from kcl_mld.config.stream import (
    DYNAMODB_STREAMS,
    KINESIS,
    Stream,
    StreamArn,
    TableStreamArn,
    parse_arn,
    traits_of,
)
from kcl_mld.errors import ConfigError, MalformedData
from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.streams.rules.stream_identity import (
    arn_of,
    check_regions,
    resolved_stream,
    stream_to_read,
)
from tests.unit.aws.sessions import quick_session

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


@pytest.mark.parametrize(
    "host",
    [
        "streams.dynamodb.us-east-1.amazonaws.com",
        "streams.dynamodb-fips.us-east-1.amazonaws.com",
        "streams-dynamodb.us-east-1.api.aws",
        "123456789012.streams-ddb.us-east-1.amazonaws.com",
        "vpce-1-2.streams.dynamodb.us-east-1.vpce.amazonaws.com",
        "kinesis.example.com",
    ],
)
def test_its_own_endpoint_is_accepted(host):
    assert not errors(f"kinesisEndpoint = https://{host}")
    assert not errors_of_many(f"kinesisEndpoint = https://{host}")


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("kinesis.us-east-1.amazonaws.com", "is not an endpoint of DynamoDB Streams"),
        ("kinesis-fips.us-east-1.amazonaws.com", "is not an endpoint of DynamoDB Streams"),
        ("vpce-1.kinesis.us-east-1.vpce.amazonaws.com", "is not an endpoint of DynamoDB Streams"),
        ("123456789012.data-kinesis.us-east-1.amazonaws.com", "is not an endpoint of DynamoDB"),
        ("1.control-kinesis.us-east-1.amazonaws.com", "is not an endpoint of DynamoDB Streams"),
        ("dynamodb.us-east-1.amazonaws.com", "is not an endpoint of DynamoDB Streams"),
        ("123456789012.ddb.us-east-1.amazonaws.com", "is not an endpoint of DynamoDB Streams"),
        ("streams.dynamodb.eu-west-1.amazonaws.com", "is in eu-west-1, but the DynamoDB stream"),
        ("streams-dynamodb-fips.us-west-2.api.aws", "is in us-west-2, but the DynamoDB stream"),
    ],
)
def test_another_endpoint_of_aws_is_refused_with_the_right_one(host, says):
    found = errors(f"kinesisEndpoint = https://{host}")
    assert list(found) == ["kinesisEndpoint"]
    assert says in found["kinesisEndpoint"].text
    assert "https://streams.dynamodb.us-east-1.amazonaws.com" in found["kinesisEndpoint"].suggestion
    assert errors_of_many(f"kinesisEndpoint = https://{host}") == [("kinesisEndpoint", 7)]


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


@pytest.mark.parametrize("key", ["streamArn", "streamName"])
def test_the_arn_of_a_table_is_refused_with_the_place_where_it_may_stand(key):
    (finding,) = built(key=key, arn=TABLE).findings  # none about fan-out, which it does not have
    assert (finding.key, finding.severity) == (key, Severity.ERROR)
    assert f"multiStream = true, streams = {TABLE}" in finding.suggestion


# -- several streams


CLICKS = "arn:aws:dynamodb:us-east-1:123456789012:table/Clicks/stream/2026-11-28T07:09:26.223"
TABLE = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders"
OF_KINESIS = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


def many(*lines, streams=(ARN, CLICKS)):
    return built("multiStream = true", f"streams = {', '.join(streams)}", *lines, key="# x")


def errors_of_many(*lines, **more):
    found = many(*lines, **more).findings
    return [(one.key, one.line) for one in found if one.severity is Severity.ERROR]


def test_the_list_may_have_streams_of_tables():
    config = many().require()
    assert [str(one) for one in config.streams.streams] == [ARN, CLICKS]
    assert config.traits is config.streams.traits is DYNAMODB_STREAMS
    assert config.stream.region == "us-east-1"
    assert config.retrieval_of(NAME).mode is RetrievalMode.POLLING
    assert (config.retrieval.idle_s, config.retrieval.max_records) == (1.0, 1000)
    assert not config.may_fan_out
    assert kinesis_settings(config).service == "dynamodbstreams"


def test_streams_of_dynamodb_local_go_with_any_region():
    config = many("regionName = eu-west-1", streams=[LOCAL]).require()
    check_regions(config.streams.streams, "eu-west-1")
    with pytest.raises(ConfigError, match="one region"):
        check_regions(many().require().streams.streams, "eu-west-1")


def test_options_are_of_a_name_as_children_see_it_or_of_a_glob():
    table = f"stream.{NAME}.executableName = orders.py"
    config = many(table, "stream.*$Clicks$*.initialPositionInStream = TRIM_HORIZON").require()
    orders, clicks = (config.streams.options_of(one.name) for one in config.streams.streams)
    assert (orders.argv, orders.initial_position) == (("orders.py",), None)
    assert (clicks.argv, clicks.initial_position.sentinel) == (None, Sentinel.TRIM_HORIZON)
    assert not [one for one in many(table).findings if one.severity > Severity.INFO]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("streamNamePattern = *", "streamNamePattern"),
        ("streamTags = team=data", "streamTags"),
        ("retrievalMode = FANOUT", "retrievalMode"),
        ("fanoutConfig.consumerName = c", "fanoutConfig.consumerName"),
        ("stream.*$Orders$*.retrievalMode = FANOUT", "stream.*$Orders$*.retrievalMode"),
        (
            f"stream.s.consumerArn = {OF_KINESIS[:-6]}s/consumer/c:1",
            "stream.s.consumerArn",
        ),
        ("regionName = eu-west-1", "regionName"),
        ("glueSchemaRegistry.enabled = true", "glueSchemaRegistry.enabled"),
        ("kinesisEndpoint = https://kinesis.us-east-1.amazonaws.com", "kinesisEndpoint"),
        ("streamName = orders", "streamName"),
    ],
)
def test_what_does_not_go_with_the_list_is_refused_by_its_line(line, key):
    assert errors_of_many(line) == [(key, 7)]


@pytest.mark.parametrize(
    ("streams", "says", "todo"),
    [
        ([ARN, OF_KINESIS], "mixes streams of Kinesis and of DynamoDB", "of their own"),
        (["orders", ARN], "mixes streams of Kinesis and of DynamoDB", "of their own"),
        (
            [ARN, CLICKS.replace("us-east-1", "eu-west-1")],
            "has streams of the regions eu-west-1, us-east-1",
            "a worker of their own",
        ),
        ([ARN, f"{TABLE}/stream/"], "not the ARN of a DynamoDB", "LatestStreamArn"),
        ([ARN, f"{TABLE}/index/x"], "not the ARN of a DynamoDB", "LatestStreamArn"),
        ([ARN, ARN], "may name the same stream", "keep one"),
    ],
)
def test_a_wrong_list_is_refused_with_what_to_do(streams, says, todo):
    (error,) = (one for one in many(streams=streams).findings if one.severity is Severity.ERROR)
    assert (error.key, error.line) == ("streams", 6)
    assert says in error.text
    assert todo in error.suggestion


def test_the_arn_of_a_table_means_its_latest_stream():
    found = many("stream.*$Orders$*.executableName = orders.py", streams=[TABLE, CLICKS])
    orders, clicks = found.require().streams.streams
    assert (orders.is_latest, clicks.is_latest) == (True, False)
    assert str(orders) == f"{TABLE}/stream/*"
    assert found.require().stream.region == "us-east-1"
    assert not [one for one in found.findings if one.severity > Severity.INFO]
    assert [key for key, _ in errors_of_many(streams=[TABLE, TABLE])] == ["streams"]


def test_leases_of_a_whole_table_are_not_deleted():
    strategy = "formerStreamsLeasesDeletionStrategy = PROVIDED_LIST"
    found = errors_of_many(strategy, f"formerStreamsForLeaseCleanup = {TABLE}")
    assert found == [("formerStreamsForLeaseCleanup", 8)]


def test_the_arn_of_one_of_them_may_stay_for_a_worker_of_one_stream():
    assert not errors_of_many(f"streamName = {ARN}", f"streamArn = {ARN}")


#: As the Java adapter 2.3.0 wrote them in multi-stream mode.
LEASE_ROWS = Path(__file__).resolve().parents[2] / "data/dynamodb_streams/lease_rows.json"


@pytest.mark.parametrize(
    ("table", "label"),
    [
        ("TNEW_AND_OLD_IMAGES", "2026-11-28T07:09:24.310"),
        ("TKEYS_ONLY", "2026-11-28T07:09:26.223"),
    ],
)
def test_lease_keys_are_those_of_java(table, label):
    rows = json.loads(LEASE_ROWS.read_text())
    (row,) = (one for one in rows if f"${table}$" in one["leaseKey"]["S"])
    lease_key, identifier, shard_id = (
        row[name]["S"] for name in ("leaseKey", "streamName", "shardId")
    )
    arn = f"arn:aws:dynamodb:us-east-1:123456789012:table/{table}/stream/{label}"
    (listed,) = many(streams=[arn]).require().streams.streams
    stream = resolved_stream(listed, "us-east-1", None, (), "auto")
    assert stream.lease_key(shard_id) == lease_key
    assert stream.identifier == identifier
    assert stream.request() == {"StreamName": listed.name, "StreamARN": arn}
    assert Stream.parse_identifier(identifier) == stream


@pytest.mark.parametrize(
    ("partition", "region"),
    [
        ("aws", "eu-west-1"),
        ("aws", "ddblocal"),
        ("aws-cn", "cn-northwest-1"),
        ("aws-us-gov", "us-gov-east-1"),
        ("aws-eusc", "eusc-de-east-1"),
    ],
)
@pytest.mark.parametrize("table", ["A_b.c-d", "abc"])
@pytest.mark.parametrize("label", ["2026-11-28T07:09:24.310", "2026-11-28T07:09:24.310123"])
def test_the_arn_can_be_read_back_from_an_identifier(partition, region, table, label):
    arn = TableStreamArn(partition, region, "210987654321", table, label)
    identifier = f"{arn.account}:{arn.name}:1"
    stream = Stream.parse_identifier(identifier)
    assert (stream.arn, stream.identifier) == (str(arn), identifier)
    assert stream.traits is DYNAMODB_STREAMS
    assert arn_of(arn.account, arn.name, "us-east-1") == str(arn)


def test_the_identifier_of_a_stream_of_kinesis_has_no_arn():
    assert Stream.parse_identifier("123456789012:orders:1700000000").arn is None
    assert TableStreamArn.of_name("orders") is None


# -- partitions


@pytest.mark.parametrize(
    ("partition", "region", "host"),
    [
        ("aws", "us-east-1", "streams.dynamodb.us-east-1.amazonaws.com"),
        ("aws-cn", "cn-north-1", "streams.dynamodb.cn-north-1.amazonaws.com.cn"),
        ("aws-us-gov", "us-gov-west-1", "streams.dynamodb.us-gov-west-1.amazonaws.com"),
    ],
)
def test_the_partition_of_the_arn_is_kept_and_its_endpoint_is_called(partition, region, host):
    arn = ARN.replace("arn:aws:", f"arn:{partition}:").replace("us-east-1", region)
    config = built(arn=arn).require()
    assert stream_to_read(config.stream, region, None).request()["StreamARN"] == arn
    client = make_client(quick_session(), kinesis_settings(config))
    assert urlsplit(client.meta.endpoint_url).hostname == host


def test_an_arn_shows_its_service():
    assert isinstance(parse_arn(ARN), TableStreamArn)
    kinesis = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
    assert isinstance(parse_arn(kinesis), StreamArn)
    assert traits_of(kinesis) is traits_of(None) is traits_of("orders") is KINESIS
    assert str(parse_arn(ARN)) == ARN
    assert parse_arn(ARN).mark == f"123456789012:us-east-1:{NAME}"
    with pytest.raises(MalformedData, match="DynamoDB stream"):
        parse_arn("arn:aws:dynamodb:us-east-1:123456789012:table/T")
