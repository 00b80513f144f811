"""After a RESTORE: marks for exactly the rows that are left."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pytest
from deltalake import DeltaTable

from mld.spark.errors import SinkRefused
from mld.spark.table import upkeep
from tests.unit.spark.table_kit import at, batch, expected, open_sink, rows_in, shard, write

NEW = "1"


def restored(path, version=2):
    """Two shards with a commit each at versions 1 and 2, more after that, and a RESTORE."""
    sink = open_sink(path)
    write(sink, batch(shard(), 0, 3))
    write(sink, batch(shard(1), 0, 2))
    write(sink, batch(shard(), 3, 7), batch(shard(1), 2, 4))
    write(sink, batch(shard(2), 0, 5))
    DeltaTable(path).restore(version)
    return sink


def renew(path, *more):
    return upkeep.main(["new-epoch", *more, str(path), NEW])


def again(path, number, end):
    """As a child of the new epoch begins: at the mark, with records from the beginning on."""
    sink = open_sink(path, sink__epoch=NEW)
    key = shard(number, epoch=NEW)
    mark = sink.mark(key)
    known = 0 if mark is None else mark.sequence - at(0).sequence
    assert write(sink, batch(key, known, end)) == ["stands"]
    return mark


def test_after_a_restore_every_record_is_there_once(tmp_path, capsys):
    sink = restored(tmp_path)
    with pytest.raises(SinkRefused, match=r"restored.*kcl-mld-spark new-epoch TABLE WORD"):
        write(sink, batch(shard(2), 5, 6))
    assert rows_in(tmp_path) == expected(s0=3, s1=2)
    assert renew(tmp_path) == 0
    assert f"shardId-000000000000 stands at {at(3)}" in capsys.readouterr().out
    assert [again(tmp_path, 0, 8), again(tmp_path, 1, 9), again(tmp_path, 2, 6)] == [
        at(3),
        at(2),
        None,
    ]
    assert rows_in(tmp_path) == expected(s0=8, s1=9, s2=6)


def test_the_marks_are_those_of_the_version_though_its_log_was_shortened(tmp_path):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(1), 0, 4))
    write(sink, batch(shard(), 0, 3))
    DeltaTable(tmp_path).create_checkpoint()
    for version in (0, 1):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    write(sink, batch(shard(), 3, 7))
    DeltaTable(tmp_path).restore(2)
    assert renew(tmp_path) == 0
    assert [again(tmp_path, 0, 7), again(tmp_path, 1, 5)] == [at(3), at(4)]
    rows = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert Counter((row["shard_id"][-1], row["n"]) for row in rows) == expected(s0=7, s1=5)


def test_a_restore_of_a_restore_has_the_marks_of_the_first_version(tmp_path):
    restored(tmp_path)
    first = DeltaTable(tmp_path).version()
    DeltaTable(tmp_path).restore(0)
    DeltaTable(tmp_path).restore(first)
    assert renew(tmp_path) == 0
    assert again(tmp_path, 0, 4) == at(3)


def test_a_second_restore_is_found_by_the_newest_epoch(tmp_path):
    restored(tmp_path)
    assert renew(tmp_path) == 0
    again(tmp_path, 0, 8)
    stood = DeltaTable(tmp_path).version()
    again(tmp_path, 0, 9)
    DeltaTable(tmp_path).restore(stood)
    assert upkeep.main(["new-epoch", str(tmp_path), "2"]) == 0
    sink = open_sink(tmp_path, sink__epoch="2")
    assert sink.mark(shard(epoch="2")) == at(8)
    assert sink.mark(shard(1, epoch="2")) == at(2)


def test_what_came_after_the_restore_is_told_with_what_to_do(tmp_path, capsys):
    """A commit that was made on the restored table before a worker noticed."""
    sink = restored(tmp_path)
    version = DeltaTable(tmp_path).version()
    sink._table._epoch._seen = version
    assert write(sink, batch(shard(2), 5, 6)) == ["stands"]
    assert renew(tmp_path) != 0
    assert f"Stop all workers, RESTORE the table to version {version}" in capsys.readouterr().err
    DeltaTable(tmp_path).restore(version)
    assert renew(tmp_path) == 0
    assert again(tmp_path, 2, 6) is None
    assert rows_in(tmp_path) == expected(s0=3, s1=2, s2=6)


def test_what_cannot_be_known_is_told(tmp_path, capsys):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 3))
    now = dt.datetime.now(dt.UTC)
    write(sink, batch(shard(), 3, 4))
    assert renew(tmp_path) != 0
    assert "tells of no RESTORE" in capsys.readouterr().err
    DeltaTable(tmp_path).restore(now)
    assert renew(tmp_path) != 0
    assert "was restored to a time" in capsys.readouterr().err
    DeltaTable(tmp_path).restore(1)
    assert renew(tmp_path, "--application", "other") != 0
    assert "--application names none of: app" in capsys.readouterr().err
    assert upkeep.main(["new-epoch", str(tmp_path), "0"]) != 0
    assert "has had an epoch 0 already" in capsys.readouterr().err


def test_a_log_that_lacks_the_version_is_told(tmp_path, capsys):
    restored(tmp_path)
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{2:020}.json").unlink()
    assert renew(tmp_path) != 0
    assert "no longer has version 2" in capsys.readouterr().err


def test_one_of_several_outputs_is_refused(tmp_path, capsys):
    restored(tmp_path / "clicks")
    (tmp_path / "kcl-mld-positions").mkdir()
    assert renew(tmp_path / "clicks") != 0
    assert "is one of several outputs" in capsys.readouterr().err
