"""Which leases are paused, and which workers may own them meanwhile.

A pause is an attribute of the row that Java workers and the version of 2026-11-25 ignore: they read
the shard of any lease that they get. A worker honors a pause only if its metrics item says so. In a
2.x fleet, each worker takes leases by itself, and no worker can be kept from a lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.kernel.model.text import counted
from kcl_mld.leases.model.lease_request import SteerVerb

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable

    from kcl_mld.leases.model.lease import Lease

#: Maximum age in seconds of a live worker's metrics. Source: two reports of Java (3.5.1).
FRESH_S = 60.0
#: Number of leases that a log line names.
_MOST_NAMED = 20


def is_paused(lease: Lease, now_s: float) -> bool:
    """Whether a lease is to be held but not read at ``now_s`` (epoch seconds)."""
    return lease.paused_until_s is not None and now_s < lease.paused_until_s


def paused_by(lease: Lease) -> str:
    """Who paused a lease, and why, as stored in its row."""
    note = lease.steered
    if note is None or note.verb != SteerVerb.PAUSE or not note.by:
        return "it is paused"
    return f"paused by {note.by}" + (f" ({note.reason})" if note.reason else "")


def named(leases: Iterable[Lease]) -> str:
    """The number of leases and the first keys, for the log."""
    keys = sorted(one.lease_key for one in leases)
    more = ", …" if len(keys) > _MOST_NAMED else ""
    leases_text = counted(len(keys), "paused lease", "paused leases")
    return f"{leases_text} ({', '.join(keys[:_MOST_NAMED])}{more})"


def read_despite_pause(
    leases: Iterable[Lease], known: Container[str], now_s: float
) -> dict[str, str]:
    """Paused leases whose owner is not known to honor a pause: key -> owner.

    Args:
        known: ids of workers that honor a pause. The worker that a row names as its ``holder``
            honors it, too.
        now_s: epoch seconds.
    """
    return {
        lease.lease_key: owner
        for lease in leases
        if is_paused(lease, now_s)
        and not lease.is_finished
        and (owner := lease.actual_owner) is not None
        and lease.holder != owner
        and owner not in known
    }


def judge_pause(leader: str | None, others: Collection[str], *, is_ours: bool) -> tuple[str, str]:
    """Whether owners may be asked for a pause.

    Args:
        leader: id of the worker that assigns leases; None = there is none, or it is unknown.
        others: ids of live workers that are not known to honor a pause; without a leader, only
            those that renew leases.
        is_ours: the leader is alive and honors a pause.

    Returns:
        The reason for a refusal, "" = none; and the limits of the pause.
    """
    them = ", ".join(sorted(others))
    if leader is None:
        if them:
            return (
                f"{them} is not a kcl-mld worker, and would read the shard if it got the lease",
                "",
            )
        return "", (
            "no promise: nobody assigns leases in this fleet, so a worker that is not kcl-mld, or is "
            "older, would read the shard if it took the lease"
        )
    if not them:
        return "", ""
    if is_ours:
        return "", f"{them} would read the shard; {leader} leads and gives it to none of them"
    return f"{leader} leads, and may give the lease to {them}, which would read the shard", ""
