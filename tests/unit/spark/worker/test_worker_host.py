"""What hosts leave behind, and how the next one cleans it up."""

import errno
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kcl_mld.spark.host_socket import HostPlace
from kcl_mld.spark.worker.worker_host import sweep, why_not_started


@pytest.fixture
def folder():
    """With a short path, as the path of a socket has to be."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def test_a_host_starts_without_the_packages_of_the_extra_so_that_it_can_name_them():
    missing = ("pyspark", "pyarrow", "pandas", "deltalake")
    program = f"import sys; sys.modules |= dict.fromkeys({missing}); import kcl_mld.spark.worker.worker_host"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def leave(directory, pid):
    """The files of a host that is gone."""
    place = HostPlace(str(directory), f"{pid}-0123456789abcdef", pid)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place.socket_path)
    with open(place.lock_path, "w"):
        pass
    return place


def dead_pid():
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


def test_files_of_dead_daemons_are_removed_and_others_stay(folder):
    leave(folder, dead_pid())
    living = leave(folder, os.getpid())
    (folder / "something.sock").touch()
    sweep(folder)
    assert {str(path) for path in folder.iterdir()} == {
        living.socket_path,
        living.lock_path,
        str(folder / "something.sock"),
    }


def test_a_host_that_still_listens_keeps_its_files_though_its_daemon_is_not_seen(folder):
    place = HostPlace(str(folder), f"{dead_pid()}-0123456789abcdef", 1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place.socket_path)
        listener.listen()
        sweep(folder)
    assert os.path.exists(place.socket_path)


def test_a_full_disk_at_the_start_is_told_with_its_directory(tmp_path):
    told = why_not_started(OSError(errno.ENOSPC, "No space left on device"), tmp_path)
    assert told.endswith(f"No space left on device; its files are in {tmp_path}, below TMPDIR")
    assert why_not_started(KeyError("x"), tmp_path).endswith("failed: KeyError: 'x'")
