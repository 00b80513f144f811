"""What a leader of a 3.x fleet writes to the leases of others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.decide.leases.renewal import MoveVerdict, judge_move
from mld.errors import ConditionFailed, MalformedData, UnknownOutcome
from mld.model.leases.lease_writes import assigning, hand_off_start
from mld.services.leases.stored_rows import WRITE_TRIES, StoredRows, lease_of

if TYPE_CHECKING:
    from mld.model.leases.lease import Lease
    from mld.model.leases.lease_writes import LeaseWrite
    from mld.ports.aws import DynamoDb

log = logging.getLogger(__name__)


class LeaderWrites:
    """Moves leases; conditions name their owners, so that nothing written meanwhile is undone.

    Args:
        dynamodb: where the table is.
        table_name: of the lease table.
    """

    def __init__(self, dynamodb: DynamoDb, table_name: str) -> None:
        self._dynamodb = dynamodb
        self._table_name = table_name
        self._rows = StoredRows(dynamodb, table_name)

    async def assign(self, lease: Lease, worker_id: str, *, only_unchanged: bool) -> Lease | None:
        """Give a lease to a worker; see :func:`~mld.model.leases.lease_writes.assigning`.

        Returns:
            The row as stored, or None when it was written meanwhile, or is gone.

        Raises:
            AwsError: nothing is known of the row, or nothing was changed; plan again.
        """
        write = assigning(lease, worker_id, only_unchanged=only_unchanged)
        return await self._move(write, only_unchanged=only_unchanged)

    async def start_hand_off(self, lease: Lease, worker_id: str) -> Lease | None:
        """Ask the owner to hand a lease over; otherwise like :meth:`assign`.

        Raises:
            ValueError: see :func:`~mld.model.leases.lease_writes.hand_off_start`.
        """
        return await self._move(hand_off_start(lease, worker_id), only_unchanged=False)

    async def _move(self, write: LeaseWrite, *, only_unchanged: bool) -> Lease | None:
        key = write.before.lease_key
        for _ in range(WRITE_TRIES):
            try:
                try:
                    answer = await self._dynamodb.update_item(
                        TableName=self._table_name, **write.request
                    )
                except (ConditionFailed, UnknownOutcome) as error:
                    row = await self._rows.lease_after(key, error)
                else:
                    return lease_of(answer["Attributes"])
            except MalformedData as malformed:
                log.warning("The row of lease %s can't be read: %s", key, malformed)
                return None
            verdict = judge_move(write, row, only_unchanged=only_unchanged)
            if verdict is not MoveVerdict.AGAIN:
                return row if verdict is MoveVerdict.DONE else None
        raise UnknownOutcome("UpdateItem", "Unresolved", f"{key} after several tries")
