"""Which of two processes with one worker id stands aside, and until when."""

import pytest

from kcl_mld.fleet.model.worker_life import Instance
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules.doubled_id import DoubledId

MINE, OLDER, YOUNGER = Instance("m", 100), Instance("o", 50), Instance("y", 150)
LASTS_S = 60.0


def item(instance, value=1000):
    return WorkerMetrics("w", value, instance=instance)


def reporting():
    """After the first report, which replaced nothing."""
    return DoubledId(MINE, LASTS_S).replaced(None, 0.0)


@pytest.mark.parametrize("instance", [OLDER, YOUNGER, None])
def test_what_the_first_report_replaces_may_be_of_a_dead_process(instance):
    known = DoubledId(MINE, LASTS_S).replaced(item(instance), 0.0)
    assert not known.lives
    assert not known.stands_aside
    assert not known.is_beside_unknown
    assert known.may_be_doubled(60.0)
    assert not known.may_be_doubled(60.5)


@pytest.mark.parametrize(
    ("instance", "stands_aside", "is_beside_unknown"),
    [
        (OLDER, True, False),
        (YOUNGER, False, False),
        (Instance("a", 100), True, False),  # both began in one second
        (Instance("z", 100), False, False),
        (None, False, True),
        (MINE, False, False),
    ],
)
def test_of_two_that_live_the_younger_stands_aside(instance, stands_aside, is_beside_unknown):
    known = reporting().replaced(item(instance), 30.0)
    assert known.stands_aside == stands_aside
    assert known.is_beside_unknown == is_beside_unknown
    assert known.lives == (instance != MINE)


def test_who_stands_aside_waits_until_the_other_one_has_written_nothing_for_long():
    known = reporting().replaced(item(OLDER, 1000), 30.0)
    known = known.looked(item(MINE, 1030), 60.0)  # nobody has written since
    assert known.stands_aside
    known = known.looked(item(OLDER, 1060), 90.0)
    assert known.stands_aside
    known = known.looked(item(OLDER, 1060), 150.0)
    assert known.stands_aside
    known = known.looked(item(OLDER, 1060), 151.0)
    assert not known.stands_aside
    assert not known.replaced(item(OLDER, 1060), 151.5).lives  # the first report replaces that item


def test_a_report_whose_answer_says_nothing_changes_nothing_for_a_while():
    known = reporting().replaced(item(OLDER), 30.0)
    assert known.replaced(None, 60.0).stands_aside
    assert not known.replaced(None, 91.0).stands_aside


def test_who_stands_aside_goes_on_when_the_item_is_gone():
    known = reporting().replaced(item(OLDER), 30.0).looked(None, 31.0)
    assert not known.stands_aside
    assert not known.lives


def test_who_stands_aside_goes_on_when_the_other_one_is_a_younger_process_now():
    known = reporting().replaced(item(OLDER), 30.0).looked(item(YOUNGER, 1060), 60.0)
    assert not known.stands_aside
    assert known.lives
