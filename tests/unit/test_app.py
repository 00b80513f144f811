"""The composition root: what a worker shows of itself, and what the real world is made of."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld import app
from kcl_mld.aws import clients
from kcl_mld.aws.clients import BotocoreCloudWatch
from kcl_mld.config.build import build_config
from kcl_mld.config.stream import Stream
from kcl_mld.errors import (
    AwsError,
    ConfigError,
    CredentialsMissing,
    Denied,
    InvalidArgument,
    Unreachable,
)
from kcl_mld.local.kinesis.model import KinesisModel
from kcl_mld.signals.model.conditions import Reason
from tests.fakes.app_ports import ports_with
from tests.fakes.children import ScriptedChild, ScriptedChildren, polite
from tests.fakes.clock import CountingIds, LoopClock
from tests.fakes.cloudwatch import FakeCloudWatch
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.dynamodb_model import DynamoDbModel
from tests.fakes.fake_kinesis import FakeKinesis
from tests.fakes.shard_world import simulated
from tests.unit.children.consumer_world import Inline

if TYPE_CHECKING:
    from kcl_mld.config.config import Config

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


def config(**changes: str | None) -> Config:
    values: dict[str, str | None] = {
        "executableName": "python app.py",
        "streamName": "orders",
        "applicationName": "app",
        "AwsCredentialsProvider": "DefaultCredentialsProvider",
        "regionName": "us-east-1",
        "initialPositionInStream": "TRIM_HORIZON",
        "metricsLevel": "NONE",
        "retrievalMode": "POLLING",
        **changes,
    }
    text = "".join(f"{key} = {value}\n" for key, value in values.items() if value is not None)
    return build_config(text.encode(), "app.properties", worker_id="w1").require()


# --- the worker


class World:
    """A stream of one shard and a worker on it."""

    def __init__(self, children: ScriptedChildren, **changes: str | None) -> None:
        clock = LoopClock()
        self.kinesis = KinesisModel(clock.wall, random.Random(1))
        self.kinesis.call("CreateStream", {"StreamName": "orders", "ShardCount": 1})
        self.port = FakeKinesis(self.kinesis)
        self.dynamodb = FakeDynamoDb(DynamoDbModel(clock.wall))
        self.cloudwatch = FakeCloudWatch()
        self.dropped_messages = 0
        settings = config(**changes)
        ports = ports_with(
            dynamodb=self.dynamodb,
            kinesis=self.port,
            cloudwatch=None if settings.metrics.level == "NONE" else self.cloudwatch,
            children=children,
            clock=clock,
            ids=CountingIds(),
            rng=random.Random(2),
            offload=Inline(),
            pid=4711,
            dropped_messages=lambda: self.dropped_messages,
            resident_bytes={1000: 4096}.get,
        )
        self.worker = app.build(settings, ports, Stream("orders"))

    def put(self, data: str = "YQ==") -> str:
        request = {"StreamName": "orders", "PartitionKey": "k", "Data": data}
        return str(self.kinesis.call("PutRecord", request)["SequenceNumber"])

    def split(self) -> None:
        request = {
            "StreamName": "orders",
            "ShardToSplit": FIRST,
            "NewStartingHashKey": str(2**127),
        }
        self.kinesis.call("SplitShard", request)

    def lease(self, key: str) -> dict[str, Any]:
        leases = {lease["lease_key"]: lease for lease in self.worker.status()["leases"]}
        return leases[key]


@simulated
async def test_a_worker_shows_what_it_holds_and_how_far_it_is():
    world = World(ScriptedChildren())
    worker = world.worker
    assert worker.cloudwatch is None
    about = {"worker_id": "w1", "application": "app", "stream": "orders"}
    nothing: dict[str, Any] = {
        "unreadable": [],
        "left_free": [],
        "waiting_workers": [],
        "deleted_rows": [],
        "leases": [],
    }
    nothing["log_messages_dropped"] = 0
    nothing["clock_ahead_s"] = None
    nothing["reasons"] = [{"reason": "not_running", "message": "the worker is starting"}]
    assert worker.status() == {**about, "state": "starting", **nothing}
    stored = world.put()
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(5)
    status = worker.status()
    assert {name: status[name] for name in about} == about
    assert status["state"] == "running"
    (lease,) = status["leases"]
    assert lease["counter"] >= 1
    del lease["counter"]
    ages = {name: lease.pop(name) for name in list(lease) if name.endswith("_s")}
    assert 4 < ages["held_s"] <= 5
    assert 0 <= ages["last_batch_age_s"] <= 1
    assert 0 <= ages["last_processed_age_s"] <= 1
    assert 0 <= ages["reading_lag_s"] <= 1
    idle = (
        "reading_fails_s",
        "child_exception_age_s",
        "child_failure_age_s",
        "child_silent_s",
        "processing_lag_s",
        "unconfirmed_s",
    )
    assert {ages[name] for name in idle} == {None}
    assert lease == {
        "lease_key": FIRST,
        "stream": "orders",
        "shard_id": FIRST,
        "records": 1,
        "checkpoint": stored,
        "state": "PROCESSING",
        "reason": None,
        "waits_to_start": False,
        "millis_behind_latest": 0,
        "child_pid": 1000,
        "child_resident_bytes": 4096,
        "blocked_by": None,
        "restarts": 0,
        "child_failures": 0,
        "reading_error": None,
        "reading_todo": None,
        "loss": None,
        "silence_cause": None,
        "child_exceptions": 0,
        "last_error": None,
        "held_because": None,
        "children": (),
    }
    worker.scheduler.stop()
    assert (await running).complete
    nothing["reasons"][0]["message"] = "the worker is stopped"
    assert worker.status() == {**about, "state": "stopped", **nothing}
    assert world.cloudwatch.requests == []


@simulated
async def test_a_worker_reports_its_shard_that_is_furthest_behind_to_the_fleet():
    world = World(ScriptedChildren())
    running = asyncio.create_task(world.worker.scheduler.run())
    await asyncio.sleep(45)
    item = (
        await world.dynamodb.get_item(
            TableName="app", Key={"leaseKey": {"S": "w1"}}, ConsistentRead=True
        )
    )["Item"]
    lag_s = round(world.lease(FIRST)["reading_lag_s"])
    assert world.lease(FIRST)["retention_s"] == 86400.0
    text = item["properties"]["M"]["kclMldWorstLag"]["S"]
    assert text == f"{item['lut']['N']} {lag_s} {FIRST}"
    world.worker.scheduler.stop()
    await running


@simulated
async def test_rows_that_cannot_be_read_are_shown_and_make_the_worker_unready():
    world = World(ScriptedChildren(polite))
    world.put()
    running = asyncio.create_task(world.worker.run())
    await asyncio.sleep(5)
    row = {"leaseKey": {"S": SECOND}, "leaseCounter": {"S": "many"}}
    await world.dynamodb.put_item(TableName="app", Item=row)
    await asyncio.sleep(60)
    (shown,) = world.worker.status()["unreadable"]
    assert shown["lease_key"] == SECOND
    assert "leaseCounter" in shown["why"]
    (reason,) = world.worker.readiness().reasons
    assert reason.reason is Reason.UNREADABLE_ROWS
    assert SECOND in reason.message
    world.worker.scheduler.stop()
    await running


@simulated
async def test_a_lease_that_no_worker_may_take_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody reads that shard; a worker that has as many as it may does its job, and is ready."""
    world = World(ScriptedChildren(polite), maxLeasesForWorker="1")
    world.put()
    running = asyncio.create_task(world.worker.run())
    await asyncio.sleep(5)
    assert world.worker.status()["left_free"] == []
    world.split()
    with caplog.at_level(logging.INFO, "mld.observe"):
        await asyncio.sleep(300)
    status = world.worker.status()
    (held,) = (one for one in status["leases"] if one["state"] != "FINISHED")
    (free,) = status["left_free"]
    assert free not in {FIRST, held["lease_key"]}
    assert world.worker.readiness().is_ready
    assert "1 lease has no owner, because each worker holds maxLeasesForWorker = 1" in caplog.text
    world.worker.scheduler.stop()
    await running


