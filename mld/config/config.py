"""The effective configuration: one frozen tree, seconds and bytes inside, a section per concern.

Each property is declared by a field: see ``kcl_mld.config.keys``. The fields without a key have
the values of the Java daemon 3.5.1, unless noted otherwise. Built from a ``.properties`` file
by ``kcl_mld.config.build``; milliseconds exist only in the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from kcl_mld.config.contain_config import ContainConfig
from kcl_mld.config.fleet import AssignmentConfig, FleetConfig
from kcl_mld.config.keys import (
    INT32_MAX,
    NO_START,
    PASSED_ON,
    REFUSES,
    Effect,
    Key,
    Kind,
    advanced,
    by_rule,
    count,
    flag,
    from_millis,
    keys_of,
    millis,
    named,
    own_count,
    own_member,
    own_millis,
    own_switch,
    read_as,
    text,
    word,
)
from kcl_mld.config.stream import traits_of
from kcl_mld.config.stream_list import FormerPolicy, StreamList
from kcl_mld.config.stream_options import CHILDREN_KEY, MOST_CHILDREN
from kcl_mld.config.stream_selection import StreamSelection
from kcl_mld.kernel.model.sequence import InitialPosition, Sentinel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.config.credentials import CredentialChain
    from kcl_mld.config.stream import SourceTraits

_LATEST_POSITION = InitialPosition(Sentinel.LATEST)
_THROTTLED = "throttled calls in a row that are no failure yet"


def _credentials(client: str, doc: str, *, own: bool = False) -> Key:
    return Key(f"AwsCredentialsProvider{client}", Kind.CREDENTIALS, None, doc, own=own)


def _client_flags(name: str, what: str) -> tuple[Key, ...]:
    doc = f"{what} endpoints of this client"
    return tuple(
        Key(f"{client}.{name}", Kind.B1, None, doc)
        for client in ("kinesisClient", "dynamoDbClient", "cloudWatchClient")
    )


class RetrievalMode(StrEnum):
    """How records are fetched; DEFAULT is resolved when the file is read."""

    POLLING = "POLLING"
    FANOUT = "FANOUT"


class ChildFailurePolicy(StrEnum):
    """What a failed child does to the daemon (``childFailurePolicy``)."""

    EXIT = "exit"
    RESTART = "restart"
    DEADLETTER = "deadletter"


class ChildExceptionPolicy(StrEnum):
    """What an exception that amazon_kclpy caught in a processor does (``childExceptionPolicy``)."""

    IGNORE = "ignore"
    FAIL = "fail"


class Kclpy(StrEnum):
    """Which ``amazon_kclpy`` Python children import (``kclpy``)."""

    AUTO = "auto"
    INSTALLED = "installed"
    BUNDLED = "bundled"


class ChildConfirms(StrEnum):
    """What confirms records of one of several children of a shard (``childConfirms``)."""

    CHECKPOINT = "checkpoint"
    STATUS = "status"


class ChildLogFormat(StrEnum):
    """Which lines of a child are records of its own logger (``childLogFormat``)."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """Which stream, in whose account, where; region and position are those of several streams, too.

    Attributes:
        name: ``streamName``, or the name inside ``streamArn``; empty for several streams.
        arn: ``streamArn`` without what follows the name, or None.
        arn_addressing: the ARN is used even where Java would read another stream of that name.
        region: None = botocore's chain.
        initial_position: start of shards without a checkpoint.
    """

    name: str = field(
        metadata=named("streamName", "stream to read; required unless streamArn is given"))
    arn: str | None = by_rule(None, Key("streamArn", Kind.TEXT, None,
        "wins over streamName; Java takes only the stream's name from it; or the ARN of a DynamoDB"
        " stream"))
    arn_addressing: bool = own_switch("streamArnAddressing",
        "arn = read the stream of streamArn even where Java would read another", ("name", "arn"),
        on="arn")
    region: str | None = text("regionName",
        "region of all clients; AWS_REGION, the profile or the instance's when absent",
        kind=Kind.REGION)
    initial_position: InitialPosition = by_rule(_LATEST_POSITION,
        Key("initialPositionInStream", Kind.ENUM, "LATEST",
            "where shards without a checkpoint start", ("LATEST", "TRIM_HORIZON", "AT_TIMESTAMP")),
        Key("initialPositionInStreamExtended", Kind.STRICT_LONG, None,
            "start at this time, in seconds since 1970", least=0, below=PASSED_ON))

    @property
    def traits(self) -> SourceTraits:
        """What distinguishes streams of its service."""
        return traits_of(self.arn)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsConfig:
    """Clients: credentials, endpoints and further settings of botocore.

    Attributes:
        kinesis_credentials: for the others, too, where they have none of their own.
        kinesis_region: of one client where it differs; likewise the next ones.
        use_fips: None = botocore's own setting; likewise the next one.
    """

    kinesis_credentials: CredentialChain = field(metadata=named("AwsCredentialsProvider",
        "credentials for Kinesis, and for the others without their own; required",
        Kind.CREDENTIALS))
    dynamodb_credentials: CredentialChain | None = by_rule(None,
        _credentials("DynamoDB", "credentials for DynamoDB"))
    cloudwatch_credentials: CredentialChain | None = by_rule(None,
        _credentials("CloudWatch", "credentials for CloudWatch"))
    kinesis_endpoint: str | None = text("kinesisEndpoint", "URL to use for Kinesis", kind=Kind.URL)
    dynamodb_endpoint: str | None = text("dynamoDBEndpoint", "URL to use for DynamoDB",
        kind=Kind.URL)
    cloudwatch_endpoint: str | None = text("cloudWatchEndpoint", "URL to use for CloudWatch",
        kind=Kind.URL, own=True)
    kinesis_region: str | None = text("kinesisClient.region", "region of Kinesis alone",
        kind=Kind.REGION)
    dynamodb_region: str | None = text("dynamoDbClient.region", "region of DynamoDB alone",
        kind=Kind.REGION)
    cloudwatch_region: str | None = text("cloudWatchClient.region", "region of CloudWatch alone",
        kind=Kind.REGION)
    glue_credentials: CredentialChain | None = by_rule(None,
        _credentials("Glue", "credentials for Glue", own=True))
    glue_endpoint: str | None = text("glueEndpoint", "URL to use for Glue", kind=Kind.URL, own=True)
    glue_region: str | None = text("glueClient.region", "region of Glue alone", kind=Kind.REGION,
        own=True)
    use_fips: bool | None = by_rule(None, *_client_flags("fipsEnabled", "FIPS"))
    use_dualstack: bool | None = by_rule(None, *_client_flags("dualstackEnabled", "dual-stack"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseConfig:
    """The lease table and its timing.

    Attributes:
        failover_s: a counter that did not move for longer than this is expired.
        epsilon_s: subtracted from or added to periods, as in Java.
        point_in_time_recovery: switched on at every start.
        hand_off_timeout_s: seconds that the child of a lease that a 3.x leader gives to another worker
            may finish; then the lease is passed on regardless.
        request_timeout_s: of one call on the table; below a third of ``failover_s``.
        connect_timeout_s: the part of it that a new connection may take.
        read_timeout_s: seconds that an open connection may be silent.
        is_1x_stopped: no worker of KCL 1.x runs on the table, and none will.
    """

    table_name: str = field(metadata=named("tableName", "lease table; applicationName when absent"))
    failover_s: float = millis("failoverTimeMillis", 10_000,
        "a lease not renewed for this long may be taken", least=78, below=NO_START)
    epsilon_s: float = 0.025
    max_leases_for_worker: int = count("maxLeasesForWorker", INT32_MAX,
        "upper bound of leases held by this worker", least=1, below=REFUSES)
    max_leases_to_steal: int = advanced(count("maxLeasesToStealAtOneTime", 1,
        "leases taken from a live worker in one cycle", least=1, below=REFUSES))
    enable_priority: bool = advanced(flag("enablePriorityLeaseAssignment",
        "take very old leases first, beyond the fair share", default=True))
    renewal_threads: int = count("maxLeaseRenewalThreads", 20, "upper bound of renewals in flight",
        least=2, below=f"{REFUSES} without a message")
    scan_segments: int = advanced(count("leaseTableScanTotalSegments", 0,
        "parallel scan segments of the lease table; 0 = automatic", below=REFUSES))
    deletion_protection: bool = flag("leaseTableDeletionProtectionEnabled",
        "of a lease table created by the daemon")
    point_in_time_recovery: bool = flag("leaseTablePitrEnabled",
        "point-in-time recovery of the lease table")
    hand_off_timeout_s: float = millis("gracefulLeaseHandoffTimeoutMillis", 30_000,
        "longest wait for the old owner of a lease", kind=Kind.N1_LONG)
    is_1x_stopped: bool = flag("kcl1xWorkersStopped",
        "no worker of KCL 1.x runs any more on the lease table, so kcl-mld-java may run in place"
        " of one", own=True)

    @property
    def renewal_interval_s(self) -> float:
        """Period of Java's renewals: ``floor(F/3) - epsilon`` in milliseconds.

        Ours are rarer while the table answers quickly, see ``kcl_mld.leases.rules.renewal``.
        """
        return (int(self.failover_s * 1000) // 3) / 1000 - self.epsilon_s

    @property
    def taker_interval_s(self) -> float:
        """Pause of the taker between cycles: ``2 (F + epsilon)``."""
        return 2 * (self.failover_s + self.epsilon_s)

    @property
    def request_timeout_s(self) -> float:
        """Connect plus read time of one lease call: safely below a third of the failover time."""
        # What a far table takes to answer does not shrink with the failover time: short ones leave
        # a call a quarter.
        share_s = max(self.failover_s * 0.21, min(self.failover_s * 0.25, 0.75))
        return max(0.2, min(5.0, share_s))

    @property
    def connect_timeout_s(self) -> float:
        """Time to connect; the rest of the call's time is for the answer."""
        return self.request_timeout_s * 0.4

    @property
    def read_timeout_s(self) -> float:
        """How long an open connection may be silent."""
        return self.request_timeout_s * 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardConfig:
    """Shard sync, audit and cleanup.

    Attributes:
        skip_sync_if_leases_exist: also switches off the hash-range filter of de-aggregation.
        cleanup_interval_s: the next two are ages within it.
        audit_interval_s: period of the hash-range audit by the leader.
        audit_confidence: equal holes in a row before a sync.
        initialization_attempts: tries to start before giving up.
        missing_stream_attempts: tries while the stream does not exist. Java looks for it as often
            as for anything else, 20 s; a new stream is seen at once, so here it is 5 s, unless the
            file sets the pause.
    """

    sync_interval_s: float = millis("shardSyncIntervalMillis", 60_000, "period of the shard sync",
        least=1)
    ignore_unexpected_children: bool = advanced(flag("ignoreUnexpectedChildShards",
        "go on when an open shard has children", kind=Kind.B0))
    cleanup_completed: bool = advanced(flag("cleanupLeasesUponShardCompletion",
        "delete leases of finished shards; false has no effect, as in Java", default=True,
        kind=Kind.B0))
    skip_sync_if_leases_exist: bool = advanced(
        flag("skipShardSyncAtWorkerInitializationIfLeasesExist",
        "no shard sync at start when there are leases", kind=Kind.B0))
    list_backoff_s: float = advanced(millis("listShardsBackoffTimeInMillis", 1_500,
        "pause after ListShards was throttled"))
    list_attempts: int = advanced(count("maxListShardsRetryAttempts", 50,
        "attempts of ListShards for one page"))
    parent_poll_s: float = millis("parentShardPollIntervalMillis", 10_000,
        "how often a shard looks whether its parents are finished", least=1)
    cleanup_interval_s: float = advanced(own_millis("leaseCleanupIntervalMillis", 60_000,
        "period of the lease cleanup"))
    completed_cleanup_s: float = advanced(own_millis("completedLeaseCleanupIntervalMillis", 300_000,
        "period of looking for leases of finished shards"))
    garbage_cleanup_s: float = advanced(own_millis("garbageLeaseCleanupIntervalMillis", 1_800_000,
        "period of looking for leases of shards that are gone"))
    audit_initial_delay_s: float = 60.0
    audit_interval_s: float = 120.0
    audit_confidence: int = 3
    initialization_attempts: int = 20
    initialization_backoff_s: float = advanced(
        millis("schedulerInitializationBackoffTimeMillis", 1_000,
        "pause between the 20 attempts to start"))
    missing_stream_attempts: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutConfig:
    """The consumer of enhanced fan-out, and how patiently it is found or registered.

    Attributes:
        consumer_arn: used without a lookup; None = found by name.
        consumer_name: None = the application's name.
        backoff_s: doubles.
    """

    consumer_arn: str | None = text("fanoutConfig.consumerArn",
        "registered consumer to use as it is")
    consumer_name: str | None = text("fanoutConfig.consumerName",
        "consumer to find or register; applicationName when absent")
    summary_attempts: int = advanced(
        count("fanoutConfig.maxDescribeStreamSummaryRetries", 10, _THROTTLED))
    describe_attempts: int = advanced(
        count("fanoutConfig.maxDescribeStreamConsumerRetries", 10, _THROTTLED))
    register_attempts: int = advanced(
        count("fanoutConfig.registerStreamConsumerRetries", 10, _THROTTLED))
    backoff_s: float = advanced(millis("fanoutConfig.retryBackoffMillis", 1_000,
        "first pause after a throttled call of the registration"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalConfig:
    """Fetching records.

    Attributes:
        fan_out: of ``mode`` FANOUT.
        max_records: 1..10000.
        idle_s: >= 0.2.
        reduced_tps_threshold_s: >= 0.
        deliver_outside_shard: deliver aggregates that hold keys of other shards.
        catch_up: read a shard more often while it is far behind; False for Kinesis.
        catch_up_behind_s: > 0; far is more than this.
        catch_up_factor: >= 1; the idle time is divided by it.
        max_pending: prefetched batches a shard, 1..5.
        max_pending_bytes: prefetched bytes a shard beyond which no further call is made.
        max_pending_records: likewise in records.
        request_timeout_s: of one Kinesis call.
        memory_budget_bytes: bodies and lines of all shards of the process.
    """

    mode: RetrievalMode = by_rule(RetrievalMode.POLLING, Key("retrievalMode", Kind.ENUM, "DEFAULT",
        "DEFAULT polls if any polling property is set, else fan-out",
        ("FANOUT", "POLLING", "DEFAULT")))
    fan_out: FanOutConfig = field(default_factory=FanOutConfig)
    max_records: int = count("maxRecords", 10_000, "limit of one GetRecords, at most 10000",
        least=1, below="GetRecords fails for ever in the Java daemon")
    idle_s: float = millis("idleTimeBetweenReadsInMillis", 1_500,
        "least time between two reads of a shard; raised to 200", least=None, below="")
    idle_backoff: bool = flag("idleBackoff",
        "read a shard without records less and less often, every 5 s in the end", own=True)
    catch_up: bool = flag("catchupEnabled",
        "of a DynamoDB stream: read a shard more often while its records are old", own=True)
    catch_up_behind_s: float = own_millis("catchupMillisBehindLatestThreshold", 60_000,
        "with catchupEnabled: older than this")
    catch_up_factor: int = own_count("catchupScalingFactor", 3,
        "with catchupEnabled: idleTimeBetweenReadsInMillis is divided by it")
    reduced_tps_threshold_s: float = advanced(millis("millisBehindLatestThresholdForReducedTps", 0,
        "read less often when less than this behind; 0 = off", least=None, below=""))
    call_even_if_empty: bool = flag("callProcessRecordsEvenForEmptyRecordList",
        "deliver empty batches too", kind=Kind.B0)
    deliver_outside_shard: bool = own_switch("aggregatedRecordsOutsideShard",
        "aggregated records that hold user records of other shards: drop, as in Java, or deliver"
        " them, for producers other than the KPL", ("drop", "deliver"), on="deliver")
    max_pending: int = 4
    max_pending_bytes: int = 8 * 2**20
    max_pending_records: int = 30_000
    request_timeout_s: float = 30.0
    memory_budget_bytes: int = 48 * 2**20
    task_backoff_s: float = advanced(millis("taskBackoffTimeMillis", 500,
        "pause after a failed step of a shard"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildConfig:
    """The user's program.

    Attributes:
        shown: the command line for people: variables of the environment stay as they are written.
        answer_timeout_s: > 0; None = unlimited.
        warn_after_s: None = never.
        per_shard: of streams without a number of their own.
        eof_grace_s: after EOF until SIGTERM.
        term_grace_s: after SIGTERM until SIGKILL.
    """

    argv: tuple[str, ...] = field(metadata=named("executableName",
        "command line of the child, split on spaces; required", Kind.COMMAND))
    shown: str = ""
    answer_timeout_s: float | None = read_as(lambda value: None if value is None else float(value),
        Key("timeoutInSeconds", Kind.N1_INT, None,
        "longest wait for one message of a child; absent = for ever", least=1,
        below="the Java daemon halts at the first message to a child"))
    warn_after_s: float | None = read_as(lambda value: None if value is None else from_millis(value),
        Key("logWarningForTaskAfterMillis", Kind.N1_LONG, None,
        "warn when a call of the child takes longer", least=0, below=PASSED_ON))
    per_shard: int = own_count(CHILDREN_KEY, 1,
        "children of one shard; each has the records of some keys, in order by key",
        most=MOST_CHILDREN)
    confirms: ChildConfirms = own_member("childConfirms", ChildConfirms.CHECKPOINT,
        "what confirms records of one of several children of a shard: its checkpoint, or its"
        " answer to the batch too (status)")
    failure_policy: ChildFailurePolicy = own_member("childFailurePolicy", ChildFailurePolicy.EXIT,
        "what a failed child does: end the daemon, restart for its shard, or restart until the record"
        " is found that it fails at, which becomes a dead letter")
    exception_policy: ChildExceptionPolicy = own_member("childExceptionPolicy",
        ChildExceptionPolicy.IGNORE,
        "what an exception that amazon_kclpy caught in a processor does: an ERROR alone, or the"
        " child has failed")
    kclpy: Kclpy = own_member("kclpy", Kclpy.AUTO,
        "which amazon_kclpy Python children import: an installed one, else the one that comes with"
        " kcl-mld (auto); an installed one only; the one of kcl-mld even if another is installed")
    prefork: bool = flag("childPrefork",
        "fork children of Python scripts from one process that has their imports in memory; Linux"
        " only", own=True)
    preload: tuple[str, ...] = read_as(lambda words: tuple(words or ()), Key("childPreload",
        Kind.WORDS, None, "modules that this process imports besides those that the script names at"
        " its top", own=True))
    log_format: ChildLogFormat = own_member("childLogFormat", ChildLogFormat.AUTO,
        "lines of a child that are records in JSON: those with a message (auto), none (text), every"
        " object (json)")
    log_level: str | None = read_as(lambda value: value, Key("childLogLevel", Kind.ENUM, None,
        "least level of what children print that is logged; absent = that of the log",
        ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), own=True))
    record_to: str | None = text("recordTo",
        "folder for the conversation with each child, a file each; payloads are left out", own=True)
    record_payloads: bool = flag("recordPayloads", "recordings have the payloads of records",
        own=True)
    recovers_glued: bool = flag("recoverGluedMessages",
        "take a status that stands behind other output on its line, after 5 s without another"
        " message; never a checkpoint", own=True)
    restart_backoff_s: float = own_millis("childRestartBackoffMillis", 1_000,
        "pause before the first restart of a child; doubles up to a minute")
    restart_attempts: int = own_count("childRestartMaxAttempts", 10,
        "restarts of one shard without progress before the daemon gives up; with deadletter, before"
        " a record is given up")
    eof_grace_s: float = 10.0
    term_grace_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """CloudWatch, Prometheus, OTLP, and the probes.

    Attributes:
        enabled_dimensions: of CloudWatch; None = all; ``Operation`` is always kept.
        by_shard: of Prometheus and OTLP.
        max_age_s: None = as old as they like.
    """

    level: str = word("metricsLevel", "DETAILED", "which CloudWatch metrics are sent", ("NONE",
        "SUMMARY", "DETAILED"))
    enabled_dimensions: tuple[str, ...] | None = by_rule(None, Key("metricsEnabledDimensions",
        Kind.WORDS, None, "dimensions kept, or ALL"))
    buffer_s: float = advanced(millis("metricsBufferTimeMillis", 10_000,
        "longest time between two publications of metrics", least=1))
    max_queue: int = advanced(
        count("metricsMaxQueueSize", 10_000, "distinct metrics waiting", least=1,
        below=f"{REFUSES} without a message"))
    by_shard: bool = flag("metricsShardLabels",
        "labels stream and shard in /metrics and OTLP", own=True)
    otlp: bool = flag("otlpMetrics",
        "send metrics by OTLP to where OTEL_EXPORTER_OTLP_ENDPOINT says", own=True)
    max_age_s: float | None = read_as(lambda value: None if value is None else from_millis(value),
        Key("readyMaxAgeMillis", Kind.STRICT_LONG, None,
        "/readyz answers 503 while a shard has a greater lag, or finished no batch for so long",
        least=1, own=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConfig:
    """The Glue Schema Registry.

    Attributes:
        decode: payloads become JSON text, where their format is decoded here.
    """

    enabled: bool = own_switch("glueSchemaRegistry.enabled",
        "take off the frames of the Glue Schema Registry", ("true", "false"), on="true")
    decode: bool = own_switch("glueSchemaRegistry.mode",
        "pass = payloads as they were written, decode = Avro and JSON as JSON text", ("pass",
        "decode"), on="decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The effective configuration of the daemon.

    Attributes:
        worker_id: from the file, or a fresh UUID, after ``worker_id_prefix`` where there is one.
        contain: exactly with ``childFailurePolicy = deadletter``.
        fleet: being one of a 3.x fleet.
        streams: which streams a multi-stream worker reads; None = ``stream`` alone.
        spark: the file's ``spark.*`` keys with their texts, for children that run Spark; may hold
            secrets.
    """

    application_name: str = field(metadata=named("applicationName",
        "names the lease table, the metrics namespace and the fleet; required"))
    worker_id: str = field(
        metadata=named("workerId", "unique among live workers; a fresh UUID when absent"))
    worker_id_prefix: str | None = text("workerIdPrefix",
        "begins the worker's id, a fresh UUID follows; {hostname} is the name of this machine",
        own=True)
    stream: StreamConfig
    aws: AwsConfig
    leases: LeaseConfig
    child: ChildConfig
    contain: ContainConfig | None = None
    shards: ShardConfig = field(default_factory=ShardConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    schemas: SchemaConfig = field(default_factory=SchemaConfig)
    shutdown_grace_s: float = millis("shutdownGraceMillis", 20_000,
        "time for a graceful stop; 0 = stop at once (in Java also when absent)", least=None,
        below="", kind=Kind.GRACE)
    fleet: FleetConfig = field(default_factory=FleetConfig)
    assignment: AssignmentConfig = field(default_factory=AssignmentConfig)
    processing_language: str | None = text("processingLanguage", "added to the user agent")
    streams: StreamList | None = by_rule(None, Key("multiStream", Kind.B1, default=False,
        doc="read the streams of `streams` with multi-stream lease keys, even if it is one",
        own=True))
    spark: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    @property
    def traits(self) -> SourceTraits:
        """What distinguishes the streams of their service."""
        return self.stream.traits if self.streams is None else self.streams.traits

    def children_of(self, stream_name: str) -> int:
        """How many children a shard of one stream has."""
        own = None if self.streams is None else self.streams.options_of(stream_name).children
        return self.child.per_shard if own is None else own

    @property
    def has_several_children(self) -> bool:
        """Whether the shards of any stream have several children."""
        options = () if self.streams is None else self.streams.options
        own = (int(one.text) for one in options if one.option == CHILDREN_KEY)
        return max(self.child.per_shard, *own, 1) > 1

    def retrieval_of(self, stream_name: str) -> RetrievalConfig:
        """``retrieval`` for one stream; a consumer ARN in it is of the only stream."""
        if self.streams is None:
            return self.retrieval
        options = self.streams.options_of(stream_name)
        fan_out = replace(self.retrieval.fan_out, consumer_arn=options.consumer_arn)
        mode = self.retrieval.mode
        if options.is_pushed is not None:
            mode = RetrievalMode.FANOUT if options.is_pushed else RetrievalMode.POLLING
        return replace(self.retrieval, mode=mode, fan_out=fan_out)

    @property
    def may_fan_out(self) -> bool:
        """Whether the records of any stream may be pushed."""
        return self.retrieval.mode is RetrievalMode.FANOUT or (
            self.streams is not None
            and any(
                one.option == "retrievalMode" and one.text.upper() == RetrievalMode.FANOUT
                for one in self.streams.options
            )
        )


#: The two tables of KCL 3.0 to 3.4 are used where they are, and never created.
_OF_OTHER_TABLES = (
    Key("BillingMode", Kind.ENUM, "PAY_PER_REQUEST", "of that table",
        ("PROVISIONED", "PAY_PER_REQUEST")),
    Key("ReadCapacity", Kind.N0_LONG, 0, "of that table", least=0, below=PASSED_ON),
    Key("WriteCapacity", Kind.N0_LONG, 0, "of that table", least=0, below=PASSED_ON),
    Key("PointInTimeRecoveryEnabled", Kind.B1, default=False, doc="of that table"),
    Key("DeletionProtectionEnabled", Kind.B1, default=False, doc="of that table"),
    Key("Tags", Kind.TAGS, None, "of that table"),
)
#: Accepted, without a counterpart here.
_UNNEEDED = (
    *(replace(key, name=f"{table}{key.name}")
      for table in ("workerMetrics", "coordinatorState") for key in _OF_OTHER_TABLES),
    Key("maxActiveThreads", Kind.STRICT_INT, 0,
        "size of Java's thread pool; there is no such pool here"),
)
_PROVISIONED = "only for provisioned billing, which no property selects"
#: Without an effect in the Java daemon either.
_IDLE = (
    Key("validateSequenceNumberBeforeCheckpointing", Kind.B0, default=False,
        doc="ignored since KCL 2"),
    Key("retryGetRecordsInSeconds", Kind.N1_INT, None, "only makes retrievalMode=DEFAULT poll"),
    Key("maxGetRecordsThreadPool", Kind.N1_INT, None, "only makes retrievalMode=DEFAULT poll"),
    Key("initialLeaseTableReadCapacity", Kind.N0_INT, 10, _PROVISIONED, (), 1, REFUSES),
    Key("initialLeaseTableWriteCapacity", Kind.N0_INT, 10, _PROVISIONED, (), 1, REFUSES),
)
_REFUSED = Key("shardPrioritization", Kind.REFUSED, None,
    "any value stops the Java daemon: remove the line", effect=Effect.REFUSED)
# fmt: on

#: Any of these makes ``retrievalMode=DEFAULT`` poll.
POLLING_KEYS = (
    "maxRecords",
    "idleTimeBetweenReadsInMillis",
    "millisBehindLatestThresholdForReducedTps",
    "retryGetRecordsInSeconds",
    "maxGetRecordsThreadPool",
)
#: Whose fields are properties, in the order of the documentation.
SECTIONS = (
    Config,
    ChildConfig,
    ContainConfig,
    StreamConfig,
    StreamList,
    StreamSelection,
    FormerPolicy,
    AwsConfig,
    RetrievalConfig,
    FanOutConfig,
    LeaseConfig,
    ShardConfig,
    FleetConfig,
    AssignmentConfig,
    MetricsConfig,
    SchemaConfig,
)
#: Every property by name: those of the fields, and what only files of the Java daemon have.
KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        *(key for section in SECTIONS for key in keys_of(section)),
        *(replace(key, effect=Effect.UNNEEDED) for key in _UNNEEDED),
        *(replace(key, effect=Effect.NO_EFFECT) for key in _IDLE),
        _REFUSED,
    )
}
CREDENTIAL_KEYS = tuple(name for name, key in KEYS.items() if key.kind is Kind.CREDENTIALS)
