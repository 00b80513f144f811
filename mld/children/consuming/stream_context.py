"""What belongs to one stream of a worker, and how a lease finds its stream.

Parts of the lease table (store, renewer, taker, cleanup queue) don't know streams, and look them up
here by lease. Contexts may be added and removed while the worker runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.errors import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcl_mld.config.stream import Stream
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.retrieval.records_publisher import PublisherFactory
    from kcl_mld.shards.shard_syncer import ShardSyncer
    from kcl_mld.shards.stream_existence import StreamExistence, StreamSource
    from kcl_mld.signals.ports import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamContext:
    """Everything that a worker has per stream.

    Attributes:
        argv: its own child program; None = that of all streams.
        children: of each of its shards; None = as many as those of all streams.
    """

    source: StreamSource
    syncer: ShardSyncer
    publishers: PublisherFactory
    metrics: Metrics
    argv: tuple[str, ...] | None = None
    children: int | None = None

    @property
    def stream(self) -> Stream:
        """The stream as in requests and lease keys."""
        return self.source.stream

    @property
    def identifier(self) -> str:
        """``account:name:epoch`` of one of many streams."""
        return str(self.source.stream.identifier)

    @property
    def existence(self) -> StreamExistence:
        """Checks whether it is still the same stream."""
        return self.source.existence


class StreamRegistry:
    """The contexts of a worker's streams by ``stream_identifier``; None names a single stream."""

    def __init__(self) -> None:
        self._contexts: dict[str | None, StreamContext] = {}

    def __iter__(self) -> Iterator[StreamContext]:
        return iter(tuple(self._contexts.values()))

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._contexts

    def add(self, context: StreamContext) -> None:
        """Start to read a stream; a context of the same identifier is replaced."""
        self._contexts[context.stream.identifier] = context

    def remove(self, identifier: str | None) -> None:
        """Stop reading a stream; does nothing for an unknown one."""
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
