"""What the judges share: the world as they have seen it, and their verdicts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.rows import position_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.sim.rows import Item
    from tests.sim.stream import SimStream, SimStreams
    from tests.sim.trace import Trace


#: Who resets, pauses and releases leases.
OPERATOR = "steerer"


@dataclass
class Violation:
    """One rule, broken once."""

    rule: str
    text: str
    at_s: float

    def __str__(self) -> str:
        return f"{self.rule} at {self.at_s:.3f} s: {self.text}"


@dataclass
class ShardLog:
    """What has become of one shard's records.

    Attributes:
        done: per index, whether some child has processed it.
        prefix: number of leading records that are done.
        ended: SHARD_END was durable at some time.
        begun: a child was initialized for it.
        leased: it has had a lease.
        dead: indices that are dead letters.
        confirmed: per index, whether the child that had it has confirmed it, or a former holder has.
        confirmed_prefix: number of leading records that are confirmed.
        given_s: index -> when the holder's child was last given it.
        dropped_from: who held its lease each time that an operator deleted it; None = nobody.
    """

    done: list[bool] = field(default_factory=list)
    prefix: int = 0
    ended: bool = False
    begun: bool = False
    leased: bool = False
    dead: set[int] = field(default_factory=set)
    confirmed: list[bool] = field(default_factory=list)
    confirmed_prefix: int = 0
    given_s: dict[int, float] = field(default_factory=dict)
    dropped_from: set[str | None] = field(default_factory=set)

    @property
    def row_dropped(self) -> bool:
        """An operator has deleted its lease."""
        return bool(self.dropped_from)

    def begin_at(self, index: int) -> None:
        """On purpose: what comes before that is done or skipped, all else is to come again."""
        self.done = [True] * index
        self.prefix = index
        self.dead.clear()
        self.hold_from(index)

    def hold_from(self, index: int) -> None:
        """A hold begins: what was confirmed behind the checkpoint before it is not known to it."""
        self.confirmed = [True] * index
        self.confirmed_prefix = index
        self.given_s.clear()

    def confirm(self, index: int) -> None:
        """A record may be left behind by a checkpoint."""
        if index >= len(self.confirmed):
            self.confirmed.extend([False] * (index + 1 - len(self.confirmed)))
        self.confirmed[index] = True
        while self.confirmed_prefix < len(self.confirmed) and self.confirmed[self.confirmed_prefix]:
            self.confirmed_prefix += 1

    def is_confirmed(self, index: int) -> bool:
        """Whether :meth:`confirm` was told so."""
        return index < len(self.confirmed) and self.confirmed[index]

    def is_done(self, index: int) -> bool:
        """Whether some child has processed a record."""
        return index < len(self.done) and self.done[index]

    def mark(self, index: int) -> bool:
        """Note one record; False when it had been done before."""
        if index >= len(self.done):
            self.done.extend([False] * (index + 1 - len(self.done)))
        first = not self.done[index]
        self.done[index] = True
        while self.prefix < len(self.done) and self.done[self.prefix]:
            self.prefix += 1
        return first


@dataclass
class Handover:
    """The last change of a lease's owner."""

    at_s: float
    old_owner: str | None
    deadline_s: float


class Court:
    """One run before its judges.

    Args:
        stream: with the truth about every record.
        trace: takes the verdicts too.
        now: virtual seconds.
        failover_s: of the whole fleet.
        all_shards_matter: every shard has to be read; False with LATEST, where those that were
            closed before the first start never get a lease.
        believers: worker id -> lease keys that a live worker of ours believes to hold right now.

    Attributes:
        actor: whose request is having its effect; set by the ports.
        lost: "stream" or "table" that was deleted, "" = none.
        lost_s: when.
        calm: faults are off: belief in a stolen lease must end with the next renewal.
        foreigners: fleet members of version 3.x, and operators, who may write what we may not.
        by_counter: workers of version 2.x, whose writes name the counter alone and not the owner.
        rows: stored leases by key, as of now.
        handovers: the last change of owner of each lease that had one.
        duplicates: records that were processed more than once.
        counts: what has happened how often.
        clock_skew_s: by which the wall clocks of two workers may differ.
    """

    def __init__(
        self,
        stream: SimStream | SimStreams,
        trace: Trace,
        now: Callable[[], float],
        *,
        failover_s: float,
        all_shards_matter: bool,
        believers: Callable[[], Mapping[str, Sequence[str]]],
    ) -> None:
        self.stream = stream
        self.trace = trace
        self.now = now
        self.failover_s = failover_s
        self.all_shards_matter = all_shards_matter
        self.believers = believers
        self.violations: list[Violation] = []
        self.actor = ""
        self.lost = ""
        self.lost_s = 0.0
        self.calm = False
        #: Since when all children behave and nothing is done to workers; None = not yet.
        self.polite_s: float | None = None
        #: An answered batch is confirmed where a shard has several children.
        self.answers_confirm = False
        self.foreigners: set[str] = set()
        self.by_counter: set[str] = set()
        self.logs: dict[str, ShardLog] = {}
        self.duplicates = 0
        self.clock_skew_s = 0.0
        #: Worker -> when its process began, the last one under that id.
        self.began_s: dict[str, float] = {}
        #: Worker -> the last time for which it could not reach the table, as (from, to).
        self.cut_off_s: dict[str, tuple[float, float]] = {}
        self.counts: Counter[str] = Counter()
        self.rows: dict[str, Item] = {}
        self.handovers: dict[str, Handover] = {}

    def convict(self, rule: str, text: str) -> None:
        """Note a violation."""
        self.trace.add("", f"VIOLATION {rule}: {text}")
        self.violations.append(Violation(rule, text, self.now()))

    def log(self, shard_id: str) -> ShardLog:
        """The shard's log."""
        return self.logs.setdefault(shard_id, ShardLog())

    def unfinished(self) -> list[str]:
        """Shards of the stream whose lease is not at SHARD_END."""
        return [
            key
            for key, item in self.rows.items()
            if key in self.stream.shards
            and self.stream.deleted_s(key) is None
            and not position_of(item).is_shard_end
        ]
