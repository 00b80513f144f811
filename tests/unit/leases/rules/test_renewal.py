"""What a stored row tells a holder, and how long it may believe."""

import pytest

from kcl_mld.config.config import LeaseConfig
from kcl_mld.leases.model.lease_writes import releasing, renewal
from kcl_mld.leases.model.table_item import decimal
from kcl_mld.leases.rules.renewal import (
    RowVerdict,
    are_late,
    are_pressing,
    believed_until,
    calm_periods_s,
    calm_renewal_due_at,
    first_renewal_due_at,
    is_prompt,
    is_released,
    judge_row,
    judge_taking,
    most_renewable,
    renewal_order,
    throughput_after,
)
from tests.fakes.lease_world import lease


def row(counter=7, owner="me", holder=None, switches=1):
    return lease(
        lease_counter=counter,
        lease_owner=owner,
        checkpoint_owner=holder,
        owner_switches_since_checkpoint=switches,
    )


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
        # and an answer was lost before it, or the one to the write that learnt of it
        (row(7), row(8, "next", "me"), RowVerdict.AGAIN),
        (row(7), row(8, "next", "me", switches=0), RowVerdict.AGAIN),
        (row(7), row(9, "next", "me"), RowVerdict.LOST),
        (row(7), row(7, "me", "me"), RowVerdict.LOST),
        (row(7), row(7, None, "me"), RowVerdict.LOST),
        (row(7), row(7, "next", "other"), RowVerdict.LOST),
        # during a hand-off
        (row(7, "next", "me"), row(7, "third", "me"), RowVerdict.LOST),
        (row(7, "next", "me"), row(8, "next", None), RowVerdict.LOST),
        # a 2.x worker took it during the hand-off and left our name behind
        (row(7, "next", "me"), row(8, "java2", "me", switches=2), RowVerdict.LOST),
        (row(7), row(8, "java2", "me", switches=2), RowVerdict.LOST),
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


KEYS = [f"shardId-{number:012d}" for number in range(1000)]


@pytest.mark.parametrize(
    ("failover_s", "least_s", "most_s"),
    [
        (10.0, 6.7, 7.0),
        (3.0, 1.925, 2.015),  # calls of 0.75 s are given more time
        (0.078, 0.001, 0.001),  # never more often than Java
    ],
)
def test_while_the_table_is_well_a_lease_is_renewed_late(failover_s, least_s, most_s):
    periods_s = calm_periods_s(LeaseConfig(table_name="t", failover_s=failover_s))
    due = [calm_renewal_due_at(key, 100.0, periods_s) - 100 for key in KEYS]
    assert min(due) == pytest.approx(least_s, rel=0.01)
    assert max(due) == pytest.approx(most_s, rel=0.01)


@pytest.mark.parametrize(("took_s", "prompt"), [(0.0, True), (0.5, True), (0.51, False)])
def test_an_answer_is_prompt_within_a_twentieth_of_the_failover_time(took_s, prompt):
    assert is_prompt(100.0, 100.0 + took_s, 10.0) is prompt


def test_leases_of_one_stream_have_periods_that_are_spread_evenly():
    due = sorted(calm_renewal_due_at(key, 0.0, (6.7, 7.0)) for key in KEYS)
    assert [due[len(due) * part // 4] for part in (1, 2, 3)] == pytest.approx(
        [6.775, 6.85, 6.925], abs=0.02
    )


@pytest.mark.parametrize("failover_s", [1.0, 2.0, 3.0, 4.0, 10.0, 60.0, 3600.0])
def test_after_a_late_renewal_two_more_requests_fit_into_belief(failover_s):
    config = LeaseConfig(table_name="t", failover_s=failover_s)
    ends_at = believed_until(0.0, failover_s, config.epsilon_s)
    for key in KEYS:
        due_at = calm_renewal_due_at(key, 0.0, calm_periods_s(config))
        assert due_at + 2 * config.read_timeout_s <= ends_at


def test_leases_taken_at_once_are_renewed_at_moments_spread_over_java_s_period():
    due = sorted(first_renewal_due_at(key, 100.0, 3.308) - 100 for key in KEYS)
    assert 0 <= due[0] < 0.1
    assert 3.2 < due[-1] < 3.308
    assert [due[len(due) * part // 4] for part in (1, 2, 3)] == pytest.approx(
        [0.83, 1.65, 2.48], abs=0.2
    )


def test_a_mebibyte_in_one_window_of_java_then_nothing():
    known, texts = None, []
    for received in (1 << 20, 0, 0):
        known = throughput_after(known, received, 3.308)
        texts.append(decimal(known)["N"])
    assert texts == ["309.5526", "154.7763", "77.38815"]


def test_a_new_holder_begins_with_what_the_row_says():
    assert throughput_after(200.0, round(200 * 1024 * 3.308), 3.308) == pytest.approx(200, abs=0.01)


def test_a_long_window_weighs_as_much_as_java_s_in_the_same_time():
    steps = throughput_after(throughput_after(100.0, 0, 3.308), 0, 3.308)
    assert throughput_after(100.0, 0, 6.616) == pytest.approx(steps)


@pytest.mark.parametrize(
    ("late", "others", "pressing"),
    [(0, 0, False), (2, 0, False), (3, 0, True), (3, 57, True), (3, 58, False), (50, 950, True)],
)
def test_a_few_late_leases_do_not_stop_the_others(late, others, pressing):
    ends = [102.0] * late + [102.1] * others
    assert are_pressing(ends, 100.0, 10.0) is pressing


@pytest.mark.parametrize(
    ("late", "others", "are"),
    [(0, 0, False), (2, 0, False), (3, 0, True), (3, 57, True), (3, 58, False), (50, 950, True)],
)
def test_many_renewals_that_were_due_long_ago_are_late(late, others, are):
    due_at = [98.9] * late + [99.0] * others
    assert are_late(due_at, 100.0, 10.0) is are


@pytest.mark.parametrize(
    ("threads", "failover_s", "answer_s", "most"),
    [(20, 10.0, 0.01, 6616), (20, 10.0, 0.2, 330), (1, 10.0, 0.2, 16), (20, 30.0, 4.0, 49)],
)
def test_what_a_worker_can_renew_follows_from_the_answers_of_the_table(
    threads, failover_s, answer_s, most
):
    config = LeaseConfig(table_name="", failover_s=failover_s, renewal_threads=threads)
    assert most_renewable(config, answer_s) == most


@pytest.mark.parametrize(
    ("write", "stored", "released"),
    [
        (releasing(row(7)), row(8, None), True),
        (releasing(row(7)), row(9, "other"), True),
        (releasing(row(7)), row(7, "other"), False),
        (releasing(row(7)), row(8), False),
        (releasing(row(7, "next", "me")), row(8, "next"), True),
        (renewal(row(7)), row(9, "other"), False),
    ],
)
def test_a_release_without_an_answer_is_seen_in_the_row(write, stored, released):
    assert is_released(write, stored) is released
