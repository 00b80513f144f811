"""Which streams are read, and which leases of former streams are deleted.

An incomplete list of an account's streams is never used: its error leaves everything as it is. An
empty list is ignored if streams were found before: a deleted stream is detected when it is read.

Once a minute, the leader checks streams that left the list, or that Kinesis no longer has.
Depending on the strategy, it deletes the leases of a stream that has been a former one for long
enough. With any strategy, it deletes those of a stream that was in this worker's list, left it, and
no longer exists.

Source: Scheduler.checkAndSyncStreamShardsAndLeases (Scheduler.java:717-896) and
FormerStreamsLeasesDeletionStrategy (KCL 3.5.1). Two rules are stricter: a stream has to be absent
for a minute, and a worker that finds no stream of its list deletes nothing, because it may use the
wrong account or region.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcl_mld.config.stream_list import FormerStrategy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kcl_mld.config.stream_selection import StreamSelection

#: Streams whose tags are asked for, a second: ListTagsForStream is limited to five a second and
#: account, for all workers together (Kinesis API reference).
TAGS_PER_S = 1.0

#: Seconds between two checks of the leader; also how long a stream has to be absent.
LOOK_S = 60.0


@dataclass(frozen=True, slots=True)
class FoundStreams:
    """The result of a list.

    Attributes:
        seen: name -> when it was last found (monotonic seconds), of each stream to read.
        too_many: names that are not read because of ``maxStreams``, sorted.
        ignored_empty: True when an empty list was ignored.
    """

    seen: Mapping[str, float]
    too_many: tuple[str, ...] = ()
    ignored_empty: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the streams that are to be read, sorted."""
        return tuple(sorted(self.seen))


def found(
    before: Mapping[str, float],
    listed: Collection[str],
    chosen: Collection[str],
    now: float,
    selection: StreamSelection,
) -> FoundStreams:
    """Which streams to read from now on.

    Args:
        before: ``FoundStreams.seen`` of the previous list.
        listed: names of all streams of the account.
        chosen: those of them that match the rule.
        now: monotonic seconds.
    """
    if before and not listed:
        return FoundStreams(before, ignored_empty=True)
    kept = {name: at for name, at in before.items() if now - at < selection.grace_s}
    seen = kept | dict.fromkeys(chosen, now)
    limit = selection.max_streams
    if not limit or len(seen) <= limit:
        return FoundStreams(seen)
    # Streams that are read stay; a new one must not replace them.
    ranked = sorted(seen, key=lambda name: (name not in before, name))
    return FoundStreams(
        {name: seen[name] for name in ranked[:limit]}, tuple(sorted(ranked[limit:]))
    )


@dataclass(frozen=True, slots=True)
class KnownTags:
    """Tags of a stream as of a time.

    Attributes:
        tags: key -> value.
        asked_at: monotonic seconds.
    """

    tags: Mapping[str, str]
    asked_at: float


def tags_to_ask(
    names: Iterable[str], known: Mapping[str, KnownTags], now: float, interval_s: float
) -> tuple[str, ...]:
    """Streams whose tags are requested with this list, in order.

    Streams without known tags come first, all of them. Of the others, those with the oldest tags
    follow: as many as :data:`TAGS_PER_S` allows in the time between two lists, at least one.

    Args:
        names: of streams that may match.
        now: monotonic seconds.
        interval_s: mean time between two lists.
    """
    names = sorted(names)
    new = [name for name in names if name not in known]
    # The next list comes after half of the mean time at the earliest.
    old = [name for name in names if name in known and now - known[name].asked_at >= interval_s / 2]
    old.sort(key=lambda name: known[name].asked_at)
    return (*new, *old[: max(1, int(interval_s * TAGS_PER_S) - len(new))])


@dataclass(frozen=True, slots=True)
class Pending:
    """What a leader remembers between checks; another leader starts over.

    Attributes:
        former: identifier -> since when it is a former stream (monotonic seconds).
        absent: identifier -> since when Kinesis does not know it.
    """

    former: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStreams:
    """Streams as a leader sees them at one time, named ``account:name:epoch``.

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


def judge_former(
    pending: Pending, streams: SeenStreams, strategy: FormerStrategy, wait_s: float
) -> tuple[Pending, tuple[str, ...]]:
    """Decide which former streams lose their leases.

    Args:
        pending: the result of the previous check.
        wait_s: how long a stream has to be a former one.

    Returns:
        What to remember, and the streams whose leases are deleted now, sorted. A stream whose
        deletion fails is due again at the next check.
    """
    former = set(streams.leased) - set(streams.listed)
    waiting: Iterable[str]
    match strategy:
        case FormerStrategy.NO_DELETION:
            waiting = ()
        case FormerStrategy.AUTO_DETECTION:
            waiting = former
        case _:  # PROVIDED_LIST
            waiting = former & set(streams.named)
    after = Pending(
        {one: pending.former.get(one, streams.now) for one in waiting},
        {one: pending.absent.get(one, streams.now) for one in former & set(streams.absent)},
    )
    if not streams.followed:
        return after, ()
    due = {one for one, since in after.former.items() if streams.now - since >= wait_s}
    due |= {one for one, since in after.absent.items() if streams.now - since >= LOOK_S}
    # Another worker may have found a new stream first: our list must be younger than its leases.
    seen = {**after.absent, **after.former}
    return after, tuple(sorted(one for one in due if seen[one] < streams.list_read_at))
