"""The lease table: the writes that owner and counter fence, and whole scans.

It never decides *whether* to write, and never writes without a condition. A write that got no
answer is resolved here by a consistent read and, where it is the holder's, by writing again on top:
callers only hear ``UnknownOutcome`` when reading failed as well.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.decide.intending import check_intent
from mld.decide.renewal import Finding, judge_row, judge_taking
from mld.errors import ConditionFailed, LeaseLost, UnknownOutcome
from mld.model.lease_writes import checkpointing, intending, releasing, renewal, taking
from mld.services.lease_rows import WRITE_TRIES, LeaseRows
from mld.services.lease_scan import TableScan, TableScanner
from mld.services.lease_table import LeaseTable
from mld.services.signal import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.model.config import LeaseConfig
    from mld.model.intent import Intent
    from mld.model.lease import Lease
    from mld.model.lease_writes import LeaseWrite
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.model.stream import Stream
    from mld.ports.aws import DynamoDb
    from mld.ports.clock import Clock

__all__ = ["LeaseStore", "TableScan"]

log = logging.getLogger(__name__)


class LeaseStore(LeaseRows):
    """All access to the lease table.

    Every method raises the errors of the port (:class:`~mld.errors.AwsError`) beside its own.
    Cancellation: a started write goes on unseen; the next write to that lease finds out.
    """

    def __init__(
        self, dynamodb: DynamoDb, config: LeaseConfig, stream: Stream, clock: Clock
    ) -> None:
        """Use the table ``config.table_name``."""
        super().__init__(dynamodb, config.table_name)
        self._table = LeaseTable(dynamodb, config, clock)
        self._scanner = TableScanner(dynamodb, config, clock)
        self.stream = stream
        #: The latest finished scan, whoever asked for it.
        self.last_scan: TableScan | None = None
        #: Woken after every scan; waited for by the fleet watch.
        self.scanned = Signal()

    async def ensure_table(self) -> bool:
        """Create the table if need be and wait until it can be used; see :class:`LeaseTable`."""
        return await self._table.ensure()

    # -- reading ----------------------------------------------------------------------------------

    async def scan(self) -> TableScan:
        """Read the whole table, eventually consistent; also kept as :attr:`last_scan`."""
        self.last_scan = await self._scanner.scan(self._table.size_bytes)
        self.scanned.wake()
        return self.last_scan

    # -- writing as the holder --------------------------------------------------------------------

    async def renew(self, lease: Lease) -> Lease:
        """Raise the counter of a lease that we hold.

        Args:
            lease: the row as we last wrote it.

        Returns:
            The row as written; with ``checkpoint_owner`` set when a 3.x leader hands it over.

        Raises:
            LeaseLost: somebody else wrote, or the row is gone.
            UnknownOutcome: neither the write nor the read that followed was answered. The lease may
                still be held; keep ``lease`` and renew again.
        """
        return await self._write_as_holder(lease, renewal)

    async def checkpoint(
        self,
        lease: Lease,
        position: ExtendedSequenceNumber,
        *,
        child_shard_ids: tuple[str, ...] = (),
    ) -> Lease:
        """Store a position; otherwise like :meth:`renew`.

        Raises:
            UnknownOutcome: the position may or may not be stored; keep ``lease``.
        """
        return await self._write_as_holder(
            lease, lambda row: checkpointing(row, position, child_shard_ids)
        )

    async def intend(self, lease: Lease, intent: Intent) -> Lease:
        """Store what a child is about to write; otherwise like :meth:`checkpoint`.

        Raises:
            CheckpointRefused: the stored intent is a later one, or another of the same number.
        """

        def make(row: Lease) -> LeaseWrite:
            # Judged on the row that the condition names: what we remember may be behind it.
            check_intent(row.intent, intent)
            return intending(row, intent)

        return await self._write_as_holder(lease, make)

    async def evict(self, lease: Lease) -> bool:
        """Release a lease that we hold, so that another worker can take it at once.

        Returns:
            False when it had already been taken away or deleted.
        """
        try:
            await self._write_as_holder(lease, releasing)
        except LeaseLost as lost:
            log.debug("Nothing to release: %s", lost)
            return False
        return True

    async def _write_as_holder(self, lease: Lease, make: Callable[[Lease], LeaseWrite]) -> Lease:
        for _ in range(WRITE_TRIES):
            write = make(lease)
            unanswered: UnknownOutcome | None = None
            try:
                await self._dynamodb.update_item(TableName=self.table_name, **write.request)
            except ConditionFailed as refused:
                row = await self._stored(lease.lease_key, refused)
            except UnknownOutcome as error:
                unanswered = error
                row = await self._stored(lease.lease_key, error)
            else:
                return write.after
            if unanswered and row is not None and _has_released(write, row):
                return row
            judgement = judge_row(lease, row)
            if judgement.finding is Finding.LOST or row is None:
                raise LeaseLost(lease.lease_key, judgement.why)
            log.info("Writing %s again: %s", lease.lease_key, judgement.why)
            lease = row
        raise UnknownOutcome("UpdateItem", "Unresolved", f"{lease.lease_key} after several tries")

    # -- writing as anybody -----------------------------------------------------------------------

    async def take(self, lease: Lease, worker_id: str) -> Lease | None:
        """Become the owner of a lease as it was scanned.

        Returns:
            The row as written, or None when somebody else was faster.
        """
        unanswered = False
        for _ in range(WRITE_TRIES):
            write = taking(lease, worker_id)
            try:
                await self._dynamodb.update_item(TableName=self.table_name, **write.request)
            except ConditionFailed as refused:
                row = await self._stored(lease.lease_key, refused)
            except UnknownOutcome as error:
                row = await self._stored(lease.lease_key, error)
                unanswered = True
            else:
                return write.after
            finding = judge_taking(lease, row, worker_id, unanswered=unanswered)
            if finding is Finding.LOST or row is None:
                return None
            lease = row
        raise UnknownOutcome("UpdateItem", "Unresolved", f"{lease.lease_key} after several tries")


def _has_released(write: LeaseWrite, row: Lease) -> bool:
    """True when an unanswered release is visible, or was followed by another worker's take."""
    gave_up = write.after.actual_owner != write.before.actual_owner
    return (
        gave_up
        and row.actual_owner != write.before.actual_owner
        and row.lease_counter >= write.after.lease_counter
    )
