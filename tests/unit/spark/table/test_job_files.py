"""A process's directory below a table: its lock, its files."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from deltalake import DeltaTable

from kcl_mld.spark.table import disk
from kcl_mld.spark.table.disk import JobFiles
from tests.unit.spark.table_kit import batch, frame, open_sink, shard, write


def test_a_process_that_begins_is_never_taken_for_dead(tmp_path, monkeypatch):
    """Another one sweeps right before the lock is taken."""
    other, new = JobFiles(tmp_path), JobFiles(tmp_path)
    other.open()

    def flock(descriptor, how):
        monkeypatch.undo()
        other.sweep(frozenset)
        fcntl.flock(descriptor, how)

    seen = SimpleNamespace(flock=flock, LOCK_EX=fcntl.LOCK_EX, LOCK_NB=fcntl.LOCK_NB)
    monkeypatch.setattr(disk, "fcntl", seen)
    new.open()
    job = new.new_job()
    other.sweep(frozenset)
    assert (job.parent / "pending-1").exists()
    os.close(new._lock)
    assert other.sweep(frozenset) == 1
    assert not job.parent.exists()
    os.close(other._lock)


def test_a_full_disk_is_told_and_leaves_nothing_behind(tmp_path, monkeypatch):
    sink = open_sink(tmp_path)
    one, two = batch(shard(), 0, 1), batch(shard(), 1, 3)
    assert write(sink, one) == ["stands"]
    before = sorted(tmp_path.rglob("*"))

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="the disk is full; nothing was committed"):
        sink.write(frame(two), [two])
    monkeypatch.undo()
    assert sorted(tmp_path.rglob("*")) == before
    assert write(sink, two) == ["stands"]
    os.close(sink._files._lock)


def test_files_have_the_names_of_their_values_in_any_locale(tmp_path):
    """Python would spell them as the locale has it, and other readers would look elsewhere."""
    program = (
        "import os, sys\n"
        "from tests.unit.spark.table_kit import *\n"
        "sink = open_sink(sys.argv[1], sink__partitionBy='shard_id')\n"
        "one = batch(shard(), 0, 1)\n"
        "sink.mark(shard())\n"
        "rows = Frame([{'shard_id': 'gr\\xf6\\u20ac', 'n': 1}])\n"
        "assert commit(sink, sink.write(rows, [one]), one) == ['stands']\n"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[4])
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True, env=environment)
    (file,) = DeltaTable(tmp_path).file_uris()
    assert Path(file).parent.name == "shard_id=grö€"
    assert Path(file).is_file()
