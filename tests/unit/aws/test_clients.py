"""Clients and error mapping, against a loopback server that answers what each case wants."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore import exceptions as boto

from kcl_mld import __version__, errors
from kcl_mld.aws import clients
from kcl_mld.aws.clients import (
    BotocoreCloudWatch,
    BotocoreGlue,
    ClientSettings,
    caller_identity,
    make_client,
)
from kcl_mld.aws.dynamodb import BotocoreDynamoDb
from kcl_mld.aws.errors import client_error, not_sent
from kcl_mld.aws.kinesis import BotocoreKinesis
from kcl_mld.config.config import (
    AwsConfig,
    ChildConfig,
    Config,
    LeaseConfig,
    RetrievalConfig,
    StreamConfig,
)
from kcl_mld.config.credentials import CredentialChain
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.retrieval.schema_registry import CALL_S, CALLS
from tests.fakes.http import Replies, served

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from botocore.session import Session


class Answers:
    """What the server answers next, and what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b"{}"
        self.content_type = "application/x-amz-json-1.1"
        self.cut_after: int | None = None
        self.checksum: int | str | None = None
        self.silent = threading.Event()
        self.silent.set()
        self.requests: list[tuple[dict[str, str], bytes]] = []

    def error(self, status: int, code: str, **more: Any) -> None:
        self.status = status
        self.body = json.dumps(
            {"__type": f"com.amazonaws#{code}", "message": "why", **more}
        ).encode()


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    class Service(Replies, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answers.requests.append((dict(self.headers), body))
            answers.silent.wait(20)
            if answers.cut_after is not None:
                self.close_connection = True
                if answers.cut_after == 0:
                    return
            self.send_response(answers.status)
            self.send_header("Content-Type", answers.content_type)
            self.send_header("Content-Length", str(len(answers.body)))
            if answers.checksum is not None:
                self.send_header("x-amz-crc32", str(answers.checksum))
            self.end_headers()
            self.wfile.write(answers.body[: answers.cut_after])

    with served(Service) as url:
        try:
            yield url
        finally:
            answers.silent.set()


@pytest.fixture(scope="module")
def session() -> Session:
    session = botocore.session.Session()
    session.set_credentials("AKIDEXAMPLE", "secret")
    return session


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def url(answers: Answers) -> Iterator[str]:
    with serving(answers) as url:
        yield url


def settings(service: str, endpoint: str | None, **more: Any) -> ClientSettings:
    given: dict[str, Any] = {
        "region": "eu-west-1",
        "threads": 2,
        "connect_timeout_s": 2.0,
        "read_timeout_s": 5.0,
        **more,
    }
    return ClientSettings(service=service, endpoint=endpoint, **given)


def ask(
    session: Session,
    service: str,
    call: Callable[[Any, CallPool], Coroutine[Any, Any, Any]],
    endpoint: str | None,
    **more: Any,
) -> Any:
    """One call on a fresh client and pool."""
    client = make_client(session, settings(service, endpoint, **more))
    pool = CallPool("test", 2)
    try:
        return asyncio.run(asyncio.wait_for(call(client, pool), 30))
    finally:
        pool.close()
        client.close()


def update(client: Any, pool: CallPool) -> Coroutine[Any, Any, Any]:
    return BotocoreDynamoDb(client, pool).update_item(TableName="t", Key={"leaseKey": {"S": "a"}})


def get(client: Any, pool: CallPool) -> Coroutine[Any, Any, Any]:
    return BotocoreDynamoDb(client, pool).get_item(TableName="t", Key={"leaseKey": {"S": "a"}})


def get_records(client: Any, pool: CallPool) -> Coroutine[Any, Any, Any]:
    return BotocoreKinesis(client, pool, pool).get_records(ShardIterator="i", Limit=10)


KINDS = [
    (400, "ProvisionedThroughputExceededException", errors.Throttled),
    (400, "ThrottlingException", errors.Throttled),
    (400, "RequestLimitExceeded", errors.Throttled),
    (400, "KMSThrottlingException", errors.Throttled),
    (503, "SlowDown", errors.Throttled),
    (429, "Whatever", errors.Throttled),
    (400, "LimitExceededException", errors.LimitExceeded),
    (400, "ResourceNotFoundException", errors.NotFound),
    (400, "ResourceInUseException", errors.InUse),
    (400, "ExpiredIteratorException", errors.ExpiredIterator),
    (400, "InvalidArgumentException", errors.InvalidArgument),
    (400, "AccessDeniedException", errors.Denied),
    (400, "ExpiredTokenException", errors.CredentialsRefused),
    (400, "UnrecognizedClientException", errors.CredentialsRefused),
    (403, "InvalidSignatureException", errors.CredentialsRefused),
    (403, "SomethingNew", errors.Denied),
    (400, "ConditionalCheckFailedException", errors.ConditionFailed),
    (400, "ValidationException", errors.ServiceError),
]


@pytest.mark.parametrize("call", [update, get])
@pytest.mark.parametrize(("status", "code", "kind"), KINDS)
def test_each_code_becomes_its_error_for_reads_and_writes(
    session: Session, answers: Answers, url: str, call: Any, status: int, code: str, kind: type
) -> None:
    answers.error(status, code)
    with pytest.raises(errors.ServiceError) as caught:
        ask(session, "dynamodb", call, url)
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.message) == (code, "why")
    assert caught.value.operation == ("UpdateItem" if call is update else "GetItem")
    assert len(answers.requests) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_5xx_is_an_unknown_outcome_of_a_write_and_a_refusal_of_a_read(
    session: Session, answers: Answers, url: str, status: int
) -> None:
    answers.error(status, "InternalServerError")
    with pytest.raises(errors.UnknownOutcome, match="InternalServerError"):
        ask(session, "dynamodb", update, url)
    with pytest.raises(errors.ServiceError, match="InternalServerError"):
        ask(session, "dynamodb", get, url)
    assert len(answers.requests) == 2


