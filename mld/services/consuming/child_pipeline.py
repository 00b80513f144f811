"""A child and the fetching that feeds it: one pair per start of a shard's child."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from mld.decide.children.child_environment import ChildFacts
from mld.services.child.record_processor import RecordProcessor
from protocol import CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.model.leases.lease import Lease
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.model.streams.stream import Stream
    from mld.services.consuming.checkpointer import ShardCheckpointer
    from mld.services.consuming.consumer_parts import ConsumerParts
    from mld.services.streams.stream_context import StreamContext
    from protocol import Action


class ChildPipeline:
    """Started together, so that the first answer is there when the child is."""

    def __init__(
        self,
        lease: Lease,
        parts: ConsumerParts,
        stream_context: StreamContext,
        checkpointer: ShardCheckpointer,
        on_exception: Callable[[Action, str], None],
    ) -> None:
        """Nothing happens before :meth:`start_fetching` and the processor's ``initialize``."""
        self.publisher = stream_context.publishers(lease.shard_id)
        config = parts.config.child
        facts = _facts(lease, parts, stream_context.stream)
        streams = parts.config.streams
        self.processor = RecordProcessor(
            lease.shard_id,
            replace(config, argv=facts.command(stream_context.argv or config.argv)),
            parts.launcher,
            checkpointer,
            parts.runtime.clock,
            facts.variables(),
            facts.extras() if streams is not None and streams.tells_stream else {},
            on_exception,
        )
        self._name = f"fetch {lease.lease_key}"
        self._fetching: asyncio.Task[None] | None = None

    async def start_fetching(
        self,
        group: asyncio.TaskGroup,
        position: ExtendedSequenceNumber,
        latest_since_s: float | None = None,
    ) -> None:
        """Fetch from a position on, in a task of the group."""
        await self.publisher.start(position, latest_since_s)
        self._fetching = group.create_task(self.publisher.run(), name=self._name)

    async def stop_fetching(self) -> None:
        """End the task and give undelivered batches back; may be called again."""
        fetching, self._fetching = self._fetching, None
        if fetching is not None:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
        await self.publisher.close()


def _facts(lease: Lease, parts: ConsumerParts, stream: Stream) -> ChildFacts:
    """For the child; nothing reads them but the user's program, if it likes."""
    config = parts.config
    return ChildFacts(
        shard_id=lease.shard_id,
        lease_key=lease.lease_key,
        stream_name=stream.name,
        application_name=config.application_name,
        worker_id=config.worker_id,
        pid=parts.pid,
        announced=CAPABILITIES,
        answer_timeout_s=config.child.answer_timeout_s,
        schemas=None if parts.schemas is None else parts.schemas.files.folder,
        spark=config.spark,
        stream_arn=stream.arn,
        stream_identifier=stream.identifier,
    )
