"""A lease: one row of the lease table, and the meaning of its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.leases.model.containment import NO_FAILURE

if TYPE_CHECKING:
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.leases.model.containment import FailureNote, PositionRange
    from kcl_mld.leases.model.lease_request import LeaseRequest
    from kcl_mld.leases.model.newcomer import NewcomerMark
    from kcl_mld.leases.model.reading import LossNote, ReadNote
    from kcl_mld.streams.model.shard import HashRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The stored part of a lease; the names follow the attributes of the table.

    Attributes:
        lease_key: primary key; the shard id, or ``account:stream:epoch:shardId``.
        shard_id: the bare shard id, also in multi-stream mode.
        stream_identifier: ``account:stream:epoch`` in multi-stream mode (attribute ``streamName``),
            else None.
        lease_owner: worker id, None = no owner. During a hand-off already the next owner.
        lease_counter: fencing token and heartbeat; every change by an owner raises it by one.
        checkpoint: last position processed; a sentinel before the first one. Never None in a row
            that was read.
        owner_switches_since_checkpoint: informational, reset by a checkpoint.
        pending_checkpoint: first half of a two-phase checkpoint of a Java application, or None.
        parent_shard_ids: bare ids, sorted; empty for a root.
        child_shard_ids: bare ids, sorted; known from shard end on.
        hash_range: None in rows of old versions until a worker stores it.
        checkpoint_owner: 3.x hand-off only: the old owner that may still checkpoint.
        throughput_kbps: KiB/s that its holder read recently, as renewals of 3.x store it; None =
            never stored.
        stream_mark: ``account:region:name`` of the stream, in rows of a single stream (attribute
            ``kclMldStream``, ours alone); None until a worker of ours has held it.
        failure: failures of its children, see :mod:`kcl_mld.leases.model.containment`.
        skipped: dead-lettered records that no checkpoint covers.
        holder: the last worker of ours that held it (``kclMldHolder``, ours alone).
        request: the pending request to its holder (``kclMldRequest``, ours alone).
        steered: the note of the last such request that was carried out (``kclMldSteered``).
        paused_until_s: epoch seconds until which its owner holds it without reading
            (``kclMldPausedUntil``, ours alone).
        read: until when the shard is known to have been read (``kclMldReadUntil``, ours alone);
            also set if the checkpoint makes it void, see :attr:`read_until_s`.
        loss: records that were lost, or may be (``kclMldLoss``, ours alone).
        newcomer: the worker that took it while new to its fleet (``kclMldNewcomer``, ours alone).
    """

    lease_key: str
    shard_id: str
    stream_identifier: str | None = None
    lease_owner: str | None = None
    lease_counter: int = 0
    checkpoint: ExtendedSequenceNumber | None = None
    owner_switches_since_checkpoint: int = 0
    pending_checkpoint: ExtendedSequenceNumber | None = None
    parent_shard_ids: tuple[str, ...] = ()
    child_shard_ids: tuple[str, ...] = ()
    hash_range: HashRange | None = None
    checkpoint_owner: str | None = None
    throughput_kbps: float | None = None
    stream_mark: str | None = None
    failure: FailureNote = NO_FAILURE
    skipped: tuple[PositionRange, ...] = ()
    holder: str | None = None
    request: LeaseRequest | None = None
    steered: LeaseRequest | None = None
    paused_until_s: float | None = None
    read: ReadNote | None = None
    loss: LossNote | None = None
    newcomer: NewcomerMark | None = None

    def has_done(self, request: LeaseRequest) -> bool:
        """True if ``request`` was the last one that was carried out."""
        return self.steered is not None and self.steered.request_id == request.request_id

    @property
    def read_until_s(self) -> float | None:
        """Epoch seconds; all records that arrived before are checkpointed. None = unknown."""
        if self.read is None or not self.read.holds_at(self.checkpoint):
            return None
        return self.read.until_s or None

    @property
    def is_finished(self) -> bool:
        """True when the shard is processed to its end."""
        return self.checkpoint is not None and self.checkpoint.is_shard_end

    @property
    def actual_owner(self) -> str | None:
        """The worker that may renew and checkpoint: during a 3.x hand-off, still the old owner."""
        return self.checkpoint_owner or self.lease_owner

    @property
    def is_handed_over(self) -> bool:
        """True while the old owner still has to hand it over to ``lease_owner`` (3.x)."""
        return self.checkpoint_owner is not None

    @property
    def is_held_by_ours(self) -> bool:
        """True if a kcl-mld worker holds it and it is not being handed over."""
        is_ours = self.lease_owner is not None and self.holder == self.lease_owner
        return is_ours and not self.is_handed_over

    def key_of(self, shard_id: str) -> str:
        """Lease key of another shard of the same stream."""
        return f"{self.stream_identifier}:{shard_id}" if self.stream_identifier else shard_id


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that this worker holds, as of its last successful write.

    Attributes:
        lease: the row as we last wrote it.
        token: new for every acquisition; a writer with an old token is refused.
        valid_until: reading of ``Clock.monotonic`` from which the lease no longer counts as held;
            counted from the *start* of the last successful request (Java: from its end).
    """

    lease: Lease
    token: str
    valid_until: float
