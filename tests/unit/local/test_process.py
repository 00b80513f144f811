"""The embedded AWS: its process, its faults, its clock."""

from __future__ import annotations

import collections
import contextlib
import http.client
import importlib.util
import json
import os
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from kcl_mld.errors import ConfigError
from kcl_mld.local import embedded
from kcl_mld.local.__main__ import main
from kcl_mld.local.embedded import ControlRefused, EmbeddedAws, EmbeddedAwsFailed
from tests.unit.local.in_this_process import InThisProcess

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedAws]:
    with InThisProcess(region="eu-central-1") as aws:
        yield aws


@pytest.fixture
def aws(running: EmbeddedAws) -> Iterator[EmbeddedAws]:
    yield running
    running.control(faults=[], settings={"reshard_s": 0.0})


def client(aws: EmbeddedAws, service: str) -> Any:
    return aws.client(service, config=Config(retries={"total_max_attempts": 1}))


def test_all_services_answer_real_clients(aws: EmbeddedAws) -> None:
    before = collections.Counter(aws.control()["calls"])
    kinesis = client(aws, "kinesis")
    kinesis.create_stream(StreamName="answers", ShardCount=1)
    summary = kinesis.describe_stream_summary(StreamName="answers")["StreamDescriptionSummary"]
    assert summary["StreamARN"] == "arn:aws:kinesis:eu-central-1:123456789012:stream/answers"
    assert client(aws, "sts").get_caller_identity()["Account"] == "123456789012"
    client(aws, "cloudwatch").put_metric_data(
        Namespace="n", MetricData=[{"MetricName": "m", "Value": 1.0}]
    )
    client(aws, "dynamodb").create_table(
        TableName="answers",
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    calls = collections.Counter(aws.control()["calls"]) - before
    for name in ("kinesis.CreateStream", "sts.GetCallerIdentity", "monitoring.PutMetricData"):
        assert calls[name] == 1, calls


@pytest.mark.parametrize(
    ("service", "operation", "name"),
    [
        ("kinesis", "list_streams", "ListStreams"),
        ("dynamodb", "list_tables", "ListTables"),
        ("sts", "get_caller_identity", "GetCallerIdentity"),
        ("monitoring", "list_metrics", "ListMetrics"),
    ],
)
def test_errors_can_be_ordered_in_every_service(
    aws: EmbeddedAws, service: str, operation: str, name: str
) -> None:
    rule = {"service": service, "operation": name, "code": "ThrottlingException", "times": 1}
    aws.control(faults=[rule])
    call = getattr(client(aws, service.replace("monitoring", "cloudwatch")), operation)
    with pytest.raises(ClientError, match="ThrottlingException") as caught:
        call()
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert call()["ResponseMetadata"]["HTTPStatusCode"] == 200


@pytest.mark.parametrize(("when", "happened"), [("before", False), ("after", True)])
def test_a_lost_answer_has_its_effect_or_not(aws: EmbeddedAws, when: str, happened: bool) -> None:
    name = f"lost-{when}"
    kinesis, dynamodb = client(aws, "kinesis"), client(aws, "dynamodb")
    aws.control(faults=[{"when": when, "drop": True, "times": 2}])
    with pytest.raises(ConnectionClosedError):
        kinesis.create_stream(StreamName=name, ShardCount=1)
    with pytest.raises(ConnectionClosedError):
        dynamodb.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
    assert (name in kinesis.list_streams()["StreamNames"]) is happened
    assert (name in dynamodb.list_tables()["TableNames"]) is happened


def test_delays_can_be_ordered(aws: EmbeddedAws) -> None:
    aws.control(faults=[{"delay_s": 0.3}])
    for service, operation in (("kinesis", "list_streams"), ("dynamodb", "list_tables")):
        started = time.monotonic()
        getattr(client(aws, service), operation)()
        assert time.monotonic() - started >= 0.3


def test_a_stop_ends_stalled_and_half_sent_requests_without_a_word(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with EmbeddedAws(options=["--no-moto"]) as aws, contextlib.ExitStack() as open_connections:
        aws.control(faults=[{"operation": "ListStreams", "delay_s": 600}])
        host, _, port = aws.kinesis_url.removeprefix("http://").partition(":")
        for sent in (b"", b"{}"):
            connection = socket.create_connection((host, int(port)))
            open_connections.enter_context(connection)
            head = b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: Kinesis_20131202.ListStreams\r\n"
            connection.sendall(head + b"Content-Length: 2\r\n\r\n" + sent)
        while not aws.control()["faults"]:
            time.sleep(0.01)
        aws.stop()
    assert capfd.readouterr().err == ""


def test_rules_look_into_the_request_and_may_leave_it_to_chance(aws: EmbeddedAws) -> None:
    kinesis = client(aws, "kinesis")
    kinesis.create_stream(StreamName="chosen", ShardCount=1)
    aws.control(faults=[{"contains": "chosen", "code": "InternalFailure", "http_status": 500}])
    with pytest.raises(ClientError):
        kinesis.list_shards(StreamName="chosen")
    kinesis.list_streams()
    aws.control(faults=[{"probability": 0.0, "code": "InternalFailure"}])
    kinesis.list_shards(StreamName="chosen")


def test_the_clock_can_be_put_forward(aws: EmbeddedAws) -> None:
    kinesis = client(aws, "kinesis")
    kinesis.create_stream(StreamName="clock", ShardCount=1)
    aws.control(settings={"reshard_s": 100.0})
    kinesis.split_shard(
        StreamName="clock", ShardToSplit="shardId-000000000000", NewStartingHashKey="99"
    )
    assert len(kinesis.list_shards(StreamName="clock")["Shards"]) == 1
    before = aws.control()["now_s"]
    assert aws.control(advance_s=100)["now_s"] >= before + 100
    assert len(kinesis.list_shards(StreamName="clock")["Shards"]) == 3


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"settings": {"nonsense": 1}}, "settings: there is no 'nonsense'."),
        (
            {"settings": {"reshard": 1.0}},
            "settings: there is no 'reshard'. Did you mean 'reshard_s'?",
        ),
        ({"settings": {"reshard_s": "1"}}, "settings: Expected `float`, got `str`"),
        ({"advance_s": -1.0}, "Expected `float` >= 0.0 - at `$.advance_s`"),
        ({"advance_s": 1e300}, "Expected `float` <= 320000000.0 - at `$.advance_s`"),
        ({"consumers": ["arn:x"]}, "'arn:x' is not the ARN of a consumer"),
        ({"faults": [{}, {"kode": "x"}]}, "faults[1]: there is no 'kode'. Did you mean 'code'?"),
        ({"faults": [{"CODE": "x"}]}, "faults[0]: there is no 'CODE'. Did you mean 'code'?"),
        ({"faults": [{"when": "x"}]}, "Invalid enum value 'x' - at `$.faults[0].when`"),
        ({"faults": [{"times": "x"}]}, "Expected `int | null`, got `str` - at `$.faults[0].times`"),
        ({"faults": [{"probability": 2.0}]}, "Expected `float` <= 1.0"),
        ({"faults": [{"http_status": 200}]}, "Expected `int` >= 400"),
        (
            {"faults": [{"operation": "getRecords"}]},
            "faults[0]: there is no operation 'getRecords'. Did you mean 'GetRecords'?",
        ),
        (
            {"faults": [{"operation": "GetRecord", "service": "kinesis"}]},
            "faults[0]: there is no operation of kinesis 'GetRecord'. Did you mean 'GetRecords'?",
        ),
        (
            {"faults": [{"operation": "GetRecords", "service": "dynamodb"}]},
            "faults[0]: there is no operation of dynamodb 'GetRecords'.",
        ),
        (
            {"faults": [{"operation": "PutMetric", "service": "monitoring"}]},
            "Did you mean 'PutMetricData'?",
        ),
        (
            {"faults": [{"operation": "ListObjectsV2", "service": "s3"}]},
            "there is no operation of s3 'ListObjectsV2'.",
        ),
        (
            {"faults": [{"service": "dynamo"}]},
            "'dynamo'. Did you mean 'dynamodb'? Served: kinesis, dynamodb, dynamodbstreams, glue, monitoring, sts, s3",
        ),
        ({"faults": [{"operation": "x" * 9000}]}, "… [8960 characters more]'."),
    ],
    ids=lambda case: str(case)[:40],
)
def test_orders_that_make_no_sense_are_refused_in_words(
    aws: EmbeddedAws, wrong: dict[str, Any], words: str
) -> None:
    before = aws.control(faults=[{"operation": "ListStreams", "code": "InternalFailure"}])
    with pytest.raises(ControlRefused) as refused:
        aws.control(**wrong)
    assert words in str(refused.value)
    assert refused.value.exit_code == 2
    # Nothing was changed: the earlier fault is in force, the settings are what they were.
    with pytest.raises(ClientError, match="InternalFailure"):
        client(aws, "kinesis").list_streams()
    assert aws.control()["settings"] == before["settings"]


