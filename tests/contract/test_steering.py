"""What commands and holders write to change a lease, accepted and refused alike everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.model.containment import FailureNote, PositionRange
from kcl_mld.leases.model.lease import Lease
from kcl_mld.leases.model.lease_item import LEASE_KEY, lease_from_item, lease_to_item
from kcl_mld.leases.model.lease_request import LeaseRequest, SteerVerb
from kcl_mld.leases.model.lease_writes import containing, renewal
from kcl_mld.leases.model.steering_writes import (
    carrying_out,
    creating_at_rest,
    deleting_at_rest,
    requesting,
    withdrawing,
    writing_at_rest,
)
from tests.contract.test_dynamodb import FAILED, new_table, refused

if TYPE_CHECKING:
    from tests.contract.targets import Target

NINE, TEN = ExtendedSequenceNumber("9"), ExtendedSequenceNumber("10")
LEASE = Lease(
    lease_key="shard", shard_id="shard", lease_owner="w1", lease_counter=7, checkpoint=NINE
)


class Table:
    """A lease table with one row of ``w1``."""

    def __init__(self, dynamodb: Target) -> None:
        self._dynamodb = dynamodb
        self.name = new_table(dynamodb)
        dynamodb.call("PutItem", TableName=self.name, Item=lease_to_item(LEASE))

    def write(self, request: dict[str, Any], operation: str = "UpdateItem") -> dict[str, Any]:
        return self._dynamodb.call(operation, TableName=self.name, **request)

    def is_refused(self, request: dict[str, Any], operation: str = "UpdateItem") -> bool:
        before = self.item()
        code = refused(self._dynamodb, operation, TableName=self.name, **request).code
        return code == FAILED and self.item() == before

    def item(self) -> dict[str, Any] | None:
        key = {LEASE_KEY: {"S": "shard"}}
        found = self._dynamodb.call("GetItem", TableName=self.name, Key=key, ConsistentRead=True)
        return found.get("Item")

    def lease(self) -> Lease:
        item = self.item()
        assert item is not None
        return lease_from_item(item)


@pytest.fixture
def table(dynamodb: Target) -> Table:
    return Table(dynamodb)


def request(verb: SteerVerb, request_id: str = "r1", **fields: Any) -> LeaseRequest:
    needed: dict[str, Any] = {
        SteerVerb.RESET: {"sequence_number": "TRIM_HORIZON"},
        SteerVerb.PAUSE: {"until_s": 500.0},
    }.get(verb, {})
    common = {"request_id": request_id, "verb": verb, "holder": "w1", "expires_s": 100.0}
    return LeaseRequest(**common | needed | fields)


def held(table: Table) -> Lease:
    """The row after the first renewal of its holder, as the answer has it."""
    answer = table.write(dict(renewal(LEASE).request))
    return lease_from_item(answer["Attributes"])


#: What a holder is asked for.
ASKED = [one for one in SteerVerb if one not in {SteerVerb.DELETE, SteerVerb.WITHDRAW}]


@pytest.mark.parametrize("verb", ASKED)
def test_a_holder_learns_of_a_request_and_carries_it_out_once(
    table: Table, verb: SteerVerb
) -> None:
    row = held(table)
    assert row.is_held_by_ours
    asked = request(verb)
    table.write(requesting(row, asked, 1.0))
    assert table.is_refused(requesting(row, request(verb, "r2"), 1.0))
    row = lease_from_item(table.write(dict(renewal(row).request))["Attributes"])
    assert row.request == asked
    write = carrying_out(row, asked, 2.0)
    table.write(dict(write.request))
    after = table.lease()
    assert after.request is None
    assert after.has_done(asked)
    assert (after.lease_counter, after.checkpoint, after.lease_owner, after.paused_until_s) == (
        write.after.lease_counter,
        write.after.checkpoint,
        write.after.lease_owner,
        write.after.paused_until_s,
    )
    assert table.is_refused(dict(write.request))


def test_a_request_is_withdrawn_or_taken_for_void(table: Table) -> None:
    row = held(table)
    asked = request(SteerVerb.RELEASE)
    table.write(requesting(row, asked, 1.0))
    row = table.lease()
    later = request(SteerVerb.RELEASE, "r2", expires_s=300.0)
    assert table.is_refused(requesting(row, later, 99.0))
    table.write(requesting(row, later, 100.0))
    assert table.is_refused(withdrawing("shard", asked))
    table.write(withdrawing("shard", later))
    assert table.lease().request is None
    assert table.is_refused(dict(carrying_out(replace(row, request=later), later, 1.0).request))


def test_only_the_holder_is_asked(table: Table) -> None:
    asked = request(SteerVerb.RELEASE)
    assert table.is_refused(requesting(LEASE, asked, 1.0))
    row = held(table)
    assert table.is_refused(requesting(row, replace(asked, holder="w2"), 1.0))


def test_a_row_at_rest_is_written_or_deleted_if_it_still_rests(table: Table) -> None:
    row = held(table)
    note = request(SteerVerb.RESET, holder="")
    for stale in (LEASE, replace(row, lease_owner="w2"), replace(row, lease_owner=None)):
        assert table.is_refused(dict(writing_at_rest(stale, note, 1.0).request))
        assert table.is_refused(dict(deleting_at_rest(stale)), "DeleteItem")
    write = writing_at_rest(row, note, 1.0)
    table.write(dict(write.request))
    after = table.lease()
    assert (after.lease_owner, after.checkpoint, after.lease_counter) == (None, TRIM_HORIZON, 9)
    anew = replace(LEASE, lease_owner=None, lease_counter=0)
    assert table.is_refused(creating_at_rest(anew, note, 1.0), "PutItem")
    table.write(dict(deleting_at_rest(after)), "DeleteItem")
    assert table.item() is None
    table.write(creating_at_rest(anew, note, 1.0), "PutItem")
    assert table.lease().checkpoint == TRIM_HORIZON
    assert table.lease().has_done(note)


def test_what_children_fail_at_is_noted_and_forgotten_by_a_reset(table: Table) -> None:
    row = held(table)
    note = FailureNote(suspects=PositionRange(TEN, TEN), attempts=2, since_ms=5)
    write = containing(row, note, (PositionRange(TEN, TEN),))
    answer = table.write(dict(write.request))
    row = lease_from_item(answer["Attributes"])
    assert (row.failure, row.skipped) == (note, (PositionRange(TEN, TEN),))
    assert table.is_refused(dict(write.request))
    table.write(dict(writing_at_rest(row, request(SteerVerb.RESET), 1.0).request))
    item = table.item()
    assert item is not None
    assert not {"kclMldFailure", "kclMldSkip"} & item.keys()
