"""The lease table: rows whose counters move by rate, conditional writes, the leader lock, the bill.

A renewal is no event. A row knows when its owner began to renew it, how often, and when it stopped;
what an observer would read at a time follows from that. DynamoDB charges for requests on demand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kcl_mld.fleet.model.lock_item import LockItem
from kcl_mld.leases.model.lease import Lease

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.fleet.rules.leader_lock import LockTiming

#: Size of a lease row with what DynamoDB adds, and of the other items of a 3.x table.
LEASE_BYTES = 450
#: Size of a key in the index by owner.
KEY_BYTES = 100
#: A page of a scan or query.
_PAGE_BYTES = 1_048_576
_UNIT_BYTES = 4096
SECONDS_PER_HOUR = 3600.0
#: Dollars per million request units on demand; the given rate where the user gives none.
PRICE_READ = 0.125
PRICE_WRITE = 0.625
#: Units that a change of the owner costs in the index by owner: one entry goes, another comes.
INDEX_UNITS = 2


@dataclass(slots=True)
class Bill:
    """Requests and request units since the start; floats, as many are counted by their rate.

    Attributes:
        writes: requests that write, refused ones included.
        write_units: DynamoDB's write request units; an index costs its own.
    """

    reads: float = 0.0
    writes: float = 0.0
    read_units: float = 0.0
    write_units: float = 0.0

    def scan(self, items: int, times: float = 1.0) -> None:
        """Count reads of the whole table, eventually consistent."""
        size = items * LEASE_BYTES
        self.reads += times * max(1, math.ceil(size / _PAGE_BYTES))
        self.read_units += times * _eventual(size)

    def query(self, keys: int, times: float = 1.0) -> None:
        """Count queries of the index for one worker's keys."""
        self.reads += times
        self.read_units += times * _eventual(keys * KEY_BYTES)

    def get(self, times: float = 1.0, *, consistent: bool = False) -> None:
        """Count reads of one item."""
        self.reads += times
        self.read_units += times * (1.0 if consistent else 0.5)

    def write(self, times: float = 1.0, *, index_units: int = 0) -> None:
        """Count writes of one item; a change of its owner is written to the index, too."""
        self.writes += times
        self.write_units += times * (1 + index_units)

    def price(self, price_read: float, price_write: float) -> float:
        """The cost at these dollars per million units."""
        return (self.read_units * price_read + self.write_units * price_write) / 1e6


def _eventual(size: int) -> float:
    return max(1, math.ceil(size / _UNIT_BYTES)) / 2


class Leader(Protocol):
    """A worker as the lock names it, and until when it writes heartbeats."""

    id: str
    ended_at: float


class Lock:
    """Who leads.

    Attributes:
        owner: the worker named in the item, alive or not; None = there is no item.
    """

    def __init__(self, timing: LockTiming, bill: Bill) -> None:
        self.owner: Leader | None = None
        self._timing = timing
        self._bill = bill
        self._taken_at = 0.0

    def read(self, now: float) -> LockItem | None:
        """The item as a consistent read shows it."""
        if self.owner is None:
            return None
        version = f"{self.owner.id}/{self._taken_at}/{self._heartbeats(now)}"
        return LockItem(self.owner.id, self._timing.duration_s, version)

    def grant(self, worker: Leader, now: float) -> None:
        """A worker has written itself into the item."""
        self.count(now)
        self.owner, self._taken_at = worker, now
        self._bill.write()

    def release(self, now: float) -> None:
        """The leader deletes the item."""
        self.count(now)
        self.owner = None
        self._bill.write()

    def count(self, now: float) -> None:
        """Charge the heartbeats of the leader."""
        self._bill.write(self._heartbeats(now))

    def _heartbeats(self, now: float) -> int:
        if self.owner is None:
            return 0
        return int((min(now, self.owner.ended_at) - self._taken_at) / self._timing.heartbeat_s)


