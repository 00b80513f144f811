"""What one watcher has seen of a fleet, for as long as it has watched: bounded, without a clock.

Numbers of the whole fleet cover all of that time: when there are too many, each two become one.
Of a shard the last ones stay, and of a shard that is gone nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.observe.model.verdict import VerdictSeverity
from kcl_mld.observe.rules.fleet_workers import throughput_kbps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.model.verdict import Conclusion, Explanation
    from kcl_mld.streams.model.shard import HashRange

#: Points of the fleet that are kept; at least half of them, once there were this many.
POINTS = 480
#: Of a shard: changes, and numbers.
CHANGES = 24
SAMPLES = 60
#: Shards whose place in the lineage is kept after Kinesis and the table forgot them.
FORMER_SHARDS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPoint:
    """The fleet at one snapshot, or at two and more that became one.

    Attributes:
        at_s: epoch seconds of the last of them.
        critical: shards of that severity; likewise the next three.
        lag_s: the largest; None = not requested.
        throughput_kbps: KiB/s of all leases that have it; None = none has.
        moved: leases that changed their owner since the point before.
    """

    at_s: float
    critical: int
    warning: int
    info: int
    ok: int
    lag_s: float | None
    throughput_kbps: float | None
    moved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardChange:
    """From this snapshot on a shard's verdict or owner was this.

    Attributes:
        at_s: epoch seconds of the snapshot.
        verdict: its word.
        severity: its word.
        owner: the worker that may checkpoint; None = there is none.
        checkpoint: the position at that snapshot.
    """

    at_s: float
    verdict: str
    severity: str
    owner: str | None
    checkpoint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSample:
    """Numbers of a shard at one snapshot; None = not known."""

    at_s: float
    lag_s: float | None
    throughput_kbps: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageShard:
    """A shard among its parents.

    Attributes:
        subject: lease key.
        stream: identifier in a table of many streams, else None.
        shard: bare id.
        parents: lease keys.
        hash_range: first and last key, decimal; None = neither Kinesis nor the row has it.
        is_open: None = not listed, so not known.
        seen_at_s: epoch seconds of the first snapshot that showed it; None = it was there before.
        is_former: neither listed nor in the table any more.
    """

    subject: str
    stream: str | None
    shard: str
    parents: tuple[str, ...]
    hash_range: tuple[str, str] | None
    is_open: bool | None
    seen_at_s: float | None
    is_former: bool = False


class _ShardHistory:
    """Of one shard."""

    def __init__(self) -> None:
        self.changes: deque[ShardChange] = deque(maxlen=CHANGES)
        self.samples: deque[ShardSample] = deque(maxlen=SAMPLES)


class FleetHistory:
    """Takes one snapshot after the other."""

    def __init__(self) -> None:
        self._points: list[FleetPoint] = []
        self._owners: dict[str, str] = {}
        self._shards: dict[str, _ShardHistory] = {}
        self._lineage: dict[str, LineageShard] = {}
        self._former: dict[str, LineageShard] = {}

    def add(self, snapshot: FleetSnapshot, explained: Explanation) -> None:
        """Take one snapshot.

        Args:
            explained: what it and those before it show.
        """
        is_first = not self._points
        if len(self._points) >= POINTS:
            self._points = [_joined(*two) for two in _pairs(self._points)]
        self._points.append(self._point(snapshot, explained))
        before = self._shards
        self._shards = {}
        for one in explained.shards:
            history = self._shards[one.subject] = before.get(one.subject) or _ShardHistory()
            _add(history, snapshot.wall_s, one)
        self._add_lineage(snapshot, is_first=is_first)

    @property
    def points(self) -> tuple[FleetPoint, ...]:
        """Of the fleet, in the order of time."""
        return tuple(self._points)

    @property
    def lineage(self) -> tuple[LineageShard, ...]:
        """All shards of Kinesis and of the table, and those that were there recently."""
        return (*self._lineage.values(), *self._former.values())

    def of_shard(
        self, subject: str
    ) -> tuple[tuple[ShardChange, ...], tuple[ShardSample, ...]] | None:
        """Changes and numbers of a shard in the order of time; None = there is no such shard."""
        found = self._shards.get(subject)
        return None if found is None else (tuple(found.changes), tuple(found.samples))

    def _point(self, snapshot: FleetSnapshot, explained: Explanation) -> FleetPoint:
        owners = {
            key: lease.actual_owner for key, lease in snapshot.leases.items() if lease.actual_owner
        }
        moved = sum(self._owners.get(key, owner) != owner for key, owner in owners.items())
        # The last owner of a lease without one is kept, until it has another.
        self._owners = {key: self._owners[key] for key in snapshot.leases if key in self._owners}
        self._owners |= owners
        counts = dict.fromkeys(VerdictSeverity, 0)
        for one in explained.shards:
            counts[one.severity] += 1
        lags = [one.lag_s for one in explained.shards if one.lag_s is not None]
        return FleetPoint(
            at_s=snapshot.wall_s,
            critical=counts[VerdictSeverity.CRITICAL],
            warning=counts[VerdictSeverity.WARNING],
            info=counts[VerdictSeverity.INFO],
            ok=counts[VerdictSeverity.OK],
            lag_s=max(lags, default=None),
            throughput_kbps=throughput_kbps(explained.shards),
            moved=moved,
        )

    def _add_lineage(self, snapshot: FleetSnapshot, *, is_first: bool) -> None:
        seen_at_s = None if is_first else snapshot.wall_s
        found: dict[str, LineageShard] = {}
        known = {**self._former, **self._lineage}

        def place(
            key: str,
            stream: str | None,
            shard: str,
            parents: Iterable[str],
            hash_range: HashRange | None,
            *,
            is_open: bool | None,
        ) -> None:
            before = known.get(key)
            found[key] = LineageShard(
                subject=key,
                stream=stream,
                shard=shard,
                parents=tuple(parents),
                hash_range=None
                if hash_range is None
                else (str(hash_range.start), str(hash_range.end)),
                is_open=is_open,
                seen_at_s=seen_at_s if before is None else before.seen_at_s,
            )

        for stream in snapshot.streams:
            for shard in stream.shards or ():
                key = stream.lease_key(shard.shard_id)
                parents = map(stream.lease_key, shard.parent_shard_ids)
                id_ = stream.identifier
                is_open = shard.is_open
                place(key, id_, shard.shard_id, parents, shard.hash_range, is_open=is_open)
        for lease in _unlisted(snapshot.leases, found):
            parents = map(lease.key_of, lease.parent_shard_ids)
            id_, key = lease.stream_identifier, lease.lease_key
            place(key, id_, lease.shard_id, parents, lease.hash_range, is_open=None)
        self._lineage = found
        former = {key: one for key, one in known.items() if key not in found}
        kept = list(former.values())[-FORMER_SHARDS:]
        self._former = {one.subject: _former(one) for one in kept}


def _unlisted(leases: Mapping[str, Lease], listed: Mapping[str, LineageShard]) -> list[Lease]:
    return [lease for key, lease in leases.items() if key not in listed]


def _former(one: LineageShard) -> LineageShard:
    return LineageShard(
        subject=one.subject,
        stream=one.stream,
        shard=one.shard,
        parents=one.parents,
        hash_range=one.hash_range,
        is_open=False,
        seen_at_s=one.seen_at_s,
        is_former=True,
    )


def _add(history: _ShardHistory, at_s: float, one: Conclusion) -> None:
    lease = one.lease
    owner = None if lease is None else lease.actual_owner
    verdict, severity = str(one.verdict), one.severity.word
    last = history.changes[-1] if history.changes else None
    if last is None or (last.verdict, last.severity, last.owner) != (verdict, severity, owner):
        position = None if lease is None or lease.checkpoint is None else str(lease.checkpoint)
        history.changes.append(
            ShardChange(
                at_s=at_s, verdict=verdict, severity=severity, owner=owner, checkpoint=position
            )
        )
    speed = lease.throughput_kbps if lease is not None and one.lives else None
    sample = ShardSample(at_s=at_s, lag_s=one.lag_s, throughput_kbps=speed)
    history.samples.append(sample)


def _pairs(points: list[FleetPoint]) -> Iterable[tuple[FleetPoint, FleetPoint]]:
    return zip(points[::2], points[1::2], strict=True)


def _joined(one: FleetPoint, other: FleetPoint) -> FleetPoint:
    """Two neighbours as one; the worse of both, so that nothing bad is lost."""
    worse = max(one, other, key=lambda point: (point.critical, point.warning, point.at_s))
    speeds = [p.throughput_kbps for p in (one, other) if p.throughput_kbps is not None]
    lags = [point.lag_s for point in (one, other) if point.lag_s is not None]
    return FleetPoint(
        at_s=other.at_s,
        critical=worse.critical,
        warning=worse.warning,
        info=worse.info,
        ok=worse.ok,
        lag_s=max(lags, default=None),
        throughput_kbps=sum(speeds) / len(speeds) if speeds else None,
        moved=one.moved + other.moved,
    )
