"""DynamoDB as far as the daemon, a Java-like peer and their judges use it, behind the port.

:class:`FakeDynamoDb` is what a worker is given; several may share one
:class:`tests.fakes.dynamodb_model.DynamoDbModel`, which holds the tables.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import ServiceError

if TYPE_CHECKING:
    from tests.fakes.dynamodb_model import DynamoDbModel

#: Called with service, operation and request; may wait or raise an error of ``kcl_mld.errors``.
Hook = Callable[[str, str, Mapping[str, Any]], Awaitable[None]]


class FakeDynamoDb:
    """:class:`kcl_mld.aws.ports.DynamoDb` over a :class:`DynamoDbModel`.

    Args:
        model: shared by all workers of a test.
        before: awaited before the effect: raise to lose the request, wait to slow it down.
        after: awaited after the effect, also when the answer is an error: raise to lose the
            answer.
    """

    def __init__(
        self, model: DynamoDbModel, *, before: Hook | None = None, after: Hook | None = None
    ) -> None:
        self.model = model
        self.before = before
        self.after = after

    async def describe_table(self, **request: Any) -> dict[str, Any]:
        answer = await self._call("DescribeTable", request)
        return {"Table": _with_datetime(answer["Table"])}

    async def create_table(self, **request: Any) -> dict[str, Any]:
        answer = await self._call("CreateTable", request)
        return {"TableDescription": _with_datetime(answer["TableDescription"])}

    async def update_table(self, **request: Any) -> dict[str, Any]:
        answer = await self._call("UpdateTable", request)
        return {"TableDescription": _with_datetime(answer["TableDescription"])}

    async def delete_table(self, **request: Any) -> dict[str, Any]:
        answer = await self._call("DeleteTable", request)
        return {"TableDescription": _with_datetime(answer["TableDescription"])}

    async def update_continuous_backups(self, **request: Any) -> dict[str, Any]:
        return await self._call("UpdateContinuousBackups", request)

    async def get_item(self, **request: Any) -> dict[str, Any]:
        return await self._call("GetItem", request)

    async def put_item(self, **request: Any) -> dict[str, Any]:
        return await self._call("PutItem", request)

    async def update_item(self, **request: Any) -> dict[str, Any]:
        return await self._call("UpdateItem", request)

    async def delete_item(self, **request: Any) -> dict[str, Any]:
        return await self._call("DeleteItem", request)

    async def scan(self, **request: Any) -> dict[str, Any]:
        return await self._call("Scan", request)

    async def query(self, **request: Any) -> dict[str, Any]:
        return await self._call("Query", request)

    async def transact_write_items(self, **request: Any) -> dict[str, Any]:
        return await self._call("TransactWriteItems", request)

    async def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        if self.before is not None:
            await self.before("dynamodb", operation, request)
        try:
            answer: dict[str, Any] | ServiceError = self.model.call(operation, request)
        except ServiceError as error:
            answer = error
        if self.after is not None:
            await self.after("dynamodb", operation, request)
        if isinstance(answer, ServiceError):
            raise answer
        return answer


def _with_datetime(table: dict[str, Any]) -> dict[str, Any]:
    """Creation time as botocore gives it."""
    return {**table, "CreationDateTime": datetime.fromtimestamp(table["CreationDateTime"], UTC)}
