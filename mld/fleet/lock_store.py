"""Reads and conditional writes of the leader lock's item.

It has the format of the DynamoDB lock client. Every write names the version that it replaces; a
write without an answer is resolved by a read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kcl_mld.config.reserved_keys import LEADER_KEY
from kcl_mld.errors import AwsError, ConditionFailed, UnknownOutcome
from kcl_mld.fleet.model.lock_item import (
    CALLED,
    IS_RELEASED,
    OWNER_NAME,
    RECORD_VERSION,
    LockItem,
    heartbeat_attributes,
    lock_from_item,
    lock_to_item,
)
from kcl_mld.leases.model.table_item import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.fleet.model.table_layout import Place


class LockStore:
    """The lock at a place. Methods raise the errors of the port, :class:`~kcl_mld.errors.AwsError`."""

    def __init__(self, dynamodb: DynamoDb) -> None:
        self._dynamodb = dynamodb

    async def read(self, place: Place, *, consistent: bool = True) -> LockItem | None:
        """The lock as it is now; None = there is none.

        Args:
            consistent: False = it may be a version before, for half the capacity.

        Raises:
            MalformedData: the item can't be read.
        """
        answer = await self._dynamodb.get_item(
            TableName=place.table, Key=_key(place), ConsistentRead=consistent
        )
        item = answer.get("Item")
        return lock_from_item(item) if item else None

    async def acquire(self, place: Place, found: LockItem | None, mine: LockItem) -> bool:
        """Write the whole item over the one that was read.

        Args:
            found: as read; None = none.
            mine: with a new version.

        Returns:
            False when the lock has changed since.

        Raises:
            UnknownOutcome: it may be ours; :meth:`read` shows it.
        """
        request: dict[str, Any] = {
            "TableName": place.table,
            "Item": lock_to_item(mine, place.key_name),
        }
        if found is None:
            request |= {
                "ConditionExpression": "attribute_not_exists(#k)",
                "ExpressionAttributeNames": {"#k": place.key_name},
            }
        elif found.is_released:
            request |= _when(place, {IS_RELEASED: "1"})
        else:
            request |= _when(place, {RECORD_VERSION: found.record_version})
        try:
            await self._dynamodb.put_item(**request)
        except (ConditionFailed, UnknownOutcome) as error:
            stored = await self._after(place, error)
            if isinstance(error, UnknownOutcome) and is_same_version(stored, found):
                raise
            return stored is not None and stored.record_version == mine.record_version
        return True

    async def heartbeat(self, place: Place, held: LockItem, mine: LockItem) -> LockItem | None:
        """Give our lock a new version.

        Args:
            held: as it was last known to be stored.
            mine: the same with a new version.

        Returns:
            The lock as stored: ``mine`` on success, else another worker's, or None.

        Raises:
            AwsError: unknown; ``held`` may still be stored.
        """
        request = _when(place, {RECORD_VERSION: held.record_version, OWNER_NAME: held.owner})
        names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
        sets = []
        for number, (name, value) in enumerate(sorted(heartbeat_attributes(mine).items())):
            names[f"#s{number}"], values[f":s{number}"] = name, value
            sets.append(f"#s{number} = :s{number}")
        try:
            answer = await self._dynamodb.update_item(
                TableName=place.table,
                Key=_key(place),
                UpdateExpression=f"SET {', '.join(sets)}",
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **request,
            )
        except (ConditionFailed, UnknownOutcome) as error:
            stored = await self._after(place, error)
            if isinstance(error, UnknownOutcome) and is_same_version(stored, held):
                raise
            return stored
        return replace(mine, called=text_of(answer.get("Attributes", {}), CALLED))

    async def call(self, place: Place, text: str) -> None:
        """Make the owner of the lock read the table; without an owner, do nothing.

        Args:
            text: another one than in any call before.
        """
        try:
            await self._dynamodb.update_item(
                TableName=place.table,
                Key=_key(place),
                UpdateExpression="SET #c = :c",
                ConditionExpression="attribute_exists(#k)",
                ExpressionAttributeNames={"#c": CALLED, "#k": place.key_name},
                ExpressionAttributeValues={":c": {"S": text}},
            )
        except ConditionFailed:
            return

    async def delete(self, place: Place, held: LockItem) -> None:
        """Release our lock; does nothing if it is no longer ours."""
        try:
            await self._dynamodb.delete_item(
                TableName=place.table,
                Key=_key(place),
                **_when(place, {RECORD_VERSION: held.record_version, OWNER_NAME: held.owner}),
            )
        except ConditionFailed:
            return

    async def _after(
        self, place: Place, error: ConditionFailed | UnknownOutcome
    ) -> LockItem | None:
        """The lock after a write was refused or got no answer."""
        try:
            if isinstance(error, ConditionFailed) and error.item:
                return lock_from_item(error.item)
            return await self.read(place)
        except AwsError as unread:
            if isinstance(error, UnknownOutcome):
                raise error from unread
            raise


def is_same_version(one: LockItem | None, other: LockItem | None) -> bool:
    """Whether the lock was not taken or renewed in between; a call of a worker is no such write."""
    if one is None or other is None:
        return one is other
    return (one.owner, one.record_version, one.is_released) == (
        other.owner,
        other.record_version,
        other.is_released,
    )


def _key(place: Place) -> dict[str, dict[str, str]]:
    return {place.key_name: {"S": LEADER_KEY}}


def _when(place: Place, attributes: Mapping[str, str]) -> dict[str, Any]:
    """A condition: the item exists, with these texts."""
    names, values, parts = {"#k": place.key_name}, {}, ["attribute_exists(#k)"]
    for number, (name, text) in enumerate(attributes.items()):
        names[f"#c{number}"], values[f":c{number}"] = name, {"S": text}
        parts.append(f"#c{number} = :c{number}")
    return {
        "ConditionExpression": " AND ".join(parts),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
