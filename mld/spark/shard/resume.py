"""Where a shard begins again: behind the sink's mark, or behind the checkpoint. Pure.

The sinks delta, merge and jdbc append to a position that they keep themselves. Their mark is the
truth: what lies before it is dropped, whatever the checkpoint says. A function that writes by itself
keeps its own marks, so its shard begins behind the checkpoint, and may be given again what an
earlier process wrote beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.spark.errors import BatchFailed

if TYPE_CHECKING:
    from kcl_mld.spark.model import Position, ShardKey


@dataclass(frozen=True, slots=True)
class Resume:
    """How a shard begins.

    Attributes:
        after: position that the first batch follows; None = the beginning.
        drop_through: records up to here are durable and are dropped; None = none are known to be.
        is_replay: True if the first batch may have been written by an earlier process.
    """

    after: Position | None
    drop_through: Position | None
    is_replay: bool = False


def resume_at_checkpoint(checkpoint: Position | None) -> Resume:
    """Begin at a sink that keeps no marks.

    Args:
        checkpoint: stored position; None for the sentinels.
    """
    return Resume(checkpoint, checkpoint, is_replay=True)


def resume_at_mark(shard: ShardKey, checkpoint: Position | None, mark: Position | None) -> Resume:
    """Begin at a sink that keeps its own position of each shard.

    Args:
        checkpoint: stored position; None for the sentinels.
        mark: the sink's position of the shard; None = its history begins here, behind the
            checkpoint (a new path or epoch).

    Raises:
        BatchFailed: the checkpoint lies beyond the mark: records between would be missing.
    """
    if mark is None:
        return Resume(None, checkpoint)
    if checkpoint is not None and checkpoint > mark:
        raise BatchFailed(
            f"{shard.shard_id}: the checkpoint {checkpoint} lies beyond {mark}, the end of what the "
            f"sink has: the records between were processed by somebody else or written elsewhere. "
            f"Set the checkpoint back to {mark}, or choose a new spark.sink.epoch to go on behind "
            f"the checkpoint without them"
        )
    return Resume(mark, mark)
