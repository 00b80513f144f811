"""Where a shard begins again."""

import pytest

from mld.spark.errors import BatchFailed, Recut
from mld.spark.model import Position, ShardKey, WriteIntent
from mld.spark.shard.resume import (
    Resume,
    app_id_prefix,
    resume_at_mark,
    resume_intent,
    resume_renumbered,
    void_warning,
)

SHARD = ShardKey("app", "stream", "shard-1", "e1")
APP_ID = "kcl/app/stream/shard-1/e1/n0"


def at(sequence, sub=0):
    return Position(sequence, sub)


TEN, TWENTY = at(10), at(20)


def intent(number=7, after=TEN, to=TWENTY, app_id=APP_ID):
    return WriteIntent(number, after, to, app_id)


def begin(checkpoint, stored, text="10.0"):
    return resume_intent(SHARD, checkpoint, text, stored, "n1")


@pytest.mark.parametrize("checkpoint", [None, at(4, 2)])
def test_a_sink_without_mark_and_number_may_be_given_its_first_batch_again(checkpoint):
    assert resume_renumbered(SHARD, checkpoint, None) == Resume(
        checkpoint, checkpoint, is_replay=True
    )


def test_counting_begins_with_1_under_an_id_with_a_nonce():
    found = begin(at(10), None)
    assert (found.after, found.drop_through, found.next_number) == (at(10), at(10), 1)
    assert found.app_id == "kcl/app/stream/shard-1/e1/n1"
    assert (found.forced_to, found.is_replay, found.warnings) == (None, False, ())


@pytest.mark.parametrize("checkpoint", [at(20), at(20, 1), at(35)])
def test_an_intent_up_to_the_checkpoint_is_ignored_and_its_number_goes_on(checkpoint):
    found = begin(checkpoint, intent())
    assert found == Resume(checkpoint, checkpoint, next_number=8, app_id=APP_ID)


def test_an_intent_right_behind_the_checkpoint_is_repeated_under_its_number():
    found = begin(at(10), intent())
    assert (found.after, found.forced_to, found.next_number) == (at(10), at(20), 7)
    assert (found.app_id, found.is_replay, found.may_void) == (APP_ID, True, False)


def test_an_intent_behind_a_sentinel_is_repeated_but_may_turn_out_void():
    found = begin(None, intent(after=None), "LATEST")
    assert (found.after, found.forced_to, found.is_replay) == (None, at(20), True)
    assert found.may_void
    text = void_warning(SHARD, found, at(31))
    assert "the first record, 31.0, lies beyond 20.0, the end of batch 7" in text


@pytest.mark.parametrize(
    ("checkpoint", "stored"),
    [(at(10, 1), intent()), (at(19), intent()), (at(1), intent(after=None))],
)
def test_a_checkpoint_inside_a_batch_means_that_somebody_has_recut_it(checkpoint, stored):
    with pytest.raises(Recut, match=r"shard-1: the checkpoint .* lies inside batch 7 .*20\.0"):
        begin(checkpoint, stored)


@pytest.mark.parametrize(("checkpoint", "text"), [(at(9, 9), "9.9"), (None, "TRIM_HORIZON")])
def test_a_checkpoint_that_was_set_back_needs_a_new_epoch(checkpoint, text):
    with pytest.raises(BatchFailed, match=rf"{text} lies before batch 7.*spark\.sink\.epoch") as it:
        begin(checkpoint, intent(), text)
    assert not isinstance(it.value, Recut)


@pytest.mark.parametrize("checkpoint", [None, at(3), at(10), at(15), at(20), at(99)])
def test_another_epoch_begins_behind_the_checkpoint_and_the_number_goes_on(checkpoint):
    other = intent(app_id="kcl/app/stream/shard-1/e0/n0")
    found = begin(checkpoint, other)
    assert (found.after, found.drop_through, found.forced_to) == (checkpoint, checkpoint, None)
    assert (found.next_number, found.app_id) == (8, app_id_prefix(SHARD) + "n1")
    assert "epoch 'e1'" in found.warnings[0]


def test_an_epoch_that_begins_like_another_is_another():
    assert app_id_prefix(SHARD).endswith("/e1/")
    found = begin(at(10), intent(app_id="kcl/app/stream/shard-1/e11/n0"))
    assert found.app_id.endswith("/e1/n1")


@pytest.mark.parametrize("checkpoint", [None, at(3), at(9)])
def test_a_table_with_marks_is_begun_behind_its_mark(checkpoint):
    assert resume_at_mark(SHARD, checkpoint, at(9)) == Resume(at(9), at(9))
    assert resume_at_mark(SHARD, checkpoint, None) == Resume(None, checkpoint)


def test_a_checkpoint_beyond_the_mark_of_a_table_is_an_error_that_says_what_to_do():
    with pytest.raises(BatchFailed, match=r"back to 9\.0, or choose a new spark\.sink\.epoch"):
        resume_at_mark(SHARD, at(12), at(9))
