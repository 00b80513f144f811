"""Verdicts on a shard and on a fleet, and their severities."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcl_mld.leases.model.lease import Lease


class VerdictSeverity(IntEnum):
    """The severity of a verdict, in order; from WARNING on an operator has to act."""

    OK = 0
    INFO = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        """As it is shown."""
        return self.name.lower()


class Verdict(StrEnum):
    """Of one shard."""

    READING = "READING"
    IDLE = "IDLE"
    NO_PROGRESS = "NO_PROGRESS"
    STALLED = "STALLED"
    CATCHING_UP = "CATCHING_UP"
    FALLING_BEHIND = "FALLING_BEHIND"
    WAITING_FOR_PARENT = "WAITING_FOR_PARENT"
    UNOWNED = "UNOWNED"
    OWNER_SILENT = "OWNER_SILENT"
    HANDING_OVER = "HANDING_OVER"
    PAUSED = "PAUSED"
    PAUSE_IGNORED = "PAUSE_IGNORED"
    THRASHING = "THRASHING"
    HELD = "HELD"
    UNCONFIRMED = "UNCONFIRMED"
    FINISHED = "FINISHED"
    CHILDREN_MISSING = "CHILDREN_MISSING"
    HASH_GAP = "HASH_GAP"
    RETENTION_RISK = "RETENTION_RISK"
    RECORDS_LOST = "RECORDS_LOST"
    RECORDS_MAY_BE_LOST = "RECORDS_MAY_BE_LOST"
    UNREADABLE_ROW = "UNREADABLE_ROW"
    STREAM_GONE = "STREAM_GONE"
    STREAM_DISABLED = "STREAM_DISABLED"
    REWOUND = "REWOUND"
    UNKNOWN = "UNKNOWN"
    #: Of the fleet, beside its shards.
    LEADER_SILENT = "LEADER_SILENT"
    NO_METRICS = "NO_METRICS"
    NOT_READY = "NOT_READY"
    DOUBLED_ID = "DOUBLED_ID"
    WRONG_CLOCK = "WRONG_CLOCK"
    MIGRATING = "MIGRATING"
    CRASH_LOOP = "CRASH_LOOP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """One verdict with its reasons.

    Attributes:
        subject: lease key; the name of a stream, a worker or a table where it is of none.
        severity: how much it matters.
        cause: one or two sentences, without names that are shown beside it.
        since_s: seconds for which this watcher has seen it so; the table has no times. None = it is
            no matter of time.
        todo: what a person does; "" = nothing.
        lease: the row; None = there is none that can be read.
        behind_s: lag of the checkpoint by the tip of the shard; None = not asked, or not known.
        behind_age_s: seconds since the tip was asked; None = it was not.
        reported_lag_s: lag as the owner reports it; None = it was not asked, or does not know.
        lives: its owner was seen to renew it, within the failover time.
    """

    subject: str
    verdict: Verdict
    severity: VerdictSeverity
    cause: str
    since_s: float | None = None
    todo: str = ""
    lease: Lease | None = None
    behind_s: float | None = None
    behind_age_s: float | None = None
    reported_lag_s: float | None = None
    lives: bool = False

    @property
    def lag_s(self) -> float | None:
        """By the tip of the shard, else as reported by the owner."""
        return self.reported_lag_s if self.behind_s is None else self.behind_s

    @property
    def link(self) -> str:
        """The page of the documentation about the verdict."""
        return f"docs/verdicts.md#{self.verdict.lower()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of a fleet.

    Attributes:
        looks: number of snapshots.
        span_s: from the first to the last.
        facts: sentences about the fleet: generation, leader, what a longer observation would show.
        fleet: problems of no single shard; the worst first.
        shards: one for each, the worst first.
    """

    looks: int
    span_s: float
    facts: tuple[str, ...]
    fleet: tuple[Conclusion, ...]
    shards: tuple[Conclusion, ...]

    @property
    def severity(self) -> VerdictSeverity:
        """The worst."""
        return max(
            (one.severity for one in (*self.fleet, *self.shards)), default=VerdictSeverity.OK
        )

    @property
    def needs_a_person(self) -> bool:
        """Whether an operator has to act."""
        return self.severity >= VerdictSeverity.WARNING
