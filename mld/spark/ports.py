"""The surfaces between the parts of the Spark child.

Session -> engine -> sink: the engine knows no sink by name, a sink knows no protocol, and nobody
but the launcher knows how a server is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.model import Batch, Intent, Position, ShardKey


class Sessions(Protocol):
    """Where a session comes from; safe to ask from any thread."""

    def get(self) -> SparkSession:
        """The live session; a new one if the server dropped the old one.

        Raises:
            SparkUnreachable: there is no server.
        """

    def interrupt(self, tag: str) -> None:
        """End the operations that carry a tag; quiet if there are none."""

    def close(self) -> None:
        """Let go of the server; at most a few seconds."""


class Sink(Protocol):
    """Where rows become durable. One instance a process, called from several threads.

    The order of calls for a job is ``write``, then ``commit`` for each batch that is still wanted,
    then ``discard``, always. Before the first batch of a shard comes ``mark``.
    """

    @property
    def coalesces(self) -> bool:
        """True if one job may hold batches of several shards (never two of one shard)."""

    @property
    def uses_intents(self) -> bool:
        """True if each batch must be numbered durably before it is written."""

    def prepare(self, spark: SparkSession) -> None:
        """Look whether the promise can be kept there; called once, before any shard.

        Raises:
            SinkRefused: it cannot; the message names a way out.
        """

    def mark(self, shard: ShardKey) -> Position | None:
        """The last position of the shard that is durable in the sink; None = nothing known."""

    def write(self, frame: DataFrame | None, batches: Sequence[Batch]) -> Any:
        """Run the Spark job.

        Args:
            frame: rows of all batches with ``BATCH_COLUMN`` (its value is ``Batch.batch_id``);
                None when the function wrote itself.
            batches: one, or several of different shards if the sink coalesces.

        Returns:
            what ``commit`` and ``discard`` need.
        """

    def commit(self, staged: Any, batch: Batch) -> None:
        """Make one batch durable and visible, or prove that it already is.

        Raises:
            Fenced: another writer has extended the same position.
        """

    def discard(self, staged: Any) -> None:
        """Remove what is left of a job; never raises for what is not there."""


class IntentStore(Protocol):
    """Where the number of a batch is kept before it is written; per shard one writer at a time."""

    def load(self, shard: ShardKey) -> Intent | None:
        """The newest intent of the shard; None if there was never one."""

    def store(self, shard: ShardKey, intent: Intent) -> None:
        """Keep it durably before returning.

        Raises:
            Fenced: somebody else has stored this number or a higher one.
            BatchFailed: it could not be stored.
        """


class Clock(Protocol):
    """Time for the batcher and for deadlines."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
