"""A simulated fleet: its workers, as they come and go, and the result in figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kcl_mld.fleet.rules.leader_election import leader_of
from kcl_mld.simulate.java_worker import JavaWorker
from kcl_mld.simulate.our_worker import OurWorker
from kcl_mld.simulate.profile import AUDIT_S, ProfileName, make_profile
from kcl_mld.simulate.readings import Events, Reading, Readings
from kcl_mld.simulate.scenario import ChangeKind, MembershipChange, shares, spread
from kcl_mld.simulate.table import SECONDS_PER_HOUR, Bill, Lock, SimulatedRow, Table
from kcl_mld.simulate.worker import TakingWorker

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from kcl_mld.simulate.scenario import Scenario
    from kcl_mld.simulate.worker import Hold, SimulatedWorker

#: A fleet that has kept its final spread for fewer seconds does not count as balanced: a leader or
#: taker scans three times in it.
QUIET_S = 60.0
#: Workers that join together start within this many seconds.
START_SPREAD_S = 5.0
_KINDS: dict[ProfileName, type[SimulatedWorker]] = {
    ProfileName.JAVA2: TakingWorker,
    ProfileName.JAVA3: JavaWorker,
    ProfileName.OURS: OurWorker,
}
#: Lines of the timeline that only show how things stand.
TICKS = 10


@dataclass(frozen=True, slots=True)
class Moment:
    """A line of the timeline.

    Attributes:
        event: description of an event; empty = a regular line.
        leases: by group, of live workers; see :meth:`SimulatedFleet.leases_by_group`.
        free: leases of nobody, or of workers that are gone.
        moves: until then.
    """

    at_s: float
    event: str
    leases: dict[str, int]
    free: int
    moves: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Leases of each live worker at a time, by worker id."""

    at_s: float
    leases: dict[str, int]
    free: int


