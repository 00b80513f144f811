"""What people may ask of leases, and what their requests mean to the worker that holds one.

A row that nobody renews is written by the command. A row with a living holder of ours gets a
request. A row that any other program renews is left alone: its owner would not notice, and its next
checkpoint would undo the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.leases.model.containment import NO_FAILURE
from kcl_mld.leases.model.lease_request import SteerVerb
from kcl_mld.leases.rules.pausing import FRESH_S, judge_pause
from kcl_mld.leases.rules.requests import asked_text
from kcl_mld.streams.rules.existence import ShardExistence, shard_existence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.rules.watching import Snapshots


class SteerWay(StrEnum):
    """How a change gets into a row."""

    WRITE = "write"
    ASK = "ask"
    TOGETHER = "together"
    NONE = "none"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SteerStep:
    """What is to be done to one lease.

    Attributes:
        lease: the row as it was read last.
        way: ``WRITE``: nobody renews the row. ``ASK``: its owner is one of ours. ``TOGETHER``: in
            one transaction with others; the row may not be there.
        position: the checkpoint to store; None unless a reset.
        why: why nothing is done, or why it is refused.
        notes: what it means for the shard and its relatives.
    """

    lease: Lease
    way: SteerWay
    position: ExtendedSequenceNumber | None = None
    why: str = ""
    notes: tuple[str, ...] = ()


def plan_withdrawal(lease: Lease, now_s: float) -> SteerStep:
    """What it means to take back what the holder of a lease is asked.

    Args:
        lease: as it was read.
        now_s: epoch seconds.
    """
    request = lease.request
    if request is None:
        return SteerStep(lease=lease, way=SteerWay.NONE, why="nothing is asked")
    return SteerStep(lease=lease, way=SteerWay.WRITE, notes=(asked_text(lease, request, now_s),))


def plan_step(
    watch: Snapshots,
    lease: Lease,
    verb: SteerVerb,
    failover_s: float,
    position: ExtendedSequenceNumber | None = None,
) -> SteerStep:
    """What a request means for one lease.

    Args:
        watch: looks at the table, over the failover time unless each owner was seen to live.
        lease: of the last look.
        failover_s: ``failoverTimeMillis``, in seconds.
        position: of a reset; None = not looked for yet.
    """
    way, why = way_of(watch, lease, failover_s)
    more: tuple[str, ...] = ()
    if lease.is_finished and verb is not SteerVerb.DELETE:
        way, why = SteerWay.REFUSED, "the shard was read to its end: its children are read now"
    if way in (SteerWay.WRITE, SteerWay.ASK):
        match verb:
            case SteerVerb.RESET:
                way, why = _reset(watch, lease, way, position)
            case SteerVerb.RELEASE if lease.lease_owner is None:
                way, why = SteerWay.NONE, "it has no owner"
            case SteerVerb.PAUSE if way is SteerWay.WRITE:
                way, why = SteerWay.REFUSED, _unread(lease)
            case SteerVerb.PAUSE:
                why, note = _pause(watch)
                way, more = (SteerWay.REFUSED if why else way), (note,) if note else ()
            case SteerVerb.RESUME if lease.paused_until_s is None:
                way, why = SteerWay.NONE, "it is not paused"
            case SteerVerb.DELETE:
                way, why = _delete(watch, lease, way)
            case _:
                pass
    notes = more if position is None else tuple(_notes(watch, lease, position))
    return SteerStep(lease=lease, way=way, position=position, why=why, notes=notes)


def way_of(watch: Snapshots, lease: Lease, failover_s: float) -> tuple[SteerWay, str]:
    """Whether a row may be written, its owner be asked, or neither, and why; as :func:`plan_step`."""
    if lease.actual_owner is None:
        return SteerWay.WRITE, ""
    owners = (lease.lease_owner, lease.checkpoint_owner)
    rows = [row for _look, row in watch.rows(lease.lease_key)]
    is_still = all(
        (row.lease_owner, row.checkpoint_owner) == owners
        and row.lease_counter == lease.lease_counter
        for row in rows
    )
    if is_still and watch.still_s(lease.lease_key) >= failover_s:
        return SteerWay.WRITE, ""
    if is_still:
        return SteerWay.REFUSED, "it was not seen for failoverTimeMillis: run the command again"
    if lease.is_handed_over:
        why = f"{lease.checkpoint_owner} hands it over to {lease.lease_owner}: run it again soon"
        return SteerWay.REFUSED, why
    if lease.is_held_by_ours:
        return SteerWay.ASK, ""
    return SteerWay.REFUSED, (
        f"{lease.lease_owner} renews it and is not a kcl-mld worker, so it can't be asked: stop it, "
        "and run the command once failoverTimeMillis is over"
    )


def _reset(
    watch: Snapshots, lease: Lease, way: SteerWay, position: ExtendedSequenceNumber | None
) -> tuple[SteerWay, str]:
    if position is None:
        return way, ""
    if position.sentinel is not Sentinel.TRIM_HORIZON and (open_ := open_parents(watch, lease)):
        return SteerWay.REFUSED, (
            f"it begins when its parents are finished, and {', '.join(open_)} is not: reset that one"
        )
    is_clean = lease.pending_checkpoint is None and not lease.skipped
    if position == lease.checkpoint and is_clean and lease.failure == NO_FAILURE:
        return SteerWay.NONE, "its checkpoint is there already"
    return way, ""


def open_parents(watch: Snapshots, lease: Lease) -> list[str]:
    """Keys of its parents whose rows say that they are not finished."""
    rows = watch.last.leases
    keys = [lease.key_of(one) for one in lease.parent_shard_ids]
    return [key for key in keys if key in rows and not rows[key].is_finished]


def _delete(watch: Snapshots, lease: Lease, way: SteerWay) -> tuple[SteerWay, str]:
    """Only what no worker makes again and nobody goes on from."""
    if way is SteerWay.ASK:
        return SteerWay.REFUSED, f"{lease.lease_owner} renews it"
    stream = watch.streams.get(lease.stream_identifier)
    if stream is not None and not stream.is_listed:
        return way, ""
    listed = watch.listed.get(lease.stream_identifier)
    if stream is None or stream.gone is not None or not listed:
        why = "the shards of its stream are not known"
        return SteerWay.REFUSED, why if stream is None else stream.gone or stream.unknown or why
    found = shard_existence(lease.shard_id, None, listed.values(), watch.last.wall_s)
    if found is ShardExistence.TRIMMED:
        return way, ""
    return SteerWay.REFUSED, "the stream still has its shard, or never had it"


def _unread(lease: Lease) -> str:
    owner = lease.actual_owner
    if owner is None:
        return "no worker owns it, so there is nothing to pause"
    return (
        f"{owner} has not renewed it for failoverTimeMillis, so it can't be asked: it is dead, stands "
        "still, or can't write the table; kcl-mld explain says what to do"
    )


def _pause(watch: Snapshots) -> tuple[str, str]:
    """Why a pause is refused, and what it does not promise."""
    items, others = watch.last.items, foreign_owners(watch)
    leader = None if items is None else items.leader
    if items is None or leader is None:
        return judge_pause(None, others, is_ours=False)
    known, now_s = items.honoring, watch.last.wall_s
    fresh = {one for one, at_s in items.written_at_s.items() if now_s - at_s <= FRESH_S}
    is_ours = leader in known and (leader in fresh or leader in living_owners(watch))
    return judge_pause(leader, others | (fresh - known), is_ours=is_ours)


def living_owners(watch: Snapshots) -> dict[str, bool]:
    """Owners that were seen to renew a lease; whether they are workers of ours."""
    found: dict[str, bool] = {}
    for lease in watch.last.leases.values():
        owner = lease.actual_owner
        is_moving = any(
            row.lease_counter != lease.lease_counter for _look, row in watch.rows(lease.lease_key)
        )
        if owner is not None and is_moving:
            found[owner] = found.get(owner, True) and lease.holder == owner
    return found


def foreign_owners(watch: Snapshots) -> set[str]:
    """Owners that were seen to renew a lease, and are no workers of ours."""
    return {owner for owner, is_ours in living_owners(watch).items() if not is_ours}


def _notes(watch: Snapshots, lease: Lease, position: ExtendedSequenceNumber) -> Iterable[str]:
    now = lease.checkpoint
    if now is not None and position < now and now.sentinel is None:
        yield "records from there on come again"
    elif now is not None and position > now and now.sentinel is not Sentinel.LATEST:
        yield "records up to there are skipped"
    parents = [one for one in lease.parent_shard_ids if lease.key_of(one) in watch.last.leases]
    if position.sentinel is Sentinel.TRIM_HORIZON and lease.parent_shard_ids:
        if open_parents(watch, lease):
            yield "it waits for its parents as before"
        else:
            named = ", ".join(parents or lease.parent_shard_ids)
            yield f"it begins at its start; its parents ({named}) are not read again"
