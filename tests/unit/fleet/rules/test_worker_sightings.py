"""Who lives, whatever the clocks say."""

from kcl_mld.fleet.model.worker_life import SILENT, FailedLife, Instance
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules.worker_sightings import WorkerSightings


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


FAILOVER_S, EXPIRY_S = 10.0, 60.0


def looks(*looked, seen=None):
    """Sightings after looks: (now, items, expired_at by worker)."""
    seen = seen or WorkerSightings()
    for now, items, expired_at in looked:
        seen = seen.seen(items, now).judged(expired_at, now, FAILOVER_S, EXPIRY_S, 1000.0)
    return seen


def test_whose_lease_expired_is_dead_until_it_reports():
    seen = looks((0.0, [at(1)], {}), (11.0, [at(1)], {"a": 10.0}))
    assert seen.is_dead("a")
    assert not seen.is_dead("b")
    assert looks((12.0, [at(1)], {"a": 10.0}), seen=seen).is_dead("a")
    # It lives, although nobody has taken the lease away from it.
    assert not looks((13.0, [at(2)], {"a": 10.0}), seen=seen).is_dead("a")
    # A clock that was set back is a report, too.
    assert not looks((13.0, [at(0)], {"a": 10.0}), seen=seen).is_dead("a")


def test_an_item_of_the_first_look_is_no_report_since_a_lease_expired():
    seen = looks((20.0, [at(1)], {"a": 10.0}))
    assert seen.is_dead("a")
    assert not looks((22.0, [at(2)], {"a": 10.0}), seen=seen).is_dead("a")
    # Who comes later has begun since.
    assert not looks((22.0, [at(5, "b")], {"b": 21.0}), seen=seen).is_dead("b")


def test_a_report_between_two_looks_does_not_make_up_for_an_expiry_between_them():
    """It may have been the last one before the death."""
    seen = looks((0.0, [at(1)], {}), (8.0, [at(1)], {}), (12.0, [at(2)], {"a": 10.0}))
    assert seen.is_dead("a")
    assert not looks((15.0, [at(3)], {"a": 10.0}), seen=seen).is_dead("a")


def test_a_stale_read_does_not_bring_the_dead_back():
    seen = looks((0.0, [at(1)], {}), (11.0, [at(1)], {"a": 10.0}), (12.0, [], {}))
    assert looks((12.5, [at(1)], {}), seen=seen).is_dead("a")
    assert "a" not in looks((100.0, [], {}), seen=seen).stamps


def test_who_is_presumed_dead_is_so_until_it_reports():
    seen = looks((0.0, [at(1)], {})).presumed_dead("a", 1.0).presumed_dead("b", 1.0)
    assert seen.is_dead("a")
    assert not seen.is_dead("b")
    assert seen.presumed_dead("a", 2.0) is seen
    assert not looks((3.0, [at(2)], {}), seen=seen).is_dead("a")


def test_each_crash_doubles_the_wait_up_to_a_bound_and_old_workers_never_wait():
    seen, waits = looks((0.0, [at(1)], {})), []
    for number in range(7):
        begun, items = 20.0 * number + 1, [at(1), at(1, f"x{number}")]
        died = {f"x{number}": begun + 14}
        seen = looks((begun, items, {}), (begun + 15, items, died), seen=seen)
        waits.append(seen.loop.wait_s(FAILOVER_S))
        assert not seen.has_to_wait("a", FAILOVER_S)
    assert waits == [10, 20, 40, 80, 160, 300, 300]


def test_a_crash_counts_once_and_is_forgotten_after_a_quiet_while():
    seen = looks(
        (0.0, [at(1)], {}),
        (1.0, [at(1), at(1, "x")], {}),
        (15.0, [at(1), at(1, "x")], {"x": 14.0}),
        (16.0, [at(1), at(1, "x")], {"x": 14.0}),
        (17.0, [at(1), at(1, "x"), at(1, "y")], {}),
    )
    assert (seen.loop.crashes, seen.loop.wait_s(FAILOVER_S)) == (1, 10.0)
    assert seen.has_to_wait("y", FAILOVER_S)
    lived = looks((28.0, [at(1), at(2, "y")], {}), seen=seen)
    assert not lived.has_to_wait("y", FAILOVER_S)
    assert looks((600.0, [at(2), at(3, "y")], {}), seen=lived).loop.crashes == 1
    assert looks((616.0, [at(2), at(3, "y")], {}), seen=lived).loop.crashes == 0


