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
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.model.shard import HashRange
    from mld.ports.offload import Offload
    from mld.services.retrieval.records_publisher import FetchedBatch

#: Up to this size a conversion takes less than the hop to another thread is worth (about 1 ms).
INLINE_BYTES = 256 * 1024
#: Body, texts and line exist at the same time for a moment.
_CONVERSION_FACTOR = 3


class LineWriter:
    """One per process."""

    def __init__(self, offload: Offload, *, even_if_empty: bool) -> None:
        """Use this place for large work.

        Args:
            offload: where large batches are converted.
            even_if_empty: ``callProcessRecordsEvenForEmptyRecordList``.
        """
        self._offload = offload
        self._lock = asyncio.Lock()
        self._deliver = partial(deliver, even_if_empty=even_if_empty)

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
        batch, reservation = fetched.batch, fetched.reservation
        if batch.size_bytes <= INLINE_BYTES:
            delivery = self._deliver(batch, checkpoint, hash_range)
        else:
            async with self._lock:
                reservation.resize(_CONVERSION_FACTOR * batch.size_bytes)
                delivery = await self._offload.run(self._deliver, batch, checkpoint, hash_range)
        reservation.resize(len(delivery.line or b""))
        return delivery
