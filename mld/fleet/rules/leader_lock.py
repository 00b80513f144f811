"""The leader lock of a 3.x fleet, and for how long its owner counts as the leader.

The lock is an item with an owner, a version that is new at each heartbeat, and the time after which
others may take it. The table holds no times: an observer may take the lock when it has seen one
version for longer than the *stored* duration, by its own clock. So the lock is valid for its owner
only from the start of the last answered request, and for a little less than that duration.

The tables below are the only definition of the transitions; the diagram in ``docs/architecture.md``
is generated from them.

Source: AmazonDynamoDBLockClient 1.4.0, DynamoDBLockBasedLeaderDecider.java:111-241 (KCL 3.5.1). In
Java the lock is valid from the answer on, and the loser of a race sleeps for a heartbeat period.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kcl_mld.fleet.model.lock_item import LockItem
    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics

#: Two clocks may differ in speed by one percent each.
CLOCK_TOLERANCE = 0.02
#: A lock with a long stored duration, as Java's, is read less often: once per this share of it.
LOOK_SHARE = 0.125
#: But at least as often as Java's workers read it, so that a lock deleted by hand is soon replaced.
MOST_PAUSE_S = 30.0
#: A follower reads the lock of a leader that shows when it has assigned leases once in this many
#: heartbeats, as long as a lock of ours lasts, and after this many seconds at the latest.
FOLLOW_HEARTBEATS = 2.0
FOLLOW_PAUSE_S = 8.0
#: And once in this share of the failover time: a leader takes back a lease that its new owner has not
#: renewed by then, and the worker would look dead.
FOLLOW_SHARE = 0.8
#: A lock whose version is this many heartbeats old is about to expire.
SUSPECT_HEARTBEATS = 1.5
#: Number of workers that scan the leases while they follow; one of them may be the leader itself.
STANDBYS = 3
#: Maximum age of a live worker's metrics, in seconds.
ALIVE_S = 60.0
#: A worker that gave the lock up after failures does not compete for it for this many seconds.
REST_S = 30.0


@dataclass(frozen=True, slots=True)
class LockTiming:
    """Of a lock that this worker has.

    Attributes:
        duration_s: stored; others may take the lock after that time without a heartbeat.
        heartbeat_s: interval of heartbeats, and of reads while following.
        failover_s: of the leases that its leader assigns.
    """

    duration_s: float
    heartbeat_s: float
    failover_s: float


class Phase(Enum):
    """What a worker of a 3.x fleet is to its lock."""

    FOLLOWS = "FOLLOWS"
    LEADS = "LEADS"
    #: Gave the lock up and does not try for it.
    RESTS = "RESTS"


class LockEvent(Enum):
    """The events of the lock."""

    GRANTED = "the lock was free or expired, and is ours"
    REFUSED = "somebody has it"
    RENEWED = "heartbeat answered"
    OVERTAKEN = "heartbeat refused"
    OUTDATED = "no answer until belief ended"
    GIVEN_UP = "given up"
    RESTED = "rested"


#: phase -> what happened -> next phase.
TRANSITIONS: Final[dict[Phase, dict[LockEvent, Phase]]] = {
    Phase.FOLLOWS: {
        LockEvent.GRANTED: Phase.LEADS,
        LockEvent.REFUSED: Phase.FOLLOWS,
        LockEvent.GIVEN_UP: Phase.RESTS,
    },
    Phase.LEADS: {
        LockEvent.RENEWED: Phase.LEADS,
        LockEvent.OVERTAKEN: Phase.FOLLOWS,
        LockEvent.OUTDATED: Phase.FOLLOWS,
        LockEvent.GIVEN_UP: Phase.RESTS,
    },
    Phase.RESTS: {LockEvent.RESTED: Phase.FOLLOWS, LockEvent.GIVEN_UP: Phase.RESTS},
}


def next_phase(phase: Phase, event: LockEvent) -> Phase:
    """The phase after an event.

    Raises:
        ValueError: an event that cannot happen in that phase.
    """
    following = TRANSITIONS[phase].get(event)
    if following is None:
        raise ValueError(f"{event} cannot happen to a worker that {phase.value}")
    return following


class LockMove(Enum):
    """What a follower does about the lock that it has just read."""

    CREATE = "create"
    REPLACE = "replace"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class LockSighting:
    """Since when an observer has seen a version of the lock.

    Attributes:
        since: reading of the monotonic clock after the answer that first had it.
        expires_at: reading of that clock from which on the lock may be taken.
    """

    version: str
    since: float
    expires_at: float


def sight(
    before: LockSighting | None, lock: LockItem | None, answered_at: float
) -> LockSighting | None:
    """Record the result of a read.

    Args:
        lock: as read now; None = there is none.
        answered_at: reading of the monotonic clock after the answer.
    """
    if lock is None:
        return None
    since = answered_at
    if before is not None and before.version == lock.record_version:
        since = before.since
    return LockSighting(lock.record_version, since, since + lock.duration_s)


def follow(
    lock: LockItem | None, sighting: LockSighting | None, now: float, own_versions: Collection[str]
) -> LockMove:
    """Decide how to handle a lock.

    Args:
        lock: as read now; None = there is none.
        sighting: what :func:`sight` made of it.
        now: reading of the monotonic clock.
        own_versions: versions that this very worker may have written: one of them in the table is
            its own lock, which it had stopped believing in.
    """
    if lock is None or sighting is None:
        return LockMove.CREATE
    if lock.is_released or lock.record_version in own_versions or now > sighting.expires_at:
        return LockMove.REPLACE
    return LockMove.WAIT


def believed_until(requested_at: float, duration_s: float) -> float:
    """Until when one's own lock is valid.

    Args:
        requested_at: reading of the monotonic clock before the answered request was sent.
    """
    return requested_at + duration_s * (1 - CLOCK_TOLERANCE)


def look_pause_s(sighting: LockSighting | None, now: float, heartbeat_s: float) -> float:
    """How long a follower waits until its next read.

    Args:
        sighting: the lock as last seen; None = no lock, and another worker was faster to take it.
        now: reading of the monotonic clock.
        heartbeat_s: of this worker, if it led.

    Returns:
        Seconds, above 0; not beyond the time at which the lock expires.
    """
    if sighting is None:
        return heartbeat_s
    share_s = (sighting.expires_at - sighting.since) * LOOK_SHARE
    pause_s = max(heartbeat_s, min(share_s, MOST_PAUSE_S))
    left_s = sighting.expires_at - now
    return min(pause_s, left_s + 0.001) if left_s > 0 else pause_s


def follow_pause_s(heartbeat_s: float, failover_s: float) -> float:
    """Seconds between two reads of the lock of a leader that shows when it has assigned leases.

    Args:
        heartbeat_s: of this worker, if it led.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.
    """
    return min(FOLLOW_HEARTBEATS * heartbeat_s, FOLLOW_SHARE * failover_s, FOLLOW_PAUSE_S)


def is_suspect(sighting: LockSighting | None, now: float, heartbeat_s: float) -> bool:
    """Whether a living leader of ours would have renewed the lock by now.

    Args:
        now: reading of the monotonic clock after a read that showed this version.
        heartbeat_s: of a leader of ours.
    """
    return sighting is not None and now - sighting.since >= SUSPECT_HEARTBEATS * heartbeat_s


def is_standby(worker_id: str, metrics: Iterable[WorkerMetrics], now_s: float) -> bool:
    """Whether a follower is one of those that scan the leases, ready to lead.

    Args:
        worker_id: of the follower.
        metrics: of all workers, the leader's too; a worker may occur twice.
        now_s: epoch seconds.

    Returns:
        True for the first few live workers, and for one that the others don't know yet.
    """
    alive = {one.worker_id for one in metrics if now_s - one.updated_at_s <= ALIVE_S}
    return worker_id not in alive or sorted(alive).index(worker_id) < STANDBYS


def mermaid() -> str:
    """The table as a Mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.FOLLOWS.value}"]
    lines += [
        f"    {phase.value} --> {following.value}: {event.value}"
        for phase, row in TRANSITIONS.items()
        for event, following in row.items()
        if following is not phase or event is LockEvent.RENEWED
    ]
    return "\n".join(lines) + "\n"
