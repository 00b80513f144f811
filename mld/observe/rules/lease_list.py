"""The rows of a lease table with what several snapshots show of each: for lists, not for judging."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.config.stream import Stream
from kcl_mld.errors import MalformedData
from kcl_mld.leases.rules.lease_life import state_of
from kcl_mld.observe.rules.scraped import page_of, records_per_s, shard_on_page
from kcl_mld.observe.rules.watching import Snapshots

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.model.verdict import Conclusion, Explanation
    from kcl_mld.observe.model.worker_page import ShardOnPage

#: ``host:uuid``, the worker id that the samples of the KCL make.
_HOST_AND_UUID = re.compile(r"(?P<host>.+):[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
#: State of a lease whose owner was seen not to renew it; others are those of ``LeaseState``.
EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLease:
    """One row.

    Attributes:
        stream: its stream's name; None = not known.
        state: a ``LeaseState``, or ``expired``.
        renewed_within_s: its counter was seen to move: the renewal is not longer ago than this.
            None = it was not.
        still_s: seconds that its counter has not changed in the snapshots; None after one snapshot.
        group: ``workerGroup`` of its owner; None = none, or not known.
        host: of its owner, from its id or the address of its page.
        records_per_s: that the child got, by two pages; None = not known.
        page: the owner's page; None = it was not requested.
    """

    lease: Lease
    conclusion: Conclusion
    stream: str | None
    state: str
    renewed_within_s: float | None
    still_s: float | None
    group: str | None
    host: str | None
    records_per_s: float | None
    page: ShardOnPage | None

    @property
    def lag_s(self) -> float | None:
        """The lag by the tip of the shard, else by the owner's report."""
        return self.conclusion.lag_s


def list_leases(
    snapshots: Sequence[FleetSnapshot], explained: Explanation, failover_s: float
) -> tuple[ListedLease, ...]:
    """Each row of the last snapshot, by key.

    Args:
        snapshots: in the order of time, at least one.
        explained: what they show.
        failover_s: after it a counter that stands still has expired.
    """
    watch = Snapshots(tuple(snapshots))
    names = {stream.identifier: stream.name for stream in watch.last.streams}
    groups = {}
    if watch.last.items is not None:
        groups = {one.worker_id: one.group for one in watch.last.items.metrics}
    found = []
    for conclusion in explained.shards:
        lease = conclusion.lease
        if lease is None:
            continue
        owner = lease.actual_owner
        still_s = watch.still_s(lease.lease_key) if len(watch.rows(lease.lease_key)) > 1 else None
        is_expired = (
            owner is not None
            and not lease.is_finished
            and still_s is not None
            and still_s >= failover_s
        )
        found.append(
            ListedLease(
                lease=lease,
                conclusion=conclusion,
                stream=names.get(lease.stream_identifier) or _name_in(lease.stream_identifier),
                state=EXPIRED if is_expired else str(state_of(lease)),
                renewed_within_s=_renewed_within_s(watch, lease),
                still_s=still_s,
                group=None if owner is None else groups.get(owner),
                host=host_of(owner, watch.last),
                records_per_s=records_per_s(watch.snapshots, lease),
                page=shard_on_page(watch.last, lease),
            )
        )
    return tuple(sorted(found, key=lambda one: one.lease.lease_key))


def _renewed_within_s(watch: Snapshots, lease: Lease) -> float | None:
    """From the beginning of the last snapshot that shows another counter to the end of the last one."""
    if lease.actual_owner is None:
        return None
    for snapshot, row in reversed(watch.rows(lease.lease_key)):
        if row.lease_counter != lease.lease_counter:
            return watch.last.at - snapshot.began_at
    return None


def host_of(worker: str | None, snapshot: FleetSnapshot) -> str | None:
    """Where a worker runs, by the address of its page, else by an id ``host:uuid``."""
    if worker is None:
        return None
    page = page_of(snapshot, worker)
    if page is not None:
        return page.host
    found = _HOST_AND_UUID.match(worker)
    return None if found is None else found["host"]


def _name_in(identifier: str | None) -> str | None:
    try:
        return None if identifier is None else Stream.parse_identifier(identifier).name
    except MalformedData:
        return None


def matches(
    one: ListedLease,
    workers: Collection[str] = (),
    groups: Collection[str] = (),
    streams: Collection[str] = (),
) -> bool:
    """Whether a row is among those that are asked for; without a condition each is.

    Args:
        workers: ids; in a hand-off both owners count.
        groups: ``workerGroup`` of owners.
        streams: names, or ``account:name:epoch``.
    """
    lease = one.lease
    return (
        (not workers or lease.lease_owner in workers or lease.checkpoint_owner in workers)
        and (not groups or one.group in groups)
        and (not streams or one.stream in streams or lease.stream_identifier in streams)
    )


def relatives(
    one: ListedLease, rows: Sequence[ListedLease]
) -> tuple[tuple[ListedLease, ...], tuple[ListedLease, ...]]:
    """Rows of the parents of a shard, and of its children.

    Children are those that its row names, and those whose rows name it.
    """
    lease = one.lease
    parents = {lease.key_of(shard_id) for shard_id in lease.parent_shard_ids}
    named = {lease.key_of(shard_id) for shard_id in lease.child_shard_ids}
    return (
        tuple(row for row in rows if row.lease.lease_key in parents),
        tuple(
            row
            for row in rows
            if row.lease.lease_key in named
            or (
                lease.shard_id in row.lease.parent_shard_ids
                and row.lease.stream_identifier == lease.stream_identifier
            )
        ),
    )
