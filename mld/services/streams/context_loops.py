"""Contexts that are read now, and the service loops of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.errors import ResourceMissing

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from mld.services.streams.stream_context import StreamContext, StreamRegistry


class ContextLoops:
    """Puts contexts into the registry and runs what belongs to them, one set a stream."""

    def __init__(
        self, registry: StreamRegistry, on_gone: Callable[[StreamContext, str], None]
    ) -> None:
        """No stream yet.

        Args:
            registry: finds the contexts for leases.
            on_gone: told of a stream that has been gone for ``presence_watch.GIVE_UP_S``, and why.
        """
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
            await context.presence.run()
        except ResourceMissing as error:
            self._on_gone(context, str(error))
