"""Rows with what several looks show of each, and what pages of workers add."""

from dataclasses import replace
from functools import partial

import pytest

from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.kernel.model.sequence import LATEST, TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.observe.model.fleet_snapshot import FleetItems, StreamSnapshot, TipSnapshot
from kcl_mld.observe.model.verdict import Verdict, VerdictSeverity
from kcl_mld.observe.model.worker_page import ShardOnPage, WorkerPage
from kcl_mld.observe.rules.explain import explain
from kcl_mld.observe.rules.lease_list import host_of, list_leases, matches, relatives
from kcl_mld.observe.rules.scraped import failures, owner_says, records_per_s
from kcl_mld.observe.rules.watching import ExplainRules
from tests.fakes.fleet_looks import snapshot
from tests.fakes.lease_world import lease

FAILOVER_S = 10.0
RULES = ExplainRules(failover_s=FAILOVER_S)
KEY = "shardId-000000000000"
OWNED = lease(0, lease_owner="w1")
AT_5 = ExtendedSequenceNumber("5")


look = partial(snapshot, took_s=0.5)


def listed(*looks):
    return list_leases(looks, explain(looks, RULES), FAILOVER_S)


def only(*looks):
    (one,) = listed(*looks)
    return one


def page(at_s=0.0, worker="w1", **fields):
    shard = ShardOnPage(KEY, **{"state": "PROCESSING", **fields})
    return WorkerPage(
        url="http://10.1.2.3:8080/leases", asked_at=at_s, worker=worker, shards={KEY: shard}
    )


# -- rows -----------------------------------------------------------------------------------------


def test_a_renewal_was_after_the_last_look_with_another_counter():
    looks = [look(at_s, replace(OWNED, lease_counter=n)) for at_s, n in ((0, 1), (3, 2), (6, 2))]
    one = only(*looks)
    assert (one.renewed_within_s, one.still_s, one.state) == (6.5, 2.5, "owned")
    one = only(*looks, look(14, replace(OWNED, lease_counter=2)))
    assert (one.renewed_within_s, one.still_s, one.state) == (14.5, 10.5, "expired")


def test_one_look_and_a_row_of_nobody_show_no_renewal():
    one = only(look(0, OWNED))
    assert (one.renewed_within_s, one.still_s, one.state) == (None, None, "owned")
    free = lease(0)
    one = only(look(0, free), look(20, replace(free, lease_counter=1)))
    assert (one.renewed_within_s, one.state) == (None, "free")
    finished = lease(0, lease_owner="w1", checkpoint=ExtendedSequenceNumber("SHARD_END"))
    assert only(look(0, finished), look(20, finished)).state == "finished"


def test_shards_without_rows_are_not_listed():
    assert listed(look(0, OWNED, broken=(("bad", "why"),)))[0].lease == OWNED
    assert len(listed(look(0, OWNED, broken=(("bad", "why"),)))) == 1


def test_the_lag_is_that_of_the_tip_or_as_the_owner_says():
    tip = TipSnapshot(asked_at=0.0, position=OWNED.checkpoint, behind_s=7.0)
    told = page(processing_lag_s=3.0, reading_lag_s=4.0)
    assert only(look(0, OWNED)).lag_s is None
    assert only(look(0, OWNED, pages=(told,))).lag_s == 4.0
    assert only(look(0, OWNED, pages=(told,), tips={KEY: tip})).lag_s == 7.0
    assert only(look(0, OWNED, pages=(page(),))).lag_s is None


@pytest.mark.parametrize(
    ("worker", "host"),
    [
        (None, None),
        ("w9", None),
        ("0b1c8f8e-0000-4000-8000-00000000abcd", None),
        ("a.example.org:0b1c8f8e-0000-4000-8000-00000000abcd", "a.example.org"),
        ("w1", "10.1.2.3"),
    ],
)
def test_a_host_is_known_by_the_id_or_by_the_address_of_the_page(worker, host):
    assert host_of(worker, look(0, pages=(page(),))) == host


