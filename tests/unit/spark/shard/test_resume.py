"""Where a shard begins again."""

import pytest

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.model import Position, ShardKey
from kcl_mld.spark.shard.resume import Resume, resume_at_checkpoint, resume_at_mark

SHARD = ShardKey("app", "stream", "shard-1", "e1")


def at(sequence, sub=0):
    return Position(sequence, sub)


@pytest.mark.parametrize("checkpoint", [None, at(4, 2)])
def test_a_sink_without_marks_may_be_given_its_first_batch_again(checkpoint):
    assert resume_at_checkpoint(checkpoint) == Resume(checkpoint, checkpoint, is_replay=True)


@pytest.mark.parametrize("checkpoint", [None, at(3), at(9)])
def test_a_table_with_marks_is_begun_behind_its_mark(checkpoint):
    assert resume_at_mark(SHARD, checkpoint, at(9)) == Resume(at(9), at(9))
    assert resume_at_mark(SHARD, checkpoint, None) == Resume(None, checkpoint)


def test_a_checkpoint_beyond_the_mark_of_a_table_is_an_error_that_says_what_to_do():
    with pytest.raises(BatchFailed, match=r"back to 9\.0, or choose a new spark\.sink\.epoch"):
        resume_at_mark(SHARD, at(12), at(9))
