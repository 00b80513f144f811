"""Who lives, whatever the clocks say."""

from mld.decide.worker_sightings import WorkerSightings
from mld.model.worker_metrics import WorkerMetrics


def at(stamp, worker="a"):
    return WorkerMetrics(worker, stamp)


def test_a_stamp_that_moves_is_dated_by_the_clock_of_who_looks():
    slow = 1000  # an hour behind
    seen = WorkerSightings().seen([at(slow)], 0.0)
    assert seen.dated(at(slow), 5.0, 4600.0) == at(slow)
    seen = seen.seen([at(slow + 30)], 30.0)
    assert seen.dated(at(slow + 30), 40.0, 4640.0) == at(4630)
    seen = seen.seen([at(slow + 30)], 90.0)
    assert seen.dated(at(slow + 30), 100.0, 4700.0) == at(4630)


def test_a_worker_whose_clock_is_ahead_does_not_outlive_itself():
    seen = WorkerSightings().seen([at(9000)], 0.0).seen([at(9030)], 30.0)
    assert seen.dated(at(9030), 130.0, 1130.0) == at(1030)


def test_who_is_gone_is_forgotten():
    seen = WorkerSightings().seen([at(1), at(1, "b")], 0.0).seen([at(2)], 1.0)
    assert set(seen.stamps) == {"a"}
    again = seen.seen([at(2), at(5, "b")], 2.0)
    assert again.dated(at(5, "b"), 3.0, 100.0) == at(5, "b")
    assert not again.stamps["b"].has_moved


def test_a_stamp_of_the_future_is_as_old_as_the_look_that_saw_it_first():
    """A dead worker whose clock was ahead: it is no younger, and its successor is newer at once."""
    ahead = at(1900)
    seen = WorkerSightings().seen([ahead], 0.0)
    assert seen.dated(ahead, 0.0, 1000.0) == at(1000)
    assert seen.dated(ahead, 60.0, 1060.0) == at(1000)
    seen = seen.seen([at(1975)], 70.0)
    assert seen.dated(at(1975), 75.0, 1075.0) == at(1070)
