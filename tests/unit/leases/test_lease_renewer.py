"""Holding, renewing, checkpointing and losing leases, in virtual time."""

import asyncio
import dataclasses
from contextlib import asynccontextmanager

import pytest

from kcl_mld.config.config import LeaseConfig
from kcl_mld.errors import Denied, LeaseLost, Throttled, UnknownOutcome
from kcl_mld.kernel.model.sequence import SHARD_END, ExtendedSequenceNumber
from kcl_mld.leases.lease_renewer import READ_TRIES, Releases
from kcl_mld.leases.lease_store import LeaseStore
from kcl_mld.leases.model.lease_item import lease_from_item
from kcl_mld.leases.model.lease_request import LeaseRequest
from kcl_mld.leases.model.steering_writes import requesting
from kcl_mld.leases.rules.renewal import calm_periods_s, calm_renewal_due_at, first_renewal_due_at
from tests.fakes.lease_world import TABLE, World, lease
from tests.sim.loop import run

KEY = "shardId-000000000000"
POSITION = ExtendedSequenceNumber("12", 3)
#: F * 0.98 - epsilon
BELIEF_S = 9.775
#: Of KEY: when it is renewed first after it was taken, and how often then.
FIRST_S = first_renewal_due_at(KEY, 0.0, 3.308)
PERIOD_S = calm_renewal_due_at(KEY, 0.0, calm_periods_s(LeaseConfig(table_name=TABLE)))


def with_held(test, count=1, **how):
    """Run ``test(world, renewer)`` with leases taken by "me" at time 0."""

    async def main():
        world = World()
        world.create_table()
        renewer = world.worker("me", **how).renewer
        for number in range(count):
            world.put(lease(number))
            row = await renewer._store.take(lease(number), "me")
            renewer.hold(row, world.clock.monotonic())
        await test(world, renewer)

    run(main())


@asynccontextmanager
async def running(renewer):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(renewer.heartbeat.run())
        yield
        task.cancel()


def stored(world, key=KEY):
    return lease_from_item(world.row(key))


def only(renewer):
    (held,) = renewer.held()
    return held


# -- belief ---------------------------------------------------------------------------------------


def test_a_lease_is_believed_from_the_start_of_the_request_and_not_its_answer():
    async def test(world, renewer):
        world.fault("slow", seconds=1.0)
        world.fault("slow answer", seconds=1.0)
        started_at = world.clock.monotonic()
        await renewer.heartbeat.renew_once()
        assert only(renewer).valid_until == pytest.approx(started_at + BELIEF_S, abs=1e-3)

    with_held(test)


@pytest.mark.parametrize(("most", "has_room"), [(2**31 - 1, True), (3, True), (2, False)])
def test_a_worker_has_room_below_its_greatest_number_of_leases(most, has_room):
    async def test(_world, renewer):
        renewer._config = dataclasses.replace(renewer._config, max_leases_for_worker=most)
        assert renewer.has_room() is has_room

    with_held(test, count=2)


def test_a_lease_of_a_finished_shard_takes_no_room():
    async def test(_world, renewer):
        renewer._config = dataclasses.replace(renewer._config, max_leases_for_worker=2)
        await renewer.checkpoint(KEY, renewer.get(KEY).token, SHARD_END)
        assert len(renewer.held()) == 2
        assert renewer.has_room()

    with_held(test, count=2)


def test_without_renewal_belief_ends_before_the_failover_time():
    async def test(world, renewer):
        held = only(renewer)
        await asyncio.sleep(BELIEF_S - 0.01)
        assert renewer.get(KEY) == held
        await asyncio.sleep(0.02)
        assert renewer.held() == ()
        assert renewer.get(KEY) is None
        assert renewer.get("never held") is None

    with_held(test)


def test_the_end_of_belief_is_told_although_every_request_hangs():
    async def test(world, renewer):
        world.fault("slow", "*", seconds=100, times=99)
        async with running(renewer):
            await renewer.changed.wait()  # the gain
            await renewer.changed.wait()
            assert world.clock.monotonic() == pytest.approx(BELIEF_S, abs=0.01)

    with_held(test)


def test_every_acquisition_has_a_token_of_its_own():
    async def test(world, renewer):
        first = only(renewer)
        second = renewer.hold(first.lease, world.clock.monotonic())
        assert first.token != second.token
        with pytest.raises(LeaseLost):
            await renewer.checkpoint(KEY, first.token, POSITION)
        assert stored(world) == second.lease
        await renewer.drop(KEY, first.token)
        assert not await renewer.release(KEY, first.token)
        assert only(renewer) == second

    with_held(test)


# -- renewal --------------------------------------------------------------------------------------


async def until_calm(world, renewer):
    """The table was well for as long as it takes; the lease was renewed just now."""
    await asyncio.sleep(20)
    before = stored(world).lease_counter
    while stored(world).lease_counter == before:  # noqa: ASYNC110 - it does not tell
        await asyncio.sleep(0.01)
    return before + 1


def test_a_lease_is_renewed_at_a_little_more_than_two_thirds_of_the_failover_time():
    async def test(world, renewer):
        async with running(renewer):
            counter = await until_calm(world, renewer)
            await asyncio.sleep(PERIOD_S * 3 + 0.1)
        assert stored(world).lease_counter == counter + 3
        assert only(renewer).lease == stored(world)

    with_held(test)


