"""Shards, leases, hosts, a nemesis and a judge; everything follows from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcl_mld.spark.model import Position, Row, ShardKey
from tests.sim_spark.delta_log import Killed
from tests.sim_spark.hosts import Host
from tests.sim_spark.stores import TABLES, is_kept

if TYPE_CHECKING:
    from kcl_mld.spark.model import ShardBatch

HOSTS = 3
STORM_STEPS, MOST_STEPS = 900, 40_000
PARENTS = {"s-2": "s-0", "s-3": "s-0", "s-4": "s-1"}


@dataclass(slots=True)
class Lease:
    """A row of the lease table; every write names the token."""

    token: int = 0
    owner: str | None = None
    checkpoint: Position | None = None
    is_ended: bool = False


@dataclass(slots=True)
class Verdict:
    """What the judge found.

    Attributes:
        replay: the command that shows it again.
        violations: sentences; none if all is well.
        records: that had to come out.
        fenced: commits that were refused because another writer was first.
        crashes: hosts that were killed.
        written_again: jobs that a lost shard was in.
        cut_along: moments at which several shards were cut.
        cut_ahead: jobs that were cut while another one ran.
        refused: deliveries that had to wait for room in the host.
        changed: properties that a user set in the table, right before an append.
        met_itself: appends that were told of an entry that was their own.
        trace: what happened, a line each.
    """

    replay: str
    violations: list[str]
    records: int
    fenced: int
    crashes: int
    written_again: int
    cut_along: int
    cut_ahead: int
    refused: int
    changed: int
    met_itself: int
    trace: list[str] = field(repr=False, default_factory=list)

    def report(self) -> str:
        """For people."""
        return "\n".join([f"replay: {self.replay}", *self.violations[:10], *self.trace])


class World:
    """See the module.

    Args:
        kind: a name of ``stores.TABLES``.
        seed: all chance comes from it.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self.dice = random.Random(seed)
        self.kind, self.seed = kind, seed
        self.store = TABLES[kind](self)
        self.now = 0.0
        self.is_stormy = True
        self.fenced = self.crashes = self.written_again = self._incarnations = 0
        self.cut_along = self.cut_ahead = self.refused = 0
        self.changed = self.met_itself = 0
        self._on_stack: list[Host] = []
        self.violations: list[str] = []
        self.trace: list[str] = []
        self.leases: dict[ShardKey, Lease] = {}
        self.records: dict[ShardKey, list[Row]] = {}
        self._marks: dict[ShardKey, Position] = {}
        for number in range(5):
            shard = ShardKey("app", "stream", f"s-{number}")
            self.leases[shard] = Lease()
            self.records[shard] = self._make_records()
        self.hosts = [self._new_host() for _ in range(HOSTS)]

    # --- what sessions ask of it ------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.dice.random() < probability

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:8.1f} {text}")

    def records_after(self, shard: ShardKey, checkpoint: Position | None) -> list[Row]:
        rows = self.records[shard]
        return [row for row in rows if checkpoint is None or row.position > checkpoint]

    def checkpoint(self, shard: ShardKey, token: int, position: Position) -> bool:
        row = self.leases[shard]
        if row.token != token:
            return False
        durable = self.store.durable_end(shard)
        if durable is None or position > durable:
            self._convict(f"{shard.shard_id}: checkpoint {position} beyond durable {durable}")
        row.checkpoint = position
        return True

    def end_shard(self, shard: ShardKey, token: int) -> None:
        row = self.leases[shard]
        if row.token == token:
            last, durable = self.records[shard][-1].position, self.store.durable_end(shard)
            if durable is None or durable < last:
                self._convict(f"{shard.shard_id}: ended at {durable}, before {last}")
            self.note(f"{shard.shard_id} ended")
            row.is_ended = True

    def committed(self, batch: ShardBatch) -> None:
        """Look whether the shard's mark is there, and did not go back."""
        mark, before = self.store.durable_end(batch.shard), self._marks.get(batch.shard)
        self.note(f"committed {batch.batch_id} to {batch.to}")
        if mark is None or mark < batch.to or (before is not None and mark < before):
            self._convict(f"{batch.shard.shard_id}: the mark went from {before} to {mark}")
        else:
            self._marks[batch.shard] = mark

    def session_failed(self, shard: ShardKey, error: Exception) -> None:
        self.note(f"{shard.shard_id}: session failed: {error}")

    def fate_of_commit(self) -> str:
        """What becomes of a commit and of its answer."""
        if not self.is_stormy or self.chance(0.75):
            return "stands"
        fates = ("lost before", "lost after", "killed before", "killed after", "goes on")
        return self.dice.choice(fates)

    def meanwhile(self, host: Host) -> None:
        """Let others act, for a while that may be long, in the middle of a host's step."""
        if not self.is_stormy or len(self._on_stack) > 2:
            return
        self._on_stack.append(host)
        try:
            for _ in range(self.dice.choice([0, 0, 1, 5, 40])):
                self.now += self.dice.expovariate(2.0)
                self._assign()
                if self.chance(0.04):
                    self._steal(self.dice.choice([*self.leases]))
                self._act()
        finally:
            self._on_stack.remove(host)

    def bury(self, host: Host) -> None:
        """Kill a process where it stands, and start another one in its place."""
        if host in self.hosts:
            self.note(f"{host.name} killed")
            self.crashes += 1
            self.hosts[self.hosts.index(host)] = self._new_host()

    # --- how time passes --------------------------------------------------------------------

    def run(self) -> Verdict:
        for step in range(MOST_STEPS):
            self.is_stormy = step < STORM_STEPS
            if self._is_finished():
                break
            self._step()
        else:
            self._convict("the shards were not finished in time")
        self._judge()
        records = sum(len(rows) for rows in self.records.values())
        replay = f'python -m tests.sim_spark.run --kind "{self.kind}" --seed {self.seed}'
        jobs = (self.written_again, self.cut_along, self.cut_ahead, self.refused)
        seen = (self.fenced, self.crashes, *jobs, self.changed, self.met_itself)
        return Verdict(replay, self.violations, records, *seen, self.trace)

    def _step(self) -> None:
        self.now += self.dice.expovariate(2.0)
        self._assign()
        if self.is_stormy and self.chance(0.04):
            self._strike()
        self._act()

    def _act(self) -> None:
        """One step of one process that is awake."""
        awake = [host for host in self.hosts if not self.is_stormy or host.asleep_until <= self.now]
        free = [host for host in awake if host not in self._on_stack]
        if not free:
            return
        host = self.dice.choice(free)
        actor = self.dice.choice(host.actors)
        try:
            next(actor)
        except StopIteration:
            host.actors.remove(actor)
        except Killed:
            pass  # another host is in its place

    def _assign(self) -> None:
        """A lease without a session gets one: at its owner, or anywhere if that one is gone."""
        for shard, row in self.leases.items():
            parent = PARENTS.get(shard.shard_id)
            if row.is_ended or (parent and not self._lease(parent).is_ended):
                continue
            owner = next((host for host in self.hosts if host.name == row.owner), None)
            if owner is not None and (shard in owner.sessions or self.chance(0.7)):
                continue
            self._move(shard, owner or self.dice.choice(self.hosts))

    def _move(self, shard: ShardKey, host: Host) -> None:
        if shard in host.sessions or not host.is_ready:
            return
        row = self.leases[shard]
        row.token += 1
        row.owner = host.name
        self.note(f"{shard.shard_id} to {host.name}")
        host.start(shard, row.token)

    def _strike(self) -> None:
        shard = self.dice.choice([*self.leases])
        row = self.leases[shard]
        match self.dice.choice(["crash", "sleep", "steal", "steal", "rewind"]):
            case "crash":
                self.bury(self.dice.choice(self.hosts))
            case "sleep":
                self.dice.choice(self.hosts).asleep_until = self.now + self.dice.uniform(1, 60)
            case "steal":
                self._steal(shard)
            case "rewind" if not row.is_ended and self.chance(0.3):
                self.note(f"{shard.shard_id}: checkpoint set back to the beginning")
                row.checkpoint = None

    def _steal(self, shard: ShardKey) -> None:
        row = self.leases[shard]
        if row.owner is not None and not row.is_ended:
            self._move(shard, self.dice.choice(self.hosts))

    # --- how it is judged -------------------------------------------------------------------

    def _judge(self) -> None:
        for shard, rows in self.records.items():
            wanted = [row.position for row in rows if is_kept(row.position)]
            found = self.store.rows(shard)
            name = shard.shard_id
            if lost := set(wanted) - set(found):
                self._convict(f"{name}: {len(lost)} lost, the first is {min(lost)}")
            if len(found) != len(set(found)):
                self._convict(f"{name}: {len(found) - len(set(found))} doubled")
            if found != sorted(found):
                self._convict(f"{name}: out of order")
            if set(found) - set(wanted):
                self._convict(f"{name}: rows that no record gave")

    def _convict(self, sentence: str) -> None:
        self.note(f"VIOLATION {sentence}")
        self.violations.append(sentence)

    def _is_finished(self) -> bool:
        return all(row.is_ended for row in self.leases.values())

    def _lease(self, shard_id: str) -> Lease:
        return self.leases[ShardKey("app", "stream", shard_id)]

    def _new_host(self) -> Host:
        self._incarnations += 1
        return Host(self, f"host-{self._incarnations}")

    def _make_records(self) -> list[Row]:
        """Single records, and aggregates whose records share a sequence number."""
        rows, sequence = [], 0
        for _ in range(self.dice.randint(20, 60)):
            sequence += self.dice.randint(1, 2)
            subs = self.dice.randint(2, 5) if self.chance(0.15) else 1
            rows += [Row(Position(sequence, sub), "k", b"x" * 9, None) for sub in range(subs)]
        return rows


def judge(kind: str, seed: int) -> Verdict:
    """Run one world to its end."""
    return World(kind, seed).run()
