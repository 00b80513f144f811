"""Whether this worker does its job: what ``/readyz`` answers, and why.

A worker is ready while it runs, its services report nothing against it, its lease table answers,
and not all of its shards fail. One shard that fails beside others that are read leaves it ready:
it is named in the answer. A worker without leases is a standby, and ready. With an age limit every
shard that should be read has to keep it.

Pure: a snapshot in, an answer out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kcl_mld.children.model.consumer_status import CHILD_SILENT_S
from kcl_mld.children.rules.lifecycle import ConsumerState
from kcl_mld.kernel.model.text import lasted
from kcl_mld.signals.model.conditions import Condition, Reason

if TYPE_CHECKING:
    from kcl_mld.children.model.consumer_status import ConsumerStatus

#: A child that failed so often in a row, without a checkpoint in between, is in a crash loop,
CRASH_LOOP_FAILURES = 3
#: until it has lived for so long since its last failure. The longest pause between two starts is a
#: minute, unless the file sets more.
CRASH_LOOP_S = 120.0
#: A shard can't be read when no call for it has succeeded for this many seconds.
READING_FAILS_S = 30.0
#: The table doesn't answer when no scan has succeeded for so many scan intervals,
TABLE_SILENT_INTERVALS = 3
#: but not before that.
TABLE_SILENT_S = 30.0


class ShardHealth(StrEnum):
    """How a held shard is doing; shown by ``/readyz`` with the number of such shards."""

    READ = "read"
    STARTING = "starting"
    QUEUED = "waiting_to_start"  #: other children start first
    WAITING = "waiting_for_parents"
    ENDING = "ending"
    CHILD_SILENT = "child_silent"  #: it has not answered for long; it may be working
    CHILD_FAILS = "child_fails"
    READING_FAILS = "reading_fails"


#: Shards that are to be read now.
DUE = frozenset(
    {
        ShardHealth.READ,
        ShardHealth.STARTING,
        ShardHealth.QUEUED,
        ShardHealth.CHILD_SILENT,
        ShardHealth.CHILD_FAILS,
        ShardHealth.READING_FAILS,
    }
)
_FAILING = frozenset({ShardHealth.CHILD_FAILS, ShardHealth.READING_FAILS})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSnapshot:
    """A worker at one moment.

    Attributes:
        state: of the scheduler: ``starting``, ``running``, ``stopping`` or ``stopped``.
        conditions: what its services reported and have not taken back.
        scan_age_s: since the last complete scan of the lease table; None before the first.
        scan_interval_s: how often a scan is due.
        max_age_s: how far behind a shard may be, and how long it may be without a finished batch;
            None = as far and as long as it likes.
        left_free: why leases have no owner and get none; empty while there are none.
    """

    state: str
    conditions: tuple[Condition, ...] = ()
    shards: tuple[ConsumerStatus, ...] = ()
    scan_age_s: float | None = None
    scan_interval_s: float = 0.0
    left_free: str = ""
    max_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class FailingShard:
    """A shard that makes no progress, and why."""

    shard_id: str
    health: ShardHealth
    message: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer of ``/readyz``.

    Attributes:
        reasons: why the worker is not ready; none = it is.
        failing: those that fail, also while others are read.
    """

    state: str
    reasons: tuple[Condition, ...]
    shards: tuple[tuple[ShardHealth, int], ...]
    failing: tuple[FailingShard, ...]

    @property
    def is_ready(self) -> bool:
        """True without reasons against it."""
        return not self.reasons

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "ready": self.is_ready,
            "state": self.state,
            "reasons": [asdict(one) for one in self.reasons],
            "shards": {str(health): count for health, count in self.shards},
            "failing": [asdict(one) for one in self.failing],
        }


