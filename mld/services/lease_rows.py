"""Rows of the lease table, one at a time: reading, creating, noting facts, deleting.

Nothing here touches owner, counter or checkpoint of a row; those belong to the fenced writes of
:mod:`mld.services.lease_store`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mld.errors import AwsError, ConditionFailed, LeaseLost, MalformedData, UnknownOutcome
from mld.model.lease_item import (
    LEASE_KEY,
    hash_range_attributes,
    is_lease_item,
    item_key,
    lease_from_item,
    lease_to_item,
)
from mld.model.lease_writes import children_update, hash_range_update

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.model.lease import Lease
    from mld.model.shard import HashRange
    from mld.ports.aws import DynamoDb

#: Sends of one logical write: the first, one after a lost answer, one on top of what was found.
WRITE_TRIES = 3


class LeaseRows:
    """Access to the rows of one table; raises the errors of the port beside its own."""

    def __init__(self, dynamodb: DynamoDb, table_name: str) -> None:
        """Use that table."""
        self._dynamodb = dynamodb
        #: Name of the lease table.
        self.table_name = table_name

    # -- reading ----------------------------------------------------------------------------------

    async def get(self, lease_key: str, *, consistent: bool = False) -> Lease | None:
        """One lease; None when there is no such row.

        Raises:
            MalformedData: the row can't be read as a lease.
        """
        answer = await self._dynamodb.get_item(
            TableName=self.table_name,
            Key={LEASE_KEY: {"S": lease_key}},
            ConsistentRead=consistent,
        )
        item = answer.get("Item")
        return _lease(item) if item else None

    # -- creating, noting, deleting ---------------------------------------------------------------

    async def create_if_absent(self, lease: Lease) -> bool:
        """Add a row unless there is one with that key.

        Returns:
            True when it is there through this call.
        """
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
                row = await self._stored(lease.lease_key, error)
                if row is not None:
                    return row.lease_counter == lease.lease_counter
            else:
                return True
        raise UnknownOutcome("PutItem", "Unresolved", f"{lease.lease_key} after several tries")

    async def write_children(self, lease_key: str, child_shard_ids: tuple[str, ...]) -> bool:
        """Store the children of a closed shard in its row.

        Args:
            lease_key: whose row.
            child_shard_ids: not empty.

        Returns:
            False when the row doesn't exist.
        """
        return await self._write_metadata(children_update(lease_key, child_shard_ids))

    async def write_hash_range(self, lease_key: str, hash_range: HashRange) -> bool:
        """Fill in the hash range of a row.

        Returns:
            False when the row doesn't exist, or the range is one that Java can't read.
        """
        if not hash_range_attributes(hash_range):
            return False
        return await self._write_metadata(hash_range_update(lease_key, hash_range))

    async def delete(self, lease_key: str, *, only_finished: bool) -> bool:
        """Remove a row.

        Args:
            lease_key: which one; nothing but a lease is ever deleted.
            only_finished: only when its checkpoint is SHARD_END.

        Returns:
            True when the row is gone, by us or before us.
        """
        condition = "(attribute_not_exists(entityType) OR entityType = :lease)"
        values = {":lease": {"S": "LEASE"}}
        if only_finished:
            condition += " AND checkpoint = :end"
            values[":end"] = {"S": "SHARD_END"}
        for _ in range(WRITE_TRIES):
            try:
                await self._dynamodb.delete_item(
                    TableName=self.table_name,
                    Key={LEASE_KEY: {"S": lease_key}},
                    ConditionExpression=condition,
                    ExpressionAttributeValues=values,
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except ConditionFailed as refused:
                return await self._item(lease_key, refused) is None
            except UnknownOutcome as error:
                if await self._item(lease_key, error) is None:
                    return True
            else:
                return True
        raise UnknownOutcome("DeleteItem", "Unresolved", f"{lease_key} after several tries")

    async def _write_metadata(self, request: Mapping[str, Any]) -> bool:
        for attempt in range(1, WRITE_TRIES + 1):
            try:
                await self._dynamodb.update_item(TableName=self.table_name, **request)
            except ConditionFailed:
                return False
            except UnknownOutcome:
                # The same values again do no harm.
                if attempt == WRITE_TRIES:
                    raise
            else:
                break
        return True

    # -- after a write went wrong -----------------------------------------------------------------

    async def _stored(
        self, lease_key: str, error: ConditionFailed | UnknownOutcome
    ) -> Lease | None:
        """The row after a write went wrong; None when it is gone or is no lease any more."""
        item = await self._item(lease_key, error)
        try:
            return _lease(item) if item else None
        except MalformedData as malformed:
            raise LeaseLost(lease_key, f"its row can't be read: {malformed}") from malformed

    async def _item(
        self, lease_key: str, error: ConditionFailed | UnknownOutcome
    ) -> Mapping[str, Any] | None:
        if isinstance(error, ConditionFailed) and error.item:
            return error.item
        try:
            answer = await self._dynamodb.get_item(
                TableName=self.table_name, Key={LEASE_KEY: {"S": lease_key}}, ConsistentRead=True
            )
        except AwsError as unread:
            if isinstance(error, UnknownOutcome):
                raise error from unread
            raise
        item: Mapping[str, Any] | None = answer.get("Item")
        return item


def _lease(item: Mapping[str, Any]) -> Lease:
    if not is_lease_item(item):
        raise MalformedData(f"item {item_key(item)} is not a lease")
    return lease_from_item(item)
