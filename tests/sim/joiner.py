"""A worker of version 3.x that joins, flips the table and assigns: our workers must make way.

It writes ``Migration3.0``, holds the leader lock and runs the assignment in its simplest form: what
nobody works on is given to itself, what somebody works on is asked for by a hand-off, and taken
when the hand-off's deadline is over (``leases.md`` sections 5 and 6).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mld.errors import AwsError, InUse
from tests.sim.java_leader import JavaLeader
from tests.sim.java_peer import Held, JavaPeer, Seen, number
from tests.sim.node import TABLE
from tests.sim.ports import EPOCH_S
from tests.sim.rows import text_of

if TYPE_CHECKING:
    import random

    from tests.sim.fleet import Fleet

STATE_TABLE = f"{TABLE}-CoordinatorState"
HANDOFF_S = 30.0


class Joiner3x(JavaPeer):
    """One scripted process that owns everything in the end.

    Args:
        where: ``lease`` = single-table layout, ``coordinator`` = the table of 3.0 to 3.4.
        version: what it writes as ``cv``.
    """

    def __init__(
        self, fleet: Fleet, worker_id: str, rng: random.Random, where: str, version: str
    ) -> None:
        super().__init__(fleet, worker_id, rng)
        self._where = where
        self._version = version
        self._deadlines: dict[str, float] = {}
        fleet.court.foreigners.add(worker_id)

    async def _main(self) -> None:
        await self._ensure_table()
        await self._flip()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forever(self._renew_all, self._renewal_s))
            group.create_task(self._forever(self._assign, 2 * self._failover_s))
            group.create_task(self._forever(lambda: self._reconcile(group), 1.0))
            # Who flips a half-made table is left with its holes: 3.x leaders audit, too.
            leader = JavaLeader(self)
            group.create_task(leader.elections())
            group.create_task(leader.audits())

    async def _flip(self) -> None:
        """Write the state of the fleet where all will find it."""
        table, key = TABLE, "leaseKey"
        if self._where == "coordinator":
            table, key = STATE_TABLE, "key"
            await self._create_state_table()
        state = {"S": self._version}
        now_ms = number(int((EPOCH_S + self._now()) * 1000))
        entry = {"cv": {"S": "CLIENT_VERSION_INIT"}, "mb": {"S": self.worker_id}, "mts": now_ms}
        item: dict[str, Any] = {
            key: {"S": "Migration3.0"},
            "cv": state,
            "mb": {"S": self.worker_id},
            "mts": now_ms,
            "h": {"L": [{"M": entry}]},
        }
        lock: dict[str, Any] = {
            key: {"S": "Leader"},
            "ownerName": {"S": self.worker_id},
            "leaseDuration": {"S": "120000"},
            "recordVersionNumber": {"S": "r1"},
        }
        if self._where == "lease":
            item["entityType"] = {"S": "CLIENT_VERSION_MIGRATION"}
            lock["entityType"] = {"S": "LEADER"}
        self.fleet.flipped = True  # as soon as the first write may have landed
        for row in (item, lock):
            await self._put(table, row)
        self.fleet.trace.add(self.worker_id, f"FLIP to {self._version}")

    async def _put(self, table: str, item: dict[str, Any]) -> None:
        while True:
            try:
                await self._dynamodb.put_item(TableName=table, Item=item)
            except AwsError:
                await asyncio.sleep(1)
            else:
                return

    async def _create_state_table(self) -> None:
        with suppress(InUse):
            await self._dynamodb.create_table(
                TableName=STATE_TABLE,
                KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )

    # -- assigning -----------------------------------------------------------------------------

    async def _assign(self) -> None:
        """One run of the assignment."""
        items = await self.scan()
        now = self._now()
        for item in items:
            key = item["leaseKey"]["S"]
            old = self._seen.get(key)
            seen = Seen(item, now)
            if old is not None and old.counter == seen.counter:
                seen.stamp_s = old.stamp_s
            self._seen[key] = seen
            if key in self._held:
                continue
            with suppress(AwsError):  # raced: the next run sees what came of it
                await self._claim(key, seen, now)

    async def _claim(self, key: str, seen: Seen, now: float) -> None:
        item, me = seen.item, self.worker_id
        handing_over = text_of(item, "checkpointOwner")
        expired = now - seen.stamp_s > self._failover_s
        if handing_over is not None:
            deadline_s = self._deadlines.setdefault(key, now + HANDOFF_S + self._failover_s)
            if expired or now > deadline_s:
                await self._give_to_me(key, seen)
        elif seen.owner is None or seen.owner == me or expired:
            await self._give_to_me(key, seen)
        else:
            await self._dynamodb.update_item(
                TableName=TABLE,
                Key={"leaseKey": {"S": key}},
                Expected={
                    "leaseOwner": {"Value": {"S": seen.owner}},
                    "checkpointOwner": {"Exists": False},
                },
                AttributeUpdates={
                    "leaseOwner": {"Action": "PUT", "Value": {"S": me}},
                    "checkpointOwner": {"Action": "PUT", "Value": {"S": seen.owner}},
                },
            )

    async def _give_to_me(self, key: str, seen: Seen) -> None:
        """Assign (leases.md 2.7), then hold what was assigned."""
        expected: dict[str, Any] = {"leaseKey": {"Value": {"S": key}}}
        for name in ("leaseOwner", "checkpointOwner"):
            value = seen.item.get(name)
            expected[name] = {"Exists": False} if value is None else {"Value": value}
        answer = await self._dynamodb.update_item(
            TableName=TABLE,
            Key={"leaseKey": {"S": key}},
            Expected=expected,
            AttributeUpdates={
                "leaseOwner": {"Action": "PUT", "Value": {"S": self.worker_id}},
                "checkpointOwner": {"Action": "DELETE"},
                "leaseCounter": {"Action": "ADD", "Value": number(1)},
            },
            ReturnValues="ALL_NEW",
        )
        counter = int(answer["Attributes"]["leaseCounter"]["N"])
        self._held[key] = Held(key, counter, self._now())
