"""Whether rows can only be leases of this stream, and not of an earlier one of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.streams.model.shard import Shard


def has_row_of(leases: Iterable[Lease], shards: Iterable[Shard]) -> bool:
    """Whether a lease is certainly of this stream: its checkpoint is after its shard's start.

    Sequence numbers grow with time, so those of an earlier stream of the name are before all shards
    of this one. If there is such a lease, another one that does not fit is wrong by itself.

    Args:
        shards: the unfiltered list.
    """
    begins = {shard.shard_id: int(shard.starting_sequence_number) for shard in shards}
    return any(
        lease.checkpoint is not None
        and lease.checkpoint.sentinel is None
        and lease.shard_id in begins
        and int(lease.checkpoint.sequence_number) >= begins[lease.shard_id]
        for lease in leases
    )
