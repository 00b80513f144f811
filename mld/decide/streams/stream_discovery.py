"""Which streams are read, from what an account's list of streams says now and said before.

A list that could not be read to its end never gets here: its error leaves everything as it is. A
list without any stream is not believed where streams were found before: a stream that was really
deleted is noticed when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mld.model.streams.stream_selection import StreamSelection

#: Streams whose tags are asked for, a second: ListTagsForStream is limited to five a second and
#: account, for all workers together (Kinesis API reference).
TAGS_PER_S = 1.0


@dataclass(frozen=True, slots=True)
class FoundStreams:
    """What was found.

    Attributes:
        seen: name -> when it was last there (monotonic seconds), of each stream that is to be read.
        too_many: names that are not read because of ``maxStreams``, sorted.
        doubted: True when an empty list was not believed.
    """

    seen: Mapping[str, float]
    too_many: tuple[str, ...] = ()
    doubted: bool = False

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
        selection: the rule.
    """
    if before and not listed:
        return FoundStreams(before, doubted=True)
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
        known: what is remembered.
        now: monotonic seconds.
        interval_s: mean time between two looks.
    """
    names = sorted(names)
    new = [name for name in names if name not in known]
    # A look comes after half of the mean time at the earliest.
    old = [name for name in names if name in known and now - known[name].asked_at >= interval_s / 2]
    old.sort(key=lambda name: known[name].asked_at)
    return (*new, *old[: max(1, int(interval_s * TAGS_PER_S) - len(new))])
