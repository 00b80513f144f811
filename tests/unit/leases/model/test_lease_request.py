"""Requests of people to holders of leases: their text, their writes, and what a row says of them."""

import json
from dataclasses import replace

import pytest

from kcl_mld.errors import ConditionFailed
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.leases.model.containment import NO_FAILURE, FailureNote, PositionRange
from kcl_mld.leases.model.lease_item import lease_from_item, lease_to_item, request_in
from kcl_mld.leases.model.lease_request import (
    HOLDER,
    PAUSED_UNTIL,
    REQUEST,
    STEERED,
    LeaseRequest,
    SteerVerb,
    request_from,
)
from kcl_mld.leases.model.lease_writes import checkpointing, renewal
from kcl_mld.leases.model.steering_writes import (
    creating_at_rest,
    deleting_at_rest,
    requesting,
    withdrawing,
    writing_at_rest,
)
from tests.fakes.lease_world import lease, on_table_with

POSITION = ExtendedSequenceNumber("12", 3)
AHEAD = ExtendedSequenceNumber("15")
RESET = LeaseRequest(
    request_id="r1", verb="reset", holder="me", expires_s=100.0, sequence_number="12",
    sub_sequence_number=3, by="a@b", reason="why ü",
)  # fmt: skip
OF_VERB = {
    SteerVerb.RESET: RESET,
    SteerVerb.RELEASE: LeaseRequest(request_id="r2", verb="release", holder="me", expires_s=100.0),
    SteerVerb.PAUSE: LeaseRequest(
        request_id="r3", verb="pause", holder="me", expires_s=100.0, until_s=500.0
    ),
    SteerVerb.RESUME: LeaseRequest(request_id="r4", verb="resume", holder="me", expires_s=100.0),
}
MINE = lease(lease_owner="me", lease_counter=7, holder="me", checkpoint=ExtendedSequenceNumber("9"))
KEY = MINE.lease_key
PENDING = {"pendingCheckpoint": {"S": "9"}, "pendingCheckpointSubSequenceNumber": {"N": "0"}}

on_table = on_table_with(lambda world: world.store())


@pytest.mark.parametrize("verb", OF_VERB)
def test_a_request_is_read_as_it_was_written(verb):
    request = OF_VERB[verb]
    assert request_from(request.text) == request
    assert request_from(request.text).text == request.text


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        '{"verb":"reset"}',
        json.dumps({"request_id": "r", "verb": "reset"}),
        RESET.text.replace('"12"', '"x"'),
        RESET.text.replace('"12"', '"SHARD_END"'),
        RESET.text.replace("reset", "delete"),
        RESET.text.replace("reset", "drop"),
        RESET.text.replace("reset", "pause"),
        # What could be read and not be named by a condition: numbers written otherwise, unknown keys.
        RESET.text.replace("100.0", "100"),
        RESET.text[:-1] + ',"new":1}',
        RESET.text[:-1] + ',"new":' + 9999 * "[",
    ],
)
def test_what_is_no_request_is_none(text):
    assert request_from(text) is None


@pytest.mark.parametrize(
    ("attribute", "value"),
    [(REQUEST, {"N": "1"}), (HOLDER, {"N": "1"}), (STEERED, {"S": "x"}), (PAUSED_UNTIL, {"S": "x"}),
     (PAUSED_UNTIL, {"N": "-1"})],
)  # fmt: skip
def test_a_row_stays_readable_whatever_stands_in_attributes_of_ours(attribute, value):
    row = lease_from_item({**lease_to_item(replace(MINE, holder=None)), attribute: value})
    assert (row.request, row.holder, row.steered, row.paused_until_s) == (None, None, None, None)


