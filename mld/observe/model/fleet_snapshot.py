"""A snapshot of a running fleet: rows, items, workers, shards; without any judgement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcl_mld.fleet.model.worker_metrics import honoring

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.fleet.model.lock_item import LockItem
    from kcl_mld.fleet.model.state_history import ClientVersion, TableStatus
    from kcl_mld.fleet.model.worker_life import FailedLife
    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.model.worker_page import WorkerPage
    from kcl_mld.streams.model.shard import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetItems:
    """What a 3.x fleet keeps beside its leases.

    Attributes:
        version: the generation; None = there is no item of a 3.x fleet.
        lock: of the leader; None = there is none.
        metrics: of all workers; a worker may occur more than once.
        table_status: how far the fleet is on its way from three tables to one; None = nowhere.
    """

    version: ClientVersion | None = None
    lock: LockItem | None = None
    metrics: tuple[WorkerMetrics, ...] = ()
    table_status: TableStatus | None = None

    @property
    def leader(self) -> str | None:
        """The worker that holds the lock; whether it renews it takes two snapshots. None = nobody."""
        return None if self.lock is None or self.lock.is_released else self.lock.owner

    @property
    def written_at_s(self) -> dict[str, int]:
        """Epoch seconds at which each worker wrote its newest metrics."""
        newest: dict[str, int] = {}
        for one in self.metrics:
            newest[one.worker_id] = max(one.updated_at_s, newest.get(one.worker_id, 0))
        return newest

    @property
    def honoring(self) -> frozenset[str]:
        """Workers whose newest metrics show that they honor a pause."""
        written = self.written_at_s
        return honoring(one for one in self.metrics if one.updated_at_s == written[one.worker_id])


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSnapshot:
    """One stream, as Kinesis shows it.

    Attributes:
        name: of the stream.
        identifier: ``account:name:epoch`` of its lease keys; None = a single stream.
        asked_at: reading of ``Clock.monotonic`` before it was asked for.
        is_listed: the file names it, or its rule finds it.
        shards: all within retention; None = not known.
        retention_s: how long records stay; None = not known.
        gone: a sentence: it was deleted, or created again; None = neither, as far as is known.
        disabled: a clause: the table's stream gets no more records; None = it does, as far as is known.
        disabled_todo: what to do then.
        unknown: why something of it is not known; None = all is.
        unknown_todo: the remedy for a person; "" = only another try.
    """

    name: str
    identifier: str | None = None
    asked_at: float = 0.0
    is_listed: bool = True
    shards: tuple[Shard, ...] | None = None
    retention_s: float | None = None
    gone: str | None = None
    disabled: str | None = None
    disabled_todo: str = ""
    unknown: str | None = None
    unknown_todo: str = ""

    def lease_key(self, shard_id: str) -> str:
        """Primary key of a shard's row."""
        return shard_id if self.identifier is None else f"{self.identifier}:{shard_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TipSnapshot:
    """How far a checkpoint was behind the tip of its shard, by one read behind it.

    Attributes:
        asked_at: reading of ``Clock.monotonic``.
        position: the checkpoint.
        behind_s: age of the next record by the clock of the service, or what the service says where
            it gave none; 0 = there is no record behind the checkpoint. None = not known.
        unknown: why.
        unknown_todo: what a person can do about that; "" = nothing but to ask again.
    """

    asked_at: float
    position: ExtendedSequenceNumber
    behind_s: float | None = None
    unknown: str | None = None
    unknown_todo: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """One snapshot. It has no times of the table: the table stores none.

    Attributes:
        began_at: reading of ``Clock.monotonic`` before the first row was read.
        at: the same after the last row.
        wall_s: epoch seconds of AWS, by the clock of this machine where they are not known.
        leases: rows that can be read, by their keys.
        broken: (lease key, why) of rows that can't.
        moving: keys of rows that ``kcl-mld leases migrate`` has not finished moving.
        items: beside the leases; None = not known.
        items_unknown: why not.
        items_todo: the remedy for a person; "" = only another try.
        streams: of the rows, and those of the file.
        tips: by lease key; the last answer for each, which may be older than this snapshot.
        pages: ``/leases`` of those workers that were asked for it.
        failed: processes that left an item when they failed, the latest last.
    """

    began_at: float
    at: float
    wall_s: float
    leases: Mapping[str, Lease] = field(default_factory=dict)
    broken: tuple[tuple[str, str], ...] = ()
    moving: tuple[str, ...] = ()
    items: FleetItems | None = field(default_factory=FleetItems)
    items_unknown: str | None = None
    items_todo: str = ""
    streams: tuple[StreamSnapshot, ...] = ()
    tips: Mapping[str, TipSnapshot] = field(default_factory=dict)
    pages: tuple[WorkerPage, ...] = ()
    failed: tuple[FailedLife, ...] = ()
