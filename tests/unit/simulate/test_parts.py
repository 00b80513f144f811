"""Clock, load, bill, rows and readings of a simulated fleet."""

import math
import random

import pytest

from kcl_mld.leases.model.lease import Lease
from kcl_mld.simulate.readings import Events, Readings
from kcl_mld.simulate.scenario import Load, shares
from kcl_mld.simulate.table import Bill, SimulatedRow, Table


def test_events_happen_in_order_and_those_of_one_moment_as_planned():
    events, seen = Events(), []
    events.at(2.0, lambda: seen.append("late"))
    events.at(1.0, lambda: seen.append("first"))
    events.at(1.0, lambda: events.at(0.5, lambda: seen.append(f"past, now {events.now}")))
    events.run(1.5)
    assert seen == ["first", "past, now 1.0"]
    assert events.now == 1.5
    events.run(2.0)
    assert seen[-1] == "late"


@pytest.mark.parametrize("load", Load)
@pytest.mark.parametrize("shards", [1, 7, 100])
def test_shares_add_up(load, shards):
    found = shares(load, shards, random.Random(1))
    assert len(found) == shards
    assert min(found) > 0
    assert math.isclose(sum(found), 1)


def test_shares_are_of_their_kind():
    rng = random.Random(1)
    assert set(shares(Load.EVEN, 4, rng)) == {0.25}
    zipf = sorted(shares(Load.ZIPF, 100, rng), reverse=True)
    assert math.isclose(zipf[0] / zipf[9], 10)
    hot = sorted(shares(Load.HOT, 100, rng), reverse=True)
    assert math.isclose(sum(hot[:10]), 0.8)
    assert max(shares(Load.RANDOM, 100, rng)) < 3 * min(shares(Load.RANDOM, 100, rng))


def test_a_bill_has_units_as_dynamodb_charges_them():
    bill = Bill()
    bill.scan(500)  # 225 kB: 55 times 4 KiB at half a unit
    assert (bill.reads, bill.read_units) == (1, 27.5)
    bill.scan(10_000)  # five pages
    assert bill.reads == 6
    bill.query(0)
    bill.get()
    bill.get(consistent=True)
    assert bill.read_units == 27.5 + 549.5 + 0.5 + 0.5 + 1
    bill.write(10)
    bill.write(index_units=2)
    assert (bill.writes, bill.write_units) == (11, 13)
    assert Bill(read_units=1e6, write_units=2e6).price(0.125, 0.625) == 1.375


def table_of(*rows, has_index=True):
    return Table({row.key: row for row in rows}, Bill(), has_index=has_index, items=len(rows))


def test_a_row_is_renewed_by_rate():
    row = SimulatedRow("a", 1.0, owner="w", counter=5)
    row.renew_from(10.0, 3.0)
    assert [row.lease(at).lease_counter for at in (9.9, 10.0, 12.9, 13.0, 19.0)] == [5, 6, 6, 7, 9]
    assert row.next_beat_at(19.0) == 22.0
    row.fall_silent(20.0)
    assert row.next_beat_at(20.0) == math.inf
    assert row.lease(100.0).lease_counter == 9


def test_a_row_tells_its_throughput_once_it_was_renewed():
    row = SimulatedRow("a", 7.5, owner="w")
    row.renew_from(10.0, 3.0)
    assert row.lease(9.0).throughput_kbps is None
    assert row.lease(10.0).throughput_kbps == 7.5


def test_a_take_needs_the_counter_that_was_read():
    row = SimulatedRow("a", 1.0)
    table = table_of(row)
    (seen,) = table.scan(0.0)
    assert table.take(seen, "old", 0.5)
    row.renew_from(1.0, 3.0)
    (seen,) = table.scan(1.5)
    assert not table.take(seen, "new", 4.0)
    (seen,) = table.scan(4.0)
    assert table.take(seen, "new", 4.5)
    assert (row.owner, row.lease(9.0).lease_counter) == ("new", 4)
    assert table.bill.writes == 3


