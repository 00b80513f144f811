"""Where a shard's records are cut."""

from hypothesis import given, strategies as st

from kcl_mld.spark.jobs.cut_schedule import Offer
from kcl_mld.spark.model import Position, Row
from kcl_mld.spark.shard.batcher import FlushReason, Limits, ShardBuffer


def cut(buffered, now, reason=FlushReason.FLOWING):
    """What is cut if it is due."""
    return buffered.cut_now() if buffered.is_due(now, reason) else None


def row(sequence, sub=0, size=1):
    return Row(Position(sequence, sub), "key", b"x" * size, None)


def rows(*sequences):
    return [row(each) for each in sequences]


def at(sequence, sub=0):
    return Position(sequence, sub)


def buffer(records=100, size=10_000, delay=8.0, tick=0.0, **more):
    return ShardBuffer(Limits(records, size, delay, tick), **more)


def test_a_batch_is_cut_at_max_records_and_names_what_it_follows():
    shard = buffer(records=3)
    shard.add(rows(1, 2, 3, 4), 0.0, 42)
    got = cut(shard, 0.0)
    assert (got.after, got.to, len(got.rows)) == (None, at(3), 3)
    assert got.millis_behind_latest == 42
    assert cut(shard, 0.0) is None
    assert len(shard) == 1


def test_a_second_batch_follows_the_first():
    shard = buffer(records=2, after=at(5), drop_through=at(5))
    shard.add(rows(6, 7, 8, 9), 0.0)
    first, second = cut(shard, 0.0), cut(shard, 0.0)
    assert (first.after, first.to) == (at(5), at(7))
    assert (second.after, second.to) == (at(7), at(9))


def test_a_batch_is_cut_before_it_exceeds_max_bytes():
    shard = buffer(size=10)
    shard.add([row(1, size=4), row(2, size=4), row(3, size=4)], 0.0)
    assert shard.payload_bytes == 12
    assert cut(shard, 0.0).to == at(2)
    assert shard.payload_bytes == 4


def test_a_record_bigger_than_max_bytes_is_a_batch_of_its_own():
    shard = buffer(size=10)
    shard.add([row(1, size=4), row(2, size=1_000_000), row(3, size=1)], 0.0)
    assert [cut(shard, 0.0).to, cut(shard, 0.0).to] == [at(1), at(2)]
    assert cut(shard, 0.0) is None


def test_an_offer_is_what_a_cut_would_take():
    shard = buffer(records=3, size=100)
    assert shard.offer() is None
    shard.add([row(1, size=5), row(2, size=6)], 0.0)
    assert shard.offer() == Offer(5, 11)
    shard.add([row(3, size=7), row(4, size=8), row(5, size=90), row(6, size=9)], 0.0)
    assert shard.offer() == Offer(5, 18, is_full=True)  # the fourth is in no batch with the first
    assert len(shard.cut_now().rows) == 3
    assert shard.offer() == Offer(8, 98, is_full=True)
    assert len(shard.cut_now().rows) == 2
    assert shard.offer() == Offer(9, 9)
    shard.discard()
    assert shard.offer() is None
    shard.add([row(7, size=4)], 0.0)
    assert shard.offer() == Offer(4, 4)


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), max_size=8),
    st.integers(1, 5),
    st.integers(1, 60),
    st.data(),
)
def test_whatever_came_and_was_cut_an_offer_is_the_next_cut(deliveries, most, size, data):
    shard, twin, number = buffer(records=most, size=size), buffer(records=most, size=size), 0
    for sizes in deliveries:
        rows = [row(number + n, size=each) for n, each in enumerate(sizes)]
        number += len(sizes)
        for each in (shard, twin):
            each.add(rows, 0.0)
        while len(shard):
            offer, is_due = shard.offer(), shard.is_due(0.0, FlushReason.FLOWING)
            assert offer.is_full == is_due
            assert shard.offer() is offer
            if not data.draw(st.booleans()):
                break
            given_bytes = data.draw(st.sampled_from([None, offer.most_bytes, 1, 20]))
            found = shard.cut_now(given_bytes)
            assert found == twin.cut_now(given_bytes)
            if given_bytes in (None, offer.most_bytes):
                assert sum(len(each.data) for each in found.rows) == offer.most_bytes
    assert (shard.offer() is None) == (not len(shard))