def test_newcomers_that_fall_silent_keep_the_wait_but_begin_none():
    silent = looks(
        (0.0, [at(1)], {}), (1.0, [at(1), at(1, "x")], {}), (62.0, [at(1), at(1, "x")], {})
    )
    assert silent.is_dead("x")
    assert silent.loop.crashes == 0
    crashed = looks(
        (63.0, [at(1), at(1, "y"), at(1, "z")], {}),
        (80.0, [at(1), at(1, "y"), at(1, "z")], {"y": 79.0}),
        (130.0, [at(1), at(1, "z")], {}),
        seen=silent,
    )
    assert (crashed.loop.crashes, crashed.loop.crashed_at) == (1, 130.0)


def test_workers_that_die_together_are_one_crash():
    """A lease table that did not answer for a while is no reason to keep a young fleet waiting."""
    names = [f"w{number}" for number in range(10)]
    seen = looks(
        (0.0, [at(1, "leader")], {}),
        (5.0, [at(2, name) for name in names], {}),
        (35.0, [at(2, name) for name in names], dict.fromkeys(names, 34.0)),
    )
    assert (seen.loop.crashes, seen.loop.wait_s(FAILOVER_S)) == (1, 10.0)


def test_who_died_late_did_not_crash():
    seen = looks(
        (0.0, [], {}),
        (1.0, [at(1)], {}),
        (500.0, [at(2)], {}),
        (520.0, [at(2)], {"a": 519.0}),
    )
    assert seen.is_dead("a")
    assert seen.loop.crashes == 0


def of(instance, stamp, worker="a"):
    return WorkerMetrics(worker, stamp, instance=Instance(instance, 0))


def test_another_process_under_an_old_id_is_a_newcomer():
    seen = looks(
        (0.0, [at(1, "leader")], {}),
        (1.0, [of("i1", 1)], {}),
        (200.0, [of("i1", 2)], {}),
        (201.0, [of("i2", 2)], {}),
        (202.0, [of("i2", 3)], {}),
    )
    assert (seen.stamps["a"].first_at, seen.stamps["a"].instance) == (201.0, "i2")
    # Another program that goes on under the id says nothing of its process.
    assert looks((203.0, [at(4)], {}), seen=seen).stamps["a"].first_at == 201.0


def test_a_process_whose_end_is_in_the_table_is_no_second_crash_when_its_lease_expires():
    life = FailedLife(instance="i1", worker_id="a", lived_s=5, failed_at_s=1)
    seen = looks((0.0, [at(1, "leader")], {}), (1.0, [of("i1", 1)], {}))
    seen = seen.seen([of("i1", 1)], 6.0, [life], FAILOVER_S)
    assert seen.loop.crashes == 1
    seen = looks((17.0, [of("i1", 1)], {"a": 16.0}), seen=seen)
    assert seen.is_dead("a")
    assert seen.loop.crashes == 1


def test_a_process_that_was_killed_soon_after_its_start_is_noted():
    seen = looks((0.0, [at(1, "leader")], {}), (1.0, [of("i1", 1), at(1, "b")], {}))
    seen = seen.seen([of("i1", 1), at(1, "b")], 17.0)
    seen = seen.judged({"a": 16.0, "b": 16.0}, 17.0, FAILOVER_S, EXPIRY_S, 1017.9)
    assert seen.loop.lives == (
        FailedLife(instance="i1", worker_id="a", lived_s=6, failed_at_s=1017, why=SILENT),
    )
    # It has come back by itself; another process under its id would be one that goes on.
    seen = looks((18.0, [of("i1", 2)], {}), seen=seen)
    assert not seen.has_returned("a")
    assert looks((19.0, [of("i2", 3)], {}), seen=seen).has_returned("a")
