"""Who reports CPU beside whom."""

import pytest

from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules.worker_sightings import FIGURES_QUIET_S, OtherFigures

WALL_S = 1_000_000.0
EXPIRY_S = 60.0


def item(worker, at, *, cpu=False, place=None):
    samples = {"C": (5.0,)} if cpu else {}
    return WorkerMetrics(worker, int(WALL_S + at), samples, {"C": (100,)}, place=place)


def looks(*others_at, before=None):
    """A look each 30 s; each item was written just before it."""
    seen = before or OtherFigures()
    for number, others in enumerate(others_at):
        at = 30.0 * number
        seen = seen.seen([make(at) for make in others], at, WALL_S + at, EXPIRY_S)
    return seen


def java(at):
    return item("java", at)


def java_on_ec2(at):
    return item("java-ec2", at, cpu=True)


def ours(at):
    return item("ours", at, cpu=True, place="box")


def ours_that_keeps_its_figures(at):
    return item("ours", at, place="box")


def test_nothing_is_reported_before_the_first_look():
    assert not OtherFigures().are_reported


@pytest.mark.parametrize("others", [(), (java_on_ec2,), (ours, java_on_ec2)])
def test_alone_or_where_all_measure_figures_are_reported_at_once(others):
    assert looks(others).are_reported


def test_two_that_keep_their_figures_do_not_wait_for_each_other():
    assert looks((ours_that_keeps_its_figures,)).are_reported


def test_beside_one_that_measures_nothing_none_are_reported():
    seen = looks((java, ours), (java, ours))
    assert (seen.are_reported, seen.without) == (False, ("java",))


def test_whoever_joins_beside_one_that_measures_nothing_never_reports_any():
    assert not looks((java,)).are_reported
    assert not looks((java,), (java,), (java,)).are_reported


def test_the_first_item_of_a_worker_changes_nothing():
    """It was written before anything was measured."""
    joined = looks((ours,), (ours, java))
    assert (joined.are_reported, joined.without) == (True, ())
    assert not looks((ours,), (ours, java), (ours, java)).are_reported


def test_a_worker_that_died_without_figures_does_not_count_for_long():
    seen = looks((java,), (java,))
    since = 30.0
    for at in (60.0, since + FIGURES_QUIET_S - 30, since + FIGURES_QUIET_S):
        seen = seen.seen([java(since)], at, WALL_S + at, EXPIRY_S)
        counts = at <= since + EXPIRY_S
        assert seen.without == (("java",) if counts else ())
        assert not seen.are_reported
    at = 60.0 + FIGURES_QUIET_S
    assert seen.seen([java(since)], at, WALL_S + at, EXPIRY_S).are_reported


def test_workers_that_are_started_again_one_after_the_other_are_one_change():
    """Ids change with each start; in between no item without figures is young."""
    seen = looks((java,), (java,))
    changes = 0
    for start in (150.0, 330.0, 510.0):
        for at in (start, start + 30, start + 60):
            others = [item(f"java-{start}", at)]
            after = seen.seen(others, at, WALL_S + at, EXPIRY_S)
            changes += after.are_reported is not seen.are_reported
            seen = after
        for at in (start + 130, start + 160):
            after = seen.seen([], at, WALL_S + at, EXPIRY_S)
            changes += after.are_reported is not seen.are_reported
            seen = after
    assert changes == 0
    assert seen.seen([], 1000.0, WALL_S + 1000.0, EXPIRY_S).are_reported


def test_a_clock_that_is_wrong_hides_nobody():
    seen = looks((lambda at: item("java", at - 3600),), (lambda at: item("java", at - 3600),))
    assert seen.without == ("java",)
