"""What is said of a fleet at random moments was true between the looks: verdicts and events."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.config.reserved_keys import FAILED_LIFE
from kcl_mld.config.stream import Stream
from kcl_mld.errors import MldError
from kcl_mld.fleet.model.table_layout import Layout
from kcl_mld.leases.lease_store import LeaseStore
from kcl_mld.leases.model.lease_item import is_lease_item, item_key, lease_from_item
from kcl_mld.observe.fleet_reader import FleetReader, fleet_items
from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
from kcl_mld.observe.model.verdict import Conclusion, Verdict, VerdictSeverity
from kcl_mld.observe.rules.explain import explain
from kcl_mld.observe.rules.fleet_events import FleetEvent, FleetEventKind, fleet_events
from kcl_mld.observe.rules.watching import ExplainRules
from kcl_mld.observe.stream_reader import StreamReader
from kcl_mld.observe.tip_reader import TipReader
from tests.fakes.clock import CountingIds
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.fake_kinesis import FakeKinesis
from tests.fakes.lease_world import lease
from tests.sim.fleet import Fleet
from tests.sim.loop import run
from tests.sim.node import TABLE, config_of
from tests.sim.plan import Plan
from tests.sim.ports import SimClock
from tests.sim.stream import STREAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.observe.model.verdict import Explanation
    from kcl_mld.streams.model.shard import Shard

pytestmark = pytest.mark.sim

SEEDS = 20
#: Reads may be so old.
STALE_S = 0.6
#: What no fleet of this test has.
NEVER = {Verdict.RETENTION_RISK, Verdict.RECORDS_LOST, Verdict.STREAM_GONE, Verdict.UNREADABLE_ROW}
_FAULTS = ("kill", "kill", "partition", "freeze", "stop", "join", "throttle", "drop lease")


def plan_of(seed: int) -> Plan:
    rng = random.Random(f"explained {seed}")
    return Plan(
        seed=seed,
        workers=rng.randint(1, 3),
        peers=rng.randint(0, 1),
        is_assigned=rng.random() < 0.5,
        shards=rng.randint(2, 6),
        chaos_s=rng.uniform(60, 120),
        failover_s=rng.choice([3.0, 5.0, 10.0]),
        faults=tuple(rng.sample(_FAULTS, rng.randint(0, 4))),
        fault_every_s=rng.uniform(5, 20),
        put_every_s=rng.choice([0.5, 30.0]),
        reshard_every_s=rng.choice([None, 20.0]),
        stale_reads=rng.random() < 0.3,
        cleanup_fast=rng.random() < 0.5,
    )


class Explained(Fleet):
    """Somebody looks at it now and then, and the table's history says whether that was true."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.said: Counter[str] = Counter()
        self.false: list[str] = []
        #: All rows and the lock, each time that something changed.
        self.history: list[tuple[float, dict[str, Any]]] = [(0.0, {})]
        self.dynamodb.observers.append(self._wrote)

    def _wrote(self, write: Any) -> None:
        if write.table != TABLE:
            return
        rows = dict(self.history[-1][1])
        item = write.after or write.before
        if write.after is None:
            rows.pop(item_key(item), None)
        else:
            rows[item_key(item)] = lease_from_item(item) if is_lease_item(item) else item
        self.history.append((self.now(), rows))

    def moments(self, began_s: float, ended_s: float) -> list[dict[str, Any]]:
        """Every state of the table in that time."""
        ends = [at_s for at_s, _rows in self.history[1:]] + [float("inf")]
        return [
            rows
            for (at_s, rows), end_s in zip(self.history, ends, strict=True)
            if at_s <= ended_s and end_s >= began_s
        ]

    async def watch(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super().watch())
            group.create_task(self._explain())

    def _reader(self, rng: random.Random) -> FleetReader:
        config = config_of(self.plan, "nobody")
        clock = SimClock(self.now, 0.0, 1.0, 0.0)
        dynamodb, kinesis = FakeDynamoDb(self.dynamodb), FakeKinesis(self.stream.model)
        return FleetReader(
            partial(fleet_items, dynamodb, Layout.named(TABLE), CountingIds("watcher"), rng),
            LeaseStore(dynamodb, config.leases, clock, rng),
            StreamReader(kinesis, config, "us-east-1", Stream(STREAM), None, clock, rng),
            TipReader(kinesis, clock, clock.wall, lambda _stream: None),
            clock,
        )

    async def _explain(self) -> None:
        rng = random.Random(f"watcher {self.plan.seed}")
        rules = ExplainRules(failover_s=self.plan.failover_s, stalled_after_s=20.0)
        reader = self._reader(rng)
        while True:
            await asyncio.sleep(rng.uniform(0.5, 15))
            looks: list[FleetSnapshot] = []
            try:
                for _look in range(rng.choice([1, 2, 2, 5])):
                    if looks:
                        await asyncio.sleep(self.plan.failover_s)
                    looks.append(await reader.look())
            except MldError:
                continue  # no table yet
            self._check(looks, explain(looks, rules))
            for number in range(2, len(looks) + 1):
                self._check_events(looks[:number])

    def _check_events(self, looks: list[FleetSnapshot]) -> None:
        before, last = looks[-2:]
        seen = self.moments(before.began_at - STALE_S, last.at)
        calm = self.moments(last.began_at - self.plan.failover_s + STALE_S, last.began_at - STALE_S)
        for event in fleet_events(looks, self.plan.failover_s):
            self.said[event.kind] += 1
            if not has_happened(event, seen, calm, last):
                at_s = f"{before.began_at:.1f} to {last.at:.1f} s"
                self.false.append(f"seed {self.plan.seed}, {at_s}: {event}")

    def _check(self, looks: list[FleetSnapshot], told: Explanation) -> None:
        first_s, last = looks[0].began_at - STALE_S, looks[-1]
        shards = {one.lease_key(s.shard_id): s for one in last.streams for s in one.shards or ()}
        for one in (*told.shards, *told.fleet):
            self.said[one.verdict] += 1
            seen = self.moments(first_s, last.at)
            since_s = one.since_s or 0.0
            if one.verdict is Verdict.OWNER_SILENT:
                since_s = max(since_s, self.plan.failover_s)
            calm = self.moments(last.at - since_s + STALE_S, last.began_at - STALE_S)
            if one.verdict in NEVER or not is_true(one, seen, calm, shards.get(one.subject)):
                at_s = f"{first_s:.1f} to {last.at:.1f} s"
                self.false.append(f"seed {self.plan.seed}, {at_s}: {one}")


