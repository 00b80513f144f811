"""The port :class:`kcl_mld.aws.ports.DynamoDb`, by botocore in the pool ``leases``.

A page of a scan is read as the JSON that it is: botocore's parser walks every attribute of every
row by its shape, to the same values, and 300 rows are looked at each few seconds. So is the row that
a renewal brings back. What has binary values, or anything else that is not of the usual form, it
reads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from kcl_mld.aws.clients import Caller
from kcl_mld.aws.service_clock import service_clock_of
from kcl_mld.aws.whole_answers import check_whole

if TYPE_CHECKING:
    from botocore.client import BaseClient

    from kcl_mld.kernel.adapters.calls import CallPool

_BINARY = re.compile(rb'"BS?"\s*:')
#: Members of a page, and of a row that a renewal brings back; with any other one it is left to
#: botocore.
_PAGE = {"Items", "Count", "ScannedCount", "LastEvaluatedKey", "ConsumedCapacity", "Attributes"}
#: Operations of renewals and checkpoints, of the start of a large stream, and of scans.
_FREQUENT = ("update_item", "put_item", "scan", "get_item")


class BotocoreDynamoDb:
    """Operations on tables and items; each raises the errors of ``kcl_mld.errors`` only.

    Args:
        client: a DynamoDB client, see :func:`kcl_mld.aws.clients.make_client`; a hook is added
            to it.
        pool: its threads serve leases and nothing else, so that nothing can delay a renewal.
    """

    def __init__(self, client: BaseClient, pool: CallPool) -> None:
        for operation in ("Scan", "Query", "UpdateItem"):
            client.meta.events.register(f"before-parse.dynamodb.{operation}", _read_page)
        #: Its time.
        self.clock = service_clock_of(client)
        self._calls = Caller(client, pool, _FREQUENT)

    async def describe_table(self, **request: Any) -> dict[str, Any]:
        return await self._calls.read("describe_table", request)

    async def create_table(self, **request: Any) -> dict[str, Any]:
        return await self._calls.write("create_table", request)

    async def update_continuous_backups(self, **request: Any) -> dict[str, Any]:
        return await self._calls.write("update_continuous_backups", request)

    async def get_item(self, **request: Any) -> dict[str, Any]:
        return await self._calls.read("get_item", request)

    async def put_item(self, **request: Any) -> dict[str, Any]:
        return await self._calls.write("put_item", request)

    async def update_item(self, **request: Any) -> dict[str, Any]:
        return await self._calls.write("update_item", request)

    async def delete_item(self, **request: Any) -> dict[str, Any]:
        return await self._calls.write("delete_item", request)

    async def scan(self, **request: Any) -> dict[str, Any]:
        return await self._calls.read("scan", request)

    async def query(self, **request: Any) -> dict[str, Any]:
        return await self._calls.read("query", request)

    async def update_table(self, **request: Any) -> dict[str, Any]:
        return await self._calls.write("update_table", request)

    async def transact_write_items(self, **request: Any) -> dict[str, Any]:
        return await self._calls.write("transact_write_items", request)


def _read_page(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Move the members of a good answer out of the parser's sight, once it is seen whole."""
    check_whole(response_dict, customized_response_dict)
    body = response_dict["body"]
    if response_dict["status_code"] != 200 or _may_be_binary(body):
        return
    try:
        page = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if isinstance(page, dict) and page.keys() <= _PAGE and None not in page.values():
        customized_response_dict.update(page)
        response_dict["body"] = b"{}"


def _may_be_binary(body: bytes) -> bool:
    """Whether it may contain a binary value; a cheap check."""
    if b"\\u00" in body:  # the letter may be written as a number
        return True
    return b'"B' in body and _BINARY.search(body) is not None
