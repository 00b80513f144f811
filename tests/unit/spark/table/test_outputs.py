"""Several tables from one function, over real Delta tables and without Spark."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kcl_mld.spark.calls import GivenUp
from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import BatchFailed, SinkRefused, SparkConfigError
from kcl_mld.spark.sinks import make_sink
from kcl_mld.spark.sinks.outputs import MANIFESTS, POSITIONS, OutputsSink
from kcl_mld.spark.table.disk import OLD_S
from kcl_mld.spark.table.marked_table import MarkedTable
from kcl_mld.spark.table.snapshot import Snapshot
from tests.unit.spark.table_kit import (
    at,
    batch,
    commit,
    expected,
    frame,
    log_entries,
    rows_in,
    shard,
)

ROOT = Path(__file__).resolve().parents[4]
NAMES = ("clicks", "errors")


class Crash(BaseException):
    """The process goes no further."""


def open_outputs(path, **properties):
    more = {"spark." + name.replace("__", "."): text for name, text in properties.items()}
    given = {"spark.sink.path": str(path), "spark.sink.outputs": "clicks, errors", **more}
    sink = make_sink(read_properties(given), "app")
    assert isinstance(sink, OutputsSink)
    sink.prepare(None)
    return sink


def frames(batches, names=NAMES):
    return {name: frame(*batches) for name in names}


def stage(sink, *batches, names=NAMES):
    return sink.write(frames(batches, names), batches)


def write(sink, *batches, names=NAMES):
    """As the engine does it, with the looks at the beginning of each shard."""
    for each in batches:
        sink.mark(each.shard)
    return commit(sink, stage(sink, *batches, names=names), *batches)


def rows(path):
    return [rows_in(path / name) for name in NAMES]


def manifests(path):
    return sorted((path / MANIFESTS).iterdir())


def crash(monkeypatch, path, sink, table, *batches, when=""):
    """The process ends right before the commit to a table, or ``after`` it.

    Returns:
        what it staged.
    """
    real = Snapshot.commit

    def commit(self, *args):
        if Path(self.table.table_uri.removeprefix("file://")) == path / table:
            if when == "after":
                real(self, *args)
            raise Crash
        return real(self, *args)

    staged = stage(sink, *batches)
    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "commit", commit)
        with pytest.raises(Crash):
            sink.commit_all(staged, list(batches))
    return staged


def let_go(sink):
    """As the end of the process does."""
    for output in sink._outputs.values():
        os.close(output._files._lock)


def test_each_table_has_its_rows_and_marks_and_nothing_is_left_open(tmp_path):
    sink = open_outputs(tmp_path)
    assert sink.mark(shard()) is None
    assert write(sink, batch(shard(), 0, 10), batch(shard(1), 0, 4)) == ["stands", "stands"]
    assert write(sink, batch(shard(1), 4, 6)) == ["stands"]
    assert rows(tmp_path) == [expected(s0=10, s1=6)] * 2
    assert manifests(tmp_path) == []
    fresh = open_outputs(tmp_path)
    assert [fresh.mark(shard(n)) for n in range(3)] == [at(10), at(6), None]
    assert [DeltaTable(tmp_path / name).count() for name in NAMES] == [16, 16]
    assert DeltaTable(tmp_path / POSITIONS).count() == 0


def test_an_output_that_is_missing_has_no_rows_and_its_marks_move(tmp_path):
    sink = open_outputs(tmp_path)
    assert write(sink, batch(shard(), 0, 3), names=("clicks",)) == ["stands"]
    assert not (tmp_path / "errors" / "_delta_log").exists()
    assert open_outputs(tmp_path).mark(shard()) == at(3)
    assert write(sink, batch(shard(), 3, 5)) == ["stands"]
    assert write(sink, batch(shard(), 5, 9), names=("errors",)) == ["stands"]
    assert write(sink, batch(shard(), 9, 11), names=()) == ["stands"]
    assert open_outputs(tmp_path).mark(shard()) == at(11)
    assert sorted(n for _, n in rows_in(tmp_path / "clicks")) == [1, 2, 3, 4, 5]
    assert sorted(n for _, n in rows_in(tmp_path / "errors")) == [4, 5, 6, 7, 8, 9]


STEPS = [(POSITIONS, ""), (POSITIONS, "after"), ("clicks", ""), ("clicks", "after"), ("errors", "")]
STEPS.append(("errors", "after"))


@pytest.mark.parametrize(("table", "when"), STEPS)
def test_a_crash_between_any_two_commits_is_rolled_forward_with_the_same_files(
    tmp_path, monkeypatch, table, when
):
    sink = open_outputs(tmp_path)
    write(sink, batch(shard(), 0, 3), batch(shard(1), 0, 2))
    ours = [batch(shard(), 3, 7), batch(shard(1), 2, 4)]
    staged = crash(monkeypatch, tmp_path, sink, table, *ours, when=when)
    stands = (table, when) != (POSITIONS, "")
    # The shards go to two hosts.
    one, two = open_outputs(tmp_path), open_outputs(tmp_path)
    assert one.mark(shard()) == at(7 if stands else 3)
    assert two.mark(shard(1)) == at(4 if stands else 2)
    assert rows(tmp_path) == [expected(s0=7, s1=4) if stands else expected(s0=3, s1=2)] * 2
    if stands:
        names = {file.path for part in staged.values() for file in part.files}
        added = {
            each["add"]["path"]
            for name in NAMES
            for each in log_entries(tmp_path / name)
            if "add" in each
        }
        assert names <= added
    begin, other = (7, 4) if stands else (3, 2)
    assert write(one, batch(shard(), begin, 9)) == ["stands"]
    assert write(two, batch(shard(1), other, 9)) == ["stands"]
    assert rows(tmp_path) == [expected(s0=9, s1=9)] * 2
    open_outputs(tmp_path)
    assert manifests(tmp_path) == []


def test_two_hosts_roll_forward_at_once(tmp_path, monkeypatch):
    """The second comes while the first one is between its look and its commit, in each table."""
    sink = open_outputs(tmp_path)
    ours = [batch(shard(), 0, 7), batch(shard(1), 0, 4)]
    for each in ours:
        sink.mark(each.shard)
    crash(monkeypatch, tmp_path, sink, "clicks", *ours)
    one, two = open_outputs(tmp_path), open_outputs(tmp_path)
    real, raced = Snapshot.commit, []

    def racing(self, *args):
        name = Path(self.table.table_uri.removeprefix("file://")).name
        if name not in raced:
            raced.append(name)
            assert two.mark(shard(1)) == at(4)
            assert write(two, batch(shard(1), 4, 6)) == ["stands"]  # it goes on at once
        return real(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "commit", racing)
        assert one.mark(shard()) == at(7)
    assert raced[0] == "clicks"
    assert rows(tmp_path) == [expected(s0=7, s1=6)] * 2


def test_of_two_writers_one_loses_whole_and_nothing_of_it_is_left(tmp_path):
    one, two = open_outputs(tmp_path), open_outputs(tmp_path)
    for sink in (one, two):
        for number in range(2):
            sink.mark(shard(number))
    late = [batch(shard(), 0, 4), batch(shard(1), 0, 4)]
    staged = stage(one, *late)
    assert write(two, batch(shard(1), 0, 2)) == ["stands"]
    assert commit(one, staged, *late) == ["again", "lost"]
    assert rows(tmp_path) == [expected(s1=2)] * 2
    assert manifests(tmp_path) == []
    assert not [each.job for each in staged.values() if each.job.exists()]
    assert write(one, batch(shard(), 0, 4)) == ["stands"]
    assert rows(tmp_path) == [expected(s0=4, s1=2)] * 2


def test_a_manifest_that_came_too_late_is_void_for_ever(tmp_path, monkeypatch):
    """Another owner commits between the manifest and the commit that decides."""
    one, two = open_outputs(tmp_path), open_outputs(tmp_path)
    ours = [batch(shard(), 0, 4), batch(shard(1), 0, 4)]
    for each in ours:
        one.mark(each.shard)
    staged = stage(one, *ours)
    real = one._manifests.keep

    def keep(manifest):
        real(manifest)
        assert write(two, batch(shard(1), 0, 2)) == ["stands"]
        assert open_outputs(tmp_path).mark(shard()) is None  # nobody carries it out

    monkeypatch.setattr(one._manifests, "keep", keep)
    assert commit(one, staged, *ours) == ["again", "lost"]
    assert rows(tmp_path) == [expected(s1=2)] * 2


@pytest.mark.parametrize("stands", [True, False])
def test_an_exception_says_nothing_about_a_commit(tmp_path, monkeypatch, stands):
    sink = open_outputs(tmp_path)
    write(sink, batch(shard(), 0, 2))
    real, failed = Snapshot.commit, set()

    def failing(self, *args):
        if self.table.table_uri in failed:
            return real(self, *args)
        failed.add(self.table.table_uri)
        if stands:
            real(self, *args)
        raise OSError("no answer")

    monkeypatch.setattr(Snapshot, "commit", failing)
    assert write(sink, batch(shard(), 2, 6)) == ["stands"]
    assert len(failed) == 3
    assert rows(tmp_path) == [expected(s0=6)] * 2


def test_files_that_others_have_added_and_built_on_are_not_discarded(tmp_path, monkeypatch):
    sink = open_outputs(tmp_path)
    write(sink, batch(shard(), 0, 3))
    ours = [batch(shard(), 3, 7)]
    staged = stage(sink, *ours)
    real = Snapshot.commit

    def commit_and_lose_everything(self, *args):
        monkeypatch.setattr(Snapshot, "commit", real)
        real(self, *args)
        write(open_outputs(tmp_path), batch(shard(), 7, 9))  # by the shard's next owner
        raise OSError("no answer")

    monkeypatch.setattr(Snapshot, "commit", commit_and_lose_everything)
    assert commit(sink, staged, *ours) == ["lost"]
    assert rows(tmp_path) == [expected(s0=9)] * 2
    assert manifests(tmp_path) == []


def test_a_table_that_cannot_be_written_is_caught_up_when_its_shards_begin_again(
    tmp_path, monkeypatch
):
    sink = open_outputs(tmp_path)
    write(sink, batch(shard(), 0, 2))
    ours = batch(shard(), 2, 6)
    staged = stage(sink, ours)
    with monkeypatch.context() as patch:
        real = MarkedTable._tried

        def tried(self, table, files, numbers):
            if self._name.endswith("errors"):
                return OSError("the disk is read-only")
            return real(self, table, files, numbers)

        patch.setattr(MarkedTable, "_tried", tried)
        for output in sink._outputs.values():
            patch.setattr(output.table, "_pause", lambda _: None)
        with pytest.raises(BatchFailed, match=r"not yet in all; it is added.*disk is read-only"):
            sink.commit_all(staged, [ours])
    sink.discard(staged)
    assert rows(tmp_path) == [expected(s0=6), expected(s0=2)]
    assert sink.mark(shard()) == at(6)
    assert rows(tmp_path) == [expected(s0=6)] * 2


def test_what_an_open_manifest_names_is_not_swept(tmp_path, monkeypatch):
    """The process that wrote the files is dead, and another one starts without owning its shard."""
    sink = open_outputs(tmp_path)
    ours = batch(shard(), 0, 6)
    sink.mark(shard())
    crash(monkeypatch, tmp_path, sink, "errors", ours)
    let_go(sink)
    other = open_outputs(tmp_path)
    assert len(manifests(tmp_path)) == 1
    write(other, batch(shard(1), 0, 2))
    assert other.mark(shard()) == at(6)
    assert rows(tmp_path) == [expected(s0=6, s1=2)] * 2


def test_what_a_void_manifest_named_is_swept(tmp_path, monkeypatch):
    sink = open_outputs(tmp_path)
    ours = batch(shard(), 0, 6)
    sink.mark(shard())
    staged = crash(monkeypatch, tmp_path, sink, POSITIONS, ours)
    let_go(sink)
    other = open_outputs(tmp_path)
    assert len(manifests(tmp_path)) == 1
    assert all(each.job.exists() for each in staged.values())
    write(other, batch(shard(), 0, 2))
    open_outputs(tmp_path)
    assert manifests(tmp_path) == []
    assert not any(each.job.exists() for each in staged.values())


def test_what_a_dead_process_left_in_a_former_epoch_is_swept_after_a_week(tmp_path, monkeypatch):
    """No batch of that epoch makes its manifest void; only who made it could let it stand."""
    left = left_open(tmp_path, monkeypatch, POSITIONS)
    open_outputs(tmp_path, sink__epoch="1")
    (manifest,) = manifests(tmp_path)
    assert all(job.exists() for job in left)
    wrote = manifest.stat().st_mtime
    for age_s, is_there in ((OLD_S - 60, True), (OLD_S + 60, False)):
        os.utime(manifest, (wrote, wrote - age_s))
        sink = open_outputs(tmp_path, sink__epoch="1")
        assert manifest.exists() is is_there
        assert [job.exists() for job in left] == [is_there] * len(left)
    later = replace(batch(shard(epoch="1"), 3, 7), after=None)
    sink.mark(later.shard)
    assert commit(sink, stage(sink, later), later) == ["stands"]
    assert rows(tmp_path) == [expected(s0=7)] * 2


def test_what_stands_waits_for_its_owner_however_old_it_is(tmp_path, monkeypatch):
    left = left_open(tmp_path, monkeypatch, "errors")
    (manifest,) = manifests(tmp_path)
    os.utime(manifest, (0, 0))
    open_outputs(tmp_path, sink__epoch="1")
    assert manifest.exists()
    assert all(job.exists() for job in left)
    assert open_outputs(tmp_path).mark(shard()) == at(7)
    assert rows(tmp_path) == [expected(s0=7)] * 2


def test_a_file_that_is_gone_is_named_and_nothing_is_skipped(tmp_path, monkeypatch):
    sink = open_outputs(tmp_path)
    ours = batch(shard(), 0, 6)
    sink.mark(shard())
    staged = crash(monkeypatch, tmp_path, sink, "errors", ours)
    shutil.rmtree(staged["errors"].job)
    with pytest.raises(BatchFailed, match="is gone, which belongs to a batch that other tables"):
        open_outputs(tmp_path).mark(shard())


def test_a_broken_manifest_is_named(tmp_path):
    sink = open_outputs(tmp_path)
    write(sink, batch(shard(), 0, 2))
    (tmp_path / MANIFESTS / "00aa.json").write_text("{}")
    with pytest.raises(SinkRefused, match=r"00aa\.json says which files belong to a batch"):
        open_outputs(tmp_path)


def test_rows_that_do_not_fit_one_table_leave_nothing_in_any(tmp_path):
    sink = open_outputs(tmp_path)
    write(sink, batch(shard(), 0, 2))
    ours = batch(shard(), 2, 4)
    odd = frame(ours, columns={"shard_id": "string", "n": "double"})
    with pytest.raises(BatchFailed, match="do not fit the table"):
        sink.write({"clicks": frame(ours), "errors": odd}, [ours])
    assert not list(tmp_path.glob("*/kcl-mld-*/job-2"))
    assert rows(tmp_path) == [expected(s0=2)] * 2


def test_an_output_that_was_left_out_for_a_while_is_refused(tmp_path):
    write(open_outputs(tmp_path), batch(shard(), 0, 2))
    write(open_outputs(tmp_path, sink__outputs="clicks"), batch(shard(), 2, 4), names=("clicks",))
    sink = open_outputs(tmp_path)
    sink._pause = lambda _: None
    with pytest.raises(
        SinkRefused, match=r"stands at \d+\.0, but at \d+\.0 in errors: a table was"
    ):
        sink.mark(shard())
    assert open_outputs(tmp_path, sink__outputs="clicks, late").mark(shard()) == at(4)


def test_a_batch_of_an_output_that_is_no_longer_named_is_rolled_forward(tmp_path, monkeypatch):
    sink = open_outputs(tmp_path)
    ours = batch(shard(), 0, 6)
    sink.mark(shard())
    crash(monkeypatch, tmp_path, sink, "errors", ours)
    assert open_outputs(tmp_path, sink__outputs="clicks").mark(shard()) == at(6)
    assert rows(tmp_path) == [expected(s0=6)] * 2


def test_one_table_and_several_do_not_share_a_directory(tmp_path):
    write(open_outputs(tmp_path / "several"), batch(shard(), 0, 2))
    one = make_sink(read_properties({"spark.sink.path": str(tmp_path / "several")}), "app")
    with pytest.raises(SinkRefused, match="above the tables of several outputs"):
        one.prepare(None)
    with pytest.raises(SinkRefused, match=r"is a Delta table: with spark\.sink\.outputs name"):
        open_outputs(tmp_path / "several" / "clicks")


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"spark.sink.path": "/x", "spark.sink.outputs": "a,A"}, "has a name twice"),
        ({"spark.sink.path": "/x", "spark.sink.outputs": "a/b"}, "'a/b' is no name of an output"),
        ({"spark.sink.path": "/x", "spark.sink.outputs": "_a"}, "begin with a letter"),
        ({"spark.sink.path": "/x", "spark.sink.outputs": "kcl-mld-x"}, "not with kcl-mld"),
    ],
)
def test_names_that_cannot_be_are_refused(properties, why):
    with pytest.raises(SparkConfigError, match=why):
        make_sink(read_properties(properties), "app")


KILLED = """
import os, signal, sys
from kcl_mld.spark.table.snapshot import Snapshot
from tests.unit.spark.table.test_outputs import batch, open_outputs, shard, stage

