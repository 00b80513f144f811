"""The IAM policy of a run, limited to names with its prefix. Pure.

Sources: the calls of :mod:`kcl_mld.acceptance`; those of a worker, see
:mod:`kcl_mld.ops.rules.iam_policy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.config.stream import partition_of
from kcl_mld.ops.rules.iam_policy import PolicyStatement

if TYPE_CHECKING:
    from collections.abc import Iterator

_STREAM = (
    "CreateStream",
    "AddTagsToStream",
    "ListTagsForStream",
    "DeleteStream",
    "DescribeStreamSummary",
    "ListShards",
    "SplitShard",
    "MergeShards",
    "PutRecords",
    "GetShardIterator",
    "GetRecords",
    "RegisterStreamConsumer",
    "DescribeStreamConsumer",
    "DeregisterStreamConsumer",
    "SubscribeToShard",
)
_TABLE = (
    "CreateTable",
    "TagResource",
    "ListTagsOfResource",
    "DescribeTable",
    "UpdateTable",
    "DeleteTable",
    "Scan",
    "Query",
    "GetItem",
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "DescribeStream",
    "GetShardIterator",
    "GetRecords",
)


_GLUE = (
    "CreateDatabase",
    "GetDatabase",
    "DeleteDatabase",
    "CreateTable",
    "GetTable",
    "GetTables",
    "UpdateTable",
    "DeleteTable",
)


def acceptance_policy(
    region: str, account: str, prefix: str, bucket: str | None
) -> tuple[PolicyStatement, ...]:
    """What a run needs, and nothing beyond names that begin with the prefix.

    Args:
        account: twelve digits; ``*`` = unknown.
        prefix: see :data:`kcl_mld.acceptance.options.PREFIX_FORM`.
        bucket: where PySpark children write; None = they don't.
    """
    return tuple(_statements(region, account, prefix, bucket))


def _statements(
    region: str, account: str, prefix: str, bucket: str | None
) -> Iterator[PolicyStatement]:
    partition = partition_of(region)
    kinesis = f"arn:{partition}:kinesis:{region}:{account}:stream/{prefix}-*"
    tables = f"arn:{partition}:dynamodb:{region}:{account}:table/{prefix}-*"
    yield PolicyStatement(
        "Streams", _actions("kinesis", _STREAM), (kinesis, f"{kinesis}/consumer/*")
    )
    yield PolicyStatement("Quota", ("kinesis:DescribeLimits",), ("*",))
    below = tuple(f"{tables}/{each}/*" for each in ("index", "stream"))
    yield PolicyStatement("Tables", _actions("dynamodb", _TABLE), (tables, *below))
    yield PolicyStatement("FindTableStreams", ("dynamodb:ListStreams",), ("*",))
    namespace = {"cloudwatch:namespace": f"{prefix}-*"}
    yield PolicyStatement("PutMetrics", ("cloudwatch:PutMetricData",), ("*",), like=namespace)
    yield PolicyStatement("ReadMetrics", ("cloudwatch:GetMetricStatistics",), ("*",))
    if bucket is None:
        return
    bucket_arn = f"arn:{partition}:s3:::{bucket}"
    below_prefix = {"s3:prefix": f"{prefix}-*"}
    yield PolicyStatement("ListObjects", ("s3:ListBucket",), (bucket_arn,), like=below_prefix)
    objects = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
    yield PolicyStatement("Objects", objects, (f"{bucket_arn}/{prefix}-*",))
    database = f"{prefix.replace('-', '_')}_*"
    glue = f"arn:{partition}:glue:{region}:{account}"
    # Who deletes a database has to be allowed to delete what it may contain.
    contained = tuple(f"{each}/{database}/*" for each in ("table", "userDefinedFunction"))
    named = ("catalog", f"database/{database}", *contained)
    arns = tuple(f"{glue}:{each}" for each in named)
    yield PolicyStatement("Catalog", _actions("glue", _GLUE), arns)


def _actions(service: str, operations: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{service}:{one}" for one in operations)
