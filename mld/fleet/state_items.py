"""Reads and conditional writes of items that are no leases, in any table of a fleet.

A write without an answer is resolved by a consistent read, and sent again if it did not happen.
Callers get ``UnknownOutcome`` only when that read failed as well, or no request was answered.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import AwsError, ConditionFailed, UnknownOutcome
from kcl_mld.fleet.model.table_layout import change, creation, deletion, key_of, upsert
from kcl_mld.kernel.pages import all_items, repeated
from kcl_mld.leases.model.table_item import ENTITY_TYPE

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.fleet.model.table_layout import Place
    from kcl_mld.leases.model.table_item import Entity, Item

log = logging.getLogger("mld.fleet")

#: Requests for one logical write.
WRITE_TRIES = 3


class StateItems:
    """Items of any table; every method also raises the errors of the port."""

    def __init__(self, dynamodb: DynamoDb, rng: random.Random) -> None:
        self._dynamodb = dynamodb
        self._rng = rng

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
        return await all_items("Scan", repeated(self._dynamodb.scan, self._rng), request)

    async def create(self, place: Place, item: Item) -> bool:
        """Add an item unless there is one with that key.

        Returns:
            True when the stored item is this one.
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
            False when it is not as expected, or is gone.
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
    ) -> tuple[bool, Item | None]:
        """Set attributes of an item, whatever they were; creates a missing item.

        Args:
            unless_other: name and text of an attribute that an existing item must have.

        Returns:
            False when there is another kind of item; and the previous item, None = there was none,
            or no answer returned it.
        """
        answer: Mapping[str, Any] = {}

        async def send(**request: Any) -> Mapping[str, Any]:
            nonlocal answer
            answer = await self._dynamodb.update_item(**request, ReturnValues="ALL_OLD")
            return answer

        def is_done(stored: Item | None) -> bool | None:
            return True if stored is not None and _has(stored, attributes) else None

        request = upsert(place, key, attributes, unless_other)
        done = await self._write(send, request, place, key, is_done)
        return done, answer.get("Attributes")

    async def delete(self, place: Place, key: str, expected: Item) -> bool:
        """Delete an item that is as expected.

        Returns:
            False when it exists but is not as expected; True when it is gone, deleted by us or
            before.
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
            actions: as in TransactWriteItems.
            token: new for each transaction; a completed one is not repeated under it.

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
        """Send until the result is known.

        Args:
            request: with a condition or without.
            is_done: from the stored item: done, permanently not done, or None = send again.
        """
        unanswered: UnknownOutcome | None = None
        for _ in range(WRITE_TRIES):
            try:
                await send(**request)
            except ConditionFailed:
                if unanswered is None:
                    return False
                # An earlier request may have changed the item.
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
