"""Which leases are paused, and who may have them meanwhile.

A pause is an attribute of the row that a Java worker does not know: it reads the shard of any lease
that it gets. So does the version of 2026-11-25. Only a worker whose metrics item says so is known to
honor a pause. In a fleet that works as 2.x each worker takes leases by itself, and nobody can keep
them from one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.kernel.model.text import counted
from mld.leases.model.lease_request import SteerVerb

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable

    from mld.leases.model.lease import Lease

#: The metrics of a worker that lives are not older. Source: two reports of Java (3.5.1).
FRESH_S = 60.0
#: Leases that a line of the log names.
_MOST_NAMED = 20


def is_paused(lease: Lease, now_s: float) -> bool:
    """Whether a lease is to be held and not read, at so many epoch seconds."""
    return lease.paused_until_s is not None and now_s < lease.paused_until_s


def paused_by(lease: Lease) -> str:
    """Who paused a lease, and why, as far as its row says it."""
    note = lease.steered
    if note is None or note.verb != SteerVerb.PAUSE or not note.by:
        return "it is paused"
    return f"paused by {note.by}" + (f" ({note.reason})" if note.reason else "")


def named(leases: Iterable[Lease]) -> str:
    """How many leases, and which, for the log."""
    keys = sorted(one.lease_key for one in leases)
    more = ", …" if len(keys) > _MOST_NAMED else ""
    leases_text = counted(len(keys), "paused lease", "paused leases")
    return f"{leases_text} ({', '.join(keys[:_MOST_NAMED])}{more})"


def read_despite_pause(
    leases: Iterable[Lease], known: Container[str], now_s: float
) -> dict[str, str]:
    """Paused leases whose owner is not known to honor that, and the owner, by key.

    Args:
        known: ids of workers that say so; one that names itself as the holder of a row honors it, too.
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
        leader: id of the worker that assigns leases; None = nobody does, or it is not known.
        others: ids of living workers that are not known to honor a pause; without a leader those
            alone that renew leases.
        is_ours: the leader lives and honors it.

    Returns:
        Why it is refused, "" = it is not; and what the pause does not promise.
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
