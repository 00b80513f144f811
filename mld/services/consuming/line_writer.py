"""Turns batches into lines, large ones away from the event loop and one at a time.

While a batch of 10 MB is converted its records exist as received, as texts and as a line; the lock
keeps that from happening for several shards at once, and the budget knows of it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from mld.decide.delivery import Delivery, deliver

if TYPE_CHECKING:
    from mld.model.schema import Catalogue
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.model.shard import HashRange
    from mld.ports.offload import Offload
    from mld.services.retrieval.records_publisher import FetchedBatch
    from mld.services.schemas.schema_registry import SchemaRegistry

#: Up to this size a conversion takes less than the hop to another thread is worth (about 1 ms).
INLINE_BYTES = 256 * 1024
#: The same where payloads may have to be decompressed or decoded.
INLINE_BYTES_OF_FRAMED = 16 * 1024
#: Body, texts and line exist at the same time for a moment.
_CONVERSION_FACTOR = 3


class LineWriter:
    """One per process."""

    def __init__(
        self, offload: Offload, *, even_if_empty: bool, schemas: SchemaRegistry | None = None
    ) -> None:
        """Use this place for large work.

        Args:
            offload: where large batches are converted.
            even_if_empty: ``callProcessRecordsEvenForEmptyRecordList``.
            schemas: knows the schemas of framed records; None = frames are left alone.
        """
        self._offload = offload
        self._lock = asyncio.Lock()
        self._deliver = partial(deliver, even_if_empty=even_if_empty)
        self._schemas = schemas
        self._inline_bytes = INLINE_BYTES if schemas is None else INLINE_BYTES_OF_FRAMED

    async def write(
        self,
        fetched: FetchedBatch,
        checkpoint: ExtendedSequenceNumber,
        hash_range: HashRange | None,
    ) -> Delivery:
        """The line of a batch; see :func:`mld.decide.delivery.deliver`.

        Its reservation becomes the size of the line.

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
        fetched.reservation.resize(len(delivery.line or b""))
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
        if batch.size_bytes <= self._inline_bytes:
            return deliver(batch, checkpoint, hash_range)
        async with self._lock:
            fetched.reservation.resize(_CONVERSION_FACTOR * batch.size_bytes)
            return await self._offload.run(deliver, batch, checkpoint, hash_range)
