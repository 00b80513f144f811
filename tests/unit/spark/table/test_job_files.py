"""The lock of a process's directory below a table."""

import fcntl
import os
from types import SimpleNamespace

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
