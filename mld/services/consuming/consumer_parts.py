"""What all shard consumers of a process share.

Large batches become lines away from the event loop and one at a time. While a batch of 10 MB is
converted its records exist as received, as texts and as a line; a lock keeps that from happening
for several shards at once, and the budget knows of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from mld.decide.retrieval.delivery import Delivery, RemainingRecords, deliver, deliver_rest
from mld.services.consuming.child_starts import ChildStarts

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.model.config.config import Config
    from mld.model.retrieval.schema import Catalogue
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.model.streams.shard import HashRange
    from mld.ports.children import ChildLauncher
    from mld.ports.letters import LetterStore
    from mld.ports.process import Offload
    from mld.services.leases.lease_renewer import LeaseRenewer
    from mld.services.retrieval.byte_budget import Reservation
    from mld.services.retrieval.records_publisher import FetchedBatch
    from mld.services.runtime import Runtime
    from mld.services.schemas.schema_registry import SchemaRegistry
    from mld.services.shards.lease_cleanup import LeaseCleanup
    from mld.services.shards.shard_end import ShardEnd
    from mld.services.streams.stream_context import StreamRegistry

#: Up to this size a conversion takes less than the hop to another thread is worth (about 1 ms).
#: Nothing is small where payloads may have to be decompressed or decoded.
INLINE_BYTES = 256 * 1024
#: Body, texts and line exist at the same time for a moment.
_CONVERSION_FACTOR = 3


class LineWriter:
    """One per process."""

    def __init__(
        self, offload: Offload, *, even_if_empty: bool, schemas: SchemaRegistry | None = None
    ) -> None:
        """Use this place for large work.

        Args:
            even_if_empty: ``callProcessRecordsEvenForEmptyRecordList``.
            schemas: knows the schemas of framed records; None = frames are left alone.
        """
        self._offload = offload
        self._lock = asyncio.Lock()
        self._deliver = partial(deliver, even_if_empty=even_if_empty)
        self._schemas = schemas

    async def write(
        self,
        fetched: FetchedBatch,
        checkpoint: ExtendedSequenceNumber,
        hash_range: HashRange | None,
    ) -> Delivery:
        """The line of a batch; see :func:`mld.decide.retrieval.delivery.deliver`.

        Its reservation becomes the size of the line, and of what is left for further lines.

        Raises:
            MalformedData: the batch cannot be read; fetch it again.
        """
        schemas = self._schemas
        known = None if schemas is None else schemas.known
        delivery = await self._convert(fetched, checkpoint, hash_range, known)
        if schemas is not None and delivery.unknown:
            fetched.reservation.resize(fetched.batch.size_bytes)
            found = await schemas.look_up(delivery.unknown)
            # What was known then still is: it may have been forgotten meanwhile.
            catalogue = {**(known or {}), **found}
            delivery = await self._convert(fetched, checkpoint, hash_range, catalogue)
        if schemas is not None:
            schemas.used(delivery.versions)
        _account(fetched.reservation, delivery)
        return delivery

    async def write_rest(self, fetched: FetchedBatch, rest: RemainingRecords) -> Delivery:
        """The next line of a batch, as :meth:`write` gives the first one."""
        async with self._lock:
            delivery = await self._offload.run(deliver_rest, rest)
        _account(fetched.reservation, delivery)
        return delivery

    async def _convert(
        self,
        fetched: FetchedBatch,
        checkpoint: ExtendedSequenceNumber,
        hash_range: HashRange | None,
        schemas: Catalogue | None,
    ) -> Delivery:
        batch = fetched.batch
        deliver = partial(self._deliver, schemas=schemas)
        is_small = batch.size_bytes <= INLINE_BYTES and self._schemas is None
        if is_small or batch.is_empty:
            return deliver(batch, checkpoint, hash_range)
        async with self._lock:
            fetched.reservation.resize(_CONVERSION_FACTOR * batch.size_bytes)
            return await self._offload.run(deliver, batch, checkpoint, hash_range)


def _account(reservation: Reservation, delivery: Delivery) -> None:
    left = 0 if delivery.rest is None else delivery.rest.size_bytes
    reservation.resize(len(delivery.line or b"") + left)


@dataclass(slots=True)
class Tally:
    """Counts since the process began.

    Attributes:
        records: handed to children, a record that was handed twice counts twice.
        restarts: of children.
    """

    records: int = 0
    restarts: int = 0


def _undated() -> float | None:
    """No answer has a date."""
    return None


@dataclass(slots=True, kw_only=True)
class ConsumerParts:
    """What all consumers of a process share; make it once.

    Attributes:
        pid: process id of the daemon, for children that outlive it if they don't look.
        schemas: the schema registry; None = frames are left alone.
        letters: where dead letters go; None without ``childFailurePolicy = deadletter``.
        starts: made here, because all children share its places.
        lines: made here, because large conversions of all shards wait for each other in it.
        latest_starts: by lease key, the row's count of owner switches and when this process began
            to read at LATEST (epoch seconds). A child that is started again, or a lapsed lease that
            is regained, before anything was checkpointed goes on there; a new LATEST would skip
            what came in between.
        tally: what all of them have done so far.
        service_time: epoch seconds by the answers of Kinesis; None where they have no date.
    """

    config: Config
    runtime: Runtime
    streams: StreamRegistry
    renewer: LeaseRenewer
    shard_end: ShardEnd
    cleanup: LeaseCleanup
    launcher: ChildLauncher
    pid: int
    schemas: SchemaRegistry | None = None
    letters: LetterStore | None = None
    starts: ChildStarts = field(init=False)
    lines: LineWriter = field(init=False)
    latest_starts: dict[str, tuple[int, float]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    service_time: Callable[[], float | None] = _undated

    def __post_init__(self) -> None:
        self.starts = ChildStarts(self.renewer.in_time)
        self.lines = LineWriter(
            self.runtime.offload,
            even_if_empty=self.config.retrieval.call_even_if_empty,
            schemas=self.schemas,
        )