class SimulatedFleet:
    """A simulated fleet.

    Attributes:
        samples: one each ``sample_s``.
        changed_at: when the membership changed last.
    """

    def __init__(self, scenario: Scenario, name: ProfileName, rng: random.Random) -> None:
        self.scenario = scenario
        self.profile = make_profile(name, scenario)
        self.rng = rng
        self.events = Events()
        self.workers: dict[str, SimulatedWorker] = {}
        self.groups = list(scenario.groups)
        kib_per_s = scenario.records_per_s * scenario.record_bytes / 1024
        self.shares = {
            f"shardId-{number:012d}": share
            for number, share in enumerate(shares(scenario.load, scenario.shards, rng))
        }
        rows = {key: SimulatedRow(key, share * kib_per_s) for key, share in self.shares.items()}
        bill = Bill()
        self.table = Table(rows, bill, has_index=self.profile.is_assigned, items=len(rows))
        self.lock = Lock(self.profile.lock, bill)
        self.readings = Readings(list(rows), scenario.checkpoint_every_s)
        self.moments: list[Moment] = []
        self.samples: list[Sample] = []
        self.changed_at = 0.0
        self._sample_s = max(1.0, scenario.duration_s / 1800)
        self._unread: set[str] = set(rows)
        self._joined: Counter[str] = Counter()
        self._join(MembershipChange(ChangeKind.JOIN, 0.0, scenario.workers), scenario.groups)
        for change in sorted(scenario.changes, key=lambda change: change.at_s):
            self.events.at(change.at_s, partial(self._change, change))
        self._sample()
        for number in range(1, TICKS + 1):
            self.events.at(number * scenario.duration_s / TICKS, self._tick)

    def run(self, until_s: float) -> None:
        """Let time pass."""
        self.events.run(until_s)

    def finish(self) -> None:
        """After the last :meth:`run`: add the requests that are counted by their rate to the bill."""
        now = self.events.now
        for worker in self.workers.values():
            for hold in worker.held.values():
                self.count_hold(hold)
                if hold.reading is not None:
                    self.count_reading(hold.reading)
            worker.count(now)
        if self.profile.is_assigned:
            self.lock.count(now)
        self.table.bill.scan(self.table.items, now / AUDIT_S)

    # -- what workers ask -------------------------------------------------------------------------

    def find(self, worker_id: str | None) -> SimulatedWorker | None:
        """A worker that lives, by its id."""
        worker = None if worker_id is None else self.workers.get(worker_id)
        return worker if worker is not None and worker.is_alive else None

    def begin_reading(self, key: str, worker: SimulatedWorker) -> Reading:
        """A child gets its first record."""
        reading = self.readings.begin(key, worker.id, self.events.now)
        if key in self._unread:
            self._unread.discard(key)
            if not self._unread:
                after_s = self.events.now - self.changed_at
                again = f" again, after {after_s:.0f} s" if self.changed_at else ""
                self.note(f"all shards are read{again}")
        return reading

    def end_reading(self, key: str, reading: Reading, *, checkpoints: bool) -> None:
        """A child ends."""
        self.count_reading(reading)
        self.readings.end(key, reading, self.events.now, checkpoints=checkpoints)

    def count_reading(self, reading: Reading) -> None:
        """Put a child's checkpoints on the bill."""
        read_s = self.events.now - reading.since
        self.table.bill.write(read_s / self.scenario.checkpoint_every_s)

    def count_hold(self, hold: Hold) -> None:
        """Put a hold's renewals on the bill."""
        held_s = self.events.now - hold.since
        every_s = self.scenario.checkpoint_every_s
        self.table.bill.write(self.profile.renewals(hold.key, held_s, every_s))

    def note(self, event: str) -> None:
        """Add a line to the timeline."""
        leases, free = self.leases_by_group()
        self.moments.append(Moment(self.events.now, event, leases, free, self.readings.moves))

    # -- its state --------------------------------------------------------------------------------

    def leases_by_worker(self) -> tuple[dict[str, int], int]:
        """Leases of each live worker by the table, and the number of those without a live owner."""
        counts = {worker.id: 0 for worker in self.workers.values() if worker.is_alive}
        free = 0
        for row in self.table.rows.values():
            owner = row.actual_owner
            if owner in counts:
                counts[owner] += 1
            else:
                free += 1
        return counts, free

    def leases_by_group(self) -> tuple[dict[str, int], int]:
        """Likewise of each group that ever had a worker."""
        counts, free = self.leases_by_worker()
        by_group = dict.fromkeys(self.groups, 0)
        for worker, count in counts.items():
            by_group[self.workers[worker].group] += count
        return by_group, free

    def _tick(self) -> None:
        if self.moments[-1].at_s < self.events.now:
            self.note("")

    def _sample(self) -> None:
        self.samples.append(Sample(self.events.now, *self.leases_by_worker()))
        self.events.at(self.events.now + self._sample_s, self._sample)

    # -- its changes ------------------------------------------------------------------------------

    def _change(self, change: MembershipChange) -> None:
        if change.kind is ChangeKind.JOIN:
            self.changed_at = self.events.now
            groups = tuple(self.groups) if change.group is None else (change.group,)
            self._join(change, groups)
            return
        victims = self._victims(change)
        if len(victims) < change.count:  # they are being started
            self.events.at(self.events.now + START_SPREAD_S, partial(self._change, change))
            return
        self.changed_at = self.events.now
        keys = {key for victim in victims for key in victim.held}
        for victim in victims:
            if change.kind is ChangeKind.KILL:
                victim.die()
            else:
                victim.leave()
        self._unread |= keys - {key for victim in victims for key in victim.held}
        what = "killed" if change.kind is ChangeKind.KILL else "stopped"
        who = f"the leader {victims[0].id}" if change.is_leader else _workers(len(victims))
        leases = f"{len(keys)} lease{'s' * (len(keys) != 1)}"
        self.note(f"{who} {'is' if len(victims) == 1 else 'are'} {what}: {leases}")

    def _join(self, change: MembershipChange, groups: tuple[str, ...]) -> None:
        self.groups += [group for group in groups if group not in self.groups]
        live = Counter(worker.group for worker in self.workers.values() if worker.is_alive)
        self.note(f"{_workers(change.count)} start")
        for group in spread(live, change.count, groups):
            self._joined[group] += 1
            worker_id = f"{group}-{self._joined[group]:03d}"
            start_at = self.events.now + self.rng.uniform(0, START_SPREAD_S)
            self.events.at(start_at, partial(self._start, worker_id, group))

    def _start(self, worker_id: str, group: str) -> None:
        self.workers[worker_id] = _KINDS[self.profile.name](self, worker_id, group)
        if self.profile.is_assigned:
            self.table.items += 1

    def _victims(self, change: MembershipChange) -> list[SimulatedWorker]:
        live = [one for one in self.workers.values() if one.is_alive and not one.is_leaving]
        if change.is_leader:
            return [worker for worker in live if worker is self._leader()] or live[:1]
        victims: list[SimulatedWorker] = []
        by_group = Counter(worker.group for worker in live)
        for _ in range(change.count):
            group = change.group or max(by_group, key=lambda name: by_group[name], default="")
            by_group[group] -= 1
            there = [one for one in live if one.group == group and one not in victims]
            victims += [self.rng.choice(there)] if there else []
        return victims

    def _leader(self) -> SimulatedWorker | None:
        if self.profile.is_assigned:
            return None if self.lock.owner is None else self.find(self.lock.owner.id)
        owners = (row.owner for row in self.table.rows.values())
        return self.find(leader_of(owners))