def test_a_text_of_a_service_is_cut_and_put_on_one_line_where_it_comes_in(
    session: Session, answers: Answers, url: str
) -> None:
    answers.error(400, "ValidationException")
    long_text = "secret token=abc\n" * 300_000
    answers.body = json.dumps({"__type": "x" * 10**6, "message": long_text}).encode()
    began = time.process_time()
    with pytest.raises(errors.ServiceError) as caught:
        ask(session, "dynamodb", get, url)
    assert len(str(caught.value)) < 5000
    assert str(caught.value).isprintable()
    assert time.process_time() - began < 2


@pytest.mark.parametrize("name", ["get_item", "scan", "query", "update_item"])
def test_an_answer_that_is_nested_without_end_is_an_unknown_outcome(
    session: Session, answers: Answers, url: str, name: str
) -> None:
    nested = '{"L":[' * 5000 + '{"S":"x"}' + "]}" * 5000
    row = f'{{"leaseKey":{{"S":"a"}},"x":{nested}}}'
    members = {"get_item": f'{{"Item":{row}}}', "update_item": f'{{"Attributes":{row}}}'}
    answers.body = members.get(name, f'{{"Items":[{row}]}}').encode()
    request = _IMAGE if name == "update_item" else {}
    with pytest.raises(errors.UnknownOutcome, match="RecursionError"):
        ask(session, "dynamodb", dynamodb(name, **request), url)


def test_a_5xx_without_a_readable_body_is_told_by_its_status(
    session: Session, answers: Answers, url: str
) -> None:
    answers.status, answers.body, answers.content_type = 502, b"<html>", "text/html"
    with pytest.raises(errors.UnknownOutcome):
        ask(session, "dynamodb", update, url)
    with pytest.raises(errors.ServiceError, match="502"):
        ask(session, "kinesis", get_records, url)


def test_a_failed_condition_carries_the_stored_item(
    session: Session, answers: Answers, url: str
) -> None:
    item = {"leaseKey": {"S": "a"}, "leaseCounter": {"N": "7"}}
    answers.error(400, "ConditionalCheckFailedException", Item=item)
    with pytest.raises(errors.ConditionFailed) as caught:
        ask(session, "dynamodb", update, url)
    assert caught.value.item == item


def test_a_failed_condition_without_an_item_says_none(
    session: Session, answers: Answers, url: str
) -> None:
    answers.error(400, "ConditionalCheckFailedException")
    with pytest.raises(errors.ConditionFailed) as caught:
        ask(session, "dynamodb", update, url)
    assert caught.value.item is None


def test_a_canceled_transaction_says_which_of_its_writes_was_to_blame(
    session: Session, answers: Answers, url: str
) -> None:
    async def transact(client: Any, pool: CallPool) -> Any:
        return await BotocoreDynamoDb(client, pool).transact_write_items(TransactItems=[])

    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Message": "m"}]
    answers.error(400, "TransactionCanceledException", CancellationReasons=reasons)
    with pytest.raises(errors.TransactionCanceled) as caught:
        ask(session, "dynamodb", transact, url)
    assert caught.value.reasons == ("None", "ConditionalCheckFailed")
    answers.error(400, "TransactionCanceledException")
    with pytest.raises(errors.TransactionCanceled) as caught:
        ask(session, "dynamodb", transact, url)
    assert caught.value.reasons == ()


