"""Where a shard begins again: the checkpoint, the sink's mark and the last intent. Pure.

There are two ways to write every record once although a redelivery is cut anew:

* *Marked* sinks (delta, merge, jdbc) append to a position that they keep themselves. Their mark is
  the truth: what lies before it is dropped, whatever the checkpoint says.
* *WriteIntent* sinks (foreach with a call for each shard) are given a number that they can skip. Number and range of a batch are
  stored before it is written; a start that finds such an intent beyond its checkpoint repeats
  exactly that batch under exactly that number.

The others (foreach otherwise) begin behind the checkpoint and may write again
what an earlier process wrote beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.spark.errors import BatchFailed, Recut
from mld.spark.model import position_text

if TYPE_CHECKING:
    from mld.spark.model import Position, ShardKey, WriteIntent


@dataclass(frozen=True, slots=True)
class Resume:
    """How a shard begins.

    Attributes:
        after: position that the first batch follows; None = the beginning.
        drop_through: records up to here are durable and are dropped; None = none are known to be.
        forced_to: where the first batch has to end; None = anywhere.
        next_number: of the first batch, >= 1; of no meaning without intents.
        app_id: under which the sink counts; "" without intents.
        is_replay: True if the first batch may have been written by an earlier process.
        may_void: True if the forced cut is void once the first record lies beyond its end: reading
            began at a sentinel that moves.
        warnings: sentences for the log.
    """

    after: Position | None
    drop_through: Position | None
    forced_to: Position | None = None
    next_number: int = 1
    app_id: str = ""
    is_replay: bool = False
    may_void: bool = False
    warnings: tuple[str, ...] = ()


def app_id_prefix(shard: ShardKey) -> str:
    """What the application ids of a shard and epoch begin with."""
    return f"kcl/{shard.application}/{shard.stream}/{shard.shard_id}/{shard.epoch}/"


def resume_at_mark(shard: ShardKey, checkpoint: Position | None, mark: Position | None) -> Resume:
    """Begin at a sink that keeps its own position of each shard.

    Args:
        shard: whose.
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


def resume_renumbered(
    shard: ShardKey, checkpoint: Position | None, intent: WriteIntent | None
) -> Resume:
    """Begin at a sink that knows nothing, and whose batches had numbers until now perhaps.

    Args:
        shard: whose.
        checkpoint: stored position; None for the sentinels.
        intent: the newest one of the shard; None if its batches never had numbers.

    Raises:
        BatchFailed: a numbered batch may have been written; repeated in another cut, nobody would
            know it.
    """
    if intent is None or not intent.app_id.startswith(app_id_prefix(shard)):
        return Resume(checkpoint, checkpoint, is_replay=True)
    if checkpoint is None or intent.to > checkpoint:
        raise BatchFailed(
            f"{shard.shard_id}: batch {intent.number} ({position_text(intent.after)}, {intent.to}] "
            f"may have been written under its number, and spark.batch.scope=all gives none. Start "
            f"once more with spark.batch.scope=shard, which repeats it, and stop the workers in "
            f"order before you change to all"
        )
    warning = (
        f"{shard.shard_id}: batches had numbers until {intent.number}; with spark.batch.scope=all "
        f"ctx.batch_number is None, and a call is for all shards: see ctx.marks()"
    )
    return Resume(checkpoint, checkpoint, is_replay=True, warnings=(warning,))


def resume_intent(
    shard: ShardKey,
    checkpoint: Position | None,
    checkpoint_text: str,
    intent: WriteIntent | None,
    nonce: str,
) -> Resume:
    """Begin at a sink that counts batches.

    Args:
        shard: whose; its epoch is part of the application id.
        checkpoint: stored position; None for the sentinels.
        checkpoint_text: the checkpoint as it is stored, for messages.
        intent: the newest one of the shard; None if there was never one.
        nonce: makes a new application id unique; used only where counting begins anew.

    Raises:
        Recut: the checkpoint lies inside a batch that may have been written.
        BatchFailed: the checkpoint lies before a batch that was written.
    """
    prefix = app_id_prefix(shard)
    if intent is None:
        return Resume(checkpoint, checkpoint, app_id=prefix + nonce)
    if not intent.app_id.startswith(prefix):
        warning = (
            f"{shard.shard_id}: batch {intent.number} belongs to {intent.app_id!r}; epoch "
            f"{shard.epoch!r} begins with batch {intent.number + 1} behind {checkpoint_text}"
        )
        # The number goes on although the application id is new: no store lets a number go back.
        return Resume(
            checkpoint,
            checkpoint,
            next_number=intent.number + 1,
            app_id=prefix + nonce,
            warnings=(warning,),
        )
    if checkpoint is not None and intent.to <= checkpoint:
        return Resume(checkpoint, checkpoint, next_number=intent.number + 1, app_id=intent.app_id)
    if checkpoint == intent.after:
        return Resume(
            intent.after,
            intent.after,
            forced_to=intent.to,
            next_number=intent.number,
            app_id=intent.app_id,
            is_replay=True,
            may_void=intent.after is None,
        )
    raise _refusal(shard, checkpoint, checkpoint_text, intent)


def void_warning(shard: ShardKey, resume: Resume, first: Position) -> str:
    """What to say when a forced cut is void: its records are not delivered any more."""
    return (
        f"{shard.shard_id}: reading began anew and the first record, {first}, lies beyond "
        f"{position_text(resume.forced_to)}, the end of batch {resume.next_number}. That batch is "
        f"not repeated; if it was not written, its records are not in the output"
    )


def _refusal(
    shard: ShardKey, checkpoint: Position | None, checkpoint_text: str, intent: WriteIntent
) -> BatchFailed:
    span = f"batch {intent.number} ({position_text(intent.after)}, {intent.to}]"
    after = intent.after
    if checkpoint is not None and (after is None or after < checkpoint):
        return Recut(
            f"{shard.shard_id}: the checkpoint {checkpoint} lies inside {span}, which may have "
            f"been written: another consumer has moved it. Look which of its rows the output has, "
            f"set the checkpoint to {intent.to} or to {position_text(after)}, or start a new "
            f"output with spark.sink.epoch"
        )
    return BatchFailed(
        f"{shard.shard_id}: the checkpoint {checkpoint_text} lies before {span}: it was set back. "
        f"Records that the output has would be written again. To write them again on purpose "
        f"choose a new spark.sink.epoch"
    )
