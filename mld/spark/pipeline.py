"""What an app registered, and the processor of each shard that is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mld.spark.errors import SparkConfigError
from protocol.child import (
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    RecordProcessor,
    ShardEndedInput,
    ShutdownRequestedInput,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from mld.spark.model import BatchContext, ShardKey


class SparkRecordProcessor(RecordProcessor):
    """One shard's processor, with the methods of ``amazon_kclpy.v3`` intact.

    Override :meth:`process`. The other methods are called for the daemon's messages, in the thread
    that serves the shard; one that is overridden must call ``super()``, because the records take
    their way to Spark through it. Checkpoints follow the commits by themselves: the checkpointer
    of the inputs refuses to be called.

    One instance serves one shard. ``process`` is called in another thread than the rest.
    """

    _feed: RecordProcessor | None = None

    def process(self, df: DataFrame, ctx: BatchContext) -> DataFrame | None:
        """Plan a batch: return the rows for the sink, or None if the function wrote them itself.

        Called for each shard by itself, whatever ``spark.batch.scope`` says.

        Args:
            df: the records of the batch, decoded.
            ctx: which shard, which batch, the session.
        """
        raise NotImplementedError(f"{type(self).__name__} must override process(self, df, ctx)")

    def initialize(self, initialize_input: InitializeInput) -> None:
        """The shard begins, or begins again."""
        self._fed.initialize(initialize_input)

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Records arrived; they are processed when a batch is due, not now."""
        self._fed.process_records(process_records_input)

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:
        """Another worker has the shard: what is not committed is its business."""
        self._fed.lease_lost(lease_lost_input)

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """The shard is finished: everything is made durable, then its end is checkpointed."""
        self._fed.shard_ended(shard_ended_input)

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """The worker stops: everything is made durable and checkpointed."""
        self._fed.shutdown_requested(shutdown_requested_input)

    @property
    def _fed(self) -> RecordProcessor:
        if self._feed is None:
            raise RuntimeError(f"{type(self).__name__} is called by the Spark host only")
        return self._feed


class FunctionProcessor(SparkRecordProcessor):
    """The processor of an app that registered a function."""

    def __init__(self, function: Callable[[DataFrame, BatchContext], DataFrame | None]) -> None:
        self._function = function

    def process(self, df: DataFrame, ctx: BatchContext) -> DataFrame | None:
        """Ask the function."""
        return self._function(df, ctx)


@dataclass(frozen=True)
class Pipeline:
    """What an app registered.

    Attributes:
        new_processor: makes the processor of one shard.
        schema: columns of the decoded data as DDL, or an Avro schema in JSON; None = the
            property ``spark.decoder.schema``.
        decoder: ``raw``, ``json``, ``csv`` or ``avro``; None = the property ``spark.decoder``.
        on_error: ``fail``, ``null`` or ``deadletter``; None = the property ``spark.decoder.onError``.
        function: what ``new_processor`` asks, if all shards may share a call of it; None where
            each shard has a processor of its own.
        is_rowwise: the function treats each record by itself.
    """

    new_processor: Callable[[], SparkRecordProcessor]
    schema: str | None = None
    decoder: str | None = None
    on_error: str | None = None
    function: Callable[[DataFrame, BatchContext], DataFrame | None] | None = None
    is_rowwise: bool = False
    _open: dict[tuple[str, str], SparkRecordProcessor] = field(default_factory=dict, repr=False)

    def open(self, shard: ShardKey, feed: RecordProcessor) -> SparkRecordProcessor:
        """Make the processor of a shard; the session calls its methods for the daemon's messages.

        Args:
            shard: whose; a shard is open once at a time.
            feed: what the processor's own methods do, normally the session.

        Raises:
            SparkConfigError: the app's factory gave something else.
        """
        processor = self.new_processor()
        if not isinstance(processor, SparkRecordProcessor):
            raise SparkConfigError(
                f"run(processor=…) made a {type(processor).__name__}; "
                f"it must make a SparkRecordProcessor"
            )
        processor._feed = feed  # noqa: SLF001 - set here and nowhere else
        self._open[shard.stream, shard.shard_id] = processor
        return processor

    def close(self, shard: ShardKey) -> None:
        """Forget the processor of a shard; quiet if there is none."""
        self._open.pop((shard.stream, shard.shard_id), None)

    def process(self, df: DataFrame, ctx: BatchContext) -> DataFrame | None:
        """Plan a batch by the processor of its shard.

        Raises:
            KeyError: the shard is not open.
            Exception: whatever the user's function raised.
        """
        return self._open[ctx.stream_name or "", ctx.shard_id or ""].process(df, ctx)
