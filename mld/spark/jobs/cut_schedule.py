"""When the buffers of all shards are cut together, and how much of each goes into the job.

A job's fixed price is paid once for whatever is in it, so when one shard's batch is due, what all
shards of the host have is cut in the same moment. The moment waits until a job may begin: until
then the buffers fill, and the job is the larger. What a job may hold is bounded as a whole, and of
that bound no shard gets more than its fair share while another one wants it.

Which shards may get their next records is decided here, too, so that a host's memory does not grow
with its shards. Each shard that reads a backlog is handed up to 10 MB at a time. What all shards of
a host hold is bounded: a shard whose next delivery would exceed the bound withholds its status until
jobs have made room, and then the daemon sends it nothing. The first to ask is let in first. The size
of a delivery is not known before it is there, so it is expected to be like the last one. If none
comes, because the shard has been read to its tip, it counts only for a moment.

Pure: time is handed in, and the engine's lock is around every call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future

    from kcl_mld.spark.model import ShardBatch, ShardKey

#: How long a delivery is expected to come, in s: much longer than one takes that is there already.
GRANT_S = 0.5


@dataclass(frozen=True, slots=True)
class Offer:
    """What a shard would give to a job.

    Attributes:
        first_bytes: payload of its first record, which goes whole or not at all, in bytes.
        most_bytes: payload of all that fits into one batch of the shard, in bytes.
        is_full: True if no more fits, by bytes or by records.
    """

    first_bytes: int
    most_bytes: int
    is_full: bool = False


class Source(Protocol):
    """The buffer of one hold of a shard."""

    @property
    def shard(self) -> ShardKey:
        """Whose records they are."""

    @property
    def held_bytes(self) -> int:
        """What its records take in memory, until they are committed."""

    def offer(self) -> Offer | None:
        """What it would give; None while there is nothing, or no room for a batch of the shard."""


class BatchSource(Source, Protocol):
    """The same, as the engine asks it for batches."""

    has_asked: bool

    def ask(self) -> bool:
        """Ask for a cut, if there is something to cut; whether it did."""

    def cut(self, most_bytes: int) -> tuple[ShardBatch, Future[None]]:
        """A batch of what it has, and the future that gets its outcome."""

    def is_wanted(self) -> bool:
        """False once the shard is lost, or a batch of it has failed."""

    def wake(self) -> None:
        """It may ask for a delivery again."""


S = TypeVar("S", bound=Source)


class CutSchedule(Generic[S]):
    """Whose buffers are cut together, and whose batch is due.

    Args:
        window_s: how long a moment waits for further batches that become due, in s.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._sources: list[S] = []
        self._due: dict[S, float] = {}

    def join(self, source: S) -> None:
        """Cut it with the others from now on."""
        self._sources.append(source)

    def leave(self, shard: ShardKey, hold: object) -> list[S]:
        """Forget the sources of a shard; ``hold`` is the source itself, None = whichever.

        Returns:
            those that were there.
        """
        gone = [s for s in self._sources if s.shard == shard and hold in (None, s)]
        for each in gone:
            self._sources.remove(each)
            self._due.pop(each, None)
        return gone

    def ask(self, source: S, now: float) -> None:
        """A batch of this source is due, if it has not left."""
        if source in self._sources:
            self._due.setdefault(source, now)

    def patience_s(self, now: float) -> float | None:
        """How long until the moment, in s, <= 0 if it has come; None while nothing can be cut."""
        since = [began for each, began in self._due.items() if each.offer()]
        return min(since) + self._window_s - now if since else None

    def cut(self, cap_bytes: int) -> list[tuple[S, int, float]]:
        """What goes into a job now; these sources are not due any more.

        Args:
            cap_bytes: payload that the job may hold, in bytes.

        Returns:
            sources, the payload that each may give, in bytes, and since when the oldest of them
            was due. Those that have waited longest come first, and no shard waits for ever: one that is
            left out becomes due, or is.
        """
        offers = [(each, offer) for each in self._sources if (offer := each.offer()) is not None]
        offers.sort(key=lambda pair: self._due.get(pair[0], float("inf")))
        given = allowances([offer for _, offer in offers], cap_bytes)
        chosen = [
            (each, most) for (each, _), most in zip(offers, given, strict=True) if most is not None
        ]
        since = min(self._due.get(each, float("inf")) for each, _ in chosen) if chosen else 0.0
        for each, _ in chosen:
            self._due.pop(each, None)
        return [(each, most, since) for each, most in chosen]

    @property
    def offers(self) -> list[Offer]:
        """What the sources would give together."""
        return [offer for each in self._sources if (offer := each.offer()) is not None]

    @property
    def sources(self) -> list[S]:
        """All that have joined and not left."""
        return list(self._sources)

    @property
    def held_bytes(self) -> int:
        """What all of them hold, in bytes."""
        return sum(each.held_bytes for each in self._sources)

    @property
    def is_due(self) -> bool:
        """True if a batch of any source is due."""
        return bool(self._due)