def test_rows_are_chosen_by_worker_group_and_stream():
    handed = lease(0, lease_owner="w2", checkpoint_owner="w1")
    metrics = (WorkerMetrics("w1", 1000, group="g"),)
    one = only(
        look(0, handed, items=FleetItems(metrics=metrics), streams=(StreamSnapshot(name="s"),))
    )
    assert (one.group, one.stream) == ("g", "s")
    assert matches(one)
    assert matches(one, workers=["w1"])
    assert matches(one, workers=["w2"], groups=["g"], streams=["s"])
    assert not matches(one, workers=["w3"])
    assert not matches(one, groups=["h"])
    assert not matches(one, streams=["t"])
    unknown = only(look(0, handed, items=None))
    assert (unknown.group, unknown.stream) == (None, None)


@pytest.mark.parametrize(("identifier", "name"), [("1:s:2", "s"), ("no", None)])
def test_a_stream_that_is_not_known_has_the_name_in_its_identifier(identifier, name):
    row = lease(0, stream_identifier=identifier, lease_key=f"{identifier}:{KEY}")
    one = only(look(0, row))
    assert one.stream == name
    assert matches(one, streams=[identifier])


def test_relatives_are_those_that_name_each_other():
    parent = lease(0, child_shard_ids=("shardId-000000000001",))
    named, naming = lease(1), lease(2, parent_shard_ids=(KEY,))
    other = lease(3, stream_identifier="1:s:2", lease_key="1:s:2:x", parent_shard_ids=(KEY,))
    rows = listed(look(0, parent, named, naming, other))
    by_number = {row.lease.shard_id[-1]: row for row in rows}
    parents, children = relatives(by_number["0"], rows)
    assert parents == ()
    assert children == (by_number["1"], by_number["2"])
    assert relatives(by_number["2"], rows) == ((by_number["0"],), ())


# -- pages ----------------------------------------------------------------------------------------


def rate(*pages):
    return records_per_s([look(one.asked_at, OWNED, pages=(one,)) for one in pages], OWNED)


def test_records_a_second_take_two_pages_of_one_hold():
    assert rate(page(0, records=10), page(5, records=60)) == 10.0
    assert rate(page(0, records=10)) is None
    assert rate(page(0, records=10), page(0, records=10)) is None
    assert rate(page(0, records=None), page(5, records=None)) is None
    assert rate(page(0, records=90), page(5, records=10), page(10, records=20)) == 2.0
    assert rate(page(0, records=90), page(5, records=10)) is None
    assert rate(page(0, worker="w2", records=1), page(5, worker="w2", records=9)) is None
    assert records_per_s([look(0, lease(0), pages=(page(records=1),))], lease(0)) is None


def test_one_batch_that_takes_longer_than_the_looks_has_no_rate():
    busy = page(5, records=10, child_silent_s=9.0)
    assert rate(page(0, records=10), busy) is None
    assert rate(page(0, records=5), busy) == 1.0
    assert rate(page(0, records=10), page(5, records=10)) == 0.0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, ""),
        ({"child_silent_s": 9.0}, ""),
        ({"child_silent_s": 10.0}, "the child has not answered processRecords for 10 s"),
        ({"reading_fails_s": 31.0}, "reading has failed for 31 s"),
        ({"restarts": 1}, "the child was restarted once"),
        (
            {"restarts": 2, "last_error": "it ended"},
            "the child was restarted 2 times, the last time because it ended",
        ),
        (
            {"restarts": 2, "last_error": "it ended", "child_failure_age_s": 599.0},
            "the child was restarted 2 times, the last time 10 min ago because it ended",
        ),
        ({"restarts": 2, "last_error": "it ended", "child_failure_age_s": 600.0}, ""),
        ({"child_exceptions": 1}, "its processor raised 1 exception and went on"),
        ({"child_exceptions": 3}, "its processor raised 3 exceptions and went on"),
        (
            {"child_exceptions": 1, "child_exception_age_s": 599.0},
            "its processor raised 1 exception and went on, the last 10 min ago",
        ),
        ({"child_exceptions": 1, "child_exception_age_s": 600.0}, ""),
        (
            {"reading_fails_s": 31.0, "reading_error": "ThrottlingException (GetRecords)"},
            "reading has failed for 31 s: ThrottlingException (GetRecords)",
        ),
        (
            {"restarts": 1, "child_silent_s": 70.0},
            "the child has not answered processRecords for 70 s; the child was restarted once",
        ),
    ],
)
def test_what_an_owner_says_of_a_shard(fields, says):
    assert owner_says(page(**fields).shards[KEY], is_stalled=False) == says
    assert owner_says(None, is_stalled=True) == ""


