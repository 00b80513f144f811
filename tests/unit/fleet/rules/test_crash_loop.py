"""When newcomers wait, because workers fail soon after they began."""

from kcl_mld.fleet.model.worker_life import SILENT, FailedLife
from kcl_mld.fleet.rules.crash_loop import MOST_LIVES, CrashLoop
from kcl_mld.leases.rules.newcomers import QUIET_S

FAILOVER_S = 10.0


def life(number, *, lease=None, position="0", lived_s=5, worker=None):
    return FailedLife(
        instance=f"i{number}",
        worker_id=worker or f"w{number}",
        lived_s=lived_s,
        failed_at_s=number,
        lease_key=lease,
        position=None if lease is None else position,
    )


def after(*looked, loop=None):
    """The loop after looks: (now, all items)."""
    loop = loop or CrashLoop()
    for now, lives in looked:
        loop = loop.seen(lives, now, FAILOVER_S, is_first=False).quiet(now)
    return loop


def wait_s(*looked, loop=None):
    return after(*looked, loop=loop).wait_s(FAILOVER_S)


def test_nobody_waits_where_no_process_failed():
    assert CrashLoop().wait_s(FAILOVER_S) == 0.0
    assert after((1.0, ())) == CrashLoop()


def test_each_short_life_doubles_the_wait_under_one_id_and_under_many():
    for worker in (None, "fixed"):
        lives = [life(number, worker=worker) for number in range(7)]
        waits = [
            wait_s(*((number, lives[: number + 1]) for number in range(upto + 1)))
            for upto in range(7)
        ]
        assert waits == [10, 20, 40, 80, 160, 300, 300]


def test_a_long_life_is_no_crash():
    assert wait_s((1.0, [life(1, lived_s=61)])) == 0.0
    assert wait_s((1.0, [life(1, lived_s=60)])) == 10.0
    # The second had to wait for ten seconds until it had leases.
    assert wait_s((1.0, [life(1)]), (90.0, [life(1), life(2, lived_s=70)])) == 20.0
    assert wait_s((1.0, [life(1)]), (90.0, [life(1), life(2, lived_s=71)])) == 10.0


def test_those_that_fail_at_one_look_count_once_but_at_the_first_look_of_all_each():
    lives = [life(number) for number in range(4)]
    assert wait_s((5.0, lives)) == 10.0
    first = CrashLoop().seen(lives, 5.0, FAILOVER_S, is_first=True)
    assert first.wait_s(FAILOVER_S) == 80.0


def test_lives_that_fail_at_the_same_lease_and_position_count_once():
    here = [life(1, lease="s1"), life(2, lease="s1")]
    there = life(3, lease="s2")
    assert wait_s((1.0, [there]), (2.0, [there, here[0]])) == 20.0
    assert wait_s((1.0, [there]), (2.0, [there, here[0]]), (3.0, [there, *here])) == 20.0
    # Somebody else has read on meanwhile: it was not the record.
    further = life(4, lease="s1", position="9")
    assert wait_s((1.0, [here[0]]), (2.0, [here[0], further])) == 20.0


def test_one_lease_at_which_all_fail_is_named_and_nobody_waits():
    lives = [life(1, lease="s1", lived_s=3600), life(2, lease="s1"), life(3, lease="s1")]
    loop = after((1.0, lives[:1]))
    assert (loop.poisoned(), loop.wait_s(FAILOVER_S)) == (None, 0.0)
    loop = after((2.0, lives[:2]), (3.0, lives), loop=loop)
    assert (loop.poisoned(), loop.wait_s(FAILOVER_S)) == (lives[2], 0.0)
    # A crash elsewhere shows that it is not the lease alone.
    loop = after((4.0, [*lives, life(4)]), loop=loop)
    assert (loop.poisoned(), loop.wait_s(FAILOVER_S)) == (None, 10.0)


def test_a_worker_that_left_nothing_speaks_against_the_lease_as_the_cause():
    lives = [life(1, lease="s1"), life(2, lease="s1")]
    loop = after((1.0, lives)).died(["x"], 2.0, ())
    assert loop.poisoned() is None
    assert loop.wait_s(FAILOVER_S) == 20.0


