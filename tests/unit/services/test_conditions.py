"""What services report against the worker's readiness."""

from __future__ import annotations

from mld.decide.readiness import Condition, Reason
from mld.services.conditions import Conditions


def test_a_condition_holds_from_its_report_until_it_is_taken_back():
    conditions = Conditions()
    conditions.clear(Reason.STREAM_DELETED)
    assert conditions.current() == ()
    conditions.report(Reason.STREAM_DELETED, "stream orders was deleted")
    conditions.report(Reason.UNREADABLE_ROWS, "1 row of table app can't be read")
    conditions.report(Reason.UNREADABLE_ROWS, "2 rows of table app can't be read")
    assert conditions.current() == (
        Condition(Reason.STREAM_DELETED, "stream orders was deleted"),
        Condition(Reason.UNREADABLE_ROWS, "2 rows of table app can't be read"),
    )
    conditions.clear(Reason.STREAM_DELETED)
    assert [one.reason for one in conditions.current()] == [Reason.UNREADABLE_ROWS]


def test_several_subjects_have_a_condition_each():
    conditions = Conditions()
    conditions.report(Reason.STREAM_DELETED, "stream a was deleted", "a")
    conditions.report(Reason.STREAM_DELETED, "stream b was deleted", "b")
    conditions.clear(Reason.STREAM_DELETED, "a")
    assert [one.message for one in conditions.current()] == ["stream b was deleted"]
