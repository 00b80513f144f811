"""Services that throttle, fail, lose answers, refuse or are not there."""

from __future__ import annotations

import base64
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.process.daemon import CHECKPOINT, PATIENCE_S, STATUS, shard_id, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application, Running

pytestmark = pytest.mark.process

DATA = Path(__file__).resolve().parents[1] / "data"
#: The child waits in its batch until the test has arranged what happens to the checkpoint.
WAITING = {
    "processRecords": [[["gate"], CHECKPOINT, STATUS]],
}


def results(run: Running) -> list[str | None]:
    return [
        json.loads(line)["error"]
        for line in run.lines()
        if line.startswith('{"action":"checkpoint"')
    ]


@pytest.mark.parametrize(
    ("fault", "name", "is_stored"),
    [
        ({"code": "ProvisionedThroughputExceededException"}, "ThrottlingException", False),
        ({"code": "ItemCollectionSizeLimitExceededException"}, "KinesisClientLibDependencyException", False),
        ({"code": "ResourceNotFoundException"}, "InvalidStateException", False),
        ({"code": "ProvisionedThroughputExceededException", "times": 1}, None, True),
        ({"drop": True, "when": "before", "times": 1}, None, True),
        ({"drop": True, "when": "after", "times": 1}, None, True),
    ],
    ids=["throttled", "failing", "no table", "throttled once", "request lost", "answer lost"],
)  # fmt: skip
def test_the_child_hears_what_became_of_its_checkpoint(
    new_app: Callable[..., Application],
    fault: dict[str, object],
    name: str | None,
    is_stored: bool,
) -> None:
    app = new_app(failoverTimeMillis="20000")  # no renewal in between
    app.put(1)
    run = app.start(WAITING)
    run.wait_for_actions("processRecords")
    rule = {"service": "dynamodb", "operation": "UpdateItem", "contains": app.name, **fault}
    counts = app.aws.control(faults=[rule])["faults"].get("dynamodb.UpdateItem", 0)
    run.open_gate()
    run.wait_for_actions("checkpoint")
    assert app.aws.control(faults=[])["faults"]["dynamodb.UpdateItem"] > counts
    assert results(run) == [name]
    stored = app.items()[shard_id(0)]["checkpoint"]
    assert (stored == run.records()[0]["sequenceNumber"]) is is_stored
    assert run.stop() == 0, run.output


def test_throttled_and_failing_reads_lose_nothing(new_app: Callable[..., Application]) -> None:
    app = new_app()
    put = app.put(20, "key")
    app.aws.control(
        faults=[
            {
                "service": "kinesis",
                "operation": "GetRecords",
                "code": "ProvisionedThroughputExceededException",
                "times": 2,
            },
            {"service": "kinesis", "operation": "GetRecords", "drop": True, "times": 1},
            {
                "service": "kinesis",
                "operation": "GetRecords",
                "code": "InternalFailure",
                "http_status": 500,
                "times": 1,
            },
            {
                "service": "kinesis",
                "operation": "GetShardIterator",
                "code": "ProvisionedThroughputExceededException",
                "times": 1,
            },
        ]
    )
    run = app.start()
    assert run.wait_for(lambda r: len(r.records()) >= 20, PATIENCE_S), run.output
    assert app.aws.control()["faults"]["kinesis.GetRecords"] >= 4
    assert run.stop() == 0, run.output
    assert len({r["sequenceNumber"] for r in run.records()}) == len(run.records()) == len(put)


def test_an_expired_iterator_is_replaced(new_app: Callable[..., Application]) -> None:
    app = new_app()
    app.put(5)
    run = app.start()
    assert run.wait_for(lambda r: len(r.records()) >= 5, PATIENCE_S), run.output
    rule = {
        "service": "kinesis",
        "operation": "GetRecords",
        "code": "ExpiredIteratorException",
        "times": 1,
    }
    before = app.aws.control(faults=[rule])["faults"].get("kinesis.GetRecords", 0)
    wait_until(
        lambda: app.aws.control()["faults"].get("kinesis.GetRecords", 0) > before, "the error"
    )
    app.put(5)
    assert run.wait_for(lambda r: len(r.records()) >= 10, PATIENCE_S), run.output
    assert run.stop() == 0, run.output
    assert len({r["sequenceNumber"] for r in run.records()}) == len(run.records()) == 10


