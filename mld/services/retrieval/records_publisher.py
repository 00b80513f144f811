"""What every way of getting a shard's records hands to its consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mld.model.record import Batch
    from mld.services.retrieval.byte_budget import Reservation


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """A batch on its way to the consumer.

    Attributes:
        batch: the answer.
        reservation: its bytes; the consumer releases them when the line is written.
        fetched_at: reading of the monotonic clock when it came.
    """

    batch: Batch
    reservation: Reservation
    fetched_at: float
