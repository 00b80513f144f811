"""Every judge convicts: one planted fault per rule, and a sound fleet that is acquitted."""

import asyncio
import dataclasses
import json

import pytest

from kcl_mld import app
from kcl_mld.app import scheduler
from kcl_mld.children.consuming.consumer_context import ConsumerContext, ConsumerShutdown
from kcl_mld.children.consuming.shard_consumer import ShardConsumer
from kcl_mld.children.record_processor import RecordProcessor
from kcl_mld.fleet import leader_lock
from kcl_mld.fleet.model.worker_life import FailedLife, failed_life_to_item
from kcl_mld.fleet.rules.assignment import leaving, planning
from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
from kcl_mld.fleet.rules.assignment.looks import FleetMemory
from kcl_mld.fleet.rules.crash_loop import CrashLoop
from kcl_mld.fleet.rules.leader_lock import LockMove
from kcl_mld.fleet.rules.worker_sightings import WorkerSightings
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases import lease_store
from kcl_mld.leases.lease_store import LeaseStore
from kcl_mld.leases.model.lease_request import SteerVerb
from kcl_mld.leases.model.lease_writes import taking
from kcl_mld.ops.lease_steering import LeaseSteering
from kcl_mld.ops.rules.lineage import plan_lineage
from kcl_mld.shards.shard_end import ShardEnd
from tests.fakes.dynamodb_model import Write
from tests.sim import steering
from tests.sim.children import Manners
from tests.sim.fleet import TABLE, Fleet, judge
from tests.sim.loop import run
from tests.sim.plan import Plan

CALM = Plan(seed=1, workers=2, shards=2, chaos_s=30)
STEERED = Plan(seed=3, workers=2, shards=2, chaos_s=300, steers=True)


def convicted_rules(plan, build):
    return {violation.rule for violation in judge(plan, build).violations}


def with_kinesis(change):
    """Workers whose GetRecords answers went through ``change``."""

    class Changed:
        def __init__(self, kinesis):
            self._kinesis = kinesis

        def __getattr__(self, name):
            return getattr(self._kinesis, name)

        async def get_records(self, **request):
            answer = json.loads(await self._kinesis.get_records(**request))
            change(answer)
            return json.dumps(answer).encode()

    def build(config, ports, stream):
        return app.build(config, dataclasses.replace(ports, kinesis=Changed(ports.kinesis)), stream)

    return build


def with_worker(change):
    """Workers that ``change`` has tampered with after they were wired."""

    def build(config, ports, stream):
        worker = app.build(config, ports, stream)
        change(worker)
        return worker

    return build


def test_a_sound_fleet_is_acquitted():
    assert convicted_rules(dataclasses.replace(CALM, reshard_every_s=10.0), app.build) == set()


def test_a_record_that_is_dropped_on_its_way_is_missed():
    def drop(answer):
        del answer["Records"][1:2]

    assert "S1" in convicted_rules(CALM, with_kinesis(drop))


def test_records_that_come_twice_to_one_child_are_noticed():
    def repeat(answer):
        answer["Records"] += [
            {**record, "SequenceNumber": str(int(record["SequenceNumber"]))}
            for record in answer["Records"][-1:]
        ]

    assert "S1" in convicted_rules(CALM, with_kinesis(repeat))


def test_a_checkpoint_beyond_what_was_processed_is_noticed():
    def skip_ahead(worker):
        store = worker.coordinator.store
        checkpoint = store.checkpoint

        async def further(lease, position, **more):
            if position.sentinel is None:
                position = ExtendedSequenceNumber(str(int(position.sequence_number) + 10**30))
            return await checkpoint(lease, position, **more)

        store.checkpoint = further

    assert "S1" in convicted_rules(
        dataclasses.replace(CALM, manners=Manners((1.0, 2.0))), with_worker(skip_ahead)
    )


def test_a_shard_that_is_ended_too_early_is_noticed():
    def end(answer):
        if "NextShardIterator" not in answer:
            answer["Records"] = []

    plan = dataclasses.replace(CALM, reshard_every_s=5.0, put_every_s=0.2)
    assert "S1" in convicted_rules(plan, with_kinesis(end))