@simulated
async def test_a_finished_shard_is_shown_as_such_until_its_lease_is_deleted():
    world = World(ScriptedChildren(polite))
    world.put()
    running = asyncio.create_task(world.worker.run())
    await asyncio.sleep(5)
    world.split()
    await asyncio.sleep(60)
    shown = world.lease(FIRST)
    assert (shown["state"], shown["checkpoint"]) == ("FINISHED", "SHARD_END")
    assert "child_pid" not in shown
    assert world.lease(SECOND)["state"] == "PROCESSING"
    world.worker.scheduler.stop()
    assert (await running).complete


@simulated
async def test_a_lease_whose_consumer_is_not_there_yet_is_starting():
    world = World(ScriptedChildren())
    running = asyncio.create_task(world.worker.run())
    renewer = world.worker.coordinator.renewer
    while not renewer.held():  # noqa: ASYNC110 - every step of the loop
        await asyncio.sleep(0)
    assert world.lease(FIRST)["state"] == "STARTING"
    world.worker.scheduler.stop()
    assert (await running).complete


@simulated
async def test_metrics_are_published_where_a_cloudwatch_is_given():
    world = World(ScriptedChildren(), metricsLevel="DETAILED", metricsBufferTimeMillis="1000")
    world.put()
    running = asyncio.create_task(world.worker.run())
    await asyncio.sleep(30)
    world.dropped_messages = 7
    await asyncio.sleep(100)
    world.worker.scheduler.stop()
    await running
    assert world.worker.cloudwatch is not None
    await world.worker.close_metrics(2.0)
    assert {request["Namespace"] for request in world.cloudwatch.requests} == {"app"}
    assert {"RecordsProcessed", "CurrentLeases"} <= {
        datum["MetricName"] for datum in world.cloudwatch.data
    }
    (dropped,) = [d for d in world.cloudwatch.data if d["MetricName"] == "LogMessagesDropped"]
    assert dropped["StatisticValues"]["Sum"] == 7


