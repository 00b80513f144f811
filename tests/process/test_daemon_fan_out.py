"""Enhanced fan-out by a real daemon against the embedded Kinesis."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.daemon import GOOD, PATIENCE_S, STATUS, shard_id, wait_until
from tests.process.test_daemon_watched import free_address, get

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcl_mld.local.embedded import EmbeddedAws
    from tests.process.daemon import Running

pytestmark = pytest.mark.process

PUSHED = {"retrievalMode": "FANOUT"}
POLLED = {"retrievalMode": "POLLING"}


@pytest.fixture
def short_subscriptions(aws: EmbeddedAws) -> Iterator[None]:
    """Subscriptions end after two seconds, and may be renewed after one."""
    aws.control(settings={"subscription_s": 2.0, "takeover_s": 1.0})
    yield
    aws.control(settings={"subscription_s": 300.0, "takeover_s": 5.0})


def payloads(*runs: Running) -> list[str]:
    return [base64.b64decode(record["data"]).decode() for run in runs for record in run.records()]


def wire(*runs: Running) -> dict[str, dict[str, Any]]:
    """Every record that children got, as it came over the wire, by its sequence number."""
    return {record["sequenceNumber"]: record for run in runs for record in run.records()}


def wait_for_all(wanted: list[str], *runs: Running) -> None:
    wait_until(
        lambda: set(wanted) <= set(payloads(*runs)),
        f"{len(wanted)} records arrive: {runs[-1].output[-2000:]}",
        2 * PATIENCE_S,
    )


def test_a_plain_file_registers_its_consumer_and_has_its_records_pushed(new_app):
    app = new_app(shards=2)
    before = app.calls()
    sent = app.put(40)
    run = app.start(idleTimeBetweenReadsInMillis=None)
    wait_for_all(sent, run)
    assert sorted(payloads(run)) == sorted(sent)
    after = app.calls()
    assert after.get("kinesis.SubscribeToShard", 0) - before.get("kinesis.SubscribeToShard", 0) >= 2
    assert after.get("kinesis.GetRecords", 0) == before.get("kinesis.GetRecords", 0)
    assert run.stop() == 0
    arn = app.kinesis.describe_stream_summary(StreamName=app.name)["StreamDescriptionSummary"]
    (consumer,) = app.kinesis.list_stream_consumers(StreamARN=arn["StreamARN"])["Consumers"]
    assert consumer["ConsumerName"] == app.name
    assert f"Enhanced fan-out by consumer {consumer['ConsumerARN']}" in run.output


@pytest.mark.usefixtures("short_subscriptions")
def test_a_lost_subscription_is_a_growing_lag(new_app):
    app = new_app()
    sent = app.put(5)
    address = free_address()
    run = app.start(arguments=("--http", address), **PUSHED)
    wait_for_all(sent, run)
    refused = {"operation": "SubscribeToShard", "code": "LimitExceededException"}
    app.aws.control(faults=[{"service": "kinesis", "contains": app.name, **refused}])

    def lag_s():
        (lease,) = get(address, "/leases")[1]["leases"]
        return lease["reading_lag_s"]

    wait_until(lambda: lag_s() > 8, "the lag grows without a subscription")
    app.aws.control(faults=[])
    # So short a subscription has an event only if there are records.
    wait_until(lambda: app.put(1) and lag_s() < 6, "it is back")
    assert run.stop() == 0


@pytest.mark.usefixtures("short_subscriptions")
def test_what_is_pushed_is_what_is_polled_across_reshards_and_a_change_of_workers(new_app):
    """The polled truth is read by an application of its own from the same stream."""
    app = new_app(shards=2)
    sent = app.put(60)
    first = app.start(worker="a", **PUSHED)
    wait_for_all(sent, first)
    app.split(0)
    sent += app.put(60)
    wait_for_all(sent, first)
    second = app.start(worker="b", **PUSHED)
    sent += app.put(60)
    assert first.stop() == 0
    app.merge(2, 3)
    sent += app.put(60)
    wait_for_all(sent, first, second)
    assert second.stop() == 0

    polling = app.start(worker="p", applicationName=f"{app.name}-polled", **POLLED)
    wait_for_all(sent, polling)
    assert polling.stop() == 0
    pushed, polled = wire(first, second), wire(polling)
    assert pushed == polled
    assert sorted(payloads(polling)) == sorted(sent)
    # Nothing was lost in between: what one worker checkpointed the next one did not get again.
    assert sorted(payloads(first, second)) == sorted(sent)


def test_a_worker_that_takes_over_waits_for_the_service_and_loses_nothing(new_app):
    app = new_app(shards=1)
    sent = app.put(5)
    first = app.start(worker="a", **PUSHED)
    wait_for_all(sent, first)
    first.kill()
    sent += app.put(5)
    second = app.start(worker="b", failoverTimeMillis="1000", **PUSHED)
    wait_for_all(sent[5:], second)
    assert second.stop() == 0


@pytest.mark.parametrize(
    "trouble",
    [
        {"in_stream": "cut"},
        {"in_stream": "corrupt"},
        {"in_stream": "end"},
        {"in_stream": "exception", "code": "InternalFailureException"},
        {"in_stream": "exception", "code": "ResourceInUseException"},
        {"code": "LimitExceededException"},
        {"code": "ResourceInUseException"},
    ],
    ids=lambda rule: "-".join(str(one) for one in rule.values()),
)
def test_trouble_of_a_subscription_costs_time_and_no_record(aws, new_app, trouble):
    app = new_app(shards=1)
    sent = app.put(30)
    rule = {"operation": "SubscribeToShard", "contains": app.name, "times": 2, **trouble}
    aws.control(faults=[rule], settings={"takeover_s": 1.0})
    try:
        run = app.start(**PUSHED)
        wait_for_all(sent, run)
        assert sorted(payloads(run)) == sorted(sent)
        assert run.stop() == 0
    finally:
        aws.control(settings={"takeover_s": 5.0})


def test_a_stop_is_prompt_while_subscriptions_are_silent(new_app):
    app = new_app(shards=4)
    sent = app.put(20)
    run = app.start(**PUSHED)
    wait_for_all(sent, run)
    assert run.stop() == 0
    assert set(app.owners().values()) == {None}


def test_a_slow_child_holds_the_service_back_and_not_the_other_way_round(new_app):
    app = new_app(shards=1)
    sent = app.put(10)
    slow = {**GOOD, "processRecords": [[["sleep", 0.5], ["checkpoint", None, None], STATUS]]}
    run = app.start(slow, **PUSHED)
    wait_for_all(sent, run)
    sent += app.put(400)
    wait_for_all(sent, run)
    assert payloads(run) == sent
    assert run.stop() == 0


def test_the_end_of_a_shard_reaches_its_child(new_app):
    app = new_app(shards=1)
    sent = app.put(10)
    run = app.start(**PUSHED)
    wait_for_all(sent, run)
    app.split(0)
    run.wait_for_actions("shardEnded")
    wait_until(
        lambda: app.items().get(shard_id(0), {}).get("checkpoint") == "SHARD_END", "it is finished"
    )
    sent += app.put(20)
    wait_for_all(sent, run)
    assert run.stop() == 0
