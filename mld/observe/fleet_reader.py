"""Reads a running fleet from outside: rows, items, streams and, on request, tips of shards.

Writes nothing. A part that can't be read is named in the snapshot; without the lease table there is
none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kcl_mld.errors import Denied, MldError, NotFound
from kcl_mld.fleet.coordinator_state import CoordinatorStateStore
from kcl_mld.fleet.lock_store import LockStore
from kcl_mld.fleet.model.worker_life import failed_lives_in
from kcl_mld.fleet.rules.table_migration import COMPLETE, INIT
from kcl_mld.leases.model.lease_item import LEASE_KEY, is_moving
from kcl_mld.observe.model.fleet_snapshot import FleetItems, FleetSnapshot
from kcl_mld.signals.rules.remedies import failed_on_table

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.fleet.model.table_layout import Layout
    from kcl_mld.kernel.ports import Clock, IdSource
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.observe.model.worker_page import WorkerPage
    from kcl_mld.observe.stream_reader import StreamReader
    from kcl_mld.observe.tip_reader import TipReader


async def fleet_items(
    dynamodb: DynamoDb, layout: Layout, ids: IdSource, rng: random.Random
) -> FleetItems:
    """The fleet's items beside the leases.

    Args:
        ids: not used for reading.

    Raises:
        AwsError: a table could not be read. One of 3.0 to 3.4 that is denied counts as absent.
        MalformedData: an item can't be read.
    """
    items = CoordinatorStateStore(dynamodb, layout, ids, rng)
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


class FleetReader:
    """Takes snapshots of one application.

    Args:
        read_items: see :func:`fleet_items`.
        tips: requests the lag of shards; None = not requested.
        pages: requests the pages of workers; None = not requested.
    """

    def __init__(
        self,
        read_items: Callable[[], Awaitable[FleetItems]],
        store: LeaseStore,
        streams: StreamReader,
        tips: TipReader | None,
        clock: Clock,
        pages: Callable[[], Awaitable[tuple[WorkerPage, ...]]] | None = None,
    ) -> None:
        self._read_items = read_items
        self._store = store
        self._streams = streams
        self._tips = tips
        self._clock = clock
        self._pages = pages

    async def look(self, *, fresh: bool = True) -> FleetSnapshot:
        """Take one snapshot.

        Args:
            fresh: list the shards of all streams now, after the rows.

        Raises:
            NotFound: there is no lease table.
            AwsError: it can't be read.
        """
        scan = await self._store.scan()
        items, items_unknown, items_todo = None, None, ""
        try:
            items = await self._read_items()
        except MldError as error:
            failed = failed_on_table(error)
            items_unknown, items_todo = failed.error, failed.todo
        streams = await self._streams.look(
            {lease.stream_identifier for lease in scan.leases}, fresh=fresh
        )
        tips = {}
        if self._tips is not None:
            tips = await self._tips.ask(scan.leases, self._streams.streams)
        return FleetSnapshot(
            began_at=scan.started_at,
            at=scan.finished_at,
            wall_s=self._clock.corrected(),
            leases={lease.lease_key: lease for lease in scan.leases},
            broken=scan.broken,
            moving=tuple(sorted(key for key, item in scan.foreign.items() if is_moving(item))),
            items=items,
            items_unknown=items_unknown,
            items_todo=items_todo,
            streams=streams,
            tips=tips,
            pages=() if self._pages is None else await self._pages(),
            failed=failed_lives_in(scan.foreign.values(), LEASE_KEY),
        )