def test_a_refused_connection_is_unreachable(session: Session) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(errors.Unreachable) as caught:
            ask(session, "dynamodb", update, f"http://127.0.0.1:{port}")
    assert (caught.value.operation, caught.value.code) == ("UpdateItem", "EndpointConnectionError")


def test_missing_credentials_are_unreachable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(errors.Unreachable, match="NoCredentialsError"):
        ask(botocore.session.Session(), "dynamodb", update, "http://127.0.0.1:9")


def test_a_call_that_gets_no_thread_is_not_sent(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(errors.Unreachable, match="UpdateItem: ThreadRefused: no thread test-0"):
        ask(session, "dynamodb", update, "http://127.0.0.1:9")


@pytest.mark.parametrize("call", [update, get])
def test_silence_is_an_unknown_outcome(
    session: Session, answers: Answers, url: str, call: Any
) -> None:
    answers.silent.clear()
    with pytest.raises(errors.UnknownOutcome, match="ReadTimeoutError"):
        ask(session, "dynamodb", call, url, read_timeout_s=0.1)
    assert len(answers.requests) == 1


@pytest.mark.parametrize(("service", "call"), [("dynamodb", update), ("kinesis", get_records)])
@pytest.mark.parametrize("cut_after", [0, 5, 16])
def test_a_connection_cut_before_or_within_the_answer_is_an_unknown_outcome(
    session: Session, answers: Answers, url: str, service: str, call: Any, cut_after: int
) -> None:
    answers.body, answers.cut_after = b'{"Attributes": {}}', cut_after
    with pytest.raises(errors.UnknownOutcome):
        ask(session, service, call, url)
    assert len(answers.requests) == 1


@pytest.mark.parametrize(("service", "call"), [("dynamodb", update), ("kinesis", get_records)])
@pytest.mark.parametrize("content_type", ["text/html", "application/x-amz-json-1.0"])
def test_an_answer_that_is_no_json_is_an_unknown_outcome(
    session: Session, answers: Answers, url: str, service: str, call: Any, content_type: str
) -> None:
    answers.body, answers.content_type = b"<html>hello</html>", content_type
    with pytest.raises(errors.UnknownOutcome, match="BrokenAnswer: not a JSON object"):
        ask(session, service, call, url)


@pytest.mark.parametrize(
    ("service", "call"), [("dynamodb", update), ("dynamodb", get), ("kinesis", get_records)]
)
def test_an_answer_without_a_body_is_an_unknown_outcome(
    session: Session, answers: Answers, url: str, service: str, call: Any
) -> None:
    answers.body = b""
    with pytest.raises(errors.UnknownOutcome, match="BrokenAnswer: not a JSON object"):
        ask(session, service, call, url)


def scan(client: Any, pool: CallPool) -> Coroutine[Any, Any, Any]:
    key = {"leaseKey": {"S": "a"}}
    return BotocoreDynamoDb(client, pool).scan(TableName="t", ExclusiveStartKey=key)


def list_shards(client: Any, pool: CallPool) -> Coroutine[Any, Any, Any]:
    return BotocoreKinesis(client, pool, pool).list_shards(NextToken="a")


@pytest.mark.parametrize(
    ("service", "call", "body"),
    [
        ("dynamodb", scan, b'{"Items":[],"LastEvaluatedKey":{"leaseKey":{"S":"%b"}}}'),
        ("kinesis", list_shards, b'{"Shards":[],"NextToken":"%b"}'),
    ],
)
def test_a_page_that_goes_on_where_it_began_is_refused(
    session: Session, answers: Answers, url: str, service: str, call: Any, body: bytes
) -> None:
    """Whoever reads the pages of a list would never come to an end."""
    answers.body = body % b"b"
    ask(session, service, call, url)
    answers.body = body % b"a"
    with pytest.raises(errors.UnknownOutcome, match="the page goes on where it began"):
        ask(session, service, call, url)


def dynamodb(name: str, **request: Any) -> Any:
    return lambda client, pool: getattr(BotocoreDynamoDb(client, pool), name)(**request)


def kinesis(name: str, **request: Any) -> Any:
    return lambda client, pool: getattr(BotocoreKinesis(client, pool, pool), name)(**request)


_IMAGE = {"TableName": "t", "Key": {"leaseKey": {"S": "a"}}, "ReturnValues": "ALL_NEW"}
_ROW = {"leaseKey": {"S": "a"}, "leaseCounter": {"N": "1"}, "parentShardId": {"SS": ["b"]}}
_TABLE = {
    "TableStatus": "ACTIVE",
    "TableSizeBytes": 5,
    "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
    "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
    "GlobalSecondaryIndexes": [{"IndexName": "i", "IndexStatus": "ACTIVE"}],
}
_SHARD = {
    "ShardId": "shardId-000000000001",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    "SequenceNumberRange": {"StartingSequenceNumber": "1", "EndingSequenceNumber": "2"},
    "ParentShardId": "shardId-000000000000",
}
_SCHEMA = {"SchemaArn": "a/b", "DataFormat": "AVRO", "SchemaDefinition": "{}"}
_CONSUMER = {"ConsumerARN": "a", "ConsumerStatus": "ACTIVE"}
_DESCRIBED = {"StreamARN": "a", "StreamStatus": "ACTIVE"}
#: Service, call, and a good answer.
WHOLE: list[tuple[str, Any, dict[str, Any]]] = [
    ("dynamodb", dynamodb("describe_table"), {"Table": _TABLE}),
    ("dynamodb", dynamodb("get_item"), {"Item": _ROW}),
    ("dynamodb", dynamodb("scan"), {"Items": [_ROW], "LastEvaluatedKey": {"leaseKey": {"S": "a"}}}),
    ("dynamodb", dynamodb("query"), {"Items": [_ROW]}),
    ("dynamodb", dynamodb("update_item", **_IMAGE), {"Attributes": _ROW}),
    (
        "kinesis",
        kinesis("describe_stream_summary", StreamName="s"),
        {"StreamDescriptionSummary": _DESCRIBED},
    ),
    ("kinesis", kinesis("list_shards", StreamName="s"), {"Shards": [_SHARD]}),
    (
        "kinesis",
        kinesis("list_streams"),
        {
            "StreamNames": ["s"],
            "HasMoreStreams": False,
            "StreamSummaries": [{"StreamName": "s", "StreamStatus": "ACTIVE"}],
        },
    ),
    (
        "kinesis",
        kinesis("list_tags_for_stream", StreamName="s"),
        {"Tags": [{"Key": "k", "Value": "v"}], "HasMoreTags": False},
    ),
    ("kinesis", kinesis("get_shard_iterator", StreamName="s"), {"ShardIterator": "i"}),
    (
        "kinesis",
        kinesis("describe_stream_consumer", StreamARN="s"),
        {"ConsumerDescription": _CONSUMER},
    ),
    ("glue", lambda client, pool: BotocoreGlue(client, pool).get_schema_version(), _SCHEMA),
]
#: What emulators may lack, and an item that is not there; by the name of the member.
_MAY_LACK = {
    "Item",
    "LastEvaluatedKey",
    "StreamSummaries",
    "Value",
    "TableSizeBytes",
    "KeySchema",
    "ProvisionedThroughput",
    "GlobalSecondaryIndexes",
    "IndexStatus",
    "EndingSequenceNumber",
    "ParentShardId",
}


def without_one(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """A good answer with each of its members left out, at any depth; rows and keys as a whole."""
    if isinstance(value, list):
        for changed_path, changed in without_one(value[0], f"{path}[0]"):
            yield changed_path, [changed]
        return
    if not isinstance(value, dict) or value in (_ROW, {"leaseKey": {"S": "a"}}):
        return
    for name, inner in value.items():
        if name not in _MAY_LACK:
            yield f"{path}.{name}", {key: one for key, one in value.items() if key != name}
        for changed_path, changed in without_one(inner, f"{path}.{name}"):
            yield changed_path, {**value, name: changed}


def _named(case: object) -> str | None:
    return next(iter(case)) if isinstance(case, dict) else None


@pytest.mark.parametrize(("service", "call", "whole"), WHOLE, ids=_named)
def test_an_answer_that_lacks_what_was_asked_for_is_an_unknown_outcome(
    session: Session,
    answers: Answers,
    url: str,
    service: str,
    call: Any,
    whole: dict[str, Any],
) -> None:
    """No shards, no leases or no consumer would be believed where nothing is said of them."""
    answers.body = json.dumps(whole).encode()
    ask(session, service, call, url)
    lacking = list(without_one(whole))
    assert lacking or whole == {"Item": _ROW}
    for path, body in lacking:
        answers.body = json.dumps(body).encode()
        place, _, member = path.rpartition(".")
        with pytest.raises(errors.UnknownOutcome) as raised:
            ask(session, service, call, url)
        assert raised.value.code == "BrokenAnswer", path
        assert f"missing required field `{member}`" in raised.value.message
        assert place == "$" or raised.value.message.endswith(f"at `{place}`")
    first = next(iter(whole))
    for wrong in (5, [{}], [5], [None]):
        answers.body = json.dumps({**whole, first: wrong}).encode()
        with pytest.raises(errors.UnknownOutcome):
            ask(session, service, call, url)


@pytest.mark.parametrize(
    "shard",
    [
        {**_SHARD, "HashKeyRange": {"StartingHashKey": "a", "EndingHashKey": "9"}},
        {**_SHARD, "SequenceNumberRange": {"StartingSequenceNumber": "one"}},
        {**_SHARD, "SequenceNumberRange": {"StartingSequenceNumber": "9" * 5000}},
        {**_SHARD, "ShardId": ""},
    ],
)
def test_a_shard_whose_numbers_are_none_is_an_unknown_outcome(
    session: Session, answers: Answers, url: str, shard: dict[str, Any]
) -> None:
    answers.body = json.dumps({"Shards": [_SHARD, shard]}).encode()
    with pytest.raises(errors.UnknownOutcome, match=r"BrokenAnswer: .* at `\$\.Shards\[1\]"):
        ask(session, "kinesis", kinesis("list_shards", StreamName="s"), url)


@pytest.mark.parametrize(
    "row",
    [
        {},
        5,
        {"leaseKey": "a"},
        {"leaseKey": {"S": 5}},
        {"leaseKey": {"S": "a"}, "leaseCounter": {"N": 1}},
        {"leaseKey": {"S": "a"}, "parentShardId": {"SS": 5}},
        {"leaseKey": {"S": "a"}, "parentShardId": {"SS": [5]}},
        {"leaseKey": {"S": "a"}, "kclMldIntent": {"M": {"number": "1"}}},
        {"leaseKey": {"S": "a"}, "old": {"L": [5]}},
    ],
)
@pytest.mark.parametrize("name", ["get_item", "scan", "query", "update_item"])
def test_a_row_of_another_form_is_an_unknown_outcome(
    session: Session, answers: Answers, url: str, name: str, row: Any
) -> None:
    members = {"get_item": {"Item": row}, "update_item": {"Attributes": row}}
    answers.body = json.dumps(members.get(name, {"Items": [_ROW, row]})).encode()
    request = _IMAGE if name == "update_item" else {}
    with pytest.raises(errors.UnknownOutcome):
        ask(session, "dynamodb", dynamodb(name, **request), url)


@pytest.mark.parametrize("row", [_ROW, {**_ROW, "raw": {"B": "YQ=="}, "raws": {"BS": ["YQ=="]}}])
def test_a_refused_write_brings_the_row(
    session: Session, answers: Answers, url: str, row: dict[str, Any]
) -> None:
    answers.error(400, "ConditionalCheckFailedException", Item=row)
    with pytest.raises(errors.ConditionFailed) as raised:
        ask(session, "dynamodb", dynamodb("update_item", **_IMAGE), url)
    assert raised.value.item is not None
    assert raised.value.item["leaseKey"] == {"S": "a"}


@pytest.mark.parametrize("row", [{}, {"leaseKey": {"S": 5}}, {"leaseKey": {"SS": [None]}}])
def test_a_refused_write_that_brings_no_row_is_asked_for_again(
    session: Session, answers: Answers, url: str, row: Any
) -> None:
    answers.error(400, "ConditionalCheckFailedException", Item=row)
    with pytest.raises(errors.ConditionFailed) as raised:
        ask(session, "dynamodb", dynamodb("update_item", **_IMAGE), url)
    assert raised.value.item is None


def test_a_reason_that_says_nothing_is_none(session: Session, answers: Answers, url: str) -> None:
    reasons = [None, {}, {"Code": "ConditionalCheckFailed"}]
    answers.error(400, "TransactionCanceledException", CancellationReasons=reasons)
    with pytest.raises(errors.TransactionCanceled) as raised:
        ask(session, "dynamodb", dynamodb("transact_write_items"), url)
    assert raised.value.reasons == ("None", "None", "ConditionalCheckFailed")


def test_the_caller_that_sts_does_not_name_is_an_unknown_outcome(
    session: Session, answers: Answers, url: str
) -> None:
    answers.content_type = "text/xml"
    answers.body = (
        b"<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>a</Arn>"
        b"</GetCallerIdentityResult></GetCallerIdentityResponse>"
    )
    with pytest.raises(errors.UnknownOutcome, match="missing required field `Account`"):
        ask(session, "sts", caller_identity, url)


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
@pytest.mark.parametrize("content", [None, "no certificate"])
@pytest.mark.parametrize(("service", "call"), [("dynamodb", update), ("dynamodb", get)])
def test_a_file_of_certificates_that_is_no_good_is_named(
    answers: Answers,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    content: str | None,
    service: str,
    call: Any,
) -> None:
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.setenv(variable, str(file))
    session = botocore.session.Session()
    session.set_credentials("AKIDEXAMPLE", "secret")
    with pytest.raises(errors.AwsError, match=str(file)):
        ask(session, service, call, url.replace("http:", "https:"))
    assert answers.requests == []


@pytest.mark.parametrize("right", [True, False])
def test_a_checksum_is_compared(session: Session, answers: Answers, url: str, right: bool) -> None:
    answers.body = b'{"Item": {"a": {"S": "b"}}}'
    answers.checksum = zlib.crc32(answers.body) ^ (not right)
    if right:
        assert ask(session, "dynamodb", get, url)["Item"] == {"a": {"S": "b"}}
    else:
        with pytest.raises(errors.UnknownOutcome, match="checksum"):
            ask(session, "dynamodb", get, url)


def test_a_checksum_that_is_none_is_an_unknown_outcome(
    session: Session, answers: Answers, url: str
) -> None:
    answers.body, answers.checksum = b'{"Item": {}}', "none"
    with pytest.raises(errors.UnknownOutcome, match="checksum"):
        ask(session, "dynamodb", get, url)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (boto.ConnectTimeoutError(endpoint_url="u"), errors.Unreachable),
        (boto.ProxyConnectionError(proxy_url="u"), errors.Unreachable),
        (boto.CredentialRetrievalError(provider="p", error_msg="m"), errors.Unreachable),
        (boto.SSLError(endpoint_url="u", error="e"), errors.UnknownOutcome),
        (boto.ConnectionClosedError(endpoint_url="u"), errors.UnknownOutcome),
    ],
)
def test_what_was_never_sent_is_told_from_what_got_no_answer(error: Any, kind: type) -> None:
    assert type(client_error(error, "PutItem")) is kind


