"""A shard's pipes in the host, and the watch over the daemon."""

import os
import socket
import subprocess
import threading

import pytest

from kcl_mld.spark.worker.host_loop import DaemonWatch
from kcl_mld.spark.worker.host_stubs import ShardInput, ShardOutput


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    ends = {"read": reading, "write": writing}
    yield ends
    for descriptor in ends.values():
        os.close(descriptor)


@pytest.fixture
def connection():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def close(pipe, end):
    os.close(pipe.pop(end))


def test_lines_come_one_by_one_however_they_were_written(pipe, connection):
    stdin = ShardInput(pipe["read"], connection[0])
    os.write(pipe["write"], b"one\ntwo\nthr")
    assert stdin.readline() == b"one\n"
    assert stdin.readline() == b"two\n"
    os.write(pipe["write"], b"ee\n")
    assert stdin.readline() == b"three\n"


def test_a_long_line_is_put_together(pipe, connection):
    stdin = ShardInput(pipe["read"], connection[0])
    line = b"x" * 3_000_000 + b"\n"
    writer = threading.Thread(target=lambda: ShardOutput(pipe["write"]).write(line + b"next\n"))
    writer.start()
    assert stdin.readline() == line
    assert stdin.readline() == b"next\n"
    writer.join()


def test_the_end_of_the_daemons_pipe_is_the_end(pipe, connection):
    stdin = ShardInput(pipe["read"], connection[0])
    os.write(pipe["write"], b"last\nhalf")
    close(pipe, "write")
    assert [stdin.readline() for _ in range(3)] == [b"last\n", b"", b""]


def test_the_end_of_the_stub_is_the_end(pipe, connection):
    ours, theirs = connection
    stdin = ShardInput(pipe["read"], ours)
    theirs.close()
    assert stdin.readline() == b""
    os.write(pipe["write"], b"unheard\n")
    assert stdin.readline() == b""


def test_a_reader_that_waits_is_woken_by_our_own_shutdown(pipe, connection):
    stdin = ShardInput(pipe["read"], connection[0])
    found = []
    reader = threading.Thread(target=lambda: found.append(stdin.readline()))
    reader.start()
    connection[0].shutdown(socket.SHUT_RD)
    reader.join(120)
    assert found == [b""]


def test_nothing_is_written_once_nobody_listens(pipe):
    stdout = ShardOutput(pipe["write"])
    assert stdout.write(b"one\n") == 4
    stdout.flush()
    stdout.close()
    with pytest.raises(BrokenPipeError, match="stub of the shard is gone"):
        stdout.write(b"two\n")
    close(pipe, "write")
    assert os.read(pipe["read"], 100) == b"one\n"


@pytest.fixture(params=["by descriptor", "by asking"])
def watch(request, monkeypatch):
    """Makes a watch; its descriptor is closed afterwards."""
    if request.param == "by asking":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    made = []

    def make(pid):
        made.append(DaemonWatch(pid))
        return made[-1]

    yield make
    for one in made:
        if one.descriptor is not None:
            os.close(one.descriptor)


def test_the_end_of_the_daemon_is_noticed_even_while_it_is_a_zombie(watch):
    with subprocess.Popen(["sleep", "60"]) as process:
        daemon = watch(process.pid)
        assert not daemon.has_ended()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert daemon.has_ended()
    assert daemon.has_ended()


def test_a_daemon_that_had_ended_before_is_noticed(watch):
    with subprocess.Popen(["true"]) as process:
        pass
    assert watch(process.pid).has_ended()


def test_a_daemon_of_another_user_lives(watch):
    assert not watch(1).has_ended()


def test_a_process_that_may_not_be_signalled_lives(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    monkeypatch.setattr(os, "kill", refuse)
    assert not DaemonWatch(os.getpid()).has_ended()
