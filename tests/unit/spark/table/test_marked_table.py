"""The fence and the marks over real Delta tables, without Spark."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from kcl_mld.spark.errors import BatchFailed, SinkRefused
from kcl_mld.spark.sinks.delta import StagedFiles
from kcl_mld.spark.table import epoch, marked_table
from kcl_mld.spark.table.marks import guard_id, output_id, transactions
from kcl_mld.spark.table.snapshot import Snapshot
from tests.unit.spark.table_kit import (
    BASE,
    Frame,
    at,
    batch,
    commit,
    expected,
    field,
    frame,
    log_entries,
    open_sink,
    rows_in,
    shard,
    write,
)

ROOT = Path(__file__).resolve().parents[4]


def test_one_commit_makes_the_batches_of_all_shards_visible_with_their_marks(tmp_path):
    sink = open_sink(tmp_path)
    assert sink.mark(shard()) is None
    assert write(sink, batch(shard(), 0, 10), batch(shard(1), 0, 4)) == ["stands", "stands"]
    assert write(sink, batch(shard(1), 4, 6)) == ["stands"]
    assert rows_in(tmp_path) == expected(s0=10, s1=6)
    fresh = open_sink(tmp_path)
    assert (fresh.mark(shard()), fresh.mark(shard(1)), fresh.mark(shard(2))) == (
        at(10),
        at(6),
        None,
    )
    commits = [each for each in log_entries(tmp_path) if "commitInfo" in each]
    assert len(commits) == 3  # that of the table, and one a job
    assert DeltaTable(tmp_path).count() == 16
    assert sorted(each.name for each in DeltaTable(tmp_path).schema().fields) == ["n", "shard_id"]


def test_a_refresh_between_comparing_and_committing_doubles_rows_and_this_order_does_not(tmp_path):
    """delta-rs compares no values: it only knows what is newer than the object."""
    sink, other = open_sink(tmp_path), open_sink(tmp_path)
    write(sink, batch(shard(), 0, 2))
    numbers = transactions(shard(), at(9), 5)
    late = DeltaTable(tmp_path)
    assert late.transaction_version(guard_id(shard())) is not None  # compared: all is as it was
    write(other, batch(shard(), 2, 4))
    ours = CommitProperties(app_transactions=[Transaction(*each) for each in numbers.items()])
    schema = late.schema()
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        late.create_write_transaction([], "append", schema, commit_properties=ours)
    late.update_incremental()
    late.create_write_transaction(
        [], "append", schema, commit_properties=ours
    )  # and nothing is said
    assert open_sink(tmp_path).mark(shard()) == at(9)
    # The sink that knew 4 finds that somebody else has been there, and commits nothing.
    other_staged = other.write(frame(batch(shard(), 4, 6)), [batch(shard(), 4, 6)])
    assert other.commit_all(other_staged, [batch(shard(), 4, 6)]) == {shard(): "lost"}
    assert rows_in(tmp_path) == expected(s0=4)


def test_nothing_is_refreshed_between_the_look_and_the_commit(tmp_path, monkeypatch):
    """Somebody commits after our look: delta-rs refuses, and the next look says that we lost."""
    sink, other = open_sink(tmp_path), open_sink(tmp_path)
    write(sink, batch(shard(), 0, 2), batch(shard(1), 0, 2))
    ours = [batch(shard(), 2, 5), batch(shard(1), 2, 5)]
    for each in ours:
        other.mark(each.shard)
    staged = sink.write(frame(*ours), ours)
    real, raced = Snapshot.commit, []

    def racing(self, *args):
        if not raced:
            raced.append(True)
            theirs = other.write(frame(batch(shard(), 2, 3)), [batch(shard(), 2, 3)])
            other.commit_all(theirs, [batch(shard(), 2, 3)])
        return real(self, *args)

    monkeypatch.setattr(Snapshot, "commit", racing)
    assert sink.commit_all(staged, ours) == {shard(): "lost", shard(1): "again"}
    sink.discard(staged)
    assert not staged.job.exists()
    assert write(sink, batch(shard(1), 2, 5)) == ["stands"]
    assert rows_in(tmp_path) == expected(s0=3, s1=5)


@pytest.mark.parametrize("stands", [True, False])
@pytest.mark.parametrize("times", [1, 3])
def test_an_exception_says_nothing_about_the_commit(tmp_path, monkeypatch, stands, times):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 2))
    real, failures = Snapshot.commit, iter(range(times))

    def failing(self, *args):
        if next(failures, None) is None:
            return real(self, *args)
        if stands:
            real(self, *args)
        raise OSError("a log checkpoint that failed")

    monkeypatch.setattr(Snapshot, "commit", failing)
    assert write(sink, batch(shard(), 2, 6)) == ["stands"]
    assert rows_in(tmp_path) == expected(s0=6)
    assert len([each for each in log_entries(tmp_path) if "add" in each]) == 2


def test_a_commit_that_never_succeeds_raises_and_its_files_are_kept_for_the_sweep(
    tmp_path, monkeypatch
):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 2))
    staged = sink.write(frame(batch(shard(), 2, 4)), [batch(shard(), 2, 4)])
    monkeypatch.setattr(marked_table, "PAUSES_S", (0.0, 0.0))

    def failing(self, *args):
        raise OSError("no store")

    monkeypatch.setattr(Snapshot, "commit", failing)
    with pytest.raises(OSError, match="no store"):
        sink.commit_all(staged, [batch(shard(), 2, 4)])
    sink.discard(staged)
    assert staged.job.exists()
    monkeypatch.undo()
    assert write(sink, batch(shard(), 2, 4)) == ["stands"]
    os.close(sink._files._lock)  # the process dies
    open_sink(tmp_path)
    assert not staged.job.exists()
    assert rows_in(tmp_path) == expected(s0=4)


def test_a_users_delete_or_alter_in_between_is_no_conflict_for_long(tmp_path, monkeypatch):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 4))
    real, left = Snapshot.commit, [True]

    def racing(self, *args):
        if left.pop() if left else False:
            DeltaTable(tmp_path).delete("n = 1")
            DeltaTable(tmp_path).alter.add_columns(deltalake.Field("more", "string"))
        return real(self, *args)

    monkeypatch.setattr(Snapshot, "commit", racing)
    assert write(sink, batch(shard(), 4, 6)) == ["stands"]
    assert sorted(n for _, n in rows_in(tmp_path)) == [2, 3, 4, 5, 6]


def test_a_job_whose_rows_were_all_filtered_moves_the_marks(tmp_path):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 2))
    one = batch(shard(), 2, 9)
    staged = sink.write(Frame([]), [one])
    assert sink.commit_all(staged, [one]) == {shard(): "stands"}
    assert open_sink(tmp_path).mark(shard()) == at(9)
    assert rows_in(tmp_path) == expected(s0=2)


def test_a_new_epoch_has_no_marks_and_both_go_on(tmp_path):
    first = open_sink(tmp_path)
    write(first, batch(shard(), 0, 2))
    second = open_sink(tmp_path, sink__epoch="two")
    assert second.mark(shard(epoch="two")) is None
    write(second, batch(shard(epoch="two"), 0, 2))
    write(first, batch(shard(), 2, 4))
    assert sum(rows_in(tmp_path).values()) == 6


# --- what a user does to the table ----------------------------------------------------------


def table_with(path):
    sink = open_sink(path)
    write(sink, batch(shard(), 0, 2))
    return sink


def set_property(path, name, text):
    DeltaTable(path).alter.set_table_properties({name: text}, raise_if_not_exists=False)


def refused(sink, path, match):
    """Both a running worker and one that starts."""
    with pytest.raises(SinkRefused, match=match):
        write(sink, batch(shard(), 2, 4))
    with pytest.raises(SinkRefused, match=match):
        open_sink(path)
    assert rows_in(path) == expected(s0=2)


def test_transactions_that_expire_are_refused_at_start_and_later(tmp_path):
    sink = table_with(tmp_path)
    set_property(tmp_path, "delta.setTransactionRetentionDuration", "interval 1 days")
    refused(sink, tmp_path, "drops the marks.*UNSET TBLPROPERTIES")


def test_a_check_constraint_is_refused_at_start_and_later(tmp_path):
    sink = table_with(tmp_path)
    DeltaTable(tmp_path).alter.add_constraint({"positive": "n > 0"})
    refused(sink, tmp_path, "CHECK constraint positive")


def test_a_restored_table_needs_a_new_epoch(tmp_path):
    sink = table_with(tmp_path)
    write(sink, batch(shard(), 2, 3))
    DeltaTable(tmp_path).restore(1)
    refused(sink, tmp_path, "restored.*new spark.sink.epoch")
    again = open_sink(tmp_path, sink__epoch="2")
    assert again.mark(shard(epoch="2")) is None  # so it goes on behind the checkpoint
    assert write(again, replace(batch(shard(epoch="2"), 2, 4), after=None)) == ["stands"]
    assert rows_in(tmp_path) == expected(s0=4)


def test_a_table_that_was_restored_to_before_the_epoch_needs_a_new_one(tmp_path):
    deltalake.write_deltalake(tmp_path, _arrow())
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 2))
    DeltaTable(tmp_path).restore(0)
    with pytest.raises(SinkRefused, match=r"restored.*new spark\.sink\.epoch"):
        open_sink(tmp_path)


def _arrow():
    return pa.table({"shard_id": ["x"], "n": pa.array([0], pa.int64())})


def test_another_table_in_its_place_is_refused(tmp_path):
    path = tmp_path / "t"
    sink = table_with(path)
    shutil.rmtree(path)
    with pytest.raises(SinkRefused, match="the table is gone"):
        sink.commit_all(StagedFiles(None, ()), [batch(shard(), 2, 4)])
    other = open_sink(path)
    write(other, batch(shard(), 0, 2))
    with pytest.raises(SinkRefused, match="another table now"):
        sink.mark(shard())


def test_marks_that_were_dropped_are_told(tmp_path):
    """The property stays, the oldest transaction goes first."""
    sink = table_with(tmp_path)
    entry = tmp_path / "_delta_log" / f"{0:020}.json"
    lines = entry.read_text().splitlines(keepends=True)
    begin = output_id("app", "0", epoch.BEGIN)
    assert sum(begin in line for line in lines) == 1
    entry.write_text("".join(line for line in lines if begin not in line))
    with pytest.raises(SinkRefused, match=r"marks .* were dropped"):
        open_sink(tmp_path)
    del sink


def test_a_directory_of_other_files_is_refused(tmp_path):
    (tmp_path / "x.parquet").touch()
    with pytest.raises(SinkRefused, match="is no Delta table"):
        open_sink(tmp_path)


def test_the_names_of_deltas_own_writer_serve_as_well(tmp_path):
    write(open_sink(tmp_path, sink__options__partitionBy="shard_id"), batch(shard(), 0, 1))
    sink = open_sink(tmp_path, sink__options__mergeSchema="true")
    columns = {"shard_id": "string", "n": "long", "fee": "double"}
    found = write(sink, batch(shard(), 1, 2), columns=columns)
    assert found == ["stands"]
    assert DeltaTable(tmp_path).metadata().partition_columns == ["shard_id"]


# --- columns --------------------------------------------------------------------------------


def test_rows_that_do_not_fit_are_refused_before_the_commit_and_their_files_removed(tmp_path):
    sink = table_with(tmp_path)
    one = batch(shard(), 2, 4)
    for columns, why in [
        ({"shard_id": "string", "n": "double"}, "the column n is double, but long"),
        ({"shard_id": "string", "N": "long"}, "names differ in case"),
        (
            {"shard_id": "string", "n": "long", "fee": "double"},
            r"no column fee.*spark\.sink\.schema=addColumns",
        ),
    ]:
        with pytest.raises(BatchFailed, match=why):
            sink.write(frame(one, columns=columns), [one])
    assert not list(tmp_path.glob("kcl-mld-*/job-2"))
    assert rows_in(tmp_path) == expected(s0=2)


def test_new_columns_are_let_in_on_request(tmp_path):
    table_with(tmp_path)
    sink = open_sink(tmp_path, sink__schema="addColumns")
    columns = {"shard_id": "string", "n": "long", "fee": "double"}
    assert write(sink, batch(shard(), 2, 4), columns=columns) == ["stands"]
    assert [each.name for each in DeltaTable(tmp_path).schema().fields] == ["shard_id", "n", "fee"]
    assert rows_in(tmp_path) == expected(s0=4)


def test_a_type_that_not_every_reader_reads_makes_no_table(tmp_path):
    sink = open_sink(tmp_path)
    one = batch(shard(), 0, 1)
    columns = {"shard_id": "string", "n": "long", "when": field("when", "timestamp_ntz")}
    with pytest.raises(BatchFailed, match="the column when has the type timestamp_ntz"):
        sink.write(Frame([], columns=columns), [one])
    assert not (tmp_path / "_delta_log").exists()


def test_partitions_are_those_of_the_option_and_then_of_the_table(tmp_path):
    sink = open_sink(tmp_path, sink__partitionBy="shard_id")
    one = batch(shard(), 0, 2)
    sink.mark(shard())
    rows = Frame([{"shard_id": "a/b c", "n": n} for n in (1, 2)])
    assert commit(sink, sink.write(rows, [one]), one) == ["stands"]
    (add,) = [each["add"] for each in log_entries(tmp_path) if "add" in each]
    assert add["partitionValues"] == {"shard_id": "a/b c"}
    found = DeltaTable(tmp_path)
    assert found.metadata().partition_columns == ["shard_id"]
    assert {each["shard_id"] for each in found.partitions()} == {"a/b c"}
    assert all(Path(name).exists() for name in found.file_uris())
    with pytest.raises(SinkRefused, match="is partitioned by shard_id"):
        open_sink(tmp_path, sink__partitionBy="n")
    other = open_sink(tmp_path / "other", sink__partitionBy="nope")
    with pytest.raises(BatchFailed, match=r"spark\.sink\.partitionBy names nope"):
        other.write(frame(batch(shard(), 0, 1)), [batch(shard(), 0, 1)])


# --- the log --------------------------------------------------------------------------------


def test_marks_outlive_log_checkpoints_clean_up_compaction_and_vacuum(tmp_path, monkeypatch):
    monkeypatch.setattr("kcl_mld.spark.table.delta_log.CHECKPOINT_EVERY", 3)
    sink = open_sink(tmp_path)
    for number in range(8):
        write(sink, batch(shard(), number, number + 1))
        sink._table.keep_short()
    assert (tmp_path / "_delta_log" / "_last_checkpoint").exists()
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    for entry in (tmp_path / "_delta_log").glob("*.json"):
        os.utime(entry, (1, 1))
    assert write(sink, batch(shard(), 8, 10)) == ["stands"]
    assert open_sink(tmp_path).mark(shard()) == at(10)
    assert DeltaTable(tmp_path).count() == 10


def test_everything_is_on_the_disk_before_a_commit_is_told(tmp_path, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    sink = open_sink(tmp_path)
    sink.mark(shard())
    one = batch(shard(), 0, 3)
    monkeypatch.setattr(os, "fsync", fsync)
    staged = sink.write(frame(one), [one])
    (file,) = staged.files
    path = tmp_path / file.path
    assert {str(path), *map(str, (path.parent, path.parent.parent, tmp_path))} <= set(synced)
    synced.clear()
    sink.commit_all(staged, [one])
    log = tmp_path / "_delta_log"
    assert {str(log), str(log / f"{1:020}.json")} <= set(synced)


# --- processes ------------------------------------------------------------------------------


def race(path, number, rounds, queue):
    """A process that extends the shard as long as it can, and begins again when it lost."""
    sink = open_sink(path)
    won = 0
    while won < rounds:
        mark = sink.mark(shard())
        begin = mark.sequence - BASE if mark else 0
        if write(sink, batch(shard(), begin, begin + 1 + number)) == ["stands"]:
            won += 1
    queue.put(won)


def test_of_two_processes_that_race_for_a_shard_each_row_is_there_once(tmp_path):
    open_sink(tmp_path)
    context = multiprocessing.get_context("spawn")  # a fork after deltalake was used hangs
    queue = context.Queue()
    racers = [context.Process(target=race, args=(tmp_path, n, 8, queue)) for n in range(2)]
    for each in racers:
        each.start()
    assert [queue.get(timeout=120) for _ in racers] == [8, 8]
    for each in racers:
        each.join()
    assert rows_in(tmp_path) == expected(s0=8 * 1 + 8 * 2)


VICTIM = """
import os, signal, sys
from kcl_mld.spark.sinks.delta import DeltaSink
from kcl_mld.spark.table.delta_log import DeltaLog
from kcl_mld.spark.table.snapshot import Snapshot
from kcl_mld.spark.table.disk import JobFiles
from tests.unit.spark.table_kit import batch, open_sink, shard, write
path, where = sys.argv[1:]
sink = open_sink(path)
write(sink, batch(shard(), 0, 2), batch(shard(1), 0, 1))
owner, name, when = where.split(".")
owner = globals()[owner]
real = getattr(owner, name)
def dying(*args, **more):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(*args, **more)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, dying)
write(sink, batch(shard(), 2, 5), batch(shard(1), 1, 5))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("where", "stands"),
    [
        ("JobFiles.write.before", False),
        ("JobFiles.write.after", False),
        ("Snapshot.commit.before", False),
        ("Snapshot.commit.after", True),
        ("JobFiles.committed.before", True),
        ("JobFiles.committed.after", True),
    ],
)
def test_kill_9_between_two_steps_loses_and_doubles_nothing(tmp_path, where, stands):
    path = tmp_path / "t"
    program = tmp_path / "victim.py"
    program.write_text(VICTIM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, program, path, where], env=environment, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert rows_in(path) == (expected(s0=5, s1=5) if stands else expected(s0=2, s1=1))
    sink = open_sink(path)
    # Redelivered from the checkpoints, cut anew: what the marks cover is dropped.
    for key, to in ((shard(), 7), (shard(1), 6)):
        write(sink, batch(key, sink.mark(key).sequence - BASE, to))
    assert rows_in(path) == expected(s0=7, s1=6)
    live = {Path(each) for each in DeltaTable(path).file_uris()}
    assert {each.resolve() for each in path.glob("kcl-mld-*/*/*.parquet")} == live


