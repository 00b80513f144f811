"""``kcl-mld iam``: what workers and commands ask for is allowed, and nothing else is."""

from __future__ import annotations

import fnmatch
import json
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.local.embedded import EmbeddedAws
from kcl_mld_protocol.conform.daemon import properties_text
from tests.process.daemon import Application, wait_until
from tests.process.wire_spy import Asked, WireSpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.proof]

ACCOUNT, OTHER = "123456789012", "210987654321"
#: Listed and not asked for here, and why they are listed.
UNUSED = {
    "kms:Decrypt": "Kinesis asks KMS in the name of the reader",
    "glue:GetSchemaVersion": "the embedded AWS has no Glue; see test_daemon_schemas",
    "dynamodb:Query": "a table as small as these is scanned; the doctor asks the index",
    "dynamodb:ConditionCheckItem": "for a fleet of KCL 3.0 to 3.4, see tests of table migration",
}
FAST = {
    "completedLeaseCleanupIntervalMillis": "1000",
    "leaseCleanupIntervalMillis": "1000",
    "failoverTimeMillis": "3000",
    "metricsBufferTimeMillis": "500",
}


class Watched:
    """An application whose requests are kept."""

    def __init__(self, aws: EmbeddedAws, folder: Path, spies: ExitStack, **values: Any) -> None:
        self.app = Application(aws, values.pop("name"), folder)
        self.account = values.pop("caller", ACCOUNT)
        self.values: dict[str, str | None] = FAST | {"metricsLevel": "NONE"} | values
        self.kinesis = spies.enter_context(WireSpy(aws.kinesis_url))
        self.others = spies.enter_context(WireSpy(aws.moto_url))
        self.environment = {"AWS_ENDPOINT_URL": self.others.url} | {
            f"AWS_ENDPOINT_URL_{name}": spy.url
            for name, spy in (
                ("KINESIS", self.kinesis),
                *((other, self.others) for other in ("DYNAMODB", "CLOUDWATCH", "STS")),
            )
        }

    @property
    def file(self) -> str:
        """A properties file as the worker has it."""
        path = self.app.folder / "app.properties"
        values = {
            "executableName": "true",
            "applicationName": self.app.name,
            "streamName": self.app.name,
            "AwsCredentialsProvider": "DefaultCredentialsProvider",
            "regionName": "us-east-1",
        } | self.values
        path.write_text(properties_text({k: v for k, v in values.items() if v is not None}))
        return str(path)

    def typed(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """What a command prints."""
        done = subprocess.run(
            [sys.executable, "-m", "kcl_mld", *arguments],
            check=False,
            env=self.app.aws.environment_for_child() | self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    def work(self, *, records: int = 6, splits: bool = False) -> None:
        """A worker reads, a shard ends, and the worker stops."""
        app = self.app
        app.put(records)
        run = app.start(environment=self.environment, **self.values)
        wait_until(lambda: len(run.records()) == records, run.output)
        if splits:
            app.split(0)
            app.put(50)  # a finished row goes once its children have begun
            wait_until(lambda: "shardId-000000000000" not in app.items(), "the row is deleted")
        if self.values["metricsLevel"] != "NONE":
            wait_until(lambda: self.has_asked("cloudwatch:PutMetricData"), "metrics are sent")
        assert run.stop() == 0, run.output

    def has_asked(self, action: str) -> bool:
        """Whether there was such a request."""
        return any(one.action == action for one in self.asked())

    def asked(self) -> Iterator[Asked]:
        """All requests."""
        yield from self.kinesis.asked()
        yield from self.others.asked()

    def policy(self, role: str) -> list[dict[str, Any]]:
        """Statements for this file."""
        answer = self.typed("iam", self.file, "--role", role, "--account", self.account)
        statements: list[dict[str, Any]] = json.loads(answer)["Statement"]
        return statements

    def check(self, role: str) -> tuple[set[str], set[str]]:
        """Each request is allowed; the actions that were used, and those that are listed."""
        statements, used = self.policy(role), set()
        for one in self.asked():
            for action, arn in needs(one, self.account):
                if action != "sts:GetCallerIdentity":  # needs no permission
                    assert allows(statements, action, arn, one.body), (action, arn)
                    used.add(action)
        return used, {action for one in statements for action in one["Action"]}


def allows(statements: list[dict[str, Any]], action: str, arn: str | None, body: bytes) -> bool:
    """Whether a statement allows an action, on a resource where the request names one."""
    return any(
        action in one["Action"]
        and (arn is None or any(fnmatch.fnmatchcase(arn, each) for each in one["Resource"]))
        and all(
            value.encode() in body
            for value in one.get("Condition", {}).get("StringEquals", {}).values()
        )
        for one in statements
    )


def needs(asked: Asked, account: str) -> Iterator[tuple[str, str | None]]:
    """Actions and resources that IAM would check; a resource that an iterator names is None."""
    members = asked.members
    stream = f"arn:aws:kinesis:us-east-1:{account}:stream/"
    table = f"arn:aws:dynamodb:us-east-1:{account}:table/"
    if "TransactItems" in members:
        for item in members["TransactItems"]:
            ((verb, what),) = item.items()
            yield f"dynamodb:{verb}Item", table + what["TableName"]
    elif asked.action.startswith("dynamodb:"):
        index = f"/index/{members['IndexName']}" if "IndexName" in members else ""
        yield asked.action, table + members["TableName"] + index
    elif asked.action.startswith("kinesis:"):
        arn = members.get("ConsumerARN") or members.get("StreamARN")
        if arn is None and "StreamName" in members:
            arn = stream + members["StreamName"]
        yield asked.action, "*" if asked.action == "kinesis:ListStreams" else arn
    else:
        yield asked.action, None


@pytest.fixture
def watched(aws: EmbeddedAws, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []
    with ExitStack() as spies:

        def make(name: str, server: EmbeddedAws = aws, shards: int = 2, **values: Any) -> Watched:
            one = Watched(server, tmp_path, spies, name=name, **values)
            one.app.create_stream(shards)
            made.append(one)
            return one

        yield make
        for one in made:
            one.app.kill_all()


def test_a_worker_asks_for_what_its_policy_allows_and_for_all_of_it(
    watched: Callable[..., Watched],
) -> None:
    new = watched(
        "iam-new",
        retrievalMode="POLLING",
        metricsLevel="SUMMARY",
        leaseTablePitrEnabled="true",
    )
    new.work(splits=True)
    old = watched(
        "iam-old",
        retrievalMode="POLLING",
        clientVersionConfig="CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1",
    )
    old.work(splits=True)
    pushed = watched("iam-pushed", retrievalMode="FANOUT")
    pushed.work()
    # Tags are asked for one stream a second, and the other server has streams of other tests.
    with EmbeddedAws(options=("--create-s", "0.1")) as server:
        tagged = watched(
            "iam-tagged",
            server,
            streamName=None,
            multiStream="true",
            streamTags="iam = tagged",
            retrievalMode="POLLING",
            streamDiscoveryIntervalMillis="500",
        )
        tagged.app.kinesis.add_tags_to_stream(StreamName="iam-tagged", Tags={"iam": "tagged"})
        tagged.work()
        found = [one.check("worker") for one in (new, old, pushed, tagged)]
    used = set().union(*(one for one, _ in found))
    listed = set().union(*(one for _, one in found))
    assert listed - used <= set(UNUSED)
    assert "dynamodb:UpdateTable" in found[0][0] - found[1][0]  # the index is of 3.x alone


def test_what_is_not_in_a_policy_is_seen(watched: Callable[..., Watched]) -> None:
    statements = watched("iam-none", retrievalMode="POLLING", metricsLevel="NONE").policy("viewer")
    arn = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/iam-none"
    assert allows(statements, "kinesis:ListShards", arn, b"")
    assert not allows(statements, "kinesis:ListShards", f"{arn}-2", b"")
    assert not allows(statements, "kinesis:PutRecord", arn, b"")


def test_streams_of_a_list_and_a_consumer_as_given(watched: Callable[..., Watched]) -> None:
    first = watched(
        "iam-first",
        streamName=None,
        multiStream="true",
        streams=f"iam-first, arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/iam-second",
        retrievalMode="POLLING",
    )
    first.app.kinesis.create_stream(StreamName="iam-second", ShardCount=1)
    first.work()
    used, listed = first.check("worker")
    assert not listed & {"kinesis:ListStreams", "kinesis:SubscribeToShard"}
    consumer = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/iam-given/consumer/c:1"
    given = watched(
        "iam-given",
        **{"fanoutConfig.consumerArn": consumer, "retrievalMode": "FANOUT"},
    )
    given.app.aws.control(consumers=[consumer])
    given.work()
    used, listed = given.check("worker")
    assert "kinesis:SubscribeToShard" in used
    assert "kinesis:RegisterStreamConsumer" not in listed


def test_a_stream_of_another_account_is_always_named_by_its_arn(
    watched: Callable[..., Watched],
) -> None:
    with EmbeddedAws(options=("--create-s", "0.1", "--account-id", OTHER)) as server:
        arn = f"arn:aws:kinesis:us-east-1:{OTHER}:stream/iam-theirs"
        theirs = watched(
            "iam-theirs",
            server,
            caller=ACCOUNT,
            streamArn=arn,
            streamArnAddressing="arn",
            retrievalMode="POLLING",
        )
        theirs.work()
        assert theirs.policy("worker")[0]["Resource"] == [arn]
        used, _ = theirs.check("worker")
        assert "kinesis:ListShards" in used


def test_viewers_and_operators(watched: Callable[..., Watched]) -> None:
    one = watched("iam-viewed", retrievalMode="POLLING")
    one.app.put(3)
    run = one.app.start(**one.values)
    wait_until(lambda: len(run.records()) == 3, "it reads")
    file = one.file
    one.typed("explain", "--tip", file, codes=(0, 7))
    one.typed("wait", "--for=caught-up", "--timeout", "60", file)
    one.typed("leases", "list", file)
    used, listed = one.check("viewer")
    assert used == listed
    assert run.stop() == 0, run.output
    moving = watched("iam-moved", retrievalMode="POLLING")
    moving.work()
    migrating = Watched.__new__(Watched)
    migrating.__dict__.update(moving.__dict__)
    with ExitStack() as spies:
        migrating.kinesis = spies.enter_context(WireSpy(moving.app.aws.kinesis_url))
        migrating.others = spies.enter_context(WireSpy(moving.app.aws.moto_url))
        migrating.environment = {
            "AWS_ENDPOINT_URL_KINESIS": migrating.kinesis.url,
            "AWS_ENDPOINT_URL_DYNAMODB": migrating.others.url,
        }
        migrating.typed("leases", "migrate", "--to", "multi-stream", "--apply", moving.file)
        used, listed = migrating.check("operator")
    assert {"dynamodb:PutItem", "dynamodb:DeleteItem"} <= used


def test_the_doctor_asks_for_what_a_worker_may(watched: Callable[..., Watched]) -> None:
    one = watched("iam-doctor", retrievalMode="FANOUT")
    one.app.put(3)
    run = one.app.start(**one.values)
    wait_until(lambda: len(run.records()) == 3, "it reads")
    wait_until(one.app.indexes, "the index is there")
    assert "DescribeStreamConsumer" in one.typed("doctor", one.file, codes=(0, 1))
    used, _ = one.check("worker")
    assert {"kinesis:DescribeStreamConsumer", "dynamodb:Query"} <= used
    run.kill()
