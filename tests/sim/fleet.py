"""A whole fleet over one simulated AWS, from the first start to the last stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kcl_mld import app
from kcl_mld.config.config import Config
from kcl_mld.config.stream import Stream
from kcl_mld.errors import MldError, UnservableFleet
from kcl_mld.fleet.lease_coordinator import TABLE_LOOK_S
from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.leases.rules.newcomers import MOST_WAIT_S
from kcl_mld.leases.rules.renewal import calm_periods_s
from kcl_mld.local.kinesis import KinesisSettings
from kcl_mld.local.kinesis.model import KinesisModel
from kcl_mld.streams.existence_watch import GIVE_UP_S, LOOK_S, WANTED_S
from tests.fakes.dynamodb_model import DynamoDbModel, DynamoDbSettings
from tests.sim.children import Manners
from tests.sim.court import Court, Violation
from tests.sim.fleet_judge import HAND_OFF_S, SETTLE_S
from tests.sim.java3_peer import Java3Peer, migration_item
from tests.sim.java_peer import JavaPeer
from tests.sim.judges import Judges
from tests.sim.loop import SimLoop, Stalled, run
from tests.sim.nemesis import Nemesis
from tests.sim.node import TABLE, Node, config_of
from tests.sim.operations import Operations
from tests.sim.plan import Plan, children_plan, draw
from tests.sim.ports import EPOCH_S
from tests.sim.rows import text_of
from tests.sim.sibling_judge import MARK_MOVES_S
from tests.sim.steering import Steering
from tests.sim.stream import REPLACED_S, STREAM, Keys, SimStream, SimStreams
from tests.sim.table_stream import SimTableStream, table_plan
from tests.sim.trace import Trace

#: ``app.build``, or a test's own with a fault planted.
Build = Callable[[Config, app.Ports, Stream | None], Any]

#: Distance of two looks at who believes what.
TICK_S = 0.5
#: After a change of owners nobody may feel responsible for a hole until the next election, and the
#: audit has to see it three times.
ELECTION_S = 300 + 60 + 60
#: The same where a Java-like worker may be the one elected: its audits are two minutes apart.
JAVA_ELECTION_S = 300 + 3 * 120 + 60
#: A loss is noticed by the next periodic look at the latest, confirmed, and followed by a drain.
LOSS_S = 1.5 * max(LOOK_S, TABLE_LOOK_S) + GIVE_UP_S + WANTED_S + 60
#: A Java-like leader that died is replaced when its lock has expired, by one that looks rarely.
JAVA_LEAD_S = 120 + 2 * 30 + 60
#: From the end of a newcomer's wait to its share: a report a period later, a look, and hand-offs.
WAITED_S = 30.0 + 2.5 + 30.0
_POLITE = Manners()


@dataclass(frozen=True)
class Verdict:
    """What came of one seed, or of a plan that was written by hand.

    Attributes:
        drawn: the seed alone says what the plan was; of a fleet that reads a table's stream if
            ``of_table`` is true, and with several children a shard if ``of_children`` is.
    """

    seed: int
    drawn: bool
    of_table: bool
    of_children: bool
    violations: tuple[Violation, ...]
    digest: str
    table: str
    virtual_s: float
    records: int
    duplicates: int
    counts: dict[str, int]

    def report(self) -> str:
        """For people: what was wrong, what happened last, how to see it again."""
        wrong = "\n".join(f"  {violation}" for violation in self.violations)
        if not self.drawn:
            return f"a plan of its own, seed {self.seed}:\n{wrong}\n{self.table}"
        command = f"-m tests.sim.run --seeds 1 --first-seed {self.seed} --trace"
        command += " --tables" if self.of_table else ""
        command += " --children" if self.of_children else ""
        python = os.path.relpath(sys.executable)
        return f"seed {self.seed}:\n{wrong}\n{self.table}\nreplay: {python} {command}"


class _LogJudge(logging.Handler):
    """Convicts errors that were caught by a catch-all: nobody foresaw them."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(logging.ERROR)
        self._fleet = fleet

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, MldError):
            self._fleet.court.convict("S0", f"{record.getMessage()}: {error!r}")


