"""Where a host listens: names, rights, and the lock."""

import fcntl
import json
import os
import socket
import stat
import subprocess
import sys

import pytest

from kcl_mld.spark import host_socket
from kcl_mld.spark.host_socket import (
    HostPlace,
    attach,
    environ_of_host,
    locked,
    place_of,
    private_directory,
    start_time,
)


@pytest.fixture
def environ(tmp_path):
    return {"XDG_RUNTIME_DIR": str(tmp_path), "KCL_MLD_PID": str(os.getpid())}


def test_the_same_worker_and_app_meet_at_the_same_place(environ):
    first = place_of(environ, 1, ["python", "app.py", "x"])
    again = place_of(environ, 2, ["python", "app.py", "x"])
    assert first.socket_path == again.socket_path
    assert first.lock_path == again.lock_path
    assert first.daemon_pid == os.getpid()


@pytest.mark.parametrize(
    "words", [["python", "app.py"], ["python", "app.py", "y"], ["p", "a", "x"]]
)
def test_another_app_or_python_is_another_place(environ, words):
    place = place_of(environ, 1, ["python", "app.py", "x"])
    assert place_of(environ, 1, words).socket_path != place.socket_path


def test_a_host_keeps_little_free_memory_unless_the_user_has_tuned_it():
    given = {"KCL_SHARD_ID": "shardId-1", "PATH": "/bin"}
    assert environ_of_host(given) == {"PATH": "/bin", "MALLOC_ARENA_MAX": "2"}
    assert environ_of_host({"MALLOC_ARENA_MAX": "8"}) == {"MALLOC_ARENA_MAX": "8"}


def test_words_are_not_joined_to_the_same_thing(environ):
    assert place_of(environ, 1, ["a b"]).socket_path != place_of(environ, 1, ["a", "b"]).socket_path


def test_without_the_daemons_word_the_parent_is_the_daemon(environ):
    del environ["KCL_MLD_PID"]
    assert place_of(environ, 77, ["app.py"]).daemon_pid == 77
    environ["KCL_MLD_PID"] = "nonsense"
    assert place_of(environ, 78, ["app.py"]).daemon_pid == 78


def test_a_process_id_that_is_used_again_is_another_worker(environ, monkeypatch):
    first = place_of(environ, 1, ["app.py"]).socket_path
    monkeypatch.setattr(host_socket, "start_time", lambda pid: "another time")
    assert place_of(environ, 1, ["app.py"]).socket_path != first


def test_the_start_of_a_process_is_known_and_stays():
    with subprocess.Popen(["sleep", "60"]) as process:
        assert start_time(process.pid) == start_time(process.pid) != ""
        process.kill()
    assert start_time(process.pid) == ""


def test_the_directory_is_private(environ, tmp_path):
    path = private_directory(environ)
    assert path == str(tmp_path / f"kcl-mld-{os.getuid()}")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    assert private_directory(environ) == path


def test_a_directory_that_others_may_enter_is_not_used(environ, tmp_path):
    (tmp_path / f"kcl-mld-{os.getuid()}").mkdir(mode=0o755)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert private_directory(environ | {"TMPDIR": str(elsewhere)}).startswith(str(elsewhere))


def test_a_link_to_a_directory_is_not_used(environ, tmp_path):
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / f"kcl-mld-{os.getuid()}").symlink_to(tmp_path / "target")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert private_directory(environ | {"TMPDIR": str(elsewhere)}).startswith(str(elsewhere))


def test_a_path_that_is_too_long_for_a_socket_is_passed_over(environ, tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    found = place_of(environ | {"XDG_RUNTIME_DIR": str(deep)}, 1, ["app.py"])
    assert len(found.socket_path) <= 103
    assert not found.socket_path.startswith(str(deep))


def test_when_no_directory_is_private_it_is_said(environ, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    (tmp_path / "kcl-mld-4000000000").mkdir()
    with pytest.raises(PermissionError, match="kcl-mld-4000000000 must be a directory"):
        private_directory({"XDG_RUNTIME_DIR": str(tmp_path)}, longest=60)


def test_a_held_lock_is_seen_and_a_removed_file_is_not_it(tmp_path):
    path = str(tmp_path / "lock")
    with locked(path) as is_held:
        assert is_held
        with locked(path, blocking=False) as is_held_twice:
            assert not is_held_twice
        os.unlink(path)
        with locked(path, blocking=False) as is_held_anew:
            assert is_held_anew


def test_a_lock_that_was_removed_while_it_was_waited_for_is_taken_again(tmp_path, monkeypatch):
    path = str(tmp_path / "lock")
    flock = fcntl.flock
    removals = iter([True, False])

    def removed_meanwhile(descriptor, how):
        flock(descriptor, how)
        if next(removals):
            os.unlink(path)

    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    with locked(path) as is_held:
        assert is_held
        assert os.path.exists(path)


def test_a_running_host_is_found_and_gets_hello_and_descriptors(tmp_path):
    place = HostPlace(str(tmp_path), "it", 1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place.socket_path)
        listener.listen()
        with attach(place, ["never", "started"], b"hello\n", (0, 1, 2)):
            connection, _ = listener.accept()
            with connection:
                data, descriptors, _, _ = socket.recv_fds(connection, 100, 3)
    for descriptor in descriptors:
        os.close(descriptor)
    assert (data, len(descriptors)) == (b"hello\n", 3)


def test_a_stale_socket_is_replaced_and_the_host_gets_the_new_one(tmp_path, monkeypatch):
    monkeypatch.setenv("KCL_SHARD_ID", "shardId-000000000000")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    place = HostPlace(str(tmp_path), "it", 99)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(place.socket_path)
    (tmp_path / "a_host.py").write_text(
        "import json, os, socket, sys\n"
        "listener = socket.socket(fileno=int(sys.argv[2]))\n"
        "connection, _ = listener.accept()\n"
        "facts = [sys.argv[3:], os.getsid(0) == os.getpid(), 'KCL_SHARD_ID' in os.environ]\n"
        "connection.recv(100)\n"
        "connection.sendall(json.dumps(facts).encode())\n"
        "os._exit(0)\n"
    )
    command = [sys.executable, "-m", "a_host", "app.py"]
    with attach(place, command, b"hello\n", (2,)) as connection, connection.makefile() as file:
        found = file.read()
    expected = [["--daemon", "99", "--lock", place.lock_path, "app.py"], True, False]
    assert json.loads(found) == expected