@dataclass(slots=True)
class SimulatedRow:
    """One lease.

    Attributes:
        kbps: throughput that its owner measures, KiB/s.
        owner: ``leaseOwner``; None = nobody.
        checkpoint_owner: ``checkpointOwner``, during a hand-off.
        counter: ``leaseCounter`` after the last write that is no renewal.
        first_beat_at: when the first renewal since then is due; infinity = nobody renews.
        beat_s: period of those after it.
        silent_from: when renewing ended; infinity = it continues.
        was_renewed: somebody has written a throughput.
        written_at: when a write that is no renewal came last; -infinity = never.
    """

    key: str
    kbps: float
    owner: str | None = None
    checkpoint_owner: str | None = None
    counter: int = 0
    first_beat_at: float = math.inf
    beat_s: float = math.inf
    silent_from: float = math.inf
    was_renewed: bool = False
    written_at: float = -math.inf
    _shown: Lease | None = None
    _shown_until: float = -math.inf

    def beats(self, now: float) -> int:
        """Renewals until now since the last other write."""
        until = min(now, self.silent_from)
        if until < self.first_beat_at:
            return 0
        return int((until - self.first_beat_at) / self.beat_s) + 1

    def next_beat_at(self, now: float) -> float:
        """The renewal after now; infinity = none."""
        at = self.first_beat_at + self.beats(now) * self.beat_s
        return at if at <= self.silent_from else math.inf

    def counter_at(self, time_s: float) -> int:
        """The counter at a time since the last write that is no renewal."""
        return self.counter + self.beats(time_s)

    def moved_at(self, time_s: float) -> float:
        """When the counter had moved last, at a time since the last write that is no renewal."""
        beats = self.beats(time_s)
        return self.first_beat_at + (beats - 1) * self.beat_s if beats else self.written_at

    def lease(self, now: float) -> Lease:
        """The row as somebody reads it now."""
        if self._shown is None or now >= self._shown_until:
            beats = self.beats(now)
            self.was_renewed = self.was_renewed or beats > 0
            self._shown = Lease(
                lease_key=self.key,
                shard_id=self.key,
                lease_owner=self.owner,
                checkpoint_owner=self.checkpoint_owner,
                lease_counter=self.counter + beats,
                throughput_kbps=self.kbps if self.was_renewed else None,
            )
            self._shown_until = self.next_beat_at(now)
        return self._shown

    @property
    def actual_owner(self) -> str | None:
        """Who may renew and checkpoint."""
        return self.checkpoint_owner or self.owner

    def settle(self, now: float) -> None:
        """Put the renewals until now into the counter, and stop renewing."""
        beats = self.beats(now)
        self.was_renewed = self.was_renewed or beats > 0
        self.counter += beats
        self.first_beat_at = self.silent_from = math.inf
        self.written_at = now
        self._shown = None

    def renew_from(self, first_beat_at: float, beat_s: float) -> None:
        """Be renewed at a rate."""
        self.first_beat_at, self.beat_s = first_beat_at, beat_s
        self._shown = None

    def fall_silent(self, now: float) -> None:
        """Be renewed no more: its owner is gone."""
        self.silent_from = min(self.silent_from, now)
        self._shown = None


@dataclass(slots=True)
class Table:
    """All leases, by key.

    Attributes:
        rows: sorted by key.
        has_index: there is an index by owner, which writes of owners cost.
        items: rows of all kinds, for the size of a scan.
    """

    rows: Mapping[str, SimulatedRow]
    bill: Bill
    has_index: bool
    items: int
    _assigned: dict[str, set[str]] = field(default_factory=dict)

    def scan(self, now: float) -> tuple[Lease, ...]:
        """Every lease."""
        self.bill.scan(self.items)
        return tuple(row.lease(now) for row in self.rows.values())

    def take(self, lease: Lease, worker: str, now: float) -> bool:
        """A worker makes a lease its own, on the condition of the counter that it read."""
        self._count_write()
        row = self.rows[lease.lease_key]
        if row.lease(now).lease_counter != lease.lease_counter:
            return False
        self._own(row, worker, None, now)
        row.counter += 1
        return True

    def assign(self, lease: Lease, worker: str, now: float) -> bool:
        """A leader gives a lease away, on the condition of the owners that it read."""
        self._count_write()
        row = self.rows[lease.lease_key]
        if not _has_owners_of(row, lease):
            return False
        self._own(row, worker, None, now)
        row.counter += 1
        return True

    def start_hand_off(self, lease: Lease, worker: str, now: float) -> bool:
        """A leader asks a lease's owner to pass it on; the counter does not move."""
        self._count_write()
        row = self.rows[lease.lease_key]
        if not _has_owners_of(row, lease):
            return False
        beat = row.next_beat_at(now), row.beat_s, row.silent_from
        self._own(row, worker, row.owner, now)
        row.first_beat_at, row.beat_s, row.silent_from = beat
        return True

    def finish_hand_off(self, key: str, now: float) -> bool:
        """The old owner passes a lease on."""
        self._count_write()
        row = self.rows[key]
        if row.checkpoint_owner is None:
            return False
        self._own(row, row.owner, None, now)
        row.counter += 1
        return True

    def release(self, key: str, now: float) -> None:
        """The owner gives a lease back; one in a hand-off goes to who was to have it."""
        self._count_write()
        row = self.rows[key]
        self._own(row, row.owner if row.checkpoint_owner is not None else None, None, now)
        row.counter += 1

    def renew(self, key: str, now: float) -> None:
        """A renewal that is not one of those at a rate."""
        self._count_write()
        self.rows[key].settle(now)
        self.rows[key].counter += 1

    def keys_of(self, worker: str) -> list[str]:
        """Keys of the leases that name a worker as owner."""
        return sorted(self._assigned.get(worker, ()))

    def _own(
        self, row: SimulatedRow, owner: str | None, checkpoint_owner: str | None, now: float
    ) -> None:
        row.settle(now)
        if row.owner is not None:
            self._assigned[row.owner].discard(row.key)
        if owner is not None:
            self._assigned.setdefault(owner, set()).add(row.key)
        if self.has_index and row.owner != owner:
            self.bill.write_units += INDEX_UNITS
        row.owner, row.checkpoint_owner = owner, checkpoint_owner

    def _count_write(self) -> None:
        self.bill.write()


def _has_owners_of(row: SimulatedRow, lease: Lease) -> bool:
    return (row.owner, row.checkpoint_owner) == (lease.lease_owner, lease.checkpoint_owner)
