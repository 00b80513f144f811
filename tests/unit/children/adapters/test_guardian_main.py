"""Which processes the guardian believes to be its own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from kcl_mld.children.adapters import guardian_main
from kcl_mld.children.adapters.guardian_main import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator


class World:
    """Processes as (pid, session), and the signals that they got."""

    def __init__(self, *processes: tuple[int, int]) -> None:
        self.processes = list(processes)
        self.looks = 0
        self.immortal: set[int] = set()
        self.deaf: set[int] = set()
        self.signals: list[tuple[int, int]] = []
        self.now = 0.0

    def members(self, sessions: set[int]) -> list[tuple[int, int]]:
        self.looks += 1
        return [(pid, session) for pid, session in self.processes if session in sessions]

    def kill(self, pid: int, number: int) -> None:
        self.signals.append((pid, number))
        if pid in self.immortal:
            raise PermissionError
        if number == signal.SIGKILL or pid not in self.deaf:
            self.processes = [(p, s) for p, s in self.processes if p != pid]

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(guardian_main, "members", world.members)
    monkeypatch.setattr(os, "kill", world.kill)
    monkeypatch.setattr(guardian_main.time, "monotonic", lambda: world.now)
    monkeypatch.setattr(guardian_main.time, "sleep", world.sleep)
    return world


def watching(*lines: bytes) -> Watch:
    watch = Watch()
    for line in lines:
        watch.obey(line)
    return watch


def test_all_members_of_a_live_session_are_ours(world: World) -> None:
    world.processes = [(10, 10), (11, 10), (99, 99)]
    assert watching(b"+10").left() == [10, 11]


def test_members_that_outlive_their_leader_are_ours(world: World) -> None:
    world.processes = [(11, 10)]
    assert watching(b"+10", b"-10").left() == [11]


def test_a_new_leader_with_the_number_of_a_reaped_one_is_not_ours(world: World) -> None:
    watch = watching(b"+10", b"-10")
    world.processes = [(10, 10), (11, 10)]
    assert watch.left() == []
    world.processes = [(11, 10)]
    assert watch.left() == []


def test_a_number_that_is_ours_again_is_watched_again(world: World) -> None:
    world.processes = [(10, 10)]
    assert watching(b"+10", b"-10", b"+10").left() == [10]


@pytest.mark.parametrize("line", [b"", b"+", b"-", b"x", b"+x", b"10", b"*10", b"-10", b"+ 10"])
def test_what_is_no_message_changes_nothing(world: World, line: bytes) -> None:
    world.processes = [(10, 10)]
    assert watching(line).left() == []


def test_ended_sessions_do_not_pile_up(world: World) -> None:
    watch = Watch()
    for session in range(100, 1100):
        watch.obey(b"+%d" % session)
        watch.obey(b"-%d" % session)
    assert len(watch.orphaned) < guardian_main.TIDY_AT
    assert world.looks < 40


def test_children_that_end_by_themselves_get_no_signal(world: World) -> None:
    guardian_main.end(watching(b"+10"))
    assert (world.signals, world.now) == ([], 0.0)


def test_others_are_asked_first_and_killed_when_they_are_deaf(world: World) -> None:
    world.processes, world.deaf = [(10, 10), (11, 10)], {11}
    guardian_main.end(watching(b"+10"))
    assert world.signals == [(10, signal.SIGTERM), (11, signal.SIGTERM), (11, signal.SIGKILL)]
    assert world.now < 5.0


def test_a_process_that_is_not_ours_to_signal_does_not_keep_the_guardian(world: World) -> None:
    world.processes, world.immortal = [(10, 10)], {10}
    guardian_main.end(watching(b"+10"))
    assert set(world.signals) == {(10, signal.SIGTERM), (10, signal.SIGKILL)}
    assert world.now < 5.0


def test_one_empty_look_is_not_believed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.processes, world.deaf = [(10, 10)], {10}
    seen = world.members

    rng = random.Random(1)

    def miss_some(sessions: set[int]) -> list[tuple[int, int]]:
        found = seen(sessions)
        return found if rng.random() < 0.8 else []

    monkeypatch.setattr(guardian_main, "members", miss_some)
    guardian_main.end(watching(b"+10"))
    assert world.processes == []


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


def test_members_are_found_in_proc(sleeper: subprocess.Popen[bytes]) -> None:
    assert list(guardian_main.members({sleeper.pid})) == [(sleeper.pid, sleeper.pid)]


def test_without_proc_the_process_group_stands_for_the_session(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(os, "listdir", refuse)
    assert list(guardian_main.members({sleeper.pid, 2**22 - 1})) == [(-sleeper.pid, sleeper.pid)]
