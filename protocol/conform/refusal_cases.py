"""Cases for the daemon kit: properties that no daemon may start with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.conform.daemon import DaemonKit
    from protocol.conform.report import Finding

#: item, changed properties, Java's text, what kcl-mld's output must mention.
_REFUSED: Final[tuple[tuple[str, dict[str, str | None], str, str], ...]] = (
    ("CFG-01", {"executableName": None}, "Must provide an executable name", "executableName"),
    ("CFG-02", {"applicationName": None}, "Application name is required", "applicationName"),
    ("CFG-02", {"applicationName": ""}, "Application name is required", "applicationName"),
    ("CFG-03", {"streamName": None}, "Stream name or Stream Arn is required.", "streamName"),
    (
        "CFG-04",
        {"AWSCredentialsProvider": None},
        "A basic set of AWS credentials must be provided",
        "AwsCredentialsProvider",
    ),
    ("CFG-07", {"streamArn": "foo"}, "Malformed ARN - doesn't start with 'arn:'", "streamArn"),
    ("CFG-08", {"streamArn": "arn:aws:kinesis:us-east-1:1:stream/a"}, "Invalid streamArn", "arn"),
    (
        "CFG-08",
        {"streamArn": "arn:aws:firehose:us-east-1:123456789012:stream/a"},
        "Invalid streamArn",
        "arn",
    ),
    (
        "CFG-08",
        {"streamArn": "arn:aws:kinesis:us-east-1:123456789012:streams/a"},
        "Invalid streamArn",
        "arn",
    ),
    (
        "CFG-18",
        {"AwsCredentialsProvider": "EnvironmentVariableCredentialsProvider"},
        "InvocationTargetException",
        "CredentialsProvider",
    ),
    ("CFG-20", {"initialPositionInStream": "AT_TIMESTAMP"}, "AT_TIMESTAMP", "AT_TIMESTAMP"),
    ("CFG-22", {"initialPositionInStreamExtended": "null"}, 'For input string: "null"', "null"),
    (
        "CFG-27",
        {"maxRecords": "20000"},
        "maxRecords must be less than or equal to 10000 but current value is 10000",
        "maxRecords",
    ),
    ("CFG-28", {"retrievalMode": "foo"}, "Unknown retrieval type 'foo'.", "retrievalMode"),
    (
        "CFG-30",
        {"metricsLevel": "bogus"},
        "No enum constant software.amazon.kinesis.metrics.MetricsLevel.BOGUS",
        "metricsLevel",
    ),
    (
        "CFG-33",
        {"staleWorkerMetricsEntryCleanupDuration": "-PT12H"},
        "Negative values are not permitted for duration: -PT12H",
        "staleWorkerMetricsEntryCleanupDuration",
    ),
    (
        "CFG-34",
        {"leaseTableScanTotalSegments": "-1"},
        "leaseTableScanTotalSegments must be a positive number",
        "leaseTableScanTotalSegments",
    ),
    (
        "CFG-36",
        {"kinesisEndpoint": "kinesis.us-east-1.amazonaws.com"},
        "The URI scheme of endpointOverride must not be null.",
        "kinesisEndpoint",
    ),
    ("CFG-37", {"maxActiveThreads": "abc"}, 'For input string: "abc"', "maxActiveThreads"),
    ("CFG-37", {"maxActiveThreads": ""}, 'For input string: ""', "maxActiveThreads"),
    ("CFG-38", {"shardPrioritization": "x"}, "ShardPrioritization", "shardPrioritization"),
    ("CFG-39", {"workerId": ""}, "WorkerID is required", "workerId"),
    (
        "CRED-08",
        {
            "AWSCredentialsProvider": "StsAssumeRoleCredentialsProvider"
            "|arn:aws:iam::123456789012:role/r|s|endpointRegion=snuffleupagus"
        },
        "No credential providers were specified.",
        "snuffleupagus",
    ),
    (
        "CRED-10",
        {"AWSCredentialsProvider": "StsAssumeRoleCredentialsProvider | arn | s"},
        "No credential providers were specified.",
        "StsAssumeRoleCredentialsProvider",
    ),
)


def refused_properties(kit: DaemonKit) -> Iterator[Finding]:
    """Properties files that no daemon may start with."""
    for number, (item_id, changes, text, hint) in enumerate(_REFUSED):
        with kit.start(f"cfg{number}", changes) as run:
            yield kit.refused(item_id, run, text, hint)


def no_region(kit: DaemonKit) -> Iterator[Finding]:
    """Nothing names a region."""
    without = ("AWS_REGION", "AWS_DEFAULT_REGION")
    with kit.start("cfgregion", {"regionName": None}, without=without) as run:
        yield kit.refused(
            "CFG-35", run, "Unable to load region from any of the providers", "region"
        )


def late_failures(kit: DaemonKit) -> Iterator[Finding]:
    """A failover time that lets every attempt to initialize fail."""
    kit.cloud.create_stream("cfglate", 1)
    with kit.start("cfglate", {"failoverTimeMillis": "-12"}) as run:
        code = run.exit_code(kit.limits.start_s)
        yield kit.decided(
            "CFG-10",
            as_java=code == 0 and "Unable to initialize after 20 attempts" in run.output,
            row="late-errors",
            otherwise=code == 2 and "failoverTimeMillis" in run.output,
            evidence=f"exit {code}: {(run.output.strip().splitlines() or [''])[-1]}",
        )


CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    refused_properties,
    no_region,
    late_failures,
)
