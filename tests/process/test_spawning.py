"""Programs started by the C library are what ``subprocess`` would have started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from kcl_mld.children.adapters import child_process, spawning
from kcl_mld.children.adapters.child_process import ProcessLauncher
from kcl_mld.children.adapters.spawning import Spawned, Started, start_program
from kcl_mld.errors import ThreadRefused
from kcl_mld.kernel.adapters import calls
from kcl_mld.kernel.adapters.calls import CallPool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

pytestmark = pytest.mark.process

IGNORED = """\
import os, signal
names = [one.name for one in signal.Signals if signal.getsignal(one) == signal.SIG_IGN]
print(names, os.getsid(0) == os.getpid(), sorted(os.listdir("/proc/self/fd")), flush=True)
"""
BLOCKED = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), flush=True)"


@pytest.fixture(params=["posix_spawn", "subprocess"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How programs are started."""
    name: str = request.param
    if name == "subprocess":
        monkeypatch.setattr(spawning, "_library", lambda: None)
    elif spawning._library() is None:
        pytest.skip("this C library can't close the descriptors of a new process")
    return name


@contextlib.contextmanager
def pipes() -> Iterator[tuple[tuple[int, int, int], int]]:
    """A child's descriptors and the end from which its output is read."""
    nothing = os.open(os.devnull, os.O_RDWR)
    output, theirs = os.pipe()
    try:
        yield (nothing, theirs, nothing), output
    finally:
        for one in (nothing, output, theirs):
            with contextlib.suppress(OSError):
                os.close(one)


def ended(process: Started) -> int:
    """Exit status."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    status = process.poll()
    assert status is not None
    return status


def said_by(argv: Sequence[str], environment: Mapping[bytes, bytes] | None = None) -> str:
    """Output of a program that ends well."""
    variables = dict(os.environb) if environment is None else environment
    with pipes() as (theirs, output):
        process = start_program(argv, theirs, variables)
        assert isinstance(process, Spawned) is (spawning._library() is not None)
        os.close(theirs[1])
        with os.fdopen(os.dup(output), "rb") as reader:
            said = reader.read().decode()
        assert ended(process) == 0
        assert process.poll() == 0
    return said


def test_a_child_has_a_session_default_signals_and_no_other_descriptor(way: str) -> None:
    assert way
    extra = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(extra, True)
    try:
        said = said_by([sys.executable, "-S", "-c", IGNORED])
    finally:
        os.close(extra)
    # Python itself ignores SIGPIPE and SIGXFSZ when it starts; 3 is the listing.
    assert said.strip() == "['SIGPIPE', 'SIGXFSZ'] True ['0', '1', '2', '3']"


def test_a_child_dies_of_a_broken_pipe_as_usual(way: str) -> None:
    assert way
    with pipes() as (theirs, _):
        process = start_program(["/bin/sh", "-c", "kill -PIPE $$"], theirs, dict(os.environb))
        assert ended(process) == -signal.SIGPIPE


def test_no_signal_is_blocked_in_a_child(way: str) -> None:
    assert way
    assert said_by([sys.executable, "-S", "-c", BLOCKED]).strip() == "[]"


def test_a_program_is_found_by_the_path_of_its_own_environment(way: str, tmp_path: Path) -> None:
    assert way
    refused, found = tmp_path / "a", tmp_path / "b"
    for folder, mode in ((refused, stat.S_IRUSR), (found, stat.S_IRWXU)):
        folder.mkdir()
        program = folder / "my-child"
        program.write_text("#!/bin/sh\necho $0 $1 $NAME\n")
        program.chmod(mode)
    path = f"/no/such:{refused}:{found}".encode()
    said = said_by(["my-child", "argument"], {b"PATH": path, b"NAME": b"a=b"})
    assert said == f"{found}/my-child argument a=b\n"


@pytest.mark.parametrize(
    ("program", "path", "error"),
    [
        ("/no/such/program", "/bin", FileNotFoundError),
        ("no-such-program", "/bin:/usr/bin", FileNotFoundError),
        ("no-x-bit", "{}:/bin", PermissionError),
        ("./folder/x", "/bin", FileNotFoundError),
        ("/etc/passwd/x", "/bin", NotADirectoryError),
    ],
)
def test_the_error_is_that_of_subprocess(
    way: str, tmp_path: Path, program: str, path: str, error: type[OSError]
) -> None:
    assert way
    (tmp_path / "no-x-bit").write_text("#!/bin/sh\n")
    environment = {b"PATH": path.format(tmp_path).encode()}
    with pipes() as (theirs, _), pytest.raises(error) as raised:
        start_program([program], theirs, environment)
    assert raised.value.filename == program


@pytest.mark.parametrize(("argument", "variable"), [("a\0b", b"x"), ("a", b"x\0y")])
def test_a_nul_byte_is_an_error(way: str, argument: str, variable: bytes) -> None:
    assert way
    with pipes() as (theirs, _), pytest.raises(ValueError, match="null byte"):
        start_program(["/bin/echo", argument], theirs, {b"NAME": variable})


def test_a_file_without_an_interpreter_is_run_by_the_shell(way: str, tmp_path: Path) -> None:
    assert way
    program = tmp_path / "child"
    program.write_text("echo from the shell\n")
    program.chmod(0o755)

    async def run() -> bytes:
        child = await ProcessLauncher().start([str(program)], {}, lambda _line: None)
        said = await child.read()
        assert await child.wait() == 0
        return said

    assert asyncio.run(run()) == b"from the shell\n"


def test_descriptors_that_would_overwrite_each_other_are_left_to_subprocess() -> None:
    with pipes() as (theirs, _):
        process = start_program(["/bin/true"], (0, theirs[1], 2), dict(os.environb))
        assert not isinstance(process, Spawned)
        assert ended(process) == 0


def test_a_child_that_the_kernel_reaped_counts_as_ended() -> None:
    usual = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pipes() as (theirs, _):
            process = start_program(["/bin/sh", "-c", "exit 3"], theirs, dict(os.environb))
            assert ended(process) == 0
    finally:
        signal.signal(signal.SIGCHLD, usual)


class HeldUp:
    """Starts of programs that wait until they are let go, after the program has started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.started: list[Started] = []
        monkeypatch.setattr(child_process, "start_program", self._start)

    def _start(
        self, argv: Sequence[str], pipes: tuple[int, int, int], environment: Mapping[bytes, bytes]
    ) -> Started:
        process = start_program(argv, pipes, environment)
        self.started.append(process)
        assert self.go.wait(30)
        return process