def test_a_checkpoint_that_moves_back_is_noticed():
    def go_back(worker):
        store = worker.coordinator.store
        checkpoint = store.checkpoint
        count = 0

        async def back(lease, position, **more):
            nonlocal count
            count += 1
            return await checkpoint(lease, position if count % 3 else TRIM_HORIZON, **more)

        store.checkpoint = back

    assert "S2" in convicted_rules(CALM, with_worker(go_back))


def test_a_write_to_the_lease_of_another_is_noticed():
    def meddle(worker):
        store = worker.coordinator.store
        run = worker.coordinator.renewer.heartbeat.run

        async def meddling():
            await asyncio.sleep(10)
            for lease in (await store.scan()).leases:
                await store.renew(lease)
            await run()

        worker.coordinator.renewer.heartbeat.run = meddling

    assert "S2" in convicted_rules(CALM, with_worker(meddle))


KEY = "shardId-000000000000"


def row(owner, counter, checkpoint="TRIM_HORIZON"):
    item = {
        "leaseKey": {"S": KEY},
        "leaseCounter": {"N": str(counter)},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": "0"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
    }
    return item if owner is None else item | {"leaseOwner": {"S": owner}}


def verdict_on_a_counter_that_fits_again(holder, *, dropped_from, next_owner):
    """``holder`` writes to a row that was deleted, made anew and taken by ``next_owner``."""

    async def made():
        return Fleet(dataclasses.replace(CALM, workers=0))

    fleet = run(made())
    court = fleet.court
    court.by_counter |= {"java1", "java2", "java3"}
    court.foreigners.add("operator")

    def write(actor, before, after):
        court.actor = actor
        fleet.judges.table.wrote(Write(0.0, "UpdateItem", TABLE, before, after, {}))

    anew = row(next_owner, 1)
    write(dropped_from, None, row(None, 0))
    write(dropped_from, row(None, 0), row(dropped_from, 1))
    if dropped_from == holder:
        write("operator", row(dropped_from, 1), None)
        write(next_owner, None, row(None, 0))
        write(next_owner, row(None, 0), anew)
    else:
        write(next_owner, row(dropped_from, 1), anew := row(next_owner, 2))
    assert court.violations == []
    counter = int(anew["leaseCounter"]["N"])
    write(holder, anew, row(next_owner, counter + 1))
    write(holder, row(next_owner, counter + 1), row(next_owner, counter + 2, "SHARD_END"))
    said = [violation.text for violation in court.violations if violation.rule == "S2"]
    return [text.split()[1] for text in said]


@pytest.mark.parametrize("next_owner", ["java1", "w1"])
def test_java_of_2x_cannot_know_that_a_row_was_deleted_and_came_to_the_same_counter(next_owner):
    assert not verdict_on_a_counter_that_fits_again(
        "java2", dropped_from="java2", next_owner=next_owner
    )


@pytest.mark.parametrize(
    ("holder", "dropped_from", "next_owner"),
    [
        ("w1", "w1", "java1"),  # ours names the owner
        ("java2", "java3", "java1"),  # taken, not deleted
    ],
)
def test_nobody_else_writes_to_a_row_because_its_counter_fits(holder, dropped_from, next_owner):
    told = verdict_on_a_counter_that_fits_again(
        holder, dropped_from=dropped_from, next_owner=next_owner
    )
    assert {"renewed", "checkpointed"} <= set(told)


def test_a_child_shard_that_starts_before_its_parent_is_done_is_noticed(monkeypatch):
    async def nothing_blocks(_self, _lease):
        return None

    async def no_end(_self, _lease, children, **traits):
        await create(_self, _lease, children, **traits)
        await asyncio.sleep(30)

    create = ShardEnd.create_child_leases
    monkeypatch.setattr(ShardEnd, "blocking_parent", nothing_blocks)
    monkeypatch.setattr(ShardEnd, "create_child_leases", no_end)
    plan = dataclasses.replace(CALM, reshard_every_s=5.0, shards=1, chaos_s=60, failover_s=2.0)
    assert "S3" in convicted_rules(plan, app.build)


