"""A batch that waits for its commit, and who is told."""

from __future__ import annotations

import contextlib
from concurrent.futures import InvalidStateError
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mld.spark.errors import BatchFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from mld.spark.model import ShardBatch, ShardKey


@dataclass(eq=False, slots=True)
class Ticket:
    """A batch that waits for its commit.

    Attributes:
        batch: which.
        fence: False once the shard is lost, or a batch of it has failed, and from then on; may be
            asked in any thread.
        future: is told how it ended.
        submitted_at: monotonic s.
        hold: of the shard that it belongs to; None = nobody asks.
        payload_bytes: of its records.
    """

    batch: ShardBatch
    fence: Callable[[], bool]
    future: Future[None]
    submitted_at: float
    hold: object = None
    payload_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.payload_bytes = sum(len(row.data) for row in self.batch.rows)

    def is_of(self, shard: ShardKey, hold: object) -> bool:
        """True if it belongs to that hold of the shard; ``hold`` None = whichever."""
        return self.shard == shard and (hold is None or self.hold is hold)

    @property
    def shard(self) -> ShardKey:
        """Whose batch it is."""
        return self.batch.shard

    @property
    def shard_id(self) -> str:
        """Of the shard, for messages."""
        return self.batch.shard.shard_id

    def fail(self, error: BaseException) -> None:
        """Answer with a failure, unless it is answered."""
        with contextlib.suppress(InvalidStateError):  # by another thread, or long ago
            self.future.set_exception(error)

    def is_wanted(self) -> bool:
        """True while it may be written; a ticket behind its fence is answered here."""
        if self.future.done():
            return False
        if self.fence():
            return True
        self.fail(BatchFailed(f"{self.shard_id}: the shard is lost; nothing more is committed"))
        return False