#: What a verdict says of the states of its row, and of all states of the table.
ROWS: dict[Verdict, Callable[[list[Any]], bool]] = {
    **dict.fromkeys(
        (Verdict.READING, Verdict.CATCHING_UP, Verdict.FALLING_BEHIND),
        lambda rows: len({row.checkpoint for row in rows}) > 1,
    ),
    **dict.fromkeys(
        (Verdict.IDLE, Verdict.NO_PROGRESS, Verdict.STALLED),
        lambda rows: len({row.lease_counter for row in rows}) > 1,
    ),
    **dict.fromkeys(
        (Verdict.FINISHED, Verdict.CHILDREN_MISSING),
        lambda rows: any(row.is_finished for row in rows),
    ),
    Verdict.UNOWNED: lambda rows: any(row.actual_owner is None for row in rows),
    Verdict.HANDING_OVER: lambda rows: any(row.is_handed_over for row in rows),
    Verdict.THRASHING: lambda rows: (
        sum(a.actual_owner != b.actual_owner for a, b in pairwise(rows)) > 1
    ),
    Verdict.HELD: lambda rows: any(row.failure.held for row in rows),
    Verdict.REWOUND: lambda rows: any(b.checkpoint < a.checkpoint for a, b in pairwise(rows)),
}


def failures(state: dict[str, Any]) -> int:
    """Processes that failed, by their items, or by their marks in rows."""
    marks = {row.newcomer.instance for row in state.values() if getattr(row, "newcomer", None)}
    return sum(key.startswith(FAILED_LIFE) for key in state) + len(marks)


def is_true(  # noqa: PLR0911 - one for each verdict
    one: Conclusion,
    seen: list[dict[str, Any]],
    calm: list[dict[str, Any]],
    shard: Shard | None,
) -> bool:
    """Whether a verdict holds in one of these moments.

    Args:
        one: what was said.
        seen: states of the table from the first look to the last.
        calm: those in which it has held all the time, by its own word.
        shard: that has the key, where there is one.
    """
    holds: Callable[[list[Any]], bool] | None = ROWS.get(one.verdict)
    if holds is not None:
        return holds([state[one.subject] for state in seen if one.subject in state])
    match one.verdict:
        case Verdict.OWNER_SILENT:
            known = {s[one.subject].lease_counter for s in calm if one.subject in s}
            return len(known) <= 1
        case Verdict.WAITING_FOR_PARENT:
            assert one.lease is not None
            parents = one.lease.parent_shard_ids
            return any(p in state and not state[p].is_finished for state in seen for p in parents)
        case Verdict.HASH_GAP:
            return shard is not None and any(not covers(state, shard) for state in seen)
        case Verdict.CRASH_LOOP:
            return any(failures(state) > 1 for state in seen)
        case Verdict.LEADER_SILENT:
            return len({str(state.get("Leader")) for state in calm}) <= 1
        case _:
            is_unknown = one.verdict is Verdict.UNKNOWN and one.severity is VerdictSeverity.INFO
            return is_unknown or one.verdict is Verdict.NO_METRICS


