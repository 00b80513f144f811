"""Adding up what services count."""

from __future__ import annotations

import asyncio

from kcl_mld.observe.metric_store import KEPT_S, MetricStore
from kcl_mld.signals.model.metrics import (
    CHILD_RESTARTED,
    CURRENT_LEASES,
    PROCESS_RECORDS_TIME,
    PROCESS_TASK,
    RECORDS_PROCESSED,
    RENEW_LEASE,
)
from tests.fakes.clock import LoopClock
from tests.sim.loop import run


def values(store, name, held=()):
    (found,) = [dict(one.samples) for one in store.readings(held) if one.family.name == name]
    return found


def in_loop(test):
    async def main():
        await test(LoopClock())

    run(main())


def of(stream, shard, *more):
    return (("stream", stream), ("shard", shard), *more)


def test_counters_begin_at_zero_and_outcomes_are_told_apart():
    async def test(clock):
        store = MetricStore(clock, "s", by_shard=False)
        outcomes = {(("outcome", "success"),): 0.0, (("outcome", "failure"),): 0.0}
        assert values(store, "kcl_lease_renewals_total") == outcomes
        assert values(store, "kcl_records_processed_total") == {(): 0.0}
        store.call(RENEW_LEASE, 0.2, succeeded=True)
        store.call(RENEW_LEASE, 0.4, succeeded=False)
        store.call(RENEW_LEASE, 0.4, succeeded=True)
        assert list(values(store, "kcl_lease_renewals_total").values()) == [2.0, 1.0]
        (times,) = values(store, "kcl_lease_renewal_seconds").values()
        assert (times.count, times.total) == (3, 1.0)

    in_loop(test)


def test_shards_are_one_series_unless_asked_for():
    async def test(clock):
        store = MetricStore(clock, "s", by_shard=False)
        store.add(RECORDS_PROCESSED, 3, shard_id="a")
        store.add(RECORDS_PROCESSED, 4, shard_id="b", stream_id="1:x:2")
        assert values(store, "kcl_records_processed_total") == {(): 7.0}

    in_loop(test)


def test_shards_have_series_of_their_own_and_histograms_none():
    async def test(clock):
        store = MetricStore(clock, "s", by_shard=True)
        assert values(store, "kcl_records_processed_total") == {}
        store.add(RECORDS_PROCESSED, 3, shard_id="a")
        store.add(RECORDS_PROCESSED, 4, shard_id="a")
        store.add(RECORDS_PROCESSED, 5, shard_id="a", stream_id="1:x:2")
        store.add(PROCESS_TASK.success, 1, shard_id="a")
        store.add(PROCESS_RECORDS_TIME, 1.0, shard_id="a")
        store.add(RENEW_LEASE.success, 1)
        assert values(store, "kcl_records_processed_total") == {
            of("s", "a"): 7.0,
            of("1:x:2", "a"): 5.0,
        }
        assert values(store, "kcl_batches_total") == {of("s", "a", ("outcome", "success")): 1.0}
        assert list(values(store, "kcl_process_records_seconds")) == [()]
        assert len(values(store, "kcl_lease_renewals_total")) == 2

    in_loop(test)


def test_series_of_a_shard_that_has_left_are_dropped_after_a_while():
    async def test(clock):
        store = MetricStore(clock, "s", by_shard=True)
        name = "kcl_child_restarts_total"
        for shard in ("stays", "leaves", "returns"):
            store.add(CHILD_RESTARTED, 1, shard_id=shard)
        held = {("s", "stays"), ("s", "returns")}
        assert len(values(store, name, {("s", "stays"), ("s", "leaves")})) == 3
        await asyncio.sleep(KEPT_S - 1)
        assert len(values(store, name, held)) == 3
        await asyncio.sleep(1)
        assert len(values(store, name, held)) == 3  # it was seen last one second less ago
        await asyncio.sleep(KEPT_S)
        assert set(values(store, name, held)) == {of("s", "stays"), of("s", "returns")}

    in_loop(test)


def test_what_has_no_family_is_not_kept():
    async def test(clock):
        store = MetricStore(clock, "s", by_shard=True)
        before = store.readings(())
        store.add(CURRENT_LEASES, 7)
        assert store.readings(()) == before

    in_loop(test)