def test_a_programming_error_is_not_dressed_up_as_an_aws_error(session: Session, url: str) -> None:
    async def call(client: Any, pool: CallPool) -> Any:
        return await clients.Caller(client, pool).read("no_such_operation", {})

    with pytest.raises(AttributeError, match="no_such_operation"):
        ask(session, "dynamodb", call, url)


def test_get_records_returns_the_body_as_it_came(
    session: Session, answers: Answers, url: str
) -> None:
    answers.body = b'{"Records":[{"Data":"AAEC","PartitionKey":"k"}], "Unknown": [1e9]}'
    assert ask(session, "kinesis", get_records, url) == answers.body
    answers.content_type = "application/json; charset=utf-8"
    assert ask(session, "kinesis", get_records, url) == answers.body


def test_get_records_refuses_what_is_not_json(session: Session, answers: Answers, url: str) -> None:
    answers.content_type = "application/x-amz-cbor-1.1"
    with pytest.raises(errors.UnknownOutcome, match="UnexpectedContentType"):
        ask(session, "kinesis", get_records, url)


def test_get_records_errors_are_parsed_as_ever(
    session: Session, answers: Answers, url: str
) -> None:
    answers.error(400, "ExpiredIteratorException")
    with pytest.raises(errors.ExpiredIterator, match="GetRecords: ExpiredIteratorException: why"):
        ask(session, "kinesis", get_records, url)


