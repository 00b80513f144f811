"""Wires the tracking of streams for a worker that reads many; others never import this module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.app.former_streams import FormerStreams
from kcl_mld.app.stream_tracker import StreamTracker
from kcl_mld.app.worker_streams import TrackerParts
from kcl_mld.config.streams import named_in
from kcl_mld.streams.stream_names import StreamResolver, configured_names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kcl_mld.app.ports import Ports
    from kcl_mld.app.worker_streams import ContextFactory, Loop
    from kcl_mld.children.consuming.stream_context import StreamRegistry
    from kcl_mld.config.config import Config
    from kcl_mld.config.stream_list import FormerPolicy, ListedStream
    from kcl_mld.fleet.lease_coordinator import LeaseCoordinator
    from kcl_mld.signals.model.conditions import Conditions
    from kcl_mld.signals.ports import Metrics


def follow_streams(
    config: Config,
    ports: Ports,
    coordinator: LeaseCoordinator,
    registry: StreamRegistry,
    new_context: ContextFactory,
    conditions: Conditions,
    metrics: Metrics,
) -> tuple[StreamTracker, tuple[Loop, ...]]:
    """Wire the tracker of the streams that the configuration lists, and its loops."""
    listed = config.streams
    region = config.aws.kinesis_region or config.stream.region
    assert listed is not None, "without one stream the configuration lists them"
    assert region is not None, "RealWorld.effective names the region"
    store = coordinator.store

    def identifiers() -> Iterable[str]:
        scan = store.last_scan
        return () if scan is None else [one.stream_identifier or "" for one in scan.leases]

    parts = TrackerParts(
        names=configured_names(ports.kinesis, listed, ports.clock, ports.rng),
        resolver=StreamResolver(ports.kinesis, region, listed.epoch_unit, identifiers, ports.rng),
        registry=registry,
        new_context=new_context,
        store=store,
        table_watch=coordinator.table_watch,
        leases_created=coordinator.leases_created,
        changed=coordinator.renewer.changed,
        options=listed,
        position=config.stream.initial_position,
        region=region,
        conditions=conditions,
        rng=ports.rng,
    )
    streams = StreamTracker(parts)
    former = FormerStreams(
        streams,
        parts,
        coordinator.is_leader,
        ports.clock,
        metrics,
        _former_list(listed.former, ports),
    )
    return streams, (("former-streams", former.run),)


def _former_list(
    policy: FormerPolicy, ports: Ports
) -> Callable[[], Awaitable[tuple[ListedStream, ...]]]:
    """Reads which streams the properties file currently names for the deletion of their leases."""
    read = ports.read_entries

    async def named() -> tuple[ListedStream, ...]:
        if read is None:
            return policy.named
        return named_in(await ports.offload.run(read))

    return named
