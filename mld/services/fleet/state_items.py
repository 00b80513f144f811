"""Items that are no leases: conditional writes whose outcome is found out.

A write that got no answer is resolved here by a consistent read, and sent again where it did not
happen: callers only hear ``UnknownOutcome`` when reading failed as well, or nothing ever answered.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mld.errors import AwsError, ConditionFailed, UnknownOutcome
from mld.model.fleet.entities import ENTITY_TYPE
from mld.model.item_writes import change, creation, deletion, key_of, upsert
from mld.services.pages import page_numbers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mld.model.attributes import Item
    from mld.model.fleet.entities import Entity
    from mld.model.leases.table_layout import Place
    from mld.ports.aws import DynamoDb

log = logging.getLogger(__name__)

#: Sends of one logical write.
WRITE_TRIES = 3


class StateItems:
    """Items of any table; every method raises the errors of the port beside its own.

    Args:
        dynamodb: where the tables are.
    """

    def __init__(self, dynamodb: DynamoDb) -> None:
        self._dynamodb = dynamodb

    async def get(self, place: Place, key: str) -> Item | None:
        """An item, read consistently; None = there is none.

        Raises:
            NotFound: there is no such table.
        """
        answer = await self._dynamodb.get_item(
            TableName=place.table, Key=key_of(place, key), ConsistentRead=True
        )
        item: Item | None = answer.get("Item")
        return item or None

    async def all(self, place: Place, entity: Entity | None = None) -> list[Item]:
        """All items of a table.

        Args:
            place: which table.
            entity: only those whose ``entityType`` says so, eventually consistent; None = every
                item, consistently.
        """
        request: dict[str, Any] = {"TableName": place.table}
        if entity is None:
            request["ConsistentRead"] = True
        else:
            request |= {
                "FilterExpression": "#e = :e",
                "ExpressionAttributeNames": {"#e": ENTITY_TYPE},
                "ExpressionAttributeValues": {":e": {"S": entity.value}},
            }
        items: list[Item] = []
        numbers = page_numbers("Scan")
        while True:
            next(numbers)
            page = await self._dynamodb.scan(**request)
            items += page.get("Items", ())
            if not page.get("LastEvaluatedKey"):
                return items
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    async def create(self, place: Place, item: Item) -> bool:
        """Add an item unless there is one with that key.

        Returns:
            True when the one that is there is this one.
        """
        key = str(item[place.key_name]["S"])

        def is_done(stored: Item | None) -> bool | None:
            return None if stored is None else stored == item

        return await self._write(
            self._dynamodb.put_item, creation(place, item), place, key, is_done
        )

    async def change(self, place: Place, key: str, attributes: Item, expected: Item) -> bool:
        """Set attributes of an item that is as expected; its others stay.

        Returns:
            False when it is not, or is gone.
        """

        def is_done(stored: Item | None) -> bool | None:
            if stored is not None and _has(stored, attributes):
                return True
            return None if stored is not None and _has(stored, expected) else False

        request = change(place, key, attributes, expected)
        return await self._write(self._dynamodb.update_item, request, place, key, is_done)

    async def put_over(
        self,
        place: Place,
        key: str,
        attributes: Item,
        unless_other: tuple[str, str] | None = None,
    ) -> bool:
        """Set attributes of an item, whatever they were; it is made where there is none.

        Args:
            place: where.
            key: which.
            attributes: to be set.
            unless_other: name and text of an attribute that an existing item must have.

        Returns:
            False when there is another kind of item.
        """

        def is_done(stored: Item | None) -> bool | None:
            return True if stored is not None and _has(stored, attributes) else None

        request = upsert(place, key, attributes, unless_other)
        return await self._write(self._dynamodb.update_item, request, place, key, is_done)

    async def delete(self, place: Place, key: str, expected: Item) -> bool:
        """Remove an item that is as expected.

        Returns:
            False when it is there and isn't; True when it is gone, by us or before us.
        """

        def is_done(stored: Item | None) -> bool | None:
            if stored is None:
                return True
            return None if _has(stored, expected) else False

        request = deletion(place, key, expected)
        done = await self._write(self._dynamodb.delete_item, request, place, key, is_done)
        return done or await self.get(place, key) is None

    async def transact(self, actions: list[dict[str, Any]], token: str) -> None:
        """Several writes, all or none.

        Args:
            actions: as TransactWriteItems wants them.
            token: new for each transaction; one that was done is not done again under it.

        Raises:
            TransactionCanceled: nothing was changed.
        """
        request = {"TransactItems": actions, "ClientRequestToken": token}
        for _ in range(WRITE_TRIES - 1):
            try:
                await self._dynamodb.transact_write_items(**request)
            except UnknownOutcome as error:
                log.info("Sending a transaction again: %s", error)
            else:
                return
        await self._dynamodb.transact_write_items(**request)

    async def _write(
        self,
        send: Callable[..., Awaitable[Mapping[str, Any]]],
        request: Mapping[str, Any],
        place: Place,
        key: str,
        is_done: Callable[[Item | None], bool | None],
    ) -> bool:
        """Send until it is known what came of it.

        Args:
            send: operation of the port.
            request: with a condition or without.
            place: where the item is.
            key: which item.
            is_done: from the stored item: done, not done for good, or None = send again.
        """
        unanswered: UnknownOutcome | None = None
        for _ in range(WRITE_TRIES):
            try:
                await send(**request)
            except ConditionFailed:
                if unanswered is None:
                    return False
                # An earlier send may have been the one that changed the item.
                return is_done(await self._read_after(place, key, unanswered)) is True
            except UnknownOutcome as error:
                unanswered = error
                verdict = is_done(await self._read_after(place, key, error))
                if verdict is not None:
                    return verdict
            else:
                return True
        raise UnknownOutcome("Write", "Unresolved", f"{place.table} {key} after several tries")

    async def _read_after(self, place: Place, key: str, error: UnknownOutcome) -> Item | None:
        try:
            return await self.get(place, key)
        except AwsError as unread:
            raise error from unread


def _has(item: Item, attributes: Item) -> bool:
    return all(item.get(name) == value for name, value in attributes.items())
