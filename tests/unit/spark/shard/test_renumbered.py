"""Where a shard of foreach begins whose batches had numbers, or have none any more."""

from __future__ import annotations

import pytest

from mld.spark.errors import BatchFailed
from mld.spark.model import Position, ShardKey, WriteIntent
from mld.spark.shard.resume import resume_renumbered

SHARD = ShardKey("app", "s", "shardId-1")
APP_ID = "kcl/app/s/shardId-1/0/nonce"


def intent(app_id=APP_ID):
    return WriteIntent(7, Position(3), Position(9), app_id)


@pytest.mark.parametrize("old", [None, intent("kcl/app/s/shardId-1/another-epoch/nonce")])
def test_without_a_number_of_this_epoch_it_begins_behind_the_checkpoint(old):
    found = resume_renumbered(SHARD, Position(3), old)
    assert (found.after, found.warnings) == (Position(3), ())


def test_numbers_that_end_in_order_are_told():
    found = resume_renumbered(SHARD, Position(9), intent())
    assert found.after == Position(9)
    assert "batches had numbers until 7" in found.warnings[0]


@pytest.mark.parametrize("checkpoint", [None, Position(3), Position(8)])
def test_a_numbered_batch_that_may_have_been_written_is_no_beginning(checkpoint):
    with pytest.raises(BatchFailed, match=r"Start once more with spark\.batch\.scope=shard"):
        resume_renumbered(SHARD, checkpoint, intent())
