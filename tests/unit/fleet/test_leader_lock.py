"""Leading by a lock: one leader, replaced in time, that knows when it leads no more."""

import asyncio
import functools
import inspect
from contextlib import asynccontextmanager

import pytest

from kcl_mld.errors import Denied, Throttled, UnknownOutcome, Unreachable
from kcl_mld.fleet.leader_lock import RELEASE_LIMIT_S, LeaderLock
from kcl_mld.fleet.lock_store import LockStore
from kcl_mld.fleet.model.table_layout import Layout
from kcl_mld.fleet.rules.leader_lock import REST_S, LockTiming, Phase
from kcl_mld.leases.rules.discovery import Informed
from kcl_mld.signals.model.conditions import Conditions, Reason
from tests.fakes.lease_world import TABLE, World
from tests.sim.loop import run

DURATION_S, HEARTBEAT_S = 8.0, 4.0


class Fleet:
    """Workers around one lock."""

    def __init__(self):
        self.world = World()
        self.world.create_table()
        self.layout = Layout.named(TABLE)
        self.gained = []
        self.tasks = {}

    def lock(self, name, duration_s=DURATION_S, heartbeat_s=HEARTBEAT_S, **how):
        async def confirm_place():
            """The lock never moves."""

        alone = {
            "on_loss": lambda: None,
            "confirm_place": confirm_place,
            "scanned": lambda: None,
            "may_lead": lambda: True,
            "on_call": lambda: None,
            "on_news": lambda: None,
            "conditions": Conditions(),
        }
        return LeaderLock(
            LockStore(self.world.dynamodb(name)),
            lambda: self.layout.lock,
            name,
            LockTiming(duration_s, heartbeat_s, 10.0),
            self.world.runtime(name),
            on_gain=lambda _former: self.gained.append((name, self.world.clock.monotonic())),
            **alone | how,
        )

    def start(self, name, lock):
        self.tasks[name] = asyncio.create_task(lock.run())

    async def leading(self, name):
        """A lock that had the time to be taken."""
        lock = self.lock(name)
        self.start(name, lock)
        await asyncio.sleep(1)
        return lock

    async def leader_and_follower(self, after_s=1):
        """Locks by name: ``a``, which had that time to be taken, and ``b``, which has just begun."""
        locks = {name: self.lock(name) for name in "ab"}
        self.start("a", locks["a"])
        await asyncio.sleep(after_s)
        self.start("b", locks["b"])
        return locks

    async def stop(self, *names):
        for name in names:
            self.tasks[name].cancel()
            await asyncio.gather(self.tasks.pop(name), return_exceptions=True)

    def item(self):
        return self.world.row("Leader")


@asynccontextmanager
async def fleet():
    made = Fleet()
    yield made
    await made.stop(*list(made.tasks))


def in_virtual_time(surroundings):
    """Tests get what the context manager yields, as their first arguments.

    Args:
        surroundings: makes the context manager.
    """

    def decorate(test):
        async def main(fixtures):
            async with surroundings() as made:
                await test(*(made if isinstance(made, tuple) else (made,)), **fixtures)

        @functools.wraps(test)
        def runs(**fixtures):
            run(main(fixtures))

        # The others are fixtures of pytest.
        signature = inspect.signature(test)
        others = [one for one in signature.parameters.values() if one.name not in {"it", "locks"}]
        runs.__signature__ = signature.replace(parameters=others)
        return runs

    return decorate


on_fleet = in_virtual_time(fleet)


async def leaders(locks):
    return [name for name, lock in locks.items() if await lock.is_leader()]


async def b_leads_in_time(it, locks):
    """Within the time of the lock and one look, and never beside another leader."""
    died_at = it.world.clock.monotonic()
    while not await locks["b"].is_leader():
        assert len(await leaders(locks)) <= 1
        await asyncio.sleep(0.05)
    took_s = it.world.clock.monotonic() - died_at
    assert DURATION_S - HEARTBEAT_S < took_s <= DURATION_S + 2 * HEARTBEAT_S + 0.1