def test_a_row_says_all_of_it():
    item = lease_to_item(MINE) | {
        HOLDER: {"S": "me"},
        REQUEST: {"S": RESET.text},
        STEERED: {"S": RESET.done(POSITION, 3.0).text},
        PAUSED_UNTIL: {"N": "500"},
    }
    row = lease_from_item(item)
    assert (row.holder, row.request, row.paused_until_s) == ("me", RESET, 500.0)
    assert row.steered == RESET.done(POSITION, 3.0)
    assert row.has_done(RESET)
    assert not row.has_done(replace(RESET, request_id="r2"))
    assert request_in(item) == RESET
    assert row.is_held_by_ours


@pytest.mark.parametrize(
    "fields",
    [{"holder": None}, {"holder": "other"}, {"lease_owner": None}, {"checkpoint_owner": "old"}],
)
def test_who_is_not_held_by_ours(fields):
    assert not lease(**({"lease_owner": "me", "holder": "me"} | fields)).is_held_by_ours


@pytest.mark.parametrize("write", [renewal, lambda row: checkpointing(row, POSITION)])
def test_a_holder_names_itself_once_and_gets_the_row_back(write):
    first = write(lease(lease_owner="me", lease_counter=7, holder="before"))
    assert first.request["ExpressionAttributeValues"][f":{HOLDER}"] == {"S": "me"}
    assert first.after.holder == "me"
    assert first.request["ReturnValues"] == "ALL_NEW"
    second = write(first.after)
    assert HOLDER not in second.request["UpdateExpression"]
    nobody = write(lease(lease_counter=7))
    assert HOLDER not in nobody.request["UpdateExpression"]


def stored(world):
    return lease_from_item(world.row(KEY))


@pytest.mark.parametrize("verb", OF_VERB)
def test_a_holder_that_is_asked_finds_it_with_its_next_renewal_and_does_it(verb):
    request = OF_VERB[verb]

    async def test(world, store):
        world.change(KEY, kclMldHolder="me", kclMldPausedUntil=400)
        await world.dynamodb("person").update_item(
            TableName=store.table_name, **requesting(MINE, request, 1)
        )
        row = await store.renew(replace(MINE, paused_until_s=400.0))
        assert row.request == request
        row = await store.carry_out(row, request, 50.0)
        assert row == stored(world)
        assert (row.request, row.lease_counter) == (None, 9)
        assert row.has_done(request)
        assert row.lease_owner == (None if verb is SteerVerb.RELEASE else "me")
        assert row.checkpoint == (POSITION if verb is SteerVerb.RESET else MINE.checkpoint)
        wanted = {SteerVerb.PAUSE: 500.0, SteerVerb.RESUME: None}
        assert row.paused_until_s == wanted.get(verb, 400.0)
        note = json.loads(world.row(KEY)[STEERED]["S"])
        assert (note["before"], note["at_s"], note["by"]) == ("9", 50.0, request.by)

    on_table(test, MINE)


@pytest.mark.parametrize("verb", OF_VERB)
@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
def test_a_lost_answer_changes_nothing_of_it(verb, fault):
    request = OF_VERB[verb]

    async def test(world, store):
        world.change(KEY, kclMldHolder="me")
        await world.dynamodb("person").update_item(
            TableName=store.table_name, **requesting(MINE, request, 1)
        )
        row = await store.renew(MINE)
        world.fault(fault)
        row = await store.carry_out(row, request, 50.0)
        assert row == stored(world)
        assert row.has_done(request)

    on_table(test, MINE)


def test_a_request_that_was_withdrawn_is_not_carried_out():
    async def test(world, store):
        world.change(KEY, kclMldHolder="me")
        await world.dynamodb("person").update_item(
            TableName=store.table_name, **requesting(MINE, RESET, 1)
        )
        row = await store.renew(MINE)
        await world.dynamodb("person").update_item(
            TableName=store.table_name, **withdrawing(KEY, RESET)
        )
        row = await store.carry_out(row, RESET, 50.0)
        assert row == stored(world)
        assert (row.checkpoint, row.steered, row.lease_owner) == (MINE.checkpoint, None, "me")

    on_table(test, MINE)


