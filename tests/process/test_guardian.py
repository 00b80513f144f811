"""The guardian against a daemon that is killed with SIGKILL, and children that resist."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kcl_mld.children.adapters.guardian import _SHORT_LIVES, Guardian

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

pytestmark = pytest.mark.process

#: After a kill -9 of the daemon. The design promises five seconds; a busy machine has more.
PROMISE_S = 60.0

#: A daemon with one child; prints the child's pid, the guardian's, and what the child says.
DAEMON = """
import asyncio, sys
from kcl_mld.children.adapters.child_process import ProcessLauncher
from kcl_mld.children.adapters.guardian import Guardian

async def main():
    guardian = Guardian()
    child = await ProcessLauncher(guardian).start([sys.executable, "-c", sys.argv[1]], {}, print)
    said = await child.read()
    print(child.pid, guardian.pid, said.decode().strip(), flush=True)
    await {then}

asyncio.run(main())
"""


def alive(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def within(seconds: float, fact: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def daemon(
    child: str, then: str = "asyncio.sleep(60)"
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A daemon with that child; gives the pids that it printed: child, guardian, and others."""
    code = DAEMON.replace("{then}", then)
    with subprocess.Popen(
        [sys.executable, "-c", code, child], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        try:
            yield process, pids
        finally:
            for pid in [process.pid, *pids]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


DEAF = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
SLEEP = "\nwhile True: time.sleep(60)"
CHILDREN = {
    "ends at end of file": "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()",
    "ignores end of file": "import os, time; print(os.getpid(), flush=True)" + SLEEP,
    "ignores end of file and SIGTERM": DEAF + "print(os.getpid(), flush=True)" + SLEEP,
    "forks": DEAF + "if os.fork() == 0: print(os.getpid(), flush=True)" + SLEEP,
    "forks into a group of its own": (
        DEAF + "if os.fork() == 0: os.setpgid(0, 0); print(os.getpid(), flush=True)" + SLEEP
    ),
    "forks and is gone": DEAF + "if os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)" + SLEEP,
}


@pytest.mark.parametrize("code", CHILDREN.values(), ids=CHILDREN.keys())
def test_nothing_is_left_in_a_childs_session_after_kill_9_of_the_daemon(code: str) -> None:
    with daemon(code) as (process, pids):
        process.kill()
        process.wait()
        assert within(PROMISE_S, lambda: not any(map(alive, pids)))


def test_a_child_that_forks_all_the_time_is_ended_as_well() -> None:
    code = (
        DEAF + "print(os.getpid(), flush=True)\n"
        "for _ in range(6000):\n"  # five minutes: it must not outlive a test that fails
        "    time.sleep(0.05)\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setpgid(0, 0)\n"
    )
    with daemon(code) as (process, pids):
        process.kill()
        process.wait()
        assert within(PROMISE_S, lambda: not alive(pids[1]))
        assert not any(session_members(pids[0]) for _ in range(5))


def session_members(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == session and fields[0] != b"Z":
                found.append(int(entry.name))
    return found


def ignores(pid: int, numbers: Sequence[signal.Signals]) -> bool:
    (line,) = re.findall(r"SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return all(int(line, 16) >> (number - 1) & 1 for number in numbers)


def test_the_guardian_is_deaf_to_the_signals_of_a_terminal_and_of_an_orchestrator() -> None:
    with daemon(CHILDREN["ignores end of file"]) as (process, (child, guardian, *_)):
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        # One that is killed while it starts is replaced, but not if its daemon is killed, too.
        assert within(PROMISE_S, lambda: ignores(guardian, numbers))
        for number in numbers:
            os.kill(guardian, number)
        process.kill()
        process.wait()
        assert within(PROMISE_S, lambda: not alive(child) and not alive(guardian))


def test_a_daemon_that_ends_by_itself_takes_its_guardian_along_at_once() -> None:
    ended = (
        "child.close_stdin(); await child.wait(); guardian.close(); assert guardian.wait(60) == 0"
    )
    with daemon(CHILDREN["ends at end of file"], ended) as (process, pids):
        assert process.wait(60) == 0
        assert not any(map(alive, pids))


def test_the_guardian_is_small() -> None:
    with daemon(CHILDREN["ends at end of file"]) as (_, (_, guardian, *_)):
        status = Path(f"/proc/{guardian}/status").read_text()
        (rss,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
        assert int(rss.split()[1]) < 12 * 1024


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], start_new_session=True)


def test_an_ended_guardian_is_started_again_and_knows_the_sessions_from_before() -> None:
    guardian = Guardian()
    with sleeper() as first, sleeper() as second:
        guardian.watch(first.pid)
        before = guardian.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        assert within(60, lambda: not alive(before))
        guardian.watch(second.pid)
        assert guardian.pid not in {None, before}
        guardian.close()
        assert guardian.wait(PROMISE_S) == 0
        assert (first.wait(60), second.wait(60)) == (-signal.SIGTERM, -signal.SIGTERM)


def test_an_ended_guardian_is_replaced_at_once_while_a_loop_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guardian = Guardian()

    async def until_replaced(before: int) -> int:
        os.kill(before, signal.SIGKILL)
        async with asyncio.timeout(60):
            while guardian.pid == before:  # noqa: ASYNC110 - the reader of the loop works
                await asyncio.sleep(0.01)
        assert guardian.pid is not None
        return guardian.pid

    async def scene(session: int) -> None:
        guardian.watch(session)
        assert guardian.pid is not None
        first = guardian.pid
        second = await until_replaced(first)
        third = await until_replaced(second)
        said = [record.getMessage() for record in caplog.records]
        text = "The guardian process {} ended (status -9); process {} takes its place"
        assert said == [text.format(first, second), text.format(second, third)]

    with sleeper() as child:
        asyncio.run(scene(child.pid))
        guardian.close()
        assert guardian.wait(PROMISE_S) == 0
        assert child.wait(60) == -signal.SIGTERM


def end_of(guardian: Guardian) -> int:
    """Kill the process; returns its id once it is dead, so that its pipes are closed."""
    pid = guardian.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert within(60, lambda: not alive(pid))
    return pid


@contextmanager
def one_session(python: str = sys.executable) -> Iterator[tuple[Guardian, int]]:
    """A guardian, and a session for it to watch; both are gone afterwards."""
    guardian = Guardian(python)
    with sleeper() as child:
        try:
            yield guardian, child.pid
        finally:
            guardian.close()
            guardian.wait(PROMISE_S)
            child.kill()


async def loop_notices(guardian: Guardian, _: int, dead: int) -> None:
    async with asyncio.timeout(60):
        while guardian.pid == dead:  # noqa: ASYNC110 - the reader of the loop works
            await asyncio.sleep(0.01)


async def next_child_notices(guardian: Guardian, session: int, _: int) -> None:
    guardian.watch(session)  # the loop had no turn since the end


def never_ending_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, each life is short and no rest ends."""
    monkeypatch.setattr("kcl_mld.children.adapters.guardian._SHORT_LIFE_S", 3600.0)
    monkeypatch.setattr("kcl_mld.children.adapters.guardian._REST_S", 3600.0)


def starts_after_the_first(caplog: pytest.LogCaptureFixture) -> int:
    return sum("takes its place" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "notices",
    [
        pytest.param(loop_notices, id="the event loop"),
        pytest.param(next_child_notices, id="the next child"),
    ],
)
def test_a_guardian_that_ends_all_the_time_is_not_started_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    notices: Callable[[Guardian, int, int], Awaitable[None]],
) -> None:
    never_ending_rest(monkeypatch)

    async def scene(guardian: Guardian, session: int) -> None:
        guardian.watch(session)
        for _ in range(_SHORT_LIVES + 1):
            await notices(guardian, session, end_of(guardian))
        for _ in range(5):
            guardian.watch(session)  # more children do not start it earlier
            await asyncio.sleep(0.01)
        assert guardian.pid is None

    with one_session() as (guardian, session):
        asyncio.run(scene(guardian, session))
        guardian.watch(session)  # nor does one without a loop
    assert starts_after_the_first(caplog) == _SHORT_LIVES


def test_a_guardian_that_ended_too_often_is_started_again_after_a_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never_ending_rest(monkeypatch)

    async def scene(guardian: Guardian, session: int) -> None:
        guardian.watch(session)
        for number in range(_SHORT_LIVES + 1):
            if number == _SHORT_LIVES:
                monkeypatch.setattr("kcl_mld.children.adapters.guardian._REST_S", 0.05)
            await loop_notices(guardian, session, end_of(guardian))
        async with asyncio.timeout(60):
            while guardian.pid is None:  # noqa: ASYNC110 - the timer of the loop works
                await asyncio.sleep(0.01)

    with one_session() as (guardian, session):
        asyncio.run(scene(guardian, session))
        # Without a loop the next child starts it, once the rest is over.
        end_of(guardian)
        assert within(60, lambda: guardian.watch(session) is None and guardian.pid is not None)


def test_a_guardian_that_cannot_be_started_is_tried_seldom_and_works_once_it_can(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    never_ending_rest(monkeypatch)
    python = tmp_path / "python"

    def appears() -> None:
        python.symlink_to(sys.executable)

    async def without(guardian: Guardian, session: int) -> None:
        for _ in range(_SHORT_LIVES + 1):
            guardian.watch(session)
        appears()
        guardian.watch(session)
        await asyncio.sleep(0.05)
        assert guardian.pid is None

    async def with_a_loop(guardian: Guardian, session: int) -> None:
        monkeypatch.setattr("kcl_mld.children.adapters.guardian._REST_S", 0.05)
        guardian.watch(session)
        appears()
        async with asyncio.timeout(60):
            while guardian.pid is None:  # noqa: ASYNC110 - the timer of the loop works
                await asyncio.sleep(0.01)

    with one_session(str(python)) as (guardian, session):
        asyncio.run(without(guardian, session))
    python.unlink()
    with one_session(str(python)) as (guardian, session):
        asyncio.run(with_a_loop(guardian, session))
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


def test_what_a_reaped_leader_left_behind_is_known_to_the_next_guardian() -> None:
    code = (
        "import os, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(60)"
    )
    guardian = Guardian()
    with sleeper() as unrelated:
        leader = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
        )
        guardian.watch(leader.pid)
        guardian.watch(unrelated.pid)
        guardian.forget(unrelated.pid)  # as if its number was given to a new leader
        assert leader.stdout is not None
        left = int(leader.stdout.readline())
        leader.wait()
        leader.stdout.close()
        guardian.forget(leader.pid)
        assert guardian.pid is not None
        os.kill(guardian.pid, signal.SIGKILL)
        guardian.wait(PROMISE_S)
        with sleeper() as other:
            guardian.watch(other.pid)
            guardian.close()
            assert guardian.wait(PROMISE_S) == 0
            assert within(PROMISE_S, lambda: not alive(left))
            assert unrelated.poll() is None
            unrelated.kill()


def test_the_memory_of_reaped_leaders_is_bounded() -> None:
    guardian = Guardian()
    with sleeper() as child:
        guardian.watch(child.pid)
        for number in range(4_000_000, 4_000_100):
            guardian._sessions[number] = None  # never signalled: no such session
            guardian.forget(number)
        assert list(guardian._forgotten) == list(range(4_000_036, 4_000_100))
        guardian.close()
        guardian.wait(PROMISE_S)
        child.kill()


def test_a_stopped_guardian_does_not_hold_up_the_daemon() -> None:
    guardian = Guardian()
    with sleeper() as first:
        guardian.watch(first.pid)
        pid = guardian.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        for _ in range(10_000):
            guardian.watch(first.pid)
        os.kill(pid, signal.SIGCONT)
        assert within(60, lambda: guardian.watch(first.pid) is None and guardian.pid == pid)
        assert first.poll() is None
        guardian.close()
        assert guardian.wait(PROMISE_S) == 0
        assert first.wait(60) == -signal.SIGTERM


def test_forgotten_sessions_are_left_alone_once_their_number_is_another_ones() -> None:
    guardian = Guardian()
    with sleeper() as unrelated, sleeper() as child:
        guardian.watch(child.pid)
        guardian.watch(unrelated.pid)
        guardian.forget(unrelated.pid)  # as if reaped, and the number given to a new leader
        guardian.forget(12345)  # never heard of
        guardian.close()
        assert guardian.wait(PROMISE_S) == 0
        assert child.wait(60) == -signal.SIGTERM
        assert unrelated.poll() is None
        unrelated.kill()


def test_without_a_guardian_the_daemon_goes_on_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guardian = Guardian("/no/such/python")
    guardian.watch(1)
    guardian.watch(2)
    guardian.forget(1)
    guardian.close()
    assert guardian.wait(0) == 0
    assert guardian.pid is None
    assert [r.levelname for r in caplog.records] == ["WARNING"]


def test_a_daemon_without_descriptors_left_goes_on_until_there_are_some(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    with one_session() as (guardian, session):
        with monkeypatch.context() as short:
            short.setattr(os, "pipe", none_left)
            guardian.watch(session)
            assert guardian.pid is None
        guardian.watch(session)
        assert guardian.pid is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
