"""The streams of a worker, and how a lease finds its own.

A worker has one stream today. What belongs to a stream is in its context; what belongs to the lease
table (store, renewer, taker, cleanup queue) knows no stream, and asks here with a lease in hand.
Contexts may be added and removed while the worker runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.errors import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mld.model.lease import Lease
    from mld.model.stream import Stream
    from mld.ports.metrics import Metrics
    from mld.services.retrieval.records_publisher import PublisherFactory
    from mld.services.shards.shard_syncer import ShardSyncer
    from mld.services.shards.stream_presence import StreamPresence
    from mld.services.shards.stream_source import StreamSource


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamContext:
    """Everything that one stream has of its own in a worker.

    Attributes:
        source: stream, position, shards.
        syncer: creates its leases.
        publishers: makes what gets a shard's records.
        metrics: the sink for its shards.
    """

    source: StreamSource
    syncer: ShardSyncer
    publishers: PublisherFactory
    metrics: Metrics

    @property
    def stream(self) -> Stream:
        """How requests and lease keys name it."""
        return self.source.stream

    @property
    def presence(self) -> StreamPresence:
        """Whether it is still the same stream."""
        return self.source.presence


class StreamRegistry:
    """The contexts of a worker's streams by ``stream_identifier``; None names a single stream."""

    def __init__(self) -> None:
        """No stream yet."""
        self._contexts: dict[str | None, StreamContext] = {}

    def __iter__(self) -> Iterator[StreamContext]:
        return iter(tuple(self._contexts.values()))

    def add(self, context: StreamContext) -> None:
        """Read one stream more; a context of the same identifier is replaced."""
        self._contexts[context.stream.identifier] = context

    def remove(self, identifier: str | None) -> None:
        """Read a stream no longer; nothing when it is not there."""
        self._contexts.pop(identifier, None)

    def of(self, lease: Lease) -> StreamContext:
        """The context of a lease's stream.

        Raises:
            LeaseLost: this worker does not read that stream.
        """
        context = self._contexts.get(lease.stream_identifier)
        if context is None:
            stream = lease.stream_identifier or "single-stream mode"
            raise LeaseLost(lease.lease_key, f"{stream} is not a stream of this worker")
        return context
