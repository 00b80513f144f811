"""Another process under this worker's id, by counters that move by no write of this one."""

from kcl_mld.leases.rules.own_rows import ENOUGH_MOVES, GONE_FAILOVERS, OwnRows
from tests.fakes.lease_world import lease

FAILOVER_S = 10.0
KEY = lease().lease_key


def row(counter, number=0, **values):
    return lease(number, **{"lease_owner": "me", "lease_counter": counter} | values)


def holding(counter=7):
    """After a write that was answered."""
    rows = OwnRows("me", FAILOVER_S)
    rows.sent(KEY)
    rows.answered(row(counter))
    return rows


def moved(rows, *looks):
    """After looks at one row: (now, counter)."""
    for now, counter in looks:
        rows.looked([row(counter)], now)
    return rows


def test_a_row_that_moves_again_and_again_by_no_write_of_ours_is_another_process():
    rows = moved(holding(), (0.0, 8), (10.0, 9))
    assert rows.moved_by_others(10.0) is None
    rows.looked([row(10)], 20.0)
    assert rows.moved_by_others(20.0) == KEY
    gone_s = GONE_FAILOVERS * FAILOVER_S
    assert rows.moved_by_others(20.0 + gone_s) == KEY
    assert rows.moved_by_others(20.1 + gone_s) is None


def test_what_moved_long_ago_is_forgotten():
    rows = moved(holding(), (0.0, 8), (10.0, 9), (100.0, 10), (110.0, 11))
    assert rows.moved_by_others(110.0) is None
    rows.looked([row(12)], 120.0)
    assert rows.moved_by_others(120.0) == KEY


def test_many_rows_that_move_at_once_show_no_process_that_lives():
    """A person changes them, or the process before this one still ended."""
    rows = OwnRows("me", FAILOVER_S)
    for counter in (7, 8):
        rows.looked([row(counter, number) for number in range(10)], float(counter))
    assert rows.moved_by_others(8.0) is None


def test_a_row_that_this_process_never_wrote_counts_from_its_first_look_on():
    rows = moved(OwnRows("me", FAILOVER_S), (0.0, 5))
    for look in range(1, ENOUGH_MOVES + 1):
        assert rows.moved_by_others(20.0 * look) is None
        moved(rows, (20.0 * look, 5 + look))
    assert rows.moved_by_others(20.0 * ENOUGH_MOVES) == KEY


def test_writes_of_this_process_are_no_moves_answered_or_not():
    rows = holding()
    for turn in range(100):
        now, counter = 7.0 * turn, 8 + turn
        known = rows.sent(KEY)
        assert known is None or turn == 0
        rows.looked([row(counter)], now)  # its answer has not come, and never comes
        rows.found(row(counter), now + 1)
        assert rows.moved_by_others(now + 1) is None


def test_once_a_write_is_answered_rows_are_looked_at_again():
    rows = holding()
    rows.sent(KEY)
    rows.looked([row(8)], 0.0)
    rows.sent(KEY)
    rows.answered(row(9))
    moved(rows, (10.0, 10), (20.0, 11), (30.0, 12))
    assert rows.moved_by_others(30.0) == KEY


def test_an_old_look_shows_nothing():
    rows = moved(holding(), (0.0, 6), (10.0, 5), (20.0, 7), (30.0, 6))
    assert rows.moved_by_others(30.0) is None


def test_what_refused_a_write_is_a_move_if_those_before_were_answered():
    rows = holding()
    for turn in range(ENOUGH_MOVES):
        known = rows.sent(KEY)
        rows.refused(KEY, known)
        counter = 8 + 2 * turn
        rows.found(row(counter), 10.0 * turn)
        rows.sent(KEY)
        rows.answered(row(counter + 1))
    assert rows.moved_by_others(20.0) == KEY


def test_what_refused_a_write_after_one_without_an_answer_is_none():
    rows = holding()
    for turn in range(10):
        rows.sent(KEY)  # no answer comes
        known = rows.sent(KEY)
        rows.refused(KEY, known)
        counter = 8 + 2 * turn
        rows.found(row(counter), 10.0 * turn)
        rows.sent(KEY)
        rows.answered(row(counter + 1))
    assert rows.moved_by_others(90.0) is None


def test_rows_of_others_say_nothing_nor_do_such_that_are_handed_over_or_gone():
    rows = holding()
    others = ({"lease_owner": "other"}, {"checkpoint_owner": "old"})
    for turn, of in enumerate(others * 5):
        rows.looked([row(8 + 2 * turn, **of)], 10.0 * turn)
        rows.looked([row(9 + 2 * turn)], 10.0 * turn + 5)
    rows.looked([], 100.0)
    rows.looked([row(99)], 105.0)
    assert rows.moved_by_others(105.0) is None


def test_a_write_that_is_refused_after_a_scan_showed_the_next_owner_is_no_error():
    """A renewal without an answer, then another one, during which a scan shows who has the lease."""
    rows = holding()
    rows.sent(KEY)  # no answer comes
    known = rows.sent(KEY)
    rows.looked([row(9, lease_owner="other")], 1.0)
    rows.refused(KEY, known)
    moved(rows, (10.0, 20), (20.0, 21))
    assert rows.moved_by_others(20.0) is None


def test_a_lease_that_was_given_up_is_forgotten():
    rows = holding()
    for given_up in ({"lease_owner": None}, {"checkpoint_owner": "me"}):
        rows.sent(KEY)
        rows.answered(row(8, **given_up))
        assert rows.sent(KEY) is None
        rows.answered(row(9))
