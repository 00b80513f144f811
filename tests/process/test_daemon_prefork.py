"""Daemons whose children come from a template, while templates, children and daemons are killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.process.daemon import alive, journals, wait_until
from tests.process.test_daemon_guardian import DEAF, PROMISE_S
from tests.process.test_daemon_life import journaling, library, seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="templates are for Linux"),
]


def children_of(parent: int) -> list[int]:
    """Living processes that a process started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            owner = (path / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(owner) == parent and alive(int(path.name)):
            found.append(int(path.name))
    return found


def templates(daemon: int) -> list[int]:
    """Living templates of a daemon."""
    found = []
    for pid in children_of(daemon):
        with contextlib.suppress(OSError):  # it ended in between
            if b"template_main.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


@pytest.mark.parametrize("kind", ["real", "shim"])
def test_a_daemon_forks_its_children_and_stops_as_ever(
    new_app: Callable[..., Application], kind: str
) -> None:
    app = new_app(shards=3, childPrefork="true")
    put = app.put(60)
    run = app.start(executable=journaling("3"), environment=library(kind))
    wait_until(lambda: len(seen(run)) >= 60, "every record")
    (template,) = templates(run.pid)
    assert set(journals(run)) == set(children_of(template))
    assert sorted(seen(run)) == sorted(put)
    assert run.stop() == 0, run.output
    assert run.output.count("exited with status 0") == 3
    assert "starts as usual" not in run.output
    assert not alive(template)
    shards = {entry["shard"] for journal in journals(run).values() for entry in journal[:1]}
    assert len(shards) == 3


def test_no_record_is_lost_while_templates_and_children_are_killed(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(
        shards=3,
        childPrefork="true",
        childFailurePolicy="restart",
        childRestartBackoffMillis="50",
        childRestartMaxAttempts="100",
    )
    run = app.start(executable=journaling("2", "each"), environment=library("shim"))
    rng = random.Random(7)
    put: list[str] = []
    for turn in range(6):
        put += app.put(30)
        wait_until(lambda: len(set(seen(run))) == len(put), f"the records of turn {turn}")  # noqa: B023
        (template,) = wait_until(lambda: templates(run.pid), "a template")
        children = wait_until(
            lambda: [pid for pid in journals(run) if alive(pid)][:3], "children live"
        )
        if turn in {1, 4}:
            os.kill(template, signal.SIGKILL)
        if turn != 1:
            os.kill(rng.choice(children), signal.SIGKILL)
    put += app.put(30)
    wait_until(lambda: set(put) <= set(seen(run)), "every record")
    assert run.stop() == 0, run.output
    assert sorted(set(seen(run))) == sorted(put)
    assert "children go on" in run.output
    assert "a new child starts" in run.output


def test_a_killed_daemon_leaves_neither_deaf_children_nor_their_template(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    app = new_app(shards=2, childPrefork="true")
    program = tmp_path / "deaf.py"
    program.write_text(DEAF)
    run = app.start(executable=(sys.executable, str(program)))

    def deaf() -> list[int]:
        return [int(p.name.removeprefix("deaf-")) for p in run.folder.glob("deaf-*")]

    children = wait_until(lambda: len(deaf()) == 2 and deaf(), "both children run")
    (template,) = templates(run.pid)
    assert set(children_of(template)) == set(children)
    os.kill(run.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, [*children, template])), "all are gone", PROMISE_S)