@on_fleet
async def test_of_five_contenders_exactly_one_gets_a_free_lock_in_javas_format(it):
    locks = {name: it.lock(name) for name in "abcde"}
    for name, lock in locks.items():
        assert not await lock.is_leader()
        it.start(name, lock)
    await asyncio.sleep(60)
    (leader,) = await leaders(locks)
    assert [name for name, _at in it.gained] == [leader]
    item = it.item()
    version = item.pop("recordVersionNumber")
    assert item == {
        "leaseKey": {"S": "Leader"},
        "ownerName": {"S": leader},
        "leaseDuration": {"S": "8000"},
        "entityType": {"S": "LEADER"},
        "kclMldAssigned": {"S": f"{leader}-1 {leader}"},
    }
    await asyncio.sleep(HEARTBEAT_S + 0.1)
    assert it.item()["recordVersionNumber"] != version


@on_fleet
async def test_a_dead_leader_is_replaced_within_its_lease_and_one_look(it):
    locks = await it.leader_and_follower(60)
    await asyncio.sleep(60)
    it.world.fault("refuse", "*", times=10**6, worker="a")  # as dead as can be
    await b_leads_in_time(it, locks)
    assert not await locks["a"].is_leader()


@on_fleet
async def test_a_stopped_leader_deletes_the_lock_and_the_next_look_takes_it(it):
    locks = await it.leader_and_follower()
    await asyncio.sleep(10)
    await it.stop("a")
    assert it.item() == {}
    assert await leaders(locks) == []
    await asyncio.sleep(2 * HEARTBEAT_S)
    assert await leaders(locks) == ["b"]


@on_fleet
async def test_a_stopped_leader_does_not_wait_long_for_a_table_that_does_not_answer(it, caplog):
    """The limit has to hold in a task that was cancelled, under each Python."""

    it.start("a", it.lock("a"))
    await asyncio.sleep(1)
    it.world.fault("slow", "DeleteItem", seconds=60.0)
    began = it.world.clock.monotonic()
    with caplog.at_level("WARNING", "mld.fleet"):
        await it.stop("a")
    assert it.world.clock.monotonic() - began < RELEASE_LIMIT_S + 0.5
    assert f"it will expire: no answer within {RELEASE_LIMIT_S:g} s" in caplog.text


@on_fleet
async def test_a_java_leader_that_pauses_is_not_replaced_before_the_time_that_it_stored(it):
    java = it.lock("java", 120.0, 30.0)
    it.start("java", java)
    await asyncio.sleep(1)
    ours = it.lock("ours")
    it.start("ours", ours)
    await asyncio.sleep(100)
    it.world.fault("refuse", "*", times=10**6, worker="java")
    await asyncio.sleep(90)
    assert not await ours.is_leader()
    await asyncio.sleep(50)
    assert await ours.is_leader()
    assert it.item()["leaseDuration"] == {"S": "8000"}


@on_fleet
async def test_who_was_paused_knows_by_its_own_clock_that_its_lock_may_be_taken(it):
    lock = await it.leading("a")
    it.world.fault("slow", "UpdateItem", seconds=30.0)
    await asyncio.sleep(DURATION_S)
    assert lock.phase is Phase.LEADS
    assert not await lock.is_leader()


@on_fleet
async def test_a_leader_that_was_cut_off_goes_on_with_its_own_lock_if_nobody_took_it(it):
    lock = await it.leading("a")
    it.world.fault("refuse", "*", times=10**6, worker="a")
    await asyncio.sleep(60)
    assert not await lock.is_leader()
    it.world.faults.clear()
    await asyncio.sleep(1.1)
    assert await lock.is_leader()