@simulated
async def test_the_failure_of_a_child_is_shown_while_another_is_waited_for():
    async def dies(child: ScriptedChild) -> int:
        await child.receive()
        return 3

    world = World(
        ScriptedChildren(dies), childFailurePolicy="restart", childRestartBackoffMillis="20000"
    )
    running = asyncio.create_task(world.worker.run())
    await asyncio.sleep(5)
    shown = world.lease(FIRST)
    assert shown["restarts"] == 1
    assert "exit status 3" in shown["last_error"]
    assert shown["child_pid"] is shown["child_resident_bytes"] is None
    world.worker.scheduler.stop()
    assert (await running).complete


@simulated
async def test_a_worker_is_not_ready_while_its_children_crash_and_again_when_they_live():
    deaths = 4

    async def dies_at_first(child: ScriptedChild) -> int:
        nonlocal deaths
        if deaths == 0:
            return await polite(child)
        deaths -= 1
        await child.receive()
        return 3

    world = World(
        ScriptedChildren(dies_at_first),
        childFailurePolicy="restart",
        childRestartBackoffMillis="1000",
    )
    worker = world.worker
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(1)
    assert worker.readiness().is_ready  # two failures are no crash loop
    await asyncio.sleep(6)
    answer = worker.readiness()
    assert [one.reason for one in answer.reasons] == [Reason.ALL_SHARDS_FAIL]
    assert "exit status 3" in answer.reasons[0].message
    await asyncio.sleep(60)
    assert deaths == 0
    world.put()
    await asyncio.sleep(5)
    assert worker.readiness(10.0).is_ready
    worker.scheduler.stop()
    assert (await running).complete


@simulated
async def test_a_worker_is_not_ready_while_iterators_are_refused_for_all_shards():
    world = World(ScriptedChildren())
    worker = world.worker
    world.put()
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(5)
    assert worker.readiness().is_ready

    async def refuse(_service: str, operation: str, _request: Any) -> None:
        if operation in {"GetShardIterator", "GetRecords"}:
            raise InvalidArgument(operation, "InvalidArgumentException", "no such position")

    world.port.before = refuse
    await asyncio.sleep(20)
    assert worker.readiness().is_ready
    assert not worker.readiness(15.0).is_ready
    await asyncio.sleep(15)
    (reason,) = worker.readiness().reasons
    assert reason.reason is Reason.ALL_SHARDS_FAIL
    assert "could not be read for" in reason.message
    world.port.before = None
    await asyncio.sleep(5)
    assert worker.readiness(10.0).is_ready
    worker.scheduler.stop()
    assert (await running).complete


