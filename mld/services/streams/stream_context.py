"""What belongs to one stream of a worker, and how a lease finds its own.

What belongs to the lease table (store, renewer, taker, cleanup queue) knows no stream, and asks
here with a lease in hand. Contexts may be added and removed while the worker runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.errors import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mld.model.leases.lease import Lease
    from mld.model.sequence import InitialPosition
    from mld.model.streams.stream import Stream
    from mld.model.streams.stream_list import StreamOptions
    from mld.ports.metrics import Metrics
    from mld.services.retrieval.records_publisher import PublisherFactory
    from mld.services.shards.shard_syncer import ShardSyncer
    from mld.services.shards.stream_presence import StreamPresence
    from mld.services.shards.stream_source import StreamSource


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """What a context is made of.

    Attributes:
        stream: how requests and lease keys name it.
        position: where its shards without a lease begin.
        initial_timestamp_s: where leases at AT_TIMESTAMP begin, epoch seconds; None = nowhere.
        argv: its own child program; None = that of all streams.
        created: ``StreamCreationTimestamp`` as it was just answered; None = not known.
    """

    stream: Stream
    position: InitialPosition
    initial_timestamp_s: float | None = None
    argv: tuple[str, ...] | None = None
    created: object = None


def plan_of(
    stream: Stream, created: object, options: StreamOptions, *positions: InitialPosition
) -> StreamPlan:
    """The plan of one of many streams.

    Args:
        stream: how requests and lease keys name it.
        created: ``StreamCreationTimestamp``; None = not known.
        options: what holds for it alone.
        positions: where its shards begin unless the options say so, then where those of other
            streams do, whose time counts for its leases at AT_TIMESTAMP, too.
    """
    chosen = (options.initial_position, *positions)
    known = [position for position in chosen if position is not None]
    times = [one.timestamp_s for one in known if one.timestamp_s is not None]
    return StreamPlan(
        stream=stream,
        position=known[0],
        initial_timestamp_s=times[0] if times else None,
        argv=options.argv,
        created=created,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamContext:
    """Everything that one stream has of its own in a worker.

    Attributes:
        source: stream, position, shards.
        syncer: creates its leases.
        publishers: makes what gets a shard's records.
        metrics: the sink for its shards.
        argv: its own child program; None = that of all streams.
    """

    source: StreamSource
    syncer: ShardSyncer
    publishers: PublisherFactory
    metrics: Metrics
    argv: tuple[str, ...] | None = None

    @property
    def stream(self) -> Stream:
        """How requests and lease keys name it."""
        return self.source.stream

    @property
    def identifier(self) -> str:
        """Of one of many streams: ``account:name:epoch``."""
        return str(self.source.stream.identifier)

    @property
    def presence(self) -> StreamPresence:
        """Whether it is still the same stream."""
        return self.source.presence


if TYPE_CHECKING:
    #: Wires a context; ``mld.app`` has the only one.
    ContextFactory = Callable[[StreamPlan], StreamContext]


class StreamRegistry:
    """The contexts of a worker's streams by ``stream_identifier``; None names a single stream."""

    def __init__(self) -> None:
        """No stream yet."""
        self._contexts: dict[str | None, StreamContext] = {}

    def __iter__(self) -> Iterator[StreamContext]:
        return iter(tuple(self._contexts.values()))

    def __contains__(self, identifier: str | None) -> bool:
        return identifier in self._contexts

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
