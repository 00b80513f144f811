"""Carries out a plan of :mod:`kcl_mld.leases.rules.lease_migration` on an unused lease table."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import (
    AwsError,
    ConditionFailed,
    Denied,
    NotFound,
    UnknownOutcome,
    WorkersAlive,
)
from kcl_mld.kernel.pages import all_items
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.leases.model.lease_item import LEASE_KEY
from kcl_mld.leases.model.lease_move import comparable, unchanged_condition
from kcl_mld.leases.rules.lease_migration import signs_of_life

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.leases.model.table_item import Item
    from kcl_mld.leases.rules.lease_migration import RowWrite

#: Attempts for one request; the pauses between them add up to about 40 s, enough for a throttled
#: table.
TRIES = 12
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 8.0
#: How many signs of life an error names.
_NAMED = 5


class LeaseMigration:
    """Reads the whole table, checks whether workers are alive, and writes the rows one by one.

    It may be interrupted at any moment: every write is conditional, and a plan made from the rows
    as they are then continues.
    """

    def __init__(self, dynamodb: DynamoDb, table_name: str, rng: random.Random) -> None:
        self._dynamodb = dynamodb
        self._table_name = table_name
        self._rng = rng

    async def scan(self) -> tuple[Item, ...]:
        """Every item of the table, read consistently.

        Raises:
            NotFound: there is no such table.
            AwsError: it could not be read.
        """

        async def scan_page(**request: Any) -> dict[str, Any]:
            return await self._patiently(self._dynamodb.scan, request)

        request = {"TableName": self._table_name, "ConsistentRead": True}
        return tuple(await all_items("Scan", scan_page, request))

    async def scan_at_rest(
        self, wait_s: float, on_wait: Callable[[float], None]
    ) -> tuple[Item, ...]:
        """Every item of the table, once it is clear that no worker writes to it.

        Args:
            wait_s: between two scans; a live worker renews each of its leases in the failover time.
            on_wait: called with the remaining seconds, at least every five seconds.

        Raises:
            WorkersAlive: something changed between the scans; the message names what, and the
                writer.
            AwsError: the table could not be read.
        """
        before = await self.scan()
        left_s = wait_s
        while left_s > 0:
            on_wait(left_s)
            pause_s = min(5.0, left_s)
            await asyncio.sleep(pause_s)
            left_s -= pause_s
        after = await self.scan()
        signs = signs_of_life(before, after)
        if signs:
            more = f", and {len(signs) - _NAMED} more rows changed" if len(signs) > _NAMED else ""
            raise WorkersAlive(
                f"table {self._table_name} is in use: {'; '.join(signs[:_NAMED])}{more}. Stop every "
                "worker of the application, also standbys, and run this again"
            )
        return after

    async def carry_out(
        self, steps: Iterable[RowWrite], on_step: Callable[[RowWrite], None]
    ) -> None:
        """Write the rows, one after the other.

        Args:
            steps: of one plan, in its order.
            on_step: called after each step.

        Raises:
            WorkersAlive: a row is no longer what the plan was made from; nothing was written to it.
            AwsError: a row could not be written.

        Cancellation: a started write may still happen; a new plan takes it into account.
        """
        for step in steps:
            await self._write(step)
            on_step(step)

    async def _write(self, step: RowWrite) -> None:
        for attempt in range(TRIES):
            try:
                await self._send(step)
            except (ConditionFailed, UnknownOutcome) as error:
                stored = await self._stored(step.key)
                if stored == _or_none(step.after):
                    return
                if stored != _or_none(step.before):
                    raise _changed(step, stored) from None
                if attempt == TRIES - 1:
                    raise error from None
            except (Denied, NotFound):
                raise
            except AwsError:
                if attempt == TRIES - 1:
                    raise
            else:
                return
            await self._pause(attempt)

    async def _send(self, step: RowWrite) -> None:
        condition = (
            {"ConditionExpression": f"attribute_not_exists({LEASE_KEY})"}
            if step.before is None
            else unchanged_condition(step.before)
        )
        if step.after is None:
            key = {LEASE_KEY: {"S": step.key}}
            await self._dynamodb.delete_item(TableName=self._table_name, Key=key, **condition)
        else:
            await self._dynamodb.put_item(TableName=self._table_name, Item=step.after, **condition)

    async def _stored(self, key: str) -> Item | None:
        request = {
            "TableName": self._table_name,
            "Key": {LEASE_KEY: {"S": key}},
            "ConsistentRead": True,
        }
        answer = await self._patiently(self._dynamodb.get_item, request)
        return _or_none(answer.get("Item"))

    async def _patiently(self, call: Any, request: dict[str, Any]) -> dict[str, Any]:
        """The answer of a read, retried while that may help."""
        for attempt in range(TRIES):
            try:
                answer: dict[str, Any] = await call(**request)
            except (Denied, NotFound):
                raise
            except AwsError:
                if attempt == TRIES - 1:
                    raise
            else:
                return answer
            await self._pause(attempt)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _pause(self, attempt: int) -> None:
        await asyncio.sleep(
            backoff_s(attempt, self._rng, first_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S)
        )


def _or_none(item: Item | None) -> Item | None:
    return comparable(item) if item else None


def _changed(step: RowWrite, stored: Item | None) -> WorkersAlive:
    what = "is gone" if stored is None else "was written meanwhile"
    owner = (stored or {}).get("leaseOwner", {}).get("S")
    by = f" by worker {owner}" if owner and stored is not None else ""
    return WorkersAlive(
        f"row {step.key} {what}{by}, so it was left alone and the move is not finished. Stop every "
        "worker of the application and run this again; it goes on where it stopped"
    )