def readiness(worker: WorkerSnapshot, max_age_s: float | None = None) -> Readiness:
    """Judge a worker.

    Args:
        max_age_s: asked for instead of the worker's own limit; None = that one.
    """
    limit_s = worker.max_age_s if max_age_s is None else max_age_s
    judged = [(shard, health_of(shard)) for shard in worker.shards]
    counts = Counter(health for _, health in judged)
    failing = tuple(
        FailingShard(shard.shown_shard, health, _why(shard, health))
        for shard, health in judged
        if health in _FAILING
    )
    if worker.state != "running":
        against = [Condition(Reason.NOT_RUNNING, f"the worker is {worker.state}")]
    else:
        due = [shard for shard, health in judged if health in DUE]
        against = [
            *_table_silent(worker),
            *_all_fail(failing, len(due)),
            *(_too_old(due, limit_s) if limit_s is not None else ()),
        ]
    return Readiness(
        worker.state,
        (*against, *worker.conditions),
        tuple((health, counts[health]) for health in ShardHealth if counts[health]),
        failing,
    )


def health_of(shard: ConsumerStatus) -> ShardHealth:
    """Judge a shard."""
    if shard.reason is not None or shard.state == ConsumerState.SHUTDOWN_COMPLETE.value:
        return ShardHealth.ENDING
    if shard.state == ConsumerState.WAITING_ON_PARENT_SHARDS.value:
        return ShardHealth.WAITING
    is_processing = shard.state == ConsumerState.PROCESSING.value
    if shard.child_failures >= CRASH_LOOP_FAILURES and not (
        is_processing
        and shard.child_failure_age_s is not None
        and shard.child_failure_age_s >= CRASH_LOOP_S
    ):
        return ShardHealth.CHILD_FAILS
    if shard.reading_fails_s is not None and shard.reading_fails_s >= READING_FAILS_S:
        return ShardHealth.READING_FAILS
    if shard.child_silent_s is not None and shard.child_silent_s >= CHILD_SILENT_S:
        return ShardHealth.CHILD_SILENT
    not_read = ShardHealth.QUEUED if shard.waits_to_start else ShardHealth.STARTING
    return ShardHealth.READ if is_processing else not_read


def batch_age_s(shard: ConsumerStatus) -> float:
    """Seconds since a batch was finished, or since the hold began while none was."""
    return shard.held_s if shard.last_processed_age_s is None else shard.last_processed_age_s


def _why(shard: ConsumerStatus, health: ShardHealth) -> str:
    if health is ShardHealth.CHILD_FAILS:
        what = f"its child failed {shard.child_failures} times in a row without a checkpoint"
        return what if shard.last_error is None else f"{what}; last error: {shard.last_error}"
    what = f"it could not be read for {lasted(shard.reading_fails_s or 0.0)}"
    return "; ".join(text for text in (what, shard.reading_error, shard.reading_todo) if text)


def _table_silent(worker: WorkerSnapshot) -> list[Condition]:
    age_s = worker.scan_age_s
    limit_s = max(TABLE_SILENT_S, TABLE_SILENT_INTERVALS * worker.scan_interval_s)
    if age_s is None or age_s < limit_s:
        return []
    text = f"the lease table could not be read for {lasted(age_s)}; the log says why"
    return [Condition(Reason.TABLE_SILENT, text)]


def _all_fail(failing: tuple[FailingShard, ...], due: int) -> list[Condition]:
    if not failing or len(failing) < due:
        return []
    first = failing[0]
    which = "the shard to be read fails," if due == 1 else f"all {due} shards to be read fail, e.g."
    text = f"{which} {first.shard_id}: {first.message}"
    return [Condition(Reason.ALL_SHARDS_FAIL, text)]


def _too_old(due: list[ConsumerStatus], max_age_s: float) -> list[Condition]:
    """The shard that is worst in each way, and how many there are."""
    behind = [
        (shard.lag_s, shard.shown_shard)
        for shard in due
        if shard.lag_s is not None and shard.lag_s > max_age_s
    ]
    idle = [
        (age_s, shard.shown_shard) for shard in due if (age_s := batch_age_s(shard)) > max_age_s
    ]
    found = []
    for shards, what in ((behind, "is {:.0f} s behind"), (idle, "finished no batch for {:.0f} s")):
        if shards:
            worst_s, shard_id = max(shards)
            more = f", and {len(shards) - 1} more" if len(shards) > 1 else ""
            text = f"{shard_id} {what.format(worst_s)}, the limit is {max_age_s:g} s{more}"
            found.append(Condition(Reason.TOO_OLD, text))
    return found