@on_fleet
async def test_who_was_replaced_while_paused_follows(it):
    lock = await it.leading("a")
    it.world.change("Leader", ownerName="b", recordVersionNumber="theirs")
    await asyncio.sleep(HEARTBEAT_S)
    assert lock.phase is Phase.FOLLOWS
    assert it.item()["ownerName"] == {"S": "b"}
    it.world.model.call("DeleteItem", {"TableName": TABLE, "Key": {"leaseKey": {"S": "Leader"}}})
    await asyncio.sleep(HEARTBEAT_S + 0.1)
    assert await lock.is_leader()
    it.world.model.call("DeleteItem", {"TableName": TABLE, "Key": {"leaseKey": {"S": "Leader"}}})
    await asyncio.sleep(HEARTBEAT_S + 0.2)
    assert await lock.is_leader()


@pytest.mark.parametrize("kind", ["lose answer", "lose request", "throttle"])
@pytest.mark.parametrize("operation", ["PutItem", "UpdateItem"])
@on_fleet
async def test_a_lost_answer_changes_nothing_for_long(it, kind, operation):
    lock = it.lock("a")
    it.world.fault(kind, operation, times=1)
    it.start("a", lock)
    await asyncio.sleep(HEARTBEAT_S + 2)
    assert await lock.is_leader()
    it.world.fault(kind, operation, times=2)
    for _ in range(100):
        await asyncio.sleep(0.2)
        assert await lock.is_leader()


@on_fleet
async def test_a_heartbeat_that_was_stored_unseen_is_gone_on_with(it):
    lock = await it.leading("a")
    # Neither the write nor the read after it is answered; the write was stored.
    it.world.fault("lose answer", "UpdateItem", times=1)
    it.world.fault("lose answer", "GetItem", times=1)
    for _ in range(100):
        await asyncio.sleep(0.2)
        assert await lock.is_leader()


@on_fleet
async def test_who_gives_up_rests_and_another_leads(it):
    locks = await it.leader_and_follower()
    await asyncio.sleep(1)
    await locks["a"].release()
    assert not await locks["a"].is_leader()
    await asyncio.sleep(2 * HEARTBEAT_S)
    assert await leaders(locks) == ["b"]
    await it.stop("b")
    await asyncio.sleep(REST_S - 2 * HEARTBEAT_S - 5)
    assert await leaders(locks) == []
    await asyncio.sleep(10)
    assert await leaders(locks) == ["a"]
    await locks["b"].release()
    await locks["b"].release()


@on_fleet
async def test_who_gives_up_while_it_gets_the_lock_does_not_keep_it(it):
    lock = it.lock("a")
    it.world.fault("slow answer", "PutItem", seconds=2.0)
    it.start("a", lock)
    await asyncio.sleep(1)
    assert it.item() != {}
    await lock.release()
    await asyncio.sleep(2)
    assert it.item() == {}
    assert it.gained == []


@on_fleet
async def test_who_gives_up_during_a_heartbeat_does_not_keep_the_lock(it):
    lock = await it.leading("a")
    it.world.fault("slow answer", "UpdateItem", seconds=2.0)
    await asyncio.sleep(HEARTBEAT_S)
    await lock.release()
    assert it.item() == {}
    it.world.fault("slow answer", "UpdateItem", seconds=2.0)
    await asyncio.sleep(REST_S + HEARTBEAT_S + 1)
    it.world.change("Leader", recordVersionNumber="theirs")
    await lock.release()
    assert it.item()["recordVersionNumber"] == {"S": "theirs"}


@on_fleet
async def test_a_restarted_worker_goes_on_with_the_lock_of_its_name(it):
    first = it.lock("a")
    it.start("a", first)
    await asyncio.sleep(1)
    it.world.fault("refuse", "DeleteItem", times=1)
    await it.stop("a")
    assert it.item()["ownerName"] == {"S": "a"}
    again = it.lock("a")
    it.start("a", again)
    await asyncio.sleep(0.1)
    assert await again.is_leader()


