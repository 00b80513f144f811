"""What all shards of a host hold is bounded, and whoever waits gets its turn."""

import threading

import pytest

from kcl_mld.spark.jobs import cut_schedule as budget_module, engine as engine_module
from kcl_mld.spark.jobs.cut_schedule import GRANT_S, DeliveryBudget
from kcl_mld.spark.shard import work as work_module
from tests.unit.spark.shard_kit import WAIT_S, record

LIMIT = 100


def test_whoever_fits_is_let_in_and_what_is_expected_counts_as_held():
    budget = DeliveryBudget(LIMIT)
    assert budget.admit("a", 40, 0, 0.0)
    assert budget.admit("b", 40, 0, 0.0)
    assert not budget.admit("c", 40, 0, 0.0)
    budget.arrived("a")
    assert budget.admit("c", 40, 10, 0.0)


def test_whoever_asked_first_is_let_in_first_however_small_the_others_are():
    budget = DeliveryBudget(LIMIT)
    assert not budget.admit("large", 50, 90, 0.0)
    assert not budget.admit("small", 1, 90, 0.0)
    assert budget.first == "large"
    assert not budget.admit("small", 1, 40, 0.0)
    assert budget.admit("large", 50, 40, 0.0)
    assert budget.admit("small", 1, 40, 0.0)
    assert budget.first is None


def test_a_delivery_that_does_not_come_is_expected_no_longer():
    """A shard that was read to its tip gets none, and a Java daemon says nothing at all then."""
    budget = DeliveryBudget(LIMIT)
    assert budget.admit("idle", LIMIT, 0, 0.0)
    assert not budget.admit("busy", 10, 0, GRANT_S / 2)
    assert budget.admit("busy", 10, 0, GRANT_S)


def test_where_nobody_holds_anything_a_delivery_of_any_size_may_come():
    budget = DeliveryBudget(LIMIT)
    assert budget.admit("huge", 10 * LIMIT, 0, 0.0)
    assert not budget.admit("other", 1, 0, 0.0)


def test_who_leaves_keeps_nobody_waiting():
    budget = DeliveryBudget(LIMIT)
    assert budget.admit("granted", LIMIT, 0, 0.0)
    assert not budget.admit("first", 10, 0, 0.0)
    assert not budget.admit("second", 10, 0, 0.0)
    budget.leave("granted")
    budget.leave("first")
    assert budget.admit("second", 10, 0, 0.0)


def test_who_asks_again_has_its_own_grant_no_longer():
    budget = DeliveryBudget(LIMIT)
    assert budget.admit("a", LIMIT, 0, 0.0)
    assert budget.admit("a", LIMIT, 0, 0.0)


@pytest.mark.parametrize("capabilities", [("tick",), ()])
def test_shards_with_a_backlog_hold_no_more_than_the_host_has_room_for(
    bench, monkeypatch, capabilities
):
    """No batch is due by itself: jobs are cut because there is no room."""
    one = 4 * (1000 + work_module.ROW_BYTES)
    monkeypatch.setattr(engine_module, "HELD_BYTES", 3 * one)
    monkeypatch.setattr(work_module, "FIRST_BYTES", one)
    monkeypatch.setattr(budget_module, "GRANT_S", 1000.0)  # on a busy machine a delivery takes long
    held = []
    real = DeliveryBudget.admit

    def admit(self, who, expected_bytes, held_bytes, now):
        held.append(held_bytes)
        return real(self, who, expected_bytes, held_bytes, now)

    monkeypatch.setattr(DeliveryBudget, "admit", admit)
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