def test_a_worker_that_believes_for_too_long_is_noticed():
    def build(config, ports, stream):
        if config.worker_id == "w1":
            leases = dataclasses.replace(config.leases, failover_s=60.0)
            config = dataclasses.replace(config, leases=leases)
        return app.build(config, ports, stream)

    plan = dataclasses.replace(CALM, shards=6, failover_s=3.0, manners=Manners(checkpoints="late"))
    assert "S4" in convicted_rules(plan, build)


FREEZING = dataclasses.replace(
    CALM,
    failover_s=2.0,
    put_every_s=0.2,
    chaos_s=60,
    faults=("freeze",),
    fault_every_s=4.0,
    manners=Manners((0.0, 2.0)),
)


def unbelieved(build=app.build):
    """What was sent for leases in which the sender did not believe."""
    violations = judge(FREEZING, build).violations
    return [violation.text for violation in violations if "did not believe" in violation.text]


def test_a_worker_that_goes_on_delivering_when_it_wakes_up_is_noticed(monkeypatch):
    monkeypatch.setattr(ConsumerContext, "current", lambda hold: hold.held)
    monkeypatch.setattr(ConsumerShutdown, "lease_lost", lambda _shutdown: None)
    assert any("processRecords" in text for text in unbelieved())


def test_a_worker_that_checkpoints_when_it_wakes_up_without_a_look_at_the_clock_is_noticed():
    def forget_time(worker):
        worker.coordinator.renewer._held.has_lapsed = lambda holding: holding.ended

    assert any("a checkpoint" in text for text in unbelieved(with_worker(forget_time)))


def test_a_worker_that_looks_at_the_clock_when_it_wakes_up_is_acquitted():
    assert not unbelieved()


def s8(plan, build):
    return [one.text for one in judge(plan, build).violations if one.rule == "S8"]


def test_ticks_as_they_should_be_are_acquitted():
    plan = dataclasses.replace(CALM, reshard_every_s=10.0, manners=Manners(tick_s=0.5))
    verdict = judge(plan, app.build)
    assert verdict.violations == ()
    assert verdict.counts["tick"] > 100


def test_a_tick_that_nobody_asked_for_is_noticed(monkeypatch):
    monkeypatch.setattr(RecordProcessor, "tick_due_at", property(lambda _self: 0.0))
    assert any("nobody asked for" in text for text in s8(CALM, app.build))


def test_an_item_that_java_cannot_read_is_noticed():
    class Careless:
        def __init__(self, dynamodb):
            self._dynamodb = dynamodb

        def __getattr__(self, name):
            return getattr(self._dynamodb, name)

        async def put_item(self, **request):
            item = request["Item"] | {"checkpointSubSequenceNumber": {"S": "0"}}
            return await self._dynamodb.put_item(**request | {"Item": item})

    def build(config, ports, stream):
        ports = dataclasses.replace(ports, dynamodb=Careless(ports.dynamodb))
        return app.build(config, ports, stream)

    assert "S5" in convicted_rules(CALM, build)


def test_a_message_out_of_turn_is_noticed():
    class Stuttering:
        def __init__(self, child):
            self._child = child

        def __getattr__(self, name):
            return getattr(self._child, name)

        async def write(self, data):
            await self._child.write(data + data)

    class Launcher:
        def __init__(self, children):
            self._children = children

        async def start(self, *arguments):
            return Stuttering(await self._children.start(*arguments))

    def build(config, ports, stream):
        ports = dataclasses.replace(ports, children=Launcher(ports.children))
        return app.build(config, ports, stream)

    assert "S6" in convicted_rules(CALM, build)


def test_a_task_that_outlives_its_worker_is_noticed():
    def stray(worker):
        run = worker.scheduler.run
        tasks = []

        async def running(*watching):
            tasks.append(asyncio.get_running_loop().create_task(asyncio.sleep(1e6)))
            return await run(*watching)

        worker.scheduler.run = running

    assert "S7" in convicted_rules(CALM, with_worker(stray))