def test_a_shard_list_that_is_limited_delays_the_start_only(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(listShardsBackoffTimeInMillis="100")
    app.put(1)
    rule = {"service": "kinesis", "operation": "ListShards", "code": "LimitExceededException"}
    app.aws.control(faults=[{**rule, "times": 2}])
    run = app.start()
    run.wait_for_actions("processRecords")
    assert run.stop() == 0, run.output


# --- CloudWatch


def test_metrics_arrive_in_cloudwatch(new_app: Callable[..., Application]) -> None:
    app = new_app(metricsLevel="DETAILED", metricsBufferTimeMillis="300")
    app.put(10)
    run = app.start()
    run.wait_for_actions("checkpoint")
    cloudwatch = app.aws.client("cloudwatch")

    def names() -> set[str]:
        answer = cloudwatch.list_metrics(Namespace=app.name)
        return {metric["MetricName"] for metric in answer["Metrics"]}

    wanted = {"RecordsProcessed", "DataBytesProcessed", "MillisBehindLatest", "CurrentLeases"}
    wait_until(lambda: wanted <= names(), str(wanted))
    assert run.stop() == 0, run.output


def test_a_denied_cloudwatch_does_not_stop_reading(new_app: Callable[..., Application]) -> None:
    app = new_app(metricsLevel="SUMMARY", metricsBufferTimeMillis="200")
    app.put(5)
    rule = {"service": "monitoring", "code": "AccessDenied", "http_status": 403}
    before = app.aws.control(faults=[rule])["faults"]
    run = app.start()
    assert run.wait_for(lambda r: len(r.records()) >= 5, PATIENCE_S), run.output

    def refused() -> bool:
        name = "monitoring.PutMetricData"
        return bool(app.aws.control()["faults"].get(name, 0) > before.get(name, 0))

    wait_until(refused, "a refused PutMetricData")
    app.put(5)
    assert run.wait_for(lambda r: len(r.records()) >= 10, PATIENCE_S), run.output
    assert run.stop() == 0, run.output


def test_an_unreachable_cloudwatch_does_not_stop_reading(
    new_app: Callable[..., Application],
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        app = new_app(
            metricsLevel="DETAILED", metricsBufferTimeMillis="200", cloudWatchEndpoint=endpoint
        )
        app.put(5)
        run = app.start()
        run.wait_for_log("metric data were lost")
        app.put(5)
        assert run.wait_for(lambda r: len(r.records()) >= 10, PATIENCE_S), run.output
        assert run.stop() == 0, run.output


def test_without_metrics_no_client_is_made(new_app: Callable[..., Application]) -> None:
    app = new_app(metricsLevel="NONE", cloudWatchEndpoint="http://127.0.0.1:9")
    app.put(1)
    before = app.calls()
    # A provider that does not work would end the start if a client were made.
    run = app.start(AwsCredentialsProviderCloudWatch="ProfileCredentialsProvider|no-such-profile")
    run.wait_for_actions("checkpoint")
    assert run.stop() == 0, run.output
    assert app.calls().get("monitoring.PutMetricData", 0) == before.get(
        "monitoring.PutMetricData", 0
    )


# --- credentials, streams by ARN


def arn_of(app: Application) -> str:
    summary = app.kinesis.describe_stream_summary(StreamName=app.name)
    return summary["StreamDescriptionSummary"]["StreamARN"]


def test_a_stream_by_arn_is_read_in_its_own_account_and_region(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(3)
    arn = arn_of(app)
    run = app.start(streamName=None, streamArn=arn)
    run.wait_for_actions("checkpoint")
    assert run.stop() == 0, run.output
    assert len(run.records()) == 3


def test_a_stream_by_arn_is_read_by_name_where_the_account_is_unknown(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(3)
    arn = arn_of(app)
    app.aws.control(faults=[{"service": "sts", "code": "AccessDenied", "http_status": 403}])
    run = app.start(streamName=None, streamArn=arn)
    run.wait_for_actions("checkpoint")
    assert "Own account unknown" in run.output
    assert run.stop() == 0, run.output
    assert len(run.records()) == 3


@pytest.mark.parametrize("part", ["account", "region"])
def test_an_arn_of_another_account_or_region_is_refused(
    new_app: Callable[..., Application], part: str
) -> None:
    app = new_app()
    account, region = (
        ("999999999999", "us-east-1") if part == "account" else ("123456789012", "eu-west-1")
    )
    run = app.start(
        streamName=None, streamArn=f"arn:aws:kinesis:{region}:{account}:stream/{app.name}"
    )
    assert run.ends() == 2, run.output
    assert "streamArnAddressing" in run.output


# --- aggregates


def payloads(run: Running) -> list[bytes]:
    return [base64.b64decode(record["data"]) for record in run.records()]


@pytest.mark.parametrize("what", ["drop", "deliver"])
def test_aggregates_of_other_producers_are_not_dropped_in_silence(
    new_app: Callable[..., Application], what: str
) -> None:
    app = new_app(4, aggregatedRecordsOutsideShard=what)
    foreign = base64.b64decode((DATA / "aws_kinesis_agg.b64").read_text())
    vectors = json.loads((DATA / "kpl.json").read_text())["deaggregation"]
    damaged = next(one for one in vectors if one["name"] == "pk_index_out_of_range")["input"][0]
    put = (("user-0", foreign), ("a", base64.b64decode(damaged["dataBase64"])), ("user-0", b"end"))
    numbers = [
        app.kinesis.put_record(StreamName=app.name, PartitionKey=key, Data=data)["SequenceNumber"]
        for key, data in put
    ]
    run = app.start()
    assert run.wait_for(lambda r: {b"end", b"lost"} <= set(payloads(r)), PATIENCE_S), run.output
    assert run.stop() == 0, run.output
    found = payloads(run)
    whole = [b"record %d" % number for number in range(100)] if what == "deliver" else []
    assert [one for one in found if one not in {b"keep", b"lost"}] == [*whole, b"end"]
    assert [one for one in found if one in {b"keep", b"lost"}] == [b"keep", b"lost"]
    assert f"1 user record in aggregated records {numbers[1]} can't be read" in run.output
    warning = f"{shard_id(2)}: 100 user records in aggregated records {numbers[0]} are not"
    assert (warning in run.output) == (what == "drop")