@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("*", "*"),
        ("*", "UpdateItem"),
        ("kinesis", "SubscribeToShard"),
        ("dynamodb", "TransactWriteItems"),
        ("monitoring", "PutMetricData"),
        ("sts", "AssumeRole"),
        ("glue", "GetSchemaVersion"),
        ("s3", "PutObject"),
    ],
)
def test_faults_of_what_is_served_are_accepted(
    aws: EmbeddedAws, service: str, operation: str
) -> None:
    aws.control(faults=[{"service": service, "operation": operation, "code": "X", "times": 0}])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "Input data was truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"faults": {}}', "Expected `array | null`, got `object` - at `$.faults`"),
        (b'{"fault": []}', "there is no 'fault'. Did you mean 'faults'?"),
    ],
)
def test_whoever_asks_without_python_gets_the_words_too(
    aws: EmbeddedAws, body: bytes, words: str
) -> None:
    connection = http.client.HTTPConnection(aws.kinesis_url.removeprefix("http://"))
    connection.request("POST", "/_control", body)
    answer = connection.getresponse()
    assert answer.status == 400
    assert words in json.load(answer)["message"]
    connection.close()


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", "refused without a word"), (b"[]", "[]"), (b"not json", "not json")],
)
def test_a_refusal_of_somebody_else_is_told_as_it_is(body: bytes, words: str) -> None:
    assert words in embedded._words(body)


