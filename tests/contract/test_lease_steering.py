"""Commands and holders that steer and contain leases, by our own client, on real tables."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.aws.dynamodb import BotocoreDynamoDb
from kcl_mld.config.config import LeaseConfig
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.kernel.adapters.system import RandomIds, SystemClock
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.lease_store import LeaseStore
from kcl_mld.leases.model.containment import NO_FAILURE, FailureNote, PositionRange
from kcl_mld.leases.model.lease_item import lease_to_item
from kcl_mld.leases.model.lease_request import LeaseRequest
from kcl_mld.ops.lease_steering import LeaseSteering
from kcl_mld.ops.rules.steering import SteerStep, SteerWay
from tests.contract.targets import client_for
from tests.fakes.lease_world import lease

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from kcl_mld.leases.model.lease import Lease

    Test = Callable[["Table"], Coroutine[Any, Any, None]]
    OnTable = Callable[[Test], None]

_numbers = itertools.count()
FOUR, NINE = ExtendedSequenceNumber("4"), ExtendedSequenceNumber("9", 2)
HELD = lease(lease_owner="me", holder="me", lease_counter=7, checkpoint=NINE)
AT_REST = lease(
    lease_owner="new", checkpoint_owner="old", holder="old", lease_counter=7, checkpoint=NINE
)
#: As text the numbers would be in another order.
SKIPPED = (
    PositionRange(NINE, NINE),
    PositionRange(ExtendedSequenceNumber("10"), ExtendedSequenceNumber("12", 3)),
)
FAILURE = FailureNote(SKIPPED[1], 2, 1_700_000_000_123, (1, 2), 'ten "letters", é')
#: Attributes of others, which stay, and such as a reset removes.
MORE: dict[str, Any] = {
    "ofSomebodyElse": {"S": "kept"},
    "pendingCheckpoint": {"S": "11"},
    "pendingCheckpointSubSequenceNumber": {"N": "0"},
    "pendingCheckpointState": {"B": b"state"},
    "kclMldFailure": {"S": FAILURE.text()},
    "kclMldSkip": {"SS": [str(one) for one in SKIPPED]},
    "kclMldPausedUntil": {"N": "99"},
}


@dataclass
class Table:
    """A lease table, and who writes to it."""

    dynamodb: BotocoreDynamoDb
    store: LeaseStore
    steering: LeaseSteering

    async def put(self, row: Lease, **more: Any) -> Lease:
        item = lease_to_item(row) | more
        await self.dynamodb.put_item(TableName=self.store.table_name, Item=item)
        return row

    async def item(self, row: Lease = HELD) -> dict[str, Any]:
        answer = await self.dynamodb.get_item(
            TableName=self.store.table_name,
            Key={"leaseKey": {"S": row.lease_key}},
            ConsistentRead=True,
        )
        return dict(answer.get("Item", {}))

    async def row(self, row: Lease = HELD) -> Lease:
        found = await self.store.get(row.lease_key, consistent=True)
        assert found is not None
        return found


@pytest.fixture(params=["moto", "dynamodb-local"])
def on_table(request: pytest.FixtureRequest) -> Iterator[OnTable]:
    """Runs a test with an empty table."""
    is_moto = request.param == "moto"
    fixture = request.getfixturevalue("embedded" if is_moto else "dynamodb_local")
    client = client_for(fixture.moto_url if is_moto else fixture.url, "dynamodb")
    name = f"steered-{next(_numbers)}"
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    pool, clock = CallPool("steered", 4), SystemClock()
    dynamodb = BotocoreDynamoDb(client, pool)
    store = LeaseStore(dynamodb, LeaseConfig(table_name=name), clock, random.Random(0))
    table = Table(dynamodb, store, LeaseSteering(dynamodb, store, clock))

    def run(test: Test) -> None:
        asyncio.run(test(table))

    yield run
    pool.close()


def request(verb: str, holder: str = "", **fields: Any) -> LeaseRequest:
    if verb == "reset":
        fields = {"sequence_number": "4"} | fields
    if verb == "pause":
        fields = {"until_s": 2e9} | fields
    return LeaseRequest(
        request_id=RandomIds().new_id(),
        verb=verb,
        holder=holder,
        expires_s=SystemClock().wall() + 900,
        by="ann@host",
        reason='a "bug", é',
        **fields,
    )


def step(row: Lease, way: SteerWay) -> SteerStep:
    return SteerStep(lease=row, way=way)


#: What a holder's row is after each request, beside its counter; its item has not the others.
CARRIED_OUT: dict[str, tuple[dict[str, Any], set[str]]] = {
    "reset": (
        {"checkpoint": FOUR, "failure": NO_FAILURE, "skipped": (), "pending_checkpoint": None},
        {"pendingCheckpointState", "kclMldFailure", "kclMldSkip"},
    ),
    "release": ({"lease_owner": None, "checkpoint": NINE}, {"leaseOwner"}),
    "pause": ({"paused_until_s": 2e9, "lease_owner": "me"}, set()),
    "resume": ({"paused_until_s": None, "lease_owner": "me"}, {"kclMldPausedUntil"}),
}


@pytest.mark.parametrize("verb", CARRIED_OUT)
def test_a_holder_hears_a_request_with_its_next_write_and_carries_it_out(
    on_table: OnTable, verb: str
) -> None:
    async def test(table: Table) -> None:
        await table.put(HELD, **MORE)
        asked = request(verb, holder="me")
        asking = asyncio.ensure_future(
            table.steering.carry_out(step(HELD, SteerWay.ASK), asked, 30)
        )
        mine = await table.row()
        while mine.request is None:
            mine = await table.store.renew(mine)
        assert mine == await table.row()
        assert mine.request == asked
        mine = await table.store.carry_out(mine, asked, 5.0)
        assert await asking is None
        after, gone = CARRIED_OUT[verb]
        found, item = await table.row(), await table.item()
        assert found == mine == replace(found, request=None, **after)
        assert found.has_done(asked)
        assert not (gone | {"kclMldRequest"}) & item.keys()
        assert item["ofSomebodyElse"] == {"S": "kept"}
        assert found.steered == asked.done(NINE, 5.0)

    on_table(test)


@pytest.mark.parametrize("way", ["take", "gain"])
def test_who_gains_a_lease_removes_what_was_asked_of_another(on_table: OnTable, way: str) -> None:
    """Else the one who had it carries that out once he has it again."""

    async def test(table: Table) -> None:
        asked = request("release", holder="me")
        text = {"kclMldRequest": {"S": asked.text}}
        if way == "take":
            await table.put(HELD, **text)
            row = await table.store.take(await table.row(), "other")
        else:
            await table.put(replace(HELD, lease_owner="other"), **text)
            row = await table.store.gain(await table.row())
        assert row == await table.row()
        assert row is not None
        assert (row.lease_owner, row.lease_counter, row.request) == ("other", 8, None)
        assert "kclMldRequest" not in await table.item()
        again = await table.store.take(row, "me")
        assert again is not None
        assert again.request is None

    on_table(test)


@pytest.mark.parametrize("verb", ["reset", "release", "delete"])
def test_a_row_at_rest_is_written_once(on_table: OnTable, verb: str) -> None:
    async def test(table: Table) -> None:
        await table.put(AT_REST, **MORE)
        row, done = await table.row(AT_REST), request(verb)
        assert await table.steering.carry_out(step(row, SteerWay.WRITE), done, 1) is None
        item = await table.item(AT_REST)
        if verb == "delete":
            assert item == {}
            return
        assert not {"leaseOwner", "checkpointOwner"} & item.keys()
        assert ("pendingCheckpointState" in item) is (verb == "release")
        found = await table.row(AT_REST)
        assert found.lease_counter == 8
        assert found.has_done(done)
        assert found.checkpoint == (FOUR if verb == "reset" else NINE)
        # The same command again, which has not seen that: by its note it is done.
        assert await table.steering.carry_out(step(row, SteerWay.WRITE), done, 1) is None
        assert await table.item(AT_REST) == item

    on_table(test)


def test_what_is_asked_is_withdrawn_as_it_was_read(on_table: OnTable) -> None:
    async def test(table: Table) -> None:
        asked, other = request("release", holder="me"), request("release", holder="me")
        await table.put(HELD, kclMldRequest={"S": other.text})
        before = await table.item()
        at_first = replace(HELD, request=asked)
        withdrawal = request("withdraw")
        # Another request stands there now: what was read is gone.
        assert await table.steering.carry_out(step(at_first, SteerWay.WRITE), withdrawal, 1) is None
        assert await table.item() == before
        read = await table.row()
        assert await table.steering.carry_out(step(read, SteerWay.WRITE), withdrawal, 1) is None
        del before["kclMldRequest"]
        assert await table.item() == before

    on_table(test)


def test_a_lineage_changes_together_or_not_at_all(on_table: OnTable) -> None:
    async def test(table: Table) -> None:
        parent = await table.put(replace(AT_REST, checkpoint=SHARD_END), **MORE)
        child = await table.put(lease(1, lease_counter=3, checkpoint=NINE))
        missing = lease(2)
        pairs = [
            (step(row, SteerWay.TOGETHER), request("reset", sequence_number=position))
            for row, position in ((parent, "4"), (child, "TRIM_HORIZON"), (missing, "TRIM_HORIZON"))
        ]
        existing = {parent.lease_key, child.lease_key}

        async def together() -> str | None:
            token = RandomIds().new_id()
            why: str | None = await table.steering.carry_out_together(pairs, existing, token)
            return why

        await table.put(replace(child, lease_counter=4))
        before = await table.item(parent)
        assert await together() == f"nothing was changed: written meanwhile were {child.lease_key}"
        await table.put(child)
        await table.put(missing)
        assert (
            await together() == f"nothing was changed: written meanwhile were {missing.lease_key}"
        )
        assert await table.item(parent) == before
        await table.steering.carry_out(step(missing, SteerWay.WRITE), request("delete"), 1)
        assert await together() is None
        rows = [await table.row(one) for one in (parent, child, missing)]
        assert [one.checkpoint for one in rows] == [FOUR, TRIM_HORIZON, TRIM_HORIZON]
        assert [one.lease_counter for one in rows] == [8, 4, 0]
        assert all(one.has_done(done) for one, (_step, done) in zip(rows, pairs, strict=True))
        assert rows[0].actual_owner is None

    on_table(test)


def test_what_children_failed_at_is_kept_until_a_checkpoint_covers_it(on_table: OnTable) -> None:
    async def test(table: Table) -> None:
        row = await table.put(replace(HELD, checkpoint=FOUR))
        row = await table.store.contain(row, FAILURE, SKIPPED)
        assert (row.failure, row.skipped) == (FAILURE, SKIPPED)
        assert row == await table.row()
        row = await table.store.checkpoint(row, NINE)
        assert row == await table.row()
        assert (row.failure, row.skipped) == (FAILURE, SKIPPED[1:])
        row = await table.store.checkpoint(row, SKIPPED[1].last)
        assert row == await table.row()
        assert (row.failure, row.skipped) == (FailureNote(letters_ms=(1, 2)), ())
        assert "kclMldSkip" not in await table.item()
        row = await table.store.contain(row, NO_FAILURE, ())
        assert "kclMldFailure" not in await table.item()

    on_table(test)
