"""What a run creates and what it costs. Pure.

Prices are list prices of us-east-1 in US dollars, see "Amazon Kinesis Data Streams pricing", "Amazon
DynamoDB pricing" and "Amazon CloudWatch pricing"; other regions cost up to twice as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.acceptance.options import MOST_SHARDS, Names, Stage
from kcl_mld.acceptance.rules.resource import STAYS_IN_S3, Resource, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kcl_mld.acceptance.options import Options

USD_SHARD_HOUR = 0.015
USD_CONSUMER_SHARD_HOUR = 0.015
USD_PUT_UNITS_MILLION = 0.014
USD_FAN_OUT_GB = 0.013
USD_WRITE_UNITS_MILLION = 0.625
#: A custom metric costs $0.30 a month, by the hour.
USD_METRIC_HOUR = 0.30 / 730
USD_METRIC_REQUEST = 0.01 / 1000
#: Of one application: metrics of the worker, and of each shard.
_METRICS = 120
#: PutMetricData of the two workers of one application: each sends one every ten seconds.
_METRIC_REQUESTS_PER_HOUR = 2 * 360
#: Lease renewals, heartbeats and checkpoints of one application, a second.
_LEASE_WRITES_PER_S = 5.0
_HOUR_S = 3600.0
_PUT_UNIT_BYTES = 25 * 1024


@dataclass(frozen=True, slots=True)
class CostLine:
    """A part of the costs.

    Attributes:
        stays: it goes on if nothing is cleaned up; else it ends with the workers.
    """

    what: str
    usd_per_hour: float
    stays: bool


def applications(names: Names, stages: Iterable[Stage]) -> Iterator[str]:
    """The applications of the workers, each of which has a lease table of its name."""
    wanted = frozenset(stages)
    yield names.polling_application
    if Stage.FAN_OUT in wanted:
        yield names.fan_out_application
    if Stage.TABLE_STREAM in wanted:
        yield names.table_application
    if Stage.JAVA in wanted:
        yield names.java_application
    if Stage.SPARK in wanted:
        yield names.spark_delta_application
        yield names.spark_iceberg_application


def services(stages: Iterable[Stage]) -> Iterator[str]:
    """The services that are called, as botocore names them."""
    wanted = frozenset(stages)
    yield from ("sts", "kinesis", "dynamodb", "cloudwatch")
    if Stage.TABLE_STREAM in wanted:
        yield "dynamodbstreams"
    if Stage.SPARK in wanted:
        yield from ("s3", "glue")


def planned(names: Names, stages: Iterable[Stage], bucket: str | None) -> tuple[Resource, ...]:
    """All that a run creates, or its workers do, in the order of creation.

    Args:
        bucket: there is one if the stage SPARK is wanted.
    """
    wanted = frozenset(stages)
    found = [Resource(ResourceKind.STREAM, names.stream)]
    if Stage.TABLE_STREAM in wanted:
        found.append(Resource(ResourceKind.TABLE, names.source_table))
    if Stage.SPARK in wanted:
        found.append(Resource(ResourceKind.GLUE_DATABASE, names.glue_database))
        found.append(Resource(ResourceKind.OBJECTS, f"{bucket}/{names.run}/"))
    tables = [*applications(names, wanted)]
    if Stage.JAVA in wanted:
        tables += names.java_tables[1:]
    found += [Resource(ResourceKind.LEASE_TABLE, one) for one in tables]
    if Stage.FAN_OUT in wanted:
        found.append(Resource(ResourceKind.CONSUMER, names.fan_out_application, names.stream))
    return tuple(found)


def costs(names: Names, stages: Iterable[Stage]) -> tuple[CostLine, ...]:
    """What a run costs an hour, without the records."""
    wanted = frozenset(stages)
    count = sum(1 for _ in applications(names, wanted))
    writes = count * _LEASE_WRITES_PER_S * _HOUR_S * USD_WRITE_UNITS_MILLION / 1e6
    lines = [CostLine(f"{MOST_SHARDS} shards", MOST_SHARDS * USD_SHARD_HOUR, stays=True)]
    if Stage.FAN_OUT in wanted:
        usd = MOST_SHARDS * USD_CONSUMER_SHARD_HOUR
        lines.append(CostLine(f"a consumer of {MOST_SHARDS} shards", usd, stays=True))
    tables = f"writes to {count} lease table{'s' * (count > 1)}, on demand"
    lines.append(CostLine(tables, writes, stays=False))
    metrics = count * _METRICS
    usd = metrics * USD_METRIC_HOUR + count * _METRIC_REQUESTS_PER_HOUR * USD_METRIC_REQUEST
    lines.append(CostLine(f"{metrics} metrics in CloudWatch", usd, stays=False))
    return tuple(lines)


def usd_per_hour(lines: Iterable[CostLine]) -> float:
    """The sum while workers run."""
    return sum(line.usd_per_hour for line in lines)


def billed_hours(seconds: float) -> int:
    """Hours that AWS bills at most for a run of this time, the clean-up included.

    A metric costs for each hour of the clock in which it is published.
    """
    return math.ceil(seconds / _HOUR_S) + 1


def usd_at_most(options: Options) -> float:
    """What the run costs until its limit of time, without the records."""
    hourly = usd_per_hour(costs(options.names, options.stages))
    return hourly * billed_hours(options.limit_s)


def usd_per_day_if_killed(lines: Iterable[CostLine]) -> float:
    """The sum of a day after the command and its workers were killed, and nothing was cleaned up."""
    return 24 * sum(line.usd_per_hour for line in lines if line.stays)


def usd_of_records(records: int, data_bytes: int) -> float:
    """What it costs to put records and to push them to one consumer."""
    units = max(records, -(-data_bytes // _PUT_UNIT_BYTES))
    return units * USD_PUT_UNITS_MILLION / 1e6 + data_bytes * USD_FAN_OUT_GB / 1e9


def usd_of_writes(items: int) -> float:
    """What it costs to write small items."""
    return items * USD_WRITE_UNITS_MILLION / 1e6


def plan_lines(options: Options, arn: str) -> Iterator[str]:
    """What people are shown before they agree.

    Args:
        arn: the caller's.
    """
    names, lines = options.names, costs(options.names, options.stages)
    yield f"Account {options.account}, region {options.region}, as {arn}"
    if options.is_local:
        places = ", ".join(f"{service} at {place}" for service, place in options.endpoints.items())
        yield f"This is not AWS, and proves nothing about it: {places}"
    yield f"The run {names.run_id} creates, and deletes at its end:"
    for resource in planned(names, options.stages, options.bucket):
        yield f"  {resource}"
    yield "It costs about, by list prices of us-east-1; other regions cost up to twice as much:"
    for line in lines:
        yield f"  ${line.usd_per_hour:.3f} an hour: {line.what}"
    limit = f"{options.limit_s / 60:.0f} minutes and the clean-up"
    hours = f"{billed_hours(options.limit_s)} hours of the clock"
    yield f"  ${usd_at_most(options):.2f} for {limit}, in up to {hours}, and cents for the records"
    day = usd_per_day_if_killed(lines)
    yield f"If it is killed and nothing is cleaned up: ${day:.2f} a day"
    if Stage.SPARK in options.stages:
        yield f"In the bucket {STAYS_IN_S3}"
    yield "Metrics in CloudWatch can't be deleted. They stay for 15 months, and cost nothing then."
