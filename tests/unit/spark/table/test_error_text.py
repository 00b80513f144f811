"""A log that a loss of power has damaged: what is said, and that it helps."""

import shutil

import pytest
from deltalake import DeltaTable

from kcl_mld.spark.errors import SinkUnavailable
from kcl_mld.spark.table.delta_log import damage_in
from tests.unit.spark.table_kit import at, batch, frame, open_sink, shard, write

CHECKPOINT, HINT = f"{2:020}.checkpoint.parquet", "_last_checkpoint"


@pytest.fixture
def log(tmp_path):
    """Of a table with two commits, and a log checkpoint of the second."""
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 3))
    write(sink, batch(shard(), 3, 5))
    DeltaTable(tmp_path).create_checkpoint()
    assert damage_in(tmp_path / "_delta_log") == ""
    return tmp_path / "_delta_log"


def empty(path):
    path.write_bytes(b"")


def cut(path):
    path.write_bytes(path.read_bytes()[:100])


def zero(path):
    path.write_bytes(bytes(path.stat().st_size))


def remove(path):
    path.unlink()


@pytest.mark.parametrize("damage", [empty, cut, zero, remove])
def test_a_damaged_log_checkpoint_is_named_and_taking_it_away_mends_the_table(log, damage):
    damage(log / CHECKPOINT)
    with pytest.raises(SinkUnavailable, match="can't be opened") as caught:
        open_sink(log.parent)
    named = {name for name in (CHECKPOINT, HINT) if name in str(caught.value).split("opened")[1]}
    assert HINT in named
    for name in named & {each.name for each in log.iterdir()}:
        assert f"move {CHECKPOINT}, {HINT}" in str(caught.value) or damage is remove
        (log / name).rename(log.parent / name)
    assert open_sink(log.parent).mark(shard()) == at(5)


@pytest.mark.parametrize("damage", [empty, cut, zero])
def test_a_damaged_hint_harms_nobody(log, damage):
    damage(log / HINT)
    assert damage_in(log) == ""
    assert open_sink(log.parent).mark(shard()) == at(5)


@pytest.mark.parametrize("content", [b"", bytes(700)])
def test_a_table_that_was_lost_as_it_was_made_is_told_with_what_to_do(tmp_path, content):
    sink = open_sink(tmp_path)
    one = batch(shard(), 0, 3)
    staged = sink.write(frame(one), [one])
    sink.discard(staged)
    log = tmp_path / "_delta_log"
    (log / f"{0:020}.json").write_bytes(content)
    with pytest.raises(SinkUnavailable, match=f"is empty.*remove {log}"):
        open_sink(tmp_path)
    shutil.rmtree(log)
    assert write(open_sink(tmp_path), one) == ["stands"]