def test_a_process_that_lives_keeps_its_jobs_whoever_starts(tmp_path):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 2))
    one = batch(shard(), 2, 4)
    staged = sink.write(frame(one), [one])
    starter = threading.Thread(target=open_sink, args=(tmp_path,))
    starter.start()
    starter.join()
    assert sink.commit_all(staged, [one]) == {shard(): "stands"}
    assert rows_in(tmp_path) == expected(s0=4)


@pytest.mark.process
def test_what_a_process_committed_while_another_one_began_stays(tmp_path, monkeypatch):
    """It dies between its commit and its next step, after the other one has read the log."""
    path = tmp_path / "t"
    write(open_sink(path), batch(shard(2), 0, 1))
    program = tmp_path / "victim.py"
    program.write_text(VICTIM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    look = marked_table.MarkedTable.look
    deaths = []

    def then_dies(self):
        seen = look(self)
        if not deaths:
            words = [sys.executable, program, path, "Snapshot.commit.after"]
            done = subprocess.run(words, env=environment, check=False)
            deaths.append(done.returncode)
        return seen

    monkeypatch.setattr(marked_table.MarkedTable, "look", then_dies)
    open_sink(path)
    assert deaths == [-signal.SIGKILL]
    assert rows_in(path) == expected(s0=5, s1=5, s2=1)


def test_without_locks_what_is_pending_is_left_for_a_week_and_then_removed(tmp_path, monkeypatch):
    """Nobody can tell there whether its owner lives."""

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 2))
    jobs = []
    for to in (4, 5):
        one = batch(shard(), 2, to)
        jobs.append(sink.write(frame(one), [one]).job)
    old, young = jobs
    pending = old.parent / old.name.replace("job", "pending")
    about = pending.stat()
    open_sink(tmp_path)
    assert old.exists()
    os.utime(pending, (about.st_atime, about.st_mtime - 8 * 86_400))
    open_sink(tmp_path)
    assert (old.exists(), young.exists()) == (False, True)
    assert write(sink, batch(shard(), 2, 4)) == ["stands"]
    assert rows_in(tmp_path) == expected(s0=4)