def test_lives_of_which_no_lease_is_known_are_no_lease():
    assert after((1.0, [life(1)]), (2.0, [life(1), life(2)])).poisoned() is None


def test_a_death_counts_once_whoever_notes_it():
    loop = CrashLoop().died(["i1", "i2"], 1.0, ())
    assert loop.crashes == 1
    assert loop.died(["i1"], 2.0, ()) == loop
    assert after((3.0, [life(1)]), loop=loop).crashes == 1
    assert after((3.0, [life(1)]), loop=CrashLoop()).died(["i1"], 4.0, ()).crashes == 1


def test_after_a_quiet_while_newcomers_are_trusted_and_the_items_go():
    lives = [life(1), life(2, lease="s1", lived_s=3600)]
    loop = after((0.0, lives))
    still = loop.still(100.0).quiet(100.0 + QUIET_S)
    assert still.wait_s(FAILOVER_S) == 10.0
    assert still.outdated(lives) == ()
    over = loop.quiet(QUIET_S + 1)
    assert over.wait_s(FAILOVER_S) == 0.0
    assert over.outdated(lives) == tuple(lives)
    # What can't be deleted yet is not counted again; what is new is.
    assert after((QUIET_S + 5, lives), loop=over).crashes == 0
    assert after((QUIET_S + 5, [*lives, life(3)]), loop=over).crashes == 1
    assert CrashLoop().still(5.0) == CrashLoop()


def test_a_life_that_is_no_crash_is_remembered_for_as_long():
    long = life(1, lease="s1", lived_s=3600)
    loop = after((0.0, [long]), (QUIET_S, [long]))
    assert loop.outdated([long]) == ()
    assert after((QUIET_S + 1, [long]), loop=loop).outdated([long]) == (long,)


def test_the_items_are_bounded():
    lives = [life(number) for number in range(MOST_LIVES + 3)]
    loop = after((0.0, lives))
    assert loop.outdated(lives) == tuple(lives[:3])


def test_the_workers_that_failed_are_known_by_their_ids():
    loop = after((0.0, [life(1, worker="a")]))
    assert loop.has_failed("a", "i2")
    assert loop.has_failed("a", None)
    assert not loop.has_failed("b", "i2")
    # It was taken for dead, and lives.
    assert not loop.has_failed("a", "i1")


def killed(number):
    return FailedLife(
        instance=f"i{number}", worker_id=f"w{number}", lived_s=5, failed_at_s=number, why=SILENT
    )


def test_one_process_of_those_that_died_together_is_noted_until_it_is_in_the_table():
    loop = CrashLoop().died(["i1", "i2", "i3"], 1.0, [killed(2), killed(3)])
    assert loop.unnoted(()) == (killed(2),)
    assert loop.unnoted([killed(2)]) == ()
    assert loop.outdated([killed(2)]) == ()
    assert after((2.0, [killed(2)]), loop=loop).crashes == 1
    # The next leader counts it as often.
    assert CrashLoop().seen([killed(2)], 5.0, FAILOVER_S, is_first=True).crashes == 1
    over = loop.quiet(QUIET_S + 2)
    assert over.unnoted(()) == ()
    assert over.outdated([killed(2)]) == (killed(2),)


def test_who_left_an_item_or_has_no_id_of_its_own_is_not_noted():
    assert after((1.0, [life(1)])).unnoted(()) == ()
    assert CrashLoop().died(["w 1.0"], 1.0, ()).unnoted(()) == ()
    assert after((1.0, [killed(1)])).died(["i1"], 2.0, [killed(1)]).lives == (killed(1),)


def test_no_more_are_noted_than_are_kept():
    loop = CrashLoop()
    for number in range(MOST_LIVES + 3):
        loop = loop.died([f"i{number}"], float(number), [killed(number)])
    assert loop.unnoted(()) == tuple(killed(number) for number in range(3, MOST_LIVES + 3))
