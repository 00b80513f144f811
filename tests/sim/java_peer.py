"""A worker as Java's 2.x library is one, scripted: what our workers share a table with.

It does what matters to others: legacy requests, takes by count, one victim a cycle, stamps taken
after the answer, nothing released at a stop. Half of them are of the kind before 2.6.0, which goes
by the time since a counter moved and never by a missing owner. It leads when it is elected
(:mod:`tests.sim.java_leader`). Its record processor is the test's own: it checkpoints after each
batch.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import AwsError, ConditionFailed, InUse, NotFound
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.fake_kinesis import FakeKinesis
from tests.sim.gate import Gate
from tests.sim.java_leader import JavaLeader, parents_of
from tests.sim.loop import OWNER, TaskOwner
from tests.sim.node import TABLE
from tests.sim.ports import ThroughGate
from tests.sim.rows import text_of
from tests.sim.stream import STREAM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.sim.fleet import Fleet
    from tests.sim.stream import Place


def number(value: int) -> dict[str, str]:
    """A number as DynamoDB wants it."""
    return {"N": str(value)}


@dataclass
class Seen:
    """A lease as this worker last saw it, and when its counter last moved (its own clock)."""

    item: dict[str, Any]
    stamp_s: float

    @property
    def counter(self) -> int:
        return int(self.item["leaseCounter"]["N"])

    @property
    def owner(self) -> str | None:
        return text_of(self.item, "leaseOwner")


@dataclass
class Held:
    """A lease that this worker holds."""

    key: str
    counter: int
    stamp_s: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    task: asyncio.Task[None] | None = None
    is_read: bool = False
    next_owner: str | None = None
    passing_on: asyncio.Task[None] | None = None


class JavaPeer(TaskOwner):
    """One scripted process."""

    #: What a take changes besides owner and counter.
    _take_also: Mapping[str, Any] = {}

    def __init__(self, fleet: Fleet, worker_id: str, rng: random.Random) -> None:
        super().__init__()
        self.fleet = fleet
        self.worker_id = worker_id
        self.gate = Gate(rng)
        self.alive = True
        self._rng = rng
        #: DynamoDBLeaseTaker.getExpiredLeases of 2.5.8; getAvailableLeases since 2.6.0.
        self._is_before_2_6 = random.Random(f"{worker_id} {fleet.plan.seed} version").random() < 0.5
        self._held: dict[str, Held] = {}
        self._seen: dict[str, Seen] = {}
        leases = fleet.leases
        self._failover_s = leases.failover_s
        self._renewal_s = leases.renewal_interval_s
        self._taker_s = leases.taker_interval_s

        def entered() -> None:
            fleet.court.actor = worker_id

        self._dynamodb: Any = ThroughGate(
            "dynamodb",
            FakeDynamoDb(fleet.dynamodb),
            self.gate,
            min(60.0, 6 * self._failover_s),
            entered,
        )
        self._kinesis: Any = ThroughGate("kinesis", FakeKinesis(fleet.stream.model), self.gate, 30)

    def believes(self) -> tuple[str, ...]:
        """Not judged: Java stamps after the answer and so believes for too long."""
        return ()

    def start(self) -> None:
        """Let it run."""
        self.fleet.trace.add(self.worker_id, "START")
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        asyncio.get_running_loop().create_task(self._main(), context=context)

    async def kill(self) -> None:
        """SIGKILL, and what a Java stop amounts to for the table."""
        self.fleet.trace.add(self.worker_id, "KILL")
        self.gate.kill()
        self.thaw()
        self.alive = False
        while self.running():
            for task in self.running():
                task.cancel()
            await asyncio.sleep(0)

    async def _main(self) -> None:
        await self._ensure_table()
        await self._first_sync()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forever(self._renew_all, self._renewal_s))
            group.create_task(self._forever(self._take, self._taker_s))
            group.create_task(self._forever(lambda: self._reconcile(group), 1.0))
            leader = JavaLeader(self)
            group.create_task(leader.elections())
            group.create_task(leader.audits())

    async def _forever(self, step: Any, pause_s: float) -> None:
        while True:
            with suppress(AwsError):
                await step()
            await asyncio.sleep(pause_s)

    def _now(self) -> float:
        return self.fleet.now()

    # -- start ---------------------------------------------------------------------------------

    async def _ensure_table(self) -> None:
        while True:
            try:
                table = (await self._dynamodb.describe_table(TableName=TABLE))["Table"]
                if table["TableStatus"] in {"ACTIVE", "UPDATING"}:
                    return
                await asyncio.sleep(1)
            except NotFound:
                await self._create_table()
            except AwsError:
                await asyncio.sleep(1)

    async def _create_table(self) -> None:
        try:
            await self._dynamodb.create_table(
                TableName=TABLE,
                KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        except InUse:
            pass
        except AwsError:
            await asyncio.sleep(1)

    async def _first_sync(self) -> None:
        """On an empty table everybody leads: leases of the shards that have no parents.

        A write that fails ends it; what is missing then is left to the audit.
        """
        while True:
            with suppress(AwsError):
                if not await self._stays_empty():
                    return
                for shard in await self.list_shards():
                    if not parents_of(shard):
                        await self.create_lease(shard)
                return
            await asyncio.sleep(1)

    async def _stays_empty(self) -> bool:
        for _look in range(self._rng.randint(1, 10)):
            if await self.scan():
                return False
            await asyncio.sleep(3)
        return True

    async def scan(self) -> list[dict[str, Any]]:
        """All leases."""
        items = await self.scan_all()
        return [item for item in items if text_of(item, "entityType") in {None, "LEASE"}]

    async def scan_all(self, table: str = TABLE) -> list[dict[str, Any]]:
        """All items of a table."""
        items: list[dict[str, Any]] = []
        request: dict[str, Any] = {"TableName": table}
        while True:
            page = await self._dynamodb.scan(**request)
            items += page["Items"]
            if "LastEvaluatedKey" not in page:
                return items
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    async def list_shards(self) -> list[dict[str, Any]]:
        """All shards that are listed."""
        shards: list[dict[str, Any]] = (await self._kinesis.list_shards(StreamName=STREAM))[
            "Shards"
        ]
        return shards

    async def create_lease(self, shard: Mapping[str, Any]) -> None:
        """A lease at the horizon, unless there is one."""
        keys = shard["HashKeyRange"]
        parents = shard.get("ParentShards", parents_of(shard))  # as a child, or as listed
        item: dict[str, Any] = {
            "leaseKey": {"S": shard["ShardId"]},
            "leaseCounter": number(0),
            "ownerSwitchesSinceCheckpoint": number(0),
            "checkpoint": {"S": "TRIM_HORIZON"},
            "checkpointSubSequenceNumber": number(0),
            "startingHashKey": {"S": keys["StartingHashKey"]},
            "endingHashKey": {"S": keys["EndingHashKey"]},
        }
        if parents:
            item["parentShardId"] = {"SS": sorted(parents)}
        with suppress(ConditionFailed):
            await self._dynamodb.put_item(
                TableName=TABLE, Item=item, Expected={"leaseKey": {"Exists": False}}
            )

    # -- heartbeat -----------------------------------------------------------------------------

    async def _renew_all(self) -> None:
        for key in sorted(self._held, reverse=True):
            held = self._held.get(key)
            if held is not None:
                await self._renew(held)

    async def _renew(self, held: Held) -> None:
        async with held.lock:
            if self._now() - held.stamp_s > self._failover_s:
                self._drop(held)
                return
            try:
                await self._write(held, {})
            except ConditionFailed:
                await self._maybe_lost(held)
            except AwsError:
                pass

    async def _write(
        self, held: Held, changes: dict[str, Any], expected: Mapping[str, Any] | None = None
    ) -> None:
        """One write under the counter; the stamp is taken after the answer, as in Java."""
        await self._dynamodb.update_item(
            TableName=TABLE,
            Key={"leaseKey": {"S": held.key}},
            Expected={"leaseCounter": {"Value": number(held.counter)}, **(expected or {})},
            AttributeUpdates={
                "leaseCounter": {"Action": "PUT", "Value": number(held.counter + 1)},
                **changes,
            },
        )
        held.counter += 1
        held.stamp_s = self._now()

    async def _row(self, held: Held) -> dict[str, Any] | None:
        answer = await self._dynamodb.get_item(TableName=TABLE, Key={"leaseKey": {"S": held.key}})
        return answer.get("Item")

    async def _maybe_lost(self, held: Held) -> None:
        """A success whose answer was lost looks like a loss: read."""
        try:
            item = await self._row(held)
        except AwsError:
            return
        if (
            item is not None
            and text_of(item, "leaseOwner") == self.worker_id
            and int(item["leaseCounter"]["N"]) == held.counter + 1
        ):
            held.counter += 1
            held.stamp_s = self._now()
        else:
            self._drop(held)

    def _drop(self, held: Held) -> None:
        if self._held.get(held.key) is held:
            del self._held[held.key]

    # -- taking --------------------------------------------------------------------------------

    async def _take(self) -> None:
        items = await self.scan()
        now = self._now()
        seen: dict[str, Seen] = {}
        for item in items:
            key = item["leaseKey"]["S"]
            old = self._seen.get(key)
            fresh = Seen(item, now)
            if old is not None and old.counter == fresh.counter:
                fresh.stamp_s = old.stamp_s
            elif old is None and fresh.owner is None:
                fresh.stamp_s = float("-inf")
            seen[key] = fresh
        self._seen = seen
        for key in self._choose(now):
            await self._take_one(seen[key])

    def _choose(self, now: float) -> list[str]:
        """The keys to take now, by count."""
        seen, rng = self._seen, self._rng
        available = sorted(
            key
            for key, lease in seen.items()
            if now - lease.stamp_s > self._failover_s
            or (lease.owner is None and not self._is_before_2_6)
        )
        # Before 2.6.0 nobody is a worker like any other, as long as a lease without owner is fresh.
        counts: dict[str | None, int] = {self.worker_id: 0}
        for key in sorted(seen):
            owner = seen[key].owner
            if key not in available:
                counts[owner] = counts.get(owner, 0) + 1
        if not seen:
            return []
        target = 1 if len(counts) >= len(seen) else -(-len(seen) // len(counts))
        very_old = [key for key in available if seen[key].stamp_s < now - 3 * self._failover_s]
        if very_old:
            rng.shuffle(very_old)
            return very_old
        need = target - counts[self.worker_id]
        if need <= 0:
            return []
        if available:
            rng.shuffle(available)
            return available[:need]
        victim = max(sorted(counts, key=str), key=lambda worker: counts[worker])
        if victim is None:
            return []  # a NullPointerException ends the cycle
        surplus = counts[victim] - target
        steal = min(need, surplus) if surplus >= 0 else 0
        if surplus >= 0 and steal == 0 and need > 1:
            steal = 1
        owned = sorted(key for key, lease in seen.items() if lease.owner == victim)
        return rng.sample(owned, min(steal, 1, len(owned)))

    async def _take_one(self, lease: Seen) -> None:
        key = lease.item["leaseKey"]["S"]
        updates: dict[str, Any] = {
            "leaseOwner": {"Action": "PUT", "Value": {"S": self.worker_id}},
            "leaseCounter": {"Action": "PUT", "Value": number(lease.counter + 1)},
            **self._take_also,
        }
        if lease.owner is not None and lease.owner != self.worker_id:
            updates["ownerSwitchesSinceCheckpoint"] = {"Action": "ADD", "Value": number(1)}
        try:
            await self._dynamodb.update_item(
                TableName=TABLE,
                Key={"leaseKey": {"S": key}},
                Expected={"leaseCounter": {"Value": number(lease.counter)}},
                AttributeUpdates=updates,
            )
        except AwsError:
            return
        self._held[key] = Held(key, lease.counter + 1, self._now())

    # -- consuming -----------------------------------------------------------------------------

    async def _reconcile(self, group: asyncio.TaskGroup) -> None:
        for key in sorted(self._held):
            held = self._held[key]
            if held.task is None or (held.task.done() and not held.is_read):
                held.task = group.create_task(self._consume(held))

    def _holds(self, held: Held) -> bool:
        return self._held.get(held.key) is held and self._now() - held.stamp_s <= self._failover_s

    def _may_read(self, held: Held) -> bool:
        return self._holds(held) and held.next_owner is None

    async def _consume(self, held: Held) -> None:
        while self._may_read(held):
            try:
                if await self._consume_from_checkpoint(held):
                    held.is_read = self._holds(held)
                    return
            except AwsError:
                await asyncio.sleep(1)

    async def _consume_from_checkpoint(self, held: Held) -> bool:
        """Read until the lease is lost or the shard is done; True when there is no more to do."""
        item = (
            await self._dynamodb.get_item(
                TableName=TABLE, Key={"leaseKey": {"S": held.key}}, ConsistentRead=True
            )
        ).get("Item")
        if item is None or item["checkpoint"]["S"] == "SHARD_END":
            return True
        for parent in item.get("parentShardId", {"SS": []})["SS"]:
            if not await self._is_done(parent):
                await asyncio.sleep(2)
                return False
        position = item["checkpoint"]["S"]
        after = int(position) if position.isdigit() else -1
        where: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if after >= 0:
            where = {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                "StartingSequenceNumber": position,
            }
            sub = int(item["checkpointSubSequenceNumber"]["N"])
            if sub < self.fleet.stream.truth[held.key].last_sub(after):
                where["ShardIteratorType"] = "AT_SEQUENCE_NUMBER"
        token = (
            await self._kinesis.get_shard_iterator(StreamName=STREAM, ShardId=held.key, **where)
        )["ShardIterator"]
        behind = (after, int(item["checkpointSubSequenceNumber"]["N"]))
        return await self._read_on(held, token, behind)

    async def _is_done(self, shard_id: str) -> bool:
        answer = await self._dynamodb.get_item(TableName=TABLE, Key={"leaseKey": {"S": shard_id}})
        item = answer.get("Item")
        return item is None or item["checkpoint"]["S"] == "SHARD_END"

    async def _exists(self, shard_id: str) -> bool:
        return "Item" in await self._dynamodb.get_item(
            TableName=TABLE, Key={"leaseKey": {"S": shard_id}}, ConsistentRead=True
        )

    async def _read_on(self, held: Held, token: str | None, behind: Place) -> bool:
        while token is not None and self._may_read(held):
            answer = json.loads(await self._kinesis.get_records(ShardIterator=token))
            if records := answer["Records"]:
                numbers = [int(entry["SequenceNumber"]) for entry in records]
                await self._process(held, numbers, behind)
            token = answer.get("NextShardIterator")
            if token is None and self._holds(held):
                await self._shard_end(held, answer.get("ChildShards", []))
                return True
            await asyncio.sleep(1.5)
        return not self._may_read(held)

    async def _process(self, held: Held, numbers: list[int], behind: Place) -> None:
        self.fleet.judges.children.peer_read(self.worker_id, held.key, numbers, behind)
        sub = self.fleet.stream.truth[held.key].last_sub(numbers[-1])
        await self._checkpoint(held, str(numbers[-1]), sub)

    async def _checkpoint(self, held: Held, position: str, sub: int, **more: Any) -> None:
        for _attempt in range(3):
            async with held.lock:
                if not self._holds(held):
                    return
                try:
                    await self._write(
                        held,
                        {
                            "checkpoint": {"Action": "PUT", "Value": {"S": position}},
                            "checkpointSubSequenceNumber": {"Action": "PUT", "Value": number(sub)},
                            "ownerSwitchesSinceCheckpoint": {"Action": "PUT", "Value": number(0)},
                            "pendingCheckpoint": {"Action": "DELETE"},
                            **more,
                        },
                    )
                except ConditionFailed:
                    self._drop(held)
                    return
                except AwsError:
                    pass
                else:
                    return
            await asyncio.sleep(1)

    async def _shard_end(self, held: Held, children: list[dict[str, Any]]) -> None:
        parents = sorted({parent for child in children for parent in child["ParentShards"]})
        while self._holds(held) and not all([await self._exists(parent) for parent in parents]):  # noqa: ASYNC110
            await asyncio.sleep(2)
        if not self._holds(held):
            return
        for child in children:
            await self.create_lease(child)
        ids = sorted(child["ShardId"] for child in children)
        more = {"childShardIds": {"Action": "PUT", "Value": {"SS": ids}}} if ids else {}
        while self._holds(held):
            await self._checkpoint(held, "SHARD_END", 0, **more)
            item = self.fleet.court.rows.get(held.key)
            if item is None or text_of(item, "checkpoint") == "SHARD_END":
                return
            await asyncio.sleep(1)