def test_a_child_that_outlives_its_worker_is_noticed():
    class Immortal:
        def __init__(self, child):
            self._child = child

        def __getattr__(self, name):
            return getattr(self._child, name)

        async def close_stdin(self):
            pass

        async def wait(self):
            return 0

        async def read(self):
            return b"" if self._child.exit_code is not None else await self._child.read()

    def build(config, ports, stream):
        children = ports.children
        start = children.start

        async def starting(*arguments):
            gated = await start(*arguments)
            gated._child.kill = gated._child.terminate = lambda: None
            gated.close_stdin = Immortal(gated).close_stdin
            gated.wait = Immortal(gated).wait
            return gated

        children.start = starting
        return app.build(config, ports, stream)

    assert "S7" in convicted_rules(dataclasses.replace(CALM, chaos_s=5), build)


def test_an_error_that_nobody_foresaw_is_noticed():
    def break_scan(worker):
        async def broken():
            raise KeyError("leaseCounter")

        worker.coordinator.store.scan = broken

    assert "S0" in convicted_rules(CALM, with_worker(break_scan))


def test_leases_that_nobody_takes_are_noticed():
    def idle(worker):
        async def never():
            await asyncio.get_running_loop().create_future()

        worker.coordinator.take_once = never
        worker.coordinator.run = never

    assert "L1" in convicted_rules(CALM, with_worker(idle))


def test_a_fleet_that_stays_out_of_balance_is_noticed():
    def build(config, ports, stream):
        leases = dataclasses.replace(config.leases, max_leases_to_steal=0)
        return app.build(dataclasses.replace(config, leases=leases), ports, stream)

    plan = dataclasses.replace(CALM, shards=6, workers=1, faults=("join",), fault_every_s=15)
    assert "L2" in convicted_rules(plan, build)


def test_a_worker_that_steals_faster_than_it_looks_is_noticed():
    def hasty(worker):
        taker = worker.coordinator.acquisition.current

        async def take_all_the_time():
            while True:
                await taker.take_once()
                await asyncio.sleep(1)

        taker.run = take_all_the_time

    plan = dataclasses.replace(CALM, shards=12, workers=1, faults=("join",), fault_every_s=15)
    assert "L6" in convicted_rules(plan, with_worker(hasty))
    assert convicted_rules(plan, app.build) == set()


def test_records_that_nobody_fetches_are_noticed():
    def starve(answer):
        answer["Records"] = []

    assert "L3" in convicted_rules(CALM, with_kinesis(starve))


def test_a_stop_that_never_ends_is_noticed():
    def deaf(worker):
        worker.scheduler.stop = lambda: None

    assert "L4" in convicted_rules(CALM, with_worker(deaf))


@pytest.mark.parametrize("seed", [3, 64])
def test_one_seed_is_one_run(seed):
    first, second = judge(seed), judge(seed)
    assert first.digest == second.digest
    assert first.counts == second.counts


ASSIGNED = Plan(seed=1, workers=2, shards=4, is_assigned=True, chaos_s=60)


def test_a_sound_fleet_of_3x_is_acquitted():
    assert convicted_rules(ASSIGNED, app.build) == set()


def test_a_lock_that_is_taken_from_a_living_leader_is_noticed(monkeypatch):
    def grab(lock, *_):
        return LockMove.CREATE if lock is None else LockMove.REPLACE

    monkeypatch.setattr(leader_lock, "follow", grab)
    assert "S10" in convicted_rules(ASSIGNED, app.build)


def test_a_leader_that_takes_leases_which_are_renewed_is_noticed(monkeypatch):
    monkeypatch.setattr(
        FleetMemory,
        "is_expired",
        lambda _memory, lease, _now, _limits: lease.lease_counter % 5 == 4,
    )
    assert "S11" in convicted_rules(ASSIGNED, app.build)


def test_a_hand_off_that_never_ends_is_noticed(monkeypatch):
    monkeypatch.setattr(ShardConsumer, "request_hand_over", lambda _self: None)
    monkeypatch.setattr(FleetMemory, "is_overdue", lambda *_: False)
    plan = dataclasses.replace(ASSIGNED, faults=("join",), fault_every_s=10.0)
    assert "L7" in convicted_rules(plan, app.build)


KILLING = dataclasses.replace(
    ASSIGNED, seed=12, workers=4, shards=2, faults=("kill",), fault_every_s=20.0, chaos_s=150
)