def test_after_a_start_renewals_follow_java_s_fixed_rate():
    async def test(world, renewer):
        async with running(renewer):
            await asyncio.sleep(FIRST_S + 3.308 * 2 + 0.1)
        assert stored(world).lease_counter == 1 + 3

    with_held(test)


@pytest.mark.parametrize("kind", ["slow", "slow answer"])
def test_while_the_table_is_slow_renewals_follow_java_s_fixed_rate(kind):
    async def test(world, renewer):
        async with running(renewer):
            counter = await until_calm(world, renewer)
            world.fault(kind, seconds=0.6, times=10**9)
            await asyncio.sleep(PERIOD_S + 3.308 * 3 + 0.7)
            assert stored(world).lease_counter == counter + 4
            world.faults.clear()
            before = await until_calm(world, renewer)
            await asyncio.sleep(PERIOD_S * 2 + 0.1)
            assert stored(world).lease_counter == before + 2
        assert len(renewer.held()) == 1

    with_held(test)


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "slow answer", "seconds": 0.6},
        {"kind": "throttle"},
        {"kind": "refuse", "error": Denied("UpdateItem", "AccessDeniedException")},
    ],
)
def test_one_sign_of_trouble_brings_forward_the_renewals_of_all(fault):
    async def test(world, renewer):
        async with running(renewer):
            await asyncio.sleep(60)
            world.fault(**fault)
            while any(one.times > 0 for one in world.faults):  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.01)
            await asyncio.sleep(1)
            now = world.clock.monotonic()
            holdings = renewer._held._holdings.values()
            ages_s = sorted(now - holding.last_success for holding in holdings)
            assert ages_s[-2] < 3.4, "all but the one that was refused"

    with_held(test, 50)


def test_a_checkpoint_counts_as_a_renewal():
    async def test(world, renewer):
        async with running(renewer):
            counter = await until_calm(world, renewer)
            for _ in range(10):
                await asyncio.sleep(2)
                await renewer.checkpoint(KEY, only(renewer).token, POSITION)
            assert stored(world).lease_counter == counter + 10
            await asyncio.sleep(PERIOD_S - 0.1)
            assert stored(world).lease_counter == counter + 10
            await asyncio.sleep(0.2)
            assert stored(world).lease_counter == counter + 11

    with_held(test)


@pytest.mark.untraced
def test_no_lease_is_lost_while_the_table_serves_fifty_writes_a_second():
    async def test(world, renewer):
        served = asyncio.Semaphore(1)

        async def one_at_a_time(_service, operation, _request):
            if operation == "UpdateItem":
                async with served:
                    await asyncio.sleep(1 / 50)

        async with running(renewer):
            await asyncio.sleep(20)
            renewer._store._dynamodb.before = one_at_a_time
            await asyncio.sleep(100)
            assert len(renewer.held()) == 300
        assert min(stored(world, lease(n).lease_key).lease_counter for n in range(300)) > 10

    with_held(test, 300)


def test_a_renewal_that_hangs_holds_up_none_that_is_due_later():
    async def test(world, renewer):
        keys = [lease(number).lease_key for number in range(30)]
        async with running(renewer):
            await asyncio.sleep(3.4)  # each was renewed once
            world.fault("slow", seconds=60, times=5)
            await asyncio.sleep(30)
            assert len(renewer.held()) == 25
            counters = [
                stored(world, held.lease.lease_key).lease_counter for held in renewer.held()
            ]
            assert len(keys) == 30
            assert min(counters) >= 1 + 1 + 5

    with_held(test, 30)


@pytest.mark.parametrize("kind", ["throttle", "refuse"])
def test_the_first_failure_is_tried_again_soon(kind):
    async def test(world, renewer):
        world.fault(kind, times=2)
        async with running(renewer):
            await asyncio.sleep(FIRST_S + 0.5)
            assert stored(world).lease_counter == 2

    with_held(test)


def test_before_belief_ends_there_is_time_for_two_more_requests_that_time_out():
    async def test(world, renewer):
        silent_s = world.config.read_timeout_s
        async with running(renewer):
            counter = await until_calm(world, renewer)
            for operation in ("UpdateItem", "GetItem"):
                error = UnknownOutcome(operation, "ReadTimeoutError")
                world.fault("lose request", operation, seconds=silent_s, error=error)
            await asyncio.sleep(BELIEF_S)
            assert all(fault.times == 0 for fault in world.faults)
            assert stored(world).lease_counter == counter + 1
            assert len(renewer.held()) == 1
            assert renewer._held.lost == 0

    with_held(test)


def test_a_renewal_that_is_denied_is_tried_twice_more_before_belief_ends():
    async def test(world, renewer):
        await renewer.checkpoint(KEY, only(renewer).token, POSITION)
        world.fault("throttle", times=10**9, error=Denied("UpdateItem", "AccessDeniedException"))
        world.requests.clear()
        async with running(renewer):
            await asyncio.sleep(BELIEF_S - 0.1)
            assert len(world.requests) >= 3
            assert len(renewer.held()) == 1

    with_held(test)


