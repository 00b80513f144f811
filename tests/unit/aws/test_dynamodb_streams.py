"""DynamoDB Streams behind the port ``Kinesis``, over a server of scripted answers."""

from __future__ import annotations

import asyncio
import base64
import json
from http.server import BaseHTTPRequestHandler

import botocore.session
import pytest

from kcl_mld.aws.clients import ClientSettings, make_client
from kcl_mld.aws.dynamodb_streams import BotocoreDynamoDbStreams
from kcl_mld.errors import (
    InvalidArgument,
    NotFound,
    ServiceError,
    Throttled,
    TrimmedData,
    UnknownOutcome,
)
from kcl_mld.kernel.adapters.calls import CallPool
from tests.fakes.http import Replies, served
from tests.unit.aws.sessions import quick_session

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders/stream/2026-11-28T07:09:24.310"
PATIENCE_S = 240.0


def _knows(operation, member):
    """Whether this botocore does; the oldest that is allowed knows neither filter nor time."""
    model = botocore.session.Session().get_service_model("dynamodbstreams")
    return member in model.operation_model(operation).input_shape.members


KNOWS_FILTER = _knows("DescribeStream", "ShardFilter")
KNOWS_TIME = _knows("GetShardIterator", "Timestamp")


class Service:
    """Answers of each operation, in order; the last one is repeated."""

    def __init__(self):
        self.answers = {}
        self.requests = []

    def answer(self, operation, request):
        self.requests.append((operation, request))
        answers = self.answers[operation]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def asked(self, operation):
        return [request for name, request in self.requests if name == operation]


def refused(code, message="why"):
    return 400, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}


def stream(*shards, status="ENABLED", last=None):
    entries = [
        {"ShardId": shard_id, "SequenceNumberRange": {"StartingSequenceNumber": "1"}}
        | ({"ParentShardId": parent} if parent else {})
        for shard_id, parent in shards
    ]
    found = {"StreamArn": ARN, "StreamStatus": status, "Shards": entries}
    found |= {"CreationRequestDateTime": 1_700_000_000.0, "LastEvaluatedShardId": last}
    return 200, {"StreamDescription": {k: v for k, v in found.items() if v is not None}}


def records(*times, following="next"):
    changes = [
        {
            "eventID": "e",
            "dynamodb": {"SequenceNumber": f"{n:021d}", "ApproximateCreationDateTime": at},
        }
        for n, at in enumerate(times)
    ]
    return 200, {"Records": changes} | ({"NextShardIterator": following} if following else {})


@pytest.fixture(scope="module")
def session():
    return quick_session()


