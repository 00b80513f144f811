"""What a row says of records that children fail at."""

import pytest

from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber as At
from kcl_mld.leases.model.containment import (
    NO_FAILURE,
    FailureNote,
    PositionRange,
    failure_of,
    position_of,
    skipped_behind,
    skipped_of,
)

RANGE = PositionRange(At("5", 2), At("9"))
NOTE = FailureNote(RANGE, 3, 1_000, (7, 8), "too many")


def test_a_range_has_its_ends():
    assert RANGE.holds(At("5", 2))
    assert RANGE.holds(At("9"))
    assert not RANGE.holds(At("5", 1))
    assert not RANGE.holds(At("9", 1))


@pytest.mark.parametrize(
    ("one", "text"), [(RANGE, "5/2..9"), (PositionRange(At("5", 2), At("5", 2)), "5/2")]
)
def test_a_range_is_read_as_it_is_shown(one, text):
    assert str(one) == text
    assert PositionRange.parse(text) == one


@pytest.mark.parametrize("text", ["", "5/x", "5/²", "TRIM_HORIZON", "5..SHARD_END", "5/-1"])
def test_what_is_no_range_is_none(text):
    with pytest.raises(MalformedData):
        PositionRange.parse(text)


def test_a_position_is_read_as_it_is_shown():
    assert position_of("7") == At("7")
    assert position_of("7/1") == At("7", 1)


@pytest.mark.parametrize(
    "note",
    [NOTE, FailureNote(RANGE), FailureNote(letters_ms=(1,)), FailureNote(held="ü"), NO_FAILURE],
)
def test_a_note_is_read_as_it_was_written(note):
    assert failure_of(note.text()) == note


def test_a_note_is_short():
    assert NO_FAILURE.text() is None
    assert FailureNote(RANGE, 1, 5).text() == '{"suspects":"5/2..9","attempts":1,"sinceMillis":5}'


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", '{"suspects":5}', '{"suspects":"x"}', '{"attempts":"x"}',
     '{"lettersMillis":5}', '{"attempts":1e999}', 9999 * "["],
)  # fmt: skip
def test_a_note_that_cannot_be_read_says_nothing(text):
    assert failure_of(text) == NO_FAILURE


def test_suspects_that_a_checkpoint_covers_are_none_but_letters_count():
    assert NOTE.behind(At("9")) == FailureNote(letters_ms=(7, 8))
    assert NOTE.behind(SHARD_END) == FailureNote(letters_ms=(7, 8))
    assert NOTE.behind(At("8")) is NOTE
    assert NOTE.behind(TRIM_HORIZON) is NOTE
    assert NOTE.behind(None) is NOTE
    assert NO_FAILURE.behind(At("9")) is NO_FAILURE
    assert NOTE.lifted() == FailureNote(RANGE, 3, 1_000, (7, 8))


def test_ranges_of_a_row_are_in_order_and_leave_out_what_is_none():
    found = skipped_of(("10", "junk", "9", "5/2..9", "1/" + 5000 * "9"))
    assert list(map(str, found)) == ["5/2..9", "9", "10"]
    assert list(map(str, skipped_behind(found, At("9")))) == ["10"]
    assert skipped_behind(found, None) == found
