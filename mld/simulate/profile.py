"""How the workers of a kind of fleet behave: their paces, all in this one place.

What our daemon's modules define is taken from them; what Java does is a fact with its source in
KCL 3.5.1 or a measurement on two cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from kcl_mld.config.config import LeaseConfig
from kcl_mld.config.fleet import DURATION_SHARE, HEARTBEAT_SHARE, FleetConfig
from kcl_mld.fleet.rules.assignment import looks
from kcl_mld.fleet.rules.leader_lock import LockTiming
from kcl_mld.leases.rules import discovery
from kcl_mld.leases.rules.renewal import calm_periods_s, calm_renewal_due_at, first_renewal_due_at

if TYPE_CHECKING:
    from kcl_mld.simulate.scenario import Scenario

#: Java's periodic loops that the failover time does not move (LeaseManagementConfig.java 322-330,
#: DynamicMigrationComponentsInitializer.java 273-277).
JAVA_LOCK = LockTiming(duration_s=120.0, heartbeat_s=30.0, failover_s=10.0)
JAVA_FIRST_REPORT_S = 2.0
#: A worker whose metrics are older is not there for a leader.
METRICS_EXPIRY_S = 60.0
#: A Java leader of the 2.x way reads the table for its election (each worker) and audit (one).
JAVA_ELECTION_S = 300.0
AUDIT_S = 120.0


class ProfileName(StrEnum):
    """Whose workers the fleet consists of."""

    JAVA2 = "java2"
    JAVA3 = "java3"
    OURS = "ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The behaviour of every worker of a fleet.

    Attributes:
        is_assigned: a leader assigns the leases (3.x); False = each worker takes its share (2.x).
        look_s: pause between two scans of the taker (2.x) or of the leader (3.x).
        discovery_s: period of the reads that find assigned leases.
        brisk_s: Java's period of renewals.
        calm_periods_s: the least and the most of ours while the table is well.
        failover_s: ``failoverTimeMillis``.
        is_calm: renewals are due by ``kcl_mld.leases.rules.renewal``, and a checkpoint counts as one.
        lock: of the leader lock; followers read it at each heartbeat.
        lock_reads: requests of one such read.
        watches_expiry: a follower also reads the lock when it expires.
        starting_s: from the start of the process to its first scan.
        request_s: from sending a request on a row to its answer.
        in_flight: writes of one worker at a time.
        opening_s: from holding a lease to the first record in the child.
        notice_s: from the refused write that shows a loss to the end of the child.
        hand_over_s: from the notice of a hand-off to the write that completes it: the child is
            asked to finish and checkpoints.
        first_report_s: from the first scan to the first report of metrics.
        report_s: period of those reports.
        releases: a worker that is stopped lets its children checkpoint and gives its leases back.
    """

    name: ProfileName
    is_assigned: bool
    look_s: float
    discovery_s: float
    brisk_s: float
    calm_periods_s: tuple[float, float]
    failover_s: float
    is_calm: bool
    lock: LockTiming
    lock_reads: int
    watches_expiry: bool
    starting_s: float
    request_s: float
    in_flight: int
    opening_s: float
    notice_s: float
    hand_over_s: float
    first_report_s: float
    report_s: float
    releases: bool

    def beat_s(self, lease_key: str, checkpoint_every_s: float) -> float:
        """Longest time between two moves of a held lease's counter."""
        period_s = self.renewal_s(lease_key)
        return min(period_s, checkpoint_every_s) if self.is_calm else period_s

    def renewal_s(self, lease_key: str) -> float:
        """Period of a lease's renewals while nothing else is written to its row."""
        if not self.is_calm:
            return self.brisk_s
        return calm_renewal_due_at(lease_key, 0.0, self.calm_periods_s)

    def renewals(self, lease_key: str, held_s: float, checkpoint_every_s: float) -> float:
        """Renewals of a lease in a time in which it is held and checkpointed."""
        period_s = self.renewal_s(lease_key)
        if not self.is_calm:
            return held_s / period_s
        # A checkpoint postpones the next renewal: only those count that fit between two.
        between = max(0, -int(-checkpoint_every_s // period_s) - 1)
        return held_s / checkpoint_every_s * between

    def first_beat_at(self, lease_key: str, worker_started_at: float, now: float) -> float:
        """When a lease that is taken now is renewed for the first time.

        Java renews all leases of a worker in rounds of a fixed rate from its start on.
        """
        if self.is_calm:
            return first_renewal_due_at(lease_key, now, self.brisk_s)
        rounds = int((now - worker_started_at) / self.brisk_s) + 1
        return worker_started_at + rounds * self.brisk_s


def make_profile(name: ProfileName, scenario: Scenario) -> Profile:
    """The behaviour of a fleet's workers with the periods that follow from its failover time."""
    leases = LeaseConfig(table_name="", failover_s=scenario.failover_s)
    assignment_s = 2 * scenario.failover_s
    java3 = Profile(
        name=ProfileName.JAVA3,
        is_assigned=True,
        look_s=assignment_s,
        discovery_s=assignment_s / 2 - leases.epsilon_s,
        brisk_s=leases.renewal_interval_s,
        calm_periods_s=calm_periods_s(leases),
        failover_s=scenario.failover_s,
        is_calm=False,
        lock=JAVA_LOCK,
        lock_reads=2,
        watches_expiry=False,
        # Measured: the virtual machine, its classes, the first requests.
        starting_s=5.5,
        request_s=scenario.answer_s,
        in_flight=1,
        # Measured: from `initialize` to the first GetRecords answer.
        opening_s=2.0,
        # The consumer loop turns once a second.
        notice_s=0.5,
        hand_over_s=1.0,
        first_report_s=JAVA_FIRST_REPORT_S,
        report_s=FleetConfig().report_s,
        releases=False,
    )
    match name:
        case ProfileName.JAVA2:
            return replace(java3, name=name, is_assigned=False, look_s=leases.taker_interval_s)
        case ProfileName.JAVA3:
            return java3
        case ProfileName.OURS:
            return replace(
                java3,
                name=name,
                look_s=looks.longest_pause_s(0.0, 0, scenario.failover_s, is_alone=False),
                discovery_s=discovery.look_pause_s(math.inf, scenario.failover_s),
                is_calm=True,
                lock=LockTiming(
                    scenario.failover_s * DURATION_SHARE,
                    scenario.failover_s * HEARTBEAT_SHARE,
                    scenario.failover_s,
                ),
                lock_reads=1,
                watches_expiry=True,
                in_flight=leases.renewal_threads,
                # Measured: the interpreter and the first requests; a child and its first answer.
                starting_s=0.5,
                opening_s=0.5,
                notice_s=0.0,
                hand_over_s=0.2,
                first_report_s=0.0,
                releases=True,
            )
        case _:  # pragma: no cover
            assert_never(name)
