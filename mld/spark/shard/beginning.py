"""Where one shard begins: the daemon's checkpoint, the sink's mark or the stored intent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.errors import BatchFailed, SparkConfigError
from mld.spark.model import Position, WriteIntent, parse_position
from mld.spark.shard.resume import resume_at_mark, resume_intent, resume_renumbered

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mld.spark.config import SparkConfig
    from mld.spark.model import ShardKey
    from mld.spark.ports import IntentStore, Sink
    from mld.spark.shard.resume import Resume
    from protocol.processor import InitializeInput


def stored_checkpoint(given: InitializeInput) -> Position | None:
    """The checkpoint that ``initialize`` told of; None for the sentinels."""
    return Position.of_checkpoint(given.sequence_number, given.sub_sequence_number)


def find_beginning(
    shard: ShardKey,
    given: InitializeInput,
    *,
    config: SparkConfig,
    sink: Sink,
    intents: IntentStore | None,
    capabilities: Collection[str],
    new_id: Callable[[], str],
) -> Resume:
    """Ask whoever keeps the truth for this sink.

    Args:
        shard: whose.
        given: what the daemon said.
        config: names the sink.
        sink: asked for its mark.
        intents: a store of its own; None = the lease's row, which ``given`` tells of.
        capabilities: what the daemon can do.
        new_id: makes application ids unique.

    Raises:
        SparkConfigError: the sink needs intents and nobody keeps them.
        BatchFailed: the shard cannot go on where the checkpoint is.
    """
    checkpoint = stored_checkpoint(given)
    if sink.uses_intents:
        text = str(checkpoint) if checkpoint else str(given.sequence_number)
        stored = intents.load(shard) if intents else _leased(shard, given, capabilities)
        return resume_intent(shard, checkpoint, text, stored, new_id())
    if config.sink == "foreach":
        old = intents.load(shard) if intents else _parsed(shard, given)
        return resume_renumbered(shard, checkpoint, old)
    return resume_at_mark(shard, checkpoint, sink.mark(shard))


def _leased(
    shard: ShardKey, given: InitializeInput, capabilities: Collection[str]
) -> WriteIntent | None:
    """The intent in the lease's row."""
    if "intent" not in capabilities:
        raise SparkConfigError(
            "this daemon keeps no intents (KCL_MLD_CAPABILITIES does not name 'intent'): set "
            "spark.intent.store=dynamodb, or take spark.batch.scope=shard out and keep ctx.marks()"
        )
    return _parsed(shard, given)


def _parsed(shard: ShardKey, given: InitializeInput) -> WriteIntent | None:
    if (found := given.intent) is None:
        return None
    try:
        to = Position.parse(found.to)
        return WriteIntent(found.number, parse_position(found.after), to, found.app_id)
    except ValueError as error:
        raise BatchFailed(f"{shard.shard_id}: the intent of the lease: {error}") from error