def test_a_worker_without_leases_tells_so_at_java_s_rate():
    async def test(world, renewer):
        await renewer.drop(KEY, only(renewer).token)
        async with running(renewer):
            await asyncio.sleep(3.308 * 2 + 0.1)
        assert world.metrics.values["RenewAllLeases", "CurrentLeases"] == [0, 0]

    with_held(test)


def test_one_failing_renewal_does_not_keep_the_others_from_being_renewed():
    async def test(world, renewer):
        world.fault("throttle", error=Denied("UpdateItem", "AccessDeniedException"))
        outcome = await renewer.heartbeat.renew_once()
        assert sorted(held.lease.lease_counter for held in renewer.held()) == [1, 2, 2]
        assert (outcome.renewed, outcome.unsure) == (2, 1)
        assert world.metrics.values["RenewAllLeases", "Success"] == [0]

    with_held(test, 3)


@pytest.mark.parametrize("fault", ["throttle", "refuse"])
def test_a_failed_renewal_is_tried_again_within_the_round(fault):
    async def test(world, renewer):
        world.fault(fault, times=2)
        outcome = await renewer.heartbeat.renew_once()
        assert (outcome.renewed, outcome.unsure) == (3, 0)
        assert all(held.lease.lease_counter == 2 for held in renewer.held())
        assert outcome.took_s < 3.308

    with_held(test, 3)


def test_a_throttled_table_costs_leases_only_when_their_time_is_up():
    async def test(world, renewer):
        world.fault("throttle", times=10**9)
        async with running(renewer):
            await asyncio.sleep(BELIEF_S - 0.1)
            assert len(renewer.held()) == 2
            await asyncio.sleep(0.2)
            assert renewer.held() == ()

    with_held(test, 2)


def test_a_round_ends_in_time_for_the_next_one():
    async def test(world, renewer):
        world.fault("throttle", times=10**9)
        outcome = await renewer.heartbeat.renew_once()
        assert outcome.unsure == 2
        assert outcome.took_s <= 3.308
        assert "not renewed: 2" in str(outcome)

    with_held(test, 2)


def test_a_renewal_whose_answer_is_lost_keeps_the_lease():
    async def test(world, renewer):
        world.fault("lose answer")
        await renewer.heartbeat.renew_once()
        assert only(renewer).lease == stored(world)

    with_held(test)


def test_a_renewal_of_unknown_outcome_is_found_out_by_the_next():
    async def test(world, renewer):
        world.fault("lose answer", times=10**9)
        world.fault("refuse", "GetItem", times=10**9)
        outcome = await renewer.heartbeat.renew_once()
        assert outcome.unsure == 1
        world.faults.clear()
        await renewer.heartbeat.renew_once()
        assert only(renewer).lease == stored(world)

    with_held(test)


@pytest.mark.parametrize("lost", [2, 3, 4])
def test_a_lease_whose_renewals_were_stored_and_not_answered_is_kept(lost):
    async def test(world, renewer):
        world.fault("lose answer", times=lost)
        await renewer.heartbeat.renew_once()
        assert stored(world).lease_counter > 1 + 2
        await renewer.heartbeat.renew_once()
        assert only(renewer).lease == stored(world)

    with_held(test)


@pytest.mark.parametrize("lost", [2, 3, 4])
def test_one_that_lapsed_meanwhile_is_regained(lost):
    async def test(world, renewer):
        async with running(renewer):
            world.fault("lose answer", times=lost, seconds=5.0)
            await asyncio.sleep(FIRST_S + 5.0 * lost)
            assert renewer.held() == ()
            await asyncio.sleep(2 * PERIOD_S)
            assert len(renewer.held()) == 1
            assert only(renewer).lease.lease_counter == stored(world).lease_counter

    with_held(test)


def test_a_lease_that_another_took_is_lost_and_said_so(caplog):
    async def test(world, renewer):
        await renewer.changed.wait()
        world.change(KEY, leaseCounter=2, leaseOwner="other")
        outcome = await renewer.heartbeat.renew_once()
        assert (outcome.lost, outcome.renewed) == (1, 0)
        assert renewer.held() == ()
        assert await renewer.changed.wait(0)
        assert "worker other has it now" in caplog.text
        assert world.metrics.total("RenewAllLeases", "LostLeases") == 1

    with_held(test)


def test_the_last_owner_of_a_row_that_was_deleted_says_where_it_stood_until_it_is_back(caplog):
    async def test(world, renewer):
        position = ExtendedSequenceNumber("49", 2)
        await renewer.checkpoint(KEY, only(renewer).token, position)
        row = world.row(KEY)
        world.model.call("DeleteItem", {"TableName": TABLE, "Key": {"leaseKey": {"S": KEY}}})
        await renewer.heartbeat.renew_once()
        assert [one.checkpoint for one in renewer.deleted] == [position]
        world.put_item(row)
        await renewer.adopt_own()
        assert renewer.deleted == ()

    with_held(test)
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.getMessage().startswith(
        f"The row of lease {KEY} was deleted; its checkpoint was 49"
    )
    assert f"reset FILE {KEY} --after-sequence-number 49/2 --create" in record.getMessage()


