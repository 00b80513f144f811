"""A daemon whose guardian is ended before it is ended itself."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.process.daemon import alive, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application

pytestmark = pytest.mark.process

#: After a kill -9 of the daemon. The design promises five seconds; a busy machine has more.
PROMISE_S = 60.0
#: Never answers, and ignores whatever can be ignored.
DEAF = """\
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
    signal.signal(number, signal.SIG_IGN)
open(os.path.join(os.environ["JOURNAL"], "deaf-%d" % os.getpid()), "w").close()
until = time.monotonic() + 120
while time.monotonic() < until:
    time.sleep(1)
"""


def guardians(daemon: int) -> list[int]:
    """Living guardians that a daemon started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if int(parent) == daemon and b"guardian_main.py" in command and alive(int(path.name)):
            found.append(int(path.name))
    return found


def test_children_that_ignore_everything_end_with_a_daemon_whose_guardian_was_killed_first(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    app = new_app(shards=2)
    program = tmp_path / "deaf.py"
    program.write_text(DEAF)
    run = app.start(executable=(sys.executable, str(program)))

    def deaf() -> list[int]:
        return [int(p.name.removeprefix("deaf-")) for p in run.folder.glob("deaf-*")]

    children = wait_until(lambda: len(deaf()) == 2 and deaf(), "both children run")
    (first,) = guardians(run.pid)
    os.kill(first, signal.SIGKILL)
    (second,) = wait_until(
        lambda: [pid for pid in guardians(run.pid) if pid != first], "another guardian"
    )
    run.wait_for_log(f"The guardian process {first} ended (status -9); process {second} takes its")
    os.kill(run.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, [*children, second])), "all are gone", PROMISE_S)
