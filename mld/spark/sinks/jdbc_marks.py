"""What the marks in a database say of a commit for several shards. Pure.

A mark needs no name of who has set it. One transaction moves all marks or none, so marks that are
all at the ends of our batches mean that each of their records is in the target once, whoever put it
there; and marks of which only some are there were moved by others.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.spark.model import position_text
from mld.spark.ports import CommitOutcome, outcomes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mld.spark.model import Position, ShardBatch, ShardKey

_log = logging.getLogger(__name__)


def judge(
    batches: Sequence[ShardBatch], marks: Mapping[ShardKey, Position | None]
) -> Mapping[ShardKey, CommitOutcome] | None:
    """What became of the batches of one job.

    Args:
        batches: at least one, each of another shard.
        marks: of their shards, as far as there are any.

    Returns:
        ``STANDS`` for all, if each mark is at its batch's end; ``LOST`` for those whose marks are
        not where their batches begin, and ``AGAIN`` for the others; None if all are there: nothing
        was committed, and may be.
    """
    if all(marks.get(each.shard) == each.to for each in batches):
        return {each.shard: CommitOutcome.STANDS for each in batches}
    moved = {each.shard for each in batches if marks.get(each.shard) != each.after}
    if not moved:
        return None
    for each in batches:
        if each.shard in moved:
            _log.warning(
                "%s: the mark in the database is %s, but the batch follows %s: another worker has "
                "the shard",
                each.shard.shard_id,
                position_text(marks[each.shard]) if each.shard in marks else "missing",
                position_text(each.after),
            )
    return outcomes(batches, moved)