@pytest.mark.parametrize(
    ("fields", "expected", "todo"),
    [
        ({}, VerdictSeverity.INFO, "--tip"),
        ({"child_silent_s": 59.0, "child_failures": 2}, VerdictSeverity.INFO, "--tip"),
        ({"child_silent_s": 60.0}, VerdictSeverity.WARNING, "one long batch, or hangs"),
        ({"child_failures": 3}, VerdictSeverity.INFO, "--tip"),
        ({"child_failures": 3, "processing_lag_s": 1.0}, VerdictSeverity.WARNING, "child fails"),
        ({"reading_fails_s": 29.0}, VerdictSeverity.INFO, "--tip"),
        ({"reading_fails_s": 31.0}, VerdictSeverity.WARNING, "see the error"),
        (
            {
                "reading_fails_s": 31.0,
                "reading_error": "E (GetRecords)",
                "reading_todo": "allow it",
            },
            VerdictSeverity.WARNING,
            "allow it",
        ),
    ],
)
def test_a_checkpoint_that_stands_still_at_an_owner_that_fails_is_a_warning(fields, expected, todo):
    one = said((page(**fields),))
    assert (one.verdict, one.severity) == (Verdict.NO_PROGRESS, expected)
    assert todo in one.todo
    assert ("child" in one.todo) == (
        "child" in "".join(fields) and expected is VerdictSeverity.WARNING
    )


def test_a_worker_that_is_not_ready_says_why():
    reasons = (("not_running", "it is stopping"), ("lease_writes_fail", "UpdateItem: denied."))
    pages = (replace(page(), reasons=reasons), replace(page(worker="w2"), reasons=reasons[:1]))
    told = explain([look(0, OWNED, pages=pages)], RULES)
    (one,) = told.fleet
    assert (one.subject, one.verdict, one.severity) == (
        "w1",
        Verdict.NOT_READY,
        VerdictSeverity.WARNING,
    )
    assert one.cause == "it reports: UpdateItem: denied"


def test_a_child_that_owes_nothing_while_records_wait_does_not_checkpoint():
    says = owner_says(page().shards[KEY], is_stalled=True)
    assert says == "the child owes no answer: it does not checkpoint what it has"
    says = owner_says(page(child_silent_s=1.0).shards[KEY], is_stalled=True)
    assert says == "the child has not answered processRecords for 1 s"
    assert owner_says(page(state="INITIALIZING").shards[KEY], is_stalled=True) == ""


def said(pages, tips=None, position=AT_5):
    row = lease(0, lease_owner="w1", checkpoint=position)
    looks = [
        look(0, row, tips=tips or {}),
        look(11, replace(row, lease_counter=1), tips=tips or {}, pages=pages),
    ]
    (one,) = explain(looks, replace(RULES, stalled_after_s=5.0)).shards
    return one


def test_a_stuck_child_is_named_in_the_cause():
    stuck = (page(child_silent_s=61.0, restarts=2),)
    tips = {KEY: TipSnapshot(asked_at=0.0, position=AT_5, behind_s=30.0)}
    one = said(stuck, tips)
    assert one.verdict is Verdict.STALLED
    assert one.cause.endswith(
        "; the child has not answered processRecords for 61 s; the child was restarted 2 times"
    )
    one = said(stuck)
    assert (one.verdict, one.severity) == (Verdict.NO_PROGRESS, VerdictSeverity.WARNING)
    assert "has not answered processRecords for 61 s" in one.cause
    assert "answer" not in said(()).cause
    idle = {KEY: TipSnapshot(asked_at=0.0, position=AT_5, behind_s=0.0)}
    assert said(stuck, idle).cause == "no record behind the checkpoint"


