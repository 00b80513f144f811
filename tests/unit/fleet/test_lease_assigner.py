"""The leader's loop, in virtual time over the fake table."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from kcl_mld.errors import Denied, Throttled
from kcl_mld.fleet.lease_assigner import LOOK_TRIES, LeaseAssigner
from kcl_mld.fleet.model.worker_life import FailedLife, Instance
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.signals.runtime import Runtime
from tests.fakes.clock import CountingIds
from tests.fakes.fleet_items import Lead
from tests.fakes.lease_world import World, every, lease
from tests.sim.loop import run

A, B, C, D = (f"shardId-{number:012d}" for number in range(4))


class Leader:
    """One worker that may lead, and the metrics of a fleet."""

    def __init__(self, world, *workers, is_read=None):
        parts = world.worker("me")
        self.world = world
        self.store, self.renewer = parts.store, parts.renewer
        self.lead = Lead()
        self.workers = list(workers) or ["me"]
        self.old = []
        self.silent = {}
        self.failed = []
        self.forgotten = []
        self.noted = []
        self.instances = {}
        self.deleted = []
        self.expected = []
        self.refuses = None
        self.refuses_once = None
        self.conditions = Conditions()
        self.assigner = LeaseAssigner(
            self.store,
            self.renewer,
            self,
            AssignmentLimits(),
            "me",
            Runtime(
                clock=world.clock,
                rng=random.Random(1),
                ids=CountingIds("id"),
                metrics=world.metrics,
                offload=None,
            ),
            self.expected.append,
            conditions=self.conditions,
            is_read=is_read or every,
        )

    def now_s(self):
        return self.world.clock.wall()

    async def read(self, scan):
        return self.in_scan(scan)

    def in_scan(self, _scan):
        now_s = int(self.world.clock.wall())
        ages = {name: self.silent.get(name, now_s) for name in self.workers}
        found = (
            WorkerMetrics(name, at_s, instance=self.instances.get(name))
            for name, at_s in ages.items()
        )
        return (*found, *self.old)

    def failed_in(self, _scan):
        return tuple(self.failed)

    async def note(self, life):
        self.noted.append(life.instance)
        if self.refuses is not None:
            raise self.refuses
        self.failed.append(life)

    async def forget(self, life):
        self.forgotten.append(life.instance)
        if self.refuses is not None:
            raise self.refuses

    async def delete(self, item):
        once, self.refuses_once = self.refuses_once, None
        if (error := self.refuses or once) is not None:
            raise error
        self.deleted.append(item.worker_id)

    async def look(self):
        return await self.assigner.look_once(self.lead)

    def scans(self):
        return sum(one[1] == "Scan" for one in self.world.requests)

    def owner(self, key):
        row = self.world.row(key)
        return row.get("leaseOwner", {}).get("S"), row.get("checkpointOwner", {}).get("S")

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.assigner.run(self.lead))
        await asyncio.sleep(0.01)
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def with_leader(test, *workers, **parts):
    async def main():
        world = World()
        world.create_table()
        await test(world, Leader(world, *workers, **parts))

    run(main())


def test_beside_rows_of_others_nothing_is_assigned_and_nothing_fails():
    async def test(world, leader):
        world.put(lease(0), lease(1, lease_key="1:s:2:shardId-1"))
        assert await leader.look() is None
        async with leader.running():
            await asyncio.sleep(60)
        assert leader.owner(A) == (None, None)
        assert leader.conditions.current() == ()
        assert set(world.metrics.values["LeaseAssignmentManager", "Success"]) == {1}

    with_leader(test)


def test_leases_without_an_owner_get_one_at_the_first_look():
    async def test(world, leader):
        world.put(*(lease(number) for number in range(4)))
        outcome = await leader.look()
        assert sorted(leader.owner(key)[0] for key in (A, B, C, D)) == ["me", "me", "you", "you"]
        assert sorted(leader.expected) == [
            key for key in (A, B, C, D) if leader.owner(key)[0] == "me"
        ]
        assert "Assigned 4 leases, began 0 hand-offs (leases: 4, workers: 2)" in str(outcome)
        assert all(world.row(key)["leaseCounter"] == {"N": "1"} for key in (A, B, C, D))

    with_leader(test, "me", "you")


def test_a_new_leader_looks_at_once():
    async def test(world, leader):
        leader.lead.is_mine = False
        world.put(lease(0))
        async with leader.running():
            await asyncio.sleep(5)  # it has followed
            leader.lead.is_mine = True
            leader.assigner.wake()
            await asyncio.sleep(0.1)  # two calls of the table
            assert leader.owner(A) == ("me", None)

    with_leader(test)


def test_a_leader_that_has_just_started_waits_a_moment_for_those_that_start_with_it():
    async def test(world, leader):
        leader.lead.is_mine = False
        for number in range(2):
            world.put(lease(number))
        async with leader.running():
            leader.lead.is_mine = True
            leader.assigner.wake()
            await asyncio.sleep(0.1)
            leader.workers.append("other")
            await asyncio.sleep(0.2)
            assert {leader.owner(key) for key in (A, B)} == {("me", None), ("other", None)}

    with_leader(test)


def test_a_follower_writes_nothing_but_remembers_what_its_own_scans_show():
    async def test(world, leader):
        leader.lead.is_mine = False
        world.put(lease(0, lease_owner="dead"), lease(1))
        async with leader.running():
            await leader.store.scan()
            await asyncio.sleep(4)
            requests = len(world.requests)
            await asyncio.sleep(3)
            assert len(world.requests) == requests
            leader.lead.is_mine = True
            leader.assigner.wake()
            await asyncio.sleep(0.3)
            assert leader.owner(A) == ("dead", None)
            assert leader.owner(B) == ("me", None)
            await asyncio.sleep(3)  # ten seconds after the scan of the follower
            assert leader.owner(A) == ("me", None)

    with_leader(test)


def test_who_died_is_known_to_whoever_leads_next():
    """A follower saw its lease expire; a new leader once knew nothing of that."""

    async def test(world, leader):
        leader.silent["you"] = int(world.clock.wall())
        leader.lead.is_mine = False
        world.put(lease(0, lease_owner="you"))
        async with leader.running():
            for _ in range(8):  # it follows, and scans for purposes of its own
                await leader.store.scan()
                await asyncio.sleep(2)
            world.put(lease(0, lease_owner="they", lease_counter=9), lease(1), lease(2))
            leader.lead.is_mine = True
            leader.assigner.lead(None)
            await asyncio.sleep(0.3)
            assert {leader.owner(B)[0], leader.owner(C)[0]} == {"me"}

    with_leader(test, "me", "you")


def test_the_leader_whose_lock_expired_gets_nothing_before_it_reports():
    async def test(world, leader):
        leader.silent["you"] = int(world.clock.wall())
        world.put(*(lease(number) for number in range(4)))
        leader.assigner.lead("you")
        await leader.look()
        assert {leader.owner(key)[0] for key in (A, B, C, D)} == {"me"}
        leader.silent.clear()
        await asyncio.sleep(1)
        await leader.look()
        assert {leader.owner(key) for key in (A, B, C, D)} == {("me", None), ("you", "me")}

    with_leader(test, "me", "you")


def test_metrics_of_a_worker_are_deleted_when_the_first_of_its_leases_expires():
    """The others expire later, and the leader may end before that."""

    async def test(world, leader):
        leader.silent["you"] = int(world.clock.wall())
        world.put(lease(0, lease_owner="you"), lease(1, lease_owner="me"))
        await leader.look()
        await asyncio.sleep(11)
        world.put(lease(2, lease_owner="you"))
        await leader.look()
        assert leader.owner(A) == ("me", None)
        assert leader.owner(C) == ("you", None)
        assert leader.deleted == ["you"]

    with_leader(test, "me", "you")


def failed(number, *, lease_key=None, lived_s=5):
    return FailedLife(
        instance=f"i{number}",
        worker_id=f"x{number}",
        lived_s=lived_s,
        failed_at_s=number,
        why="its child failed at initialize",
        lease_key=lease_key,
        position=None if lease_key is None else "77",
    )


def test_newcomers_wait_where_others_failed_and_the_log_names_the_last_one(caplog):
    async def test(world, leader):
        world.put(*(lease(number, lease_owner="me") for number in range(4)))
        await leader.look()
        leader.failed = [failed(1)]
        await leader.look()
        await asyncio.sleep(1)
        leader.workers.append("new")
        leader.silent["new"] = int(world.clock.wall())
        await leader.look()
        assert leader.assigner.waiting() == {"new": 10.0}

    with_leader(test)
    assert (
        "Worker new gets no leases until its reports show that it has run for 10 s: workers failed "
        "soon after their start; the last of them was x1 after 5 s: its child failed at initialize"
    ) in caplog.text


def test_a_lease_at_which_all_workers_fail_is_named_once(caplog):
    async def test(world, leader):
        world.put(lease(0, lease_owner="me"))
        leader.failed = [failed(1, lease_key=A, lived_s=5000), failed(2, lease_key=A)]
        for _ in range(3):
            await leader.look()

    with_leader(test)
    named = f"Lease {A}: all workers that failed recently failed at it, at position 77"
    assert caplog.text.count(named) == 1


def test_items_of_failed_processes_are_deleted_after_a_quiet_while(caplog):
    async def test(world, leader):
        world.put(lease(0, lease_owner="me"))
        leader.failed = [failed(1), failed(2)]
        await leader.look()
        await asyncio.sleep(590)
        await leader.look()
        assert leader.forgotten == []
        await asyncio.sleep(20)
        leader.refuses = Denied("DeleteItem", "AccessDenied")
        await leader.look()
        assert leader.forgotten == ["i1", "i2"]
        leader.lead.is_mine = False
        await leader.look()
        assert leader.forgotten == ["i1", "i2"]

    with_leader(test)


def test_a_process_that_was_killed_soon_after_its_start_is_noted_once():
    async def test(world, leader):
        world.put(lease(0, lease_owner="me"), lease(1, lease_owner="w1"))
        await leader.look()
        leader.workers.append("w1")
        leader.instances["w1"] = Instance("i1", 0)
        await leader.look()
        leader.silent["w1"] = int(world.clock.wall())
        await asyncio.sleep(11)
        leader.refuses = Denied("PutItem", "AccessDenied")
        await leader.look()
        assert leader.noted == ["i1"]
        leader.refuses = None
        leader.lead.is_mine = False
        await leader.look()
        assert leader.noted == ["i1"]
        leader.lead.is_mine = True
        for _look in range(3):
            await leader.look()
        assert leader.noted == ["i1", "i1"]
        assert [one.worker_id for one in leader.failed] == ["w1"]

    with_leader(test)


def test_newcomers_wait_where_others_crashed_and_the_log_says_so(caplog):
    async def test(world, leader):
        world.put(*(lease(number, lease_owner="me") for number in range(4)))
        await leader.look()
        await asyncio.sleep(1)
        leader.workers.append("first")
        leader.silent["first"] = int(world.clock.wall())
        await leader.look()
        assert leader.assigner.waiting() == {}
        for key in (A, B):
            row = lease(int(key[-1]), lease_owner="first", lease_counter=7)
            world.put(row)
        await leader.look()
        await asyncio.sleep(10.5)
        await leader.look()
        leader.workers[-1] = "second"
        leader.silent["second"] = int(world.clock.wall())
        await leader.look()
        assert leader.assigner.waiting() == {"second": 10.0}
        await asyncio.sleep(11)
        leader.silent.clear()
        await leader.look()
        assert leader.assigner.waiting() == {}

    with caplog.at_level("INFO", "mld.fleet"):
        with_leader(test, "me")
    assert (
        "Worker second gets no leases until its reports show that it has run for 10 s"
        in caplog.text
    )
    assert "Worker second no longer waits for leases" in caplog.text


def test_a_lease_whose_counter_stands_still_moves_as_soon_as_it_may():
    async def test(world, leader):
        world.put(lease(0, lease_owner="dead"))
        async with leader.running():
            await asyncio.sleep(9.9)
            assert leader.owner(A) == ("dead", None)
            await asyncio.sleep(0.2)
            assert leader.owner(A) == ("me", None)

    with_leader(test)


def test_a_lease_that_is_renewed_in_time_is_left_alone():
    async def test(world, leader):
        world.put(lease(0, lease_owner="java"))
        leader.workers = ["me", "java"]
        async with leader.running():
            for counter in range(1, 20):
                await asyncio.sleep(9.5)
                world.change(A, leaseCounter=counter)
            assert leader.owner(A) == ("java", None)

    with_leader(test)


def test_a_renewal_at_the_last_moment_keeps_the_lease():
    async def test(world, leader):
        world.put(lease(0, lease_owner="java", lease_counter=3))
        await leader.look()
        await asyncio.sleep(10.1)
        world.fault("slow", "UpdateItem", seconds=1)
        looking = asyncio.create_task(leader.look())
        await asyncio.sleep(0.5)
        world.change(A, leaseCounter=4)
        outcome = await looking
        assert leader.owner(A) == ("java", None)
        assert outcome.raced == 1
        assert "changed meanwhile: 1" in str(outcome)

    with_leader(test)


def test_a_new_worker_gets_its_share_by_hand_offs_and_an_owner_here_hears_of_it_at_once():
    async def test(world, leader):
        world.put(lease(0, lease_owner="me"), lease(1, lease_owner="me"))
        await leader.renewer.adopt_own()
        await leader.look()
        await asyncio.sleep(1)
        leader.workers = ["me", "you"]
        outcome = await leader.look()
        assert "began 1 hand-off" in str(outcome)
        (moved,) = [key for key in (A, B) if leader.owner(key) == ("you", "me")]
        assert leader.renewer.get(moved).lease.is_handed_over
        assert leader.expected == []

    with_leader(test)


def test_a_lease_that_a_stopping_worker_hands_to_the_leader_is_taken_up_at_the_next_look():
    async def test(world, leader):
        world.put(
            lease(0, lease_owner="me", checkpoint_owner="you"),
            lease(1, lease_owner="you"),
            lease(2, lease_owner="me"),
        )
        leader.renewer.hold(await leader.store.get(C, consistent=True), world.clock.monotonic())
        await leader.look()
        assert leader.expected == [A]

    with_leader(test, "me", "you")


def test_a_hand_off_of_an_own_lease_is_met_by_a_renewal_when_the_table_does_not_answer():
    async def test(world, leader):
        world.put(lease(0, lease_owner="me"), lease(1, lease_owner="me"))
        await leader.renewer.adopt_own()
        await leader.look()
        leader.workers = ["me", "you"]
        throttled = Throttled("UpdateItem", "ThrottlingException")
        world.fault("slow answer", "UpdateItem", seconds=1)
        looking = asyncio.create_task(leader.look())
        await asyncio.sleep(0.5)
        world.fault("refuse", "UpdateItem", error=throttled)
        assert not (await looking).failed
        assert not any(held.lease.is_handed_over for held in leader.renewer.held())
        await leader.renewer.heartbeat.renew_once()
        assert sum(held.lease.is_handed_over for held in leader.renewer.held()) == 1

    with_leader(test)


def test_an_own_lease_that_is_let_go_while_it_is_to_be_handed_over_is_no_failure():
    async def test(world, leader):
        world.put(lease(0, lease_owner="me"), lease(1, lease_owner="me"))
        await leader.renewer.adopt_own()
        await leader.look()
        leader.workers = ["me", "you"]
        world.fault("slow answer", "UpdateItem", seconds=1)
        looking = asyncio.create_task(leader.look())
        await asyncio.sleep(0.5)
        world.fault("slow answer", "UpdateItem", seconds=2)
        (moved,) = [key for key in (A, B) if leader.owner(key) == ("you", "me")]
        await leader.renewer.release(moved, leader.renewer.get(moved).token)
        assert not (await looking).failed

    with_leader(test)


def test_looks_are_as_rare_as_they_may_be_and_calls_in_a_row_make_few():
    async def test(world, leader):
        world.put(lease(0, lease_owner="java"))
        leader.workers = ["java"]
        async with leader.running():
            await asyncio.sleep(1)
            before = leader.scans()
            for _ in range(10):
                leader.assigner.wake()
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert leader.scans() - before == 2  # the first at once, all others in one
            before = leader.scans()
            for counter in range(1, 11):
                await asyncio.sleep(2.5)
                world.change(A, leaseCounter=counter)
            assert leader.scans() - before in (9, 10, 11)

    with_leader(test)


def test_a_look_whose_writes_fail_is_repeated_soon():
    async def test(world, leader):
        world.put(lease(0))
        world.fault("refuse", "UpdateItem", error=Throttled("UpdateItem", "x"))
        async with leader.running():
            await asyncio.sleep(0.2)
            assert "leaseOwner" not in world.row(A)
            await asyncio.sleep(0.1)
            assert "leaseOwner" in world.row(A)
            assert leader.lead.releases == 0

    with_leader(test)


def test_looks_that_fail_in_a_row_give_the_lead_away(caplog):
    async def test(world, leader):
        world.fault("refuse", "Scan", times=6)
        async with leader.running():
            await asyncio.sleep(14)
            assert leader.lead.releases == 0
            world.fault("refuse", "Scan", times=7)
            await asyncio.sleep(16)
            assert leader.lead.releases == 1
        assert "7 times in a row" in caplog.text
        successes = world.metrics.values["LeaseAssignmentManager", "Success"]
        assert successes[:7] == [0, 0, 0, 0, 0, 0, 1]

    with_leader(test)


def test_a_leader_that_may_not_write_is_not_ready_until_another_leads_for_a_minute():
    async def test(world, leader):
        world.put(lease(0))
        error = Denied("UpdateItem", "AccessDeniedException", "no")
        world.fault("refuse", "UpdateItem", times=10**6, error=error)
        async with leader.running():
            await asyncio.sleep(30)
            assert leader.lead.releases == 1
            (condition,) = leader.conditions.current()
            assert condition.reason is Reason.ASSIGNING_FAILS
            assert "Allow dynamodb:UpdateItem" in condition.message
            await asyncio.sleep(70)
            assert leader.conditions.current() == ()
            leader.lead.is_mine = True
            await asyncio.sleep(30)
            assert leader.conditions.current() != ()
            leader.lead.is_mine = True
            world.faults.clear()
            await asyncio.sleep(10)
            assert leader.conditions.current() == ()

    with_leader(test)


def test_a_worker_whose_leases_are_no_longer_assigned_complains_no_more():
    async def test(world, leader):
        world.put(lease(0))
        world.fault("refuse", "Scan", times=10**6, error=Throttled("Scan", "ThrottlingException"))
        async with leader.running():
            await asyncio.sleep(30)
            assert leader.conditions.current() != ()
        assert leader.conditions.current() == ()

    with_leader(test)


def test_a_defect_gives_the_lead_away_too(caplog):
    async def test(world, leader):
        world.fault("refuse", "Scan", times=9, error=ValueError("a defect"))
        async with leader.running():
            await asyncio.sleep(16)
            assert leader.lead.releases == 1
        assert "failed unexpectedly" in caplog.text

    with_leader(test)


def test_a_move_that_cannot_be_written_fails_the_look_and_holds_up_no_other():
    async def test(world, leader):
        world.put(lease(0), lease(1))
        world.fault("refuse", "UpdateItem", error=Throttled("UpdateItem", "x"))
        outcome = await leader.look()
        assert outcome.failed == 1
        assert "not written: 1" in str(outcome)
        assert sorted(leader.owner(key)[0] or "" for key in (A, B)) == ["", "me"]
        assert leader.assigner is not None
        await leader.look()
        assert [leader.owner(key)[0] for key in (A, B)] == ["me", "me"]

    with_leader(test)


def test_a_hand_off_that_could_not_begin_is_tried_again_at_the_next_look():
    async def test(world, leader):
        world.put(*(lease(number, lease_owner="you") for number in range(2)))
        world.fault("refuse", "UpdateItem", error=Throttled("UpdateItem", "x"))
        assert (await leader.look()).failed == 1
        await asyncio.sleep(1)
        await leader.look()
        owners = [leader.owner(key) for key in (A, B)]
        assert sorted(owners, key=str) == [("me", "you"), ("you", None)]

    with_leader(test, "me", "you")


def test_who_leads_no_more_writes_nothing_more():
    async def test(world, leader):
        world.put(lease(0), lease(1))
        leader.old = [WorkerMetrics("ancient", int(world.clock.wall()) - 90_000)]
        leader.lead.is_mine = False
        outcome = await leader.look()
        assert outcome.plan.moves
        assert outcome.moved == ()
        assert leader.owner(A) == (None, None)
        assert leader.deleted == []

    with_leader(test)


def test_one_failed_call_does_not_hide_a_death_from_the_next_leader():
    async def test(world, leader):
        leader.old = [WorkerMetrics("ancient", int(world.clock.wall()) - 90_000)]
        leader.refuses_once = Throttled("DeleteItem", "x")
        await leader.look()
        assert leader.deleted == ["ancient"]

    with_leader(test)


@pytest.mark.parametrize("refuses", [None, Throttled("DeleteItem", "x")])
def test_metrics_of_workers_that_left_long_ago_are_deleted(refuses):
    async def test(world, leader):
        leader.old = [WorkerMetrics("ancient", int(world.clock.wall()) - 90_000)]
        leader.refuses = refuses
        await leader.look()
        assert leader.deleted == ([] if refuses else ["ancient"])

    with_leader(test)


def test_leases_of_streams_that_are_not_read_are_not_assigned():
    async def test(world, leader):
        world.put(lease(0), lease(1))
        await leader.look()
        assert leader.owner(A) == (None, None)
        assert leader.owner(B) == ("me", None)

    with_leader(test, is_read=lambda one: one.lease_key != A)


def test_a_worker_that_stops_names_who_goes_on_and_keeps_its_leases_meanwhile():
    async def test(world, leader):
        leader.lead.is_mine = False
        world.put(lease(0, lease_owner="me"), lease(1, lease_owner="me"), lease(2))
        await leader.renewer.adopt_own()
        assert await leader.assigner.start_hand_offs() == {A, B}
        assert [leader.owner(key) for key in (A, B)] == [("you", "me")] * 2
        assert len(leader.renewer.held()) == 2
        await leader.renewer.release(A, leader.renewer.get(A).token)
        assert leader.owner(A) == ("you", None)

    with_leader(test, "me", "you")


@pytest.mark.parametrize(("operation", "times"), [("Scan", LOOK_TRIES), ("UpdateItem", 1)])
def test_a_worker_that_stops_names_nobody_where_the_table_does_not_answer(operation, times):
    async def test(world, leader):
        world.put(lease(0, lease_owner="me"))
        await leader.renewer.adopt_own()
        world.fault("refuse", operation, times=times)
        assert await leader.assigner.start_hand_offs() == set()
        assert leader.owner(A) == ("me", None)

    with_leader(test, "me", "you")


def test_a_worker_that_stops_looks_again_where_the_table_refused():
    async def test(world, leader):
        world.put(lease(0, lease_owner="me"))
        await leader.renewer.adopt_own()
        world.fault("refuse", "Scan", times=LOOK_TRIES - 1)
        assert await leader.assigner.start_hand_offs() == {A}

    with_leader(test, "me", "you")


def test_a_lease_that_was_given_away_meanwhile_is_not_handed_over():
    async def test(world, leader):
        world.put(lease(0, lease_owner="me"))
        world.fault("slow", "UpdateItem", seconds=1)
        naming = asyncio.create_task(leader.assigner.start_hand_offs())
        await asyncio.sleep(0.5)
        world.change(A, leaseOwner="other", leaseCounter=4)
        assert await naming == set()

    with_leader(test, "me", "you")
