"""What people do to a 3.x fleet while it works: tools, files, tables lost and restored.

The rollback tool as ``leases.md`` section 6.2 has it. Time that has to pass until workers may move
their tables is made to pass by dating the item back: nothing else depends on that hour.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from kcl_mld.config.fleet import ClientVersionConfig, FleetConfig
from tests.sim.java3_peer import METRICS_TABLE, STATE_TABLE, migration_item
from tests.sim.java_peer import number
from tests.sim.node import TABLE
from tests.sim.ports import EPOCH_S
from tests.sim.rows import text_of
from tests.sim.stream import STREAM

if TYPE_CHECKING:
    from tests.fakes.dynamodb_model import Write
    from tests.sim.changes import Changes
    from tests.sim.fleet import Fleet
    from tests.sim.node import Node

_UPGRADE, _2X = "CLIENT_VERSION_UPGRADE_FROM_2X", "CLIENT_VERSION_2X"
_WITH_ROLLBACK, _3X = "CLIENT_VERSION_3X_WITH_ROLLBACK", "CLIENT_VERSION_3X"
#: Change -> from, to.
_CHANGES = {
    "rollback": ({_UPGRADE, _WITH_ROLLBACK}, _2X),
    "rollforward": ({_2X}, _UPGRADE),
    "flip": ({_UPGRADE}, _WITH_ROLLBACK),
}
_DEPLOYED, _COMPLETE = "TABLE_MIGRATION_STATUS_DEPLOYED", "TABLE_MIGRATION_STATUS_COMPLETE"
_PENDING = "TABLE_MIGRATION_STATUS_PENDING"
#: From the rollback to the deletion of the index.
INDEX_S = 120.0
#: So long people wait while workers fail and die; once all is calm they wait :data:`CALM_S` more.
PATIENCE_S = 2000.0
#: Workers that can't move their tables by then never will.
CALM_S = 600.0
#: Workers have to be able to move for so long.
HOUR_S = 3600.0
_KEYS = {TABLE: "leaseKey", STATE_TABLE: "key", METRICS_TABLE: "wid"}
_LOST = {"coordinator": STATE_TABLE, "metrics": METRICS_TABLE}


class Operations:
    """One run's operators."""

    def __init__(self, fleet: Fleet, changes: Changes) -> None:
        self._fleet = fleet
        self._changes = changes
        self._rng = random.Random(f"operations {fleet.plan.seed}")
        self._client_version = ClientVersionConfig.UNSAID
        self._migrates = False
        self._doomed: asyncio.Queue[Node] = asyncio.Queue()
        self._kills = changes.kills
        fleet.dynamodb.observers.append(self._saw)

    @property
    def fleet_config(self) -> FleetConfig:
        """Of files of workers that start now."""
        return FleetConfig(
            client_version=self._client_version,
            migrates_tables=self._migrates,
            bake_s=self._changes.bake_s,
        )

    # -- the start -----------------------------------------------------------------------------

    def create_tables(self) -> None:
        """What earlier workers have left, beside the lease table."""
        changes = self._changes
        if changes.is_legacy:
            self._create(STATE_TABLE)
            self._create(METRICS_TABLE)
        table = STATE_TABLE if changes.is_legacy else TABLE
        item = migration_item("operator", self._fleet.now(), changes.starts_as, _KEYS[table])
        self._put(table, {**item, "team": {"S": "blue"}})
        self._put(
            table,
            {
                _KEYS[table]: {"S": STREAM},
                "entityType": {"S": "STREAM"},
                "streamId": {"S": STREAM},
                "team": {"S": "blue"},
            },
        )
        if changes.moves_from:
            aged_s = self._rng.uniform(0, HOUR_S)
            who = {"mb": {"S": "operator"}, "mts": self._ms(-aged_s)}
            self._put(
                STATE_TABLE,
                {
                    "key": {"S": "TableMigration3.5"},
                    "entityType": {"S": "TABLE_MIGRATION"},
                    "tm": {"S": changes.moves_from},
                    "team": {"S": "blue"},
                    **who,
                },
            )

    def _create(self, table: str) -> None:
        name, settings = _KEYS[table], self._fleet.dynamodb.settings
        create_s, settings.create_s = settings.create_s, 0.0  # it was waited for
        self._call(
            "CreateTable",
            {
                "TableName": table,
                "KeySchema": [{"AttributeName": name, "KeyType": "HASH"}],
                "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"}],
                "BillingMode": "PAY_PER_REQUEST",
            },
        )
        settings.create_s = create_s

    def _put(self, table: str, item: dict[str, Any]) -> None:
        self._call("PutItem", {"TableName": table, "Item": item})

    def _call(self, operation: str, request: dict[str, Any]) -> None:
        self._fleet.court.actor = "operator"
        self._fleet.court.foreigners.add("operator")
        self._fleet.dynamodb.call(operation, request)

    def _ms(self, offset_s: float = 0.0) -> dict[str, str]:
        return number(int((EPOCH_S + self._fleet.now() + offset_s) * 1000))

    # -- while the fleet works -----------------------------------------------------------------

    async def run(self) -> None:
        """Everything, once."""
        changes = self._changes
        async with asyncio.TaskGroup() as group:
            last = [group.create_task(self._tag()), group.create_task(self._kill())]
            works = [self._change_generations(), self._lose_tables()]
            if changes.moves_from is not None:
                works.append(self._move_tables())
            await asyncio.gather(*(group.create_task(one) for one in works))
            for task in last:
                task.cancel()
        self._kills = 0

    async def _tag(self) -> None:
        """Somebody notes something of his own in rows."""
        while True:
            await asyncio.sleep(self._rng.uniform(5, 40))
            rows = sorted(self._fleet.court.rows)
            if rows:
                self._call(
                    "UpdateItem",
                    {
                        "TableName": TABLE,
                        "Key": {"leaseKey": {"S": self._rng.choice(rows)}},
                        "UpdateExpression": "SET team = :team",
                        "ExpressionAttributeValues": {":team": {"S": "blue"}},
                    },
                )

    async def _change_generations(self) -> None:
        for change in self._changes.generations:
            await asyncio.sleep(self._rng.uniform(0.4, 1.6) * self._changes.every_s)
            if change == "settle":
                self._client_version = ClientVersionConfig.STAY_3X
                self._fleet.trace.add("", "FILES SAY 3X")
                await self._roll_out()
            else:
                self.change(change)

    def change(self, change: str) -> None:
        """The tool, or the leader of another fleet's making; nothing where it doesn't fit."""
        found = self._find("Migration3.0")
        befores, after = _CHANGES[change]
        if found is None or text_of(found[1], "cv") not in befores:
            return
        table, item = found
        past = {name: item[name] for name in ("cv", "mb", "mts")}
        history = [{"M": past}, *item.get("h", {"L": []})["L"]][:10]
        now = {"cv": {"S": after}, "mb": {"S": change}, "mts": self._ms(), "h": {"L": history}}
        self._put(table, {**item, **now})
        self._fleet.trace.add("", f"{change.upper()}: {after}")
        if after == _2X:
            asyncio.get_running_loop().call_later(INDEX_S, self._delete_index)

    def _delete_index(self) -> None:
        found = self._find("Migration3.0")
        if found is not None and text_of(found[1], "cv") == _2X:
            self._fleet.dynamodb.tables[TABLE].indexes.clear()

    def _find(self, key: str) -> tuple[str, dict[str, Any]] | None:
        """An item, as the tool finds it: the old table first."""
        for table in (STATE_TABLE, TABLE):
            if table in self._fleet.dynamodb.tables:
                for item in self._fleet.dynamodb.items(table):
                    if item[_KEYS[table]]["S"] == key:
                        return table, item
        return None

    async def _roll_out(self) -> None:
        """Start those again, one by one, whose files are outdated."""
        for node in self._fleet.alive():
            if node.alive and node.config.fleet != self.fleet_config:
                node.stop()
                await node.ended.wait()
                await asyncio.sleep(self._rng.uniform(0, 10))

    # -- three tables become one ---------------------------------------------------------------

    @property
    def bound_s(self) -> float:
        """The move may take so long while faults are off."""
        return 0.0 if self._changes.moves_from is None else self._changes.bake_s + 300.0

    def unmoved(self) -> str:
        """What is still to be moved, for people; "" = nothing."""
        if self._changes.moves_from is None:
            return ""
        return "" if self._status(TABLE) == _COMPLETE else f"tables: {self._status(STATE_TABLE)}"

    def _status(self, table: str) -> str | None:
        key = {_KEYS[table]: {"S": "TableMigration3.5"}}
        items = self._fleet.dynamodb.items(table)
        return next((text_of(item, "tm") for item in items if key.items() <= item.items()), None)

    async def _move_tables(self) -> None:
        fleet = self._fleet
        if self._changes.old_worker_s:
            await self._old_worker(self._changes.old_worker_s)
        if not await self._start_move(PATIENCE_S):
            return
        if self._changes.returns_s:
            while self._status(STATE_TABLE) != _PENDING:
                await asyncio.sleep(5)
                if fleet.court.violations or fleet.now() > PATIENCE_S:
                    return
            fleet.trace.add("", "A WORKER OF 3.1 STARTS AGAIN")
            await self._old_worker(self._changes.returns_s)

    async def finish(self) -> None:
        """Faults are off: the move of tables that workers have not been ready for begins now."""
        if self._changes.moves_from is not None and not self._migrates:
            await self._start_move(self._fleet.now() + CALM_S)

    async def _start_move(self, until_s: float) -> bool:
        """Wait until all workers can move; False = they could not in time."""
        fleet = self._fleet
        while self._status(STATE_TABLE) not in {_DEPLOYED, _COMPLETE}:
            await asyncio.sleep(10)
            self._date_back()
            if fleet.court.violations or fleet.now() > until_s:
                return False
        fleet.trace.add("", "FILES SAY migrateAllEntitiesToLeaseTable")
        self._migrates = True
        await self._roll_out()
        return True

    async def _old_worker(self, lasts_s: float) -> None:
        self._fleet.new_peer(is_legacy=True)
        await asyncio.sleep(lasts_s)
        for _second in range(10):  # the nemesis starts again what it has killed
            for peer in self._fleet.members:
                if peer.alive:
                    await peer.kill()
            await asyncio.sleep(1)

    def _date_back(self) -> None:
        found = self._find("TableMigration3.5")
        if found is not None and text_of(found[1], "tm") == "TABLE_MIGRATION_STATUS_INIT":
            old_ms = int(found[1]["mts"]["N"]) - int(HOUR_S * 1000)
            self._put(found[0], {**found[1], "mts": number(old_ms)})

    def _saw(self, write: Write) -> None:
        """A leader dies with a step of the move, before it knows that it was done."""
        item = write.after or write.before
        is_step = text_of(item, "tm") is not None or (
            write.table == STATE_TABLE and write.after is None and "cv" in (write.before or {})
        )
        actor = self._fleet.court.actor
        nodes = [node for node in self._fleet.alive() if node.worker_id == actor]
        if is_step and self._kills > 0 and nodes and self._rng.random() < 0.5:
            self._kills -= 1
            self._doomed.put_nowait(nodes[0])

    async def _kill(self) -> None:
        while True:
            node = await self._doomed.get()
            if node.alive:
                await node.kill()

    # -- tables that are lost ------------------------------------------------------------------

    async def _lose_tables(self) -> None:
        fleet, rng = self._fleet, self._rng
        for name in self._changes.losses:
            table = _LOST[name]
            await asyncio.sleep(rng.uniform(10, 90))
            backup = fleet.dynamodb.items(table)
            await asyncio.sleep(rng.choice([0, 0, 30]))
            fleet.trace.add("", f"TABLE {table} DELETED")
            fleet.judges.fleet.lost(table)
            self._call("DeleteTable", {"TableName": table})
            await asyncio.sleep(self._changes.lost_s)
            self._create(table)
            for item in backup:
                self._put(table, item)
            fleet.trace.add("", f"TABLE {table} RESTORED")
            fleet.judges.fleet.restored()