def test_a_finished_lease_that_is_gone_is_no_warning(caplog):
    caplog.set_level("INFO")

    async def test(world, renewer):
        await renewer.checkpoint(KEY, only(renewer).token, SHARD_END)
        world.model.call("DeleteItem", {"TableName": TABLE, "Key": {"leaseKey": {"S": KEY}}})
        await renewer.heartbeat.renew_once()
        assert renewer.held() == ()
        assert world.metrics.total("RenewAllLeases", "LostLeases") == 1

    with_held(test)
    (record,) = [record for record in caplog.records if "deleted" in record.getMessage()]
    assert record.levelname == "INFO"
    assert record.getMessage() == (
        f"No longer holding lease {KEY} of a finished shard: its row was deleted"
    )


def test_the_lease_that_waited_longest_goes_first():
    async def test(world, renewer):
        await asyncio.sleep(1)
        await renewer.checkpoint(KEY, renewer.get(KEY).token, POSITION)
        world.requests.clear()
        await renewer.heartbeat.renew_once()
        order = [request["Key"]["leaseKey"]["S"] for _, _, request in world.requests]
        assert order == [lease(1).lease_key, lease(2).lease_key, KEY]

    with_held(test, 3)


def test_three_hundred_leases_are_renewed_with_bounded_concurrency():
    async def test(world, renewer):
        world.fault("slow", seconds=0.1, times=10**9)
        outcome = await renewer.heartbeat.renew_once()
        assert outcome.renewed == 300
        assert outcome.took_s == pytest.approx(300 / 20 * 0.1, abs=0.05)

    with_held(test, 300)


def test_how_many_leases_can_be_renewed_follows_from_the_mean_of_the_answers():
    async def test(world, renewer):
        assert renewer.heartbeat.report.most_renewable() is None
        world.fault("slow", seconds=0.1)
        await renewer.heartbeat.renew_once()
        assert renewer.heartbeat.report.most_renewable() == 661
        world.fault("slow", seconds=1.1)
        await renewer.heartbeat.renew_once()
        assert renewer.heartbeat.report.most_renewable() == 330  # as with 0.2 s

    with_held(test)


def test_a_slow_round_warns_and_counts(caplog):
    async def test(world, renewer):
        world.fault("slow answer", seconds=6)
        await renewer.heartbeat.renew_once()
        assert "more than half of failoverTimeMillis" in caplog.text
        bound = (
            "after 6.000 s and maxLeaseRenewalThreads = 20 this worker can renew about 11 leases"
        )
        assert f"{bound} in time, and holds 1" in caplog.text
        assert world.metrics.total("RenewAllLeases", "SlowRounds") == 1

    with_held(test)


def test_a_defect_in_one_renewal_harms_no_other_lease(caplog):
    async def test(world, renewer):
        world.fault("slow", error=RuntimeError("a defect"), seconds=0.001)
        outcome = await renewer.heartbeat.renew_once()
        assert (outcome.renewed, outcome.unsure) == (2, 1)
        assert "failed unexpectedly" in caplog.text
        await renewer.heartbeat.renew_once()
        counters = [stored(world, held.lease.lease_key).lease_counter for held in renewer.held()]
        assert sorted(counters) == [2, 3, 3]

    with_held(test, 3)


@pytest.mark.parametrize("where", ["due", "postpone", "note_trouble", "next_due_at"])
def test_a_defect_in_a_round_does_not_end_the_heartbeat(where, caplog):
    async def test(world, renewer):
        real, defects = getattr(renewer._held, where), [RuntimeError("a defect")]

        def broken(*arguments, **named):
            if defects:
                raise defects.pop()
            return real(*arguments, **named)

        setattr(renewer._held, where, broken)
        if where in {"postpone", "note_trouble"}:
            world.fault("refuse", error=Denied("UpdateItem", "AccessDeniedException"))
        async with running(renewer):
            await asyncio.sleep(9.5)
        assert stored(world).lease_counter >= 2
        assert "Renewing leases failed unexpectedly" in caplog.text

    with_held(test)


def test_an_unreachable_table_costs_one_line_of_the_log_a_round(caplog):
    async def test(world, renewer):
        world.fault("refuse", times=10**9)
        async with running(renewer):
            await asyncio.sleep(30)
        lines = [record for record in caplog.records if "Could not renew" in record.getMessage()]
        assert len(lines) <= 10
        assert "ConnectTimeoutError" in lines[0].getMessage()

    with_held(test, 30)


def test_a_release_that_is_cancelled_is_counted():
    async def test(world, renewer):
        world.fault("slow", seconds=100)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await renewer.release(KEY, only(renewer).token)
        assert renewer.unreleased == 1
        assert renewer.held() == ()

    with_held(test)


def test_java_s_metrics_are_sent():
    async def test(world, renewer):
        await renewer.heartbeat.renew_once()
        values = world.metrics.values
        assert values["RenewAllLeases", "CurrentLeases"] == [2]
        assert values["RenewAllLeases", "LostLeases"] == [0]
        assert values["RenewAllLeases", "Success"] == [1]
        assert values["RenewAllLeases", "RenewLease.Success"] == [1, 1]
        assert len(values["RenewAllLeases", "Time"]) == 1
        assert len(values["RenewAllLeases", "RenewLease.Time"]) == 2

    with_held(test, 2)


