"""What becomes of the leases of streams that left the list, or that Kinesis has no more.

A worker that leads looks once a minute. By strategy it deletes the leases of a former stream when
it has been one for a while. With any strategy those of a stream go that was in the list of this
very worker, left it, and does not exist any more.

Source: Scheduler.checkAndSyncStreamShardsAndLeases (Scheduler.java:717-896) and
FormerStreamsLeasesDeletionStrategy (KCL 3.5.1). Two things are stricter: a stream has to be absent
for a minute, and nothing is deleted by a worker that finds no stream of its list, because it may be
looking in the wrong place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mld.model.streams.former_policy import FormerStrategy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

#: Between two looks of the leader; also how long a stream has to be absent.
LOOK_S = 60.0


@dataclass(frozen=True, slots=True)
class Pending:
    """What a leader remembers from look to look; another leader begins anew.

    Attributes:
        former: identifier -> since when the stream is waited for (monotonic seconds).
        absent: identifier -> since when Kinesis does not know it.
    """

    former: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a look finds; streams are named ``account:name:epoch``.

    Attributes:
        leased: streams that have leases in the table.
        listed: those of them that are in the list, or may be.
        named: those that ``formerStreamsForLeaseCleanup`` names.
        absent: those that were in the list and that Kinesis does not know now.
        followed: how many streams of the list were found.
        list_read_at: when the list was last known to be read; -inf when its last reading failed.
        now: monotonic seconds.
    """

    leased: Collection[str]
    listed: Collection[str]
    named: Collection[str] = ()
    absent: Collection[str] = ()
    followed: int = 1
    list_read_at: float = float("inf")
    now: float = 0.0


def look(
    pending: Pending, sight: Sight, strategy: FormerStrategy, wait_s: float
) -> tuple[Pending, tuple[str, ...]]:
    """Judge the former streams.

    Args:
        pending: what the look before left.
        sight: what there is now.
        strategy: what is done with former streams.
        wait_s: how long a stream has to be a former one.

    Returns:
        What to remember, and the streams whose leases are deleted now, sorted. A stream whose
        deletion fails is due again at the next look.
    """
    former = set(sight.leased) - set(sight.listed)
    waiting: Iterable[str]
    match strategy:
        case FormerStrategy.NO_DELETION:
            waiting = ()
        case FormerStrategy.AUTO_DETECTION:
            waiting = former
        case _:  # PROVIDED_LIST
            waiting = former & set(sight.named)
    after = Pending(
        {one: pending.former.get(one, sight.now) for one in waiting},
        {one: pending.absent.get(one, sight.now) for one in former & set(sight.absent)},
    )
    if not sight.followed:
        return after, ()
    due = {one for one, since in after.former.items() if sight.now - since >= wait_s}
    due |= {one for one, since in after.absent.items() if sight.now - since >= LOOK_S}
    # Another worker may have found a new stream first: our list must be younger than its leases.
    seen = {**after.absent, **after.former}
    return after, tuple(sorted(one for one in due if seen[one] < sight.list_read_at))