@pytest.fixture
def service():
    return Service()


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ask(service, session, clock):
    """Calls an operation of the port."""

    class Handler(Replies, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            operation = self.headers["X-Amz-Target"].partition(".")[2]
            status, answer = service.answer(operation, json.loads(body))
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    with served(Handler) as url:
        settings = ClientSettings(
            service="dynamodbstreams",
            region="us-east-1",
            endpoint=url,
            threads=2,
            connect_timeout_s=5.0,
            read_timeout_s=20.0,
        )
        client = make_client(session, settings)
        pool = CallPool("test", 2)
        port = BotocoreDynamoDbStreams(client, pool, pool, PATIENCE_S, clock)

        def call(operation, **request):
            return asyncio.run(getattr(port, operation)(**request))

        yield call
        pool.close()
        client.close()


def iterator(ask, service, kind="TRIM_HORIZON", **request):
    service.answers.setdefault("GetShardIterator", [(200, {"ShardIterator": "first"})])
    answer = ask(
        "get_shard_iterator",
        StreamARN=ARN,
        StreamName="T",
        ShardId="shard-1",
        ShardIteratorType=kind,
        **request,
    )
    return answer["ShardIterator"]


def get(ask, at, **request):
    return json.loads(ask("get_records", StreamARN=ARN, ShardIterator=at, **request))


def test_the_summary_is_that_of_the_stream(ask, service):
    service.answers["DescribeStream"] = [stream(("a", None))]
    found = ask("describe_stream_summary", StreamARN=ARN, StreamName="T")
    summary = found["StreamDescriptionSummary"]
    assert service.asked("DescribeStream") == [{"StreamArn": ARN, "Limit": 1}]
    assert summary["StreamARN"] == ARN
    assert summary["StreamCreationTimestamp"].timestamp() == 1_700_000_000
    assert summary["RetentionPeriodHours"] == 24


def test_all_pages_are_listed_in_one_answer(ask, service):
    service.answers["DescribeStream"] = [
        stream(("a", None), last="a"),
        stream(last="b"),
        stream(("b", "a")),
    ]
    listed = ask("list_shards", StreamARN=ARN)["Shards"]
    assert [one["ShardId"] for one in listed] == ["a", "b"]
    assert [one.get("ExclusiveStartShardId") for one in service.asked("DescribeStream")] == [
        None,
        "a",
        "b",
    ]


def test_a_page_that_goes_on_where_it_began_is_refused(ask, service):
    service.answers["DescribeStream"] = [stream(("a", None), last="a")]
    with pytest.raises(UnknownOutcome, match="goes on where it began"):
        ask("list_shards", StreamARN=ARN)


def test_children_are_asked_for_and_others_left_out(ask, service):
    service.answers["DescribeStream"] = [stream(("a", None), ("b", "a"), ("c", "b"))]
    only = {"Type": "CHILD_SHARDS", "ShardId": "a"}
    listed = ask("list_shards", StreamARN=ARN, ShardFilter=only)["Shards"]
    assert [one["ShardId"] for one in listed] == ["b"]
    sent = service.asked("DescribeStream")[0].get("ShardFilter")
    assert sent == (only if KNOWS_FILTER else None)


def test_a_server_that_does_not_know_the_filter_lists_all_shards(ask, service):
    refusals = [refused("ValidationException", "unknown: ShardFilter")] * KNOWS_FILTER
    service.answers["DescribeStream"] = [*refusals, stream(("a", None), ("b", "a"))]
    only = {"Type": "CHILD_SHARDS", "ShardId": "a"}
    for _ in range(2):
        listed = ask("list_shards", StreamARN=ARN, ShardFilter=only)["Shards"]
        assert [one["ShardId"] for one in listed] == ["b"]
    filtered = ["ShardFilter" in one for one in service.asked("DescribeStream")]
    assert filtered == [*[True] * KNOWS_FILTER, False, False]


def test_records_have_the_form_of_kinesis(ask, service):
    service.answers["GetRecords"] = [records(5.5)]
    found = get(ask, iterator(ask, service), Limit=10_000)
    assert service.asked("GetRecords") == [{"ShardIterator": "first", "Limit": 1000}]
    (record,) = found["Records"]
    assert record["SequenceNumber"] == record["PartitionKey"] == "0" * 21
    assert json.loads(base64.b64decode(record["Data"]))["eventID"] == "e"
    assert record["ApproximateArrivalTimestamp"] == 5.5
    get(ask, found["NextShardIterator"])
    assert service.asked("GetRecords")[-1]["ShardIterator"] == "next"


def test_a_large_answer_is_converted_too(ask, service):
    service.answers["GetRecords"] = [records(*range(1000))]
    assert len(get(ask, iterator(ask, service))["Records"]) == 1000


@pytest.mark.parametrize(
    ("number", "sent"),
    [
        ("7", f"{7:021d}"),
        (f"{7:021d}", f"{7:021d}"),
        (f"{7:025d}", f"{7:025d}"),
        ("7" * 28, "7" * 28),
    ],
)
def test_a_sequence_number_has_the_digits_that_the_service_requires(ask, service, number, sent):
    iterator(ask, service, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=number)
    (asked,) = service.asked("GetShardIterator")
    assert (asked["SequenceNumber"], asked["ShardIteratorType"]) == (sent, "AFTER_SEQUENCE_NUMBER")


def test_a_time_that_the_server_does_not_take_is_found_among_the_records(ask, service):
    refusals = [refused("ValidationException", "Invalid ShardIteratorType")] * KNOWS_TIME
    service.answers["GetShardIterator"] = [*refusals, (200, {"ShardIterator": "first"})]
    service.answers["GetRecords"] = [records(1, 2), records(3, 4), records(5)]
    # The change of that second may have happened at 4.8.
    at = iterator(ask, service, "AT_TIMESTAMP", Timestamp=4.7)
    assert service.asked("GetShardIterator")[-1]["ShardIteratorType"] == "TRIM_HORIZON"
    seen = []
    for _ in range(3):
        answer = get(ask, at)
        seen += [one["ApproximateArrivalTimestamp"] for one in answer["Records"]]
        at = answer["NextShardIterator"]
    assert seen == [4, 5]


def test_the_end_of_a_shard_waits_for_a_child_to_be_listed(ask, service, clock):
    service.answers["GetRecords"] = [records(1, following=None)]
    service.answers["DescribeStream"] = [stream(("shard-1", None), ("x", "y"))]
    answer = get(ask, iterator(ask, service))
    assert len(answer["Records"]) == 1
    assert answer["NextShardIterator"]
    for _ in range(3):  # without a pause, only the first one asks
        answer = get(ask, answer["NextShardIterator"])
        assert (answer["Records"], answer.get("ChildShards")) == ([], None)
    assert len(service.asked("DescribeStream")) == 1
    clock.now += 1
    answer = get(ask, answer["NextShardIterator"])
    assert len(service.asked("DescribeStream")) == 2
    clock.now += 9
    answer = get(ask, answer["NextShardIterator"])
    clock.now += 9
    answer = get(ask, answer["NextShardIterator"])
    assert len(service.asked("DescribeStream")) == 3
    service.answers["DescribeStream"] = [stream(("shard-1", None), ("z", "shard-1"))]
    clock.now += 10
    answer = get(ask, answer["NextShardIterator"])
    assert answer["NextShardIterator"] is None
    assert [one["ShardId"] for one in answer["ChildShards"]] == ["z"]
    assert len(service.asked("GetRecords")) == 1


@pytest.mark.parametrize(("status", "waited_s"), [("DISABLED", 0.0), ("ENABLED", PATIENCE_S)])
def test_a_shard_ends_without_children_when_none_is_to_come(ask, service, clock, status, waited_s):
    service.answers["GetRecords"] = [records(following=None)]
    service.answers["DescribeStream"] = [stream(("shard-1", None), status=status)]
    answer = get(ask, iterator(ask, service))
    clock.now += waited_s
    answer = get(ask, answer["NextShardIterator"])
    assert answer["NextShardIterator"] is None
    assert answer["EndedWithoutChildren"] is True


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("LimitExceededException", Throttled),
        ("ThrottlingException", Throttled),
        ("TrimmedDataAccessException", TrimmedData),
        ("ValidationException", InvalidArgument),
        ("ResourceNotFoundException", NotFound),
    ],
)
def test_errors_mean_what_those_of_kinesis_mean(ask, service, code, error):
    service.answers["GetRecords"] = [refused(code)]
    with pytest.raises(error) as raised:
        get(ask, iterator(ask, service))
    assert type(raised.value) is error