class Noting:
    """A DynamoDB client whose first update of a row also leaves the item of a failed process."""

    def __init__(self, dynamodb, worker_id):
        self._dynamodb = dynamodb
        life = FailedLife(instance="i", worker_id=worker_id, lived_s=1, failed_at_s=1)
        self._item = failed_life_to_item(life, "leaseKey")

    def __getattr__(self, name):
        return getattr(self._dynamodb, name)

    async def update_item(self, **request):
        item, self._item = self._item, None
        if item is not None:
            await self._dynamodb.put_item(TableName=TABLE, Item=item)
        return await self._dynamodb.update_item(**request)


def noting(worker_id=None):
    """Workers that leave such an item under their own id, or another."""

    def build(config, ports, stream):
        noted = Noting(ports.dynamodb, worker_id or config.worker_id)
        return app.build(config, dataclasses.replace(ports, dynamodb=noted), stream)

    return build


def test_an_item_that_is_no_lease_is_noticed_in_a_fleet_of_2x():
    assert "S5" in convicted_rules(CALM, noting())


def test_the_end_of_a_process_that_is_noted_under_the_id_of_another_is_noticed():
    """A leader may note that one stopped renewing, and nobody anything else of another one."""
    assert "S5" in convicted_rules(ASSIGNED, noting("somebody"))


@pytest.mark.parametrize("ordered_s", [0.0, 1e9])
def test_a_leader_that_keeps_newcomers_waiting_for_ever_is_noticed(monkeypatch, ordered_s):
    """By its own word as long as the rule allows, or for no time at all."""
    monkeypatch.setattr(
        WorkerSightings,
        "has_to_wait",
        lambda sightings, worker, _failover_s: worker != min(sightings.stamps),
    )
    monkeypatch.setattr(CrashLoop, "wait_s", lambda _loop, _failover_s: ordered_s)
    plan = dataclasses.replace(ASSIGNED, put_every_s=5.0)
    rules = convicted_rules(plan, app.build)
    assert rules & {"L2", "L3"}


def given_to_the_dead(kind):
    violations = judge(KILLING, app.build).violations
    return [one for one in violations if one.rule == "S15" and kind in one.text]


def test_leaders_that_give_nothing_to_the_dead_are_acquitted():
    assert not judge(KILLING, app.build).violations


def test_a_leader_that_ignores_who_died_is_noticed(monkeypatch):
    monkeypatch.setattr(WorkerSightings, "is_dead", lambda *_: False)
    assert given_to_the_dead("which it had seen dead")


def test_a_leader_that_goes_by_metrics_of_any_age_is_noticed(monkeypatch):
    of = AssignmentLimits.of

    def patient(config):
        return dataclasses.replace(of(config), metrics_expiry_s=1e6, metrics_stale_s=1e6)

    monkeypatch.setattr(AssignmentLimits, "of", patient)
    assert given_to_the_dead("which reported")


def test_people_who_steer_are_acquitted_and_do_all_that_they_may():
    verdict = judge(STEERED)
    assert not verdict.violations, verdict.report()
    done = {verb for verb in SteerVerb if verdict.counts.get(f"steer {verb} done")}
    assert {SteerVerb.RESET, SteerVerb.RELEASE, SteerVerb.PAUSE} <= done
    assert verdict.duplicates > 0


#: Shards are split and merged, and rows of those that were read are deleted soon.
REREAD = dataclasses.replace(STEERED, seed=11, reshard_every_s=20.0, cleanup_fast=True)


def test_people_who_have_shards_read_again_are_acquitted():
    verdict = judge(REREAD)
    assert not verdict.violations, verdict.report()
    assert verdict.counts["steer lineage done"] > 1


@pytest.mark.parametrize("forgotten", ["children", "rows that were deleted"])
def test_a_lineage_of_which_a_part_is_forgotten_is_noticed(monkeypatch, forgotten):
    def partly(watch, roots, failover_s):
        steps = plan_lineage(watch, roots, failover_s)
        known = {} if forgotten == "children" else watch.last.leases
        return tuple(one for one in steps if one.lease.lease_key in {*roots, *known})

    monkeypatch.setattr(steering, "plan_lineage", partly)
    # Not each run has a child that was begun before its parent is read again.
    plans = (dataclasses.replace(REREAD, seed=seed) for seed in (11, 12, 13))
    assert any(convicted_rules(plan, app.build) for plan in plans)


