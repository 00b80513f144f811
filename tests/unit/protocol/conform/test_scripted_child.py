"""The child that plays a script records all it hears and says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kcl_mld_protocol import (
    CheckpointResult,
    Initialize,
    LeaseLost,
    ProcessRecords,
    Record,
    encode,
)
from kcl_mld_protocol.conform.daemon import SCRIPTED_CHILD, DaemonRun, properties_text

BATCH = encode(ProcessRecords((Record("", "k", "7", 1), Record("", "k", "9", 1)), 0))


def play(tmp_path, actions, *lines):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"record": str(tmp_path), "actions": actions}))
    done = subprocess.run(
        [sys.executable, str(SCRIPTED_CHILD), str(script), "more"],
        input=b"".join(lines),
        capture_output=True,
        timeout=20,
        check=False,
    )
    record = next(tmp_path.glob("child-*.jsonl")).read_text().splitlines()
    return done, [json.loads(line) for line in record]


def test_an_action_without_steps_is_answered(tmp_path):
    done, record = play(tmp_path, {}, encode(Initialize("s", "1", 0)), encode(LeaseLost()))
    assert done.returncode == 0
    assert [json.loads(line)["responseFor"] for line in done.stdout.splitlines()] == [
        "initialize",
        "leaseLost",
    ]
    assert [entry["dir"] for entry in record] == ["start", "in", "out", "in", "out", "eof"]
    assert record[0]["what"]["argv"][2:] == ["more"]


def test_steps_change_from_time_to_time_and_the_last_ones_stay(tmp_path):
    actions = {"leaseLost": [[["write", "one\n"]], [["write", "two\n"]]]}
    done, _ = play(tmp_path, actions, *[encode(LeaseLost())] * 3)
    assert done.stdout == b"one\ntwo\ntwo\n"


def test_positions_of_the_batch_can_be_named(tmp_path):
    steps = [["checkpoint", where, None] for where in ("$first", "$last", "$above", None)]
    answers = [encode(CheckpointResult(None, None))] * 4
    done, _ = play(tmp_path, {"processRecords": [steps]}, BATCH, *answers)
    asked = [json.loads(line)["sequenceNumber"] for line in done.stdout.splitlines()]
    assert asked == ["7", "9", "10", None]


def test_a_child_can_talk_on_stderr_wait_and_exit(tmp_path):
    steps = [["stderr", "oops"], ["sleep", 0], ["exit", 3]]
    done, record = play(tmp_path, {"leaseLost": [steps]}, encode(LeaseLost()))
    assert done.returncode == 3
    assert done.stderr == b"oops\n"
    assert record[-1]["what"] == 3


def test_an_unknown_step_is_an_error(tmp_path):
    done, _ = play(tmp_path, {"leaseLost": [[["bogus"]]]}, encode(LeaseLost()))
    assert done.returncode == 1


def test_a_run_reads_the_records_of_its_children(tmp_path):
    play(tmp_path, {}, encode(Initialize("s", "1", 0)), encode(CheckpointResult("1", 0)))
    with DaemonRun([sys.executable, "-c", "print('out')"], tmp_path, {}) as run:
        assert run.exit_code(20) == 0
        assert run.output == "out\n"
        assert run.actions() == ["initialize", "checkpoint"]
        assert run.results()[0]["sequenceNumber"] == "1"
        assert len(run.children()) == 1
        assert run.wait_for_action("initialize", 1)
        assert not run.wait_for_action("leaseLost", 1)


def test_a_run_tells_signals_as_a_shell_does(tmp_path):
    program = "import time; time.sleep(600)"
    with DaemonRun([sys.executable, "-c", program], tmp_path, {}) as run:
        assert run.exit_code(0.01) is None
        assert run.terminate_and_wait(20) == 143


@pytest.mark.parametrize(
    ("value", "text"), [("plain", "k = plain\n"), ("back\\slash", "k = back\\\\slash\n")]
)
def test_properties_are_written_so_that_they_mean_themselves(value, text):
    assert properties_text({"k": value}) == text
