"""Which streams a worker reads, and what runs for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kcl_mld.errors import ResourceMissing

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable, Coroutine, Sequence

    from kcl_mld.children.consuming.stream_context import StreamContext, StreamRegistry
    from kcl_mld.config.stream import Stream
    from kcl_mld.config.stream_list import StreamList
    from kcl_mld.config.stream_options import StreamOptions
    from kcl_mld.kernel.concurrency import Wakeup
    from kcl_mld.kernel.model.sequence import InitialPosition
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.signals.model.conditions import Conditions
    from kcl_mld.streams.existence_watch import ExistenceWatch
    from kcl_mld.streams.stream_names import StreamNames, StreamResolver

    #: Name and coroutine function of a service loop.
    Loop = tuple[str, Callable[[], Coroutine[Any, Any, None]]]
    #: Wires a stream: how requests and lease keys name it; where its shards without a lease begin,
    #: and then positions whose time counts for its leases at AT_TIMESTAMP too; what holds for it
    #: alone; ``StreamCreationTimestamp``, None = not known.
    ContextFactory = Callable[
        [Stream, Sequence[InitialPosition], StreamOptions, object], "StreamContext"
    ]


class ContextLoops:
    """Puts contexts into the registry and runs what belongs to them, one set a stream.

    Args:
        on_gone: receives a stream that has been gone for ``existence_watch.GIVE_UP_S``, and why.
    """

    def __init__(
        self, registry: StreamRegistry, on_gone: Callable[[StreamContext, str], None]
    ) -> None:
        self._registry = registry
        self._on_gone = on_gone
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._audited: set[str] = set()

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._registry

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Run the loops of all contexts, those that come later too, in a group."""
        self._group = group
        for context in self._registry:
            self._start(context)

    def add(self, context: StreamContext, *, audits: bool) -> None:
        """Read a stream, or change what is done for it.

        Args:
            context: replaces one of the same identifier.
            audits: while this worker leads, it creates leases that are missing.
        """
        self.remove(context)
        self._registry.add(context)
        if audits:
            self._audited.add(context.identifier)
        self._start(context)

    def remove(self, context: StreamContext) -> None:
        """Read a stream no longer."""
        self._registry.remove(context.identifier)
        self._audited.discard(context.identifier)
        for task in self._tasks.pop(context.identifier, ()):
            task.cancel()

    def _start(self, context: StreamContext) -> None:
        if self._group is None:
            return
        name = context.identifier
        tasks = [self._group.create_task(self._watch(context), name=f"stream-watch {name}")]
        if name in self._audited:
            audits = context.syncer.run()
            tasks.append(self._group.create_task(audits, name=f"shard-syncer {name}"))
        self._tasks[name] = tasks

    async def _watch(self, context: StreamContext) -> None:
        try:
            await context.existence.run()
        except ResourceMissing as error:
            self._on_gone(context, str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerParts:
    """Made once, by ``kcl_mld.app``.

    Attributes:
        store: the lease table; its scans tell of orphans.
        table_watch: nothing is created in a table that is another one than at the start.
        leases_created: called when there may be leases to take.
        changed: woken when leases that are held are not to be read any more.
        options: of single streams, and of orphans.
        position: where the shards of streams without a position of their own begin.
        conditions: for ``/readyz``: streams of the list that are gone, by name.
    """

    names: StreamNames
    resolver: StreamResolver
    registry: StreamRegistry
    new_context: ContextFactory
    store: LeaseStore
    table_watch: ExistenceWatch
    leases_created: Callable[[], None]
    changed: Wakeup
    options: StreamList
    position: InitialPosition
    region: str
    conditions: Conditions
    rng: random.Random

    def new_stream(
        self, stream: Stream, created: object, position: InitialPosition | None = None
    ) -> StreamContext:
        """Wire one of many streams, with what holds for it alone.

        Args:
            created: ``StreamCreationTimestamp``; None = not known.
            position: where its shards begin unless its own options say so; None = where those of
                other streams do.
        """
        options = self.options.options_of(stream.name)
        positions = (options.initial_position, position, self.position)
        known = [one for one in positions if one is not None]
        return self.new_context(stream, known, options, created)


class WorkerStreams(Protocol):
    """One stream (:class:`SingleStream`), or those that a ``StreamTracker`` follows."""

    async def start(self) -> None:
        """Find the streams and fill the table for those that have no leases in use.

        May be called again after it failed.

        Raises:
            MissingStreams: some do not exist.
            NotFound: the only one does not exist.
            AwsError: a stream or the table could not be read; try again.
        """
        ...

    def loops(self) -> tuple[Loop, ...]:
        """Service loops that belong to streams; what they raise ends the worker."""
        ...

    def is_read(self, lease: Lease) -> bool:
        """Whether this worker reads that lease's stream; leases of others are left alone."""
        ...

    def shown(self) -> dict[str, Any]:
        """What ``/leases`` shows of them."""
        ...


class SingleStream:
    """The stream of a worker in single-stream mode: known from the start, and never changed."""

    def __init__(self, context: StreamContext) -> None:
        self._context = context

    async def start(self) -> None:
        """Fill the table if it has no leases."""
        await self._context.syncer.sync_if_empty()

    def loops(self) -> tuple[Loop, ...]:
        """The loops of the stream; if it is gone, the worker ends."""
        return (
            ("shard-syncer", self._context.syncer.run),
            ("stream-watch", self._context.existence.run),
        )

    def is_read(self, lease: Lease) -> bool:  # noqa: ARG002 - the table has leases of one stream
        """Accept every lease, because all are of this stream."""
        return True

    def shown(self) -> dict[str, Any]:
        """The name of the stream."""
        return {"stream": self._context.stream.name}