@pytest.mark.parametrize(
    ("content_type", "body", "status", "code"),
    [
        ("application/x-amz-cbor-1.1", b"\xa0", 415, "SerializationException"),
        ("application/x-amz-json-1.1", b"{", 400, "SerializationException"),
        ("application/x-amz-json-1.1", b"[]", 400, "SerializationException"),
        ("application/x-amz-json-1.1", b"{}", 400, "UnknownOperationException"),
    ],
)
def test_foreign_requests_are_answered_with_an_error(
    aws: EmbeddedAws, content_type: str, body: bytes, status: int, code: str
) -> None:
    connection = http.client.HTTPConnection(aws.kinesis_url.removeprefix("http://"))
    headers = {"X-Amz-Target": "Kinesis_20131202.Dance", "Content-Type": content_type}
    connection.request("POST", "/", body, headers)
    answer = connection.getresponse()
    assert answer.status == status
    assert json.load(answer)["__type"] == code
    assert answer.headers["x-amzn-RequestId"]
    connection.close()


# --- the process ----------------------------------------------------------------------------


def test_it_runs_as_a_child_and_ends_with_its_pipe() -> None:
    with EmbeddedAws(options=["--no-moto"]) as aws:
        process = aws._process
        assert process is not None
        assert aws.pid == process.pid
        client(aws, "kinesis").list_streams()
    assert process.returncode == 0


