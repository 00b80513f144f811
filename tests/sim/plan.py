"""What one seed means: the fleet, its load and which faults exist in it at all.

Swarm testing: a run with every fault at once rarely gets anywhere, so each seed draws a subset.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kcl_mld.kernel.model.sequence import Sentinel
from tests.sim.changes import Changes, draw_changes
from tests.sim.children import Manners

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.sim.table_stream import TableStreamPlan

#: What the nemesis can do to a worker.
FAULTS = (
    "kill",
    "stop",
    "freeze",
    "partition",
    "lose requests",
    "lose answers",
    "throttle",
    "slow",
    "step clock",
    "join",
    "expire",
    "drop lease",
    "break",
)


#: What can be taken away from a whole fleet.
LOSSES = ("stream deleted", "stream recreated", "table deleted", "table recreated")
#: Who polls and who does not; a fleet may be of two minds, as its files may be.
FAN_OUT = ((False,), (False,), (True,), (True,), (True, False))
#: What can become of one of many streams.
STREAM_EVENTS = ("add", "delete", "recreate")
_STARTS = [Sentinel.TRIM_HORIZON] * 4 + [Sentinel.AT_TIMESTAMP, Sentinel.LATEST]


@dataclass(frozen=True)
class Plan:
    """One seed, drawn out.

    Attributes:
        loses: one of :data:`LOSSES`, which ends all workers; None = nothing is taken away.
        loses_at_s: when.
        litter: the table holds rows that are no leases, or broken ones.
        same_ids: a restarted worker keeps its id.
        workers: workers of ours at the start.
        peers: Java-like workers, of 2.x or of 3.x as the fleet is.
        is_assigned: the fleet is one of 3.x, in the single-table layout.
        begins: it finds no table: a new application, whose files say nothing.
        flip_at_s: when a 3.x worker joins and flips the table; None = never.
        faults: those that exist in this run.
        fault_every_s: mean distance of two faults.
        chaos_s: how long the nemesis is at work.
        fan_out: whether the records of a worker are pushed, by its number, over and over.
        subscription_s: how long a subscription lasts.
        streams: shards of each stream at the start, of workers of many streams; () = a single one.
        discovers: workers of many streams find them by a rule; else their files list them.
        deletes_former: leases of streams that left the list are deleted after a minute; only with the rule,
            because lists that differ for a time are no grounds to delete anything.
        stream_events: what becomes of streams while the workers run, see :data:`STREAM_EVENTS`.
        changes: what people do to a 3.x fleet; None = nothing.
        table_stream: the fleet reads the stream of a table that behaves so; None = one of Kinesis.
        steers: people reset, pause, release and delete leases, and reset lineages.
        joins_at_s: a Java worker starts then; None = none does.
        sets_aside: records that children fail at become dead letters.
        children: of a shard, by the number of the worker, over and over.
        answers_confirm: where there are several, ``childConfirms = status``.
        keys: of records; None = each change of a table has its own.
        hot: how often a record has the first key, whatever else is drawn.
        spreads: the user records of an aggregate have keys of their own.
        budget_bytes: memory for records of a worker; None = as much as is configured.
        weather: fields of :class:`tests.sim.gate.Weather` that differ, for every member.
    """

    seed: int
    workers: int = 2
    peers: int = 0
    is_assigned: bool = False
    begins: bool = False
    flip_at_s: float | None = None
    flip_table: str = "lease"
    shards: int = 3
    failover_s: float = 5.0
    faults: tuple[str, ...] = ()
    fault_every_s: float = 8.0
    chaos_s: float = 90.0
    put_every_s: float = 1.0
    aggregated: float = 0.0
    reshard_every_s: float | None = None
    manners: Manners = field(default_factory=Manners)
    answer_timeout_s: float | None = None
    restart_children: bool = False
    clock_skew: bool = False
    stale_reads: bool = False
    spare_answers: float = 0.0
    start: Sentinel = Sentinel.TRIM_HORIZON
    create_s: float = 0.0
    reshard_s: float = 0.0
    limits: bool = False
    cleanup_fast: bool = False
    max_records: int = 10_000
    page_items: int | None = None
    same_ids: bool = False
    grace_s: float = 20.0
    litter: bool = False
    steers: bool = False
    joins_at_s: float | None = None
    sets_aside: bool = False
    children: tuple[int, ...] = (1,)
    answers_confirm: bool = False
    keys: int | None = None
    hot: float = 0.0
    spreads: bool = False
    budget_bytes: int | None = None
    weather: Mapping[str, Any] = field(default_factory=dict)
    loses: str | None = None
    loses_at_s: float = 0.0
    fan_out: tuple[bool, ...] = (False,)
    subscription_s: float = 300.0
    streams: tuple[int, ...] = ()
    stream_events: tuple[str, ...] = ()
    discovers: bool = False
    deletes_former: bool = False
    changes: Changes | None = None
    table_stream: TableStreamPlan | None = None

    @property
    def has_leader_by_lock(self) -> bool:
        """Now or later a leader assigns the leases."""
        return self.is_assigned or self.flip_at_s is not None


#: Children of a shard, by worker: the same, and not the same.
_CHILDREN = ((2,), (3,), (8,), (3, 5), (1, 4), (8, 2, 3))


def children_plan(seed: int, plan: Plan | None = None) -> Plan:
    """A plan in which shards have several children.

    Args:
        plan: what else is in it; None = what the seed means anyway.
    """
    plan = draw(seed) if plan is None else plan
    rng = random.Random(f"children {seed}")
    children = rng.choice(_CHILDREN)
    styles = ["timed", "timed", "each", "own", "own", "batch", "record", "rarely", "cheeky", "late"]
    manners = replace(plan.manners, checkpoints=rng.choice(styles))
    narrow = random.Random(f"narrow {seed}")
    if plan.answer_timeout_s is None and narrow.random() < 0.4:
        manners = replace(manners, stalls=0.03)
    answers_confirm = 1 not in children and rng.random() < 0.2
    if answers_confirm and rng.random() < 0.5:
        manners = replace(manners, checkpoints="never")
    faults = plan.faults + (("kill child",) if rng.random() < 0.6 else ())
    budget_bytes = narrow.choice([None, None, 3_000, 50_000])
    if plan.start is Sentinel.LATEST:
        # Before the first mark what a child did not confirm is read again from a time on, and nobody
        # sees where its siblings began.
        faults = tuple(fault for fault in faults if fault not in ("step clock", "kill child"))
        manners = Manners(manners.work_s, manners.checkpoints, tick_s=manners.tick_s)
        budget_bytes = None
    keys, hot = rng.choice([(1000, 0.0), (1000, 0.3), (12, 0.0), (30, 0.9)])
    return replace(
        plan,
        children=children,
        answers_confirm=answers_confirm,
        manners=manners,
        keys=keys,
        hot=0.0 if plan.table_stream else hot,
        spreads=True,
        budget_bytes=budget_bytes,
        aggregated=0.0 if plan.table_stream else rng.choice([0.0, 0.3, 0.7]),
        faults=faults,
        restart_children=plan.restart_children or rng.random() < 0.7,
        clock_skew=plan.clock_skew and plan.start is not Sentinel.LATEST,
    )


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    plan = _drawn(seed)
    may_steer = not plan.loses and plan.start is Sentinel.TRIM_HORIZON and plan.changes is None
    # As below: these words leave the seeds of regressions.txt what they were.
    drawn = random.Random(f"users move checkpoints again {seed}").random()
    if not may_steer or drawn >= 0.3:
        return plan
    # Pauses and requests end by the clocks of workers.
    faults = tuple(fault for fault in plan.faults if fault not in ("step clock", "drop lease"))
    plan = replace(plan, steers=True, clock_skew=False, faults=faults)
    joining = random.Random(f"Java joins a fleet with pauses {seed}")
    # A scripted worker reads a single stream: what it holds of many ones nobody would read.
    may_join = plan.is_assigned and not plan.peers and not plan.streams
    if not may_join or joining.random() < 0.5:
        return plan
    return replace(plan, joins_at_s=joining.uniform(20, plan.chaos_s))


def _drawn(seed: int) -> Plan:
    rng = random.Random(f"plan {seed}")
    faults = tuple(fault for fault in FAULTS if rng.random() < 0.4)
    rude = rng.random() < 0.4
    timeout = rng.choice([None, 8.0])
    flip = rng.random() < 0.12
    peers = rng.choice([0, 0, 0, 1, 2]) if not flip else 0
    manners = _manners(rng, rude=rude, timeout=timeout)
    # Drawn apart: the rest of a seed's plan stays what it was.
    added = random.Random(f"additions {seed}")
    manners = replace(manners, tick_s=added.choice([0.0, 0.3, 2.0]))
    losing = random.Random(f"losses {seed}")
    is_losing = losing.random() < 0.1 and not flip and not peers
    pushing = random.Random(f"fan-out {seed}")
    plan = Plan(
        seed,
        workers=rng.randint(1, 4),
        peers=peers,
        flip_at_s=rng.uniform(30, 60) if flip else None,
        flip_table=rng.choice(["lease", "coordinator"]),
        shards=rng.randint(1, 6),
        failover_s=rng.choice([2.0, 3.0, 5.0, 5.0, 10.0]),
        faults=faults,
        fault_every_s=rng.choice([rng.uniform(1, 4), rng.uniform(4, 20)]),
        chaos_s=rng.uniform(60, 240),
        put_every_s=rng.uniform(0.3, 3.0),
        aggregated=rng.choice([0.0, 0.0, 0.3]),
        reshard_every_s=rng.uniform(5, 50) if rng.random() < 0.6 else None,
        manners=manners,
        answer_timeout_s=timeout,
        restart_children=rng.random() < 0.5,
        clock_skew=rng.random() < 0.4,
        stale_reads=rng.random() < 0.4,
        spare_answers=rng.choice([0.0, 0.0, 0.2]),
        start=rng.choice(_STARTS) if not flip and not peers else Sentinel.TRIM_HORIZON,
        create_s=rng.choice([0.0, 5.0]),
        reshard_s=rng.choice([0.0, 5.0]),
        limits=rng.random() < 0.3,
        cleanup_fast=rng.random() < 0.5,
        max_records=rng.choice([10_000, 10_000, 5]),
        page_items=rng.choice([None, None, 1, 3]),
        same_ids=rng.random() < 0.2,
        litter=rng.random() < 0.2 and not peers and not flip,
        grace_s=rng.choice([20.0, 20.0, 4.0, 0.0]),
        loses=losing.choice(LOSSES) if is_losing else None,
        loses_at_s=losing.uniform(20, 120),
        fan_out=pushing.choice(FAN_OUT),
        subscription_s=pushing.choice([300.0, 20.0]),
    )
    entering = random.Random(f"assigned {seed}")
    if not flip and not is_losing and entering.random() < 0.25:
        plan = replace(plan, is_assigned=True)
    # Rows that cannot be read are a table that somebody has used; Java's of 2.x begin none of 3.x.
    may_begin = not flip and not plan.litter and (plan.is_assigned or not peers)
    # These words leave the seeds of regressions.txt what they were.
    if may_begin and random.Random(f"begin silent {seed}").random() < 0.5:
        plan = replace(plan, is_assigned=True, begins=True)
    if plan.has_leader_by_lock:
        # A clock that is wrong by an hour has no place in such a fleet.
        faults = tuple(fault for fault in plan.faults if fault != "step clock")
        plan = replace(plan, faults=faults)
    changing = random.Random(f"changing {seed}")
    may_change = plan.is_assigned and not plan.begins and not peers and not plan.litter
    if may_change and changing.random() < 0.6:
        changes = draw_changes(seed)
        # A scripted worker follows the generations; what else it knows of tables is what it started with.
        has_peer = bool(changes.generations) and random.Random(f"beside {seed}").random() < 0.5
        return replace(plan, changes=changes, peers=int(has_peer))
    if is_losing and changing.random() < 0.3:
        plan = replace(plan, is_assigned=True)
    is_plain = not (flip or peers or is_losing or plan.litter)
    return _many(plan) if is_plain else plan


def _many(plan: Plan) -> Plan:
    """The same with many streams, for a part of the seeds."""
    rng = random.Random(f"streams {plan.seed}")
    if rng.random() >= 0.4:
        return plan
    # Drawn apart, as above.
    finding = random.Random(f"discovery {plan.seed}")
    discovers = finding.random() < 0.4
    return replace(
        plan,
        streams=tuple(rng.randint(1, 3) for _stream in range(rng.randint(1, 3))),
        stream_events=tuple(rng.choices(STREAM_EVENTS, k=rng.randint(0, 3))),
        start=Sentinel.TRIM_HORIZON,
        discovers=discovers,
        deletes_former=discovers and finding.random() < 0.5,
    )


def _manners(rng: random.Random, *, rude: bool, timeout: float | None) -> Manners:
    slowest_s = rng.choice([0.02, 0.02, 0.5, 3.0])
    checkpoints = rng.choice(["batch", "batch", "record", "rarely", "late", "cheeky"])
    if not rude:
        return Manners((0.0, slowest_s), checkpoints)

    def maybe(probability: float) -> float:
        return probability if rng.random() < 0.4 else 0.0

    return Manners(
        (0.0, slowest_s),
        checkpoints,
        crash=maybe(0.01),
        mute=maybe(0.005) if timeout else 0.0,
        garbage=maybe(0.1),
        wrong=maybe(0.005) if timeout else 0.0,
        leaves_at_end=maybe(0.3),
        forgets_end=maybe(0.3),
        deaf_to_term=rng.random() < 0.2,
    )