def test_only_get_records_is_left_raw(session: Session, answers: Answers, url: str) -> None:
    async def calls(client: Any, pool: CallPool) -> list[Any]:
        kinesis = BotocoreKinesis(client, pool, pool)
        return [
            await kinesis.list_shards(StreamName="s"),
            await kinesis.get_shard_iterator(
                StreamName="s", ShardId="1", ShardIteratorType="LATEST"
            ),
            await kinesis.describe_stream_summary(StreamName="s"),
            await kinesis.list_streams(Limit=5),
            await kinesis.list_tags_for_stream(StreamName="s"),
        ]

    answers.body = json.dumps(
        {
            "Shards": [],
            "ShardIterator": "i",
            "StreamDescriptionSummary": {"StreamARN": "s", "StreamStatus": "ACTIVE"},
            "StreamNames": ["s"],
            "HasMoreStreams": False,
            "Tags": [{"Key": "k", "Value": "v"}],
            "HasMoreTags": False,
        }
    ).encode()
    shards, iterator, summary, streams, tags = ask(session, "kinesis", calls, url)
    assert shards["Shards"] == []
    assert iterator["ShardIterator"] == "i"
    assert summary["StreamDescriptionSummary"]["StreamARN"] == "s"
    assert streams["StreamNames"] == ["s"]
    assert tags["Tags"] == [{"Key": "k", "Value": "v"}]