def test_a_child_that_cannot_start_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EmbeddedAwsFailed, match="did not start"):
        EmbeddedAws(options=["--nonsense"]).start()
    assert "--nonsense" in capfd.readouterr().err


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"uvicorn: pip install 'kcl-mld\[local\]'"):
        EmbeddedAws().start()


@pytest.mark.parametrize("server", ["kinesis_port", "moto_port"])
def test_a_port_in_use_is_named(capfd: pytest.CaptureFixture[str], server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedAwsFailed) as raised:
            EmbeddedAws(**{server: port}).start()
        assert raised.value.exit_code == 2, "as of a port that --http names"
        said = capfd.readouterr().err
        assert f"127.0.0.1:{port}" in said
        assert "Traceback" not in said


@pytest.mark.usefixtures("restored_logging")
def test_a_starter_that_is_gone_is_no_defect() -> None:
    def announce(_line: str) -> None:
        raise BrokenPipeError

    assert main(["--no-moto"], announce=announce) == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "no.such.host.invalid"])
def test_only_loopback_is_served_unless_told_otherwise(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--host", host])
    assert "loopback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--kinesis-port=70000", "'70000' is not a port from 0 to 65535"),
        ("--moto-port=-5", "'-5' is not a port from 0 to 65535"),
        ("--moto-port=" + "9" * 5000, "more]' is not a port from 0 to 65535"),
        ("--create-s=nan", "'nan' is not a number of seconds from 0 to 3.2e+08"),
        ("--reshard-s=1e308", "'1e308' is not a number of seconds from 0 to 3.2e+08"),
        ("--reshard-s=soon", "'soon' is not a number of seconds from 0 to 3.2e+08"),
        ("--table-shard-s=0", "'0' is less than 0.1 s"),
        ("--seed=" + "9" * 5000, "more]' is not a whole number"),
    ],
    ids=lambda text: text[:20],
)
def test_a_number_that_is_none_is_an_error_of_usage(
    option: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # An address that nobody has: should the number pass, the server still does not start.
    with pytest.raises(SystemExit) as end:
        main([option, "--host=192.0.2.1"])
    assert end.value.code == 2
    assert why in capsys.readouterr().err


def test_the_environment_leads_a_client_here_and_nowhere_else(
    aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = aws.environment_for_child(
        {"PATH": "/bin", "AWS_PROFILE": "prod", "AWS_SESSION_TOKEN": "x"}
    )
    assert child["PATH"] == "/bin"
    assert "AWS_PROFILE" not in child
    assert "AWS_SESSION_TOKEN" not in child
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in child.items():
        monkeypatch.setenv(name, value)
    session = botocore.session.Session()
    assert session.create_client("kinesis").list_streams()
    assert session.create_client("dynamodb").list_tables()
    assert session.create_client("sts").get_caller_identity()


def test_each_request_to_a_table_is_one_step(aws: EmbeddedAws) -> None:
    """No scan sees half of a new row, and of two writes on one condition one is refused."""
    dynamodb, reader = client(aws, "dynamodb"), client(aws, "dynamodb")
    dynamodb.create_table(
        TableName="steps",
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    written: list[str] = []
    halves: list[str] = []
    is_over = threading.Event()

    def write() -> None:
        for number in range(20):
            with contextlib.suppress(ClientError):
                dynamodb.update_item(
                    TableName="steps",
                    Key={"k": {"S": str(number)}},
                    UpdateExpression="SET a = :one",
                    ConditionExpression="attribute_not_exists(a)",
                    ExpressionAttributeValues={":one": {"S": "1"}},
                )
                written.append(str(number))

    def look() -> None:
        while not is_over.is_set():
            items = reader.scan(TableName="steps")["Items"]
            halves.extend(item["k"]["S"] for item in items if "a" not in item)

    looking = threading.Thread(target=look)
    writing = [threading.Thread(target=write) for _ in range(3)]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in (looking, *writing):
            thread.start()
        for thread in writing:
            thread.join()
        is_over.set()
        looking.join()
    finally:
        sys.setswitchinterval(interval_s)
    assert (sorted(written, key=int), halves) == ([str(n) for n in range(20)], [])