@on_fleet
async def test_a_lock_that_was_released_without_being_deleted_is_taken(it):
    it.world.put_item(
        {
            "leaseKey": {"S": "Leader"},
            "ownerName": {"S": "java"},
            "leaseDuration": {"S": "120000"},
            "recordVersionNumber": {"S": "v"},
            "isReleased": {"S": "1"},
        }
    )
    lock = it.lock("a")
    it.start("a", lock)
    await asyncio.sleep(0.1)
    assert await lock.is_leader()
    assert "isReleased" not in it.item()


@on_fleet
async def test_a_lock_that_cannot_be_read_is_left_alone(it, caplog):
    it.world.put_item({"leaseKey": {"S": "Leader"}, "ownerName": {"S": "java"}})
    lock = it.lock("a")
    it.start("a", lock)
    await asyncio.sleep(60)
    assert not await lock.is_leader()
    assert sum("leader lock" in line for line in caplog.messages) == 1


@on_fleet
async def test_a_lock_that_is_never_readable_is_told_each_minute_and_on_readyz(it, caplog):
    """It was told once, and then no lease found a new owner in silence."""

    caplog.set_level("INFO", "mld")
    conditions = Conditions()
    it.world.put_item({"leaseKey": {"S": "Leader"}, "ownerName": {"S": "java"}})
    it.start("a", it.lock("a", conditions=conditions))
    await asyncio.sleep(25)
    assert conditions.current() == ()
    await asyncio.sleep(160)
    (condition,) = conditions.current()
    assert condition.reason is Reason.LOCK_FAILS
    assert f"The leader lock in table {TABLE}" in condition.message
    assert "delete the item" in condition.message
    it.world.model.call("DeleteItem", {"TableName": TABLE, "Key": {"leaseKey": {"S": "Leader"}}})
    await asyncio.sleep(5)
    assert conditions.current() == ()
    said = [line for line in caplog.messages if "no lease gets a new owner" in line]
    assert sum(not line.startswith("Resolved after") for line in said) == 4
    assert sum(line.startswith("Resolved after") for line in caplog.messages) == 1


@on_fleet
async def test_a_lock_that_is_taken_again_and_again_and_never_renewed_is_a_reason(it):
    """It flapped each 8 s, and each look at the lock took the trouble back."""

    conditions = Conditions()
    it.start("a", it.lock("a", conditions=conditions))
    await asyncio.sleep(60)
    refused = Denied("UpdateItem", "AccessDeniedException")
    it.world.fault("refuse", "UpdateItem", times=10**6, worker="a", error=refused)
    await asyncio.sleep(29)
    assert conditions.current() == ()
    for _ in range(60):
        await asyncio.sleep(5)
        (condition,) = conditions.current()
        assert condition.reason is Reason.LOCK_FAILS
        assert "UpdateItem" in condition.message
    assert len(it.gained) > 10
    it.world.faults.clear()
    await asyncio.sleep(20)
    assert conditions.current() == ()


@on_fleet
async def test_a_worker_that_seeks_the_lock_no_more_complains_of_it_no_more(it):
    """As after a rollback to 2.x: it would never have been ready again."""

    conditions = Conditions()
    it.world.put_item({"leaseKey": {"S": "Leader"}, "ownerName": {"S": "java"}})
    it.start("a", it.lock("a", conditions=conditions))
    await asyncio.sleep(60)
    assert conditions.current() != ()
    await it.stop("a")
    assert conditions.current() == ()


@on_fleet
async def test_a_lock_of_hours_that_nobody_renews_is_told_with_what_to_do(it, caplog):
    """Java obeys the stored time, so we do; an operator who knows that its owner is dead helps."""

    conditions = Conditions()
    it.world.put_item(
        {
            "leaseKey": {"S": "Leader"},
            "ownerName": {"S": "java"},
            "leaseDuration": {"S": "7200000"},
            "recordVersionNumber": {"S": "1"},
        }
    )
    it.start("a", it.lock("a", conditions=conditions))
    await asyncio.sleep(3600)
    (condition,) = conditions.current()
    assert condition.reason is Reason.LOCK_FAILS
    assert "Worker java has the leader lock for 7200 s" in condition.message
    assert f"delete the item Leader of table {TABLE}" in condition.message
    it.world.change("Leader", recordVersionNumber="2")
    await asyncio.sleep(1000)
    assert conditions.current() != ()
    await asyncio.sleep(7300)
    assert conditions.current() == ()
    assert it.item()["ownerName"] == {"S": "a"}
    assert any("has not renewed it for minutes" in line for line in caplog.messages)


