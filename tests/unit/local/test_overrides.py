"""Pointing a properties file at the embedded AWS."""

from __future__ import annotations

import pytest

from kcl_mld.cli.local import overridden, starts_at_latest, values_of
from kcl_mld.cli.local_target import Target, target_of
from kcl_mld.config.properties import parse
from kcl_mld.config.stream import TableStreamArn
from kcl_mld.errors import ConfigError

FILE = b"""# comment
executableName = python app.py --flag=a\\=b
streamName: words
AWSCredentialsProvider = Prod
awscredentialsproviderDynamoDB = Prod
regionName = eu-west-1
kinesisClient.endpointOverride = https://example.org
initialPositionInStream = TRIM_HORIZON
"""


def entries(data: bytes) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse(data)}


def target(data: bytes, source: str) -> Target:
    return target_of(values_of(parse(data)), source)


def test_where_requests_go_is_replaced_and_the_rest_kept() -> None:
    text = overridden(FILE, "f", {"kinesisEndpoint": "http://127.0.0.1:1", "regionName": "r"})
    assert entries(text) == {
        "executableName": "python app.py --flag=a=b",
        "streamName": "words",
        "initialPositionInStream": "TRIM_HORIZON",
        "kinesisEndpoint": "http://127.0.0.1:1",
        "regionName": "r",
    }


def test_what_is_kept_stays_in_its_line() -> None:
    data = b"# one\nregionName=x\n\nexecutableName=a \\\n  b\nmaxRecords=1\nmaxRecords=2\n"
    copy = overridden(data, "f", {"regionName": "r"})
    assert [(entry.key, entry.value, entry.line) for entry in parse(copy)] == [
        ("executableName", "a b", 4),
        ("maxRecords", "1", 6),
        ("maxRecords", "2", 7),
        ("regionName", "r", 8),
    ]


def test_odd_texts_survive_the_copy() -> None:
    odd = {"a b:c=": " lead\t\\ # ! é\n"}
    source = b"a\\ b\\:c\\= = \\u0020lead\\t\\\\ # ! \xe9\\n\n"
    assert entries(source) == odd
    assert entries(overridden(source, "f", {})) == odd


def test_a_replaced_key_replaces_any_spelling_of_itself() -> None:
    text = overridden(b"INITIALPositionInStream=LATEST", "f", {"initialPositionInStream": "x"})
    assert entries(text) == {"initialPositionInStream": "x"}


def test_the_stream_is_found_by_name_or_arn() -> None:
    assert target(FILE, "f") == Target(("words",), "eu-west-1", "123456789012")
    assert target(b"streamName=s", "f") == Target(("s",), "us-east-1", "123456789012")
    arn = b"streamName=s\nstreamArn=arn:aws:kinesis:us-west-2:111122223333:stream/t"
    assert target(arn, "f") == Target(("t",), "us-west-2", "111122223333")
    # The worker reads it in its own region, as Java does.
    assert target(arn + b"\nregionName=eu-west-1", "f").region == "eu-west-1"


def test_many_streams_are_found() -> None:
    data = b"multiStream = true\nstreams = a, 111122223333:b:7"
    assert target(data, "f") == Target(("a", "b"), "us-east-1", "111122223333")
    data = b"multiStream = true\nstreams = a"
    assert target(data, "f") == Target(("a",), "us-east-1", "123456789012")


@pytest.mark.parametrize(
    ("streams", "why"),
    [
        ("", "names no stream"),
        ("a b", "not a valid stream name"),
        ("1:a:7, 2:b:7", "of several accounts, 1, 2"),
        (
            "arn:aws:kinesis:eu-west-1:111122223333:stream/a",
            "of several regions, eu-west-1, us-eas",
        ),
    ],
)
def test_many_streams_must_fit_into_the_embedded_kinesis(streams: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        target(f"multiStream = true\nstreams = {streams}".encode(), "f")


@pytest.mark.parametrize("data", [b"", b"streamName=", b"streamArn=arn:aws:s3:::bucket"])
def test_a_file_without_a_stream_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        target(data, "f")


@pytest.mark.parametrize(
    ("data", "latest"),
    [
        (b"", True),
        (b"initialPositionInStream=latest", True),
        (FILE, False),
        (b"initialPositionInStreamExtended=5", False),
    ],
)
def test_the_starting_position_is_seen(data: bytes, latest: bool) -> None:
    assert starts_at_latest(values_of(parse(data))) is latest


def test_a_rule_for_streams_names_none_to_create():
    many = b"multiStream=true\n"
    none = Target((), "us-east-1", "123456789012")
    assert target(many + b"streamNamePattern=o*", "f") == none
    assert target(many + b"streamTags=a=b", "f") == none
    both = target(many + b"streamTags=a=b\nstreams=s", "f")
    assert both.streams == ("s",)


def test_consumers_are_found_and_say_whose_the_stream_is() -> None:
    arn = "arn:aws:kinesis:eu-west-1:210987654321:stream/words/consumer/app:1700000000"
    file = f"streamName = words\nregionName = eu-west-1\nFanOutConfig.ConsumerArn = {arn}\n"
    assert target(file.encode(), "f") == Target(("words",), "eu-west-1", "210987654321", (arn,))
    assert target(b"streamName = s\nfanoutConfig.consumerArn =", "f").consumers == ()


def test_each_stream_may_name_its_consumer() -> None:
    one, two = (
        f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}/consumer/c:17" for name in "ab"
    )
    file = f"multiStream = true\nstreams = a,b\nstream.b.consumerArn={two}\n"
    file += f"stream.a.consumerArn={one}\n"
    assert target(file.encode(), "f") == Target(("a", "b"), "us-east-1", "123456789012", (one, two))


ORDERS, CLICKS = (
    f"arn:aws:dynamodb:eu-west-1:210987654321:table/{name}/stream/2026-11-28T07:09:24.310"
    for name in ("Orders", "Clicks")
)


@pytest.mark.parametrize("key", ["streamArn", "streamName"])
def test_the_stream_of_a_table_is_found(key: str) -> None:
    found = target(f"{key} = {ORDERS}".encode(), "f")
    tables = (TableStreamArn.parse(ORDERS),)
    assert found == Target((), "eu-west-1", "210987654321", tables=tables)


def test_the_streams_of_tables_and_the_tables_themselves_are_found() -> None:
    found = target(f"multiStream = true\nstreams = {ORDERS}, {CLICKS}".encode(), "f")
    tables = (TableStreamArn.parse(ORDERS), TableStreamArn.parse(CLICKS))
    assert found == Target((), "eu-west-1", "210987654321", tables=tables)
    table = ORDERS.partition("/stream/")[0]
    (latest,) = target(f"multiStream = true\nstreams = {table}".encode(), "f").tables
    assert latest.table == "Orders"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("streamArn = arn:aws:dynamodb:eu-west-1:210987654321:table/Orders", "LatestStreamArn"),
        (f"multiStream = true\nstreams = {ORDERS}, words", "mixes streams of Kinesis"),
        (
            f"multiStream = true\nstreams = {ORDERS}, {CLICKS.replace('-1:', '-2:')}",
            "of several regions",
        ),
        (
            f"multiStream = true\nstreams = {ORDERS}, {CLICKS.replace('2109', '3109')}",
            "of several accounts",
        ),
    ],
)
def test_streams_of_tables_must_fit_into_one_server(data: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        target(data.encode(), "f")