@pytest.mark.parametrize(
    ("silent_s", "lag_s", "verdict"),
    [
        (400.0, 400.0, Verdict.STALLED),
        (299.0, 400.0, Verdict.NO_PROGRESS),
        (400.0, 299.0, Verdict.NO_PROGRESS),
        (None, 400.0, Verdict.NO_PROGRESS),
    ],
)
def test_a_child_that_is_silent_for_long_is_stalled_at_first_sight(silent_s, lag_s, verdict):
    row = lease(0, lease_owner="w1", checkpoint=AT_5)
    pages = (page(child_silent_s=silent_s, processing_lag_s=lag_s),)
    looks = [look(0, row), look(11, replace(row, lease_counter=1), pages=pages)]
    (one,) = explain(looks, RULES).shards
    assert one.verdict is verdict


@pytest.mark.parametrize("position", [AT_5, LATEST])
@pytest.mark.parametrize(
    ("lag_s", "verdict"),
    [(None, Verdict.NO_PROGRESS), (4.0, Verdict.NO_PROGRESS), (6.0, Verdict.STALLED)],
)
def test_without_the_tip_the_owner_may_say_that_a_record_waits(position, lag_s, verdict):
    one = said((page(processing_lag_s=lag_s),), position=position)
    assert one.verdict is verdict
    assert ("a record has waited" in one.cause) == (lag_s is not None)
    moved = {KEY: TipSnapshot(asked_at=0.0, position=TRIM_HORIZON, behind_s=0.0)}
    assert said((page(processing_lag_s=lag_s),), moved, position=position).verdict is verdict


def test_a_page_that_cannot_be_read_is_a_fact():
    failed = WorkerPage(url="http://a/leases", asked_at=0.0, failure="refused")
    fact = "Can't be read: http://a/leases: refused"
    assert failures([failed, page()]) == (fact,)
    assert explain([look(0, OWNED, pages=(failed,))], RULES).facts[0] == fact


# -- what pages change in a verdict ---------------------------------------------------------------


def reading_with(*fields, until_s=20.0):
    """A verdict of looks at a checkpoint that moves, with pages of the owner."""
    looks = []
    for number, one in enumerate(fields):
        at_s = until_s * number / (len(fields) - 1)
        position = ExtendedSequenceNumber(str(5 + number))
        row = replace(OWNED, lease_counter=number, checkpoint=position)
        looks.append(look(at_s, row, pages=(page(at_s, **one),) if one is not None else ()))
    return explain(looks, RULES).shards[0]


@pytest.mark.parametrize(
    ("first", "last", "verdict"),
    [
        (None, {}, Verdict.READING),
        ({"processing_lag_s": 20.0}, {"processing_lag_s": 35.0}, Verdict.FALLING_BEHIND),
        ({"processing_lag_s": 35.0}, {"processing_lag_s": 20.0}, Verdict.CATCHING_UP),
        ({"processing_lag_s": 20.0}, {"processing_lag_s": 20.5}, Verdict.READING),
        ({"reading_lag_s": 0.1}, {"reading_lag_s": 8.0}, Verdict.READING),
    ],
)
def test_without_tips_the_lag_is_as_the_owner_says(first, last, verdict):
    assert reading_with(first, last).verdict is verdict


def test_an_exception_that_a_program_survived_needs_a_person():
    one = reading_with({}, {"child_exceptions": 2})
    assert (one.verdict, one.severity.word) == (Verdict.READING, "warning")
    assert one.cause.endswith("its processor raised 2 exceptions and went on")
    assert "log of its owner" in one.todo
    rises = ({"processing_lag_s": 20.0}, {"processing_lag_s": 35.0, "child_exceptions": 1})
    one = reading_with(*rises)
    assert (one.verdict, one.severity.word) == (Verdict.FALLING_BEHIND, "warning")
    assert "add workers" in one.todo
