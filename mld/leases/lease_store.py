"""The rows of the lease table: scans, single rows, and conditional writes on owner and counter.

This module never decides *whether* to write, and never writes without a condition. It resolves a
write without an answer by a consistent read and, if the write is the holder's, by writing again on
top. Callers get ``UnknownOutcome`` only when that read failed as well.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import (
    AwsError,
    ConditionFailed,
    Denied,
    LeaseLost,
    MalformedData,
    MixedTable,
    NotFound,
    UnknownOutcome,
)
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.leases.holder import Holder, UnresolvedWrite
from kcl_mld.leases.leader_writes import LeaderWrites
from kcl_mld.leases.lease_rows import WRITE_TRIES, LeaseRows, lease_of
from kcl_mld.leases.lease_scan import TableScan, TableScanner
from kcl_mld.leases.lease_table import LeaseTable, OwnerIndex
from kcl_mld.leases.model.lease_item import (
    hash_range_attributes,
    lease_to_item,
    request_in,
)
from kcl_mld.leases.model.lease_writes import (
    checkpointing,
    children_update,
    containing,
    deletion,
    gaining,
    hash_range_update,
    marking,
    noting,
    releasing,
    renewal,
    taking,
    unmarking,
)
from kcl_mld.leases.model.steering_writes import answering, withdrawing
from kcl_mld.leases.rules.foreign_rows import foreign_rows
from kcl_mld.leases.rules.renewal import (
    RowVerdict,
    is_released,
    judge_row,
    judge_taking,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.config.config import LeaseConfig
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_scan import UnreadableRows
    from kcl_mld.leases.model.containment import FailureNote, PositionRange
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.lease_request import LeaseRequest
    from kcl_mld.leases.model.lease_writes import LeaseWrite
    from kcl_mld.streams.model.shard import HashRange

log = logging.getLogger("mld.leases")


class LeaseStore:
    """All access to the lease table.

    Every method also raises the errors of the port (:class:`~kcl_mld.errors.AwsError`). Cancellation: a
    write that was sent may still happen; the next write to that lease resolves it.

    Args:
        unreadable: gets the rows that a scan could not read.
        holder: None = no rows are written as a holder.
        is_multi_stream: lease keys name their stream; None = rows of any application are accepted.
    """

    def __init__(
        self,
        dynamodb: DynamoDb,
        config: LeaseConfig,
        clock: Clock,
        rng: random.Random,
        unreadable: UnreadableRows | None = None,
        holder: Holder | None = None,
        *,
        is_multi_stream: bool | None = None,
    ) -> None:
        self._dynamodb = dynamodb
        self._clock = clock
        #: Name of the lease table.
        self.table_name = config.table_name
        #: The table itself: creation, and its index.
        self.table = LeaseTable(dynamodb, config, clock)
        self.holder = Holder() if holder is None else holder
        self._rows = LeaseRows(dynamodb, config.table_name)
        #: Writes to leases of others.
        self.leader = LeaderWrites(dynamodb, config.table_name, self.check_rows)

        def find_conflict(items: Iterable[Mapping[str, Any]]) -> str | None:
            if is_multi_stream is None:
                return None
            stream = self.holder.stream
            mark = None if stream is None else stream.mark or stream.stream.name
            return foreign_rows(
                items, self.table_name, is_multi_stream=is_multi_stream, stream_mark=mark
            )

        self._scanner = TableScanner(dynamodb, config, clock, rng, find_conflict)
        self._unreadable = unreadable
        #: The latest finished scan, whatever its purpose.
        self.last_scan: TableScan | None = None
        #: Set after every scan; the fleet watch waits for it.
        self.scanned = Wakeup()
        #: Set when the table, or the unchanged row of a held lease, was not found.
        self.table_check_wanted = Wakeup()
        #: Finds the leases of a 3.x worker without a scan.
        self.owner_index = OwnerIndex(dynamodb, config.table_name, rng, self.table_check_wanted)

    # -- reading ----------------------------------------------------------------------------------

    async def scan(self, *, consistent: bool = False) -> TableScan:
        """Read the whole table; the result is also kept as :attr:`last_scan`.

        Args:
            consistent: use strongly consistent reads, at twice the capacity.
        """
        try:
            size_bytes = self.table.size_bytes
            self.last_scan = await self._scanner.scan(size_bytes, consistent=consistent)
        except NotFound:
            self.table_check_wanted.wake()
            raise
        if self._unreadable is not None:
            self._unreadable.note(self.last_scan.broken)
        self.scanned.wake()
        return self.last_scan

    async def get(self, lease_key: str, *, consistent: bool = False) -> Lease | None:
        """One lease; None when there is no such row.

        Raises:
            MalformedData: the row can't be read as a lease.
        """
        item = await self._rows.item(lease_key, consistent=consistent)
        return lease_of(item) if item else None

    @property
    def conflict(self) -> str | None:
        """Why nothing may be created, taken, assigned or deleted, according to the last scan."""
        return None if self.last_scan is None else self.last_scan.conflict

    def check_rows(self, operation: str) -> None:
        """Check that the last scan found only rows of this application.

        Raises:
            MixedTable: there are rows of others, so ``operation`` must not be sent.
        """
        if self.conflict is not None:
            raise MixedTable(operation, self.conflict)

    # -- writing as the holder --------------------------------------------------------------------

    async def renew(self, lease: Lease, throughput_kbps: float | None = None) -> Lease:
        """Raise the counter of a lease that this worker holds.

        Args:
            lease: the row as this worker last wrote it.
            throughput_kbps: the recent average in KiB/s, for the leader of a 3.x fleet; None = not
                written.

        Returns:
            The row as written; with ``checkpoint_owner`` set while a 3.x leader hands it over.

        Raises:
            LeaseLost: another worker wrote, or the row is gone.
            UnknownOutcome: neither the write nor the following read was answered. The lease may
                still be held; keep ``lease`` and renew again.
        """
        return await self._write_as_holder(lease, lambda row: renewal(row, throughput_kbps))

    async def gain(self, lease: Lease) -> Lease:
        """The first renewal of a lease that names this worker; otherwise like :meth:`renew`.

        An old request in the row is removed.
        """
        gained = await self._write_as_holder(lease, gaining)
        _note_void(lease)
        return gained

    async def checkpoint(
        self,
        lease: Lease,
        position: ExtendedSequenceNumber,
        *,
        child_shard_ids: tuple[str, ...] = (),
        throughput_kbps: float | None = None,
    ) -> Lease:
        """Store a position; otherwise like :meth:`renew`.

        Raises:
            UnknownOutcome: the position may or may not be stored; keep ``lease``.
        """
        return await self._write_as_holder(
            lease, lambda row: checkpointing(row, position, child_shard_ids, throughput_kbps)
        )

    async def contain(
        self,
        lease: Lease,
        failure: FailureNote,
        skipped: tuple[PositionRange, ...],
        throughput_kbps: float | None = None,
    ) -> Lease:
        """Store failures of the children of a held lease; otherwise like :meth:`renew`."""
        return await self._write_as_holder(
            lease, lambda row: containing(row, failure, skipped, throughput_kbps)
        )

    async def evict(self, lease: Lease, has_left: Callable[[str], Awaitable[bool]]) -> Lease | None:
        """Release a held lease, so that another worker can take it at once.

        Args:
            has_left: called with the next owner of a lease in a hand-off; True = it has left the
                fleet, so the lease gets no owner.

        Returns:
            The row as stored; None when it had already been taken or deleted.
        """

        async def release(row: Lease) -> LeaseWrite:
            is_named = row.is_handed_over and row.lease_owner is not None
            return releasing(row, to_nobody=is_named and await has_left(str(row.lease_owner)))

        try:
            return await self._write_as_holder_after(lease, release)
        except LeaseLost as lost:
            log.debug("Nothing to release: %s", lost)
            return None

    async def carry_out(self, lease: Lease, request: LeaseRequest, at_s: float) -> Lease:
        """Carry out a request to the holder; otherwise like :meth:`renew`.

        Args:
            request: addressed to this worker.
            at_s: epoch seconds, for the note in the row.

        Returns:
            The row as stored; see :func:`~kcl_mld.leases.model.steering_writes.answering`. After a
            release without an answer, another worker may have taken it.
        """
        return await self._write_as_holder(lease, lambda row: answering(row, request, at_s))

    async def withdraw(self, lease_key: str, request: LeaseRequest) -> None:
        """Remove a request that its holder can't carry out, if it is still in the row.

        Raises:
            AwsError: the request may still be in the row.
        """
        write = withdrawing(lease_key, request)
        with contextlib.suppress(ConditionFailed):
            await self._dynamodb.update_item(TableName=self.table_name, **write)

    async def remove_false_marks(self, leases: Iterable[Lease]) -> None:
        """Remove marks of this process from rows that other workers have taken."""
        newcomer = self.holder.newcomer
        for lease in leases:
            if newcomer is not None and lease.newcomer and newcomer.is_false(lease):
                write = unmarking(lease.lease_key, lease.newcomer)
                try:
                    with contextlib.suppress(ConditionFailed):
                        await self._dynamodb.update_item(TableName=self.table_name, **write)
                except AwsError as error:
                    log.warning(
                        "Cannot remove the mark of a newcomer from %s, which is tried again: %s",
                        lease.lease_key,
                        error,
                    )

    async def _write_as_holder(self, lease: Lease, make: Callable[[Lease], LeaseWrite]) -> Lease:
        async def make_now(row: Lease) -> LeaseWrite:
            return make(row)

        return await self._write_as_holder_after(lease, make_now)

    async def _write_as_holder_after(
        self, lease: Lease, make: Callable[[Lease], Awaitable[LeaseWrite]]
    ) -> Lease:
        """Write on top of a row, and again on top of a row that an unanswered write has left.

        Raises:
            UnresolvedWrite: unanswered writes were stored; their row is in the error.
        """
        row = lease
        for _ in range(WRITE_TRIES):
            try:
                written, after = await self._write_once_as_holder(row, make)
            except (NotFound, Denied):
                raise
            except AwsError as error:
                if row is lease:
                    raise
                raise UnresolvedWrite(error, row) from error
            if written is not None:
                return written
            row = after
        unresolved = UnknownOutcome(
            "UpdateItem", "Unresolved", f"{lease.lease_key} after several tries"
        )
        raise UnresolvedWrite(unresolved, row)

    async def _write_once_as_holder(
        self, lease: Lease, make: Callable[[Lease], Awaitable[LeaseWrite]]
    ) -> tuple[Lease | None, Lease]:
        """One write: the row as written, or None and the row to write on top of."""
        holder = self.holder
        write = marking(await make(lease), holder.stream_mark)
        write = noting(write, holder.find_notes(write.after))
        if holder.newcomer is not None:
            write = holder.newcomer.holding(write)
        unanswered: UnknownOutcome | None = None
        try:
            answer = await self._update_own(write)
        except ConditionFailed as refused:
            row = await self._stored(lease.lease_key, refused)
        except UnknownOutcome as error:
            unanswered = error
            row = await self._stored(lease.lease_key, error)
        except NotFound:
            self.table_check_wanted.wake()
            raise
        else:
            written = _with_request(write.after, answer.get("Attributes"))
            return written, written
        if row is None or row.lease_counter < lease.lease_counter:
            self.table_check_wanted.wake()  # lower: perhaps another table
        if unanswered and row is not None and is_released(write, row):
            return row, row
        judgement = judge_row(lease, row)
        if judgement.verdict is RowVerdict.LOST or row is None:
            raise LeaseLost(lease.lease_key, judgement.why)
        log.info("Writing to lease %s again: %s", lease.lease_key, judgement.why)
        return None, row

    async def _update_own(self, write: LeaseWrite) -> Mapping[str, Any]:
        """Send a write that raises the counter and leaves this worker's name, or takes it away."""
        key, rows = write.before.lease_key, self.holder.own_rows
        known = None if rows is None else rows.sent(key)
        try:
            answer = await self._dynamodb.update_item(TableName=self.table_name, **write.request)
        except ConditionFailed:
            if rows is not None:
                rows.refused(key, known)
            raise
        if rows is not None:
            rows.answered(write.after)
        return answer

    # -- taking -----------------------------------------------------------------------------------

    async def take(self, lease: Lease, worker_id: str, *, steals: bool = False) -> Lease | None:
        """Become the owner of a lease as it was scanned.

        Args:
            lease: the row.
            worker_id: of this worker.
            steals: the present owner is alive.

        Returns:
            The row as written, or None when another worker was faster.
        """
        self.check_rows("UpdateItem")
        unanswered = False
        for _ in range(WRITE_TRIES):
            write = taking(lease, worker_id)
            if self.holder.newcomer is not None:
                write = self.holder.newcomer.taking(write, steals=steals)
            try:
                await self._update_own(write)
            except ConditionFailed as refused:
                row = await self._stored(lease.lease_key, refused)
            except UnknownOutcome as error:
                row = await self._stored(lease.lease_key, error)
                unanswered = True
            else:
                _note_void(lease)
                return write.after
            verdict = judge_taking(lease, row, worker_id, unanswered=unanswered)
            if verdict is RowVerdict.LOST or row is None:
                return None
            lease = row
        raise UnknownOutcome("UpdateItem", "Unresolved", f"{lease.lease_key} after several tries")

    # -- creating, noting, deleting ---------------------------------------------------------------

    async def create_if_absent(self, lease: Lease) -> bool:
        """Add a row unless there is one with that key; True when this call added it."""
        self.check_rows("PutItem")
        lease = replace(lease, stream_mark=self.holder.stream_mark)
        for _ in range(WRITE_TRIES):
            try:
                await self._dynamodb.put_item(
                    TableName=self.table_name,
                    Item=lease_to_item(lease),
                    ConditionExpression="attribute_not_exists(leaseKey)",
                )
            except ConditionFailed:
                return False
            except UnknownOutcome as error:
                item = await self._rows.item_after(lease.lease_key, error)
                if item:
                    return item.get("leaseCounter") == {"N": str(lease.lease_counter)}
            else:
                return True
        raise UnknownOutcome("PutItem", "Unresolved", f"{lease.lease_key} after several tries")

    async def write_children(self, lease_key: str, child_shard_ids: tuple[str, ...]) -> bool:
        """Store the children of a closed shard in its row.

        Args:
            child_shard_ids: not empty.

        Returns:
            False when the row doesn't exist.
        """
        return await self._write_metadata(children_update(lease_key, child_shard_ids))

    async def write_hash_range(self, lease_key: str, hash_range: HashRange) -> bool:
        """Store the hash range of a row that lacks it.

        Returns:
            False when the row doesn't exist, or Java can't read the range.
        """
        if not hash_range_attributes(hash_range):
            return False
        return await self._write_metadata(hash_range_update(lease_key, hash_range))

    async def delete(self, lease_key: str, *, only_finished: bool) -> bool:
        """Delete the row of a lease; other items are never deleted.

        Args:
            lease_key: of the lease.
            only_finished: only when its checkpoint is SHARD_END.

        Returns:
            True when the row is gone, deleted by us or before.
        """
        self.check_rows("DeleteItem")
        request = deletion(lease_key, only_finished=only_finished)
        for _ in range(WRITE_TRIES):
            try:
                await self._dynamodb.delete_item(TableName=self.table_name, **request)
            except ConditionFailed as refused:
                return await self._rows.item_after(lease_key, refused) is None
            except UnknownOutcome as error:
                if await self._rows.item_after(lease_key, error) is None:
                    return True
            else:
                return True
        raise UnknownOutcome("DeleteItem", "Unresolved", f"{lease_key} after several tries")

    async def _write_metadata(self, request: Mapping[str, Any], tries: int = WRITE_TRIES) -> bool:
        try:
            await self._dynamodb.update_item(TableName=self.table_name, **request)
        except ConditionFailed:
            return False
        except UnknownOutcome:
            if tries == 1:
                raise
            # Writing the same values again has no effect.
            return await self._write_metadata(request, tries - 1)
        return True

    # -- after a write went wrong -----------------------------------------------------------------

    async def _stored(
        self, lease_key: str, error: ConditionFailed | UnknownOutcome
    ) -> Lease | None:
        """The row after a failed write; None when it is gone."""
        try:
            row = await self._rows.lease_after(lease_key, error)
        except MalformedData as malformed:
            raise LeaseLost(lease_key, f"its row can't be read: {malformed}") from malformed
        if row is not None and self.holder.own_rows is not None:
            self.holder.own_rows.found(row, self._clock.monotonic())
        return row


def _note_void(lease: Lease) -> None:
    """Log that the first write of a new holder removed a request."""
    if (request := lease.request) is not None:
        log.warning(
            "%s: removed the request to %s of %s, asked of %s before this worker had the lease",
            lease.lease_key,
            request.verb,
            request.by or "somebody",
            request.holder,
        )


def _with_request(lease: Lease, attributes: Mapping[str, Any] | None) -> Lease:
    """The row as written, with a request added meanwhile; adding one keeps the counter."""
    request = request_in(attributes or {})
    return lease if request == lease.request else replace(lease, request=request)
