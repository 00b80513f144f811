"""What all shards of a host hold is bounded, and whoever waits gets its turn."""

import threading

import pytest

from mld.spark.jobs import engine as engine_module, room as room_module
from mld.spark.jobs.room import GRANT_S, Room
from mld.spark.shard import work as work_module
from tests.unit.spark.shard_kit import WAIT_S, record

LIMIT = 100


def test_whoever_fits_is_let_in_and_what_is_expected_counts_as_held():
    room = Room(LIMIT)
    assert room.admit("a", 40, 0, 0.0)
    assert room.admit("b", 40, 0, 0.0)
    assert not room.admit("c", 40, 0, 0.0)
    room.arrived("a")
    assert room.admit("c", 40, 10, 0.0)


def test_whoever_asked_first_is_let_in_first_however_small_the_others_are():
    room = Room(LIMIT)
    assert not room.admit("large", 50, 90, 0.0)
    assert not room.admit("small", 1, 90, 0.0)
    assert room.first == "large"
    assert not room.admit("small", 1, 40, 0.0)
    assert room.admit("large", 50, 40, 0.0)
    assert room.admit("small", 1, 40, 0.0)
    assert room.first is None


def test_a_delivery_that_does_not_come_is_expected_no_longer():
    """A shard that was read to its tip gets none, and a Java daemon says nothing at all then."""
    room = Room(LIMIT)
    assert room.admit("idle", LIMIT, 0, 0.0)
    assert not room.admit("busy", 10, 0, GRANT_S / 2)
    assert room.admit("busy", 10, 0, GRANT_S)


def test_where_nobody_holds_anything_a_delivery_of_any_size_may_come():
    room = Room(LIMIT)
    assert room.admit("huge", 10 * LIMIT, 0, 0.0)
    assert not room.admit("other", 1, 0, 0.0)


def test_who_leaves_keeps_nobody_waiting():
    room = Room(LIMIT)
    assert room.admit("granted", LIMIT, 0, 0.0)
    assert not room.admit("first", 10, 0, 0.0)
    assert not room.admit("second", 10, 0, 0.0)
    room.leave("granted")
    room.leave("first")
    assert room.admit("second", 10, 0, 0.0)


def test_who_asks_again_has_its_own_grant_no_longer():
    room = Room(LIMIT)
    assert room.admit("a", LIMIT, 0, 0.0)
    assert room.admit("a", LIMIT, 0, 0.0)


@pytest.mark.parametrize("capabilities", [("tick",), ()])
def test_shards_with_a_backlog_hold_no_more_than_the_host_has_room_for(
    bench, monkeypatch, capabilities
):
    """No batch is due by itself: jobs are cut because there is no room."""
    one = 4 * (1000 + work_module.ROW_BYTES)
    monkeypatch.setattr(engine_module, "HELD_BYTES", 3 * one)
    monkeypatch.setattr(work_module, "FIRST_BYTES", one)
    monkeypatch.setattr(room_module, "GRANT_S", 1000.0)  # on a busy machine a delivery takes long
    held = []
    real = Room.admit

    def admit(self, who, expected_bytes, held_bytes, now):
        held.append(held_bytes)
        return real(self, who, expected_bytes, held_bytes, now)

    monkeypatch.setattr(Room, "admit", admit)
    b = bench(batch__maxDelay="1h")
    sessions = [b.session(shard_id=f"s{n}", capabilities=capabilities) for n in range(8)]

    def deliver(session):
        session.daemon.initialize()
        for first in range(1, 21, 4):
            rows = [record(n, data=b"x" * 1000) for n in range(first, first + 4)]
            session.daemon.deliver(*rows)
        session.daemon.shard_ended()

    threads = [threading.Thread(target=deliver, args=[each], daemon=True) for each in sessions]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WAIT_S)
    assert [each.end() for each in sessions] == [None] * 8
    assert max(held) <= 3 * one
    assert sorted(b.sink.rows) == [(f"s{s}", n, 0) for s in range(8) for n in range(1, 21)]
