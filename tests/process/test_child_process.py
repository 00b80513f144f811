"""The child launcher against real children, most of them nasty."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kcl_mld.children.adapters import child_process
from kcl_mld.children.adapters.child_process import (
    ChildProcess,
    ProcessLauncher,
    raise_descriptor_limit,
)
from kcl_mld.children.adapters.kclpy_path import SHIM
from kcl_mld.config.config import Kclpy

pytestmark = pytest.mark.process

Scene = Callable[[ChildProcess, list[bytes]], Awaitable[None]]


class NotedSessions:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.forgotten = asyncio.Event()

    def watch(self, session_id: int) -> None:
        self.said.append(f"+{session_id}")

    def forget(self, session_id: int) -> None:
        self.said.append(f"-{session_id}")
        self.forgotten.set()


def play(code: str, scene: Scene, keeper: NotedSessions | None = None) -> list[bytes]:
    """Run a Python child and the scene with it; returns its stderr lines."""
    lines: list[bytes] = []

    async def run() -> None:
        launcher = ProcessLauncher(keeper)
        child = await launcher.start([sys.executable, "-c", code], {}, lines.append)
        try:
            async with asyncio.timeout(120):
                await scene(child, lines)
        finally:
            child.kill()
            await child.wait()

    asyncio.run(run())
    return lines


async def read_all(child: ChildProcess) -> bytes:
    parts = []
    while data := await child.read():
        parts.append(data)
    return b"".join(parts)


async def read_line(child: ChildProcess) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        data = await child.read()
        assert data, "the child ended its stdout"
        line += data
    return line.strip()


async def until(fact: Callable[[], bool]) -> None:
    """Give way until it is true; the time-out of the scene bounds it."""
    while not fact():  # noqa: ASYNC110 - other processes and callbacks make it true
        await asyncio.sleep(0.001)


def is_gone(pid: int) -> bool:
    """Whether no process has this id any more (a zombie counts as gone)."""
    try:
        return b") Z " in Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True


ECHO = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); sys.stdout.flush()"


def test_a_child_answers_and_ends_at_end_of_file() -> None:
    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        await child.write(b"one\n")
        assert await read_line(child) == b"one"
        await child.close_stdin()
        await child.close_stdin()
        assert await read_all(child) == b""
        assert await child.read() == b""
        assert await child.wait() == 0

    play(ECHO, scene)


def test_a_line_of_many_megabytes_passes_both_ways_at_once() -> None:
    line = b"x" * 20_000_000 + b"\n"

    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        async with asyncio.TaskGroup() as tasks:
            answer = tasks.create_task(read_all(child))
            await child.write(line)
            await child.close_stdin()
        assert answer.result() == line

    play(ECHO, scene)


def test_the_loop_is_free_while_a_full_pipe_waits_for_a_child_that_does_not_read() -> None:
    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await child.write(b"x" * 5_000_000)

    play("import time; time.sleep(60)", scene)


def test_writing_to_a_child_that_died_is_a_broken_pipe() -> None:
    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        with pytest.raises(BrokenPipeError):
            await child.write(b"x" * 50_000_000)
        assert await child.wait() == 7

    play("import sys; sys.stdin.buffer.read(100); sys.exit(7)", scene)


def test_closing_stdin_wakes_a_writer_that_waits() -> None:
    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        async def write_and_close() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(child.write(b"x" * 5_000_000))
                tasks.create_task(child.close_stdin())

        with pytest.raises(BaseExceptionGroup) as caught:
            await write_and_close()
        assert caught.group_contains(BrokenPipeError)

    play("import time; time.sleep(60)", scene)


def test_a_child_that_closes_its_stdout_but_lives_is_at_its_end_of_file() -> None:
    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        assert await read_all(child) == b"bye"
        child.terminate()
        assert await child.wait() == -signal.SIGTERM

    play("import os,time; os.write(1, b'bye'); os.close(1); time.sleep(60)", scene)


def test_the_exit_status_is_known_to_all_who_wait_and_later() -> None:
    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        async with asyncio.TaskGroup() as tasks:
            waits = [tasks.create_task(child.wait()) for _ in range(3)]
        assert [w.result() for w in waits] == [3, 3, 3]
        assert await child.wait() == 3
        child.terminate()
        child.kill()

    play("raise SystemExit(3)", scene)


def test_one_waiter_can_be_cancelled_without_harm_to_the_others() -> None:
    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await child.wait()
        await child.close_stdin()
        assert await child.wait() == 0

    play(ECHO, scene)


def test_a_cancelled_read_loses_nothing() -> None:
    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await child.read()
        await child.write(b"later\n")
        assert await read_line(child) == b"later"

    play(ECHO, scene)


def test_two_readers_are_refused() -> None:
    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        async def read_twice() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(child.read())
                tasks.create_task(child.read())

        with pytest.raises(BaseExceptionGroup) as caught:
            await read_twice()
        assert caught.group_contains(RuntimeError, match="reader already")

    play(ECHO, scene)


def test_stderr_is_read_from_birth_in_lines_and_the_last_one_needs_no_end() -> None:
    code = r"import sys; sys.stderr.buffer.write(b'one\ntwo\r\n\n\xff' + b'y' * 10)"

    async def scene(child: ChildProcess, lines: list[bytes]) -> None:
        assert await child.wait() == 0
        assert len(lines) == 4  # none comes after the exit

    assert play(code, scene) == [b"one", b"two", b"", b"\xff" + b"y" * 10]


def test_an_endless_stderr_line_comes_in_pieces() -> None:
    code = "import sys; sys.stderr.write('z' * 300_000)"

    async def scene(child: ChildProcess, lines: list[bytes]) -> None:
        assert await read_all(child) == b""
        await until(lambda: sum(map(len, lines)) == 300_000)

    lines = play(code, scene)
    assert b"".join(lines) == b"z" * 300_000
    assert max(map(len, lines)) == 65_536


def test_a_child_that_floods_stderr_neither_blocks_nor_starves_the_loop() -> None:
    code = (
        "import sys, threading\n"
        "def flood():\n"
        "    while True: sys.stderr.buffer.write(b'spam\\n' * 1000); sys.stderr.buffer.flush()\n"
        "threading.Thread(target=flood, daemon=True).start()\n" + ECHO
    )

    async def scene(child: ChildProcess, lines: list[bytes]) -> None:
        for number in range(50):
            await child.write(b"%d\n" % number)
            assert await read_line(child) == b"%d" % number
        assert set(lines) <= {b"spam"}
        await child.close_stdin()
        assert await child.wait() in {0, -signal.SIGABRT}

    assert play(code, scene)


def test_a_child_that_floods_stdout_is_read_at_the_readers_pace() -> None:
    code = "import sys\nwhile True: sys.stdout.buffer.write(b'spam\\n' * 10000)"

    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        for _turn in range(200):
            assert len(await child.read()) <= 2**17

    play(code, scene)


def test_a_child_deaf_to_end_of_file_and_sigterm_is_killed() -> None:
    code = (
        "import signal, time, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )

    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        assert await read_line(child) == b"ready"
        await child.close_stdin()
        child.terminate()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await child.wait()
        child.kill()
        assert await child.wait() == -signal.SIGKILL

    play(code, scene)


FORKS = (
    "import os, signal, sys, time\n"
    "if os.fork() == 0:\n"
    "    {deaf}\n"
    "    print(os.getpid(), flush=True)\n"
    "    time.sleep(60)\n"
    "sys.stdin.read()\n"
)


def test_terminate_reaches_the_children_of_the_child() -> None:
    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        grandchild = int(await read_line(child))
        child.terminate()
        assert await child.wait() == -signal.SIGTERM
        await until(lambda: is_gone(grandchild))
        assert await child.read() == b""

    play(FORKS.format(deaf="pass"), scene)


def test_what_an_ended_child_leaves_behind_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "LEFTOVER_TERM_S", 0.05)
    monkeypatch.setattr(child_process, "LEFTOVER_KILL_S", 0.2)
    monkeypatch.setattr(child_process, "GIVE_UP_PIPES_S", 0.4)

    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        grandchild = int(await read_line(child))
        await child.close_stdin()
        assert await child.wait() == 0
        await until(lambda: is_gone(grandchild))
        assert await child.read() == b""

    play(FORKS.format(deaf="signal.signal(signal.SIGTERM, signal.SIG_IGN)"), scene)


def test_a_pipe_held_open_by_an_escaped_process_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_process, "LEFTOVER_TERM_S", 0.1)

    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        escaped = int(await read_line(child))
        try:
            await child.close_stdin()
            assert await child.wait() == 0
            assert await child.read() == b""
        finally:
            os.kill(escaped, signal.SIGKILL)

    play(FORKS.format(deaf="os.setsid()"), scene)


def test_a_child_leads_a_session_of_its_own() -> None:
    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        said = await read_all(child)
        assert said.split() == [b"%d" % child.pid] * 3
        assert os.getsid(0) != child.pid

    play("import os; print(os.getpid(), os.getpgid(0), os.getsid(0))", scene)


def test_the_keeper_of_sessions_hears_of_birth_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "LEFTOVER_TERM_S", 0.0)
    keeper = NotedSessions()

    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        assert keeper.said == [f"+{child.pid}"]
        await child.close_stdin()
        await child.wait()
        await keeper.forgotten.wait()
        assert keeper.said == [f"+{child.pid}", f"-{child.pid}"]

    play(ECHO, scene, keeper)


def test_without_process_descriptors_the_exit_is_noticed_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: int) -> int:
        raise OSError("not here")

    monkeypatch.setattr(os, "pidfd_open", refuse)

    async def scene(child: ChildProcess, _: list[bytes]) -> None:
        await child.close_stdin()
        assert await child.wait() == 0

    play(ECHO, scene)


@pytest.mark.parametrize(
    "argv", [["/no/such/program"], ["no-such-program-anywhere"], ["/etc/passwd"], ["a\0b"], [""]]
)
def test_a_program_that_cannot_start_is_an_os_error_and_leaks_nothing(argv: list[str]) -> None:
    before = os.listdir("/proc/self/fd")

    async def run() -> None:
        with pytest.raises(OSError, match=r"No such file|denied|null byte"):
            await ProcessLauncher().start(argv, {}, lambda _: None)

    asyncio.run(run())
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_ended_children_leave_no_descriptor_and_no_zombie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "LEFTOVER_TERM_S", 0.0)

    async def run() -> list[int]:
        keeper = NotedSessions()
        pids = []
        for _ in range(5):
            keeper.forgotten.clear()
            child = await ProcessLauncher(keeper).start([sys.executable, "-c", ""], {}, print)
            pids.append(child.pid)
            await keeper.forgotten.wait()
        assert len(os.listdir("/proc/self/fd")) <= before
        return pids

    async def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = asyncio.run(open_files())
    for pid in asyncio.run(run()):
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("inherited", "given", "expected"),
    [
        (None, {}, [str(SHIM)]),
        ("", {}, [str(SHIM)]),
        ("/a", {}, ["/a", str(SHIM)]),
        ("/a", {"PYTHONPATH": "/b:/c"}, ["/b", "/c", str(SHIM)]),
    ],
)
def test_the_shim_folder_comes_last_on_pythonpath(
    monkeypatch: pytest.MonkeyPatch,
    inherited: str | None,
    given: dict[str, str],
    expected: list[str],
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if inherited is not None:
        monkeypatch.setenv("PYTHONPATH", inherited)

    async def run() -> None:
        code = "import os; print(os.environ['PYTHONPATH'])"
        child = await ProcessLauncher().start([sys.executable, "-c", code], given, print)
        said = await read_all(child)
        assert said.decode().strip().split(":") == expected
        await child.wait()

    asyncio.run(run())


def test_given_variables_override_inherited_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLD_A", "inherited")
    monkeypatch.setenv("MLD_B", "inherited")

    async def run() -> None:
        code = "import os; print(os.environ['MLD_A'], os.environ['MLD_B'])"
        child = await ProcessLauncher(kclpy=Kclpy.INSTALLED).start(
            [sys.executable, "-c", code], {"MLD_B": "given"}, print
        )
        assert await read_all(child) == b"inherited given\n"
        await child.wait()

    asyncio.run(run())


def test_the_descriptor_limit_is_raised_as_far_as_children_can_bear() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    bearable = min(hard, child_process.DESCRIPTORS)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert raise_descriptor_limit() == bearable
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (bearable, hard)
        assert raise_descriptor_limit() == bearable
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
