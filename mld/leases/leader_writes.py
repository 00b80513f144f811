"""Writes of a leader to leases of others: it assigns them, or asks their owners to hand them over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError, ConditionFailed, MalformedData, UnknownOutcome
from kcl_mld.leases.lease_rows import WRITE_TRIES, LeaseRows, lease_of
from kcl_mld.leases.model.lease_writes import assigning, hand_off_start
from kcl_mld.leases.rules.renewal import MoveVerdict, judge_move

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.lease_writes import LeaseWrite

log = logging.getLogger("mld.leases")


class LeaderWrites:
    """Moves leases between workers.

    Args:
        check_rows: raises ``MixedTable`` where the table has rows of others.
    """

    def __init__(
        self, dynamodb: DynamoDb, table_name: str, check_rows: Callable[[str], None]
    ) -> None:
        self._dynamodb = dynamodb
        self._table_name = table_name
        self._rows = LeaseRows(dynamodb, table_name)
        self._check_rows = check_rows

    async def assign(self, lease: Lease, worker_id: str, *, only_unchanged: bool) -> Lease | None:
        """Assign a lease to a worker; see :func:`~kcl_mld.leases.model.lease_writes.assigning`.

        Returns:
            The row as stored, or None when it was changed meanwhile or is gone.

        Raises:
            AwsError: the state of the row is unknown, or nothing was changed; plan again.
        """
        write = assigning(lease, worker_id, only_unchanged=only_unchanged)
        return await self._move(write, only_unchanged=only_unchanged)

    async def start_hand_off(self, lease: Lease, worker_id: str) -> Lease | None:
        """Ask the owner to hand a lease over; otherwise like :meth:`assign`.

        Raises:
            ValueError: see :func:`~kcl_mld.leases.model.lease_writes.hand_off_start`.
        """
        return await self._move(hand_off_start(lease, worker_id), only_unchanged=False)

    async def _move(self, write: LeaseWrite, *, only_unchanged: bool) -> Lease | None:
        """Conditions name the owners, so that no write of others since the read is undone."""
        self._check_rows("UpdateItem")
        key = write.before.lease_key
        refused: AwsError | None = None
        for _ in range(WRITE_TRIES):
            try:
                try:
                    answer = await self._dynamodb.update_item(
                        TableName=self._table_name, **write.request
                    )
                except (ConditionFailed, UnknownOutcome) as error:
                    refused = error
                    row = await self._rows.lease_after(key, error)
                else:
                    return lease_of(answer["Attributes"])
            except MalformedData as malformed:
                log.warning("The row of lease %s can't be read: %s", key, malformed)
                return None
            verdict = judge_move(write, row, only_unchanged=only_unchanged)
            if verdict is not MoveVerdict.AGAIN:
                return row if verdict is MoveVerdict.DONE else None
        text = (
            f"{key} is stored as it was read (owner {write.before.lease_owner}, counter "
            f"{write.before.lease_counter}), but was not written in {WRITE_TRIES} tries; the last one: "
            f"{refused}"
        )
        raise UnknownOutcome("UpdateItem", "Unresolved", text)
