"""Batches of one shard in the engine: after a failure nothing more of it is written."""

from __future__ import annotations

import pytest

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.model import Position, Row, ShardKey
from kcl_mld.spark.shard.batcher import Limits
from kcl_mld.spark.shard.resume import Resume
from kcl_mld.spark.shard.work import ShardWork


class Waiting:
    """An engine that cuts when it is told."""

    def __init__(self):
        self.abandoned = []

    def join(self, work):
        pass

    def arrived(self, work):
        pass

    def abandon(self, shard, hold):
        self.abandoned.append(shard)


def test_the_batch_behind_a_failed_one_is_not_wanted_even_before_anybody_looks():
    engine, looks = Waiting(), []
    shard = ShardKey("app", "stream", "shardId-0")
    work = ShardWork(
        shard, Resume(None, None), None, Limits(1, 100, 1.0), engine, lambda: looks.append(1)
    )
    work.add([Row(Position(n), "key", b"x", None) for n in (1, 2)], 0.0, None)
    (_, first), (_, second) = work.cut(1), work.cut(1)
    assert work.is_wanted()
    looks.clear()
    first.set_exception(BatchFailed("no"))
    assert looks == [1]
    assert not work.is_wanted()
    second.set_exception(BatchFailed("the shard is lost"))
    with pytest.raises(BatchFailed, match=r"^no$"):
        work.collect()
    assert engine.abandoned == [shard]
    assert work.due_checkpoint is None
