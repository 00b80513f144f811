"""What a tracker of streams works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from mld.model.sequence import InitialPosition
    from mld.model.streams.stream_list import StreamList
    from mld.services.conditions import Conditions
    from mld.services.leases.lease_store import LeaseStore
    from mld.services.presence_watch import PresenceWatch
    from mld.services.streams.stream_context import ContextFactory, StreamRegistry
    from mld.services.streams.stream_names import StreamNames
    from mld.services.streams.stream_resolver import StreamResolver
    from mld.services.wakeup import Wakeup


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerParts:
    """Made once, by ``mld.app``.

    Attributes:
        names: which streams are to be read.
        resolver: finds them.
        registry: gets their contexts.
        new_context: wires one.
        store: the lease table; its scans tell of orphans.
        table_watch: nothing is created in a table that is another one than at the start.
        leases_created: called when there may be leases to take.
        changed: woken when leases that are held are not to be read any more.
        options: of single streams, and of orphans.
        position: where the shards of streams without a position of their own begin.
        region: of the Kinesis client.
        conditions: for ``/readyz``: streams of the list that are gone, by name.
        rng: spreads the refreshes of a fleet.
    """

    names: StreamNames
    resolver: StreamResolver
    registry: StreamRegistry
    new_context: ContextFactory
    store: LeaseStore
    table_watch: PresenceWatch
    leases_created: Callable[[], None]
    changed: Wakeup
    options: StreamList
    position: InitialPosition
    region: str
    conditions: Conditions
    rng: random.Random
