"""A worker as Java's 3.5 library is one, scripted: what our workers share a 3.x fleet with.

It discovers what it is given, obeys hand-offs, writes its metrics, has the leader lock of the lock
client and assigns while it leads: from a scan each ``2 F``, by the number of leases, evening out
with each third run. A second formulation of ``leases.md`` sections 3.3 and 5, which shares nothing
with ``kcl_mld.fleet.rules``. In the single-table layout of 3.5, or with the two further tables of 3.0 to 3.4;
it can join a fleet of 2.x and flip it. In a fleet that was rolled back, or has not flipped yet, it
takes leases as those of 2.x do, and is elected as they are.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import AwsError, ConditionFailed, InUse
from tests.sim.java_leader import JavaLeader, parents_of
from tests.sim.java_peer import Held, JavaPeer, number
from tests.sim.node import TABLE
from tests.sim.ports import EPOCH_S
from tests.sim.rows import text_of, worker_of

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from tests.sim.fleet import Fleet

#: Of the leader lock, of metrics, of hand-offs.
LOCK_S, HEARTBEAT_S = 120.0, 30.0
METRICS_S, METRICS_EXPIRY_S = 30.0, 60.0
HANDOFF_S = 30.0
#: It looks so often what the fleet is.
FOLLOW_S = 60.0
_TAKES = {"CLIENT_VERSION_UPGRADE_FROM_2X", "CLIENT_VERSION_2X"}
#: Every n-th run evens out.
BALANCE_RUNS = 3


STATE_TABLE, METRICS_TABLE = f"{TABLE}-CoordinatorState", f"{TABLE}-WorkerMetricStats"


def migration_item(
    worker_id: str, now_s: float, version: str = "CLIENT_VERSION_3X", key_name: str = "leaseKey"
) -> dict[str, Any]:
    """``Migration3.0`` of a fleet."""
    now_ms = number(int((EPOCH_S + now_s) * 1000))
    who = {"mb": {"S": worker_id}, "mts": now_ms}
    kind = {"entityType": {"S": "CLIENT_VERSION_MIGRATION"}} if key_name == "leaseKey" else {}
    return {
        key_name: {"S": "Migration3.0"},
        **kind,
        "cv": {"S": version},
        "h": {"L": [{"M": {"cv": {"S": "CLIENT_VERSION_INIT"}, **who}}]},
        **who,
    }


class Lock:
    """The item ``Leader`` as Java's lock client has it."""

    def __init__(self, peer: Java3Peer, rng: random.Random) -> None:
        self._peer = peer
        self._rng = rng
        self._mine: str | None = None
        self._beaten_s = 0.0
        self._seen: tuple[str, float] | None = None
        self._refused_s = float("-inf")

    async def is_leader(self) -> bool:
        """As ``DynamoDBLockBasedLeaderDecider``: a refusal is good for a heartbeat's time."""
        now = self._peer.now()
        if self._mine is not None and now - self._beaten_s <= LOCK_S:
            return True
        self._mine = None
        if now - self._refused_s < HEARTBEAT_S:
            return False
        try:
            granted = await self._try()
        except AwsError:
            return False
        if not granted:
            self._refused_s = self._peer.now()
        return granted

    async def _try(self) -> bool:
        peer = self._peer
        table, key_name = peer.state_place
        key = {key_name: {"S": "Leader"}}
        answer = await peer.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)
        item = answer.get("Item")
        condition: dict[str, Any] = {
            "ConditionExpression": "attribute_not_exists(#key)",
            "ExpressionAttributeNames": {"#key": key_name},
        }
        if item is not None:
            version, now = item["recordVersionNumber"]["S"], peer.now()
            if self._seen is None or self._seen[0] != version:
                self._seen = (version, now)
            if now - self._seen[1] <= int(item["leaseDuration"]["S"]) / 1000:
                return False
            condition = {
                "ConditionExpression": "recordVersionNumber = :seen",
                "ExpressionAttributeValues": {":seen": {"S": version}},
            }
        mine = f"{peer.worker_id} {self._rng.random()}"
        started_s = peer.now()
        with suppress(ConditionFailed):
            await peer.dynamodb.put_item(
                TableName=table,
                Item={
                    **key,
                    "ownerName": {"S": peer.worker_id},
                    "leaseDuration": {"S": str(int(LOCK_S * 1000))},
                    "recordVersionNumber": {"S": mine},
                    **({"entityType": {"S": "LEADER"}} if table == TABLE else {}),
                },
                **condition,
            )
            self._mine, self._beaten_s = mine, started_s
            peer.fleet.trace.add(peer.worker_id, "LEADS")
            return True
        return False

    async def give_up(self) -> None:
        """Delete the item, if it is still its own."""
        mine, self._mine = self._mine, None
        table, key_name = self._peer.state_place
        if mine is not None:
            with suppress(AwsError):
                await self._peer.dynamodb.delete_item(
                    TableName=table,
                    Key={key_name: {"S": "Leader"}},
                    ConditionExpression="recordVersionNumber = :mine",
                    ExpressionAttributeValues={":mine": {"S": mine}},
                )

    async def heartbeats(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self._mine is None:
                continue
            fresh, started_s = f"{self._peer.worker_id} {self._rng.random()}", self._peer.now()
            try:
                table, key_name = self._peer.state_place
                await self._peer.dynamodb.update_item(
                    TableName=table,
                    Key={key_name: {"S": "Leader"}},
                    UpdateExpression="SET recordVersionNumber = :fresh",
                    ConditionExpression="recordVersionNumber = :mine",
                    ExpressionAttributeValues={
                        ":fresh": {"S": fresh},
                        ":mine": {"S": self._mine},
                    },
                )
            except ConditionFailed:
                self._mine = None
            except AwsError:
                pass
            else:
                self._mine, self._beaten_s = fresh, started_s


@dataclass
class Stamp:
    """What the leader knows of a lease's counter, and of its hand-off."""

    counter: int
    at_s: float
    pair: tuple[str | None, str | None] = (None, None)
    deadline_s: float = 0.0


class Java3Peer(JavaPeer):
    """One scripted process.

    Args:
        is_legacy: the layout of 3.0 to 3.4.
        flips_to: it joins a fleet of 2.x and writes this into ``cv``.
    """

    _take_also: Mapping[str, Any] = {"checkpointOwner": {"Action": "DELETE"}}

    def __init__(
        self,
        fleet: Fleet,
        worker_id: str,
        rng: random.Random,
        *,
        is_legacy: bool = False,
        flips_to: str | None = None,
    ) -> None:
        super().__init__(fleet, worker_id, rng)
        self.is_legacy = is_legacy
        self.flips_to = flips_to
        #: Table and key name of the lock and of ``Migration3.0``; then of metrics.
        self.state_place = (STATE_TABLE, "key") if is_legacy else (TABLE, "leaseKey")
        self.metrics_place = (METRICS_TABLE, "wid") if is_legacy else (TABLE, "leaseKey")
        self.dynamodb = self._dynamodb
        self._lock = Lock(self, rng)
        self._stamps: dict[str, Stamp] = {}
        self._runs = 0
        self._audits = LockedAudits(self)
        self._elections = JavaLeader(self)
        self._is_before_2_6 = False
        self._version: str | None = None
        fleet.court.foreigners.add(worker_id)

    def now(self) -> float:
        """Its clock."""
        return self._now()

    async def _main(self) -> None:
        await self._ensure_table()
        await self._begin_fleet()
        with suppress(AwsError):
            await self._follow()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forever(self._renew_all, self._renewal_s))
            group.create_task(self._forever(self._follow, FOLLOW_S))
            group.create_task(self._forever(self._discover, self._failover_s - 0.025))
            group.create_task(self._forever(self._take_as_2x, self._taker_s))
            group.create_task(self._elections.elections())
            group.create_task(self._forever(lambda: self._reconcile(group), 1.0))
            group.create_task(self._forever(self._report, METRICS_S))
            group.create_task(self._lock.heartbeats())
            group.create_task(self._sync())
            group.create_task(self._forever(self._assign, 2 * self._failover_s))
            group.create_task(self._audits.audits())

    async def _begin_fleet(self) -> None:
        if self.is_legacy:
            for table, key_name in (self.state_place, self.metrics_place):
                await self._create(table, key_name)
        table, key_name = self.state_place
        item = migration_item(
            self.worker_id, self._now(), self.flips_to or "CLIENT_VERSION_3X", key_name
        )
        condition = f"attribute_not_exists({key_name})"
        if self.flips_to is not None:
            condition = f"{condition} OR cv <> :to"
            self.fleet.begin_3x()  # as soon as the write may have landed
        values = {} if self.flips_to is None else {":to": {"S": self.flips_to}}
        while True:
            try:
                await self._dynamodb.put_item(
                    TableName=table,
                    Item=item,
                    ConditionExpression=condition,
                    **({"ExpressionAttributeValues": values} if values else {}),
                )
            except ConditionFailed:
                return
            except AwsError:
                await asyncio.sleep(1)
            else:
                return

    async def _create(self, table: str, key_name: str) -> None:
        while True:
            try:
                await self._dynamodb.create_table(
                    TableName=table,
                    KeySchema=[{"AttributeName": key_name, "KeyType": "HASH"}],
                    AttributeDefinitions=[{"AttributeName": key_name, "AttributeType": "S"}],
                    BillingMode="PAY_PER_REQUEST",
                )
            except InUse:
                return
            except AwsError:
                await asyncio.sleep(1)
            else:
                return

    async def _sync(self) -> None:
        """The leader of an empty table creates the first leases."""
        while True:
            await asyncio.sleep(self._rng.uniform(1, 10))
            with suppress(AwsError):
                if await self.scan():
                    return
                if await self.leads():
                    for shard in await self.list_shards():
                        if not parents_of(shard):
                            await self.create_lease(shard)

    @property
    def takes(self) -> bool:
        """The fleet is one in which workers take leases."""
        return self._version in _TAKES

    async def _follow(self) -> None:
        table, key_name = self.state_place
        answer = await self._dynamodb.get_item(
            TableName=table, Key={key_name: {"S": "Migration3.0"}}, ConsistentRead=True
        )
        self._version = text_of(answer.get("Item"), "cv")
        if self.takes:
            await self._lock.give_up()

    async def _take_as_2x(self) -> None:
        if self.takes:
            await self._take()

    async def _report(self) -> None:
        if self._version == "CLIENT_VERSION_2X":
            return
        now_s = int(EPOCH_S + self._now())
        table, key_name = self.metrics_place
        await self._dynamodb.update_item(
            TableName=table,
            Key={key_name: {"S": self.worker_id}},
            UpdateExpression=f"SET {'' if self.is_legacy else 'entityType = :type, '}"
            "lut = :now, sts = :none, opr = :none",
            ExpressionAttributeValues={
                **({} if self.is_legacy else {":type": {"S": "WORKER_METRIC_STATS"}}),
                ":now": number(now_s),
                ":none": {"M": {}},
            },
        )

    async def leads(self) -> bool:
        """By the lock, or by election."""
        return self._elections.leads if self.takes else await self._lock.is_leader()

    # -- as a follower -------------------------------------------------------------------------

    async def _discover(self) -> None:
        """Leases that name this worker and nobody else; taken up without a write, as in Java."""
        if self.takes:
            return
        for item in await self.scan():
            key = item["leaseKey"]["S"]
            if text_of(item, "leaseOwner") != self.worker_id or key in self._held:
                continue
            answer = await self._dynamodb.get_item(TableName=TABLE, Key={"leaseKey": {"S": key}})
            row = answer.get("Item")
            if row is None or worker_of(row) != self.worker_id or "checkpointOwner" in row:
                continue
            self._held[key] = Held(key, int(row["leaseCounter"]["N"]), self._now())

    async def _renew(self, held: Held) -> None:
        async with held.lock:
            if self._now() - held.stamp_s > self._failover_s:
                self._drop(held)
                return
            plain = {} if held.next_owner else {"checkpointOwner": {"Exists": False}}
            try:
                await self._write(held, {}, plain)
            except ConditionFailed:
                await self._refused(held)
            except AwsError:
                pass

    async def _refused(self, held: Held) -> None:
        """Handed over, or lost."""
        try:
            item = await self._row(held)
        except AwsError:
            return
        new = text_of(item, "leaseOwner")
        if held.next_owner is None and text_of(item, "checkpointOwner") is not None:
            if worker_of(item) != self.worker_id or new == self.worker_id:
                self._drop(held)
                return
            try:
                await self._write(held, {})
            except ConditionFailed:
                self._drop(held)
            except AwsError:
                pass
            else:
                held.next_owner = new
                held.passing_on = asyncio.get_running_loop().create_task(self._pass_on(held))
            return
        await self._maybe_lost(held)

    async def _pass_on(self, held: Held) -> None:
        """After the last batch, or when the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HANDOFF_S):
                while held.task is not None and not held.task.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        async with held.lock:
            if not self._holds(held):
                return
            with suppress(AwsError):
                await self._dynamodb.update_item(
                    TableName=TABLE,
                    Key={"leaseKey": {"S": held.key}},
                    UpdateExpression="REMOVE checkpointOwner ADD leaseCounter :one",
                    ConditionExpression="leaseOwner = :next AND checkpointOwner = :me",
                    ExpressionAttributeValues={
                        ":one": number(1),
                        ":next": {"S": held.next_owner},
                        ":me": {"S": self.worker_id},
                    },
                )
            self._drop(held)

    # -- as the leader -------------------------------------------------------------------------

    async def _assign(self) -> None:
        """One run of the assignment."""
        if self.takes or not await self._lock.is_leader():
            self._stamps, self._runs = {}, 0
            return
        items = await self.scan_all()
        now = self._now()
        leases = {
            item["leaseKey"]["S"]: item
            for item in items
            if text_of(item, "entityType") in {None, "LEASE"}
        }
        self._stamp(leases, now)
        if self.is_legacy:
            items += await self.scan_all(METRICS_TABLE)
        active = sorted(
            {
                str(text_of(item, "wid") or text_of(item, "leaseKey"))
                for item in items
                if "lut" in item and EPOCH_S + now - int(item["lut"]["N"]) <= METRICS_EXPIRY_S
            }
        )
        self._runs += 1
        for key, to in self._plan(leases, active, now).items():
            with suppress(ConditionFailed):
                await self._move(leases[key], to, now)

    def _stamp(self, leases: dict[str, Any], now: float) -> None:
        stamps: dict[str, Stamp] = {}
        for key, item in leases.items():
            old, counter = self._stamps.get(key), int(item["leaseCounter"]["N"])
            stamp = Stamp(counter, now)
            if old is not None and counter <= old.counter:
                stamp.at_s = old.at_s
            elif old is None and worker_of(item) is None:
                stamp.at_s = float("-inf")
            if "checkpointOwner" in item:
                stamp.pair = (text_of(item, "checkpointOwner"), text_of(item, "leaseOwner"))
                is_known = old is not None and old.pair == stamp.pair
                stamp.deadline_s = (
                    old.deadline_s
                    if old is not None and is_known
                    else now + HANDOFF_S + self._failover_s
                )
            stamps[key] = stamp
        self._stamps = stamps

    def _is_unread(self, key: str, item: dict[str, Any], now: float) -> bool:
        return worker_of(item) is None or now - self._stamps[key].at_s > self._failover_s

    def _plan(self, leases: dict[str, Any], active: list[str], now: float) -> dict[str, str]:
        if not active:
            return {}
        owner = {key: worker_of(item) for key, item in leases.items()}
        counts = dict.fromkeys(active, 0)
        unread = [key for key in sorted(leases) if self._is_unread(key, leases[key], now)]
        for key, worker in owner.items():
            if worker in counts and key not in unread:
                counts[worker] += 1
        moves: dict[str, str] = {}
        for key in unread:
            best = min(active, key=lambda worker: counts[worker])
            counts[best] += 1
            if owner[key] != best or "checkpointOwner" in leases[key]:
                moves[key] = best
        if self._runs % BALANCE_RUNS == 1:
            self._even_out(leases, owner, counts, moves, now)
        return moves

    def _even_out(
        self,
        leases: dict[str, Any],
        owner: dict[str, str | None],
        counts: dict[str, int],
        moves: dict[str, str],
        now: float,
    ) -> None:
        while True:
            least = min(counts, key=lambda worker: counts[worker])
            most = max(counts, key=lambda worker: counts[worker])
            if counts[most] - counts[least] <= 1:
                return
            movable = [
                key
                for key in sorted(leases)
                if owner[key] == most
                and key not in moves
                and "checkpointOwner" not in leases[key]
                and not self._is_unread(key, leases[key], now)
            ]
            if not movable:
                return
            moves[self._rng.choice(movable)] = least
            counts[most] -= 1
            counts[least] += 1

    async def _move(self, item: dict[str, Any], to: str, now: float) -> None:
        key, stamp = item["leaseKey"]["S"], self._stamps[item["leaseKey"]["S"]]
        is_free = self._is_unread(key, item, now) or text_of(item, "checkpoint") == "SHARD_END"
        if "checkpointOwner" in item and not is_free and now <= stamp.deadline_s:
            return
        if not is_free and "checkpointOwner" not in item:
            await self._dynamodb.update_item(
                TableName=TABLE,
                Key={"leaseKey": {"S": key}},
                UpdateExpression="SET leaseOwner = :to, checkpointOwner = :old",
                ConditionExpression="leaseOwner = :old AND attribute_not_exists(checkpointOwner)",
                ExpressionAttributeValues={":to": {"S": to}, ":old": item["leaseOwner"]},
            )
            return
        parts, values = ["attribute_exists(leaseKey)"], {":to": {"S": to}, ":one": number(1)}
        for name in ("leaseOwner", "checkpointOwner"):
            if name in item:
                parts.append(f"{name} = :{name}")
                values[f":{name}"] = item[name]
            else:
                parts.append(f"attribute_not_exists({name})")
        await self._dynamodb.update_item(
            TableName=TABLE,
            Key={"leaseKey": {"S": key}},
            UpdateExpression="SET leaseOwner = :to REMOVE checkpointOwner ADD leaseCounter :one",
            ConditionExpression=" AND ".join(parts),
            ExpressionAttributeValues=values,
        )


class LockedAudits(JavaLeader):
    """The audits of whoever has the lock."""

    def __init__(self, peer: Java3Peer) -> None:
        super().__init__(peer)
        self._peer = peer
        self._is_mine = False

    @property
    def leads(self) -> bool:
        return self._is_mine

    async def audits(self) -> None:
        """As the base, after a question about the lock."""
        asking = asyncio.create_task(self._ask())
        try:
            await super().audits()
        finally:
            asking.cancel()

    async def _ask(self) -> None:
        while True:
            self._is_mine = await self._peer.leads()
            await asyncio.sleep(1)
