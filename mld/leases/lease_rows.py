"""Single rows of the lease table: read, and looked at after a write that went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcl_mld.errors import AwsError, ConditionFailed, MalformedData, UnknownOutcome
from kcl_mld.leases.model.lease_item import LEASE_KEY, is_lease_item, item_key, lease_from_item

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.leases.model.lease import Lease

#: Requests for one logical write: the first, one after a lost answer, one on top of the row read.
WRITE_TRIES = 3


class LeaseRows:
    """Reads rows by key; raises the errors of the port."""

    def __init__(self, dynamodb: DynamoDb, table_name: str) -> None:
        self._dynamodb = dynamodb
        self._table_name = table_name

    async def item_after(
        self, lease_key: str, error: ConditionFailed | UnknownOutcome
    ) -> Mapping[str, Any] | None:
        """The item after a failed write, as returned with the refusal or read consistently.

        Raises:
            AwsError: it could not be read; after an unknown outcome, that error again.
        """
        if isinstance(error, ConditionFailed) and error.item:
            return error.item
        try:
            return await self.item(lease_key, consistent=True)
        except AwsError as unread:
            if isinstance(error, UnknownOutcome):
                raise error from unread
            raise

    async def lease_after(
        self, lease_key: str, error: ConditionFailed | UnknownOutcome
    ) -> Lease | None:
        """The lease after a failed write; None when its row is gone.

        Raises:
            MalformedData: the row can't be read as a lease.
            AwsError: as :meth:`item_after`.
        """
        item = await self.item_after(lease_key, error)
        return lease_of(item) if item else None

    async def item(self, lease_key: str, *, consistent: bool) -> Mapping[str, Any] | None:
        """The item under a key; None = there is none."""
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
        MalformedData: the item is not a lease, or can't be read.
    """
    if not is_lease_item(item):
        raise MalformedData(f"item {item_key(item)} is not a lease")
    return lease_from_item(item)
