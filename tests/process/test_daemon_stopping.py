"""How a daemon ends: asked, asked twice, without grace, too late, or killed."""

from __future__ import annotations

import base64
import json
import os
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
    killed_children_are_gone,
    processes_of_session,
    shard_id,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application

pytestmark = pytest.mark.process

#: A child that needs longer than any grace in these tests.
SLOW_TO_STOP = {
    "processRecords": [[CHECKPOINT, STATUS]],
    "shutdownRequested": [[["sleep", 60], STATUS]],
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_tells_every_child_and_releases_every_lease(
    new_app: Callable[..., Application], number: signal.Signals
) -> None:
    app = new_app(shards=2)
    app.put(20)
    run = app.start()
    run.wait_for_actions("processRecords", 2)
    run.signal(number)
    assert run.ends() == 0, run.output
    for shard in (0, 1):
        assert heard(run.child_of(shard))[-4:] == [
            "shutdownRequested",
            "checkpoint",
            "leaseLost",
            "EOF",
        ]
    assert app.owners() == {shard_id(0): None, shard_id(1): None}
    assert not any(alive(pid) for pid in child_pids(run))
    assert "all children were notified; 2 leases released, 0 handed over" in run.output


def test_the_batch_in_hand_is_finished_before_the_child_hears_of_the_stop(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(5)
    run = app.start({"processRecords": [[["sleep", 1.5], ["checkpoint", "$last", 0], STATUS]]})
    run.wait_for_actions("processRecords")
    assert run.stop() == 0
    (child,) = run.children()
    assert heard(child) == [
        "initialize",
        "processRecords",
        "checkpoint",
        "shutdownRequested",
        "leaseLost",
        "EOF",
    ]
    assert app.items()[shard_id(0)]["checkpoint"] == run.records()[-1]["sequenceNumber"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_stops_at_once(
    new_app: Callable[..., Application], number: signal.Signals, code: int
) -> None:
    app = new_app(shutdownGraceMillis="50000")
    app.put(1)
    run = app.start(SLOW_TO_STOP)
    run.wait_for_actions("processRecords")
    run.signal(number)
    run.wait_for_actions("shutdownRequested")
    run.signal(number)
    assert run.ends() == code, run.output
    assert "stopping now" in run.output
    killed_children_are_gone(run)


def test_an_explicit_zero_means_now(new_app: Callable[..., Application]) -> None:
    app = new_app(shutdownGraceMillis="0")
    app.put(1)
    run = app.start()
    run.wait_for_actions("processRecords")
    run.wait_for_actions("checkpoint")
    assert run.stop() == 143, run.output
    assert "shutdownRequested" not in run.actions()
    assert "leaseLost" not in run.actions()
    assert app.owners() == {shard_id(0): "w1"}
    killed_children_are_gone(run)


def test_a_grace_that_is_too_short_cuts_the_stop_and_leaves_no_child(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shutdownGraceMillis="1000")
    app.put(1)
    run = app.start(SLOW_TO_STOP)
    run.wait_for_actions("processRecords")
    assert run.stop() == 143, run.output
    assert "shutdownRequested" in run.actions()
    assert "leaseLost" not in run.actions()
    killed_children_are_gone(run)
    assert "cut short" in run.output


def test_a_stop_during_start_is_a_clean_one(new_app: Callable[..., Application]) -> None:
    app = new_app(shards=0)  # no stream: the start is repeated
    run = app.start()
    run.wait_for_log("waiting 5 s for it")
    assert run.stop() == 0, run.output
    assert run.children() == []


def test_children_do_not_get_the_signals_of_the_terminal(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(1)
    run = app.start()
    run.wait_for_actions("processRecords")
    # Ctrl-C reaches the whole foreground group.
    os.killpg(os.getpgid(run.pid), signal.SIGINT)
    assert run.ends() == 0, run.output
    assert heard(run.child_of(0))[-2:] == ["leaseLost", "EOF"]


def test_nothing_is_left_in_a_childs_session_after_the_daemon_was_killed(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(1)
    program = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', '600'])\n"
        "sys.stderr.write('saw the start\\n')\n"
        "sys.stderr.flush()\n"
        'print(\'{"action":"status","responseFor":"initialize"}\', flush=True)\n'
        "time.sleep(600)\n"
    )
    stubborn = app.folder / "stubborn.py"
    stubborn.write_text(program)
    run = app.start(executable=(sys.executable, str(stubborn)))
    run.wait_for_log("saw the start")
    sessions = [
        pid
        for pid in map(int, (name for name in os.listdir("/proc") if name.isdecimal()))
        if command_line(pid).endswith(str(stubborn))
    ]
    assert len(sessions) == 1
    assert len(processes_of_session(sessions[0])) == 2
    run.signal(signal.SIGKILL)
    assert run.ends() == 137
    wait_until(lambda: not processes_of_session(sessions[0]), "an empty session", 10.0)


def command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as source:
            return " ".join(source.read().split("\0")).strip()
    except OSError:
        return ""


def test_a_child_that_ignores_the_end_of_its_input_is_ended(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shutdownGraceMillis="3000")
    app.put(1)
    run = app.start({"eof": [[["sleep", 600]]]})
    run.wait_for_actions("processRecords")
    run.stop()
    killed_children_are_gone(run)
    assert heard(run.child_of(0))[-2:] == ["leaseLost", "EOF"]


# --- several workers


def test_after_a_graceful_stop_another_worker_goes_on_where_it_ended(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2)
    app.put(40)
    first = app.start(worker="w1")
    assert first.wait_for(lambda r: len(r.records()) >= 40, PATIENCE_S), first.output
    assert first.stop() == 0
    before = app.items()
    assert app.owners() == {shard_id(0): None, shard_id(1): None}
    app.put(40)
    second = app.start(worker="w2")
    assert second.wait_for(lambda r: len(r.records()) >= 40, PATIENCE_S), second.output
    taken = app.items()
    for shard in (0, 1):
        # Taken as released leases are, without waiting for a silent owner's counter.
        assert taken[shard_id(shard)]["leaseOwner"] == "w2"
        assert int(taken[shard_id(shard)]["leaseCounter"]) > int(
            before[shard_id(shard)]["leaseCounter"]
        )
    assert second.stop() == 0
    numbers = [record["sequenceNumber"] for record in first.records() + second.records()]
    assert len(numbers) == len(set(numbers)) == 80


def test_a_second_worker_takes_over_from_a_killed_one(new_app: Callable[..., Application]) -> None:
    app = new_app(shards=2, failoverTimeMillis="2000")
    app.put(40)
    first = app.start(worker="w1")
    assert first.wait_for(lambda r: len(r.records()) >= 40, PATIENCE_S), first.output
    second = app.start(worker="w2", maxLeasesForWorker="2")
    first.signal(signal.SIGKILL)
    assert first.ends() == 137
    app.put(40)
    wait_until(lambda: set(app.owners().values()) == {"w2"}, "w2 has both leases")
    everything = {f"{number}" for number in range(80)}

    def seen() -> set[str]:
        records = first.records() + second.records()
        return {base64.b64decode(r["data"]).decode() for r in records}

    wait_until(lambda: seen() == everything, "every record")
    assert second.stop() == 0, second.output
    for shard in (0, 1):
        positions = [
            (int(r["sequenceNumber"]), r["subSequenceNumber"])
            for line in (e.what for e in second.child_of(shard) if e.direction == "in")
            for r in json.loads(line).get("records", [])
        ]
        assert positions == sorted(positions)


def test_two_workers_of_2x_share_the_shards_by_stealing(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(
        shards=4,
        failoverTimeMillis="2000",
        maxLeasesToStealAtOneTime="2",
        clientVersionConfig="CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1",
    )
    app.put(40)
    first = app.start(worker="w1")
    assert first.wait_for(lambda r: len(r.records()) >= 40, PATIENCE_S), first.output
    second = app.start(worker="w2")
    wait_until(
        lambda: sorted(map(str, app.owners().values())) == ["w1", "w1", "w2", "w2"],
        "two leases each",
    )
    app.put(60)
    wait_until(
        lambda: len({r["sequenceNumber"] for r in first.records() + second.records()}) == 100,
        "every record",
    )
    # It learns of a theft by its next renewal, and would say shutdownRequested before.
    wait_until(
        lambda: sum("leaseLost" in heard(child) for child in first.children()) >= 2, "w1 lost two"
    )
    assert first.stop() == 0, first.output
    assert second.stop() == 0, second.output
    lost = [child for child in first.children() if "shutdownRequested" not in heard(child)]
    assert len(lost) >= 2
    assert all(heard(child)[-2:] == ["leaseLost", "EOF"] for child in lost)
    assert {row["ownerSwitchesSinceCheckpoint"] for row in app.items().values()} <= {0, 1}


def test_a_lease_that_was_overwritten_is_given_up(new_app: Callable[..., Application]) -> None:
    app = new_app(failoverTimeMillis="2000")
    app.put(1)
    script = {"processRecords": [[CHECKPOINT, STATUS], [["gate"], CHECKPOINT, STATUS]]}
    run = app.start(script)
    run.wait_for_actions("checkpoint")
    app.put(1)
    run.wait_for_actions("processRecords", 2)
    app.change(shard_id(0), leaseOwner="another-worker", leaseCounter=1000)
    run.open_gate()
    run.wait_for_actions("leaseLost")
    (child, *_) = run.children()
    assert heard(child)[:6] == [
        "initialize",
        "processRecords",
        "checkpoint",
        "processRecords",
        "checkpoint ShutdownException",
        "leaseLost",
    ]
    assert run.stop() == 0, run.output
