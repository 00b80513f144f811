"""Were records lost? Three cases, told apart by what was known before."""

import pytest

from kcl_mld.children.rules.loss import (
    MOST_MARKS,
    KnownReading,
    LossVerdict,
    ReadMarks,
    judge_gap,
    judge_vanished,
    loss_note,
    risk,
    sentence,
    shard_created_s,
)
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.signals.model.metrics import PassCause

HOUR = 3600.0
DAY = 24 * HOUR
NOW = 1_000 * HOUR
LOST, MAYBE = LossVerdict.LOST, LossVerdict.MAY_BE_LOST


def at(number):
    return ExtendedSequenceNumber(str(number))


def ago(hours):
    return None if hours is None else NOW - hours * HOUR


@pytest.mark.parametrize(
    ("until", "waiting", "first", "retention", "verdict"),
    [
        # read to its tip within the retention: whatever comes next, nothing expired unread
        (23, None, 1, DAY, None),
        (24, None, 1, DAY, None),
        (23, 23, 1, DAY, None),
        # read to its tip, then down for 30 h
        (30, None, 1, DAY, MAYBE),
        (30, None, 23, DAY, MAYBE),
        (30, None, None, DAY, None),
        (30, None, 1, 7 * DAY, None),
        # a row without the attribute
        (None, None, 1, DAY, MAYBE),
        (None, None, None, DAY, None),
        # a record was known to wait
        (30, 29, 1, DAY, LOST),
        (30, 29, None, DAY, LOST),
        (None, 29, None, DAY, LOST),
        # it may be the one that came
        (26, 1, 20, DAY, MAYBE),
        # the first one left is next to those that have just expired
        (26, 1, 24, DAY, LOST),
        # the retention is not known: a day, or as old as a record
        (23, None, 1, None, None),
        (30, None, 1, None, MAYBE),
        (30, None, 40, None, None),
        (30, None, None, None, None),
    ],
)
def test_a_gap(until, waiting, first, retention, verdict):
    known = KnownReading(at(5), ago(until), ago(waiting))
    assert judge_gap(known, ago(first), NOW, retention) is verdict
    assert judge_gap(known, ago(first), NOW, retention, ago(1000)) is verdict
    assert judge_gap(known, ago(first), NOW, retention, ago(23)) is None
    at_end = judge_gap(known, ago(first), NOW, retention, is_end=True)
    assert at_end is verdict or (first is None and at_end is MAYBE and until == 30)


@pytest.mark.parametrize(
    ("until", "waiting", "retention", "verdict"),
    [
        (23, None, DAY, None),
        (30, None, DAY, MAYBE),
        (30, None, 2 * DAY, None),
        (30, 29, DAY, LOST),
        (None, None, DAY, MAYBE),
        (23, None, None, None),
        (30, None, None, MAYBE),
    ],
)
def test_a_shard_that_vanished(until, waiting, retention, verdict):
    known = KnownReading(at(5), ago(until), ago(waiting))
    assert judge_vanished(known, NOW, retention) is verdict
    assert judge_vanished(known, NOW, retention, ago(1000)) is verdict
    # It can't have expired, so what was behind the position is not known.
    assert judge_vanished(known, NOW, retention, ago(23)) is (LOST if waiting else MAYBE)


@pytest.mark.parametrize(
    ("checkpoint", "reading", "retention", "says"),
    [
        (None, None, 100.0, None),
        (79.0, 79.0, 100.0, None),
        (80.0, None, 100.0, "nothing that arrived in the last 80 s is checkpointed"),
        (80.0, 80.0, 100.0, "records are about to expire unread: reading is 80 s behind"),
        (80.0, 80.0, None, None),
    ],
)
def test_risk(checkpoint, reading, retention, says):
    found = risk(checkpoint, reading, retention)
    assert (found is None) == (says is None)
    assert found is None or (says in found and "records stay for 100 s" in found)


def test_sentences():
    known = KnownReading(at(5), 1.0, 2.0)
    lost = loss_note(LOST, PassCause.EXPIRED, known, NOW, ("9", 60.0))
    assert sentence(lost) == (
        "records were LOST: those between 5 (read until 1970-01-01T00:00:01+00:00) and 9 "
        "(1970-01-01T00:01:00+00:00): they were past the retention of the stream before they were read"
    )
    unknown = KnownReading(TRIM_HORIZON)
    gone = loss_note(MAYBE, PassCause.VANISHED, unknown, NOW, (None, None))
    assert gone.last_s == NOW
    assert sentence(gone) == (
        "records MAY BE LOST: those after TRIM_HORIZON (not known when), of which no record is left, "
        "if there were any: its shard was gone before it was read to its end"
    )
    odd = loss_note(MAYBE, PassCause.TRIMMED, KnownReading(at(5), 1e30), NOW, ("9", 1e30))
    assert "between 5 (not known when) and 9 (not known when)" in sentence(odd)
    never = loss_note(MAYBE, PassCause.TRIMMED, KnownReading(TRIM_HORIZON, 0.0), NOW, ("9", 60.0))
    assert "between TRIM_HORIZON (not known when) and 9 " in sentence(never)
    undated = loss_note(MAYBE, PassCause.TRIMMED, known, NOW, ("9", None))
    assert undated.last_s == NOW


def test_marks_hold_for_later_checkpoints_only():
    marks = ReadMarks()
    assert marks.at(at(5)) is None
    marks.forget_before(at(5))
    marks.add(TRIM_HORIZON, 10.0)
    marks.add(at(5), 20.0)
    marks.add(at(5), 30.0)
    marks.add(at(9), 40.0)
    assert marks.at(TRIM_HORIZON).until_s == 10.0
    assert marks.at(at(4)).until_s == 10.0
    assert marks.at(at(5)).until_s == marks.at(at(8)).until_s == 30.0
    assert marks.at(at(9)).until_s == 40.0
    marks.forget_before(at(8))
    assert marks.at(at(4)) is None
    assert marks.at(at(8)).until_s == 30.0
    assert marks.at(at(9)).until_s == 40.0


def test_many_marks_are_thinned_out_and_stay_true():
    marks = ReadMarks()
    for number in range(10 * MOST_MARKS):
        marks.add(at(number), float(number))
    assert marks.at(at(10 * MOST_MARKS)).until_s == 10 * MOST_MARKS - 1
    for number in range(10 * MOST_MARKS):
        found = marks.at(at(number))
        assert found is not None
        assert found.until_s <= number
    assert len(marks) <= MOST_MARKS


@pytest.mark.parametrize(
    ("shard_id", "created_s"),
    [
        ("shardId-00000001795851880081-9ce1588b", 1_795_851_880.081),
        ("shardId-00000001795851880081-9ce1588g", None),
        ("shardId-000000000001", None),
        ("shardId-00000099999999999999-9ce1588b", None),
    ],
)
def test_the_id_of_a_shard_of_a_table_says_when_it_was_made(shard_id, created_s):
    assert shard_created_s(shard_id, 1_795_851_881.0) == created_s