@pytest.mark.parametrize("verb", OF_VERB)
def test_a_row_at_rest_has_no_owner_afterwards(verb):
    request = OF_VERB[verb]
    row = lease(
        lease_owner="dead", checkpoint_owner="older", lease_counter=7, pending_checkpoint=POSITION,
        owner_switches_since_checkpoint=4,
        failure=FailureNote(PositionRange(AHEAD, AHEAD), 1, 5), skipped=(PositionRange(AHEAD, AHEAD),),
        paused_until_s=400.0, checkpoint=POSITION,
    )  # fmt: skip

    async def test(world, store):
        world.change(KEY, kclMldPausedUntil=400, ofOthers="x", kclMldRequest="junk")
        world.change(KEY, kclMldFailure=row.failure.text())
        noted = row.failure, row.skipped
        await world.dynamodb("person").update_item(
            TableName=store.table_name,
            Key={"leaseKey": {"S": KEY}},
            UpdateExpression="SET pendingCheckpoint = :p, pendingCheckpointSubSequenceNumber = :s,"
            " kclMldSkip = :skip",
            ExpressionAttributeValues={
                ":p": {"S": "12"},
                ":s": {"N": "3"},
                ":skip": {"SS": [str(one) for one in row.skipped]},
            },
        )
        write = writing_at_rest(row, request, 50.0)
        await world.dynamodb("person").update_item(TableName=store.table_name, **write.request)
        found = stored(world)
        assert found == write.after
        assert (found.lease_owner, found.checkpoint_owner, found.lease_counter) == (None, None, 8)
        is_reset = verb is SteerVerb.RESET
        assert found.pending_checkpoint == (None if is_reset else POSITION)
        assert found.owner_switches_since_checkpoint == (0 if is_reset else 4)
        assert (found.failure, found.skipped) == ((NO_FAILURE, ()) if is_reset else noted)
        assert world.row(KEY)["ofOthers"] == {"S": "x"}
        assert REQUEST not in world.row(KEY)

    on_table(test, row)


@pytest.mark.parametrize(
    ("pending", "may"),
    [
        (None, True),
        (RESET, False),
        (LeaseRequest(request_id="old", verb="release", holder="me", expires_s=10.0), True),
        (LeaseRequest(request_id="old", verb="release", holder="else", expires_s=100.0), True),
    ],
)
def test_only_a_void_request_is_replaced(pending, may):
    new = OF_VERB[SteerVerb.PAUSE]

    async def test(world, store):
        world.change(KEY, kclMldHolder="me", **({} if pending is None else {REQUEST: pending.text}))
        request = requesting(stored(world), new, 20.0)
        if may:
            await world.dynamodb("person").update_item(TableName=store.table_name, **request)
            assert stored(world).request == new
        else:
            with pytest.raises(ConditionFailed):
                await world.dynamodb("person").update_item(TableName=store.table_name, **request)
            assert stored(world).request == pending

    on_table(test, MINE)


def test_a_row_that_is_made_again_says_so_and_replaces_none():
    async def test(world, store):
        put = creating_at_rest(lease(1, parent_shard_ids=("p",)), RESET, 50.0)
        await world.dynamodb("person").put_item(TableName=store.table_name, **put)
        row = lease_from_item(world.row(lease(1).lease_key))
        assert (row.checkpoint, row.parent_shard_ids) == (POSITION, ("p",))
        assert row.steered == RESET.done(None, 50.0)
        with pytest.raises(ConditionFailed):
            await world.dynamodb("person").put_item(TableName=store.table_name, **put)

    on_table(test)


@pytest.mark.parametrize("change", [{}, {"leaseCounter": 8}, {"leaseOwner": "other"}])
def test_a_row_is_deleted_only_as_it_was_read(change):
    async def test(world, store):
        world.change(KEY, **change)
        request = {"TableName": store.table_name, **deleting_at_rest(MINE)}
        if change:
            with pytest.raises(ConditionFailed):
                await world.dynamodb("person").delete_item(**request)
        else:
            await world.dynamodb("person").delete_item(**request)
        assert bool(world.row(KEY)) == bool(change)

    on_table(test, MINE)
