"""What hosts leave behind, and how the next one cleans it up."""

import os
import socket
import subprocess

from mld.spark.host_socket import HostPlace
from mld.spark.worker.worker_host import sweep


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


def test_files_of_dead_daemons_are_removed_and_others_stay(tmp_path):
    leave(tmp_path, dead_pid())
    living = leave(tmp_path, os.getpid())
    (tmp_path / "something.sock").touch()
    sweep(tmp_path)
    assert {str(path) for path in tmp_path.iterdir()} == {
        living.socket_path,
        living.lock_path,
        str(tmp_path / "something.sock"),
    }


def test_a_host_that_still_listens_keeps_its_files_though_its_daemon_is_not_seen(tmp_path):
    place = HostPlace(str(tmp_path), f"{dead_pid()}-0123456789abcdef", 1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place.socket_path)
        listener.listen()
        sweep(tmp_path)
    assert os.path.exists(place.socket_path)
