"""Reads the items of a 3.x fleet once, in either layout, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mld.decide.fleet.table_migration import COMPLETE, INIT
from mld.errors import Denied, NotFound
from mld.model.fleet.fleet_snapshot import FleetItems
from mld.services.fleet.coordinator_state import CoordinatorStateStore
from mld.services.fleet.leader_lock import LockStore

if TYPE_CHECKING:
    from mld.model.leases.table_layout import Layout
    from mld.ports.aws import DynamoDb
    from mld.ports.clock import IdSource


async def fleet_items(dynamodb: DynamoDb, layout: Layout, ids: IdSource) -> FleetItems:
    """What there is beside the leases.

    Args:
        dynamodb: where the tables are.
        layout: their names.
        ids: not used for reading.

    Raises:
        AwsError: a table could not be read. One of 3.0 to 3.4 that is denied counts as absent.
        MalformedData: an item can't be read.
    """
    items = CoordinatorStateStore(dynamodb, layout, ids)
    stored = None
    try:
        if await items.has_legacy_table():
            items.layout = replace(layout, status=INIT, writes_to_lease_table=False)
            stored = await items.table_migration()
            if stored is not None and stored.state is COMPLETE:
                items.layout = layout
    except Denied:
        items.layout = layout
    version = await items.client_version()
    if version is None:
        return FleetItems()
    try:
        lock = await LockStore(dynamodb).read(items.layout.lock)
    except NotFound:
        lock = None
    return FleetItems(
        version=version.state,
        lock=lock,
        metrics=tuple(await items.worker_metrics()),
        table_status=None if stored is None else stored.state,
    )
