"""What services report against the worker's readiness."""

from __future__ import annotations

from kcl_mld.signals.failing_condition import FailingCondition
from kcl_mld.signals.model.conditions import Condition, Conditions, Reason
from tests.fakes.clock import FakeClock


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


def test_what_comes_and_goes_counts_as_lasting_where_it_has_to_be_calm_first(caplog) -> None:
    caplog.set_level("INFO")
    conditions, clock = Conditions(), FakeClock()
    failing = FailingCondition(
        Reason.LEASE_WRITES_FAIL, conditions, clock, lasting_s=10.0, calm_s=10.0, is_logged=False
    )
    for _ in range(4):
        failing.failed("it fails")
        clock.advance(3.0)
        failing.resolved()
    assert conditions.current() == ()
    failing.failed("it fails")
    assert [one.message for one in conditions.current()] == ["it fails"]
    clock.advance(9.9)
    failing.resolved()
    assert conditions.current() != ()
    clock.advance(0.1)
    failing.resolved()
    assert conditions.current() == ()
    assert caplog.messages == ["Resolved after 22 s: it fails"]