class Sessions:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.forgotten = asyncio.Event()

    def watch(self, session_id: int) -> None:
        self.said.append(f"+{session_id}")

    def forget(self, session_id: int) -> None:
        self.said.append(f"-{session_id}")
        self.forgotten.set()


def test_the_loop_goes_on_while_a_program_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    held_up = HeldUp(monkeypatch)

    async def run() -> None:
        starting = asyncio.create_task(ProcessLauncher().start(["/bin/cat"], {}, lambda _: None))
        while not held_up.started:  # noqa: ASYNC110 - a thread makes it true
            await asyncio.sleep(0.001)
        held_up.go.set()
        child = await starting
        assert child.pid == held_up.started[0].pid
        await child.close_stdin()
        assert await child.wait() == 0

    asyncio.run(run())


def test_a_program_starts_although_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ThreadRefused("starts")

    monkeypatch.setattr(child_process, "_STARTS", CallPool("starts", 1))
    monkeypatch.setattr(calls, "start_thread", refuse)

    async def run() -> None:
        child = await ProcessLauncher().start(["/bin/echo", "said"], {}, lambda _line: None)
        assert await child.read() == b"said\n"
        assert await child.wait() == 0

    asyncio.run(run())


def test_a_start_that_is_cancelled_leaves_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    held_up = HeldUp(monkeypatch)

    async def run() -> None:
        sessions = Sessions()
        launcher = ProcessLauncher(sessions)
        starting = asyncio.create_task(launcher.start(["/bin/cat"], {}, lambda _: None))
        while not held_up.started:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        starting.cancel()
        await asyncio.sleep(0)
        starting.cancel()  # once more while it waits for the program
        await asyncio.sleep(0)
        held_up.go.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await asyncio.wait_for(sessions.forgotten.wait(), 30)
        pid = held_up.started[0].pid
        assert sessions.said == [f"+{pid}", f"-{pid}"]
        assert held_up.started[0].poll() == -signal.SIGKILL

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(run())
    assert len(os.listdir("/proc/self/fd")) <= before
