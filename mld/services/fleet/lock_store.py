"""Reading and writing the leader lock, in the format of the DynamoDB lock client.

Every write names the version that it replaces. A write without an answer is looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mld.errors import AwsError, ConditionFailed, UnknownOutcome
from mld.model.fleet.entities import LEADER_KEY
from mld.model.fleet.leader_lock_item import (
    IS_RELEASED,
    OWNER_NAME,
    RECORD_VERSION,
    heartbeat_attributes,
    lock_from_item,
    lock_to_item,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.model.fleet.leader_lock_item import LockItem
    from mld.model.leases.table_layout import Place
    from mld.ports.aws import DynamoDb


class LockStore:
    """The lock at a place. Methods raise the errors of the port, :class:`~mld.errors.AwsError`."""

    def __init__(self, dynamodb: DynamoDb) -> None:
        """Use any table; each method is told which."""
        self._dynamodb = dynamodb

    async def read(self, place: Place) -> LockItem | None:
        """The lock as it is now, read consistently; None = there is none.

        Raises:
            MalformedData: the item can't be read.
        """
        answer = await self._dynamodb.get_item(
            TableName=place.table, Key=_key(place), ConsistentRead=True
        )
        item = answer.get("Item")
        return lock_from_item(item) if item else None

    async def acquire(self, place: Place, found: LockItem | None, mine: LockItem) -> bool:
        """Write the whole item over what was found.

        Args:
            place: where.
            found: as read; None = nothing.
            mine: with a fresh version.

        Returns:
            False when the lock is not as it was found.

        Raises:
            UnknownOutcome: it may be ours; :meth:`read` tells.
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
            if stored == found and isinstance(error, UnknownOutcome):
                raise
            return stored is not None and stored.record_version == mine.record_version
        return True

    async def heartbeat(self, place: Place, held: LockItem, mine: LockItem) -> LockItem | None:
        """Give our lock a new version.

        Args:
            place: where it is.
            held: as it was last known to be stored.
            mine: the same with a fresh version.

        Returns:
            The lock as it is stored: ``mine`` when it worked, else somebody's, or None.

        Raises:
            AwsError: it is not known; ``held`` may still be stored.
        """
        request = _when(place, {RECORD_VERSION: held.record_version, OWNER_NAME: held.owner})
        names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
        sets = []
        for number, (name, value) in enumerate(sorted(heartbeat_attributes(mine).items())):
            names[f"#s{number}"], values[f":s{number}"] = name, value
            sets.append(f"#s{number} = :s{number}")
        try:
            await self._dynamodb.update_item(
                TableName=place.table,
                Key=_key(place),
                UpdateExpression=f"SET {', '.join(sets)}",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **request,
            )
        except (ConditionFailed, UnknownOutcome) as error:
            stored = await self._after(place, error)
            if isinstance(error, UnknownOutcome) and stored == held:
                raise
            return stored
        return mine

    async def delete(self, place: Place, held: LockItem) -> None:
        """Let others have our lock; nothing where it is not ours any more."""
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
