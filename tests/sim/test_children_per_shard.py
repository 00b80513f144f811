"""Fleets whose shards have several children each; see ``tests/sim/sibling_judge.py``."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.sim.children import Manners
from tests.sim.chunks import acquit, portions
from tests.sim.fleet import Fleet, judge
from tests.sim.loop import run
from tests.sim.plan import Plan, children_plan
from tests.sim.rows import position_of, text_of
from tests.sim.run import main
from tests.sim.table_stream import table_plan

pytestmark = pytest.mark.sim

#: The quick part of the tests runs so many of them, and so many of those that read a table's stream.
QUICK, QUICK_TABLES = 20, 10
#: Each failed once; the others read a table's stream.
REGRESSIONS = (4, 13, 60062)
REGRESSIONS_OF_TABLES = (2049,)


def _id(seeds):
    return f"{seeds.start}-{seeds.stop - 1}"


def _portions(quick, count):
    return [
        *portions(0, quick),
        *(pytest.param(each, marks=pytest.mark.proof) for each in portions(quick, count - quick)),
    ]


@pytest.mark.parametrize("seeds", _portions(QUICK, 120), ids=_id)
def test_nothing_is_lost_whatever_happens(seeds):
    acquit(map(children_plan, seeds))


@pytest.mark.parametrize("seeds", _portions(QUICK_TABLES, 50), ids=_id)
def test_nothing_of_a_table_is_lost_whatever_happens(seeds):
    acquit(children_plan(seed, table_plan(seed)) for seed in seeds)


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_what_failed_once(seed):
    acquit([children_plan(seed)])


@pytest.mark.parametrize("seed", REGRESSIONS_OF_TABLES)
def test_what_failed_once_of_a_table(seed):
    acquit([children_plan(seed, table_plan(seed))])


def test_the_command_tells_how_many_children_there_were(capsys):
    assert main(["--children", "--seeds", "1", "--first-seed", "6", "--jobs", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("1 seeds, ")
    assert " x sibling" in said[1]


def test_a_seed_that_fails_says_how_to_see_it_again():
    verdict = judge(children_plan(6, table_plan(6)))
    assert verdict.report().endswith("--first-seed 6 --trace --tables --children")


# -- at every call and every message ---------------------------------------------------------------

PLAN = Plan(
    seed=2,
    workers=1,
    shards=2,
    failover_s=3.0,
    put_every_s=0.3,
    reshard_every_s=6.0,
    children=(3,),
    aggregated=0.5,
    spreads=True,
    keys=20,
    manners=Manners((0.0, 0.3), "own"),
)
#: Enough for the start, the first batches, a reshard and some renewals.
CALLS, MESSAGES = 60, 120
STRIDE = 6
#: The quick part of the tests begins at one of them.
FIRSTS = [1, *(pytest.param(first, marks=pytest.mark.proof) for first in range(2, STRIDE + 1))]


async def life(deed, *, at_call=0, at_message=0):
    """One worker, something done to it at one call or one message; the fleet afterwards."""
    fleet = Fleet(PLAN)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(fleet.produce()), group.create_task(fleet.reshard())]
        node = fleet.new_node()
        struck = asyncio.Event()
        messages = 0

        def on_call(number):
            if number == at_call:
                struck.set()

        def on_event(_child):
            nonlocal messages
            messages += 1
            if messages == at_message:
                struck.set()

        node.gate.on_call = on_call
        fleet.judges.children.on_event = on_event
        await struck.wait()
        await deed(node)
        await node.ended.wait()
        fleet.producing = False
        for task in tasks:
            task.cancel()
    await node.check_clean()
    return fleet, node


async def stop(node):
    node.stop()


async def kill(node):
    await node.kill()


@pytest.mark.parametrize("first", range(1, STRIDE + 1))
@pytest.mark.parametrize(("what", "last"), [("at_call", CALLS), ("at_message", MESSAGES)])
def test_after_a_stop_at_any_moment_no_record_comes_again(what, last, first):
    for moment in range(first, last, STRIDE):
        fleet, node = run(life(stop, **{what: moment}))
        fleet.judges.siblings.check_stopped()
        assert fleet.court.violations == [], f"{what} {moment}"
        assert node.outcome is not None, f"{what} {moment}: {node.error}"
        assert node.outcome.complete, f"{what} {moment}"
        assert {text_of(item, "leaseOwner") for item in fleet.court.rows.values()} <= {None}
        assert fleet.court.duplicates == 0, f"{what} {moment}"


@pytest.mark.parametrize(("what", "last"), [("at_call", CALLS), ("at_message", MESSAGES)])
def test_a_worker_that_is_killed_at_any_moment_leaves_no_child(what, last):
    for moment in range(1, last, 3):
        fleet, node = run(life(kill, **{what: moment}))
        assert fleet.court.violations == [], f"{what} {moment}"
        assert not node.running(), f"{what} {moment}"
        assert not node.children.running(), f"{what} {moment}"


async def life_of_one(at_message):
    """One worker; the child whose message or answer it is dies in that moment."""
    fleet = Fleet(replace(PLAN, restart_children=True, reshard_every_s=8.0))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(fleet.produce()), group.create_task(fleet.reshard())]
        node = fleet.new_node()
        messages = 0

        def on_event(child):
            nonlocal messages
            messages += 1
            if messages in {at_message, at_message + 7}:
                asyncio.get_running_loop().call_soon(child.kill)

        fleet.judges.children.on_event = on_event
        await asyncio.sleep(25)
        fleet.producing = False
        await asyncio.sleep(10)
        node.stop()
        await node.ended.wait()
        for task in tasks:
            task.cancel()
    fleet.judges.siblings.check_stopped()
    return fleet


@pytest.mark.parametrize("first", FIRSTS)
def test_a_child_that_dies_at_any_message_is_replaced_and_nothing_is_lost(first):
    for at_message in range(first, MESSAGES, STRIDE):
        fleet = run(life_of_one(at_message))
        assert fleet.court.violations == [], f"at message {at_message}"
        assert fleet.court.counts["child failed"] >= 1, f"at message {at_message}"
        for shard_id, truth in fleet.stream.truth.items():
            assert fleet.court.log(shard_id).prefix == len(truth.places), f"at message {at_message}"


async def frozen_life(at_message):
    """Two workers; one stands still from a message on until the other has its leases."""
    fleet = Fleet(PLAN)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(fleet.produce()),
            group.create_task(fleet.reshard()),
            group.create_task(fleet.watch()),
        ]
        struck = asyncio.Event()
        node = fleet.new_node()
        messages = 0

        def on_event(_child):
            nonlocal messages
            messages += 1
            if messages == at_message:
                struck.set()

        fleet.judges.children.on_event = on_event
        await struck.wait()
        node.freeze()
        other = fleet.new_node()
        await asyncio.sleep(4 * PLAN.failover_s)
        node.thaw()
        await asyncio.sleep(2 * PLAN.failover_s)
        for each in (node, other):
            each.stop()
            await each.ended.wait()
        fleet.producing = False
        for task in tasks:
            task.cancel()
    return fleet


@pytest.mark.parametrize("first", FIRSTS)
def test_a_freeze_at_any_message_is_noticed_before_anything_is_said(first):
    for at_message in range(first, MESSAGES, STRIDE):
        fleet = run(frozen_life(at_message))
        assert fleet.court.violations == [], f"at message {at_message}"


# -- without a fault -------------------------------------------------------------------------------

ORDERLY = Plan(
    seed=1,
    workers=3,
    shards=3,
    chaos_s=150,
    is_assigned=True,
    children=(4, 2, 3),
    aggregated=0.5,
    spreads=True,
    keys=40,
    reshard_every_s=30.0,
    restart_children=True,
)


@pytest.mark.parametrize("style", ["timed", "each", "own", "batch", "late"])
@pytest.mark.parametrize("seed", range(2))
def test_workers_that_come_and_go_in_order_have_no_record_twice(style, seed):
    plan = replace(
        ORDERLY,
        seed=seed,
        faults=("stop", "join"),
        fault_every_s=20.0,
        manners=Manners((0.0, 0.5), style),
    )
    verdict = judge(plan)
    assert verdict.violations == (), verdict.report()
    assert verdict.duplicates == 0
    assert verdict.counts["sibling"] > 20


JAVA_JOINS = replace(
    ORDERLY,
    joins_at_s=40.0,
    aggregated=0.9,
    fault_every_s=15.0,
    manners=Manners((0.0, 0.5), "each"),
)


@pytest.mark.parametrize("seed", range(2))
def test_a_java_worker_that_is_handed_a_lease_has_no_record_twice(seed):
    verdict = judge(replace(JAVA_JOINS, seed=seed, faults=("stop",)))
    assert verdict.violations == (), verdict.report()
    assert verdict.duplicates == 0
    assert verdict.counts["hand-off"] > 5


def test_a_java_worker_goes_on_behind_a_mark_inside_an_aggregate():
    inside = 0
    for seed in range(4):
        verdict = judge(replace(JAVA_JOINS, seed=seed, faults=("kill",), workers=2))
        assert verdict.violations == (), verdict.report()
        inside += verdict.counts["begun inside an aggregate"]
    assert inside > 0


@pytest.mark.parametrize("style", ["timed", "each", "own"])
def test_a_child_that_dies_is_replaced_alone(style):
    """The judge follows what its siblings get."""
    plan = replace(
        ORDERLY,
        workers=1,
        faults=("kill child",),
        fault_every_s=3.0,
        manners=Manners((0.0, 0.5), style),
    )
    verdict = judge(plan)
    assert verdict.violations == (), verdict.report()
    assert verdict.counts["child failed"] > 20
    assert verdict.counts["sibling"] > verdict.counts["child failed"]


@pytest.mark.parametrize("style", ["timed", "never"])
def test_an_answer_confirms_where_children_make_no_checkpoints(style):
    plan = replace(
        ORDERLY,
        answers_confirm=True,
        faults=("stop", "kill child"),
        fault_every_s=10.0,
        manners=Manners((0.0, 0.5), style),
    )
    verdict = judge(plan)
    assert verdict.violations == (), verdict.report()


def test_a_child_that_never_answers_keeps_no_other_waiting():
    """Nobody ends it: its siblings get what comes, and the mark stays before what it was given."""

    async def main():
        fleet = Fleet(replace(PLAN, reshard_every_s=None, shards=1, workers=0))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fleet.produce())]
            node = fleet.new_node()
            while len(node.children.children) < 3:  # noqa: ASYNC110 - it does not tell
                await asyncio.sleep(0.1)
            await asyncio.sleep(5)
            stuck = next(child for child in node.children.children if child.index == 1)
            stuck.own_manners = Manners(mute=1.0)
            began = {child: len(child.given) for child in node.children.children}
            await asyncio.sleep(60)
            given = {
                child.index: len(child.given) - before
                for child, before in began.items()
                if child is not stuck
            }
            truth = next(iter(fleet.stream.truth.values()))
            (row,) = fleet.court.rows.values()
            mark = truth.covered(position_of(row))
            fleet.producing = False
            await node.kill()
            for task in tasks:
                task.cancel()
        assert fleet.court.violations == []
        return given, mark, stuck.given

    given, mark, stuck = run(main())
    assert set(given) == {0, 2}
    assert min(given.values()) > 50
    assert mark <= stuck[-1]