# -- late answers ---------------------------------------------------------------------------------


def test_a_lapsed_lease_that_nobody_took_is_regained_under_a_new_token():
    async def test(world, renewer):
        before = only(renewer)
        await asyncio.sleep(11)
        assert renewer.held() == ()
        assert (await renewer.heartbeat.renew_once()).renewed == 1
        after = only(renewer)
        assert after.token != before.token
        assert after.lease == stored(world)
        assert after.valid_until == pytest.approx(11 + BELIEF_S, abs=0.01)

    with_held(test)


def test_a_lapsed_lease_that_another_took_is_forgotten():
    async def test(world, renewer):
        await asyncio.sleep(11)
        world.change(KEY, leaseOwner="other", leaseCounter=2)
        await renewer.heartbeat.renew_once()
        world.requests.clear()
        await renewer.heartbeat.renew_once()
        assert renewer.held() == ()
        assert world.requests == []

    with_held(test)


def test_an_answer_that_comes_too_late_does_not_revive_the_old_holding():
    """Its consumer was told to stop; the next round begins a new one on the newest row."""

    async def test(world, renewer):
        before = only(renewer)
        await asyncio.sleep(BELIEF_S - 0.5)
        world.fault("slow answer", seconds=1)
        async with running(renewer):
            await asyncio.sleep(1.1)
            assert renewer.held() == ()
            await asyncio.sleep(3.308)
            after = only(renewer)
        assert after.token != before.token
        assert after.lease == stored(world)

    with_held(test)


@pytest.mark.parametrize("close_at", [0, 0.6])
def test_a_stopping_worker_does_not_pick_a_lapsed_lease_up_again(close_at):
    async def test(world, renewer):
        await asyncio.sleep(BELIEF_S - 0.5)
        world.fault("slow answer", seconds=1)
        async with running(renewer):
            await asyncio.sleep(close_at)
            renewer.stop_regaining()
            await asyncio.sleep(9)
            assert renewer.held() == ()

    with_held(test)


