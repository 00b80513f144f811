"""What systemd is told, over a real socket."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid

import pytest

from kcl_mld.kernel.adapters.systemd import SystemdNotify


@pytest.fixture
def supervisor():
    """A socket that listens under an abstract address, and the variable that names it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        name = f"kcl-mld-{uuid.uuid4()}"
        sock.bind(f"\0{name}")
        sock.settimeout(0)
        yield sock, f"@{name}"


def heard(sock):
    found = []
    while True:
        try:
            found.append(sock.recv(1000).decode())
        except BlockingIOError:
            return found


async def until(fact):
    async with asyncio.timeout(60):
        while not fact():  # noqa: ASYNC110 - the time-out bounds it
            await asyncio.sleep(0.01)


def watched(notify, scene, *, alive=lambda: True):
    """Run a scene beside the notifier; it may set the worker's state."""

    async def main():
        state = {"now": "starting"}
        async with asyncio.TaskGroup() as group:
            running = group.create_task(notify.run(lambda: state["now"], alive))
            await scene(state)
            running.cancel()

    asyncio.run(main())


def test_the_life_of_a_worker(supervisor):
    sock, address = supervisor
    environ = {"NOTIFY_SOCKET": address, "HOME": "/"}
    said = []

    def told(what):
        said.extend(heard(sock))
        return said == what

    async def scene(state):
        await asyncio.sleep(0.3)
        assert heard(sock) == []
        state["now"] = "running"
        await until(lambda: told(["READY=1"]))
        state["now"] = "stopping"
        await until(lambda: told(["READY=1", "STOPPING=1"]))
        state["now"] = "stopped"
        await asyncio.sleep(0.3)
        assert told(["READY=1", "STOPPING=1"])

    notify = SystemdNotify(environ, os.getpid())
    assert environ == {"HOME": "/"}  # children get none of it
    watched(notify, scene)


def test_a_path_is_an_address_too(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        SystemdNotify({"NOTIFY_SOCKET": str(tmp_path / "notify")}, 1).send("READY=1")
        assert sock.recv(100) == b"READY=1"


def test_signs_of_life_come_only_while_the_loop_lives(supervisor):
    sock, address = supervisor
    lives = {"now": True}
    notify = SystemdNotify({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}, 7)
    assert notify.watchdog_s == 0.2

    async def scene(_state):
        beats = []
        await until(lambda: beats.extend(heard(sock)) or len(beats) >= 3)
        assert set(beats) == {"WATCHDOG=1"}
        lives["now"] = False
        await asyncio.sleep(0.1)
        heard(sock)
        await asyncio.sleep(0.5)
        assert heard(sock) == []
        lives["now"] = True
        await until(lambda: heard(sock))

    watched(notify, scene, alive=lambda: lives["now"])


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [
        ("30000000", "7", 30.0),
        ("30000000", "8", None),
        ("", "", None),
        ("0", "", None),
        ("x", "", None),
    ],
)
def test_the_watchdog_is_that_of_this_process(usec, pid, seconds):
    environ = {"WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}
    assert SystemdNotify(environ, 7).watchdog_s == seconds
    assert environ == {}


@pytest.mark.parametrize("address", ["", "vsock:2:1", "relative"])
def test_without_a_supervisor_nothing_is_sent(address, caplog):
    notify = SystemdNotify({"NOTIFY_SOCKET": address}, 7)
    notify.send("READY=1")
    asyncio.run(notify.run(lambda: "running", lambda: True))
    assert caplog.records == []


def test_a_supervisor_that_does_not_listen_is_a_warning(tmp_path, caplog):
    SystemdNotify({"NOTIFY_SOCKET": str(tmp_path / "gone")}, 7).send("READY=1")
    assert "Could not send READY=1 to systemd" in caplog.text