def test_an_iterator_of_somebody_else_is_refused(ask):
    with pytest.raises(InvalidArgument):
        get(ask, "AAAA")


def test_streams_of_a_table_are_listed_and_all_streams_are_not(ask, service):
    service.answers["ListStreams"] = [(200, {"Streams": [{"StreamArn": ARN}]})]
    answer = ask("list_streams", TableName="Orders")
    assert [one["StreamARN"] for one in answer["StreamSummaries"]] == [ARN]
    assert service.asked("ListStreams") == [{"TableName": "Orders"}]
    with pytest.raises(ServiceError, match="has no such operation"):
        ask("list_streams", Limit=1)


@pytest.mark.parametrize(
    "operation",
    [
        "list_tags_for_stream",
        "register_stream_consumer",
        "describe_stream_consumer",
        "list_stream_consumers",
        "deregister_stream_consumer",
        "subscribe_to_shard",
    ],
)
def test_what_the_service_does_not_have_is_refused(ask, operation):
    with pytest.raises(ServiceError, match="has no such operation"):
        ask(operation)


NEWER = ARN.replace("2026-11-28", "2026-11-29")


@pytest.mark.parametrize(
    ("answer", "newer"),
    [
        ((200, {"Streams": [{"StreamArn": one} for one in (NEWER, ARN)]}), NEWER),
        ((200, {"Streams": [{"StreamArn": ARN}]}), None),
        ((200, {"Streams": []}), None),
        ((200, {"Streams": [{"StreamArn": "arn:x"}]}), None),
        (refused("AccessDeniedException"), None),
    ],
)
def test_of_a_stream_that_was_disabled_the_next_one_is_told(ask, service, answer, newer):
    service.answers["DescribeStream"] = [stream(status="DISABLED")]
    service.answers["ListStreams"] = [answer]
    found = ask("describe_stream_summary", StreamARN=ARN, StreamName="T")
    summary = found["StreamDescriptionSummary"]
    assert (summary["StreamStatus"], summary["NewerStreamARN"]) == ("DISABLED", newer)
    assert summary["NewerStreamDenied"] == (answer == refused("AccessDeniedException"))
    assert service.asked("ListStreams") == [{"TableName": "Orders"}]


def test_a_page_that_is_throttled_is_asked_for_again(ask, service, monkeypatch):
    monkeypatch.setattr("kcl_mld.aws.dynamodb_streams.PAGE_PAUSES_S", (0, 0))
    busy = refused("LimitExceededException")
    service.answers["DescribeStream"] = [stream(("a", None), last="a"), busy, stream(("b", "a"))]
    listed = ask("list_shards", StreamARN=ARN)["Shards"]
    assert [one["ShardId"] for one in listed] == ["a", "b"]
    assert len(service.asked("DescribeStream")) == 3
    service.answers["DescribeStream"] = [busy]
    with pytest.raises(Throttled):
        ask("list_shards", StreamARN=ARN)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"StreamDescription": {"StreamArn": ARN, "Shards": []}},
        {"StreamDescription": {"StreamArn": ARN, "StreamStatus": "ENABLED", "Shards": [{}]}},
    ],
)
def test_an_answer_that_lacks_what_it_must_have_counts_as_none(ask, service, answer):
    service.answers["DescribeStream"] = [(200, answer)]
    with pytest.raises(UnknownOutcome, match="not whole"):
        ask("list_shards", StreamARN=ARN)
