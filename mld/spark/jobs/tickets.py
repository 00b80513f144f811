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
        fence: False once the shard is lost, and from then on; may be asked in any thread.
        future: is told how it ended.
        submitted_at: monotonic s.
        hold: of the shard that it belongs to; None = nobody asks.
        before: of the batch of this shard that has to be over first; None = there is none.
        follows: True if this batch begins where that one ends. If not, it is of a new hold of the
            shard, which met a commit of the old one that hangs, and does not fail with it.
        attempts: that failed and were nobody's fault.
        payload_bytes: of its records.
        spent_s: time that its function took in this attempt, in s.
        deadline: monotonic s at which its time (``spark.batch.timeout``) is up in this attempt. It
            counts the batch's own function and what is done for all, not the functions of others,
            nor the wait for the commit of the batch before it.
    """

    batch: ShardBatch
    fence: Callable[[], bool]
    future: Future[None]
    submitted_at: float
    hold: object = None
    before: Future[None] | None = None
    follows: bool = True
    attempts: int = 0
    payload_bytes: int = field(init=False)
    spent_s: float = field(default=0.0, init=False)
    deadline: float = field(default=0.0, init=False)

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
        before = self.before if self.follows else None
        if before is not None and before.done() and before.exception() is not None:
            self.fail(BatchFailed(f"{self.shard_id}: the batch before it failed"))
            return False
        if self.fence():
            return True
        self.fail(BatchFailed(f"{self.shard_id}: the shard is lost; nothing more is committed"))
        return False
