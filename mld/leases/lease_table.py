"""Creates the lease table and, in 3.x fleets, its index."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import (
    AwsError,
    InUse,
    LimitExceeded,
    NotFound,
    ResourceMissing,
    ServiceError,
    UnknownOutcome,
    UnservableFleet,
)
from kcl_mld.kernel.pages import all_items, repeated
from kcl_mld.leases.model.lease_item import LEASE_KEY, item_key
from kcl_mld.leases.model.owner_index import (
    LEASE_OWNER_INDEX,
    index_creation,
    index_status,
    my_leases_query,
)
from kcl_mld.leases.rules.table_existence import missing_table, table_identity

if TYPE_CHECKING:
    import random

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.config.config import LeaseConfig
    from kcl_mld.kernel.concurrency import Wakeup
    from kcl_mld.kernel.ports import Clock

log = logging.getLogger("mld.leases")

#: Java checks every 10 s; a new table is often ready within one.
FIRST_POLL_S = 0.2
LAST_POLL_S = 10.0
#: Source: DynamoDBLeaseCoordinator.java:282-288 (3.5.1).
ACTIVE_LIMIT_S = 600.0
#: A table that is being updated can be read and written.
USABLE = ("ACTIVE", "UPDATING")
_RECOVERY_TRIES = 5


class LeaseTable:
    """Creates the table when it is absent and waits until it can be used."""

    def __init__(self, dynamodb: DynamoDb, config: LeaseConfig, clock: Clock) -> None:
        self._dynamodb = dynamodb
        self._config = config
        self._clock = clock
        #: Size in bytes as of the last DescribeTable; DynamoDB updates it every six hours.
        self.size_bytes = 0
        self._identity: object = None

    async def ensure(self) -> bool:
        """Create the table unless it exists, and wait until it can be used.

        Returns:
            True when this call created it.

        Raises:
            ResourceMissing: it isn't usable after ten minutes.
            UnservableFleet: a table of that name has another primary key.
            AwsError: from DescribeTable or CreateTable; try again or correct the permissions.

        Cancellation: the table may have been created; the next call goes on from there.
        """
        created = await self._describe() is None and await self._create()
        await self._wait_until_usable()
        if self._config.point_in_time_recovery:
            await self._enable_recovery()
        return created

    async def ensure_index(self) -> bool:
        """Create the index by which workers of a 3.x fleet find their leases, unless it exists.

        DynamoDB takes minutes to fill it, and this method does not wait. Call again until it
        returns True, and scan meanwhile.

        Returns:
            True when the index can be queried.

        Raises:
            AwsError: from DescribeTable or UpdateTable; try again or correct the permissions.
        """
        table = await self._ask()
        if table is None:
            return False
        status = index_status(table)
        if status is not None:
            return status == "ACTIVE"
        try:
            await self._dynamodb.update_table(
                TableName=self._config.table_name, **index_creation(table)
            )
        except (InUse, LimitExceeded, UnknownOutcome) as error:
            # Perhaps another worker created it; the next call checks.
            log.info("Index %s is not being created yet: %s", LEASE_OWNER_INDEX, error)
        except ServiceError as error:
            # DynamoDB returns a validation error if another worker has just created the index.
            if error.code != "ValidationException" or not await self._has_index():
                raise
        else:
            log.info("Creating index %s of table %s", LEASE_OWNER_INDEX, self._config.table_name)
        return False

    async def _has_index(self) -> bool:
        table = await self._ask()
        return table is not None and index_status(table) is not None

    async def index_can_be_asked(self) -> bool:
        """Whether the index exists and is filled.

        Raises:
            AwsError: from DescribeTable.
        """
        table = await self._ask()
        return table is not None and index_status(table) == "ACTIVE"

    async def look(self) -> str | None:
        """What is wrong with the table, as a sentence; None = it is the one set up at start.

        Raises:
            AwsError: from DescribeTable; the state is unknown.
        """
        return missing_table(self._config.table_name, await self._ask(), self._identity)

    async def _ask(self) -> dict[str, Any] | None:
        """DescribeTable; None = the table does not exist."""
        try:
            answer = await self._dynamodb.describe_table(TableName=self._config.table_name)
        except NotFound:
            return None
        table: dict[str, Any] = answer["Table"]
        return table

    async def _describe(self) -> dict[str, Any] | None:
        table = await self._ask()
        if table is None:
            return None
        key = [(part["AttributeName"], part["KeyType"]) for part in table.get("KeySchema", ())]
        if key and key != [(LEASE_KEY, "HASH")]:
            raise UnservableFleet(
                f"table {self._config.table_name} has the primary key {key}, so it isn't a lease "
                "table; choose another applicationName"
            )
        self.size_bytes = int(table.get("TableSizeBytes", 0))
        return table

    async def _create(self) -> bool:
        try:
            await self._dynamodb.create_table(
                TableName=self._config.table_name,
                KeySchema=[{"AttributeName": LEASE_KEY, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": LEASE_KEY, "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
                DeletionProtectionEnabled=self._config.deletion_protection,
            )
        except InUse:
            return False
        except UnknownOutcome:
            if await self._describe() is None:
                raise
        log.info("Created lease table %s", self._config.table_name)
        return True

    async def _wait_until_usable(self) -> None:
        give_up_at = self._clock.monotonic() + ACTIVE_LIMIT_S
        pause_s = FIRST_POLL_S
        while True:
            table = await self._describe()
            status = "absent" if table is None else str(table.get("TableStatus"))
            if table is not None and status in USABLE:
                self._identity = table_identity(table)
                return
            if self._clock.monotonic() >= give_up_at:
                raise ResourceMissing(
                    f"lease table {self._config.table_name} is still not usable after "
                    f"{ACTIVE_LIMIT_S:.0f} s; its status: {status}"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(LAST_POLL_S, pause_s * 1.5)

    async def _enable_recovery(self) -> None:
        """Enable point-in-time recovery; a failure must not stop the worker."""
        for attempt in range(1, _RECOVERY_TRIES + 1):
            try:
                await self._dynamodb.update_continuous_backups(
                    TableName=self._config.table_name,
                    PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
                )
            except AwsError as error:
                if attempt == _RECOVERY_TRIES:
                    log.warning(
                        "Could not enable point-in-time recovery of table %s: %s",
                        self._config.table_name,
                        error,
                    )
                else:
                    await asyncio.sleep(attempt)
            else:
                return


class OwnerIndex:
    """Finds the leases of a worker by Query; an error is logged once until it changes.

    Callers scan the table instead when the index can't be used.

    Args:
        table_check_wanted: set when the table was not found.
    """

    def __init__(
        self, dynamodb: DynamoDb, table_name: str, rng: random.Random, table_check_wanted: Wakeup
    ) -> None:
        self._dynamodb = dynamodb
        self._rng = rng
        self._table_name = table_name
        self._table_check_wanted = table_check_wanted
        #: Error code of the latest Query; "" = it succeeded.
        self._error = ""

    async def keys_of(self, worker_id: str) -> tuple[str, ...] | None:
        """Keys of the leases that name a worker.

        The index is eventually consistent: a key may be missing, or its lease may have another
        owner by now. In a hand-off, the index names the next owner before the lease is its own. Get
        each row.

        Returns:
            Sorted; None when there is no index, or it is still being filled, or the Query was
            denied or throttled: scan instead.
        """
        request = {"TableName": self._table_name, **my_leases_query(worker_id)}
        try:
            query_page = repeated(self._dynamodb.query, self._rng)
            items = await all_items("Query", query_page, request)
        except ServiceError as error:
            if isinstance(error, NotFound):
                self._table_check_wanted.wake()  # moto says the index, DynamoDB the table
            elif error.code != "ValidationException":
                # Denied or throttled: a scan of the table may succeed; if not, the scan reports it.
                self._say_no_answer(error)
            return None
        self._error = ""
        return tuple(sorted(map(item_key, items)))

    def _say_no_answer(self, error: ServiceError) -> None:
        if self._error != error.code:
            self._error = error.code
            text = "Index %s of table %s does not answer; the table is scanned instead: %s"
            log.warning(text, LEASE_OWNER_INDEX, self._table_name, error)
