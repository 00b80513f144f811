"""Whether the caller may do what a run does, found out before anything is created.

Each call names a stream, table or database that is not there, so it changes nothing: AWS checks
permissions first, and a caller who is allowed to learns that there is no such thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore import xform_name

from kcl_mld.acceptance.options import Stage
from kcl_mld.errors import ConfigError, CredentialsRefused, Denied, ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcl_mld.acceptance.account import Account
    from kcl_mld.acceptance.clients import Clients
    from kcl_mld.acceptance.options import Options

_NOT_TRIED = (
    "kinesis:CreateStream",
    "kinesis:AddTagsToStream",
    "kinesis:GetRecords",
    "kinesis:SubscribeToShard",
    "dynamodb:CreateTable",
    "dynamodb:TagResource",
    "dynamodb:GetRecords",
    "cloudwatch:PutMetricData",
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One call.

    Attributes:
        action: as IAM has it.
    """

    action: str
    service: str
    operation: str
    request: dict[str, Any]


#: Of a table's stream that is not there, and of its shard.
_LABEL = "2026-01-01T00:00:00.000"
_TABLE_SHARD = f"shardId-{0:020}-{0:08x}"
_NOT_TRIED_OF_SPARK = ("glue:CreateDatabase", "s3:PutObject", "s3:GetObject", "s3:DeleteObject")


def not_tried(options: Options) -> tuple[str, ...]:
    """What only the run itself can try."""
    return _NOT_TRIED + (_NOT_TRIED_OF_SPARK if Stage.SPARK in options.stages else ())


def denied_actions(clients: Clients, account: Account, options: Options) -> tuple[str, ...]:
    """The actions that the caller may not do, of those that can be tried.

    Raises:
        ConfigError: there is no such bucket.
        AwsError: AWS can't be reached, or refuses the credentials themselves.
    """
    denied = []
    for trial in _trials(account, options):
        try:
            clients.call(trial.service, trial.operation, **trial.request)
        except CredentialsRefused:
            raise
        except Denied as error:
            denied.append(f"{trial.action} ({error.code})")
        except ServiceError as error:  # allowed: there is no such thing
            if error.code == "NoSuchBucket":
                raise ConfigError(f"there is no bucket {options.bucket}") from None
    return tuple(denied)


def _trials(account: Account, options: Options) -> Iterator[Trial]:
    yield from _of_stream(account, options)
    yield from _of_tables(account, options)
    if Stage.SPARK in options.stages:
        yield from _of_spark(options)
    yield Trial("kinesis:DescribeLimits", "kinesis", "describe_limits", {})
    now = datetime.now(UTC)
    metric = {
        "Namespace": options.names.absent,
        "MetricName": "-",
        "StartTime": now - timedelta(minutes=1),
        "EndTime": now,
        "Period": 60,
        "Statistics": ["Sum"],
    }
    yield Trial("cloudwatch:GetMetricStatistics", "cloudwatch", "get_metric_statistics", metric)


def _of_spark(options: Options) -> Iterator[Trial]:
    name = f"{options.names.glue_database}_absent"
    table = {"DatabaseName": name, "Name": "records"}
    requests: dict[str, dict[str, Any]] = {
        "GetDatabase": {"Name": name},
        "DeleteDatabase": {"Name": name},
        "GetTables": {"DatabaseName": name},
        "GetTable": table,
        "DeleteTable": table,
        "CreateTable": {"DatabaseName": name, "TableInput": {"Name": "records"}},
        "UpdateTable": {"DatabaseName": name, "TableInput": {"Name": "records"}},
    }
    for operation, request in requests.items():
        yield Trial(f"glue:{operation}", "glue", xform_name(operation), request)
    listed = {"Bucket": options.bucket, "Prefix": f"{options.names.absent}/", "MaxKeys": 1}
    yield Trial("s3:ListBucket", "s3", "list_objects_v2", listed)


def _of_stream(account: Account, options: Options) -> Iterator[Trial]:
    name = options.names.absent
    stream: dict[str, Any] = {"StreamName": name}
    shard = {**stream, "ShardId": "shardId-000000000000"}
    requests = {
        "DescribeStreamSummary": stream,
        "ListShards": stream,
        "ListTagsForStream": stream,
        "DeleteStream": stream,
        "GetShardIterator": {**shard, "ShardIteratorType": "LATEST"},
        "PutRecords": {**stream, "Records": [{"Data": b"-", "PartitionKey": "-"}]},
        "SplitShard": {**stream, "ShardToSplit": shard["ShardId"], "NewStartingHashKey": "1"},
        "MergeShards": {
            **stream,
            "ShardToMerge": shard["ShardId"],
            "AdjacentShardToMerge": "shardId-000000000001",
        },
    }
    if Stage.FAN_OUT in options.stages:
        consumer = {"StreamARN": account.arn("kinesis", f"stream/{name}"), "ConsumerName": name}
        operations = ("Register", "Describe", "Deregister")
        requests |= {f"{operation}StreamConsumer": consumer for operation in operations}
    for operation, request in requests.items():
        yield Trial(f"kinesis:{operation}", "kinesis", xform_name(operation), request)


def _of_tables(account: Account, options: Options) -> Iterator[Trial]:
    name = options.names.absent
    table: dict[str, Any] = {"TableName": name}
    item = {**table, "Key": {"leaseKey": {"S": "-"}}}
    requests = {
        "DescribeTable": table,
        "DeleteTable": table,
        "UpdateTable": {**table, "BillingMode": "PAY_PER_REQUEST"},
        "Scan": table,
        "Query": {
            **table,
            "KeyConditionExpression": "leaseKey = :key",
            "ExpressionAttributeValues": {":key": {"S": "-"}},
        },
        "GetItem": item,
        "UpdateItem": item,
        "DeleteItem": item,
        "PutItem": {**table, "Item": item["Key"]},
    }
    if Stage.TABLE_STREAM in options.stages:
        arn = account.arn("dynamodb", f"table/{name}")
        requests["ListTagsOfResource"] = {"ResourceArn": arn}
    for operation, request in requests.items():
        yield Trial(f"dynamodb:{operation}", "dynamodb", xform_name(operation), request)
    if Stage.TABLE_STREAM in options.stages:
        yield from _of_table_streams(account, name)


def _of_table_streams(account: Account, table: str) -> Iterator[Trial]:
    stream = {"StreamArn": account.arn("dynamodb", f"table/{table}/stream/{_LABEL}")}
    shard = {"ShardId": _TABLE_SHARD, "ShardIteratorType": "LATEST"}
    requests = {
        "ListStreams": {"TableName": table},
        "DescribeStream": stream,
        "GetShardIterator": stream | shard,
    }
    for operation, request in requests.items():
        yield Trial(f"dynamodb:{operation}", "dynamodbstreams", xform_name(operation), request)