def _workers(count: int) -> str:
    return f"{count} worker{'s' * (count != 1)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of a simulation.

    Attributes:
        leases_by_group: leases of the live workers of each group, at the end.
        fewest, most: leases of a live worker, at the end.
        free: leases that no live worker has, at the end.
        time_to_balance_s: from the last change of the membership until both spreads, of workers
            and of groups, stayed at most as large as at the end, and no lease was without a live
            worker; None = not reached :data:`QUIET_S` before the end.
        moves: how often a shard went from one worker to another.
        duplicates: records delivered again.
        longest_unread_s: the longest time in which a shard that had been read was not.
        read_units_per_hour, write_units_per_hour: the units that are charged for them.
    """

    leases_by_group: dict[str, int]
    fewest: int
    most: int
    free: int
    time_to_balance_s: float | None
    moves: int
    duplicates: int
    longest_unread_s: float
    reads_per_hour: float
    writes_per_hour: float
    read_units_per_hour: float
    write_units_per_hour: float
    price_per_hour: float
    timeline: tuple[Moment, ...]
    samples: tuple[Sample, ...]


def outcome_of(fleet: SimulatedFleet, price_read: float, price_write: float) -> Outcome:
    """The figures of a fleet after its last event.

    Args:
        fleet: after :meth:`SimulatedFleet.finish`.
        price_read: dollars per million read request units.
        price_write: dollars per million write request units.
    """
    now, bill = fleet.events.now, fleet.table.bill
    by_worker, free = fleet.leases_by_worker()
    by_group, _ = fleet.leases_by_group()
    per_hour = SECONDS_PER_HOUR / now
    twice = sum(shard.twice_s * fleet.shares[key] for key, shard in fleet.readings.shards.items())
    return Outcome(
        leases_by_group=by_group,
        fewest=min(by_worker.values(), default=0),
        most=max(by_worker.values(), default=0),
        free=free,
        time_to_balance_s=time_to_balance_s(fleet),
        moves=fleet.readings.moves,
        duplicates=round(twice * fleet.scenario.records_per_s),
        longest_unread_s=fleet.readings.longest_unread_s(now),
        reads_per_hour=bill.reads * per_hour,
        writes_per_hour=bill.writes * per_hour,
        read_units_per_hour=bill.read_units * per_hour,
        write_units_per_hour=bill.write_units * per_hour,
        price_per_hour=bill.price(price_read, price_write) * per_hour,
        timeline=tuple(fleet.moments),
        samples=tuple(fleet.samples),
    )


def time_to_balance_s(fleet: SimulatedFleet) -> float | None:
    """Seconds from the last change to the fleet's final spread; None = not reached."""
    samples = [sample for sample in fleet.samples if sample.at_s >= fleet.changed_at]
    final = _spreads(fleet, samples[-1])
    balanced_at: float | None = fleet.changed_at
    for sample in samples:
        is_worse = any(now > then for now, then in zip(_spreads(fleet, sample), final, strict=True))
        if sample.free or is_worse:
            balanced_at = None
        elif balanced_at is None:
            balanced_at = sample.at_s
    if balanced_at is None or fleet.events.now - balanced_at < QUIET_S:
        return None
    return balanced_at - fleet.changed_at


def _spreads(fleet: SimulatedFleet, sample: Sample) -> tuple[int, int]:
    by_group: dict[str, int] = {}
    for worker, count in sample.leases.items():
        group = fleet.workers[worker].group
        by_group[group] = by_group.get(group, 0) + count
    return _spread(sample.leases.values()), _spread(by_group.values())


def _spread(counts: Iterable[int]) -> int:
    values = list(counts)
    return max(values) - min(values) if values else 0