def test_a_hand_off_keeps_the_counter_and_the_renewals_of_the_old_owner():
    row = SimulatedRow("a", 1.0)
    table = table_of(row)
    (seen,) = table.scan(0.0)
    assert table.assign(seen, "old", 0.0)
    row.renew_from(1.0, 3.0)
    (seen,) = table.scan(2.0)
    before = row.lease(2.0).lease_counter
    assert table.start_hand_off(seen, "new", 2.0)
    assert not table.start_hand_off(seen, "other", 2.0)
    assert not table.assign(seen, "other", 2.0)
    assert row.lease(2.0).lease_counter == before
    assert row.lease(4.0).lease_counter == before + 1
    assert (row.owner, row.actual_owner) == ("new", "old")
    assert table.keys_of("new") == ["a"]
    assert table.keys_of("old") == []
    assert table.finish_hand_off("a", 5.0)
    assert not table.finish_hand_off("a", 5.0)
    assert row.lease(50.0) == Lease(
        lease_key="a",
        shard_id="a",
        lease_owner="new",
        lease_counter=before + 2,
        throughput_kbps=1.0,
    )


def test_a_change_of_owner_costs_the_index_its_units():
    for has_index, units in ((True, 3), (False, 1)):
        table = table_of(SimulatedRow("a", 1.0), has_index=has_index)
        table.assign(table.scan(0.0)[0], "w", 0.0)
        assert table.bill.write_units == units


def test_a_released_lease_has_nobody():
    row = SimulatedRow("a", 1.0)
    table = table_of(row)
    table.assign(table.scan(0.0)[0], "w", 0.0)
    table.release("a", 1.0)
    assert (row.owner, row.counter, table.keys_of("w")) == (None, 2, [])


def test_what_came_after_the_last_checkpoint_is_read_twice():
    readings = Readings(["a"], checkpoint_every_s=10.0)
    reading = readings.begin("a", "w", 100.0)
    assert readings.next_checkpoint_at(reading, 100.0) == 110.0
    assert readings.next_checkpoint_at(reading, 125.0) == 130.0
    readings.end("a", reading, 127.0, checkpoints=False)
    assert readings.shards["a"].twice_s == 7.0
    assert readings.unread == 1
    readings.begin("a", "v", 160.0)
    assert readings.longest_unread_s(200.0) == 33.0
    assert readings.moves == 1


def test_a_checkpoint_after_the_loss_does_not_count():
    readings = Readings(["a"], checkpoint_every_s=10.0)
    reading = readings.begin("a", "w", 0.0)
    reading.fenced_at = 19.0
    readings.begin("a", "v", 20.0)
    readings.end("a", reading, 21.5, checkpoints=False)
    assert readings.shards["a"].twice_s == 11.5
    assert readings.unread == 0


def test_a_last_checkpoint_after_the_loss_is_refused():
    readings = Readings(["a"], checkpoint_every_s=10.0)
    reading = readings.begin("a", "w", 0.0)
    reading.fenced_at = 14.0
    readings.end("a", reading, 15.0, checkpoints=True)
    assert readings.shards["a"].twice_s == 5.0


def test_who_checkpoints_at_its_end_leaves_nothing_to_read_twice():
    readings = Readings(["a"], checkpoint_every_s=10.0)
    readings.end("a", readings.begin("a", "w", 0.0), 8.0, checkpoints=True)
    readings.begin("a", "w", 9.0)
    assert readings.shards["a"].twice_s == 0
    assert readings.moves == 0


def test_a_shard_that_nobody_has_ever_read_is_no_gap():
    assert Readings(["a"], 10.0).longest_unread_s(500.0) == 0
    readings = Readings(["a"], 10.0)
    readings.end("a", readings.begin("a", "w", 100.0), 200.0, checkpoints=True)
    assert readings.longest_unread_s(500.0) == 300