path, die_at = sys.argv[1], int(sys.argv[2])
sink = open_outputs(path)
real, commits = Snapshot.commit, []

def commit(self, *args):
    commits.append(1)
    if len(commits) == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
    real(self, *args)
    if len(commits) == die_at - 1 and die_at % 2:
        os.kill(os.getpid(), signal.SIGKILL)

Snapshot.commit = commit
begin = sink.mark(shard())
done = 0 if begin is None else begin.sequence - batch(shard(), 0, 1).to.sequence + 1
ours = batch(shard(), done, done + 5)
sink.commit_all(stage(sink, ours), [ours])
"""


def test_kill_9_between_two_commits_loses_and_doubles_nothing(tmp_path):
    """A real process, killed at each of its commits in turn; the next one goes on."""
    killed = 0
    for die_at in (1, 2, 3, 4, 2, 3, 9):
        argv = [sys.executable, "-c", KILLED, str(tmp_path), str(die_at)]
        killed += subprocess.run(argv, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert killed >= 5
    sink = open_outputs(tmp_path)
    end = sink.mark(shard())
    count = end.sequence - at(0).sequence
    assert count >= 10
    assert rows(tmp_path) == [expected(s0=count)] * 2
    assert os.listdir(tmp_path / MANIFESTS) == []


def left_open(path, monkeypatch, before):
    """A crash of epoch 0 in the batch (3, 7] of a shard, right before the commit to a table.

    Returns:
        the directories of its files.
    """
    sink = open_outputs(path)
    write(sink, batch(shard(), 0, 3))
    staged = crash(monkeypatch, path, sink, before, batch(shard(), 3, 7))
    let_go(sink)
    return [part.job for part in staged.values()]


def test_a_batch_of_an_older_epoch_that_one_table_lacks_has_to_be_finished_under_it(
    tmp_path, monkeypatch
):
    """Called again for its records, the function would add to a table that has them."""
    left_open(tmp_path, monkeypatch, "errors")
    new = open_outputs(tmp_path, sink__epoch="1")
    (name,) = [each.name for each in manifests(tmp_path)]
    with pytest.raises(SinkRefused, match=rf"spark\.sink\.epoch=0 .*{name}"):
        new.mark(shard(epoch="1"))
    assert new.mark(shard(1, epoch="1")) is None  # another shard
    assert rows(tmp_path) == [expected(s0=7), expected(s0=3)]
    assert open_outputs(tmp_path).mark(shard()) == at(7)  # started once more, as the error says
    assert new.mark(shard(epoch="1")) is None
    later = replace(batch(shard(epoch="1"), 7, 9), after=None)
    assert commit(new, stage(new, later), later) == ["stands"]
    assert rows(tmp_path) == [expected(s0=9)] * 2


def test_a_batch_of_an_older_epoch_that_no_table_has_is_no_obstacle(tmp_path, monkeypatch):
    left_open(tmp_path, monkeypatch, POSITIONS)
    assert len(manifests(tmp_path)) == 1
    assert open_outputs(tmp_path, sink__epoch="1").mark(shard(epoch="1")) is None


def test_who_does_not_want_a_batch_of_an_older_epoch_removes_its_manifest(tmp_path, monkeypatch):
    left_open(tmp_path, monkeypatch, "errors")
    new = open_outputs(tmp_path, sink__epoch="1")
    manifests(tmp_path)[0].unlink()
    assert new.mark(shard(epoch="1")) is None


def test_a_commit_that_is_given_up_once_it_is_decided_is_not_made_again_for_the_others(
    tmp_path, monkeypatch
):
    """A shard is lost between two tables, and the engine writes the other one's rows once more."""
    sink = open_outputs(tmp_path)
    both = [batch(shard(), 0, 3), batch(shard(1), 0, 2)]
    for each in both:
        sink.mark(each.shard)
    staged = stage(sink, *both)
    asked = []

    def lost_then():
        asked.append(1)
        if len(asked) > 1:
            raise GivenUp

    with monkeypatch.context() as patch:
        patch.setattr("kcl_mld.spark.table.marked_table.raise_if_abandoned", lost_then)
        with pytest.raises(BatchFailed, match="in some of its tables and not yet in all"):
            sink.commit_all(staged, both)
    sink.discard(staged)
    again = stage(sink, both[0])
    assert commit(sink, again, both[0]) == ["lost"]
    assert sink.mark(shard()) == at(3)
    assert rows(tmp_path) == [expected(s0=3, s1=2)] * 2
