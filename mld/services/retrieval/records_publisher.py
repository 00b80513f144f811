"""Getting one shard's records: what the consumer needs, whichever way they come.

Polling is one way; records that are pushed are another. A consumer is given a factory, so that
each stream can have its own way.

Source: RecordsPublisher (KCL 3.5.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from mld.decide.retrieval.polling import ReadPosition
    from mld.model.retrieval.record import Batch
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.services.retrieval.byte_budget import Reservation


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """A batch on its way to the consumer.

    Attributes:
        batch: the answer, or what was pushed.
        reservation: its bytes; the consumer releases them when the line is written.
        fetched_at: reading of the monotonic clock when it came.
    """

    batch: Batch
    reservation: Reservation
    fetched_at: float


class RecordsPublisher(Protocol):
    """One shard's batches, in order, without holes.

    The consumer calls :meth:`start` once, runs :meth:`run` in a task of its own, takes batches with
    :meth:`next_batch`, cancels the task, and calls :meth:`close`.
    """

    @property
    def delivered(self) -> ReadPosition:
        """How far batches were handed out; a place for :meth:`rewind`.

        Raises:
            RuntimeError: it was not started.
        """
        ...

    @property
    def latest_since_s(self) -> float | None:
        """Epoch seconds at which reading at LATEST began; None if it did not."""
        ...

    @property
    def failing_since(self) -> float | None:
        """Reading of the monotonic clock when the first call failed of those that failed in a row.

        None while all is well.
        """
        ...

    @property
    def waiting(self) -> tuple[FetchedBatch, ...]:
        """The batches that were not handed out yet, in order."""
        ...

    async def start(
        self, position: ExtendedSequenceNumber, latest_since_s: float | None = None
    ) -> None:
        """Begin at a checkpoint; the records come as soon as :meth:`run` runs.

        Args:
            latest_since_s: when reading at LATEST had begun before (epoch seconds); None = now.
        """
        ...

    async def run(self) -> None:
        """Get records until cancelled; no failing call ends it.

        After the end of the shard it only waits for a :meth:`rewind`.
        """
        ...

    async def next_batch(self) -> FetchedBatch | None:
        """The next batch, waiting for it; the last one says that the shard ended.

        Returns:
            None when :meth:`interrupt` was called while waiting.

        Cancellation: nothing is lost, the next call gets the same batch.
        """
        ...

    def interrupt(self) -> None:
        """Let a waiting :meth:`next_batch` return."""
        ...

    def rewind(self, to: ReadPosition) -> None:
        """Get again what came after a position; what was not handed out yet is dropped."""
        ...

    async def close(self) -> None:
        """Give the memory of undelivered batches back; :meth:`run` must have been cancelled."""
        ...


#: Shard id -> its publisher, not started. One per stream.
PublisherFactory: TypeAlias = Callable[[str], RecordsPublisher]