UNFORKED = """
import sys
seen = []
sys.addaudithook(lambda name, _: seen.append(name))
import kcl_mld.spark.host, kcl_mld.spark.parts, kcl_mld.spark.server.launcher, kcl_mld.spark.sinks
assert "deltalake" not in sys.modules  # so the server is started before it
from tests.unit.spark.table_kit import batch, open_sink, shard, write
del seen[:]
sink = open_sink(sys.argv[1])
assert write(sink, batch(shard(), 0, 2)) == ["stands"]
sink._table.keep_short()
assert "deltalake" in sys.modules
assert not {"os.fork", "os.forkpty", "subprocess.Popen", "os.posix_spawn"} & set(seen), set(seen)
"""


@pytest.mark.process
def test_nothing_forks_once_deltalake_is_there(tmp_path):
    """A fork of a process that has used it hangs; the server is started before."""
    program = tmp_path / "program.py"
    program.write_text(UNFORKED)
    done = subprocess.run(
        [sys.executable, program, tmp_path / "t"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_restore_is_seen_although_its_entry_is_gone(tmp_path, monkeypatch):
    """The log is cleaned; what went back with the restored version is still compared."""
    monkeypatch.setattr("kcl_mld.spark.table.delta_log.CHECKPOINT_EVERY", 3)
    sink = open_sink(tmp_path)
    for number in range(7):
        write(sink, batch(shard(), number, number + 1))
        sink._table.keep_short()
    DeltaTable(tmp_path).restore(2)
    restored = DeltaTable(tmp_path).version()
    deltalake.write_deltalake(tmp_path, _arrow(), mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    for version in range(restored + 1):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(SinkRefused, match=r"restored or replaced.*new spark\.sink\.epoch"):
        open_sink(tmp_path)
    with pytest.raises(SinkRefused, match="restored"):
        write(sink, batch(shard(), 7, 9))


def test_a_start_looks_through_what_others_committed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(epoch, "WITNESS_EVERY", 4)
    write(open_sink(tmp_path), batch(shard(), 0, 1))
    for _ in range(5):
        deltalake.write_deltalake(tmp_path, _arrow(), mode="append")
    for _ in range(2):
        sink = open_sink(tmp_path)
        entries = [each for each in log_entries(tmp_path) if "metaData" in each]
        assert [each["metaData"]["configuration"].get("kclMld.seen.app.0") for each in entries] == [
            None,
            "6",
        ]
    assert write(sink, batch(shard(), 1, 2)) == ["stands"]
    DeltaTable(tmp_path).restore(3)
    with pytest.raises(SinkRefused, match="restored"):
        open_sink(tmp_path)
