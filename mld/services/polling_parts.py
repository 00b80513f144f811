"""What the publishers of a process share, and what they hand to their consumers.

Values only: nothing here fetches, waits, or gives a reservation back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mld.model.config import RetrievalConfig
    from mld.model.record import Batch
    from mld.model.stream import Stream
    from mld.ports.aws import Kinesis
    from mld.ports.clock import Clock
    from mld.ports.metrics import Metrics
    from mld.ports.offload import Offload
    from mld.services.byte_budget import ByteBudget, Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingParts:
    """What all publishers of a process share.

    Attributes:
        initial_timestamp_s: of an AT_TIMESTAMP start, else None.
    """

    kinesis: Kinesis
    stream: Stream
    config: RetrievalConfig
    budget: ByteBudget
    offload: Offload
    clock: Clock
    metrics: Metrics
    initial_timestamp_s: float | None = None


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