class Believers(Mapping[str, tuple[str, ...]]):
    """Lease keys that each worker believes to hold; a worker is asked when somebody wants to know."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes

    def __getitem__(self, worker_id: str) -> tuple[str, ...]:
        for node in reversed(self._nodes):
            if node.worker_id == worker_id:
                return node.believes()
        raise KeyError(worker_id)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(node.worker_id for node in self._nodes))

    def __len__(self) -> int:
        return len(set(self))


class Fleet:
    """Everything of one run.

    Args:
        build: makes a worker; tests plant faults here.
    """

    def __init__(self, plan: Plan, build: Build = app.build) -> None:
        self.plan = plan
        self.build = build
        self._loop = asyncio.get_running_loop()
        self._at_latest = plan.start is Sentinel.LATEST
        rng = random.Random(f"world {plan.seed}")
        self.rng = rng
        self.trace = Trace(self.now)
        self.dynamodb = DynamoDbModel(
            self._epoch,
            random.Random(f"dynamodb {plan.seed}"),
            DynamoDbSettings(
                create_s=plan.create_s,
                max_lag_s=0.5 if plan.stale_reads else 0.0,
                stale_probability=0.3,
                page_items=plan.page_items,
            ),
        )
        self.stream = self._new_stream(random.Random(f"stream {plan.seed}"))
        #: What people do to a 3.x fleet.
        self.operations: Operations | None = None
        #: Names in the files of workers that start now; () = a single stream.
        self.listed: tuple[str, ...] = tuple(one.name for one in self.stream.living() if one.prefix)
        leases = config_of(plan, "nobody").leases
        self.leases = leases
        self.court = Court(
            self.stream,
            self.trace,
            self.now,
            failover_s=leases.failover_s,
            all_shards_matter=not self._at_latest,
            believers=lambda: Believers(self.nodes),
        )
        self.court.clock_skew_s = 40.0 if plan.clock_skew else 0.0
        calm_window_s = max(calm_periods_s(leases)) + 2 * leases.request_timeout_s
        self.judges = Judges(
            self.court,
            table=TABLE,
            calm_window_s=calm_window_s,
            # Clocks run at different rates, and one write may take longer than another.
            steal_pause_s=0.9 * leases.taker_interval_s,
            is_undisturbed=set(plan.faults) <= {"join", "drop lease"},
            deletes_former=plan.discovers,
            is_assigned=plan.is_assigned,
        )
        self.court.answers_confirm = plan.answers_confirm
        self.dynamodb.observers.append(self.judges.table.wrote)
        if plan.changes is not None:
            self.operations = Operations(self, plan.changes)
        self.manners = plan.manners
        self.nodes: list[Node] = []
        self.members: list[Any] = []
        self.producing = True
        #: Members are started again after they ended.
        self.supervised = True
        #: Cleared while people let no worker start.
        self.open = asyncio.Event()
        self.open.set()
        self.flipped = False
        #: What was taken away, "" = nothing.
        self.lost = ""
        #: Of one of many streams.
        self.deletions = 0
        #: How much later than in other fleets the last shard may end.
        self.ends_late_s = 0.0
        self._incarnations = 0
        self._places = 0
        self._peers = 0

    def _new_stream(self, rng: random.Random) -> SimStream | SimStreams:
        plan = self.plan
        if plan.table_stream is not None:
            stream = SimTableStream(self.now, rng, plan.table_stream, plan.shards)
            stream.keys = plan.keys
            return stream
        model = KinesisModel(
            self._epoch,
            rng,
            KinesisSettings(
                reshard_s=plan.reshard_s,
                consumer_create_s=plan.create_s,
                subscription_s=plan.subscription_s,
                limits=plan.limits,
                spare_answer_probability=plan.spare_answers,
            ),
        )
        keys = Keys(plan.keys or Keys().count, plan.hot, spread=plan.spreads)
        if plan.streams:
            return SimStreams(self.now, model, rng, plan.streams, keys)
        return SimStream(model, rng, plan.shards, keys=keys)

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._loop.time()

    def _epoch(self) -> float:
        return EPOCH_S + self._loop.time()

    # -- members -------------------------------------------------------------------------------

    def new_node(self, worker_id: str | None = None) -> Node:
        """A fresh process, with a worker id of its own unless it is told one."""
        self._incarnations += 1
        number = self._incarnations
        rng = random.Random(f"node {number} {self.plan.seed}")
        node = Node(self, worker_id or f"w{number}", rng, number)
        vars(node.gate.weather).update(self.plan.weather)
        self.nodes.append(node)
        self.judges.table.started(node.worker_id)
        node.start()
        return node

    def new_peer(self, *, is_legacy: bool = False, flips_to: str | None = None) -> JavaPeer:
        """A fresh Java-like process, of the fleet's generation unless it flips it."""
        self._peers += 1
        name = f"java{self._peers}"
        rng = random.Random(f"{name} {self.plan.seed}")
        peer = (
            Java3Peer(self, name, rng, is_legacy=is_legacy, flips_to=flips_to)
            if self.plan.is_assigned or flips_to is not None
            else JavaPeer(self, name, rng)
        )
        if not isinstance(peer, Java3Peer):
            self.court.by_counter.add(name)
        vars(peer.gate.weather).update(self.plan.weather)
        self.members.append(peer)
        peer.start()
        return peer

    async def _join(self, at_s: float | None) -> None:
        """A Java worker comes to a fleet of ours; None = none does."""
        if at_s is not None:
            await asyncio.sleep(at_s)
            self.new_peer()

    async def create_3x_table(self) -> None:
        """What the first worker of a 3.x fleet has left."""
        names = ("leaseKey", "leaseOwner")
        attributes = [{"AttributeName": name, "AttributeType": "S"} for name in names]
        self.dynamodb.call(
            "CreateTable",
            {
                "TableName": TABLE,
                "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
                "AttributeDefinitions": attributes[:1],
                "BillingMode": "PAY_PER_REQUEST",
            },
        )
        await asyncio.sleep(self.plan.create_s)
        if self.operations is not None:
            self.operations.create_tables()
            return
        self.court.actor = "operator"
        self.court.foreigners.add("operator")
        item = migration_item("operator", self.now())
        self.dynamodb.call("PutItem", {"TableName": TABLE, "Item": item})

    def alive(self) -> list[Any]:
        """Workers of ours that exist."""
        return [node for node in self.nodes if node.alive]

    async def supervise(self) -> None:
        """A place in the fleet: start a worker, and another when it has ended."""
        self._places += 1
        rng = random.Random(f"place {self._places} {self.plan.seed}")
        worker_id = f"p{self._places}" if self.plan.same_ids else None
        await asyncio.sleep(rng.uniform(0, 5))
        while self.supervised and not self.lost:
            await self.open.wait()
            node = self.new_node(worker_id)
            await node.ended.wait()
            if not node.gate.dead:
                await node.check_clean()
                self._check_stop(node)
            if isinstance(node.error, UnservableFleet):
                self.court.convict("S0", f"{node.worker_id} refused a sound fleet: {node.error}")
                return
            self.nodes.remove(node)
            await asyncio.sleep(rng.uniform(0.5, 15 if self.manners is self.plan.manners else 1))

    def _check_stop(self, node: Node) -> None:
        """L4: a stop ends within its grace and what the children are given after it."""
        if node.stop_asked_s is None:
            return
        took_s = self.now() - node.stop_asked_s
        child = node.config.child
        bound_s = node.config.shutdown_grace_s + child.eof_grace_s + child.term_grace_s + 2.0
        if self.court.calm and node.config.shutdown_grace_s > 1.0:
            bound_s = node.config.shutdown_grace_s
            if node.outcome is None or not node.outcome.complete or node.outcome.leases_left:
                self.court.convict("L4", f"{node.worker_id} ended with {node.outcome}")
        if took_s > bound_s:
            self.court.convict("L4", f"{node.worker_id} took {took_s:.1f} s to stop")

    # -- load ----------------------------------------------------------------------------------

    async def produce(self) -> None:
        """Put records until told to stop."""
        plan, rng = self.plan, self.rng
        while self.producing:
            for _record in range(rng.randint(1, 5)):
                self.stream.put(aggregated=rng.random() < plan.aggregated)
            await asyncio.sleep(rng.uniform(0, 2 * plan.put_every_s))

    async def reshard(self) -> None:
        """Split and merge now and then."""
        every_s = self.plan.reshard_every_s
        while every_s is not None and self.producing:
            await asyncio.sleep(self.rng.uniform(0.2, 1.8) * every_s)
            if self.producing and len(self.stream.truth) < 16:
                self.trace.add("", self.stream.reshard())

    async def flip(self) -> None:
        """Let a 3.x worker join and change the table's state, when the plan says so."""
        plan = self.plan
        if plan.flip_at_s is None:
            return
        await asyncio.sleep(plan.flip_at_s)
        version = self.rng.choice(["CLIENT_VERSION_3X", "CLIENT_VERSION_3X_WITH_ROLLBACK"])
        self.new_peer(is_legacy=plan.flip_table == "coordinator", flips_to=version)

    def begin_3x(self) -> None:
        """The table's state changes now: a leader assigns the leases."""
        self.trace.add("", "FLIP")
        self.flipped = True
        self.judges.fleet.begin()

    async def lose(self) -> None:
        """Delete stream or table under the fleet, when the plan says so.

        Workers that have not begun to work by then are killed: whatever they find is theirs.
        """
        plan, rng = self.plan, random.Random(f"loss {self.plan.seed}")
        if plan.loses is None:
            return
        await asyncio.sleep(plan.loses_at_s)
        while TABLE not in self.dynamodb.tables:  # noqa: ASYNC110 - it does not tell
            await asyncio.sleep(1)
        self.lost, self.producing = plan.loses, False
        self.trace.add("", plan.loses.upper())
        for node in self.alive():
            if node.worker is None or node.worker.scheduler.state == "starting":
                await node.kill()
        self.court.lost, _, how = plan.loses.partition(" ")
        self.court.lost_s = self.now()
        comes_back = how == "recreated"
        if self.court.lost == "stream":
            assert isinstance(self.stream, SimStream)
            self.stream.delete()
            if comes_back:
                await asyncio.sleep(REPLACED_S)
                self.stream.create_again(rng.randint(1, 6))
            return
        key = {"AttributeName": "leaseKey", "KeyType": "HASH"}
        self.dynamodb.call("DeleteTable", {"TableName": TABLE})
        self.judges.table.table_deleted()
        if comes_back:
            self.dynamodb.call(
                "CreateTable",
                {
                    "TableName": TABLE,
                    "KeySchema": [key],
                    "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
                    "BillingMode": "PAY_PER_REQUEST",
                },
            )

    async def operate(self) -> None:
        """What people do to a 3.x fleet, and the time until all workers know it."""
        if self.operations is not None:
            await self.operations.run()
            await asyncio.sleep(SETTLE_S)

    # -- many streams --------------------------------------------------------------------------

    async def change_streams(self) -> None:
        """Add, delete and create again, as the plan says; files follow."""
        rng = random.Random(f"change streams {self.plan.seed}")
        for event in self.plan.stream_events:
            await asyncio.sleep(rng.uniform(5, 60))
            assert isinstance(self.stream, SimStreams)
            names = self.stream.names()
            if event == "add":
                name = f"added{len(self.stream.generations)}"
                self.stream.create(name, rng.randint(1, 3))
                self.listed += (name,)
                self.trace.add("", f"STREAM {name} ADDED")
                continue
            if len(names) < 2:
                continue
            name = rng.choice(names)
            self.trace.add("", f"STREAM {name} DELETED")
            self.stream.delete(name)
            self.deletions += 1
            if event == "recreate":
                await asyncio.sleep(rng.choice([rng.uniform(2, 10), rng.uniform(2, 100)]))
                self.stream.create(name, rng.randint(1, 4))
                self.trace.add("", f"STREAM {name} CREATED AGAIN")
            else:
                self.listed = tuple(one for one in self.listed if one != name)

    async def roll_out(self) -> None:
        """Start those again, one by one, whose files are outdated."""
        if self.plan.discovers:
            return
        for node in self.alive():
            listed = node.config.streams.streams if node.config.streams is not None else ()
            if node.alive and tuple(one.name for one in listed) != self.listed:
                node.stop()
                await node.ended.wait()

    async def last_gasp(self) -> None:
        """After a loss and with the faults off: every worker ends by itself, soon and for it."""
        await asyncio.sleep(LOSS_S)
        for node in self.alive():
            self.court.convict("L5", f"{node.worker_id} lives {LOSS_S} s after: {self.lost}")

    def drop_lease(self, rng: random.Random) -> None:
        """An operator deletes a row of an open shard; the audit has to find the hole.

        A Java leader never fills it while a row of an ancestor is there, nor if the shard is
        merged with one that has a row before the audit: then a worker of ours does it in its stead.
        A row that is made anew at LATEST skips records; and the scripted 3.x worker does not audit.
        """
        keys = [
            shard.shard_id
            for shard in self.stream.open_shards
            if shard.shard_id in self.court.rows
            and not (not self.plan.workers and (shard.parents or self.plan.reshard_every_s))
        ]
        if not keys or self.plan.flip_at_s is not None or self._at_latest:
            return
        key = rng.choice(keys)
        self.court.actor = "operator"
        self.court.foreigners.add("operator")
        self.trace.add("", f"ROW {key} DELETED")
        self.dynamodb.call("DeleteItem", {"TableName": TABLE, "Key": {"leaseKey": {"S": key}}})

    async def litter(self) -> None:
        """Put rows into the table that every worker has to step over."""
        while TABLE not in self.dynamodb.tables:  # noqa: ASYNC110 - it does not tell
            await asyncio.sleep(1)
        await asyncio.sleep(self.plan.create_s)
        self.court.actor = "operator"
        self.court.foreigners.add("operator")
        for item in (
            {"leaseKey": {"S": STREAM}, "entityType": {"S": "STREAM"}, "streamId": {"S": STREAM}},
            {"leaseKey": {"S": "shardId-broken"}, "leaseCounter": {"S": "many"}},
        ):
            self.dynamodb.call("PutItem", {"TableName": TABLE, "Item": item})

    async def watch(self) -> None:
        """Look at beliefs, for ever."""
        while True:
            await asyncio.sleep(TICK_S)
            self.judges.beliefs.tick()
            self.judges.siblings.tick()
            self.judges.fleet.tick([node.worker_id for node in self.nodes if node.leads()])

    # -- liveness ------------------------------------------------------------------------------

    async def calm(self) -> None:
        """Faults are off: everything must come right by itself, soon."""
        self.trace.add("", "CALM")
        self.manners = self._polite()
        await self.roll_out()
        if self.operations is not None:
            await self.operations.finish()
        await asyncio.sleep(10 + (LOSS_S if self.deletions else 0))
        if max(self.plan.children) > 1:
            self.court.polite_s = self.now()
            await asyncio.sleep(MARK_MOVES_S + 20)
            self.court.polite_s = None
        self.producing = False
        await asyncio.sleep(self.leases.failover_s + 16)
        self.court.calm = True
        taker_s = self.leases.taker_interval_s
        has_java_leader = self.flipped or (self.plan.is_assigned and bool(self.members))
        lead_s = JAVA_LEAD_S if has_java_leader else 0.0
        orphaned: dict[str, float] = {}
        bound_s = self.now() + 60 + taker_s * (len(self.stream.truth) + 4)
        backlog = sum(len(truth.places) for truth in self.stream.truth.values())
        bound_s += lead_s + 2 * backlog / self.plan.max_records * 1.5
        bound_s += 0.0 if self.operations is None else self.operations.bound_s
        bound_s += self.ends_late_s
        if self._has_hole() or any(log.row_dropped for log in self.court.logs.values()):
            has_java = self.plan.peers or self.plan.joins_at_s is not None
            bound_s += JAVA_ELECTION_S if has_java else ELECTION_S
        why = "?"
        while self.now() < bound_s and not self.court.violations:
            await asyncio.sleep(1)
            self._check_orphans(orphaned, 2 * taker_s + self.leases.failover_s + 5 + lead_s)
            self.judges.fleet.check_hand_offs(HAND_OFF_S + 3 * self.leases.failover_s + 5 + lead_s)
            why = self._unfinished()
            if not why:
                return
            bound_s = max(bound_s, self._ordered_to_wait_s())
        if not self.court.violations:
            rules = {"counts": "L2", "tables:": "L8"}
            self.court.convict(rules.get(why.split(" ")[0], "L3"), why)

    def _polite(self) -> Manners:
        """Children that do no wrong, and checkpoint as before if that is often enough."""
        style = self.plan.manners.checkpoints
        if max(self.plan.children) == 1:
            return _POLITE
        return replace(_POLITE, checkpoints=style if style in {"timed", "never"} else "own")

    def _ordered_to_wait_s(self) -> float:
        """When the last of the newcomers that a leader keeps waiting has to have its share.

        The rule says for how long a newcomer has to live, and its reports, of which the last may be
        a period old, show that it does. A leader can't order more than the rule allows, or longer.
        """
        ordered: dict[str, float] = {}
        for node in self.alive():
            if node.leads():
                ordered |= node.worker.coordinator.member.waiting()
        return max(
            (
                node.started_s + min(ordered[node.worker_id], MOST_WAIT_S) + WAITED_S
                for node in self.alive()
                if node.worker_id in ordered
            ),
            default=0.0,
        )

    def _has_hole(self) -> bool:
        """Whether something is read by no unfinished lease: only an audit can mend that."""
        return any(one.has_hole(self.court.unfinished()) for one in self.stream.living())

    def _check_orphans(self, orphaned: dict[str, float], bound_s: float) -> None:
        """L1: a lease without a live owner finds one."""
        live = {member.worker_id for member in self._members_alive()}
        now = self.now()
        for key, item in self.court.rows.items():
            if self.stream.deleted_s(key) is not None:
                continue
            if text_of(item, "checkpoint") == "SHARD_END" or text_of(item, "leaseOwner") in live:
                orphaned.pop(key, None)
            elif now - orphaned.setdefault(key, now) > bound_s:
                self.court.convict("L1", f"{key} has had no live owner for {bound_s:.0f} s")

    def _members_alive(self) -> list[Any]:
        return self.alive() + [member for member in self.members if member.alive]

    def _unfinished(self) -> str:
        """What is still to come, "" when nothing is."""
        if why := self._unread() or self.judges.fleet.under_way():
            return why
        if why := "" if self.operations is None else self.operations.unmoved():
            return why
        return self._uneven()

    def _unread(self) -> str:
        """Records that nobody has processed, and ends that nobody has stored."""
        self.stream.refresh()
        for shard_id, truth in self.stream.truth.items():
            log = self.court.log(shard_id)
            if self._at_latest and self._is_past(shard_id):
                continue
            if self.stream.deleted_s(shard_id) is not None:
                continue
            if log.prefix < len(truth.places):
                return f"{shard_id}: {log.prefix} of {len(truth.places)} records processed"
            shard = self.stream.shards[shard_id]
            # A row that was deleted after its children had theirs leaves no hole: nobody misses it.
            gone = log.row_dropped and shard_id not in self.court.rows
            if not shard.is_open and not log.ended and not gone:
                return f"{shard_id}: closed and read, but not at SHARD_END"
        return ""

    def _uneven(self) -> str:
        """Leases that are held by too few, or that nobody should hold."""
        counts = {member.worker_id: 0 for member in self._members_alive()}
        for node in self.alive():
            for key in node.believes():
                if self.stream.deleted_s(key) is not None:
                    return f"{node.worker_id} holds {key}, whose stream was deleted"
        leader = self.judges.fleet.leader
        counts_unread_alone = leader is not None and leader not in self.court.foreigners
        for key, item in self.court.rows.items():
            owner = text_of(item, "leaseOwner")
            if counts_unread_alone and text_of(item, "checkpoint") == "SHARD_END":
                continue  # only waits for the cleanup
            # A row of a deleted stream may name whoever could not write its release.
            if owner in counts and self.stream.deleted_s(key) is None:
                counts[owner] += 1
        if counts and max(counts.values()) - min(counts.values()) > 1:
            return f"counts of leases {counts}"
        return ""

    def _is_past(self, shard_id: str) -> bool:
        """With LATEST: all of this shard's records may have come before its first reader."""
        item = self.court.rows.get(shard_id)
        if item is None:
            return not self.court.log(shard_id).begun
        return text_of(item, "checkpoint") == Sentinel.LATEST

    # -- the whole run -------------------------------------------------------------------------

    async def run(self) -> None:
        """Chaos, calm, stop."""
        logger, handler = logging.getLogger("mld"), _LogJudge(self)
        old_level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        try:
            await self._run()
        finally:
            logger.removeHandler(handler)
            logger.setLevel(old_level)
            logger.propagate = True

    async def _run(self) -> None:
        nemesis = Nemesis(self)
        if self.plan.is_assigned and not self.plan.begins:
            await self.create_3x_table()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.watch(), name="watch")]
            group.create_task(self.produce(), name="produce")
            tasks.append(group.create_task(self.reshard(), name="reshard"))
            if self.plan.litter:
                tasks.append(group.create_task(self.litter(), name="litter"))
            tasks += [
                group.create_task(self.supervise(), name="place")
                for _place in range(self.plan.workers)
            ]
            tasks.append(group.create_task(self.flip(), name="flip"))
            losing = group.create_task(self.lose(), name="lose")
            changing = group.create_task(self.change_streams(), name="change streams")
            operating = group.create_task(self.operate(), name="operate")
            is_legacy = self.plan.changes is not None and self.plan.changes.is_legacy
            for _place in range(self.plan.peers):
                self.new_peer(is_legacy=is_legacy)
            tasks.append(group.create_task(self._join(self.plan.joins_at_s), name="join"))
            end_s = self.now() + self.plan.chaos_s
            steering = [
                group.create_task(Steering(self, number).run(end_s), name="steer")
                for number in range(2 if self.plan.steers else 0)
            ]
            nemesis.start(group, tasks)
            await nemesis.chaos()
            await asyncio.gather(*steering)
            await losing
            await changing
            await operating
            if self.lost and not self.court.violations:
                await self.last_gasp()
            elif not self.court.violations:
                await self.calm()
            if not self.court.violations:
                await self._stop_all()
            self.producing = False
            for member in self._members_alive():
                await member.kill()
            for task in tasks:
                task.cancel()
        self._count_readers()
        loop = self._loop
        assert isinstance(loop, SimLoop)
        for context in loop.uncaught:
            self.court.convict(
                "S0", f"nobody caught {context.get('exception')!r}: {context['message']}"
            )

    def _count_readers(self) -> None:
        if isinstance(self.stream, SimTableStream):
            for shard_id, readers in self.stream.service.crowds(self.leases.failover_s):
                self.court.convict("S19", f"{shard_id} had the readers {readers} at a time")

    async def _stop_all(self) -> None:
        self.supervised = False
        for node in self.alive():
            node.stop()
        for node in self.alive():
            try:
                async with asyncio.timeout(60):
                    await node.ended.wait()
            except TimeoutError:
                self.court.convict("L4", f"{node.worker_id} did not stop in 60 s")
        # Where workers die, a holder may be behind what an earlier one has processed.
        is_orderly = self.plan.grace_s > 1.0 and not self.plan.faults
        if is_orderly and not self.lost and not self.court.violations:
            self.judges.siblings.check_stopped()
        await asyncio.sleep(0.1)