def test_a_regain_that_is_answered_while_stopping_is_not_held():
    async def test(world, renewer):
        await asyncio.sleep(11)
        world.fault("slow answer", seconds=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(renewer.heartbeat.renew_once())
            await asyncio.sleep(0.5)
            renewer.stop_regaining()
        assert renewer.held() == ()

    with_held(test)


def test_a_late_checkpoint_of_an_earlier_holding_is_ordered_before_the_regain():
    async def test(world, renewer):
        old = only(renewer)
        world.fault("slow answer", seconds=30)
        async with asyncio.TaskGroup() as group:
            group.create_task(renewer.checkpoint(KEY, old.token, POSITION))
            await asyncio.sleep(11)
            await renewer.heartbeat.renew_once()
        new = only(renewer)
        assert new.token != old.token
        assert new.lease == stored(world)
        assert new.lease.checkpoint == POSITION

    with_held(test)


@pytest.mark.parametrize("seconds", [1, 9.9])
def test_a_lease_dropped_while_its_renewal_is_under_way_stays_dropped(seconds):
    async def test(world, renewer):
        world.fault("slow answer", seconds=seconds)
        async with asyncio.TaskGroup() as group:
            group.create_task(renewer.heartbeat.renew_once())
            await asyncio.sleep(0.5)
            await renewer.drop(KEY, only(renewer).token)
        assert renewer.held() == ()

    with_held(test)


# -- checkpoints ----------------------------------------------------------------------------------


def test_a_checkpoint_is_stored_and_counts_as_a_heartbeat():
    async def test(world, renewer):
        await asyncio.sleep(5)
        await renewer.checkpoint(KEY, only(renewer).token, POSITION, child_shard_ids=("x",))
        held = only(renewer)
        assert held.lease == stored(world)
        assert (held.lease.checkpoint, held.lease.child_shard_ids) == (POSITION, ("x",))
        assert held.valid_until == pytest.approx(5 + BELIEF_S, abs=0.01)

    with_held(test)


def test_a_checkpoint_on_a_row_that_moved_loses_the_lease_at_once():
    async def test(world, renewer):
        world.change(KEY, leaseCounter=9)
        with pytest.raises(LeaseLost):
            await renewer.checkpoint(KEY, only(renewer).token, POSITION)
        assert renewer.held() == ()

    with_held(test)


def test_a_checkpoint_after_the_end_of_belief_is_refused_without_a_write():
    async def test(world, renewer):
        token = only(renewer).token
        await asyncio.sleep(10)
        world.requests.clear()
        with pytest.raises(LeaseLost, match="not renewed in time"):
            await renewer.checkpoint(KEY, token, POSITION)
        assert world.requests == []
        with pytest.raises(LeaseLost, match="not held"):
            await renewer.checkpoint(KEY, token, POSITION)

    with_held(test)


@pytest.mark.parametrize(
    ("fault", "error"), [("throttle", Throttled), ("lose request", UnknownOutcome)]
)
def test_a_failed_checkpoint_is_not_carried_into_the_table_by_the_next_renewal(fault, error):
    async def test(world, renewer):
        before = only(renewer)
        world.fault(fault)
        world.fault("refuse", "GetItem")
        with pytest.raises(error):
            await renewer.checkpoint(KEY, before.token, POSITION)
        assert only(renewer) == before
        await renewer.heartbeat.renew_once()
        assert stored(world).checkpoint == before.lease.checkpoint

    with_held(test)


def test_a_checkpoint_of_unknown_outcome_that_was_stored_is_known_after_the_next_renewal():
    async def test(world, renewer):
        world.fault("lose answer")
        world.fault("refuse", "GetItem")
        with pytest.raises(UnknownOutcome):
            await renewer.checkpoint(KEY, only(renewer).token, POSITION)
        await renewer.heartbeat.renew_once()
        assert only(renewer).lease == stored(world)
        assert stored(world).checkpoint == POSITION

    with_held(test)


def test_renewals_and_checkpoints_of_one_lease_never_overlap():
    async def test(world, renewer):
        world.fault("slow", seconds=0.003, times=10**9)
        world.fault("slow answer", seconds=0.003, times=10**9)
        token = only(renewer).token

        async def checkpoints():
            for number in range(500):
                await renewer.checkpoint(KEY, token, ExtendedSequenceNumber(str(number)))

        async def renewals():
            for _ in range(500):
                await renewer.heartbeat.renew_once()

        async with asyncio.TaskGroup() as group:
            group.create_task(checkpoints())
            group.create_task(renewals())
        assert only(renewer).lease == stored(world)
        assert stored(world).lease_counter == 1 + 1000

    with_held(test)


def test_during_a_hand_off_renewals_and_checkpoints_go_on_and_the_release_finishes_it():
    async def test(world, renewer):
        world.change(KEY, leaseOwner="next", checkpointOwner="me")
        await renewer.heartbeat.renew_once()
        held = only(renewer)
        await renewer.checkpoint(KEY, held.token, POSITION)
        assert stored(world).checkpoint_owner == "me"
        assert await renewer.release(KEY, held.token)
        row = stored(world)
        assert (row.lease_owner, row.checkpoint_owner, row.checkpoint) == ("next", None, POSITION)

    with_held(test)


@pytest.mark.parametrize("write", ["renewal", "checkpoint"])
def test_whichever_write_meets_a_hand_off_tells_of_it_at_once(write):
    async def test(world, renewer):
        await renewer.changed.wait()  # the gain
        world.change(KEY, leaseOwner="next", checkpointOwner="me")
        if write == "renewal":
            await renewer.heartbeat.renew_once()
        else:
            await renewer.checkpoint(KEY, only(renewer).token, POSITION)
        assert await renewer.changed.wait(0)
        assert only(renewer).lease.is_handed_over
        await renewer.heartbeat.renew_once()
        assert not await renewer.changed.wait(0)

    with_held(test)


def test_a_refresh_finds_what_a_checkpoint_without_an_answer_has_left():
    async def test(world, renewer):
        token = only(renewer).token
        world.fault("lose answer")
        world.fault("refuse", "GetItem")
        with pytest.raises(UnknownOutcome):
            await renewer.checkpoint(KEY, token, POSITION)
        assert only(renewer).lease.checkpoint != POSITION
        held = await renewer.refresh(KEY, token)
        assert held == only(renewer)
        assert held.lease == stored(world)
        assert held.lease.checkpoint == POSITION

    with_held(test)


@pytest.mark.parametrize("how", ["old token", "lapsed", "taken", "slow"])
def test_a_lost_lease_is_not_refreshed(how):
    async def test(world, renewer):
        token = only(renewer).token
        if how == "old token":
            token = "other"
        elif how == "lapsed":
            await asyncio.sleep(20)
        elif how == "taken":
            world.change(KEY, leaseOwner="other", leaseCounter=5)
        else:
            world.fault("slow answer", seconds=20)
        with pytest.raises(LeaseLost):
            await renewer.refresh(KEY, token)
        assert len(renewer.held()) == (how == "old token")

    with_held(test)


# -- letting go -----------------------------------------------------------------------------------


def test_a_released_lease_is_free_in_the_table_and_no_longer_held():
    async def test(world, renewer):
        assert await renewer.release(KEY, only(renewer).token)
        assert renewer.held() == ()
        assert stored(world).lease_owner is None
        assert await renewer.changed.wait(0)

    with_held(test)


@pytest.mark.parametrize(
    ("failures", "owner"), [(0, None), (READ_TRIES - 1, None), (READ_TRIES, "next")]
)
def test_a_lease_is_handed_over_unless_its_next_owner_is_known_to_have_left(failures, owner):
    answers = [Throttled("GetItem", "x")] * failures

    async def has_left(worker):
        assert worker == "next"
        if answers:
            raise answers.pop()
        return True

    async def test(world, renewer):
        world.change(KEY, leaseOwner="next", checkpointOwner="me")
        assert await renewer.release(KEY, only(renewer).token)
        assert (stored(world).lease_owner, stored(world).checkpoint_owner) == (owner, None)
        assert renewer.releases == Releases(released=owner is None, handed_over=owner is not None)

    with_held(test, has_left=has_left)


def test_rows_that_name_a_worker_that_has_stopped_are_released():
    async def test(world, renewer):
        renewer.stop_regaining()
        world.put(
            lease(1, lease_owner="me"),
            lease(2, lease_owner="me", checkpoint_owner="other"),
            lease(3, lease_owner="other"),
        )
        assert await renewer.release_left()
        assert stored(world).lease_owner == "me"  # it is held
        assert world.owners()[lease(1).lease_key] is None
        world.change(lease(2).lease_key, checkpointOwner=None)
        await renewer.release(KEY, only(renewer).token)
        assert not await renewer.release_left()
        assert list(world.owners().values()) == [None, None, None, "other"]
        assert renewer.releases == Releases(released=3)

    with_held(test)


def test_a_lease_whose_release_failed_is_released_by_the_last_look():
    async def test(world, renewer):
        world.fault("throttle", times=3)
        assert not await renewer.release(KEY, only(renewer).token)
        assert renewer.unreleased == 1
        assert not await renewer.release_left()
        assert stored(world).lease_owner is None
        assert renewer.unreleased == 0

    with_held(test)


def test_a_release_is_tried_a_few_times_and_then_left_to_lapse():
    async def test(world, renewer):
        token = only(renewer).token
        world.fault("throttle", times=2)
        assert await renewer.release(KEY, token)
        again = renewer.hold(await renewer._store.take(stored(world), "me"), 0.0)
        world.fault("throttle", times=3)
        assert not await renewer.release(KEY, again.token)
        assert renewer.unreleased == 1
        assert renewer.held() == ()
        assert stored(world).lease_owner == "me"

    with_held(test)


def test_a_lease_that_was_left_behind_counts_until_it_has_expired():
    """A stop minutes later said that leases were left, which others had long since."""

    async def test(world, renewer):
        world.fault("throttle", times=3)
        assert not await renewer.release(KEY, only(renewer).token)
        await asyncio.sleep(29)
        assert renewer.unreleased == 1
        await asyncio.sleep(2)
        assert renewer.unreleased == 0

    with_held(test)


def test_a_lease_that_was_left_behind_and_taken_again_is_not_counted():
    async def test(world, renewer):
        world.fault("throttle", times=3)
        assert not await renewer.release(KEY, only(renewer).token)
        again = renewer.hold(await renewer._store.take(stored(world), "me"), 0.0)
        assert renewer.unreleased == 0
        assert await renewer.release(KEY, again.token)
        assert renewer.unreleased == 0

    with_held(test)


def test_releasing_what_another_has_is_no_release():
    async def test(world, renewer):
        world.change(KEY, leaseOwner="other", leaseCounter=5)
        assert not await renewer.release(KEY, only(renewer).token)
        assert renewer.held() == ()

    with_held(test)


def test_a_dropped_lease_stays_in_the_table_and_is_no_longer_renewed():
    async def test(world, renewer):
        await renewer.drop(KEY, only(renewer).token)
        await renewer.heartbeat.renew_once()
        assert stored(world).lease_owner == "me"
        assert stored(world).lease_counter == 1

    with_held(test)


# -- start ----------------------------------------------------------------------------------------


def test_at_start_rows_that_name_us_are_renewed_and_held_and_others_left_alone():
    async def main():
        world = World()
        world.create_table()
        world.put(
            lease(1, lease_owner="me", lease_counter=5),
            lease(2, lease_owner="me", lease_counter=5),
            lease(3, lease_owner="other", lease_counter=5),
            lease(4),
        )
        world.change(lease(2).lease_key, checkpointOwner="other")
        renewer = world.worker("me").renewer
        await renewer.adopt_own()
        assert only(renewer).lease == stored(world, lease(1).lease_key)
        assert stored(world, lease(1).lease_key).lease_counter == 6
        assert stored(world, lease(2).lease_key).lease_counter == 5
        await renewer.adopt_own()  # what is held already is not touched
        assert stored(world, lease(1).lease_key).lease_counter == 6

    run(main())


def test_an_own_row_that_cannot_be_renewed_at_start_is_left_to_the_taker(caplog):
    async def main():
        world = World()
        world.create_table()
        world.put(lease(1, lease_owner="me"), lease(2, lease_owner="me"))
        renewer = world.worker("me").renewer
        scan = await world.store().scan()
        world.change(lease(1).lease_key, leaseOwner="other", leaseCounter=3)
        world.fault("throttle", times=1)
        await renewer.adopt_own(scan.leases)
        assert len(renewer.held()) <= 1
        assert "Could not resume lease" in caplog.text

    run(main())


def test_two_processes_with_one_id_never_notice_each_other():
    """Why worker ids must be unique: the counter alone can't tell them apart."""

    async def main():
        world = World()
        world.create_table()
        world.put(lease(lease_owner="me"))
        twins = [world.worker("me", seed).renewer for seed in (1, 2)]
        for twin in twins:
            await twin.adopt_own()
        for _ in range(10):
            for twin in twins:
                await twin.heartbeat.renew_once()
        return [len(twin.held()) for twin in twins]

    assert run(main()) == [1, 1]


# -- what people ask for --------------------------------------------------------------------------


def asked(verb, **fields):
    return LeaseRequest(request_id="r1", verb=verb, holder="me", expires_s=900.0, **fields)


RESET = asked("reset", sequence_number="12", sub_sequence_number=3)
PAUSE = asked("pause", until_s=500.0)
RELEASE = asked("release")


async def ask(world, renewer, request):
    """The token under which the holder has been asked."""
    await renewer.heartbeat.renew_once()
    person = world.dynamodb("person")
    asking = requesting(only(renewer).lease, request, 0.0)
    await person.update_item(TableName=TABLE, **asking)
    await renewer.heartbeat.renew_once()
    assert only(renewer).lease.request == request
    return only(renewer).token


def test_a_release_whose_answer_is_lost_leaves_the_lease_to_who_took_it_meanwhile():
    async def test(world, renewer):
        token = await ask(world, renewer, RELEASE)
        world.fault("lose answer", seconds=3.0)
        carrying_out = asyncio.ensure_future(renewer.carry_out(KEY, token, RELEASE, 50.0))
        await asyncio.sleep(1.0)
        assert await renewer._store.take(stored(world), "other")
        assert await carrying_out
        assert renewer.held() == ()
        assert stored(world).lease_owner == "other"

    with_held(test)


@pytest.mark.parametrize("request_", [RESET, PAUSE, RELEASE], ids=lambda one: one.verb)
@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
def test_a_lease_is_held_again_only_when_its_row_is_known(request_, fault):
    """Who went on from the row as it was would undo what has been carried out."""

    async def test(world, renewer):
        token = await ask(world, renewer, request_)
        world.fault(fault)
        world.fault("refuse", "GetItem")
        assert not await renewer.carry_out(KEY, token, request_, 50.0)
        assert renewer.held() == ()
        await renewer.heartbeat.renew_once()
        is_released = request_ is RELEASE and fault == "lose answer"
        expected = [] if is_released else [stored(world)]
        assert [one.lease for one in renewer.held()] == expected

    with_held(test)


def test_a_worker_that_stops_says_of_a_row_that_is_not_known_that_it_may_name_it():
    async def test(world, renewer):
        token = await ask(world, renewer, RESET)
        renewer.stop_regaining()
        world.fault("lose answer")
        world.fault("refuse", "GetItem")
        assert not await renewer.carry_out(KEY, token, RESET, 50.0)
        assert (renewer.held(), renewer.unreleased) == ((), 1)

    with_held(test)


def test_a_request_that_was_refused_is_brought_again_by_the_next_renewal():
    async def test(world, renewer):
        token = await ask(world, renewer, RESET)
        world.fault("throttle")
        assert not await renewer.carry_out(KEY, token, RESET, 50.0)
        assert only(renewer).lease.request is None
        await renewer.heartbeat.renew_once()
        token = only(renewer).token
        assert only(renewer).lease.request == RESET
        assert await renewer.carry_out(KEY, token, RESET, 50.0)
        assert only(renewer).token != token
        assert only(renewer).lease == stored(world)
        assert stored(world).checkpoint == POSITION

    with_held(test)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_defect_while_a_request_is_carried_out_costs_the_request_alone(
    is_written, caplog, monkeypatch
):
    carry_out = LeaseStore.carry_out

    async def defective(self, lease, request, at_s):
        if is_written:
            await carry_out(self, lease, request, at_s)
        raise ZeroDivisionError("a defect")

    async def test(world, renewer):
        token = await ask(world, renewer, RESET)
        monkeypatch.setattr(LeaseStore, "carry_out", defective)
        assert not await renewer.carry_out(KEY, token, RESET, 50.0)
        (error,) = [one for one in caplog.records if one.levelname == "ERROR"]
        assert error.getMessage().startswith(f"{KEY}: reset failed unexpectedly and is withdrawn")
        assert renewer.held() == ()
        await renewer.heartbeat.renew_once()
        assert only(renewer).lease == stored(world)
        assert stored(world).request is None
        assert stored(world).has_done(RESET) is is_written

    with_held(test)


def test_a_request_that_a_defect_met_and_that_cannot_be_withdrawn_is_tried_again(monkeypatch):
    async def defective(*_):
        raise ZeroDivisionError("a defect")

    async def test(world, renewer):
        token = await ask(world, renewer, RESET)
        with monkeypatch.context() as patched:
            patched.setattr(LeaseStore, "carry_out", defective)
            world.fault("throttle")
            assert not await renewer.carry_out(KEY, token, RESET, 50.0)
        await renewer.heartbeat.renew_once()
        assert only(renewer).lease.request == RESET
        assert await renewer.carry_out(KEY, only(renewer).token, RESET, 50.0)

    with_held(test)


@pytest.mark.parametrize(
    "changed",
    [{"checkpoint": "SHARD_END", "leaseCounter": 4}, {"leaseOwner": "next", "checkpointOwner": "me"}],
)  # fmt: skip
def test_nothing_is_done_to_a_row_that_turns_out_to_be_finished_or_handed_over(changed):
    async def test(world, renewer):
        token = await ask(world, renewer, RELEASE)
        before = only(renewer).lease
        assert before.lease_counter == 3
        world.change(KEY, **changed)
        assert not await renewer.carry_out(KEY, token, RELEASE, 50.0)
        assert stored(world).request == RELEASE
        assert stored(world).actual_owner == "me"

    with_held(test)
