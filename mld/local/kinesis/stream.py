"""A stream: its shards, its state, and changes of shards that take time.

A change (split, merge, creation) is asked for at one time and done at a later one. Nothing runs in
between: :meth:`LocalStream.settle` does what has become due, and every operation calls it first.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kcl_mld.local.kinesis.shard import MAX_HASH_KEY, LocalShard, shard_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Retention of a new stream, the service's default.
DEFAULT_RETENTION_HOURS = 24


class AcceptedSubscription(Protocol):
    """What a consumer remembers of a subscription, to refuse another one.

    Attributes:
        ran_its_time: it has ended because it was as old as a subscription gets.
    """

    ran_its_time: bool

    @property
    def age_s(self) -> float:
        """Seconds since it was accepted."""


@dataclass(slots=True, eq=False)
class Consumer:
    """A registered consumer of a stream.

    Attributes:
        name: unique within the stream.
        arn: distinguishes it from an earlier consumer of that name.
        created_ms: epoch milliseconds of the registration.
        active_ms: from which it is ACTIVE.
        gone_ms: until which it is DELETING; None = not deregistered.
        subscriptions: by shard id, the one that was accepted last, also when it has ended.
    """

    name: str
    arn: str
    created_ms: int
    active_ms: int
    gone_ms: int | None = None
    subscriptions: dict[str, AcceptedSubscription] = field(default_factory=dict)

    def status(self, now_ms: int) -> str:
        """CREATING, ACTIVE or DELETING."""
        if self.gone_ms is not None:
            return "DELETING"
        return "ACTIVE" if now_ms >= self.active_ms else "CREATING"


class LocalStream:
    """A stream with its shards in the order of their numbers.

    Args:
        now_ms: epoch milliseconds of the creation.
        shard_count: shards that it starts with, hash ranges of equal width.
        on_demand: stream mode ON_DEMAND instead of PROVISIONED.
    """

    def __init__(
        self, name: str, arn: str, now_ms: int, shard_count: int, *, on_demand: bool = False
    ) -> None:
        self.name = name
        self.arn = arn
        self.created_ms = now_ms
        self.status = "ACTIVE"
        self.on_demand = on_demand
        self.retention_hours = DEFAULT_RETENTION_HOURS
        self.tags: dict[str, str] = {}
        self.consumers: dict[str, Consumer] = {}
        self.shards: dict[str, LocalShard] = {}
        self._next_number = 0
        self._due: list[tuple[int, Callable[[int], None]]] = []
        self._open: list[LocalShard] = []
        self._open_starts: list[int] = []
        width = (MAX_HASH_KEY + 1) // shard_count
        for index in range(shard_count):
            last = MAX_HASH_KEY if index == shard_count - 1 else (index + 1) * width - 1
            self._add_shard(now_ms, (index * width, last), ())
        self._reopen()

    def shard(self, shard_id: object) -> LocalShard | None:
        """The shard of that id, None where there is none (any more)."""
        return self.shards.get(shard_id) if isinstance(shard_id, str) else None

    @property
    def open_shards(self) -> Sequence[LocalShard]:
        """Open shards in order of their hash ranges, which cover everything without overlap."""
        return self._open

    def shard_for(self, hash_key: int) -> LocalShard:
        """The open shard whose range holds ``hash_key``."""
        return self._open[bisect_right(self._open_starts, hash_key) - 1]

    def horizon_ms(self, now_ms: int) -> int:
        """The oldest time still readable: within retention, not before the stream began."""
        return max(self.created_ms, now_ms - self.retention_hours * 3_600_000)

    def schedule(self, status: str, due_ms: int, change: Callable[[int], None]) -> None:
        """Show ``status`` until ``due_ms``, then do ``change(due_ms)`` and be ACTIVE again."""
        self.status = status
        self._due.append((due_ms, change))

    def settle(self, now_ms: int) -> None:
        """Do the changes that are due and forget what retention no longer covers."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, change = self._due.pop(0)
            change(due_ms)
            if not self._due:
                self.status = "ACTIVE"
        for consumer in list(self.consumers.values()):
            if consumer.gone_ms is not None and consumer.gone_ms <= now_ms:
                del self.consumers[consumer.name]
        cutoff_ms = now_ms - self.retention_hours * 3_600_000
        if cutoff_ms <= self.created_ms:
            return
        for shard in list(self.shards.values()):
            shard.trim(cutoff_ms)
            if shard.closed_ms is not None and shard.closed_ms < cutoff_ms:
                del self.shards[shard.shard_id]

    def split(self, parent: LocalShard, new_start: int, now_ms: int) -> None:
        """Replace ``parent`` by two children that divide its range before ``new_start``."""
        self._replace(
            (parent,),
            ((parent.start_key, new_start - 1), (new_start, parent.end_key)),
            now_ms,
        )

    def merge(self, parent: LocalShard, adjacent: LocalShard, now_ms: int) -> None:
        """Replace two neighbors by one child."""
        keys = (parent.start_key, parent.end_key, adjacent.start_key, adjacent.end_key)
        self._replace((parent, adjacent), ((min(keys), max(keys)),), now_ms)

    def rescale(self, target: int, now_ms: int) -> None:
        """Split the widest or merge the narrowest neighbors until ``target`` shards are open."""
        while len(self._open) < target:
            widest = max(self._open, key=lambda shard: shard.end_key - shard.start_key)
            middle = (widest.start_key + widest.end_key) // 2 + 1
            self.split(widest, middle, now_ms)
        while len(self._open) > target:
            pairs = list(zip(self._open, self._open[1:], strict=False))
            left, right = min(pairs, key=lambda pair: pair[1].end_key - pair[0].start_key)
            self.merge(left, right, now_ms)

    def _replace(
        self, parents: tuple[LocalShard, ...], ranges: tuple[tuple[int, int], ...], now_ms: int
    ) -> None:
        closed_ms = max(now_ms, *(shard.last_arrival_ms for shard in parents))
        parent_ids = tuple(shard.shard_id for shard in parents)
        created_s = max(closed_ms // 1000, *(shard.created_s for shard in parents)) + 1
        children = tuple(
            self._add_shard(closed_ms, hash_range, parent_ids, created_s) for hash_range in ranges
        )
        for shard in parents:
            shard.close(closed_ms, children)
        self._reopen()

    def _add_shard(
        self,
        now_ms: int,
        hash_range: tuple[int, int],
        parents: tuple[str, ...],
        created_s: int | None = None,
    ) -> str:
        number = self._next_number
        self._next_number += 1
        shard = LocalShard(
            number,
            now_ms,
            now_ms // 1000 if created_s is None else created_s,
            hash_range,
            parents,
        )
        self.shards[shard.shard_id] = shard
        return shard_id_of(number)

    def _reopen(self) -> None:
        self._open = sorted(
            (shard for shard in self.shards.values() if shard.is_open),
            key=lambda shard: shard.start_key,
        )
        self._open_starts = [shard.start_key for shard in self._open]