def test_every_dynamodb_operation_reaches_the_wire(
    session: Session, answers: Answers, url: str
) -> None:
    async def calls(client: Any, pool: CallPool) -> None:
        dynamodb, key = BotocoreDynamoDb(client, pool), {"leaseKey": {"S": "a"}}
        await dynamodb.describe_table(TableName="t")
        await dynamodb.create_table(
            TableName="t", KeySchema=[], AttributeDefinitions=[], BillingMode="PAY_PER_REQUEST"
        )
        await dynamodb.update_continuous_backups(
            TableName="t", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
        )
        await dynamodb.get_item(TableName="t", Key=key)
        await dynamodb.put_item(TableName="t", Item={**key, "b": {"B": b"\x00\xff"}})
        await dynamodb.update_item(TableName="t", Key=key)
        await dynamodb.delete_item(TableName="t", Key=key)
        await dynamodb.scan(TableName="t")
        await dynamodb.query(TableName="t", IndexName="i", KeyConditionExpression="a = :b")
        await dynamodb.update_table(TableName="t", GlobalSecondaryIndexUpdates=[])
        await dynamodb.transact_write_items(TransactItems=[])

    answers.body = b'{"Table": {"TableStatus": "ACTIVE"}, "Items": []}'
    ask(session, "dynamodb", calls, url)
    names = [headers["X-Amz-Target"].rpartition(".")[2] for headers, _ in answers.requests]
    assert names == [
        "DescribeTable",
        "CreateTable",
        "UpdateContinuousBackups",
        "GetItem",
        "PutItem",
        "UpdateItem",
        "DeleteItem",
        "Scan",
        "Query",
        "UpdateTable",
        "TransactWriteItems",
    ]
    assert json.loads(answers.requests[4][1])["Item"]["b"] == {"B": "AP8="}


