"""Leases, shards, retrieval, metrics and schemas: sections of the configuration that share no property."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.model.config.checks import check_table_name, check_words
from mld.model.config.config import (
    FanOutConfig,
    LeaseConfig,
    MetricsConfig,
    RetrievalConfig,
    RetrievalMode,
    SchemaConfig,
    ShardConfig,
)
from mld.model.config.keys import GLUE_KEYS, POLLING_KEYS
from mld.model.findings import Problem, Severity

if TYPE_CHECKING:
    from mld.model.config.settings import Settings

#: The smallest pause between two reads of a shard. Source: PollingConfig.java:127.
_LEAST_IDLE_MS = 200
_MOST_RECORDS = 10_000


def leases_of(settings: Settings, application: str) -> LeaseConfig:
    """The lease table and its timing; reports a name that no table can have."""
    table = settings.text("tableName")
    if not table:
        table = application
        settings.derive("tableName", table, "derived from applicationName")
    check_table_name(settings, table, application)
    return LeaseConfig(
        table_name=table,
        failover_s=settings.seconds("failoverTimeMillis"),
        max_leases_for_worker=settings.number("maxLeasesForWorker"),
        max_leases_to_steal=settings.number("maxLeasesToStealAtOneTime"),
        enable_priority=settings.flag("enablePriorityLeaseAssignment"),
        renewal_threads=settings.number("maxLeaseRenewalThreads"),
        scan_segments=settings.number("leaseTableScanTotalSegments"),
        deletion_protection=settings.flag("leaseTableDeletionProtectionEnabled"),
        point_in_time_recovery=settings.flag("leaseTablePitrEnabled"),
        hand_off_timeout_s=settings.seconds("gracefulLeaseHandoffTimeoutMillis"),
    )


def shards_of(settings: Settings) -> ShardConfig:
    """Shard sync, audit and cleanup."""
    defaults = ShardConfig()
    pause = settings["schedulerInitializationBackoffTimeMillis"]
    return ShardConfig(
        sync_interval_s=settings.seconds("shardSyncIntervalMillis"),
        ignore_unexpected_children=settings.flag("ignoreUnexpectedChildShards"),
        cleanup_completed=settings.flag("cleanupLeasesUponShardCompletion"),
        skip_sync_if_leases_exist=settings.flag("skipShardSyncAtWorkerInitializationIfLeasesExist"),
        list_backoff_s=settings.seconds("listShardsBackoffTimeInMillis"),
        list_attempts=settings.number("maxListShardsRetryAttempts"),
        parent_poll_s=settings.seconds("parentShardPollIntervalMillis"),
        cleanup_interval_s=settings.seconds("leaseCleanupIntervalMillis"),
        completed_cleanup_s=settings.seconds("completedLeaseCleanupIntervalMillis"),
        garbage_cleanup_s=settings.seconds("garbageLeaseCleanupIntervalMillis"),
        initialization_backoff_s=settings.seconds(pause.key.name),
        missing_stream_attempts=(
            defaults.initialization_attempts if pause.is_set else defaults.missing_stream_attempts
        ),
    )


def retrieval_of(settings: Settings) -> RetrievalConfig:
    """Fetching records; settles what ``retrievalMode=DEFAULT`` means."""
    mode = _retrieval_mode(settings)
    max_records = settings.number("maxRecords")
    idle_ms = settings.number("idleTimeBetweenReadsInMillis")
    if max_records > _MOST_RECORDS:
        problem = f"maxRecords must be less than or equal to {_MOST_RECORDS}, not {max_records}"
        if mode is RetrievalMode.POLLING:
            settings.error("maxRecords", problem, f"remove the line for {_MOST_RECORDS}")
        else:
            settings.warn("maxRecords", f"{problem}; ignored with fan-out", "remove the line")
        max_records = _MOST_RECORDS
    if idle_ms < _LEAST_IDLE_MS:
        settings.warn(
            "idleTimeBetweenReadsInMillis",
            f"{idle_ms} is raised to {_LEAST_IDLE_MS}, as in Java",
            f"write {_LEAST_IDLE_MS} or more",
        )
        name, raised = "idleTimeBetweenReadsInMillis", f"raised from {idle_ms}"
        idle_ms = _LEAST_IDLE_MS
        settings.derive(name, idle_ms, raised)
    return RetrievalConfig(
        mode=mode,
        fan_out=_fan_out(settings),
        max_records=max_records,
        idle_s=idle_ms / 1000,
        reduced_tps_threshold_s=_reduced_tps(settings),
        call_even_if_empty=settings.flag("callProcessRecordsEvenForEmptyRecordList"),
        deliver_outside_shard=settings.value("aggregatedRecordsOutsideShard") == "deliver",
        task_backoff_s=settings.seconds("taskBackoffTimeMillis"),
    )


def _fan_out(settings: Settings) -> FanOutConfig:
    return FanOutConfig(
        consumer_arn=settings.text("fanoutConfig.consumerArn") or None,
        consumer_name=settings.text("fanoutConfig.consumerName") or None,
        summary_attempts=settings.number("fanoutConfig.maxDescribeStreamSummaryRetries"),
        describe_attempts=settings.number("fanoutConfig.maxDescribeStreamConsumerRetries"),
        register_attempts=settings.number("fanoutConfig.registerStreamConsumerRetries"),
        backoff_s=settings.seconds("fanoutConfig.retryBackoffMillis"),
    )


def _reduced_tps(settings: Settings) -> float:
    name = "millisBehindLatestThresholdForReducedTps"
    threshold_s = settings.seconds(name)
    if threshold_s < 0:
        settings.warn(name, "a negative value switches it off", "remove the line")
    return max(0.0, threshold_s)


def _retrieval_mode(settings: Settings) -> RetrievalMode:
    name = "retrievalMode"
    chosen = settings.value(name)
    if chosen != "DEFAULT":
        return RetrievalMode(str(chosen))
    polling = [key for key in POLLING_KEYS if settings[key].is_set]
    if not polling:
        remark = Problem(
            Severity.INFO,
            "DEFAULT means enhanced fan-out because no polling property is set, as in Java: the"
            " stream gets a registered consumer, which AWS bills",
            "write retrievalMode = FANOUT, or POLLING to go without",
        )
        settings.report(name, remark)
        settings.derive(name, RetrievalMode.FANOUT, "derived: no polling property is set")
        return RetrievalMode.FANOUT
    problem = Problem(
        Severity.INFO,
        f"DEFAULT means polling because {polling[0]} is set, as in Java",
        "write retrievalMode = POLLING or FANOUT",
    )
    settings.report(name, problem, settings[name].line or settings[polling[0]].line)
    settings.derive(name, RetrievalMode.POLLING, f"derived: {polling[0]} is set")
    return RetrievalMode.POLLING


def metrics_of(settings: Settings) -> MetricsConfig:
    """CloudWatch metrics; reports dimensions that no metric has."""
    return MetricsConfig(
        level=str(settings.value("metricsLevel")),
        enabled_dimensions=check_words(settings),
        buffer_s=settings.seconds("metricsBufferTimeMillis"),
        max_queue=settings.number("metricsMaxQueueSize"),
    )


def schemas_of(settings: Settings) -> SchemaConfig:
    """The schema registry; reports what means nothing while it is switched off."""
    enabled = settings.value("glueSchemaRegistry.enabled") == "true"
    for name in GLUE_KEYS:
        if settings[name].is_set and not enabled:
            advice = "write glueSchemaRegistry.enabled = true, or remove the line"
            settings.warn(name, "has no effect while the schema registry is not enabled", advice)
    return SchemaConfig(
        enabled=enabled, decode=settings.value("glueSchemaRegistry.mode") == "decode"
    )