def test_people_delete_rows_of_streams_that_left_and_no_others():
    plan = dataclasses.replace(STEERED, seed=8, streams=(2, 1, 1), stream_events=("delete",) * 2)
    verdict = judge(plan)
    assert not verdict.violations, verdict.report()
    assert verdict.counts["steer delete done"]
    assert verdict.counts["steer delete refused"]


def test_a_command_that_takes_nothing_back_and_says_it_did_is_noticed(monkeypatch):
    async def pretend(_self, _lease, request):
        return f"{request.holder} did not do it in time"

    plan = dataclasses.replace(STEERED, faults=("freeze",), fault_every_s=10.0)
    assert not convicted_rules(plan, app.build)
    monkeypatch.setattr(LeaseSteering, "_withdraw", pretend)
    assert "S17" in convicted_rules(plan, app.build)


def test_who_gains_a_lease_and_leaves_what_was_asked_is_noticed(monkeypatch):
    """It goes to another worker and comes back while the request stands."""

    def leaving(lease, worker_id):
        write = taking(lease, worker_id)
        update = write.request["UpdateExpression"].replace(", kclMldRequest", "")
        request = {**write.request, "UpdateExpression": update}
        after = dataclasses.replace(write.after, request=lease.request)
        return dataclasses.replace(write, request=request, after=after)

    # Commands are killed, and worker after worker stands still.
    monkeypatch.setattr(steering, "_INTERRUPTED", 0.0)
    monkeypatch.setattr(steering, "_FAILED", 0.0)
    monkeypatch.setattr(steering, "_KILLED", 1.0)
    monkeypatch.setattr(steering, "_LINEAGES", 0.0)
    monkeypatch.setattr(steering, "_VERBS", [SteerVerb.RESET, SteerVerb.RELEASE])
    # One run in five has a lease come back in time: which one it is changes with the workers' code.
    plans = [
        dataclasses.replace(
            STEERED, seed=seed, workers=3, shards=3, faults=("freeze",), fault_every_s=5.0
        )
        for seed in range(1, 31)
    ]
    with monkeypatch.context() as planted:
        planted.setattr(lease_store, "taking", leaving)
        plan = next((each for each in plans if "S17" in convicted_rules(each, app.build)), None)
    assert plan is not None
    assert not convicted_rules(plan, app.build)


def test_a_leader_that_gives_a_paused_lease_to_a_java_worker_that_joined_is_noticed(monkeypatch):
    for chance in ("_LINEAGES", "_INTERRUPTED", "_FAILED", "_KILLED"):
        monkeypatch.setattr(steering, chance, 0.0)
    monkeypatch.setattr(steering, "_VERBS", [SteerVerb.PAUSE])
    plan = dataclasses.replace(
        ASSIGNED,
        seed=6,
        shards=4,
        faults=("kill",),
        fault_every_s=25.0,
        chaos_s=200,
        steers=True,
        joins_at_s=40.0,
    )
    assert not convicted_rules(plan, app.build)
    for module in (planning, leaving):
        monkeypatch.setattr(module, "is_paused", lambda *_: False)
    assert "S18" in convicted_rules(plan, app.build)


def test_an_owner_that_reads_a_paused_lease_is_noticed(monkeypatch):
    monkeypatch.setattr(scheduler, "is_paused", lambda _lease, _now_s: False)
    assert convicted_rules(STEERED, app.build) == {"S16"}


def test_an_owner_that_goes_on_where_it_was_after_a_reset_is_noticed(monkeypatch):
    carry_out = LeaseStore.carry_out

    async def forgetting(self, lease, request, at_s):
        row = await carry_out(self, lease, request, at_s)
        return dataclasses.replace(row, checkpoint=lease.checkpoint)

    monkeypatch.setattr(LeaseStore, "carry_out", forgetting)
    assert convicted_rules(STEERED, app.build) & {"S1", "S2"}
