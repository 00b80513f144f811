"""Turns batches into lines, large ones away from the event loop and one at a time.

While a batch of 10 MB is converted its records exist as received, as texts and as a line; the lock
keeps that from happening for several shards at once, and the budget knows of it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from mld.decide.retrieval.delivery import Delivery, RemainingRecords, deliver, deliver_rest

if TYPE_CHECKING:
    from mld.model.retrieval.schema import Catalogue
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.model.streams.shard import HashRange
    from mld.ports.offload import Offload
    from mld.services.retrieval.byte_budget import Reservation
    from mld.services.retrieval.records_publisher import FetchedBatch
    from mld.services.schemas.schema_registry import SchemaRegistry

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
            offload: where large batches are converted.
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