@on_fleet
async def test_when_the_lock_moves_to_another_table_its_owner_leads_no_more_and_gives_it_up(it):
    it.world.model.call(
        "CreateTable",
        {
            "TableName": "state",
            "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
        },
    )
    place = it.layout.legacy_coordinator
    it.layout = _Moving("state")
    lock = await it.leading("a")
    assert await lock.is_leader()
    assert [one["key"]["S"] for one in it.world.model.items("state")] == ["Leader"]
    assert place.key_name == "key"
    it.layout = Layout.named(TABLE)
    assert not await lock.is_leader()
    await asyncio.sleep(HEARTBEAT_S + 1)
    assert await lock.is_leader()
    assert list(it.world.model.items("state")) == []
    assert it.item()["ownerName"] == {"S": "a"}


class _Moving:
    """A layout whose lock is in a table of its own."""

    def __init__(self, table):
        self.lock = Layout.named(TABLE, coordinator_table=table).legacy_coordinator


@on_fleet
async def test_losing_a_race_is_no_error_and_what_is_not_known_is_raised(it):
    store = LockStore(it.world.dynamodb("a"))
    place = it.layout.lock
    mine = it.lock("a")._fresh()
    theirs = it.lock("b")._fresh()
    assert await store.acquire(place, None, theirs)
    assert not await store.acquire(place, None, mine)
    it.world.fault("lose request", "PutItem")
    with pytest.raises(UnknownOutcome):
        await store.acquire(place, theirs, mine)
    it.world.fault("lose request", "PutItem")
    it.world.fault("refuse", "GetItem")
    with pytest.raises(UnknownOutcome):
        await store.acquire(place, theirs, mine)
    it.world.fault("throttle", "PutItem")
    with pytest.raises(Throttled):
        await store.acquire(place, theirs, mine)
    it.world.fault("refuse", "GetItem")
    with pytest.raises(Unreachable):
        await store.acquire(place, None, mine)
    it.world.fault("lose request", "UpdateItem")
    with pytest.raises(UnknownOutcome):
        await store.heartbeat(place, theirs, mine)
    await store.delete(place, mine)
    assert await store.read(place) == theirs


class Looker:
    """Somebody who scans the table for another purpose, each :data:`HEARTBEAT_S`."""

    def __init__(self, world, name):
        self.store = world.worker(name).store

    async def run(self):
        while True:
            await self.store.scan()
            await asyncio.sleep(HEARTBEAT_S)

    def last(self):
        return self.store.last_scan


@asynccontextmanager
async def followed():
    """a leads, b follows and scans."""
    async with fleet() as it:
        looker = Looker(it.world, "b")
        locks = {"a": it.lock("a"), "b": it.lock("b", scanned=looker.last)}
        it.start("a", locks["a"])
        await asyncio.sleep(1.5)
        it.start("b", locks["b"])
        it.tasks["scans"] = asyncio.create_task(looker.run())
        await asyncio.sleep(60)
        yield it, locks


on_followed = in_virtual_time(followed)


def reads_of(world, name):
    return sum(one[0] == name and one[1] == "GetItem" for one in world.requests)


@on_followed
async def test_who_scans_the_leases_anyway_need_not_read_the_lock(it, locks):
    before = reads_of(it.world, "b")
    await asyncio.sleep(600)
    assert reads_of(it.world, "b") == before
    assert await leaders(locks) == ["a"]


@on_followed
async def test_a_dead_leader_that_a_scan_showed_is_replaced_within_its_lease_and_one_scan(
    it, locks
):
    it.world.fault("refuse", "*", times=10**6, worker="a")
    await b_leads_in_time(it, locks)


