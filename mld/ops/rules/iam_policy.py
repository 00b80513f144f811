"""The least permissions of a role, as an IAM policy. Pure.

Sources: "IAM permissions required for KCL consumer applications" (Kinesis developer guide), and the
calls that the code makes; ``tests/process/test_iam.py`` compares them with what workers and commands
asked for.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kcl_mld.config.config import RetrievalMode
from kcl_mld.config.spark.addresses import is_s3, namespaced_table
from kcl_mld.config.spark.keys import CATALOG
from kcl_mld.config.stream import DYNAMODB_STREAMS, partition_of, stream_action
from kcl_mld.config.stream_selection import is_regular
from kcl_mld.fleet.model.table_layout import Layout
from kcl_mld.leases.model.owner_index import LEASE_OWNER_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kcl_mld.config.config import Config
    from kcl_mld.config.stream_selection import StreamSelection

_ANY = "*"
#: Where Spark children write and list; where they write Iceberg's files, which they don't list.
_LISTED = ("spark.sink.path", "spark.function.deadletter.path", "spark.deadletter.path")
_WAREHOUSE = f"{CATALOG}warehouse"
#: A catalog's kind, its table, and where it is.
_OF_GLUE = (
    f"{CATALOG}type",
    "spark.sink.table",
    f"{CATALOG}glue.region",
    f"{CATALOG}client.region",
)


class Role(StrEnum):
    """Who uses the policy.

    WORKER: the daemon. VIEWER: commands that read. OPERATOR: also commands that change the lease
    table.
    """

    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyScope:
    """Facts that the configuration does not contain.

    Attributes:
        region: of clients whose region the configuration does not set.
        account: of the tables, and of streams without an account; ``*`` = unknown.
        kms_keys: ARNs of the keys with which streams are encrypted, except the AWS-managed one.
        has_old_tables: KCL 3.0 to 3.4 began the fleet, which has two more tables.
    """

    region: str
    account: str = _ANY
    kms_keys: tuple[str, ...] = ()
    has_old_tables: bool = False


@dataclass(frozen=True, slots=True)
class PolicyStatement:
    """One statement that allows.

    Attributes:
        sid: letters and digits.
        actions: ``service:Action``.
        resources: ARNs, ``*`` in them for any text.
        equal: condition keys with the value that each must have.
        like: condition keys with a pattern of the value, ``*`` in it for any text.
    """

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    equal: Mapping[str, str] | None = None
    like: Mapping[str, str] | None = None

    def as_dict(self) -> dict[str, Any]:
        """As IAM writes it."""
        shown: dict[str, Any] = {
            "Sid": self.sid,
            "Effect": "Allow",
            "Action": list(self.actions),
            "Resource": list(self.resources),
        }
        if self.equal:
            shown["Condition"] = {"StringEquals": dict(self.equal)}
        if self.like:
            shown["Condition"] = {"StringLike": dict(self.like)}
        return shown


def policy_document(statements: Iterable[PolicyStatement]) -> dict[str, Any]:
    """The policy as JSON has it."""
    return {"Version": "2012-10-17", "Statement": [one.as_dict() for one in statements]}


def least_policy(config: Config, role: Role, scope: PolicyScope) -> tuple[PolicyStatement, ...]:
    """What a role needs, and nothing else.

    Args:
        scope: see :class:`PolicyScope`.
    """
    streams, tables = _Streams(config, scope), _Tables(config, scope)
    found = [*streams.reading(), *tables.reading()]
    if role is Role.WORKER:
        found = [*streams.reading(), *streams.fan_out(), *tables.working(), *_services(config)]
        found += [*_dead_letters(config, scope), *_spark_children(config, scope)]
    if role is Role.OPERATOR:
        found += [*tables.changing(), *streams.changing()]
    if scope.kms_keys:
        found.append(PolicyStatement("EncryptedStreams", ("kms:Decrypt",), scope.kms_keys))
    return tuple(found)


def _kinesis(*operations: str) -> tuple[str, ...]:
    return tuple(f"kinesis:{one}" for one in operations)


def _dynamodb(*operations: str) -> tuple[str, ...]:
    return tuple(f"dynamodb:{one}" for one in operations)


class _Streams:
    """Statements about streams and their consumers."""

    def __init__(self, config: Config, scope: PolicyScope) -> None:
        self._config = config
        self._scope = scope
        region = config.aws.kinesis_region or config.stream.region or scope.region
        self._prefix = f"arn:{partition_of(region)}:kinesis:{region}"

    def reading(self) -> Iterator[PolicyStatement]:
        actions = ("DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords")
        arns = tuple(arn for _, arn in self._arns())
        traits = self._config.traits
        allowed = dict.fromkeys(stream_action(one, traits) for one in actions)
        yield PolicyStatement("ReadStreams", tuple(allowed), arns)
        if traits is DYNAMODB_STREAMS:  # a table's latest stream, and what follows a disabled one
            found = (stream_action("ListStreams", traits),)
            yield PolicyStatement("FindStreams", found, (_ANY,))
        streams = self._config.streams
        selection = None if streams is None else streams.selection
        if selection is not None:
            tags = ("ListTagsForStream",) if selection.tags else ()
            yield PolicyStatement("FindStreams", _kinesis("ListStreams", *tags), (_ANY,))

    def changing(self) -> Iterator[PolicyStatement]:
        if not self._config.traits.may_fan_out:
            return
        arns = [arn for _, arn in self._arns()]
        resources = (*arns, *(f"{arn}/consumer/*" for arn in arns))
        actions = _kinesis("ListStreamConsumers", "DeregisterStreamConsumer")
        yield PolicyStatement("ChangeConsumers", actions, resources)

    def fan_out(self) -> Iterator[PolicyStatement]:
        found: list[str] = []
        given: list[str] = []
        for name, arn in self._arns():
            is_pushed, consumer_arn = self._consumer_of(name)
            if is_pushed and consumer_arn is not None:
                given.append(consumer_arn)
            elif is_pushed:
                fan_out = self._config.retrieval.fan_out
                consumer = fan_out.consumer_name or self._config.application_name
                found += [arn, f"{arn}/consumer/{consumer}:*"]
        if found:
            actions = ("RegisterStreamConsumer", "DescribeStreamConsumer", "SubscribeToShard")
            yield PolicyStatement("FanOut", _kinesis(*actions), tuple(found))
        if given:
            yield PolicyStatement("FanOutAsGiven", _kinesis("SubscribeToShard"), tuple(given))

    def _consumer_of(self, name: str) -> tuple[bool, str | None]:
        """Whether records of a stream are pushed, and the ARN that the file has for the consumer."""
        if self._config.streams is not None and any(letter in name for letter in "*?"):
            return self._config.may_fan_out, None
        retrieval = self._config.retrieval_of(name)
        return retrieval.mode is RetrievalMode.FANOUT, retrieval.fan_out.consumer_arn

    def _arns(self) -> Iterator[tuple[str, str]]:
        """Name and ARN of each stream; ``*`` in them where a rule finds the streams."""
        streams = self._config.streams
        if streams is None:
            stream = self._config.stream
            yield stream.name, stream.arn or self._arn(stream.name, None)
            return
        for one in streams.streams:
            yield one.name, str(one.arn or self._arn(one.name, one.account))
        if streams.selection is not None:
            for pattern in _wildcards(streams.selection):
                yield pattern, self._arn(pattern, None)

    def _arn(self, name: str, account: str | None) -> str:
        return f"{self._prefix}:{account or self._scope.account}:stream/{name}"


def _wildcards(selection: StreamSelection) -> list[str]:
    """Names of the streams of a rule in the patterns of IAM, which has no ``[…]``."""
    text = _ANY if selection.names is None else selection.names.text
    globs = [glob.strip() for glob in text.split(",")]
    if is_regular(text) or any("[" in glob for glob in globs):
        return [_ANY]
    return globs


class _Tables:
    """Statements about the lease table and those of KCL 3.0 to 3.4."""

    def __init__(self, config: Config, scope: PolicyScope) -> None:
        region = config.aws.dynamodb_region or config.stream.region or scope.region
        prefix = f"arn:{partition_of(region)}:dynamodb:{region}:{scope.account}:table/"
        layout = Layout.of(config)
        self._leases = prefix + layout.lease_table
        self._coordinator = prefix + layout.coordinator_table
        self._metrics = prefix + layout.metrics_table
        self._has_old_tables = scope.has_old_tables
        self._recovers = config.leases.point_in_time_recovery

    def reading(self) -> list[PolicyStatement]:
        actions = _dynamodb("DescribeTable", "Scan", "GetItem")
        found = [PolicyStatement("ReadLeases", actions, (self._leases,)), self._see_old_tables()]
        if self._has_old_tables:
            found.append(PolicyStatement("ReadMetrics", _dynamodb("Scan"), (self._metrics,)))
        return found

    def _see_old_tables(self) -> PolicyStatement:
        """Whether the coordinator table exists shows which kind of fleet this is."""
        actions = _dynamodb("DescribeTable", "GetItem")
        return PolicyStatement("SeeOldTables", actions, (self._coordinator,))

    def working(self) -> list[PolicyStatement]:
        index = (f"{self._leases}/index/{LEASE_OWNER_INDEX}",)
        read, write = ("DescribeTable", "Scan", "GetItem"), ("PutItem", "UpdateItem", "DeleteItem")
        recovery = ("UpdateContinuousBackups",) if self._recovers else ()
        create = ("CreateTable", "UpdateTable", *recovery)
        found = [
            PolicyStatement("Leases", _dynamodb(*read, *write), (self._leases,)),
            PolicyStatement("CreateLeaseTable", _dynamodb(*create), (self._leases,)),
            PolicyStatement("OwnLeases", _dynamodb("Query"), index),
        ]
        if not self._has_old_tables:
            return [*found, self._see_old_tables()]
        return [
            *found,
            PolicyStatement(
                "OldTables", _dynamodb(*read, *write), (self._coordinator, self._metrics)
            ),
            PolicyStatement("MoveOldTables", _dynamodb("ConditionCheckItem"), (self._coordinator,)),
        ]

    def changing(self) -> list[PolicyStatement]:
        actions = _dynamodb("PutItem", "UpdateItem", "DeleteItem")
        return [PolicyStatement("ChangeLeases", actions, (self._leases,))]


def _dead_letters(config: Config, scope: PolicyScope) -> Iterator[PolicyStatement]:
    """Where a worker keeps records that children fail at; nothing for a folder."""
    scheme, _, rest = ("" if config.contain is None else config.contain.destination).partition(":")
    url = urlsplit(rest)
    partition = partition_of(config.aws.kinesis_region or config.stream.region or scope.region)
    if scheme == "s3":
        prefix = f"{url.path.strip('/')}/" if url.path.strip("/") else ""
        arn = f"arn:{partition}:s3:::{url.netloc}/{prefix}*"
        yield PolicyStatement("DeadLetters", ("s3:PutObject",), (arn,))
    if scheme == "sqs":
        account, name = url.path.strip("/").split("/")[-2:]
        arn = f"arn:{partition}:sqs:*:{account}:{name}"
        yield PolicyStatement("DeadLetters", ("sqs:SendMessage",), (arn,))


def _spark_children(config: Config, scope: PolicyScope) -> Iterator[PolicyStatement]:
    """What Spark children need, which have the worker's role: tables in S3, Iceberg's also in Glue."""
    text = {key: config.spark.get(key, "").strip() for key in (*_LISTED, _WAREHOUSE, *_OF_GLUE)}
    partition = partition_of(scope.region)
    listed = [text[key] for key in _LISTED if is_s3(text[key])]
    written = [*listed, *filter(is_s3, (text[_WAREHOUSE],))]
    if written:
        below = (each.partition("://")[2].strip("/") for each in written)
        arns = tuple(f"arn:{partition}:s3:::{each}/*" for each in below)
        actions = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
        yield PolicyStatement("SparkTables", actions, arns)
    if buckets := dict.fromkeys(urlsplit(each).netloc for each in listed):
        arns = tuple(f"arn:{partition}:s3:::{each}" for each in buckets)
        yield PolicyStatement("ListSparkTables", ("s3:ListBucket",), arns)
    kind, table, *regions = (text[key] for key in _OF_GLUE)
    if kind == "glue":
        with contextlib.suppress(ValueError):  # what is wrong with it says ``validate``
            database, name = namespaced_table(table)[-2:]
            region = next(filter(None, regions), scope.region)
            prefix = f"arn:{partition}:glue:{region}:{scope.account}"
            named = ("catalog", f"database/{database}", f"table/{database}/{name}")
            calls = ("glue:GetDatabase", "glue:GetTable", "glue:CreateTable", "glue:UpdateTable")
            arns = tuple(f"{prefix}:{each}" for each in named)
            yield PolicyStatement("SparkCatalog", calls, arns)


def _services(config: Config) -> Iterator[PolicyStatement]:
    """What a worker needs beside streams and tables."""
    if config.metrics.level != "NONE":
        namespace = {"cloudwatch:namespace": config.application_name}
        yield PolicyStatement("Metrics", ("cloudwatch:PutMetricData",), (_ANY,), namespace)
    if config.schemas.enabled:
        # A schema is requested by the id of its version, which does not name its registry.
        yield PolicyStatement("Schemas", ("glue:GetSchemaVersion",), (_ANY,))
