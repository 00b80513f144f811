"""Reading single rows of the lease table, above all after a write went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mld.errors import AwsError, ConditionFailed, MalformedData, UnknownOutcome
from mld.model.leases.lease_item import LEASE_KEY, is_lease_item, item_key, lease_from_item

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.model.leases.lease import Lease
    from mld.ports.aws import DynamoDb

#: Sends of one logical write: the first, one after a lost answer, one on top of what was found.
WRITE_TRIES = 3


class StoredRows:
    """Rows as they are stored.

    Args:
        dynamodb: where the table is.
        table_name: of the lease table.
    """

    def __init__(self, dynamodb: DynamoDb, table_name: str) -> None:
        self._dynamodb = dynamodb
        self._table_name = table_name

    async def get(self, lease_key: str, *, consistent: bool = False) -> Lease | None:
        """One lease; None when there is no such row.

        Raises:
            MalformedData: the row can't be read as a lease.
            AwsError: nothing is known.
        """
        item = await self._get(lease_key, consistent=consistent)
        return lease_of(item) if item else None

    async def item_after(
        self, lease_key: str, error: ConditionFailed | UnknownOutcome
    ) -> Mapping[str, Any] | None:
        """The item after a write went wrong, as the refusal brought it or read consistently.

        Raises:
            AwsError: it could not be read; after an unknown outcome that error again.
        """
        if isinstance(error, ConditionFailed) and error.item:
            return error.item
        try:
            return await self._get(lease_key, consistent=True)
        except AwsError as unread:
            if isinstance(error, UnknownOutcome):
                raise error from unread
            raise

    async def lease_after(
        self, lease_key: str, error: ConditionFailed | UnknownOutcome
    ) -> Lease | None:
        """The lease after a write went wrong; None when its row is gone.

        Raises:
            MalformedData: the row can't be read as a lease.
            AwsError: as :meth:`item_after`.
        """
        item = await self.item_after(lease_key, error)
        return lease_of(item) if item else None

    async def _get(self, lease_key: str, *, consistent: bool) -> Mapping[str, Any] | None:
        answer = await self._dynamodb.get_item(
            TableName=self._table_name,
            Key={LEASE_KEY: {"S": lease_key}},
            ConsistentRead=consistent,
        )
        item: Mapping[str, Any] | None = answer.get("Item")
        return item


def lease_of(item: Mapping[str, Any]) -> Lease:
    """The lease of an item.

    Raises:
        MalformedData: it is no lease, or can't be read.
    """
    if not is_lease_item(item):
        raise MalformedData(f"item {item_key(item)} is not a lease")
    return lease_from_item(item)