@simulated
async def test_a_file_without_polling_properties_has_its_records_pushed():
    world = World(ScriptedChildren(), retrievalMode=None)
    operations: list[str] = []

    async def remember(_service: str, operation: str, _request: Any) -> None:
        operations.append(operation)

    world.port.before = remember
    stored = world.put()
    running = asyncio.create_task(world.worker.run())
    await asyncio.sleep(5)
    assert world.lease(FIRST)["checkpoint"] == stored
    assert "SubscribeToShard" in operations
    assert not {"GetShardIterator", "GetRecords"} & set(operations)
    described = world.kinesis.call(
        "DescribeStreamConsumer", {"ConsumerName": "app", "StreamARN": _arn(world)}
    )
    assert described["ConsumerDescription"]["ConsumerStatus"] == "ACTIVE"
    world.worker.scheduler.stop()
    assert (await running).complete
    # The consumer is the application's: it stays.
    assert world.kinesis.call("ListStreamConsumers", {"StreamARN": _arn(world)})["Consumers"]


@simulated
async def test_a_worker_without_a_consumer_is_not_ready_and_says_why():
    world = World(ScriptedChildren(), retrievalMode="FANOUT")

    async def deny(_service: str, operation: str, _request: Any) -> None:
        if operation == "DescribeStreamConsumer":
            raise Denied(operation, "AccessDeniedException", "not you")

    world.port.before = deny
    stored = world.put()
    running = asyncio.create_task(world.worker.run())
    await asyncio.sleep(5)
    (reason,) = world.worker.readiness().reasons
    assert reason.reason is Reason.NO_CONSUMER
    assert "retrievalMode = POLLING" in reason.message
    world.port.before = None
    await asyncio.sleep(40)
    assert world.worker.readiness().is_ready
    assert world.lease(FIRST)["checkpoint"] == stored
    world.worker.scheduler.stop()
    assert (await running).complete


def _arn(world: World) -> str:
    answer = world.kinesis.call("DescribeStreamSummary", {"StreamName": "orders"})
    return str(answer["StreamDescriptionSummary"]["StreamARN"])


@simulated
async def test_a_worker_is_not_ready_while_its_table_is_silent():
    world = World(ScriptedChildren())
    worker = world.worker
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(5)

    async def refuse(_service: str, operation: str, _request: Any) -> None:
        raise Unreachable(operation, "ConnectTimeoutError")

    world.dynamodb.before = refuse
    await asyncio.sleep(100)
    assert Reason.TABLE_SILENT in {one.reason for one in worker.readiness().reasons}
    world.dynamodb.before = None
    await asyncio.sleep(60)
    assert worker.readiness(10.0).is_ready
    worker.scheduler.stop()
    assert (await running).complete


@simulated
async def test_what_a_service_reports_makes_the_worker_unready_at_once():
    world = World(ScriptedChildren())
    worker = world.worker
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(5)
    worker.conditions.report(Reason.STREAM_DELETED, "stream orders was deleted")
    assert not worker.readiness().is_ready
    worker.conditions.clear(Reason.STREAM_DELETED)
    assert worker.readiness().is_ready
    worker.scheduler.stop()
    assert (await running).complete


@simulated
async def test_one_line_a_minute_says_what_goes_on_until_the_worker_stops(caplog):
    caplog.set_level(logging.INFO)

    async def dies_at_first(child: ScriptedChild) -> int:
        await child.receive()
        return 3

    async def slow_to_stop(child: ScriptedChild) -> int:
        while (message := await child.receive()) is not None:
            if message["action"] == "shutdownRequested":
                await asyncio.sleep(200)
            await child.answer(message)
        return 0

    world = World(
        ScriptedChildren(dies_at_first, slow_to_stop),
        childFailurePolicy="restart",
        childRestartBackoffMillis="1000",
        shutdownGraceMillis="250000",
    )
    for _ in range(30):
        world.put()
    running = asyncio.create_task(world.worker.run())
    await asyncio.sleep(125)
    world.worker.scheduler.stop()
    await running
    said = [r.getMessage() for r in caplog.records if r.name == "mld.observe"]
    assert [re.sub(r"lag [01] s", "lag ... s", line) for line in said] == [
        f"1 shard held: 1 being read; 0.5 records/s; greatest lag ... s ({FIRST}); 1 child restart",
        f"1 shard held: 1 being read; 0 records/s; greatest lag ... s ({FIRST}); 0 child restarts",
    ]