def test_binary_attributes_come_as_bytes(session: Session, answers: Answers, url: str) -> None:
    answers.body = b'{"Item": {"b": {"B": "AP8="}}}'
    assert ask(session, "dynamodb", get, url)["Item"] == {"b": {"B": b"\x00\xff"}}


def test_metrics_reach_the_wire(session: Session, answers: Answers, url: str) -> None:
    async def call(client: Any, pool: CallPool) -> Any:
        return await BotocoreCloudWatch(client, pool).put_metric_data(Namespace="n", MetricData=[])

    answers.content_type = "application/x-amz-json-1.0"
    ask(session, "cloudwatch", call, url)
    assert len(answers.requests) == 1


def test_the_user_agent_names_us_and_the_language(
    session: Session, answers: Answers, url: str
) -> None:
    ask(session, "dynamodb", get, url, agent="python/3.11")
    assert f"kcl-mld/{__version__} python/3.11" in answers.requests[0][0]["User-Agent"]


def test_unsigned_requests_carry_no_signature(session: Session, answers: Answers, url: str) -> None:
    ask(session, "dynamodb", get, url, signed=False)
    ask(session, "dynamodb", get, url)
    assert "Authorization" not in answers.requests[0][0]
    assert "AKIDEXAMPLE" in answers.requests[1][0]["Authorization"]


def test_the_account_of_the_caller_is_asked_of_sts(
    session: Session, answers: Answers, url: str
) -> None:
    answers.content_type = "text/xml"
    answers.body = (
        b"<GetCallerIdentityResponse><GetCallerIdentityResult><Account>012345678901</Account>"
        b"</GetCallerIdentityResult></GetCallerIdentityResponse>"
    )
    assert ask(session, "sts", caller_identity, url)["Account"] == "012345678901"


def test_a_missing_region_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(errors.ConfigError, match="regionName: no AWS region"):
        make_client(botocore.session.Session(), settings("kinesis", None, region=None))


@pytest.mark.parametrize("more", [{"endpoint": "not a url"}, {"endpoint": None, "region": "a b"}])
def test_a_bad_endpoint_or_region_is_a_configuration_error(
    session: Session, more: dict[str, Any]
) -> None:
    with pytest.raises(errors.ConfigError, match="kinesis client"):
        make_client(session, settings("kinesis", **more))