def test_without_ticks_a_flow_is_cut_when_its_oldest_record_has_the_whole_age():
    shard = buffer(delay=8.0)
    shard.add(rows(1), 0.0)
    shard.add(rows(2), 7.0)
    assert cut(shard, 7.9) is None
    assert cut(shard, 8.0).to == at(2)


def test_age_counts_from_the_oldest_record_that_is_left():
    shard = buffer(records=2, delay=8.0)
    shard.add(rows(1, 2, 3), 0.0)
    shard.add(rows(4), 5.0)
    assert cut(shard, 5.0).to == at(2)
    assert cut(shard, 7.0).to == at(4)  # two that are left are again a batch by number
    shard.add(rows(5), 9.0)
    assert cut(shard, 16.0) is None
    assert cut(shard, 17.0).to == at(5)


def test_with_ticks_a_flow_is_cut_one_tick_early():
    shard = buffer(delay=8.0, tick=1.0)
    shard.add(rows(1), 0.0)
    assert cut(shard, 6.9) is None
    assert cut(shard, 7.0).to == at(1)


def test_an_idle_tail_is_cut_after_half_of_the_delay():
    shard = buffer(delay=8.0, tick=1.0)
    shard.add(rows(1), 0.0)
    assert cut(shard, 3.9, FlushReason.IDLE) is None
    assert cut(shard, 4.0, FlushReason.FLOWING) is None
    assert cut(shard, 4.0, FlushReason.IDLE).to == at(1)


def test_at_the_end_whatever_is_there_is_a_batch():
    for moment in (FlushReason.STOPPING, FlushReason.SHARD_ENDED):
        shard = buffer()
        assert cut(shard, 0.0, moment) is None
        shard.add(rows(1), 0.0)
        assert cut(shard, 0.0, moment).to == at(1)


def test_records_up_to_the_mark_are_dropped_and_counted():
    shard = buffer(drop_through=at(5, 2), after=at(5, 2))
    shard.add([row(4), row(5, 0), row(5, 2), row(5, 3), row(6)], 0.0)
    assert shard.dropped == 3
    assert shard.delivered == at(6)
    got = cut(shard, 0.0, FlushReason.STOPPING)
    assert [each.position for each in got.rows] == [at(5, 3), at(6)]


def test_a_record_that_comes_twice_is_kept_once():
    shard = buffer()
    shard.add(rows(1, 1, 2), 0.0)
    shard.add(rows(2), 0.0)
    assert (len(shard), shard.dropped) == (2, 2)


def test_positions_compare_as_numbers_and_not_as_texts():
    shard = buffer(drop_through=at(9))
    shard.add([row(10**55)], 0.0)
    assert len(shard) == 1


def test_what_is_discarded_is_gone():
    shard = buffer(records=1)
    shard.add(rows(1, 2), 0.0)
    shard.discard()
    assert (len(shard), shard.payload_bytes, cut(shard, 9.0, FlushReason.STOPPING)) == (0, 0, None)


positions = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 9)), max_size=40
)


@given(
    positions,
    st.integers(1, 5),
    st.integers(1, 20),
    st.none() | st.integers(0, 30),
    st.lists(st.integers(1, 7), max_size=10),
)
def test_every_record_beyond_the_mark_is_in_one_batch_in_order_within_the_limits(
    given_positions, most, size, mark, deliveries
):
    """Invariants 6, 7 and 22: any deliveries, any limits."""
    drop = None if mark is None else at(mark, 1)
    shard = buffer(records=most, size=size, after=drop, drop_through=drop)
    ordered = [row(*each) for each in sorted(given_positions)]
    wanted = []
    for each in ordered:
        is_new = not wanted or each.position > wanted[-1].position
        if is_new and (drop is None or each.position > drop):
            wanted.append(each)
    cuts = []
    for count in [*deliveries, len(ordered)]:
        shard.add(ordered[:count], 0.0)
        ordered = ordered[count:]
        while (got := cut(shard, 0.0)) is not None:
            cuts.append(got)
        assert not shard.holds(1)
    while (got := cut(shard, 0.0, FlushReason.STOPPING)) is not None:
        cuts.append(got)
    assert [each for got in cuts for each in got.rows] == wanted
    end = drop
    for got in cuts:
        assert got.after == end
        assert got.to == got.rows[-1].position
        assert len(got.rows) <= most
        assert len(got.rows) == 1 or sum(len(each.data) for each in got.rows) <= size
        end = got.to
