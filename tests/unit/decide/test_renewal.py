"""What a stored row tells a holder, and how long it may believe."""

import pytest

from mld.decide.renewal import (
    RowVerdict,
    believed_until,
    judge_row,
    judge_taking,
    renewal_order,
)
from tests.fakes.lease_world import lease


def row(counter=7, owner="me", holder=None):
    return lease(lease_counter=counter, lease_owner=owner, checkpoint_owner=holder)


@pytest.mark.parametrize(
    ("before", "stored", "verdict"),
    [
        # our own write, whose answer was lost, has or has not happened
        (row(7), row(7), RowVerdict.AGAIN),
        (row(7), row(8), RowVerdict.AGAIN),
        (row(7, "next", "me"), row(8, "next", "me"), RowVerdict.AGAIN),
        # somebody else wrote
        (row(7), row(9), RowVerdict.LOST),
        (row(7), row(6), RowVerdict.LOST),
        (row(7), row(8, "other"), RowVerdict.LOST),
        (row(7), row(7, "other"), RowVerdict.LOST),
        (row(7), row(8, None), RowVerdict.LOST),
        (row(7), None, RowVerdict.LOST),
        # a 3.x leader begins a hand-off: the one write that keeps the counter
        (row(7), row(7, "next", "me"), RowVerdict.AGAIN),
        (row(7), row(8, "next", "me"), RowVerdict.LOST),
        (row(7), row(7, "me", "me"), RowVerdict.LOST),
        (row(7), row(7, None, "me"), RowVerdict.LOST),
        (row(7), row(7, "next", "other"), RowVerdict.LOST),
        # during a hand-off
        (row(7, "next", "me"), row(7, "third", "me"), RowVerdict.LOST),
        (row(7, "next", "me"), row(8, "next", None), RowVerdict.LOST),
        # a 2.x worker took it during the hand-off and left our name behind
        (row(7, "next", "me"), row(8, "java2", "me"), RowVerdict.LOST),
    ],
)
def test_a_holder_learns_from_the_row_whether_the_lease_is_still_its_own(before, stored, verdict):
    judgement = judge_row(before, stored)
    assert judgement.verdict is verdict
    assert judgement.why


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (row(9), "leaseCounter is 9, but this worker last wrote 7"),
        (row(8, "other"), "worker other has it now"),
        (row(8, None), "it has no owner any more"),
        (None, "deleted"),
    ],
)
def test_the_reason_for_a_loss_is_said(stored, why):
    assert why in judge_row(row(7), stored).why


@pytest.mark.parametrize(
    ("stored", "unanswered", "verdict"),
    [
        (row(7, "old"), True, RowVerdict.AGAIN),
        (row(7, "old"), False, RowVerdict.AGAIN),
        (row(8, "me"), True, RowVerdict.AGAIN),
        (row(8, "me"), False, RowVerdict.LOST),
        (row(8, "other"), True, RowVerdict.LOST),
        (row(9, "me"), True, RowVerdict.LOST),
        (row(8, "me", "old"), True, RowVerdict.LOST),
        (row(7, None), True, RowVerdict.LOST),
        (None, True, RowVerdict.LOST),
    ],
)
def test_a_taker_learns_from_the_row_whether_to_go_on(stored, unanswered, verdict):
    assert judge_taking(row(7, "old"), stored, "me", unanswered=unanswered) is verdict


def test_belief_ends_before_an_observer_with_a_slower_clock_could_take_over():
    until = believed_until(100.0, 10.0, 0.025)
    assert until == pytest.approx(109.775)
    # We run 1 % slow, the observer 1 % fast, and it saw the counter the moment we sent it.
    assert (until - 100.0) / 0.99 < 10.0 / 1.01 + 0.025


def test_the_lease_that_waited_longest_is_renewed_first():
    assert renewal_order([("b", 2.0), ("c", 1.0), ("a", 2.0)]) == ["c", "a", "b"]