# --- the real world


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> pytest.MonkeyPatch:
    """Credentials and nothing else of AWS."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@pytest.fixture
def made(environment: pytest.MonkeyPatch) -> list[str]:
    """Services that clients were made for."""
    services: list[str] = []
    make_client = clients.make_client

    def remember(session: Any, settings: clients.ClientSettings) -> Any:
        services.append(settings.service)
        return make_client(session, settings)

    environment.setattr(clients, "make_client", remember)
    return services


@pytest.mark.parametrize(
    ("level", "services"),
    [("NONE", ["kinesis", "dynamodb"]), ("SUMMARY", ["kinesis", "dynamodb", "cloudwatch"])],
)
def test_a_client_is_made_for_each_service_that_is_used(made, level, services):
    with app.real_ports(config(metricsLevel=level)) as world:
        assert sorted(made) == sorted(services)
        assert world.region == "us-east-1"
        assert isinstance(world.ports.cloudwatch, BotocoreCloudWatch | None)
        assert (world.ports.cloudwatch is None) is (level == "NONE")


@pytest.mark.parametrize("mode", ["pass", "decode"])
def test_a_schema_registry_is_there_only_where_it_is_enabled(made, mode):
    with app.real_ports(config()) as world:
        assert world.ports.schemas is None
        assert "glue" not in made
    on = {"glueSchemaRegistry.enabled": "true", "glueSchemaRegistry.mode": mode}
    with app.real_ports(config(**on)) as world:
        schemas = world.ports.schemas
        assert schemas is not None
        assert "glue" in made
        assert (schemas.decoders is None) == (mode == "pass")
        folder = Path(schemas.files.folder)
        assert folder.is_dir()
    assert not folder.exists()


def test_fan_out_has_a_client_of_its_own_for_subscriptions(made):
    with app.real_ports(config(retrievalMode="FANOUT")):
        assert made == ["kinesis", "kinesis", "dynamodb"]


def test_the_account_is_asked_for_only_when_it_is_needed(made, environment):
    environment.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    with app.real_ports(config()) as world:
        assert "sts" not in made
        with pytest.raises(AwsError):
            asyncio.run(world.account())
        assert made[-1] == "sts"


def test_clients_share_a_session_unless_a_service_has_a_chain_of_its_own(environment):
    sessions: dict[str, Any] = {}
    make_client = clients.make_client

    def remember(session: Any, settings: clients.ClientSettings) -> Any:
        sessions[settings.service] = session
        return make_client(session, settings)

    environment.setattr(clients, "make_client", remember)
    with app.real_ports(config(metricsLevel="DETAILED")):
        assert len({id(session) for session in sessions.values()}) == 1
    own = config(AwsCredentialsProviderDynamoDB="EnvironmentVariableCredentialsProvider")
    with app.real_ports(own):
        assert sessions["dynamodb"] is not sessions["kinesis"]


def test_a_chain_without_credentials_is_named(environment):
    environment.delenv("AWS_ACCESS_KEY_ID")
    with (
        pytest.raises(CredentialsMissing, match=r"^AwsCredentialsProvider: "),
        app.real_ports(config()),
    ):
        pass
    environment.setenv("AWS_ACCESS_KEY_ID", "id")
    settings = config(
        AwsCredentialsProviderCloudWatch="ProfileCredentialsProvider|nobody",
        metricsLevel="DETAILED",
    )
    with (
        pytest.raises(CredentialsMissing, match=r"^AwsCredentialsProviderCloudWatch: "),
        app.real_ports(settings),
    ):
        pass


def test_a_chain_that_is_not_used_may_be_empty(environment):
    settings = config(AwsCredentialsProviderCloudWatch="ProfileCredentialsProvider|nobody")
    with app.real_ports(settings) as world:
        assert world.ports.cloudwatch is None


def test_without_a_region_there_is_no_world(environment):
    with pytest.raises(ConfigError, match="regionName"), app.real_ports(config(regionName=None)):
        pass


def test_the_threads_end_with_the_world(environment):
    async def main(world: app.RealWorld) -> int:
        assert await world.ports.offload.run(sum, [1, 2]) == 3
        return 0

    with app.real_ports(config()) as world:
        assert asyncio.run(main(world)) == 0
    with pytest.raises(RuntimeError):
        asyncio.run(main(world))