@on_followed
async def test_a_lock_that_a_scan_shows_no_more_is_taken_with_the_next_look(it, locks):
    await it.stop("a")
    await asyncio.sleep(1.5 * HEARTBEAT_S)
    assert await leaders(locks) == ["b"]


@on_followed
async def test_who_scans_no_more_reads_the_lock(it, locks):
    await it.stop("scans")
    before = reads_of(it.world, "b")
    await asyncio.sleep(60)
    assert reads_of(it.world, "b") - before > 5
    assert await leaders(locks) == ["a"]


# -- what the lock says besides -------------------------------------------------------------------


@on_fleet
async def test_a_follower_sees_at_its_next_look_that_leases_were_assigned(it):
    news = []
    locks = {"a": it.lock("a"), "b": it.lock("b", on_news=lambda: news.append("b"))}
    it.start("a", locks["a"])
    await asyncio.sleep(1)
    assert locks["b"].informed is Informed.NO
    it.start("b", locks["b"])
    await asyncio.sleep(30)
    assert [locks[name].informed for name in "ab"] == [Informed.LEADS, Informed.ANNOUNCED]
    assert news == ["b"]
    locks["a"].announce()
    await asyncio.sleep(2 * HEARTBEAT_S + 0.1)
    assert news == ["b", "b"]


@on_fleet
async def test_who_begins_or_ceases_to_lead_looks_at_the_leases(it):
    news = []
    it.start("a", it.lock("a", on_news=lambda: news.append("a")))
    await asyncio.sleep(10)
    assert news == ["a"]
    it.world.change("Leader", ownerName="b", recordVersionNumber="v")
    await asyncio.sleep(HEARTBEAT_S + 0.1)
    assert news == ["a", "a"]


@on_fleet
async def test_a_call_reaches_the_leader_with_its_next_heartbeat(it):
    calls = []
    locks = {"a": it.lock("a", on_call=lambda: calls.append("a")), "b": it.lock("b")}
    it.start("a", locks["a"])
    await asyncio.sleep(1)
    locks["b"].call_leader()
    it.start("b", locks["b"])
    await asyncio.sleep(HEARTBEAT_S + 0.1)
    assert calls == ["a"]
    version = it.item()["recordVersionNumber"]
    locks["b"].call_leader()
    await asyncio.sleep(0.1)
    assert it.item()["recordVersionNumber"] == version, "others count from the last heartbeat"
    await asyncio.sleep(HEARTBEAT_S)
    assert calls == ["a", "a"]
    await asyncio.sleep(60)
    assert calls == ["a", "a"]
    assert await leaders(locks) == ["a"]


@on_fleet
async def test_a_call_that_nobody_hears_does_no_harm(it):
    lock = it.lock("b")
    await lock.call()
    assert it.item() == {}
    it.world.fault("refuse", "UpdateItem", times=1)
    await lock.call()


@on_fleet
async def test_a_lock_that_is_not_renewed_is_suspect_until_it_is_taken(it):
    locks = await it.leader_and_follower()
    await asyncio.sleep(30)
    assert not locks["b"].is_suspect
    it.world.fault("refuse", "*", times=10**6, worker="a")
    assert await locks["b"].suspected.wait(DURATION_S + 2 * HEARTBEAT_S)
    assert locks["b"].is_suspect
    await asyncio.sleep(HEARTBEAT_S)
    assert await locks["b"].is_leader()
    assert not locks["b"].is_suspect


@on_fleet
async def test_a_look_that_is_behind_the_table_takes_no_lock(it):
    """A follower's looks are eventually consistent; before it takes the lock it reads consistently."""
    locks = await it.leader_and_follower()
    await asyncio.sleep(30)
    it.world.model.settings.max_lag_s = 60.0
    it.world.model.settings.stale_probability = 1.0
    await asyncio.sleep(300)
    assert await leaders(locks) == ["a"]
    assert it.gained[1:] == []
