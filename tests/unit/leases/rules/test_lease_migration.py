"""Plans of moves between the two kinds of keys."""

import pytest

from kcl_mld.config.stream import Stream
from kcl_mld.errors import MalformedData
from kcl_mld.leases.model.lease_item import MOVING, is_lease_item, lease_from_item
from kcl_mld.leases.model.lease_move import (
    RowKind,
    RowName,
    contents,
    staged,
    unchanged_condition,
    valid,
)
from kcl_mld.leases.rules.lease_migration import (
    MigrationPhase,
    identifiers_of,
    moving_to,
    plan_move,
    signs_of_life,
)
from tests.fakes.lease_rows import FULL, LEADER, METRICS, ORDERS, Rows, multi, single

TO_MULTI = (RowKind.MULTI, ORDERS.identifier)
TO_SINGLE = (RowKind.SINGLE, ORDERS.identifier)
OTHER = Stream("other", account="123456789012", epoch=5)
COPIED = staged(single(0), multi(0)["leaseKey"]["S"])


def test_every_row_is_copied_then_every_old_one_deleted_then_every_copy_made_valid():
    items = [single(1), LEADER, single(0), METRICS]
    move = plan_move(items, *TO_MULTI)
    assert [(step.phase, step.key) for step in move.steps] == [
        (MigrationPhase.COPY, multi(0)["leaseKey"]["S"]),
        (MigrationPhase.COPY, multi(1)["leaseKey"]["S"]),
        (MigrationPhase.DELETE, "shardId-000000000000"),
        (MigrationPhase.DELETE, "shardId-000000000001"),
        (MigrationPhase.VALIDATE, multi(0)["leaseKey"]["S"]),
        (MigrationPhase.VALIDATE, multi(1)["leaseKey"]["S"]),
    ]
    assert move.steps[0].source == "shardId-000000000000"
    assert (move.moved, move.kept) == (2, ("Leader", "w1"))
    rows = Rows(items)
    rows.carry_out(move.steps)
    assert rows.items == Rows([multi(0), multi(1), LEADER, METRICS]).items
    assert plan_move(rows.list(), *TO_MULTI).steps == ()


def test_every_attribute_survives_there_and_back():
    items = [single(7, **FULL), single(2, entityType={"S": "LEASE"})]
    del items[1]["entityType"]  # as old workers write
    rows = Rows(items)
    rows.carry_out(plan_move(rows.list(), *TO_MULTI).steps)
    assert rows.items == Rows([multi(7, **FULL), _without_entity(multi(2))]).items
    rows.carry_out(plan_move(rows.list(), *TO_SINGLE).steps)
    assert rows.items == Rows(items).items


def test_a_move_drops_the_mark_of_the_stream_which_only_single_stream_rows_have():
    mark = {"kclMldStream": {"S": "123456789012:us-east-1:orders"}}
    rows = Rows([single(0, **mark)])
    rows.carry_out(plan_move(rows.list(), *TO_MULTI).steps)
    assert rows.items == Rows([multi(0)]).items
    rows = Rows([single(0, **mark), COPIED])
    rows.carry_out(plan_move(rows.list(), *TO_SINGLE).steps)
    assert rows.items == Rows([single(0, **mark)]).items


def _without_entity(item):
    del item["entityType"]
    return item


def test_a_copy_cannot_be_taken_and_is_no_lease_until_it_is_valid():
    assert "leaseCounter" not in COPIED
    assert "streamName" not in COPIED
    assert COPIED[MOVING] == {"N": "0"}
    assert not is_lease_item(COPIED)
    assert is_lease_item(valid(COPIED))
    assert lease_from_item(valid(COPIED)).stream_identifier == ORDERS.identifier


def test_a_row_that_was_written_after_it_was_copied_is_copied_again():
    later = single(0, leaseCounter={"N": "1"}, checkpoint={"S": "900"})
    move = plan_move([later, COPIED], *TO_MULTI)
    assert [step.phase for step in move.steps] == [
        MigrationPhase.COPY,
        MigrationPhase.DELETE,
        MigrationPhase.VALIDATE,
    ]
    assert move.steps[0].before == COPIED
    rows = Rows([later, COPIED])
    rows.carry_out(move.steps)
    (row,) = rows.list()
    assert (row["checkpoint"], row["leaseCounter"]) == ({"S": "900"}, {"N": "1"})


def test_a_begun_move_is_taken_back_by_a_move_in_the_other_direction():
    move = plan_move([single(0), COPIED], *TO_SINGLE)
    assert [(step.phase, step.key) for step in move.steps] == [
        (MigrationPhase.DELETE, COPIED["leaseKey"]["S"])
    ]
    rows = Rows([COPIED])  # the old row is deleted already
    rows.carry_out(plan_move(rows.list(), *TO_SINGLE).steps)
    assert rows.items == Rows([single(0)]).items


def test_rows_of_other_streams_stay():
    items = [single(0), multi(0, OTHER)]
    move = plan_move(items, *TO_MULTI)
    assert move.kept == (multi(0, OTHER)["leaseKey"]["S"],)
    rows = Rows(items)
    rows.carry_out(move.steps)
    assert rows.items == Rows([multi(0), multi(0, OTHER)]).items


