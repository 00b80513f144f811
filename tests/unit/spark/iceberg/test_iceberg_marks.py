"""Marks as properties of a table, and whether the rows are still there that they speak of."""

from __future__ import annotations

import json

import pytest

from kcl_mld.spark.iceberg.marks import (
    PREFIX,
    History,
    SnapshotLink,
    TableMark,
    history,
    mark_key,
    mark_text,
    read_marks,
)
from kcl_mld.spark.model import Position, ShardKey

SHARD = ShardKey("app", "flights", "shardId-000000000001")
MARK = TableMark(Position(2**185, 7), 2**62 - 1, 77, 5)


def test_a_mark_is_read_as_it_was_written():
    assert read_marks({mark_key(SHARD): mark_text(SHARD, MARK)}, "app", "0") == {SHARD: MARK}


def test_keys_are_short_and_no_two_shards_share_one():
    shards = [
        SHARD,
        ShardKey("app", "flights", "shardId-000000000001", "2"),
        ShardKey("app", "flights2", "shardId-000000000001"),
        ShardKey("ap", "pflights", "shardId-000000000001"),
        ShardKey("a" * 128, "s" * 128, "x" * 128, "e" * 100),
    ]
    keys = {mark_key(shard) for shard in shards}
    assert len(keys) == len(shards)
    assert {len(key) for key in keys} == {44}


def test_marks_of_others_and_other_properties_are_left_out():
    other = ShardKey("other", "flights", "shardId-000000000001")
    epoch = ShardKey("app", "flights", "shardId-000000000001", "2")
    properties = {mark_key(each): mark_text(each, MARK) for each in (other, epoch)}
    assert read_marks({**properties, "owner": "me"}, "app", "0") == {}


@pytest.mark.parametrize(
    "text",
    ["", "1", "{}", json.dumps({**json.loads(mark_text(SHARD, MARK)), "position": "1"})],
    ids=["empty", "number", "no names", "position"],
)
def test_a_mark_that_cannot_be_read_is_an_error(text):
    with pytest.raises(ValueError, match=rf"the property {PREFIX}x is no mark"):
        read_marks({f"{PREFIX}x": text}, "app", "0")


def chain(*links):
    """Snapshots by id; a link is (id, parent, sequence number)."""
    return {number: SnapshotLink(parent, sequence) for number, parent, sequence in links}


LINE = chain((1, None, 1), (2, 1, 2), (3, 2, 3))


@pytest.mark.parametrize(
    ("newest", "retained", "current", "expected"),
    [
        ((2, 2), LINE, 2, History.WHOLE),
        ((2, 2), LINE, 3, History.WHOLE),
        ((3, 3), LINE, 2, History.SET_BACK),
        ((3, 3), LINE | chain((4, 2, 4)), 4, History.SET_BACK),
        ((3, 3), LINE | chain((4, None, 4)), 4, History.EXPIRED),
        ((3, 3), LINE, None, History.SET_BACK),
        ((2, 2), chain((3, 2, 3)), 3, History.WHOLE),  # a parent's id is known
        ((1, 1), chain((3, 2, 3)), 3, History.EXPIRED),
        ((2, 2), {}, 2, History.WHOLE),
    ],
)
def test_the_newest_mark_has_to_be_an_ancestor(newest, retained, current, expected):
    snapshot, sequence = newest
    older = ShardKey("app", "flights", "shardId-000000000002")
    marks = {SHARD: TableMark(Position(1), 1, snapshot, sequence)}
    marks[older] = TableMark(Position(1), 1, 99, 0)
    assert history(marks, retained, current) is expected


def test_without_marks_nothing_is_missing():
    assert history({}, {}, None) is History.WHOLE
