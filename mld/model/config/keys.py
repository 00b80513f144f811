"""Every property that the MultiLangDaemon knows, and every name that it doesn't but people try.

One row a key: how its text becomes a value, what holds when it is absent, what it does here.
Defaults are those of the Java daemon 3.5.1, in the unit of the key, except where ``doc`` says so.
The table is the only place that knows names; ``kcl-mld properties`` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Kind(StrEnum):
    """How text becomes a value. N0, N1, B0, B1 and so on are explained in ``mld.model.config.values``."""

    N0_INT = "number (int), 0 = unset"
    N0_LONG = "number (long), 0 = unset"
    N0_DOUBLE = "decimal, 0 = unset"
    N1_INT = "number (int), 0 counts"
    N1_LONG = "number (long), 0 counts"
    B0 = "boolean, false = unset"
    B1 = "boolean"
    TEXT = "text"
    COMMAND = "command line"
    ENUM = "one of several words"
    DURATION = "ISO-8601 duration"
    TAGS = "list of name=value"
    WORDS = "list of words"
    STRICT_INT = "number (int), nothing else"
    STRICT_LONG = "number (long), nothing else"
    GRACE = "milliseconds, 0 counts"
    CREDENTIALS = "credentials chain"
    URL = "URL"
    REGION = "region"
    REFUSED = "refused"


class Effect(StrEnum):
    """What setting a key does in kcl-mld."""

    EFFECTIVE = "effective"
    UNNEEDED = "accepted, has no counterpart here"
    NO_EFFECT = "no effect in the Java daemon either"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Key:
    """One property.

    Attributes:
        name: as written in a file, case-sensitive.
        kind: how its text is read.
        default: effective value when absent, in the unit of the name; None = nothing or derived.
        doc: one line for people.
        choices: the words of an ENUM.
        least: smallest value that works; below it the daemon refuses to start.
        below: what the Java daemon does below it.
        effect: see :class:`Effect`.
        own: True when only kcl-mld knows the key; then malformed text is an error.
    """

    name: str
    kind: Kind
    default: int | float | str | bool | None
    doc: str
    choices: tuple[str, ...] = ()
    least: int | None = None
    below: str = ""
    effect: Effect = Effect.EFFECTIVE
    own: bool = False


INT32_MAX = 2**31 - 1
DOUBLE_MAX = 1.7976931348623157e308
CREDENTIAL_KEYS = (
    "AwsCredentialsProvider",
    "AwsCredentialsProviderDynamoDB",
    "AwsCredentialsProviderCloudWatch",
    "AwsCredentialsProviderGlue",
)
#: Mean nothing unless ``glueSchemaRegistry.enabled``.
GLUE_KEYS = (
    "glueSchemaRegistry.mode",
    "glueEndpoint",
    "glueClient.region",
    "AwsCredentialsProviderGlue",
)
#: Any of these makes ``retrievalMode=DEFAULT`` poll.
POLLING_KEYS = (
    "maxRecords",
    "idleTimeBetweenReadsInMillis",
    "millisBehindLatestThresholdForReducedTps",
    "retryGetRecordsInSeconds",
    "maxGetRecordsThreadPool",
)
_NO_START = "the Java daemon fails 20 initialization attempts and exits 0"
_REFUSES = "the Java daemon refuses to start"
_PASSED_ON = "the Java daemon passes negative values on unchecked"
_BILLING = ("PROVISIONED", "PAY_PER_REQUEST")
_FORMER = (
    "NO_STREAMS_LEASES_DELETION",
    "FORMER_STREAMS_AUTO_DETECTION_DEFERRED_DELETION",
    "PROVIDED_STREAMS_DEFERRED_DELETION",
    "NO_DELETION",
    "AUTO_DETECTION",
    "PROVIDED_LIST",
)
_VERSIONS = (
    "CLIENT_VERSION_CONFIG_3X",
    "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X",
    "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1",
)


def _count(name: str, default: int, doc: str, least: int = 0, below: str = _PASSED_ON) -> Key:
    return Key(name, Kind.N0_INT, default, doc, least=least, below=below)


def _millis(name: str, default: int, doc: str, least: int = 0, below: str = _PASSED_ON) -> Key:
    return Key(name, Kind.N0_LONG, default, doc, least=least, below=below)


def _yes(name: str, kind: Kind, doc: str) -> Key:
    return Key(name, kind, default=True, doc=doc)


def _no(name: str, kind: Kind, doc: str) -> Key:
    return Key(name, kind, default=False, doc=doc)


def _own(
    name: str, kind: Kind, default: int | str | None, doc: str, choices: tuple[str, ...] = ()
) -> Key:
    return Key(name, kind, default, doc, choices, least=None if choices else 1, own=True)


# fmt: off
_EFFECTIVE = (
    # Daemon, identity, application.
    Key("executableName", Kind.COMMAND, None, "command line of the child, split on spaces; required"),
    Key("applicationName", Kind.TEXT, None, "names the lease table, the metrics namespace and the fleet; required"),
    Key("streamName", Kind.TEXT, None, "stream to read; required unless streamArn is given"),
    Key("streamArn", Kind.TEXT, None, "wins over streamName; Java takes only the stream's name from it"),
    Key("tableName", Kind.TEXT, None, "lease table; applicationName when absent"),
    Key("workerId", Kind.TEXT, None, "unique among live workers; a fresh UUID when absent"),
    Key("processingLanguage", Kind.TEXT, None, "added to the user agent"),
    Key("timeoutInSeconds", Kind.N1_INT, None, "longest wait for one message of a child; absent = for ever", least=1,
        below="the Java daemon halts at the first message to a child"),
    Key("shutdownGraceMillis", Kind.GRACE, 20_000, "time for a graceful stop; 0 = stop at once (in Java also when absent)"),
    # Credentials, region, endpoints.
    Key("AwsCredentialsProvider", Kind.CREDENTIALS, None, "credentials for Kinesis, and for the others without their own; required"),
    Key("AwsCredentialsProviderDynamoDB", Kind.CREDENTIALS, None, "credentials for DynamoDB"),
    Key("AwsCredentialsProviderCloudWatch", Kind.CREDENTIALS, None, "credentials for CloudWatch"),
    Key("regionName", Kind.REGION, None, "region of all clients; AWS_REGION, the profile or the instance's when absent"),
    Key("kinesisEndpoint", Kind.URL, None, "URL to use for Kinesis"),
    Key("dynamoDBEndpoint", Kind.URL, None, "URL to use for DynamoDB"),
    Key("kinesisClient.region", Kind.REGION, None, "region of Kinesis alone"),
    Key("dynamoDbClient.region", Kind.REGION, None, "region of DynamoDB alone"),
    Key("cloudWatchClient.region", Kind.REGION, None, "region of CloudWatch alone"),
    # Start position, retrieval.
    Key("initialPositionInStream", Kind.ENUM, "LATEST", "where shards without a checkpoint start",
        ("LATEST", "TRIM_HORIZON", "AT_TIMESTAMP")),
    Key("initialPositionInStreamExtended", Kind.STRICT_LONG, None, "start at this time, in seconds since 1970", least=0,
        below=_PASSED_ON),
    Key("retrievalMode", Kind.ENUM, "DEFAULT", "DEFAULT polls if any polling property is set, else fan-out",
        ("FANOUT", "POLLING", "DEFAULT")),
    Key("fanoutConfig.consumerArn", Kind.TEXT, None, "registered consumer to use as it is"),
    Key("fanoutConfig.consumerName", Kind.TEXT, None, "consumer to find or register; applicationName when absent"),
    _count("fanoutConfig.maxDescribeStreamSummaryRetries", 10, "throttled calls in a row that are no failure yet"),
    _count("fanoutConfig.maxDescribeStreamConsumerRetries", 10, "throttled calls in a row that are no failure yet"),
    _count("fanoutConfig.registerStreamConsumerRetries", 10, "throttled calls in a row that are no failure yet"),
    _millis("fanoutConfig.retryBackoffMillis", 1_000, "first pause after a throttled call of the registration"),
    _count("maxRecords", 10_000, "limit of one GetRecords, at most 10000", 1, "GetRecords fails for ever in the Java daemon"),
    Key("idleTimeBetweenReadsInMillis", Kind.N0_LONG, 1_500, "least time between two reads of a shard; raised to 200"),
    Key("millisBehindLatestThresholdForReducedTps", Kind.N0_LONG, 0, "read less often when less than this behind; 0 = off"),
    _no("callProcessRecordsEvenForEmptyRecordList", Kind.B0, "deliver empty batches too"),
    # Leases and shards.
    _millis("failoverTimeMillis", 10_000, "a lease not renewed for this long may be taken", 78, _NO_START),
    _yes("enablePriorityLeaseAssignment", Kind.B1, "take very old leases first, beyond the fair share"),
    _no("leaseTableDeletionProtectionEnabled", Kind.B1, "of a lease table created by the daemon"),
    _no("leaseTablePitrEnabled", Kind.B1, "point-in-time recovery of the lease table"),
    _millis("shardSyncIntervalMillis", 60_000, "period of the shard sync", 1),
    _yes("cleanupLeasesUponShardCompletion", Kind.B0, "delete leases of finished shards; false has no effect, as in Java"),
    _no("ignoreUnexpectedChildShards", Kind.B0, "go on when an open shard has children"),
    _count("maxLeasesForWorker", INT32_MAX, "upper bound of leases held by this worker", 1, _REFUSES),
    _count("maxLeasesToStealAtOneTime", 1, "leases taken from a live worker in one cycle", 1, _REFUSES),
    _count("leaseTableScanTotalSegments", 0, "parallel scan segments of the lease table; 0 = automatic", 0, _REFUSES),
    _count("maxLeaseRenewalThreads", 20, "upper bound of renewals in flight", 2, _REFUSES + " without a message"),
    _millis("listShardsBackoffTimeInMillis", 1_500, "pause after ListShards was throttled"),
    _count("maxListShardsRetryAttempts", 50, "attempts of ListShards for one page"),
    # Coordinator, lifecycle, metrics.
    _millis("parentShardPollIntervalMillis", 10_000, "how often a shard looks whether its parents are finished", 1),
    _no("skipShardSyncAtWorkerInitializationIfLeasesExist", Kind.B0, "no shard sync at start when there are leases"),
    _millis("schedulerInitializationBackoffTimeMillis", 1_000, "pause between the 20 attempts to start"),
    _millis("taskBackoffTimeMillis", 500, "pause after a failed step of a shard"),
    Key("logWarningForTaskAfterMillis", Kind.N1_LONG, None, "warn when a call of the child takes longer", least=0, below=_PASSED_ON),
    _millis("metricsBufferTimeMillis", 10_000, "longest time between two publications of metrics", 1),
    _count("metricsMaxQueueSize", 10_000, "distinct metrics waiting", 1, _REFUSES + " without a message"),
    Key("metricsLevel", Kind.ENUM, "DETAILED", "which CloudWatch metrics are sent", ("NONE", "SUMMARY", "DETAILED")),
    Key("metricsEnabledDimensions", Kind.WORDS, None, "dimensions kept, or ALL"),
    # Known to kcl-mld only.
    Key("cloudWatchEndpoint", Kind.URL, None, "URL to use for CloudWatch", own=True),
    Key("multiStream", Kind.B1, default=False, doc="read the streams of `streams` with multi-stream lease keys, even if it is one", own=True),
    Key("streams", Kind.TEXT, None, "streams to read, separated by commas: ARN, account:name:epoch or name; needs multiStream = true", own=True),
    Key("streamNamePattern", Kind.TEXT, None, "read the streams of the account with such names, too: globs separated by commas, or /regular expression/", own=True),
    Key("streamNameExcludePattern", Kind.TEXT, None, "but not those with such names", own=True),
    Key("streamTags", Kind.TEXT, None, "read the streams with all of these tags, too: key=value, separated by commas", own=True),
    _own("streamDiscoveryIntervalMillis", Kind.STRICT_LONG, 60_000, "mean time between two looks at which streams there are"),
    Key("streamDiscoveryGraceMillis", Kind.STRICT_LONG, 0, "a stream that pattern and tags find no more leaves the list only after this", least=0, own=True),
    Key("maxStreams", Kind.STRICT_INT, 0, "upper bound of streams read because of pattern and tags; 0 = none", least=0, own=True),
    _own("streamCreationEpochUnit", Kind.ENUM, "auto", "creation time in new lease keys; auto = as the table has it, else seconds", ("auto", "seconds", "millis")),
    _own("orphanedStreamInitialPositionInStream", Kind.ENUM, "LATEST", "where new shards start whose stream has leases but is not in `streams`", ("LATEST", "TRIM_HORIZON")),
    _own("formerStreamsLeasesDeletionStrategy", Kind.ENUM, "NO_STREAMS_LEASES_DELETION", "what becomes of leases whose stream left the list; short names mean the same", _FORMER),
    Key("formerStreamsLeasesDeletionWaitMillis", Kind.STRICT_LONG, 3_600_000, "how long a stream has to be gone from the list until its leases are deleted", least=0, own=True),
    Key("formerStreamsForLeaseCleanup", Kind.TEXT, None, "streams whose leases are deleted, as in `streams`; read anew from the file each minute", own=True),
    Key("initializeMessageExtras", Kind.B1, default=True, doc="name the stream in the child's `initialize` message; multi-stream only", own=True),
    _own("streamArnAddressing", Kind.ENUM, "name", "arn = read the stream of streamArn even where Java would read another", ("name", "arn")),
    _own("aggregatedRecordsOutsideShard", Kind.ENUM, "drop", "aggregated records that hold user records of other shards: drop, as in Java, or deliver them, for producers other than the KPL", ("drop", "deliver")),
    _own("glueSchemaRegistry.enabled", Kind.ENUM, "false", "take off the frames of the Glue Schema Registry", ("true", "false")),
    _own("glueSchemaRegistry.mode", Kind.ENUM, "pass", "pass = payloads as they were written, decode = Avro and JSON as JSON text",
         ("pass", "decode")),
    Key("AwsCredentialsProviderGlue", Kind.CREDENTIALS, None, "credentials for Glue", own=True),
    Key("glueEndpoint", Kind.URL, None, "URL to use for Glue", own=True),
    Key("glueClient.region", Kind.REGION, None, "region of Glue alone", own=True),
    _own("childFailurePolicy", Kind.ENUM, "exit", "what a failed child does: end the daemon, or restart for its shard", ("exit", "restart")),
    _own("childExceptionPolicy", Kind.ENUM, "ignore",
         "what an exception that amazon_kclpy caught in a processor does: an ERROR alone, or the child has failed", ("ignore", "fail")),
    Key("recoverGluedMessages", Kind.B1, default=False, own=True,
        doc="take a status that stands behind other output on its line, after 5 s without another message; never a checkpoint"),
    _own("childRestartBackoffMillis", Kind.STRICT_LONG, 1_000, "pause before the first restart of a child; doubles up to a minute"),
    _own("childRestartMaxAttempts", Kind.STRICT_INT, 10, "restarts of one shard without progress before the daemon gives up"),
    _own("dynamoDbLockBasedLeaderLeaseDurationInMillis", Kind.STRICT_LONG, None,
         "in a 3.x fleet, time without a heartbeat after which another worker leads; 0.8 x failoverTimeMillis when absent"),
    _own("dynamoDbLockBasedLeaderHeartbeatPeriodInMillis", Kind.STRICT_LONG, None,
         "in a 3.x fleet, distance of the leader's heartbeats; half of that time when absent"),
    _own("leaseCleanupIntervalMillis", Kind.STRICT_LONG, 60_000, "period of the lease cleanup"),
    _own("completedLeaseCleanupIntervalMillis", Kind.STRICT_LONG, 300_000, "period of looking for leases of finished shards"),
    _own("garbageLeaseCleanupIntervalMillis", Kind.STRICT_LONG, 1_800_000, "period of looking for leases of shards that are gone"),
)

#: Of 3.x fleets.
_FLEET = (
    _no("migrateAllEntitiesToLeaseTable", Kind.B0, "second phase of the single-table migration"),
    _millis("tableMigrationCompleteBakeTimeSeconds", 86_400, "clamped to 3600..604800"),
    Key("clientVersionConfig", Kind.ENUM, "CLIENT_VERSION_CONFIG_3X", "which generation of the lease table to use", _VERSIONS),
    Key("gracefulLeaseHandoffTimeoutMillis", Kind.N1_LONG, 30_000, "longest wait for the old owner of a lease", least=0, below=_PASSED_ON),
    _yes("isGracefulLeaseHandoffEnabled", Kind.B1, "the old owner is asked to finish first"),
    _millis("inMemoryWorkerMetricsCaptureFrequencyMillis", 1_000, "how often worker metrics are taken", 0, _NO_START),
    _millis("workerMetricsReporterFreqInMillis", 30_000, "how often worker metrics are written", 0,
            "the Java daemon runs and assigns itself nothing"),
    _count("noOfPersistedMetricsPerWorkerMetrics", 10, "samples kept a worker"),
    _no("disableWorkerMetrics", Kind.B1, "no worker metrics at all"),
    Key("maxThroughputPerHostKBps", Kind.N0_DOUBLE, DOUBLE_MAX, "throughput of one host", least=0, below=_PASSED_ON),
    _count("dampeningPercentage", 60, "share of an imbalance moved at once"),
    _count("reBalanceThresholdPercentage", 10, "imbalance that starts a rebalance"),
    _yes("allowThroughputOvershoot", Kind.B1, "move a lease even if its new owner ends above the mean"),
    _count("varianceBalancingFrequency", 3, "assignment cycles for one rebalance"),
    Key("workerMetricsEMAAlpha", Kind.N0_DOUBLE, 0.5, "weight of the newest sample", least=0, below=_PASSED_ON),
    _own("leaseAssignmentStrategy", Kind.ENUM, "WORKER_UTILIZATION_AWARE", "what is shared out evenly: utilization and throughput, or the number of leases alone",
         ("WORKER_UTILIZATION_AWARE", "LEASE_COUNT_BASED")),
    Key("workerGroup", Kind.TEXT, None, "which workers this one belongs to: leases are spread over groups, too; the part of workerId before the first - when absent", own=True),
    Key("staleWorkerMetricsEntryCleanupDuration", Kind.DURATION, "PT24H", "age at which a worker's entry is deleted"),
    *(
        Key(f"{prefix}TableName", Kind.TEXT, None, f"of a fleet of KCL 3.0 to 3.4; <applicationName>-{table} when absent")
        for prefix, table in (("workerMetrics", "WorkerMetricStats"), ("coordinatorState", "CoordinatorState"))
    ),
)

_UNNEEDED = (
    Key("leaseAssignmentIntervalMillis", Kind.N0_LONG, None, "period of Java's lease assignment; here a leader looks when something is due",
        least=52, below=_NO_START),
    # The two tables of KCL 3.0 to 3.4 are used where they are, and never created.
    *(
        key
        for prefix in ("workerMetrics", "coordinatorState")
        for key in (
            Key(f"{prefix}BillingMode", Kind.ENUM, "PAY_PER_REQUEST", "of that table", _BILLING),
            _millis(f"{prefix}ReadCapacity", 0, "of that table"),
            _millis(f"{prefix}WriteCapacity", 0, "of that table"),
            _no(f"{prefix}PointInTimeRecoveryEnabled", Kind.B1, "of that table"),
            _no(f"{prefix}DeletionProtectionEnabled", Kind.B1, "of that table"),
            Key(f"{prefix}Tags", Kind.TAGS, None, "of that table"),
        )
    ),
    Key("maxActiveThreads", Kind.STRICT_INT, 0, "size of Java's thread pool; there is no such pool here"),
)

_NO_EFFECT = (
    _no("validateSequenceNumberBeforeCheckpointing", Kind.B0, "ignored since KCL 2"),
    Key("retryGetRecordsInSeconds", Kind.N1_INT, None, "only makes retrievalMode=DEFAULT poll"),
    Key("maxGetRecordsThreadPool", Kind.N1_INT, None, "only makes retrievalMode=DEFAULT poll"),
    _count("initialLeaseTableReadCapacity", 10, "only for provisioned billing, which no property selects", 1, _REFUSES),
    _count("initialLeaseTableWriteCapacity", 10, "only for provisioned billing, which no property selects", 1, _REFUSES),
)

_REFUSED = (
    Key("shardPrioritization", Kind.REFUSED, None, "any value stops the Java daemon: remove the line"),
)
# fmt: on

#: Builder properties of the three SDK clients that have a meaning here, beside those above.
_CLIENT_FLAGS = tuple(
    Key(f"{client}.{flag}", Kind.B1, None, f"{what} endpoints of this client")
    for client in ("kinesisClient", "dynamoDbClient", "cloudWatchClient")
    for flag, what in (("fipsEnabled", "FIPS"), ("dualstackEnabled", "dual-stack"))
)

#: Every key, by name, in the order of the documentation.
KEYS: dict[str, Key] = {
    key.name: replace(key, effect=effect)
    for keys, effect in (
        (_EFFECTIVE, Effect.EFFECTIVE),
        (_CLIENT_FLAGS, Effect.EFFECTIVE),
        (_FLEET, Effect.EFFECTIVE),
        (_UNNEEDED, Effect.UNNEEDED),
        (_NO_EFFECT, Effect.NO_EFFECT),
        (_REFUSED, Effect.REFUSED),
    )
    for key in keys
}
