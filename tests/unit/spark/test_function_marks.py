"""Marks that a function keeps with its own data: texts that compare, and what they cover."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from hypothesis import given, strategies as st

from kcl_mld.spark.batch_context import context_of, covered, stored_text
from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.model import MicroBatch, Position, ShardKey
from tests.unit.spark.batches import batch

positions = st.builds(Position, st.integers(0, 2**186 - 1), st.integers(0, 2**32 - 1))


def context(*parts, epoch="0", application="app"):
    shards = (
        (ShardKey(application, stream, shard, epoch), after, to)
        for stream, shard, after, to in parts
    )
    return context_of(None, MicroBatch(tuple(batch(*each) for each in shards)))


def covered_in(ctx, stored):
    return covered(ctx.application, ctx.epoch, ctx.shards, stored)


@given(positions, positions)
def test_stored_texts_compare_as_positions_do(one, two):
    assert (stored_text(one) < stored_text(two)) == (one < two)
    assert stored_text(None) < stored_text(one)
    assert len(stored_text(one)) == 67


def test_a_mark_names_application_epoch_stream_and_shard_and_they_are_in_order():
    ctx = context(("s", "2", 3, 9), ("s", "1", None, 4), epoch="b/c", application="a b")
    assert [(each.shard, each.after, each.to) for each in ctx.marks()] == [
        ("a%20b/b%2Fc/s/1", "", stored_text(Position(4))),
        ("a%20b/b%2Fc/s/2", stored_text(Position(3)), stored_text(Position(9))),
    ]


@pytest.mark.parametrize(
    ("after", "to", "mark", "is_covered"),
    [
        (None, 4, None, False),
        (3, 9, None, False),  # its history begins here, behind the checkpoint
        (3, 9, 3, False),
        (3, 9, 5, True),
        (3, 9, 9, True),
        (3, 9, 12, True),  # cut shorter than before the crash
        (None, 9, 2, True),
    ],
)
def test_a_mark_covers_what_lies_before_it_whatever_the_cut(after, to, mark, is_covered):
    ctx = context(("s", "1", after, to))
    stored = {} if mark is None else {"app/0/s/1": stored_text(Position(mark))}
    assert bool(covered_in(ctx, stored)) is is_covered
    if not is_covered:
        assert ctx.new_rows("frame", stored) == "frame"


def test_marks_of_others_cover_nothing():
    ctx = context(("s", "1", 3, 9))
    others = ("app/0/t/1", "app/0/s/2", "app/1/s/1", "app2/0/s/1")
    assert covered_in(ctx, dict.fromkeys(others, stored_text(Position(5)))) == []


def test_a_mark_before_the_batch_is_an_error_that_says_what_to_do():
    ctx = context(("s", "1", 3, 9))
    with pytest.raises(BatchFailed, match=r"^1: the stored mark .* Set the checkpoint back, or"):
        covered_in(ctx, {"app/0/s/1": stored_text(Position(2))})


@pytest.mark.parametrize("text", ["5.0", "x", "5" * 67, f"{5:056d}.{0:09d}x"])
def test_a_text_that_is_no_mark_is_refused(text):
    with pytest.raises(BatchFailed, match=r"is none of ctx\.marks\(\)"):
        covered_in(context(("s", "1", 3, 9)), {"app/0/s/1": text})


def test_a_frame_without_the_place_of_its_records_is_refused():
    class Frame:
        columns = ("shard_id", "n")

    stored = {"app/0/s/1": stored_text(Position(5))}
    with pytest.raises(BatchFailed, match="needs the columns stream_name, sequence_number, sub"):
        context(("s", "1", 3, 9)).new_rows(Frame(), stored)


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.booleans()), max_size=12))
def test_whatever_is_killed_and_however_it_is_cut_each_record_is_there_once(rounds):
    """As the guide shows it, in a real transaction; only the frame is a list."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE rows (n INTEGER)")
        database.execute("CREATE TABLE marks (shard TEXT PRIMARY KEY, position TEXT)")
        checkpoint, zombie = 0, None
        for size, is_written, is_checkpointed in rounds:
            cut = (checkpoint, checkpoint + size)
            for after, to in filter(None, (zombie, cut)):
                ctx = context(("s", "1", after or None, to))
                stored = dict(database.execute("SELECT * FROM marks"))
                known = {text for _, text in covered_in(ctx, stored)}
                with database:
                    numbers = range(after + 1, to + 1)
                    new = [n for n in numbers if not known or stored_text(Position(n)) > max(known)]
                    if not is_written:
                        continue  # killed before its transaction ended
                    database.executemany("INSERT INTO rows VALUES (?)", [(n,) for n in new])
                    database.executemany(
                        "INSERT INTO marks VALUES (?, ?) ON CONFLICT (shard) DO UPDATE "
                        "SET position = max(position, excluded.position)",
                        [(mark.shard, mark.to) for mark in ctx.marks()],
                    )
                if is_checkpointed:
                    checkpoint = max(checkpoint, to)
            # An old owner that does not know yet comes with its batch once more.
            zombie = cut if cut[0] >= checkpoint else None
        found = [n for (n,) in database.execute("SELECT n FROM rows ORDER BY n")]
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= checkpoint
