"""What a simulation comes to, in figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.simulate.table import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mld.simulate.fleet import Moment, Sample, SimulatedFleet

#: A fleet that has kept its final spread for less is not said to be balanced: a leader or taker
#: looks three times in it.
QUIET_S = 60.0


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
        duplicates: records delivered twice.
        longest_unread_s: the longest time in which a shard that had been read was not.
        reads_per_hour, writes_per_hour: requests to DynamoDB.
        read_units_per_hour, write_units_per_hour: what they are charged as.
        price_per_hour: at the given rates.
        timeline: what happened.
        samples: leases by worker over time.
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
    """See :class:`Outcome`."""
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
