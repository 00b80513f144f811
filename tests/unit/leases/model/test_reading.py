"""What rows say of reading and of losses, and what others make of it."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.model.lease import Lease
from kcl_mld.leases.model.lease_item import lease_from_item, lease_to_item
from kcl_mld.leases.model.lease_writes import checkpointing, noting, renewal
from kcl_mld.leases.model.reading import (
    COARSE_S,
    LOSS,
    READ_UNTIL,
    LossNote,
    ReadNote,
    RowNotes,
    loss_note_of,
    read_note_of,
)
from kcl_mld.signals.model.metrics import PassCause

FIVE, NINE = ExtendedSequenceNumber("5"), ExtendedSequenceNumber("9", 3)
NOTE = ReadNote(1_700_000_000.0, FIVE)
LOST = LossNote(is_certain=True, cause=PassCause.EXPIRED, at_s=100.0, first="5", first_s=1.5)
MAYBE = LossNote(
    is_certain=False, cause=PassCause.TRIMMED, at_s=200.0, first="7", last="9", last_s=2.25
)
ROW = Lease(lease_key="a", shard_id="a", lease_owner="me", holder="me", checkpoint=FIVE)


@pytest.mark.parametrize("note", [NOTE, ReadNote(1.0, NINE), ReadNote(1.0, TRIM_HORIZON)])
def test_read_notes_are_texts(note):
    assert read_note_of(note.text()) == note
    row = lease_from_item({**lease_to_item(ROW), READ_UNTIL: {"S": note.text()}})
    assert row.read == note
    assert lease_from_item(lease_to_item(row)) == row


@pytest.mark.parametrize("note", [LOST, MAYBE, replace(MAYBE, count=3)])
def test_losses_are_texts(note):
    assert loss_note_of(note.text()) == note
    row = lease_from_item({**lease_to_item(ROW), LOSS: {"S": note.text()}})
    assert row.loss == note


@given(st.one_of(st.none(), st.text(), st.sampled_from(["[]", "1", "{}", '{"certain":1}'])))
def test_whatever_stands_there_the_row_is_read(text):
    assert read_note_of(text) is None
    assert loss_note_of(text) is None


def test_a_note_of_another_type_says_nothing():
    item = {**lease_to_item(ROW), READ_UNTIL: {"N": "1"}, LOSS: {"SS": ["x"]}}
    row = lease_from_item(item)
    assert (row.read, row.loss) == (None, None)


def test_a_checkpoint_that_went_back_makes_it_void():
    row = replace(ROW, read=ReadNote(7.0, FIVE))
    assert row.read_until_s == 7.0
    assert replace(row, checkpoint=NINE).read_until_s == 7.0
    assert replace(row, checkpoint=ExtendedSequenceNumber("4")).read_until_s is None
    assert replace(row, checkpoint=TRIM_HORIZON).read_until_s is None
    assert replace(row, checkpoint=None).read_until_s is None
    assert ROW.read_until_s is None


def test_losses_of_a_day_are_one_range():
    assert LOST.after(None) is LOST
    both = MAYBE.after(LOST)
    assert (both.is_certain, both.cause, both.count) == (True, PassCause.EXPIRED, 2)
    assert (both.first, both.first_s, both.last, both.at_s) == ("5", 1.5, "9", 200.0)
    worse = replace(LOST, at_s=300.0).after(MAYBE)
    assert (worse.is_certain, worse.cause, worse.first) == (True, PassCause.EXPIRED, "7")
    a_day_later = replace(MAYBE, at_s=100.0 + 86_400)
    assert a_day_later.after(LOST) is a_day_later


def test_writes_say_what_is_new():
    plain = renewal(ROW)
    assert noting(plain, RowNotes()) is plain
    write = noting(plain, RowNotes(NOTE, MAYBE))
    assert write.request["UpdateExpression"] == (
        "SET kclMldReadUntil = :kclMldReadUntil, kclMldLoss = :kclMldLoss, leaseCounter = :next"
    )
    values = write.request["ExpressionAttributeValues"]
    assert values[":kclMldReadUntil"] == {"S": NOTE.text()}
    assert values[":kclMldLoss"] == {"S": MAYBE.text()}
    assert write.request["ConditionExpression"] == plain.request["ConditionExpression"]
    assert (write.after.read, write.after.loss) == (NOTE, MAYBE)
    again = renewal(write.after)
    soon = ReadNote(NOTE.until_s + COARSE_S - 1, FIVE)
    assert noting(again, RowNotes(soon, MAYBE)) is again
    later = ReadNote(NOTE.until_s + COARSE_S, FIVE)
    assert noting(again, RowNotes(later)).after.read == later


def test_a_note_that_would_be_void_is_not_written():
    plain = renewal(ROW)
    assert noting(plain, RowNotes(ReadNote(9.0, NINE))) is plain
    ahead = checkpointing(ROW, NINE)
    assert noting(ahead, RowNotes(ReadNote(9.0, NINE))).after.read == ReadNote(9.0, NINE)
    end = checkpointing(ROW, SHARD_END)
    assert noting(end, RowNotes(ReadNote(9.0, NINE))) is end
    # One that somebody made void is replaced, however little newer.
    back = renewal(replace(ROW, read=ReadNote(8.0, NINE)))
    assert noting(back, RowNotes(ReadNote(7.0, FIVE))).after.read == ReadNote(7.0, FIVE)
