"""What the file says about being one of a 3.x fleet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from mld.model.leases.table_layout import Layout

if TYPE_CHECKING:
    from mld.model.config.settings import Settings

#: Share of the failover time after which others may take the leader lock, unless the file says
#: otherwise. Followers look as often as a leader sends heartbeats, so a dead leader is replaced
#: after 1.2 failover times at most. Java has 120 and 30 s.
_DURATION_PERCENT = 80
#: Heartbeats in that time. Whole numbers: a float rounds a long up, and so does half of an odd one.
_HEARTBEATS = 2
#: The same of any time in seconds.
DURATION_SHARE = _DURATION_PERCENT / 100
HEARTBEAT_SHARE = DURATION_SHARE / _HEARTBEATS
#: Whatever the failover time: a lock needs some requests in its time.
LEAST_DURATION_MS = 1000
#: Bounds of ``tableMigrationCompleteBakeTimeSeconds`` (CoordinatorConfig, 3.5.1).
BAKE_S = (3600.0, 604800.0)

DURATION_KEY = "dynamoDbLockBasedLeaderLeaseDurationInMillis"
HEARTBEAT_KEY = "dynamoDbLockBasedLeaderHeartbeatPeriodInMillis"


class Wish(Enum):
    """``clientVersionConfig``."""

    #: The file doesn't say.
    UNSAID = ""
    STAY_3X = "CLIENT_VERSION_CONFIG_3X"
    UPGRADE = "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X"
    #: Nothing is written that a 2.x worker could not read.
    STAY_2X = "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfig:
    """Being one of a 3.x fleet.

    Attributes:
        wish: which generation of the tables the file asks for.
        coordinator_table: of 3.0 to 3.4; None = ``<application>-CoordinatorState``.
        metrics_table: likewise; None = ``<application>-WorkerMetricStats``.
        migrates_tables: ``migrateAllEntitiesToLeaseTable``.
        bake_s: so long three tables can be gone back to, 3600 to 604800.
        lock_duration_s: others may take the leader lock after that time without a heartbeat.
        lock_heartbeat_s: distance of its heartbeats; below half of ``lock_duration_s``.
        measures: this worker measures its load.
        sample_s: how often.
        report_s: how often it writes its metrics, at least; the leader ignores older ones than
            twice its own value.
        samples: means that are kept a metric.
        group: which workers this one belongs to, as the leader is told; None = it goes by the part
            of the worker's id before the first dash.
    """

    wish: Wish = Wish.UNSAID
    coordinator_table: str | None = None
    metrics_table: str | None = None
    migrates_tables: bool = False
    bake_s: float = 86_400.0
    lock_duration_s: float = 10.0 * DURATION_SHARE
    lock_heartbeat_s: float = 10.0 * HEARTBEAT_SHARE
    measures: bool = True
    sample_s: float = 1.0
    report_s: float = 30.0
    samples: int = 10
    group: str | None = None

    def layout(self, application_name: str, lease_table: str) -> Layout:
        """The tables by name, as if all were in one."""
        return Layout.named(
            application_name, lease_table, self.coordinator_table, self.metrics_table
        )


def fleet_of(settings: Settings) -> FleetConfig:
    """The section; reports a lock that its own heartbeats can't keep, and a group without a name."""
    version = settings["clientVersionConfig"]
    duration_s, heartbeat_s = _lock(settings)
    least_s, most_s = BAKE_S
    return FleetConfig(
        wish=Wish(str(version.value)) if version.is_set else Wish.UNSAID,
        coordinator_table=settings.text("coordinatorStateTableName") or None,
        metrics_table=settings.text("workerMetricsTableName") or None,
        migrates_tables=settings.flag("migrateAllEntitiesToLeaseTable"),
        bake_s=min(max(settings.number("tableMigrationCompleteBakeTimeSeconds"), least_s), most_s),
        lock_duration_s=duration_s,
        lock_heartbeat_s=heartbeat_s,
        measures=not settings.flag("disableWorkerMetrics"),
        sample_s=settings.seconds("inMemoryWorkerMetricsCaptureFrequencyMillis"),
        report_s=settings.seconds("workerMetricsReporterFreqInMillis"),
        samples=settings.number("noOfPersistedMetricsPerWorkerMetrics"),
        group=_group(settings),
    )


def _group(settings: Settings) -> str | None:
    group = settings.text("workerGroup")
    if group is not None and not group.strip():
        settings.error("workerGroup", "must not be empty", "name the group, or remove the line")
    return group


def _lock(settings: Settings) -> tuple[float, float]:
    """Duration and heartbeat; each follows from the other where the file has only one."""
    if settings.value(DURATION_KEY) is None:
        if settings.value(HEARTBEAT_KEY) is None:
            share = settings.number("failoverTimeMillis") * _DURATION_PERCENT // 100
            duration, origin = max(LEAST_DURATION_MS, share), "derived from failoverTimeMillis"
        else:
            duration = settings.number(HEARTBEAT_KEY) * _HEARTBEATS
            origin = f"twice {HEARTBEAT_KEY}"
        settings.derive(DURATION_KEY, duration, origin)
    duration = settings.number(DURATION_KEY)
    if settings.value(HEARTBEAT_KEY) is None:
        heartbeat = duration // _HEARTBEATS
        settings.derive(HEARTBEAT_KEY, heartbeat, f"half of {DURATION_KEY}")
    heartbeat = settings.number(HEARTBEAT_KEY)
    if heartbeat * _HEARTBEATS > duration:
        settings.error(
            HEARTBEAT_KEY,
            f"{heartbeat} ms are more than half of {DURATION_KEY} ({duration} ms): the lock would"
            " expire when one heartbeat fails",
            f"set {HEARTBEAT_KEY} to {duration // 2} or less",
        )
    return duration / 1000, heartbeat / 1000
