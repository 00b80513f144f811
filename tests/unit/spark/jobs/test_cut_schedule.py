"""Which shards' buffers are cut together, when, and how much of each."""

from hypothesis import given, strategies as st

from kcl_mld.spark.jobs.cut_schedule import CutSchedule, Offer, allowances, fair_share
from kcl_mld.spark.model import ShardKey

OFFERS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 500)).map(
        lambda pair: Offer(pair[0], max(pair))  # what one batch holds has the first record in it
    ),
    max_size=12,
)


class Buffer:
    """A source with so many bytes in records of one size; None = it has nothing to give."""

    def __init__(self, name="a", size=10, first=1):
        self.shard = ShardKey("app", "stream", name)
        self.size, self.first = size, first

    def offer(self):
        return None if self.size is None else Offer(self.first, self.size)


def schedule_of(*buffers, window_s=0.0):
    made = CutSchedule(window_s)
    for each in buffers:
        made.join(each)
    return made


def test_nothing_is_cut_until_a_batch_is_due():
    a, b = Buffer("a"), Buffer("b")
    schedule = schedule_of(a, b)
    assert (schedule.patience_s(5.0), schedule.is_due) == (None, False)
    schedule.ask(a, 5.0)
    assert (schedule.patience_s(5.0), schedule.is_due) == (0.0, True)


def test_what_all_have_is_cut_when_one_is_due_and_then_nobody_is_due():
    a, b, empty = Buffer("a"), Buffer("b", size=7), Buffer("c", size=None)
    schedule = schedule_of(a, b, empty)
    schedule.ask(b, 5.0)
    assert schedule.cut(100) == [(b, 7, 5.0), (a, 10, 5.0)]
    assert schedule.patience_s(9.0) is None
    assert not schedule.is_due


def test_the_moment_waits_for_others_that_become_due_at_about_the_same_time():
    a, b = Buffer("a"), Buffer("b")
    schedule = schedule_of(a, b, window_s=2.0)
    schedule.ask(b, 5.0)
    schedule.ask(a, 6.0)
    schedule.ask(b, 6.5)  # it has asked before
    assert schedule.patience_s(6.5) == 0.5
    assert schedule.cut(100) == [(b, 10, 5.0), (a, 10, 5.0)]


def test_a_shard_that_has_no_room_makes_no_moment_and_stays_due():
    a, b = Buffer("a", size=None), Buffer("b")
    schedule = schedule_of(a, b)
    schedule.ask(a, 5.0)
    assert schedule.patience_s(6.0) is None
    a.size = 3
    assert schedule.patience_s(6.0) == -1.0


def test_who_is_left_out_for_want_of_bytes_is_due_still_and_comes_first_next_time():
    a, b, c = (Buffer(name, size=60, first=60) for name in "abc")
    schedule = schedule_of(a, b, c)
    schedule.ask(b, 1.0)
    schedule.ask(c, 2.0)
    assert schedule.cut(100) == [(b, 60, 1.0)]
    schedule.ask(a, 3.0)
    assert [each for each, *_ in schedule.cut(100)] == [c]
    assert [each for each, *_ in schedule.cut(100)] == [a]


def test_who_has_left_is_neither_due_nor_cut():
    a, other_hold, b = Buffer("a"), Buffer("a"), Buffer("b")
    schedule = schedule_of(a, other_hold, b)
    schedule.ask(a, 1.0)
    schedule.leave(a.shard, a)
    schedule.ask(a, 2.0)
    assert not schedule.is_due
    assert [each for each, *_ in schedule.cut(100)] == [other_hold, b]
    schedule.leave(a.shard, None)
    assert [each for each, *_ in schedule.cut(100)] == [b]
    schedule.leave(b.shard, None)
    assert schedule.cut(100) == []


def test_who_wants_less_than_a_fair_share_leaves_the_rest_to_the_others():
    assert fair_share([10, 200, 200], 100) == 45
    assert allowances([Offer(1, 10), Offer(1, 200), Offer(1, 200)], 100) == [10, 45, 45]
    assert fair_share([10, 20], 100) == 100
    assert fair_share([], 100) == 100


def test_a_record_is_never_divided():
    big, small = Offer(80, 80), Offer(1, 90)
    assert allowances([big, small], 100) == [80, 20]
    assert allowances([big, big, small], 100) == [80, None, 20]
    assert allowances([Offer(300, 300), small], 100) == [300, None]


@given(OFFERS, st.integers(1, 1000))
def test_a_job_is_within_its_cap_and_the_first_is_always_in_it(offers, cap):
    given_ = allowances(offers, cap)
    assert len(given_) == len(offers)
    for offer, most in zip(offers, given_, strict=True):
        assert most is None or offer.first_bytes <= most <= offer.most_bytes
    if offers:
        assert given_[0] is not None
        assert sum(most or 0 for most in given_) <= max(cap, offers[0].first_bytes)


@given(st.lists(st.integers(0, 500), max_size=12), st.integers(1, 1000))
def test_the_share_is_the_greatest_that_fits(sizes, cap):
    share = fair_share(sizes, cap)
    assert sum(min(size, share) for size in sizes) <= cap
    assert share == cap or sum(min(size, share + 1) for size in sizes) > cap


def test_what_all_would_give_is_told_together():
    offers = schedule_of(Buffer("a"), Buffer("b", size=7), Buffer("c", size=None)).offers
    assert [each.most_bytes for each in offers] == [10, 7]
    assert schedule_of().offers == []