def test_nothing_is_left_to_do_in_an_empty_table():
    assert plan_move([], *TO_MULTI).steps == ()
    assert plan_move([LEADER], RowKind.SINGLE, None).steps == ()
    assert plan_move([single(0)], RowKind.SINGLE, None).kept == ("shardId-000000000000",)


@pytest.mark.parametrize(
    ("items", "to", "why"),
    [
        ([multi(0), multi(0, OTHER)], TO_SINGLE, "rows of 2 streams (123456789012:orders:1700000000"),
        ([multi(0)], (RowKind.SINGLE, None), "rows of 1 streams"),
        ([single(0), multi(0)], TO_MULTI, "two rows, shardId-000000000000 (checkpoint 100)"),
        ([single(0), multi(0)], TO_SINGLE, "two rows, 123456789012:orders:1700000000:shardId"),
        (
            [COPIED, {**staged(single(0), "shardId-000000000000"), "checkpoint": {"S": "5"}}],
            TO_MULTI,
            "(checkpoint 5)",
        ),
        ([single(0), COPIED], (RowKind.MULTI, OTHER.identifier), "--stream 123456789012:orders"),
        ([{"leaseKey": {"S": "x"}}], TO_MULTI, "row x can't be read: leaseCounter is missing"),
        ([single(0, leaseKey={"S": "a:b"})], TO_MULTI, "neither a shard id nor account"),
        ([single(0, leaseKey={"S": "1:s:0:x"}, streamName={"S": "1:s:0"})], TO_MULTI, "not of the form account"),
        ([single(0, streamName={"S": "1:s:2"})], TO_MULTI, "not those of its key"),
        ([multi(0, shardId={"S": "y"}) | {"shardId": {"S": "y"}}], TO_MULTI, "not those of its key"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_moved_is_left_alone_and_told_why(items, to, why):
    move = plan_move(items, *to)
    assert move.steps == ()
    assert why in " ".join(move.problems)


def test_two_equal_copies_are_one():
    back = staged(COPIED, "shardId-000000000000")
    rows = Rows([COPIED, back])
    rows.carry_out(plan_move(rows.list(), *TO_MULTI).steps)
    assert rows.items == Rows([multi(0)]).items


def test_streams_of_a_table_and_of_a_begun_move():
    assert identifiers_of([single(0), multi(1, OTHER), COPIED, LEADER, {"leaseKey": {"S": "x"}}]) == (
        ORDERS.identifier,
        OTHER.identifier,
    )  # fmt: skip
    assert moving_to([single(0), COPIED, multi(0, OTHER)], "orders") == ORDERS.identifier
    assert moving_to([single(0), COPIED], "other") is None
    assert moving_to([single(0), multi(1)], "orders") is None


def test_the_order_of_a_set_is_not_a_change():
    one = single(0, parentShardId={"SS": ["a", "b"]})
    other = single(0, parentShardId={"SS": ["b", "a"]})
    assert contents(one) == contents(other)
    assert signs_of_life([one], [other]) == ()


@pytest.mark.parametrize(
    ("before", "after", "sign"),
    [
        (
            single(0, leaseOwner={"S": "w1"}),
            single(0, leaseOwner={"S": "w1"}, leaseCounter={"N": "1"}),
            "worker w1 wrote row shardId-000000000000: its counter went from 0 to 1",
        ),
        (
            single(0, leaseOwner={"S": "w2"}),
            single(
                0,
                leaseOwner={"S": "w2"},
                checkpointOwner={"S": "w1"},
                leaseCounter={"N": "1"},
            ),
            "worker w1 wrote",
        ),
        (single(0), single(0, childShardIds={"SS": ["x"]}), "somebody wrote row shardId"),
        (single(0), None, "somebody deleted row shardId-000000000000"),
        (None, single(0, leaseOwner={"S": "w1"}), "worker w1 created row shardId-000000000000"),
        (LEADER, {**LEADER, "recordVersionNumber": {"S": "b"}}, "worker w1 wrote row Leader"),
        (METRICS, {**METRICS, "lut": {"N": "2"}}, "worker w1 wrote row w1"),
    ],
)
def test_what_changes_between_two_scans_is_a_sign_of_life(before, after, sign):
    (found,) = signs_of_life([before] if before else [], [after] if after else [])
    assert found.startswith(sign)
    assert signs_of_life([after] if after else [], [after] if after else []) == ()


def test_a_key_is_read_and_written():
    assert RowName.parse("shardId-1") == RowName("shardId-1", None)
    assert RowName.parse("1:s:2:shardId-1") == RowName("shardId-1", "1:s:2")
    assert RowName.parse("1:s:2:shardId-1").key == "1:s:2:shardId-1"
    with pytest.raises(MalformedData):
        RowName.parse("")


def test_a_write_names_all_that_was_read_and_what_may_be_added_quietly():
    condition = unchanged_condition({"leaseKey": {"S": "k"}, "childShardIds": {"SS": ["c"]}})
    assert condition == {
        "ConditionExpression": "#a0 = :a0 AND #a1 = :a1 AND attribute_not_exists(startingHashKey)"
        " AND attribute_not_exists(endingHashKey)",
        "ExpressionAttributeNames": {"#a0": "leaseKey", "#a1": "childShardIds"},
        "ExpressionAttributeValues": {":a0": {"S": "k"}, ":a1": {"SS": ["c"]}},
    }
