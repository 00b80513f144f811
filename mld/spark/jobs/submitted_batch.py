"""A batch that waits for its commit, and who is told."""

from __future__ import annotations

import contextlib
from concurrent.futures import InvalidStateError
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mld.spark.errors import BatchFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from mld.spark.model import ShardBatch, ShardKey


def first_records(submitted: Sequence[SubmittedBatch], most: int) -> list[SubmittedBatch]:
    """Those whose batches are so many records together; one of them is divided for that.

    Args:
        submitted: in the order in which they are taken.
        most: records, >= 1.
    """
    found = []
    for one in submitted:
        count = len(one.batch.rows)
        if count > most > 0:
            one.divide(most)
            count = most
        if count <= most:
            found.append(one)
            most -= count
    return found


@dataclass(eq=False, slots=True)
class SubmittedBatch:
    """A batch that waits for its commit.

    Attributes:
        batch: which.
        fence: False once the shard is lost, or a batch of it has failed, and from then on; may be
            asked in any thread.
        future: is told how it ended.
        submitted_at: monotonic s.
        hold: of the shard that it belongs to; None = nobody asks.
        rest: what follows the batch and is committed later; None = the batch is all of it.
        payload_bytes: of its records.
    """

    batch: ShardBatch
    fence: Callable[[], bool]
    future: Future[None]
    submitted_at: float
    hold: object = None
    rest: ShardBatch | None = None
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

    def divide(self, count: int) -> None:
        """Leave so many records in the batch; the others are its rest.

        Args:
            count: >= 1; at least one is left over.
        """
        whole = self.batch
        rows = whole.rows[count:]
        self.batch = replace(whole, to=whole.rows[count - 1].position, rows=whole.rows[:count])
        if self.rest is not None:
            whole, rows = self.rest, rows + self.rest.rows
        self.rest = replace(whole, after=self.batch.to, rows=rows)

    def answer(self) -> None:
        """The batch stands: go on with its rest, or tell that there is none."""
        if self.rest is None:
            self.future.set_result(None)
        else:
            self.batch, self.rest = self.rest, None

    def is_wanted(self) -> bool:
        """True while it may be written; one behind its fence is answered here."""
        if self.future.done():
            return False
        if self.fence():
            return True
        self.fail(BatchFailed(f"{self.shard_id}: the shard is lost; nothing more is committed"))
        return False
