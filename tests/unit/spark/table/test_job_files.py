"""The lock of a process's directory below a table."""

import errno
import fcntl
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from mld.spark.table import job_files
from mld.spark.table.job_files import JobFiles


def test_a_process_that_begins_is_never_taken_for_dead(tmp_path, monkeypatch):
    """Another one sweeps right before the lock is taken."""
    other, new = JobFiles(tmp_path), JobFiles(tmp_path)
    other.open()

    def flock(descriptor, how):
        monkeypatch.undo()
        other.sweep(frozenset)
        fcntl.flock(descriptor, how)

    seen = SimpleNamespace(flock=flock, LOCK_EX=fcntl.LOCK_EX, LOCK_NB=fcntl.LOCK_NB)
    monkeypatch.setattr(job_files, "fcntl", seen)
    new.open()
    job = new.new_job()
    other.sweep(frozenset)
    assert (job.parent / "pending-1").exists()
    os.close(new._lock)
    assert other.sweep(frozenset) == 1
    assert not job.parent.exists()
    os.close(other._lock)


def test_the_directories_that_spark_would_make_are_there_with_its_rights(tmp_path):
    files = JobFiles(tmp_path, lays_out=True)
    files.open()
    before = os.umask(0o077)
    try:
        job = files.new_job()
    finally:
        os.umask(before)
    assert (job / "_temporary" / "0" / "_temporary").is_dir()
    assert job.stat().st_mode & 0o777 == 0o755
    assert files.found(job, {}) == []
    files._directory.chmod(0o2755)  # a group that shares the table
    assert files.new_job().stat().st_mode & 0o7777 == 0o2755
    files.remove(job)
    assert not job.exists()
    os.close(files._lock)


def test_a_job_for_which_there_is_no_room_leaves_nothing_behind(tmp_path, monkeypatch):
    files = JobFiles(tmp_path, lays_out=True)
    files.open()
    make = Path.mkdir

    def full(path, *args, **more):
        if path.name == "_temporary":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        make(path, *args, **more)

    monkeypatch.setattr(Path, "mkdir", full)
    before = sorted(files._directory.iterdir())
    with pytest.raises(OSError, match="No space left"):
        files.new_job()
    assert sorted(files._directory.iterdir()) == before
    os.close(files._lock)
