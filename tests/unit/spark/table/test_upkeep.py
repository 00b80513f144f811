"""Looking after a table while a worker writes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kcl_mld.spark import stub
from kcl_mld.spark.table import upkeep
from kcl_mld.spark.table.disk import Directory
from tests.unit.spark.table_kit import batch, expected, frame, open_sink, rows_in, shard, write

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def table(tmp_path):
    """Five small files and the sink that wrote them."""
    path = tmp_path / "t"
    sink = open_sink(path)
    for number in range(5):
        write(sink, batch(shard(), number, number + 1))
    return path, sink


def say(capsys, *argv):
    code = upkeep.main([str(each) for each in argv])
    said = capsys.readouterr()
    return code, said.out + said.err


def files_below(path):
    return {str(each.relative_to(path)) for each in path.rglob("*.parquet")}


def test_files_are_merged_and_removed_beside_a_job_that_is_not_committed_yet(table, capsys):
    path, sink = table
    small = files_below(path)
    one = batch(shard(), 5, 9)
    staged = sink.write(frame(one), [one])
    code, said = say(capsys, "optimize", path)
    assert (code, said) == (0, "5 files were merged into 1\n")
    assert say(capsys, "optimize", path) == (0, "nothing to merge\n")
    assert say(capsys, "vacuum", path) == (0, "0 files were removed\n")
    assert small < files_below(path)

    # The week is over.
    held = DeltaTable(path)
    assert upkeep.vacuum(held, Directory(path), 0, is_trial=True) == "5 files would be removed"
    assert small < files_below(path)
    assert upkeep.vacuum(held, Directory(path), 0, is_trial=False) == "5 files were removed"
    assert not small & files_below(path)
    assert [each.name for each in path.glob("kcl-mld-*/job-*")] == [staged.job.name]

    assert sink.commit_all(staged, [one]) == {shard(): "stands"}
    assert write(sink, batch(shard(), 9, 10)) == ["stands"]
    assert rows_in(path) == expected(s0=10)
    assert DeltaTable(path).count() == 10
    assert write(open_sink(path), batch(shard(), 10, 11)) == ["stands"]


@pytest.mark.parametrize("often", [1, 3])
def test_files_are_merged_though_a_worker_changes_properties_meanwhile(table, monkeypatch, often):
    path, sink = table
    held, left = DeltaTable(path), iter(range(often))
    update = DeltaTable.update_incremental

    def look_and_be_late(found):
        update(found)
        if found is held and next(left, None) is not None:
            with sink._log.snapshot() as now:
                sink._table._epoch.testify(now)

    monkeypatch.setattr(DeltaTable, "update_incremental", look_and_be_late)
    held.update_incremental()
    assert upkeep.optimize(held, Directory(path), None) == "5 files were merged into 1"
    assert write(sink, batch(shard(), 5, 6)) == ["stands"]
    assert rows_in(path) == expected(s0=6)


def test_a_table_that_is_changed_all_the_time_is_told(table, monkeypatch, capsys):
    path, sink = table
    real = DeltaTable.optimize.fget

    def optimize(found):
        with sink._log.snapshot() as now:
            sink._table._epoch.testify(now)
        return real(found)

    monkeypatch.setattr(DeltaTable, "optimize", property(optimize))
    code, said = say(capsys, "optimize", path)
    assert code == 70
    assert "Metadata changed since last commit" in said


def test_old_files_that_no_commit_names_are_removed_but_none_of_a_job(table, capsys):
    path, sink = table
    one = batch(shard(), 5, 9)
    staged = sink.write(frame(one), [one])
    new, old, other = (path / name for name in ("part-1.parquet", "part-2.parquet", "notes.txt"))
    for each in (new, old, other, *staged.job.iterdir()):
        each.touch()
        if each != new:
            os.utime(each, (1, 1))
    assert say(capsys, "vacuum", "--dry-run", path) == (0, "1 files would be removed\n")
    assert old.exists()
    assert say(capsys, "vacuum", "--retention-hours", 24, path) == (0, "1 files were removed\n")
    assert (new.exists(), old.exists(), other.exists()) == (True, False, True)
    assert sink.commit_all(staged, [one]) == {shard(): "stands"}
    assert rows_in(path) == expected(s0=9)


def test_old_files_of_a_table_below_are_nobodys_leftovers(table, capsys):
    path, _ = table
    below = path / "letters"
    write(open_sink(below), batch(shard(), 0, 3))
    bad = path / "bad"
    bad.mkdir()
    (bad / "part-0.parquet").touch()
    for each in path.rglob("*.parquet"):
        os.utime(each, (1, 1))
    assert say(capsys, "vacuum", path) == (0, "0 files were removed\n")
    assert rows_in(below) == expected(s0=3)
    assert (bad / "part-0.parquet").exists()


def test_old_files_are_removed_from_the_directories_of_partitions(tmp_path, capsys):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"day": ["a b", "c=/x"], "n": [1, 2]}), partition_by=["day"])
    for directory in path.glob("day=*"):
        refused = directory / "part-9.parquet"
        refused.touch()
        os.utime(refused, (1, 1))
    assert say(capsys, "vacuum", path) == (0, "2 files were removed\n")
    assert DeltaTable(path).to_pyarrow_table().num_rows == 2


def test_what_was_merged_is_on_the_disk_when_it_is_told(table, monkeypatch, capsys):
    path, _ = table
    synced = []
    real = os.fsync

    def fsync(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert say(capsys, "optimize", path)[0] == 0
    (new,) = DeltaTable(path).file_uris()
    entry = path / "_delta_log" / f"{DeltaTable(path).version():020}.json"
    assert {new, str(entry), str(path), str(entry.parent)} <= set(synced)


def test_the_history_has_a_line_a_commit_the_newest_first(table, capsys):
    path, _ = table
    code, said = say(capsys, "history", "--limit", 3, path)
    assert code == 0
    lines = said.splitlines()
    assert [int(line.split()[0]) for line in lines] == [5, 4, 3]
    assert all(" UTC  WRITE" in line for line in lines)


def test_what_is_no_table_is_told(tmp_path, capsys):
    assert say(capsys, "vacuum", tmp_path) == (
        2,
        f"kcl-mld-spark vacuum: {tmp_path} is no Delta table\n",
    )
    code, said = say(capsys, "optimize", "gs://bucket/table")
    assert code == 2
    assert "Name a directory" in said


def test_a_log_that_cannot_be_read_is_told(table, capsys):
    path, _ = table
    (path / "_delta_log" / f"{0:020}.json").write_text("{")
    code, said = say(capsys, "history", path)
    assert code == 70
    assert said.startswith(f"kcl-mld-spark history: {path}: ")


@pytest.mark.parametrize("hours", ["23", "-1", "1d", "9" * 400, "9" * 5000, "2147483648"])
def test_files_that_readers_may_still_need_are_not_removed(table, capsys, hours):
    path, _ = table
    with pytest.raises(SystemExit) as end:
        upkeep.main(["vacuum", "--retention-hours", hours, str(path)])
    assert end.value.code == 2
    assert "is not a whole number from 24 to 2147483647" in capsys.readouterr().err


@pytest.mark.process
def test_the_command_is_that_of_the_child(table):
    path, _ = table
    argv = [sys.executable, "-m", "kcl_mld.spark.stub", "history", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 6), done.stderr
    assert set(stub.UPKEEP) == {"history", "optimize", "vacuum", "new-epoch"}


def test_what_a_writer_calls_its_commit_does_nothing_to_a_terminal(table, capsys):
    path, _ = table
    about = {"operation": "WRITE\x1b[2J\nx", "timestamp": 1}
    version = DeltaTable(path).version() + 1
    (path / "_delta_log" / f"{version:020}.json").write_text(json.dumps({"commitInfo": about}))
    code, said = say(capsys, "history", "--limit", 1, path)
    assert code == 0
    assert said == f"{version:>8}  1970-01-01 00:00:00 UTC  WRITE\\x1b[2J\\nx\n"
