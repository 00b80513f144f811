"""The effective configuration: one frozen tree, seconds and bytes inside, a section per concern.

Built from a ``.properties`` file by ``mld.model.config.build``; the defaults here are those of the
Java daemon 3.5.1 unless the field says otherwise. Milliseconds exist only in the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from mld.model.config.assignment import AssignmentConfig
from mld.model.config.fleet import FleetConfig
from mld.model.sequence import InitialPosition, Sentinel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.model.credentials import CredentialChain
    from mld.model.streams.stream_list import StreamList

_LATEST_POSITION = InitialPosition(Sentinel.LATEST)


class RetrievalMode(StrEnum):
    """How records are fetched; DEFAULT is resolved when the file is read."""

    POLLING = "POLLING"
    FANOUT = "FANOUT"


class ChildFailurePolicy(StrEnum):
    """What a failed child does to the daemon (``childFailurePolicy``)."""

    EXIT = "exit"
    RESTART = "restart"


class ChildExceptionPolicy(StrEnum):
    """What an exception that amazon_kclpy caught in a processor does (``childExceptionPolicy``)."""

    IGNORE = "ignore"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """Which stream, in whose account, where.

    Attributes:
        name: ``streamName``, or the name inside ``streamArn``.
        arn: ``streamArn`` as written, or None.
        arn_addressing: ``streamArnAddressing=arn``: use the ARN even where Java would read another
            stream of that name.
        region: ``regionName``, or None = botocore's chain.
        initial_position: start of shards without a checkpoint.
    """

    name: str
    arn: str | None = None
    arn_addressing: bool = False
    region: str | None = None
    initial_position: InitialPosition = _LATEST_POSITION


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsConfig:
    """Clients: credentials, endpoints and what botocore is told beside them.

    Attributes:
        kinesis_credentials: chain for Kinesis, and for the others where they have none.
        dynamodb_credentials: chain for DynamoDB, or None.
        cloudwatch_credentials: chain for CloudWatch, or None.
        kinesis_endpoint: URL or None; likewise the next two.
        dynamodb_region: region of one client where it differs; likewise the next.
        glue_credentials: chain for Glue, or None; likewise its endpoint and region.
        use_fips: None = botocore's own setting.
    """

    kinesis_credentials: CredentialChain
    dynamodb_credentials: CredentialChain | None = None
    cloudwatch_credentials: CredentialChain | None = None
    kinesis_endpoint: str | None = None
    dynamodb_endpoint: str | None = None
    cloudwatch_endpoint: str | None = None
    kinesis_region: str | None = None
    dynamodb_region: str | None = None
    cloudwatch_region: str | None = None
    glue_credentials: CredentialChain | None = None
    glue_endpoint: str | None = None
    glue_region: str | None = None
    use_fips: bool | None = None
    use_dualstack: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseConfig:
    """The lease table and its timing.

    Attributes:
        table_name: defaults to the application name.
        failover_s: a counter that did not move for longer than this is expired.
        epsilon_s: subtracted from or added to periods, as in Java.
        max_leases_for_worker: upper bound of leases held.
        max_leases_to_steal: leases taken from one live worker in one cycle.
        enable_priority: very old leases first, beyond the target.
        renewal_threads: upper bound of renewals in flight.
        scan_segments: parallel scan segments; 0 = automatic.
        deletion_protection: of a table that we create.
        point_in_time_recovery: switched on at every start.
        hand_off_timeout_s: so long the child of a lease that a 3.x leader gives to another worker
            may finish; then the lease is passed on regardless.
        request_timeout_s: of one call on the table; below a third of ``failover_s``.
        connect_timeout_s: the part of it that a new connection may take.
        read_timeout_s: the rest: so long an open connection may be silent.
    """

    table_name: str
    failover_s: float = 10.0
    epsilon_s: float = 0.025
    max_leases_for_worker: int = 2**31 - 1
    max_leases_to_steal: int = 1
    enable_priority: bool = True
    renewal_threads: int = 20
    scan_segments: int = 0
    deletion_protection: bool = False
    point_in_time_recovery: bool = False
    hand_off_timeout_s: float = 30.0

    @property
    def renewal_interval_s(self) -> float:
        """Period of Java's renewals: ``floor(F/3) - epsilon`` in milliseconds.

        Ours are rarer while the table is well, see ``decide.renewal``.
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
        sync_interval_s: least distance of two background syncs.
        ignore_unexpected_children: go on when an open shard has children.
        cleanup_completed: delete leases of finished shards.
        skip_sync_if_leases_exist: also switches off the hash-range filter of de-aggregation.
        list_backoff_s: pause after LimitExceeded of ListShards.
        list_attempts: attempts per page.
        parent_poll_s: how often a blocked shard looks at its parents.
        cleanup_interval_s: period of the cleanup; the next two are ages within it.
        audit_interval_s: period of the hash-range audit by the leader.
        audit_confidence: equal holes in a row before a sync.
        initialization_attempts: tries to start before giving up.
        initialization_backoff_s: between them.
        missing_stream_attempts: tries while the stream does not exist. Java looks for it as often
            as for anything else, 20 s; a new stream is seen at once, so here it is 5 s, unless the
            file sets the pause.
    """

    sync_interval_s: float = 60.0
    ignore_unexpected_children: bool = False
    cleanup_completed: bool = True
    skip_sync_if_leases_exist: bool = False
    list_backoff_s: float = 1.5
    list_attempts: int = 50
    parent_poll_s: float = 10.0
    cleanup_interval_s: float = 60.0
    completed_cleanup_s: float = 300.0
    garbage_cleanup_s: float = 1800.0
    audit_initial_delay_s: float = 60.0
    audit_interval_s: float = 120.0
    audit_confidence: int = 3
    initialization_attempts: int = 20
    initialization_backoff_s: float = 1.0
    missing_stream_attempts: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutConfig:
    """The consumer of enhanced fan-out, and how patiently it is found or registered.

    Attributes:
        consumer_arn: used as it is, nothing is asked; None = found by name.
        consumer_name: None = the application's name.
        summary_attempts: throttled DescribeStreamSummary calls in a row that are no failure yet.
        describe_attempts: likewise of DescribeStreamConsumer.
        register_attempts: likewise of RegisterStreamConsumer.
        backoff_s: first pause between them.
    """

    consumer_arn: str | None = None
    consumer_name: str | None = None
    summary_attempts: int = 10
    describe_attempts: int = 10
    register_attempts: int = 10
    backoff_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalConfig:
    """Fetching records.

    Attributes:
        mode: how records are got.
        fan_out: of ``mode`` FANOUT.
        max_records: limit of one GetRecords, 1..10000.
        idle_s: least distance of two calls on a shard, >= 0.2.
        reduced_tps_threshold_s: poll at most this often when less than this behind; 0 = off.
        call_even_if_empty: deliver empty batches.
        deliver_outside_shard: deliver aggregates that hold keys of other shards.
        max_pending: prefetched batches a shard, 1..5.
        max_pending_bytes: prefetched bytes a shard beyond which no further call is made.
        max_pending_records: likewise in records.
        request_timeout_s: of one Kinesis call.
        memory_budget_bytes: bodies and lines of all shards of the process.
        task_backoff_s: pause after a failed step of a shard.
    """

    mode: RetrievalMode = RetrievalMode.POLLING
    fan_out: FanOutConfig = field(default_factory=FanOutConfig)
    max_records: int = 10_000
    idle_s: float = 1.5
    reduced_tps_threshold_s: float = 0.0
    call_even_if_empty: bool = False
    deliver_outside_shard: bool = False
    max_pending: int = 4
    max_pending_bytes: int = 8 * 2**20
    max_pending_records: int = 30_000
    request_timeout_s: float = 30.0
    memory_budget_bytes: int = 48 * 2**20
    task_backoff_s: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildConfig:
    """The user's program.

    Attributes:
        argv: ``executableName`` split on spaces.
        answer_timeout_s: longest wait for one message, > 0; None = for ever.
        warn_after_s: warn about a call that takes longer; None = never.
        failure_policy: see :class:`ChildFailurePolicy`.
        exception_policy: see :class:`ChildExceptionPolicy`.
        recovers_glued: a status behind other output on its line is taken after a while.
        restart_backoff_s: first pause before a restart; doubles up to 60 s.
        restart_attempts: restarts of one shard without progress before the daemon gives up.
        eof_grace_s: after EOF until SIGTERM.
        term_grace_s: after SIGTERM until SIGKILL.
    """

    argv: tuple[str, ...]
    answer_timeout_s: float | None = None
    warn_after_s: float | None = None
    failure_policy: ChildFailurePolicy = ChildFailurePolicy.EXIT
    exception_policy: ChildExceptionPolicy = ChildExceptionPolicy.IGNORE
    recovers_glued: bool = False
    restart_backoff_s: float = 1.0
    restart_attempts: int = 10
    eof_grace_s: float = 10.0
    term_grace_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """CloudWatch.

    Attributes:
        level: NONE, SUMMARY or DETAILED.
        enabled_dimensions: names kept, or None = all; ``Operation`` is always kept.
        buffer_s: longest time between two flushes.
        max_queue: distinct data waiting.
    """

    level: str = "DETAILED"
    enabled_dimensions: tuple[str, ...] | None = None
    buffer_s: float = 10.0
    max_queue: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConfig:
    """The Glue Schema Registry.

    Attributes:
        enabled: frames are taken off and schemas looked up.
        decode: payloads become JSON text, where their format is decoded here.
    """

    enabled: bool = False
    decode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that the daemon was told.

    Attributes:
        application_name: names the table, the metrics namespace and the fleet.
        worker_id: unique among live processes; from the file or a fresh UUID.
        shutdown_grace_s: time for a graceful stop; 0 = none.
        fleet: being one of a 3.x fleet.
        assignment: sharing out its leases, when this worker leads.
        processing_language: goes into the user agent.
        streams: which streams a multi-stream worker reads; None = ``stream`` alone.
        spark: the file's ``spark.*`` keys with their texts, for children that run Spark; may hold
            secrets.
    """

    application_name: str
    worker_id: str
    stream: StreamConfig
    aws: AwsConfig
    leases: LeaseConfig
    child: ChildConfig
    shards: ShardConfig = field(default_factory=ShardConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    schemas: SchemaConfig = field(default_factory=SchemaConfig)
    shutdown_grace_s: float = 20.0
    fleet: FleetConfig = field(default_factory=FleetConfig)
    assignment: AssignmentConfig = field(default_factory=AssignmentConfig)
    processing_language: str | None = None
    streams: StreamList | None = None
    spark: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

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
