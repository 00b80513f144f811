"""The port :class:`mld.ports.aws.DynamoDb`, by botocore in the pool ``leases``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mld.adapters.aws.clients import Caller

if TYPE_CHECKING:
    from botocore.client import BaseClient

    from mld.adapters.calls import CallPool


class BotocoreDynamoDb:
    """Operations on tables and items; each raises the errors of ``mld.errors`` only.

    Args:
        client: a DynamoDB client, see :func:`mld.adapters.aws.clients.make_client`.
        pool: its threads serve leases and nothing else, so that nothing can delay a renewal.
    """

    def __init__(self, client: BaseClient, pool: CallPool) -> None:
        self._calls = Caller(client, pool, ("update_item",))

    async def describe_table(self, **request: Any) -> dict[str, Any]:
        """DescribeTable."""
        return await self._calls.read("describe_table", request)

    async def create_table(self, **request: Any) -> dict[str, Any]:
        """CreateTable."""
        return await self._calls.write("create_table", request)

    async def update_continuous_backups(self, **request: Any) -> dict[str, Any]:
        """UpdateContinuousBackups."""
        return await self._calls.write("update_continuous_backups", request)

    async def get_item(self, **request: Any) -> dict[str, Any]:
        """GetItem."""
        return await self._calls.read("get_item", request)

    async def put_item(self, **request: Any) -> dict[str, Any]:
        """PutItem."""
        return await self._calls.write("put_item", request)

    async def update_item(self, **request: Any) -> dict[str, Any]:
        """UpdateItem."""
        return await self._calls.write("update_item", request)

    async def delete_item(self, **request: Any) -> dict[str, Any]:
        """DeleteItem."""
        return await self._calls.write("delete_item", request)

    async def scan(self, **request: Any) -> dict[str, Any]:
        """Scan, one page."""
        return await self._calls.read("scan", request)

    async def query(self, **request: Any) -> dict[str, Any]:
        """Query, one page."""
        return await self._calls.read("query", request)

    async def update_table(self, **request: Any) -> dict[str, Any]:
        """UpdateTable."""
        return await self._calls.write("update_table", request)

    async def transact_write_items(self, **request: Any) -> dict[str, Any]:
        """TransactWriteItems."""
        return await self._calls.write("transact_write_items", request)
