"""Signals other than those of a plain stop: hang-ups, requests for a dump, and meaningless ones."""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.process.daemon import (
    CHECKPOINT,
    PATIENCE_S,
    STATUS,
    alive,
    child_pids,
    heard,
    shard_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application

pytestmark = pytest.mark.process


def starting_with(code: str) -> tuple[str, ...]:
    """Becomes the daemon once this code has run."""
    become = "os.execv(sys.argv[1], sys.argv[1:])"
    return (sys.executable, "-c", f"import os, signal, sys; {code}; {become}")


def with_hangup(action: str) -> tuple[str, ...]:
    """Becomes the daemon, with that action of SIGHUP: ``SIG_DFL``, or ``SIG_IGN`` as by nohup."""
    return starting_with(f"signal.signal(signal.SIGHUP, signal.{action})")


def test_a_hangup_stops_gracefully(new_app: Callable[..., Application]) -> None:
    app = new_app()
    app.put(5)
    run = app.start(launcher=with_hangup("SIG_DFL"))
    run.wait_for_actions("checkpoint")
    run.signal(signal.SIGHUP)
    assert run.ends() == 0, run.output
    assert heard(run.child_of(0))[-4:] == ["shutdownRequested", "checkpoint", "leaseLost", "EOF"]
    assert app.owners() == {shard_id(0): None}
    assert not any(alive(pid) for pid in child_pids(run))


def test_a_hangup_whose_stop_is_cut_short_ends_with_129(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(5)
    run = app.start(
        {
            "processRecords": [[CHECKPOINT, STATUS]],
            "shutdownRequested": [[["sleep", 60], STATUS]],
        },
        launcher=with_hangup("SIG_DFL"),
        shutdownGraceMillis="5000",
    )
    run.wait_for_actions("checkpoint")
    run.signal(signal.SIGHUP)
    run.wait_for_log("SIGHUP received, stopping")
    run.signal(signal.SIGHUP)
    assert run.ends() == 129, run.output
    assert "SIGHUP received, the worker is already stopping" in run.output


#: A daemon whose end takes until it is allowed: where it closes what it had, and where the
#: interpreter ends.
SLOW_END = """
import atexit, os, signal, sys, time
from kcl_mld.children.adapters.guardian import Guardian
from kcl_mld.cli import main

def wait(name):
    place = os.path.join(os.environ["JOURNAL"], name)
    open(place, "w").close()
    until = time.monotonic() + 120
    while not os.path.exists(place + "-goes-on") and time.monotonic() < until:
        time.sleep(0.01)

close = Guardian.close

def slow_close(guardian):
    if not os.path.exists(os.path.join(os.environ["JOURNAL"], "closing")):
        wait("closing")
    close(guardian)

Guardian.close = slow_close
atexit.register(wait, "ending")
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
main(sys.argv[4:])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_at_the_very_end_changes_nothing(
    new_app: Callable[..., Application], number: signal.Signals
) -> None:
    app = new_app()
    app.put(5)
    run = app.start(launcher=(sys.executable, "-c", SLOW_END))
    run.wait_for_actions("checkpoint")
    run.signal(number)
    for place in ("closing", "ending"):
        there = run.folder / place
        assert run.wait_for(lambda _, there=there: there.exists(), PATIENCE_S), run.output
        run.signal(number)
        (run.folder / f"{place}-goes-on").touch()
    assert run.ends() == 0, run.output
    assert re.search(r"children were notified; \d+ leases? released, 0 handed over", run.output)
    assert "Traceback" not in run.output


def test_a_worker_under_nohup_ignores_hangups(new_app: Callable[..., Application]) -> None:
    app = new_app()
    app.put(5)
    run = app.start(launcher=with_hangup("SIG_IGN"))
    run.wait_for_actions("checkpoint")
    run.signal(signal.SIGHUP)
    app.put(5)
    run.wait_for_actions("checkpoint", 2)
    assert run.stop() == 0, run.output
    assert "SIGHUP" not in run.output


def test_signals_that_the_starter_blocked_are_heard(new_app: Callable[..., Application]) -> None:
    app = new_app()
    app.put(5)
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"
    run = app.start(launcher=starting_with(block))
    run.wait_for_actions("checkpoint")
    assert run.stop() == 0, run.output
    assert heard(run.child_of(0))[-4:] == ["shutdownRequested", "checkpoint", "leaseLost", "EOF"]


def test_a_starter_that_ignores_its_children_hides_no_failure(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(5)
    ignore = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    run = app.start({"processRecords": [[["exit", 3]]]}, launcher=starting_with(ignore))
    assert run.ends() == 1, run.output
    assert "exit status 3" in run.output


def test_a_request_for_a_dump_and_meaningless_signals_end_nothing(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(5)
    run = app.start(arguments=("--log-format", "json"))
    run.wait_for_actions("checkpoint")
    for number in (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
        run.signal(number)
    run.wait_for_log("Threads at SIGQUIT")
    run.wait_for_log("SIGUSR2 received")
    app.put(5)
    run.wait_for_actions("checkpoint", 2)
    assert run.stop() == 0, run.output
    said = [json.loads(line)["msg"] for line in run.stderr.splitlines()]
    (state,) = [text for text in said if text.startswith("State at SIGQUIT")]
    (lease,) = json.loads(state.partition("\n")[2])["leases"]
    assert (lease["shard_id"], lease["state"]) == (shard_id(0), "PROCESSING")
    (tasks,) = [text for text in said if text.startswith("Tasks at SIGQUIT")]
    assert f"task shard {shard_id(0)}:" in tasks


def test_a_crash_in_native_code_shows_where_each_thread_was(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(5)
    run = app.start()
    run.wait_for_actions("checkpoint")
    run.signal(signal.SIGSEGV)
    assert run.exit_code(PATIENCE_S) == 128 + signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in run.output
    assert "in _main" in run.output or "in _work" in run.output or "run_forever" in run.output
