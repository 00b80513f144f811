"""What several snapshots of a fleet show together: since when something is so, and which keys lack a row.

The table has no times. So "since" always means since this watcher looked, and is never more than
that: it counts from the end of the first snapshot that showed it to the beginning of the last one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kcl_mld.config.stream import KINESIS
from kcl_mld.shards.rules.audit import active, fill_hash_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kcl_mld.config.stream import SourceTraits
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot, StreamSnapshot
    from kcl_mld.streams.model.shard import HashRange, Shard

#: Failover times that a window should span, so that gaps and trends are more than a moment's.
WINDOW_FAILOVERS = 3
#: Number of failover times after which a lease that waits for a worker needs a person.
LATE_FAILOVERS = 6
#: Unless ``--stalled-after`` is given.
STALLED_AFTER_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRules:
    """The values of the file and the command line.

    Attributes:
        failover_s: a living owner moves its counter within it.
        stalled_after_s: seconds that records wait behind a checkpoint that stands still.
        hand_off_s: what a hand-off may take beside the failover time.
        max_leases: ``maxLeasesForWorker``.
        traits: of the streams.
    """

    failover_s: float
    stalled_after_s: float = STALLED_AFTER_S
    hand_off_s: float = 30.0
    max_leases: int = 2**31 - 1
    traits: SourceTraits = KINESIS

    @property
    def asking(self) -> str:
        """The option that tells whether records wait: who has few readers is not read for that."""
        return "--tip" if self.traits.most_readers is None else "--scrape"

    @property
    def window_s(self) -> float:
        """Three failover times."""
        return WINDOW_FAILOVERS * self.failover_s

    @property
    def late_s(self) -> float:
        """Six of them."""
        return LATE_FAILOVERS * self.failover_s


# Without slots: computed values are cached in it.
@dataclass(frozen=True)
class Snapshots:
    """Snapshots in the order of time, at least one."""

    snapshots: tuple[FleetSnapshot, ...]

    @property
    def last(self) -> FleetSnapshot:
        """The newest snapshot."""
        return self.snapshots[-1]

    @property
    def span_s(self) -> float:
        """From the end of the first snapshot to the beginning of the last."""
        return self.since_s(self.snapshots[0])

    def since_s(self, snapshot: FleetSnapshot) -> float:
        """From the end of a snapshot to the beginning of the last."""
        return max(0.0, self.last.began_at - snapshot.at)

    def holds_s(self, holds: Callable[[FleetSnapshot], bool]) -> float:
        """For how long something that holds in the last snapshot has held in all snapshots before it."""
        first = self.last
        for snapshot in reversed(self.snapshots):
            if not holds(snapshot):
                break
            first = snapshot
        return self.since_s(first)

    def still_s(self, key: str) -> float:
        """For how long the counter of a row has stood still that is in the last snapshot."""
        counter = self.last.leases[key].lease_counter
        return self.holds_s(
            lambda snapshot: (
                key in snapshot.leases and snapshot.leases[key].lease_counter == counter
            )
        )

    def rows(self, key: str) -> list[tuple[FleetSnapshot, Lease]]:
        """A row in the snapshots that show it."""
        return [
            (snapshot, snapshot.leases[key])
            for snapshot in self.snapshots
            if key in snapshot.leases
        ]

    @cached_property
    def uncovered(self) -> tuple[Mapping[str, Shard], ...]:
        """For each snapshot: shards that are listed, and have neither a row nor a lease of their keys."""
        return tuple(_uncovered(snapshot) for snapshot in self.snapshots)

    def uncovered_s(self, key: str) -> float:
        """For how long a shard has been uncovered that is so in the last snapshot."""
        by_snapshot = dict(zip(map(id, self.snapshots), self.uncovered, strict=True))
        return self.holds_s(lambda snapshot: key in by_snapshot[id(snapshot)])

    def missing_children(self, lease: Lease) -> tuple[str, ...]:
        """Keys of uncovered shards that follow a finished lease."""
        if not lease.is_finished:
            return ()
        named = {lease.key_of(one) for one in lease.child_shard_ids}
        return tuple(
            sorted(
                key
                for key, shard in self.uncovered[-1].items()
                if key in named
                or (
                    lease.shard_id in shard.parent_shard_ids and key == lease.key_of(shard.shard_id)
                )
            )
        )

    @cached_property
    def listed(self) -> Mapping[str | None, Mapping[str, Shard]]:
        """Shards by id, of each stream whose shards the last snapshot knows; by its identifier."""
        return {
            stream.identifier: {shard.shard_id: shard for shard in stream.shards}
            for stream in self.last.streams
            if stream.shards
        }

    @cached_property
    def streams(self) -> Mapping[str | None, StreamSnapshot]:
        """Streams of the last snapshot, by identifier."""
        return {stream.identifier: stream for stream in self.last.streams}


def _uncovered(snapshot: FleetSnapshot) -> dict[str, Shard]:
    found: dict[str, Shard] = {}
    by_stream: dict[str | None, list[Lease]] = {}
    for lease in snapshot.leases.values():
        by_stream.setdefault(lease.stream_identifier, []).append(lease)
    known = {*snapshot.leases, *(key for key, _why in snapshot.broken)}
    for stream in snapshot.streams:
        if stream.shards is None or stream.gone is not None or not stream.is_listed:
            continue
        rows = by_stream.get(stream.identifier, [])
        checked, _filled = fill_hash_ranges(active(rows), stream.shards)
        covered = _merged(one.hash_range for one in checked if one.hash_range is not None)
        parents = {parent for row in rows for parent in row.parent_shard_ids}
        for shard in stream.shards:
            key = stream.lease_key(shard.shard_id)
            is_done = not shard.is_open and shard.shard_id in parents
            if key not in known and not is_done and not _covers(covered, shard.hash_range):
                found[key] = shard
    return found


def _merged(ranges: Iterable[HashRange]) -> list[tuple[int, int]]:
    """Ranges in order, neighbours joined."""
    merged: list[tuple[int, int]] = []
    for one in sorted(ranges):
        if merged and one.start <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], one.end)
        else:
            merged.append((one.start, one.end))
    return merged


def _covers(merged: list[tuple[int, int]], wanted: HashRange) -> bool:
    at = bisect_right(merged, (wanted.start, 2**129)) - 1
    return at >= 0 and merged[at][1] >= wanted.end