def has_happened(
    event: FleetEvent, seen: list[dict[str, Any]], calm: list[dict[str, Any]], last: FleetSnapshot
) -> bool:
    """Whether an event lies between two looks.

    Args:
        event: what was said.
        seen: states of the table from the one to the other.
        calm: those within the last failover time.
        last: the second look.
    """
    key, kinds = event.subject, FleetEventKind
    rows = [state[key] for state in seen if key in state]
    match event.kind:
        case kinds.LEASE_TAKEN | kinds.HANDED_OVER | kinds.LEASE_RELEASED:
            found = {event.before, event.after} <= {row.actual_owner for row in rows}
        case kinds.HAND_OFF_BEGUN:
            found = any(
                (row.checkpoint_owner, row.lease_owner) == (event.before, event.after)
                for row in rows
            )
        case kinds.SHARD_FINISHED:
            found = {row.is_finished for row in rows} == {False, True}
        case kinds.LEASE_CREATED | kinds.LEASE_DELETED:
            found = {key in state for state in seen} == {False, True}
        case kinds.CHECKPOINT_REWOUND:
            found = len({str(row.checkpoint) for row in rows}) > 1
        case kinds.WORKER_SILENT:
            owned = [k for k, row in last.leases.items() if row.actual_owner == key]
            counters = [{s[k].lease_counter for s in calm if k in s} for k in owned]
            found = all(len(known) <= 1 for known in counters)
        case kinds.LEADER_CHANGED:
            found = len({str(state.get("Leader")) for state in seen}) > 1
        case kinds.WORKER_APPEARED | kinds.SHARD_APPEARED:
            found = True  # that somebody new is there is what the look itself shows
    return found


def covers(state: dict[str, Any], shard: Shard) -> bool:
    """Whether unfinished leases cover the keys of a shard; looked at key by key."""
    ranges = [
        row.hash_range
        for row in state.values()
        if getattr(row, "hash_range", None) is not None and not row.is_finished
    ]
    keys = {shard.hash_range.start, shard.hash_range.end}
    keys |= {one.end + 1 for one in ranges} | {one.start - 1 for one in ranges}
    inside = [key for key in keys if key in shard.hash_range]
    return all(any(key in one for one in ranges) for key in inside)


def test_a_verdict_is_true_of_a_moment_between_its_looks() -> None:
    said: Counter[str] = Counter()
    for seed in range(SEEDS):
        fleets: list[Explained] = []

        async def main(seed: int = seed, fleets: list[Explained] = fleets) -> None:
            fleets.append(Explained(plan_of(seed)))
            await fleets[0].run()

        run(main())
        assert not fleets[0].court.violations, fleets[0].court.violations
        assert not fleets[0].false, "\n".join(fleets[0].false[:5])
        said += fleets[0].said
    usual = {
        Verdict.READING,
        Verdict.IDLE,
        Verdict.NO_PROGRESS,
        Verdict.UNOWNED,
        Verdict.OWNER_SILENT,
        Verdict.FINISHED,
        Verdict.UNKNOWN,
        FleetEventKind.LEASE_TAKEN,
        FleetEventKind.LEASE_RELEASED,
        FleetEventKind.LEASE_CREATED,
        FleetEventKind.SHARD_FINISHED,
        FleetEventKind.WORKER_SILENT,
    }
    assert usual <= said.keys(), said


def test_an_event_that_never_happened_is_seen() -> None:
    row = lease(0, lease_owner="w1")
    states: list[dict[str, Any]] = [
        {row.lease_key: replace(row, lease_counter=number)} for number in (1, 2)
    ]
    look = FleetSnapshot(began_at=0.0, at=0.0, wall_s=0.0, leases=states[-1])
    for kind in set(FleetEventKind) - {
        FleetEventKind.WORKER_APPEARED,
        FleetEventKind.SHARD_APPEARED,
    }:
        subject = "w1" if kind is FleetEventKind.WORKER_SILENT else row.lease_key
        wrong = FleetEvent(time_s=0.0, kind=kind, subject=subject, before="w1", after="w2")
        assert not has_happened(wrong, states, states, look), kind


def test_a_verdict_that_was_never_true_is_seen() -> None:
    row = lease(0, lease_owner="w1")
    said = Conclusion(
        subject=row.lease_key, verdict=Verdict.READING, severity=VerdictSeverity.OK, cause=""
    )
    states: list[dict[str, Any]] = [{row.lease_key: row}] * 2
    for verdict in set(Verdict) - {Verdict.OWNER_SILENT, Verdict.LEADER_SILENT, Verdict.NO_METRICS}:
        wrong = replace(said, verdict=verdict, lease=row)
        assert not is_true(wrong, states, states, None), verdict
