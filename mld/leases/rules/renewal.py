"""What a lease's stored row means to its holder, and for how long a lease counts as held.

Invariant: a lease counts as held only while no other worker that reads the same table with a clock
of the same speed can regard it as expired. Validity is therefore counted from the *start* of a
request that provably raised the counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.config.config import LeaseConfig
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.lease_writes import LeaseWrite

#: The reason when the row of a lease is gone.
ROW_DELETED = "its row was deleted"
#: Two clocks may differ in speed by one percent each.
CLOCK_TOLERANCE = 0.02
#: Smallest and largest share of the failover time after which a lease is renewed while the table
#: responds promptly: half as often as Java. Renewals are more frequent where fewer than two more
#: requests would fit before the validity ends, see :func:`calm_periods_s`.
CALM_SHARES = (0.67, 0.70)
#: An answer is prompt if it took at most this share of the failover time.
PROMPT_SHARE = 0.05
#: A lease whose validity ends within this share of the failover time should already be renewed.
PRESSING_SHARE = 0.2
#: A renewal is late if it has been due for this share of the failover time.
LATE_SHARE = 0.1
#: This number of such leases, and this share of all, show that the worker or the table can't keep
#: up, rather than that one row is at fault.
PRESSING_LEASES, PRESSING_OF_ALL = 3, 0.05
#: A window of this many seconds has half the weight. Source: LeaseRenewer of 10000 ms failover time
#: renews every 3308 ms, with alpha 0.5 (LeaseStatsRecorder, ExponentialMovingAverage, 3.5.1).
HALF_WINDOW_S = 3.308


class RowVerdict(Enum):
    """What the stored row means to a worker whose write was refused or not answered."""

    #: The lease is ours in this state: write again on top of it.
    AGAIN = auto()
    #: Another worker wrote: the lease is no longer ours.
    LOST = auto()


class MoveVerdict(Enum):
    """What the stored row means to a leader whose write was refused or not answered."""

    #: The row is as the leader wanted it.
    DONE = auto()
    #: The row is unchanged: write again.
    AGAIN = auto()
    #: Another worker wrote.
    LOST = auto()


@dataclass(frozen=True, slots=True)
class RowJudgement:
    """A verdict and its reason, as words for the log."""

    verdict: RowVerdict
    why: str


def judge_row(before: Lease, row: Lease | None) -> RowJudgement:
    """Decide from the stored row whether a holder still has the lease.

    A counter that is one ahead with our name in the row is a write of our own whose answer was
    lost: no other worker raises the counter and leaves our name. The holder then writes again on
    top, even though the lost write may have been this very one: only an *answered* write proves
    when the counter was raised. (Java treats such a row as success and may hold the lease for too
    long, because observers can have seen that counter much earlier.)

    The only write of others that keeps the counter is the start of a hand-off by a 3.x leader. The
    holder then continues, with both owners in its conditions, until it has drained. A lost answer
    and such a start can coincide: then the counter is one ahead, and no other worker has taken the
    lease. (A 2.x worker that takes it during a hand-off leaves our name in it, and counts its
    take.)

    Args:
        before: the row that the refused or unanswered write expected.
        row: the row as stored now, read consistently; None = deleted.

    Source: DynamoDBLeaseRefresher.renewLease (3.5.1), with the fix named above.
    """
    if row is None:
        return RowJudgement(RowVerdict.LOST, ROW_DELETED)
    ahead = row.lease_counter - before.lease_counter
    owners = (before.lease_owner, before.checkpoint_owner)
    if (row.lease_owner, row.checkpoint_owner) == owners:
        if ahead in (0, 1):
            was = "stored, but not answered" if ahead else "not stored"
            return RowJudgement(RowVerdict.AGAIN, f"the last write of this worker was {was}")
        return RowJudgement(
            RowVerdict.LOST,
            f"its leaseCounter is {row.lease_counter}, but this worker last wrote "
            f"{before.lease_counter}; does another process use the same worker id?",
        )
    if _is_hand_off(before, row) and (ahead == 0 or (ahead == 1 and not _was_taken(before, row))):
        return RowJudgement(RowVerdict.AGAIN, f"it is being handed over to {row.lease_owner}")
    return RowJudgement(
        RowVerdict.LOST,
        f"worker {owner} has it now" if (owner := row.actual_owner) else "it has no owner any more",
    )


def judge_taking(
    before: Lease, row: Lease | None, worker_id: str, *, unanswered: bool
) -> RowVerdict:
    """Decide from the stored row whether to continue taking a lease.

    Args:
        row: the row as stored now, read consistently; None = deleted.
        unanswered: a take by this worker was sent on ``before`` and got no answer.
    """
    if row is None:
        return RowVerdict.LOST
    owners = (row.lease_owner, row.checkpoint_owner)
    ahead = row.lease_counter - before.lease_counter
    if ahead == 0 and owners == (before.lease_owner, before.checkpoint_owner):
        return RowVerdict.AGAIN
    ours = unanswered and ahead == 1 and owners == (worker_id, None)
    return RowVerdict.AGAIN if ours else RowVerdict.LOST


def judge_move(write: LeaseWrite, row: Lease | None, *, only_unchanged: bool) -> MoveVerdict:
    """Decide from the stored row whether a leader's write was stored.

    Args:
        write: an assignment or the start of a hand-off that was refused or got no answer.
        row: the row as stored now, read consistently; None = deleted.
        only_unchanged: the condition named the counter.
    """
    if row is None:
        return MoveVerdict.LOST
    owners = (row.lease_owner, row.checkpoint_owner)
    before, after = write.before, write.after
    is_unchanged = row.lease_counter == before.lease_counter
    was = (before.lease_owner, before.checkpoint_owner)
    wanted = (after.lease_owner, after.checkpoint_owner)
    if owners == wanted and (was != wanted or not is_unchanged):
        return MoveVerdict.DONE
    may_repeat = owners == was and (is_unchanged or not only_unchanged)
    return MoveVerdict.AGAIN if may_repeat else MoveVerdict.LOST


def is_released(write: LeaseWrite, row: Lease) -> bool:
    """True when an unanswered release is stored, or was followed by another worker's take.

    Args:
        write: the holder's last write; only a release removes its name.
        row: the row as stored now, read consistently.
    """
    if write.before.actual_owner in (write.after.actual_owner, row.actual_owner):
        return False
    return row.lease_counter >= write.after.lease_counter


def _is_hand_off(before: Lease, row: Lease) -> bool:
    return (
        before.checkpoint_owner is None
        and row.checkpoint_owner == before.lease_owner
        and row.lease_owner not in (None, before.lease_owner)
    )


def _was_taken(before: Lease, row: Lease) -> bool:
    return row.owner_switches_since_checkpoint > before.owner_switches_since_checkpoint


def believed_until(requested_at: float, failover_s: float, epsilon_s: float) -> float:
    """Until when a lease counts as held.

    Args:
        requested_at: reading of the monotonic clock before the successful request was sent.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.
        epsilon_s: the fleet's ``epsilonMillis``, in seconds.

    Returns:
        A reading of the same clock, somewhat before ``requested_at + failover_s``: clocks differ in
        speed, and the holder needs a moment to stop.
    """
    return requested_at + failover_s * (1 - CLOCK_TOLERANCE) - epsilon_s


def are_pressing(ends: Iterable[float], now: float, failover_s: float) -> bool:
    """Whether renewals are so late that all other work has to wait for them.

    Args:
        ends: when the validity of each held lease ends, readings of the monotonic clock.
        now: a reading of the same clock.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.
    """
    soon = now + failover_s * PRESSING_SHARE
    return _are_many([end <= soon for end in ends])


def are_late(due_at: Iterable[float], now: float, failover_s: float) -> bool:
    """Whether renewals don't keep up, so that no more leases are taken.

    Args:
        due_at: when each held lease is to be renewed, readings of the monotonic clock.
        now: a reading of the same clock.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.
    """
    before = now - failover_s * LATE_SHARE
    return _are_many([one < before for one in due_at])


def _are_many(which: list[bool]) -> bool:
    return sum(which) >= max(PRESSING_LEASES, PRESSING_OF_ALL * len(which))


def is_prompt(requested_at: float, answered_at: float, failover_s: float) -> bool:
    """Whether an answer was as fast as that of a healthy table."""
    return answered_at - requested_at <= failover_s * PROMPT_SHARE


def calm_periods_s(config: LeaseConfig) -> tuple[float, float]:
    """Shortest and longest time between two renewals of a lease while the table responds promptly.

    Two more requests fit before the validity ends, even if each hangs on an open connection until
    it times out, and many more if they fail at once. Never shorter than Java's period.
    """
    least, most = (config.failover_s * share for share in CALM_SHARES)
    ends_at = believed_until(0.0, config.failover_s, config.epsilon_s)
    too_late_s = max(0.0, most + 2 * config.read_timeout_s - ends_at)
    brisk_s = config.renewal_interval_s
    return max(brisk_s, least - too_late_s), max(brisk_s, most - too_late_s)


def calm_renewal_due_at(
    lease_key: str, requested_at: float, periods_s: tuple[float, float]
) -> float:
    """When to renew a lease after an answered write, while the table responds promptly.

    Observers only need to see the counter change within the failover time. Java always renews at a
    third of it; here that is for a table that was slow or refused recently, when the next try may
    be delayed, too. Every write that raises the counter counts, checkpoints as well as renewals.

    Each lease has its own period, so that renewals of many leases spread out: if the table becomes
    slow, only a few renewals are affected at a time.

    Args:
        requested_at: reading of the monotonic clock before the request was sent.
        periods_s: of :func:`calm_periods_s`.

    Returns:
        A reading of the same clock.
    """
    least_s, most_s = periods_s
    return requested_at + least_s + (most_s - least_s) * crc32(lease_key.encode()) / 2**32


def first_renewal_due_at(lease_key: str, requested_at: float, brisk_s: float) -> float:
    """When to renew a lease that was just taken: within Java's period, each at its own time.

    Many leases are often taken at once; this spreads their renewals from the start.

    Args:
        requested_at: reading of the monotonic clock before the request was sent.
        brisk_s: the period of Java's renewals.
    """
    return requested_at + brisk_s * crc32(lease_key[::-1].encode()) / 2**32


def most_renewable(config: LeaseConfig, answer_s: float) -> int:
    """How many leases one worker can renew in Java's period, at one write each.

    Args:
        answer_s: time from a write to its answer, > 0.
    """
    return int(config.renewal_threads * config.renewal_interval_s / answer_s)


def renewal_order(last_success: Iterable[tuple[str, float]]) -> list[str]:
    """Lease keys, longest since the last successful request first.

    Args:
        last_success: lease key and the start of its last successful request.
    """
    return [key for key, _ in sorted(last_success, key=lambda entry: (entry[1], entry[0]))]


def throughput_after(known_kbps: float | None, received_bytes: int, elapsed_s: float) -> float:
    """The throughput of a lease: the moving average after one more window between two renewals.

    The leader of a 3.x fleet reads it from the row (``throughputKBps``).

    Args:
        known_kbps: KiB/s before; None = this is the first window. A new holder begins with the
            value in the row (Java divides it by 3.3 once).
        received_bytes: payloads in the window, after de-aggregation.
        elapsed_s: length of the window, > 0. Java's windows are all equal; ours are as long as the
            pause between renewals, so a longer one weighs as much as Java's in that time.

    Returns:
        KiB/s, not rounded.
    """
    rate = received_bytes / 1024 / elapsed_s
    if known_kbps is None:
        return rate
    kept: float = 0.5 ** (elapsed_s / HALF_WINDOW_S)
    return kept * known_kbps + (1 - kept) * rate
