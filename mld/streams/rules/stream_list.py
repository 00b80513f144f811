"""Which streams are read, and what becomes of the leases of those that are not any more.

A list of an account's streams that could not be read to its end never gets here: its error leaves
everything as it is. A list without any stream is not believed where streams were found before: a
stream that was really deleted is noticed when it is read.

A worker that leads looks once a minute at streams that left the list, or that Kinesis has no more.
By strategy it deletes the leases of a former stream when it has been one for a while. With any
strategy those of a stream go that was in the list of this very worker, left it, and does not exist
any more.

Source: Scheduler.checkAndSyncStreamShardsAndLeases (Scheduler.java:717-896) and
FormerStreamsLeasesDeletionStrategy (KCL 3.5.1). Two things are stricter: a stream has to be absent
for a minute, and nothing is deleted by a worker that finds no stream of its list, because it may be
looking in the wrong place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mld.config.stream_list import FormerStrategy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mld.config.stream_list import StreamSelection

#: Streams whose tags are asked for, a second: ListTagsForStream is limited to five a second and
#: account, for all workers together (Kinesis API reference).
TAGS_PER_S = 1.0

#: Between two looks of the leader; also how long a stream has to be absent.
LOOK_S = 60.0


@dataclass(frozen=True, slots=True)
class FoundStreams:
    """What was found.

    Attributes:
        seen: name -> when it was last there (monotonic seconds), of each stream that is to be read.
        too_many: names that are not read because of ``maxStreams``, sorted.
        ignored_empty: True when an empty list was not believed.
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
    """Which streams are read from now on.

    Args:
        before: ``FoundStreams.seen`` of the look before.
        listed: names of all streams of the account.
        chosen: those of them that meet the rule.
        now: monotonic seconds.
    """
    if before and not listed:
        return FoundStreams(before, ignored_empty=True)
    kept = {name: at for name, at in before.items() if now - at < selection.grace_s}
    seen = kept | dict.fromkeys(chosen, now)
    limit = selection.max_streams
    if not limit or len(seen) <= limit:
        return FoundStreams(seen)
    # Those that are read stay; a new one must not push them out.
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
    """Streams whose tags are asked for in this look, in order.

    Streams without known tags come first, all of them; of the others those that were asked longest
    ago, as many as :data:`TAGS_PER_S` allows in the time between two looks, at least one.

    Args:
        names: of streams that may be meant.
        now: monotonic seconds.
        interval_s: mean time between two looks.
    """
    names = sorted(names)
    new = [name for name in names if name not in known]
    # A look comes after half of the mean time at the earliest.
    old = [name for name in names if name in known and now - known[name].asked_at >= interval_s / 2]
    old.sort(key=lambda name: known[name].asked_at)
    return (*new, *old[: max(1, int(interval_s * TAGS_PER_S) - len(new))])


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
    """Judge the former streams.

    Args:
        pending: what the look before left.
        wait_s: how long a stream has to be a former one.

    Returns:
        What to remember, and the streams whose leases are deleted now, sorted. A stream whose
        deletion fails is due again at the next look.
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
