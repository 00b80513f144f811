"""How often the leader of a 3.x fleet looks at the table."""

from __future__ import annotations

#: Longest pause between two looks. A counter is known to have moved between two looks only, so the
#: leases of a dead worker are given away within the failover time and this; so long may a new worker
#: or a released lease wait, too. (Java: twice the failover time.)
LONGEST_PAUSE_S = 2.5
#: Shortest pause after one that was asked for.
LEAST_PAUSE_S = 0.2
#: Workers that are started together have told of themselves within so many seconds.
STARTING_S = 3.0
#: Looks that fail in a row until the leader lets another worker lead
#: (LeaseAssignmentManager.DEFAULT_FAILURE_COUNT_TO_SWITCH_LEADER, 3.5.1).
FAILED_LOOKS = 3
#: Looked so much later than a lease expires: expired means more than the failover time.
_AFTER_S = 0.02


def look_pause_s(quiet_s: float | None, failover_s: float) -> float:
    """Seconds until the next look.

    Args:
        quiet_s: how long the counter has stood still that has done so for longest, of leases that
            have not expired; None = there are none.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.
    """
    longest_s = min(LONGEST_PAUSE_S, failover_s / 4)
    if quiet_s is None:
        return longest_s
    return min(longest_s, failover_s - quiet_s + _AFTER_S)


def failed_pause_s(failover_s: float) -> float:
    """Seconds until the next look after one that failed: three of them outlast a short trouble."""
    return failover_s / 2


def asked_pause_s(since_start_s: float, since_look_s: float | None) -> float:
    """Seconds until a look that was asked for, so that many calls in a row make one.

    A leader that has followed before looks at once. One that has just started leaves the others
    that start with it a moment to tell of themselves: without it, it gives all leases to itself,
    and hands most of them over two seconds later.

    Args:
        since_start_s: since this worker began to follow or to lead.
        since_look_s: since its last look; None = there was none.
    """
    if since_look_s is None:
        return LEAST_PAUSE_S if since_start_s < STARTING_S else 0.0
    return max(0.0, LEAST_PAUSE_S - since_look_s)
