"""After a RESTORE: marks for exactly the rows that are left."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.table import upkeep
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
    assert "was restored to a time: name the version" in capsys.readouterr().err
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


def to_several_parts(log, checkpoint):
    table = pq.read_table(checkpoint)
    half = table.num_rows // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half)), 1):
        pq.write_table(part, log / f"{2:020}.checkpoint.{number:010}.{2:010}.parquet")
    (log / "_last_checkpoint").write_text('{"version":2,"size":9,"parts":2}')
    checkpoint.unlink()


def to_a_name_of_its_own(log, checkpoint):
    checkpoint.rename(log / f"{2:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet")
    (log / "_last_checkpoint").unlink()


@pytest.mark.parametrize("change", [to_several_parts, to_a_name_of_its_own])
def test_marks_are_found_in_log_checkpoints_of_any_kind(tmp_path, change):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(1), 0, 4))  # quiet ever since
    write(sink, batch(shard(), 0, 3))
    DeltaTable(tmp_path).create_checkpoint()
    log = tmp_path / "_delta_log"
    for version in (0, 1):
        (log / f"{version:020}.json").unlink()
    change(log, log / f"{2:020}.checkpoint.parquet")
    write(open_sink(tmp_path), batch(shard(), 3, 7))
    DeltaTable(tmp_path).restore(2)
    assert renew(tmp_path) == 0
    assert again(tmp_path, 1, 5) == at(4)


def put_entry(path, text):
    version = DeltaTable(path).version() + 1
    (path / "_delta_log" / f"{version:020}.json").write_text(text, encoding="utf-8", newline="")


OTHERS_ENTRIES = {
    "a blank line": '{"commitInfo":{"timestamp":1}}\n{"txn":{"appId":"x","version":1}}\n\n',
    "CRLF": '{"commitInfo":{"timestamp":1}}\r\n{"txn":{"appId":"x","version":1}}\r\n',
    "other ends of lines": '{"commitInfo":{"userMetadata":"a\u2028b\u0085c"}}\n',
    "null": '{"commitInfo":{"operationMetrics":null,"operationParameters":null},"txn":null}\n',
    "text as a time": '{"commitInfo":{"timestamp":"2026-01-01"}}\n',
    "a late time": '{"commitInfo":{"timestamp":1831449600000000}}\n',
    "no information": '{"txn":{"appId":"x","version":1}}\n',
}


@pytest.mark.parametrize("text", OTHERS_ENTRIES.values(), ids=OTHERS_ENTRIES)
def test_entries_of_other_writers_are_read(tmp_path, capsys, text):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 3))
    put_entry(tmp_path, text)
    assert write(sink, batch(shard(), 3, 5)) == ["stands"]
    DeltaTable(tmp_path).restore(1)
    assert upkeep.main(["history", str(tmp_path)]) == 0
    assert "RESTORE" in capsys.readouterr().out
    assert renew(tmp_path) == 0
    assert again(tmp_path, 0, 4) == at(3)


def test_an_entry_that_cannot_be_understood_is_named(tmp_path, capsys):
    restored(tmp_path)
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("not JSON\n")
    assert renew(tmp_path) != 0
    assert f"{1:020}.json is no entry" in capsys.readouterr().err


def test_of_a_table_that_was_restored_to_a_time_the_version_is_named(tmp_path):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 3))
    version = DeltaTable(tmp_path).version()
    now = dt.datetime.now(dt.UTC)
    write(sink, batch(shard(), 3, 4))
    DeltaTable(tmp_path).restore(now)
    assert renew(tmp_path, "--version", str(version)) == 0
    assert again(tmp_path, 0, 5) == at(3)
    assert rows_in(tmp_path) == expected(s0=5)
