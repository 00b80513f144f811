"""The keys of a worker in a 3.x fleet, and of its leader's assignment of leases."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kcl_mld.config.keys import (
    DOUBLE_MAX,
    NO_START,
    PASSED_ON,
    Effect,
    Key,
    Kind,
    advanced,
    by_rule,
    count,
    decimal,
    flag,
    from_millis,
    millis,
    own_switch,
    read_as,
    text,
)
from kcl_mld.config.values import parse_duration

#: Share of the failover time after which others may take the leader lock, unless the file says
#: otherwise. Followers look as often as a leader sends heartbeats, so a dead leader is replaced
#: after 1.2 failover times at most. Java has 120 and 30 s.
DURATION_PERCENT = 80
#: Heartbeats in that time. Whole numbers: a float rounds a long up, and so does half of an odd one.
HEARTBEATS = 2
#: The same of any time in seconds.
DURATION_SHARE = DURATION_PERCENT / 100
HEARTBEAT_SHARE = DURATION_SHARE / HEARTBEATS
#: Whatever the failover time: a lock needs some requests in its time.
LEAST_DURATION_MS = 1000
#: Bounds of ``tableMigrationCompleteBakeTimeSeconds`` (CoordinatorConfig, 3.5.1).
BAKE_S = (3600.0, 604800.0)

DURATION_KEY = "dynamoDbLockBasedLeaderLeaseDurationInMillis"
HEARTBEAT_KEY = "dynamoDbLockBasedLeaderHeartbeatPeriodInMillis"


class ClientVersionConfig(Enum):
    """``clientVersionConfig``."""

    #: Not set in the file.
    UNSAID = ""
    STAY_3X = "CLIENT_VERSION_CONFIG_3X"
    UPGRADE = "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X"
    #: Writes only data that a 2.x worker can read.
    STAY_2X = "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"


def _share(percentage: int) -> float:
    return percentage / 100


def _duration_s(value: str | float) -> float:
    """Seconds; the default of a key is in the table as it would be written."""
    seconds = parse_duration(value) if isinstance(value, str) else value
    assert seconds is not None, "the default is a duration"
    return float(seconds)


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfig:
    """Being one of a 3.x fleet.

    Attributes:
        coordinator_table: None = ``<application>-CoordinatorState``.
        metrics_table: None = ``<application>-WorkerMetricStats``.
        bake_s: seconds during which a return to three tables is possible, 3600 to 604800.
        lock_duration_s: others may take the leader lock after that time without a heartbeat.
        lock_heartbeat_s: distance of its heartbeats; below half of ``lock_duration_s``.
        report_s: the leader ignores metrics that are older than twice its own value.
        group: as reported to the leader; None = it goes by the part of the worker's id before the
            first dash.
    """

    client_version: ClientVersionConfig = by_rule(ClientVersionConfig.UNSAID,
        Key("clientVersionConfig", Kind.ENUM, ClientVersionConfig.STAY_3X.value,
        "which generation of the lease table to use",
        tuple(one.value for one in ClientVersionConfig)[1:]))
    coordinator_table: str | None = text("coordinatorStateTableName",
        "of a fleet of KCL 3.0 to 3.4; <applicationName>-CoordinatorState when absent")
    metrics_table: str | None = text("workerMetricsTableName",
        "of a fleet of KCL 3.0 to 3.4; <applicationName>-WorkerMetricStats when absent")
    migrates_tables: bool = flag("migrateAllEntitiesToLeaseTable",
        "second phase of the single-table migration", kind=Kind.B0)
    bake_s: float = advanced(read_as(lambda value: float(min(max(value, BAKE_S[0]), BAKE_S[1])),
        Key("tableMigrationCompleteBakeTimeSeconds", Kind.N0_LONG, 86_400,
            "clamped to 3600..604800", least=0, below=PASSED_ON)))
    lock_duration_s: float = advanced(read_as(from_millis, Key(DURATION_KEY, Kind.STRICT_LONG, None,
        "in a 3.x fleet, time without a heartbeat after which another worker leads;"
        " 0.8 x failoverTimeMillis when absent", least=1, own=True), default=10 * DURATION_SHARE))
    lock_heartbeat_s: float = advanced(
        read_as(from_millis, Key(HEARTBEAT_KEY, Kind.STRICT_LONG, None,
        "in a 3.x fleet, distance of the leader's heartbeats; half of that time when absent",
        least=1, own=True), default=10 * HEARTBEAT_SHARE))
    measures: bool = read_as(lambda value: not value, Key("disableWorkerMetrics", Kind.B1,
        default=False, doc="no worker metrics at all"))
    sample_s: float = advanced(millis("inMemoryWorkerMetricsCaptureFrequencyMillis", 1_000,
        "how often worker metrics are taken", below=NO_START))
    report_s: float = advanced(millis("workerMetricsReporterFreqInMillis", 30_000,
        "how often worker metrics are written",
        below="the Java daemon runs and assigns itself nothing"))
    samples: int = advanced(
        count("noOfPersistedMetricsPerWorkerMetrics", 10, "samples kept a worker"))
    group: str | None = text("workerGroup",
        "which workers this one belongs to: leases are spread over groups, too; the part of"
        " workerId before the first - when absent", own=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentConfig:
    """Sharing out leases; only the leader's own counts.

    Attributes:
        by_count: leases are only counted.
        interval_s: Java's interval between two plans of the leader; here a part of ``balance_s``.
        balance_s: leases of living workers move this often for their load.
        max_throughput_kbps: a worker above it gets no more leases.
        threshold: share of the mean by which loads may differ.
        dampening: share of a difference that is moved at once, at most 1.
        ema_alpha: weight of a worker's newest sample, at most 1.
    """

    is_graceful: bool = flag("isGracefulLeaseHandoffEnabled",
        "the old owner is asked to finish first", default=True)
    by_count: bool = own_switch("leaseAssignmentStrategy",
        "what is shared out evenly: utilization and throughput, or the number of leases alone",
        ("WORKER_UTILIZATION_AWARE", "LEASE_COUNT_BASED"), on="LEASE_COUNT_BASED")
    interval_s: float = read_as(from_millis, Key("leaseAssignmentIntervalMillis", Kind.N0_LONG,
        None, "period of Java's lease assignment; here a leader looks when something is due",
        least=52, below=NO_START, effect=Effect.UNNEEDED), default=20.0)
    balance_s: float = advanced(by_rule(60.0, Key("varianceBalancingFrequency", Kind.N0_INT, 3,
        "assignment cycles for one rebalance", least=0, below=PASSED_ON)))
    max_throughput_kbps: float = decimal("maxThroughputPerHostKBps", DOUBLE_MAX,
        "throughput of one host")
    threshold: float = advanced(read_as(_share, Key("reBalanceThresholdPercentage", Kind.N0_INT, 10,
        "imbalance that starts a rebalance", least=0, below=PASSED_ON)))
    dampening: float = advanced(
        read_as(lambda value: min(1.0, _share(value)), Key("dampeningPercentage",
        Kind.N0_INT, 60, "share of an imbalance moved at once", least=0, below=PASSED_ON)))
    allows_overshoot: bool = advanced(flag("allowThroughputOvershoot",
        "move a lease even if its new owner ends above the mean", default=True))
    ema_alpha: float = advanced(
        read_as(lambda value: min(1.0, float(value)), Key("workerMetricsEMAAlpha",
        Kind.N0_DOUBLE, 0.5, "weight of the newest sample", least=0, below=PASSED_ON)))
    metrics_stale_s: float = advanced(
        read_as(_duration_s, Key("staleWorkerMetricsEntryCleanupDuration",
        Kind.DURATION, "PT24H", "age at which a worker's entry is deleted")))
# fmt: on