def allowances(offers: Sequence[Offer], cap_bytes: int) -> list[int | None]:
    """How much payload each shard may put into one job.

    Args:
        offers: in the order of precedence.
        cap_bytes: of the whole, >= 1.

    Returns:
        for each offer bytes, at least its first record's; None = not in this job. Together they
        are within the cap, unless the first offer's first record alone exceeds it.
    """
    share = fair_share([offer.most_bytes for offer in offers], cap_bytes)
    given: list[int | None] = []
    left = cap_bytes
    for offer in offers:
        wanted = max(offer.first_bytes, min(offer.most_bytes, share))
        if given and wanted > left:
            wanted = left if offer.first_bytes <= left else -1
        given.append(wanted if wanted >= 0 else None)
        left -= max(wanted, 0)
    return given


def fair_share(sizes: Iterable[int], cap_bytes: int) -> int:
    """The largest share that every shard can have: one that has less leaves the rest to the others.

    Args:
        sizes: what each would take, in bytes.
        cap_bytes: what there is for all.

    Returns:
        the greatest level so that the sizes, each cut at the level, fit; the cap if all fit.
    """
    left, ascending = cap_bytes, sorted(sizes)
    for number, size in enumerate(ascending):
        level = left // (len(ascending) - number)
        if size > level:
            return level
        left -= size
    return cap_bytes


class DeliveryBudget(Generic[S]):
    """Who waits for a delivery, and who may have one.

    Args:
        limit_bytes: what all shards may hold together, > 0.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: dict[S, None] = {}
        self._granted: dict[S, tuple[int, float]] = {}

    def admit(self, who: S, expected_bytes: int, held_bytes: int, now: float) -> bool:
        """Ask for a delivery; a shard that is refused keeps its place in the queue and asks again.

        Args:
            expected_bytes: of the delivery. Where no shard holds anything it may exceed the bound.
            held_bytes: by all shards now.
            now: monotonic time in s.
        """
        self._granted = {
            each: (size, until)
            for each, (size, until) in self._granted.items()
            if until > now and each != who
        }
        self._waiting.setdefault(who)
        taken = held_bytes + sum(size for size, _ in self._granted.values())
        if who != self.first or (taken and taken + expected_bytes > self._limit_bytes):
            return False
        del self._waiting[who]
        self._granted[who] = expected_bytes, now + GRANT_S
        return True

    def arrived(self, who: S) -> None:
        """Its delivery is there, and is among what is held."""
        self._granted.pop(who, None)

    def leave(self, who: S) -> None:
        """It wants nothing any more."""
        self._granted.pop(who, None)
        self._waiting.pop(who, None)

    @property
    def first(self) -> S | None:
        """The shard whose turn it is; None = none waits."""
        return next(iter(self._waiting), None)
