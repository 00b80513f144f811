"""The index of 3.x fleets: which leases name a worker, without a scan of the table."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.errors import NotFound, ServiceError
from mld.model.leases.lease_index import LEASE_OWNER_INDEX, my_leases_query
from mld.model.leases.lease_item import item_key
from mld.services.pages import page_numbers

if TYPE_CHECKING:
    from mld.ports.aws import DynamoDb
    from mld.services.wakeup import Wakeup

log = logging.getLogger(__name__)


class OwnerIndex:
    """Queries of the index; a trouble that scans make up for is said once, until it changes."""

    def __init__(self, dynamodb: DynamoDb, table_name: str, table_doubted: Wakeup) -> None:
        """Ask nothing yet.

        Args:
            dynamodb: where the table is.
            table_name: the lease table.
            table_doubted: woken when it was not found.
        """
        self._dynamodb = dynamodb
        self._table_name = table_name
        self._table_doubted = table_doubted
        #: Code of the error of the latest Query; "" = it was answered.
        self._error = ""

    async def keys_of(self, worker_id: str) -> tuple[str, ...] | None:
        """Keys of the leases that name a worker.

        The index follows the table, so a key may be missing or may have another owner by now, and
        the next owner of a hand-off is named before the lease is its own: get each row.

        Returns:
            Sorted; None when there is no index, or it is still being filled, denied or throttled:
            scan instead.
        """
        request = {"TableName": self._table_name, **my_leases_query(worker_id)}
        keys: list[str] = []
        try:
            numbers = page_numbers("Query")
            while True:
                next(numbers)
                page = await self._dynamodb.query(**request)
                keys += (item_key(item) for item in page.get("Items", ()))
                if not page.get("LastEvaluatedKey"):
                    self._error = ""
                    return tuple(sorted(keys))
                request["ExclusiveStartKey"] = page["LastEvaluatedKey"]
        except ServiceError as error:
            if isinstance(error, NotFound):
                self._table_doubted.wake()  # moto says so of the index, DynamoDB of the table
            elif error.code != "ValidationException":
                # Denied or throttled: the table itself may answer; if not, that is said by the scan.
                self._say_no_answer(error)
            return None

    def _say_no_answer(self, error: ServiceError) -> None:
        if self._error != error.code:
            self._error = error.code
            text = "Index %s of table %s does not answer; the table is scanned instead: %s"
            log.warning(text, LEASE_OWNER_INDEX, self._table_name, error)