@pytest.mark.parametrize(
    "name",
    [
        "AWS_ACCOUNT_ID_ENDPOINT_MODE",
        "AWS_DEFAULTS_MODE",
        "AWS_REQUEST_CHECKSUM_CALCULATION",
        "AWS_REQUEST_MIN_COMPRESSION_SIZE_BYTES",
        "AWS_STS_REGIONAL_ENDPOINTS",
    ],
)
def test_a_setting_that_botocore_does_not_know_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "strange")
    with pytest.raises(errors.ConfigError, match=r"sts client: .*strange"):
        make_client(botocore.session.Session(), settings("sts", "http://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("more", "host"),
    [
        ({}, "kinesis.us-east-1.amazonaws.com"),
        ({"use_fips": True}, "kinesis-fips.us-east-1.amazonaws.com"),
        ({"use_dualstack": True}, "kinesis.us-east-1.api.aws"),
        ({"use_fips": False, "use_dualstack": False}, "kinesis.us-east-1.amazonaws.com"),
    ],
)
def test_fips_and_dual_stack_choose_the_endpoint(
    session: Session, more: dict[str, Any], host: str
) -> None:
    client = make_client(session, settings("kinesis", None, region="us-east-1", **more))
    assert client.meta.endpoint_url == f"https://{host}"
    client.close()


CONFIG = Config(
    application_name="app",
    worker_id="w",
    stream=StreamConfig(name="s", region="eu-west-1"),
    aws=AwsConfig(
        kinesis_credentials=CredentialChain(()),
        kinesis_endpoint="http://k",
        dynamodb_endpoint="http://d",
        cloudwatch_endpoint="http://c",
        dynamodb_region="us-east-2",
        use_fips=True,
    ),
    leases=LeaseConfig(table_name="app", failover_s=3.0),
    child=ChildConfig(argv=("a",)),
    retrieval=RetrievalConfig(request_timeout_s=12.0),
    processing_language="python/3.11 (x)\n",
)


def test_each_client_gets_its_region_endpoint_and_time_outs() -> None:
    kinesis = clients.kinesis_settings(CONFIG)
    assert (kinesis.region, kinesis.endpoint) == ("eu-west-1", "http://k")
    assert (kinesis.threads, kinesis.connect_timeout_s, kinesis.read_timeout_s) == (68, 5.0, 12.0)
    dynamodb = clients.dynamodb_settings(CONFIG)
    assert (dynamodb.region, dynamodb.endpoint, dynamodb.threads) == ("us-east-2", "http://d", 24)
    assert clients.cloudwatch_settings(CONFIG).endpoint == "http://c"
    assert (clients.sts_settings(CONFIG).region, clients.sts_settings(CONFIG).endpoint) == (
        "eu-west-1",
        None,
    )
    assert {kinesis.use_fips, dynamodb.use_fips} == {True}
    glue = clients.glue_settings(CONFIG)
    assert (glue.service, glue.region, glue.endpoint) == ("glue", "eu-west-1", None)
    assert glue.connect_timeout_s + glue.read_timeout_s <= CALL_S
    assert glue.threads == CALLS
    assert kinesis.agent == "python/3.11x"


def test_connecting_and_reading_stay_below_a_third_of_the_failover_time() -> None:
    dynamodb = clients.dynamodb_settings(CONFIG)
    assert dynamodb.connect_timeout_s + dynamodb.read_timeout_s < CONFIG.leases.failover_s / 3


def test_a_connection_beyond_the_limit_of_open_files_names_it() -> None:
    error = boto.EndpointConnectionError(
        endpoint_url="http://x", error=OSError(24, "Too many open files")
    )
    assert "raise the limit of open files: ulimit -n" in str(not_sent(error, "GetItem"))
    assert "limit of open" not in str(not_sent(boto.NoRegionError(), "GetItem"))


def test_a_name_that_is_not_known_is_said():
    cause = OSError("Failed to resolve 'kinesis.eu-west-1' ([Errno -2] Name or service not known)")
    error = not_sent(
        boto.EndpointConnectionError(endpoint_url="https://kinesis.eu-west-1", error=cause),
        "ListShards",
    )
    assert isinstance(error, errors.NameNotKnown)
    assert "the name of the host can't be resolved" in str(error)
    assert not isinstance(not_sent(boto.NoRegionError(), "GetItem"), errors.NameNotKnown)