def _drawn_plans(seed: int) -> tuple[Plan, ...]:
    of_table = table_plan(seed)
    return of_table, children_plan(seed), children_plan(seed, of_table)


def judge(seed: int | Plan, build: Build = app.build, rows: int = 40) -> Verdict:
    """Run one seed in a world of its own."""
    plan = draw(seed) if isinstance(seed, int) else seed
    fleets: list[Fleet] = []

    async def main() -> float:
        fleet = Fleet(plan, build)
        fleets.append(fleet)
        await fleet.run()
        return fleet.now()

    # The world of a run lives as long as the run: nothing is gained by looking for garbage.
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        virtual_s = run(main())
    except Stalled as stalled:
        virtual_s = fleets[0].trace.rows[-1].at_s
        fleets[0].court.violations.append(Violation("L0", str(stalled), virtual_s))
    finally:
        if was_collecting:
            gc.enable()
    fleet = fleets[0]
    return Verdict(
        plan.seed,
        isinstance(seed, int) or plan in _drawn_plans(plan.seed),
        plan.table_stream is not None,
        plan.children != (1,),
        tuple(fleet.court.violations),
        fleet.trace.digest(),
        fleet.trace.table(rows),
        virtual_s,
        sum(len(truth.places) for truth in fleet.stream.truth.values()),
        fleet.court.duplicates,
        dict(fleet.court.counts),
    )
