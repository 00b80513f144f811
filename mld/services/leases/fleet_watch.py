"""Notices when the lease table belongs to a fleet that this worker can't serve.

It looks at every scan of the lease table and, at least once a minute, at the item ``Migration3.0``
in both places where 3.x workers keep it: a 3.x worker may flip the fleet while we run.

When :meth:`FleetWatch.run` raises, the worker stops taking, drains and releases its leases and
exits. Until then renewals go on, also of leases that the new leader hands over: the holder's
conditions then name both owners, and a release finishes the hand-off.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mld.decide.fleet import (
    FleetVersion,
    check_not_moving,
    check_stream_mode,
    fleet_version,
)
from mld.errors import AwsError, Denied, NotFound
from mld.model.entities import MIGRATION_KEY
from mld.model.lease_item import LEASE_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.ports.aws import DynamoDb
    from mld.ports.clock import Clock
    from mld.services.leases.lease_scan import TableScan
    from mld.services.leases.lease_store import LeaseStore

log = logging.getLogger(__name__)

#: Java's own version monitor looks as often (ClientVersionChangeMonitor, 3.5.1).
LOOK_S = 60.0


class FleetWatch:
    """Looks for the marks of 3.x fleets and of the other stream mode."""

    def __init__(
        self,
        dynamodb: DynamoDb,
        store: LeaseStore,
        application_name: str,
        clock: Clock,
        client_version_config: str | None = None,
        *,
        is_multi_stream: bool = False,
    ) -> None:
        """Watch the table of ``store`` and ``<application_name>-CoordinatorState``.

        Args:
            dynamodb: for the migration items.
            store: whose scans are looked at.
            application_name: names the coordinator table of 3.0 to 3.4.
            clock: measures the minute.
            client_version_config: ``clientVersionConfig`` of the file, only to say once that 2.x
                rows are written whatever it asks for; None = say nothing.
            is_multi_stream: the keys of this worker's leases name their stream.
        """
        self._dynamodb = dynamodb
        self._store = store
        self._coordinator_table = f"{application_name}-CoordinatorState"
        self._clock = clock
        self._client_version_config = client_version_config
        self._is_multi_stream = is_multi_stream
        self._items_due_at = 0.0
        self._is_denied = False
        self._version: FleetVersion | None = None

    async def check(self) -> None:
        """Look once, everywhere; with a fresh scan unless there is one.

        Raises:
            UnservableFleet: don't take leases; the message names versions and ways out.
            AwsError: a table could not be read, so nothing is known; try again.
        """
        scan = self._store.last_scan or await self._store.scan()
        self._look_at(scan)
        await self._look_at_items()

    async def run(self) -> None:
        """Look at every scan and at least once a minute, until cancelled.

        Raises:
            UnservableFleet: as :meth:`check`.
        """
        while True:
            await self._store.scanned.wait(self._items_due_at - self._clock.monotonic())
            if self._store.last_scan is not None:
                self._look_at(self._store.last_scan)
            if self._clock.monotonic() >= self._items_due_at:
                try:
                    await self._look_at_items()
                except AwsError as error:
                    log.warning(
                        "Could not check whether the fleet uses KCL 3.x; next try in %.0f s: %s",
                        LOOK_S,
                        error,
                    )

    def _look_at(self, scan: TableScan) -> None:
        check_not_moving(scan.foreign, self._store.table_name)
        check_stream_mode(scan.leases, is_multi_stream=self._is_multi_stream)
        self._judge({self._store.table_name: scan.foreign.get(MIGRATION_KEY)})

    async def _look_at_items(self) -> None:
        self._items_due_at = self._clock.monotonic() + LOOK_S
        lease_table = self._store.table_name
        self._judge(
            {
                lease_table: await self._item(lease_table, LEASE_KEY),
                self._coordinator_table: await self._coordinator_item(),
            }
        )

    async def _coordinator_item(self) -> Mapping[str, Any] | None:
        try:
            return await self._item(self._coordinator_table, "key")
        except NotFound:
            return None
        except Denied as error:
            # Permissions written for a 2.x fleet don't cover this table, and such a fleet has none.
            if not self._is_denied:
                log.warning(
                    "Cannot detect KCL 3.0-3.4 workers: allow dynamodb:GetItem on table %s (%s)",
                    self._coordinator_table,
                    error,
                )
            self._is_denied = True
            return None

    async def _item(self, table: str, key_name: str) -> Mapping[str, Any] | None:
        answer = await self._dynamodb.get_item(
            TableName=table, Key={key_name: {"S": MIGRATION_KEY}}, ConsistentRead=True
        )
        item: Mapping[str, Any] | None = answer.get("Item")
        return item or None

    def _judge(self, items: Mapping[str, Mapping[str, Any] | None]) -> None:
        version = fleet_version(items)
        if version is FleetVersion.UPGRADING and self._version is not version:
            log.warning(
                "This fleet is being upgraded from KCL 2.x to 3.x; kcl-mld goes on as a 2.x worker. "
                "The fleet does not switch to 3.x while a kcl-mld worker holds a lease. If none "
                "does, it may switch, and this worker then stops with exit code 5"
            )
            self._version = version
        elif self._version is None:
            if self._client_version_config is not None:
                log.info(
                    "Working as a KCL 2.x worker; clientVersionConfig=%s has no effect yet",
                    self._client_version_config,
                )
            self._version = version
