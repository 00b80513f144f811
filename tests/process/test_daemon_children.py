"""Children that crash, hang, forget, lie or babble, under both failure policies."""

from __future__ import annotations

import base64
import json
import sys
import time
from typing import TYPE_CHECKING

import pytest

from kcl_mld_protocol import transcripts
from kcl_mld_protocol.transcripts import Direction
from tests.process.daemon import (
    CHECKPOINT,
    PATIENCE_S,
    SCRIPTED_CHILD,
    STATUS,
    child_pids,
    heard,
    killed_children_are_gone,
    shard_id,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.process.daemon import Application

pytestmark = pytest.mark.process

EXIT_7 = ["exit", 7]


def test_a_crash_ends_the_daemon_after_the_other_shards_were_drained(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2)
    app.put(20, "one key")  # all in one shard
    run = app.start(
        {"processRecords": [[["gate"], EXIT_7]], "shutdownRequested": [[CHECKPOINT, STATUS]]}
    )
    run.wait_for_actions("initialize", 2)
    run.wait_for_actions("processRecords")
    run.open_gate()
    assert run.ends() == 1, run.output
    crashed, drained = sorted(run.children(), key=lambda child: len(heard(child)))
    assert heard(crashed) == ["initialize", "processRecords"]
    assert heard(drained) == [
        "initialize",
        "shutdownRequested",
        "checkpoint",
        "leaseLost",
        "EOF",
    ]
    assert set(app.owners().values()) == {None}
    assert "exit status 7" in run.output
    assert "child failed at processRecords" in run.output


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"initialize": [[EXIT_7]]}, "child failed at initialize"),
        ({"initialize": [[["status", "processRecords"]]]}, "instead of initialize"),
        ({"processRecords": [[["write", '{"action":"status"}\n']]]}, "instead of processRecords"),
    ],
    ids=["ends at initialize", "answers another action", "answers no action"],
)
def test_a_child_that_fails_ends_the_daemon(
    new_app: Callable[..., Application], script: dict[str, object], words: str
) -> None:
    app = new_app()
    app.put(1)
    run = app.start(script)  # type: ignore[arg-type]
    assert run.ends() == 1, run.output
    assert words in run.output
    killed_children_are_gone(run)
    assert app.owners() == {shard_id(0): None}


def test_a_status_behind_other_output_is_told_and_taken_where_the_file_says_so(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(recoverGluedMessages="true")
    app.put(1)
    glued = 'done{"action":"status","responseFor":"processRecords"}\n'
    run = app.start({"processRecords": [[CHECKPOINT, ["write", glued]]]})
    run.wait_for_log("a message behind other output")
    assert "accepted a status" not in run.output
    run.wait_for_log("accepted a status that follows other output on its line")
    assert run.stop() == 0, run.output


def test_a_child_that_does_not_read_its_answers_fails_in_time(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(timeoutInSeconds="6")
    app.put(1)
    request = '{"action":"checkpoint","sequenceNumber":"1","subSequenceNumber":null}\n'
    flood = ["write", request * 20_000]  # answers of more than a pipe's megabyte
    run = app.start({"processRecords": [[flood, ["sleep", 600], STATUS]]})
    assert run.ends() == 1, run.output
    assert "it has not read its input for 6.0 s" in run.output


def test_a_program_that_is_not_there_is_refused_before_a_lease_is_taken(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    run = app.start(executable=("no-such-program-anywhere",))
    assert run.ends() == 2, run.output
    assert "no-such-program-anywhere is not found in PATH" in run.output


def test_a_program_that_ends_at_once_ends_the_daemon(new_app: Callable[..., Application]) -> None:
    app = new_app()
    run = app.start(executable=("/bin/true",))
    assert run.ends() == 1, run.output
    assert shard_id(0) in run.output


def test_under_the_policy_restart_another_child_goes_on_from_the_checkpoint(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(childFailurePolicy="restart", childRestartBackoffMillis="100")
    put = app.put(10, "key")
    # Every child dies in its second batch.
    script = {
        "processRecords": [[CHECKPOINT, STATUS], [EXIT_7]],
        "shutdownRequested": [[CHECKPOINT, STATUS]],
    }
    run = app.start(script)
    run.wait_for_actions("checkpoint")
    put += app.put(10, "key")
    run.wait_for_actions("processRecords", 3)
    run.wait_for_actions("checkpoint", 2)
    assert run.stop() == 0, run.output
    first, second = run.children()
    stored = json.loads(next(e.what for e in second if e.direction == "in"))["sequenceNumber"]
    records = run.records()
    assert stored == records[9]["sequenceNumber"]
    data = [base64.b64decode(record["data"]).decode() for record in records]
    assert data == put + put[10:]
    assert heard(first)[-1] == "processRecords"
    assert heard(second)[-2:] == ["leaseLost", "EOF"]
    assert "a new child starts" in run.output


def test_restarts_without_progress_end_the_daemon_at_last(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(
        childFailurePolicy="restart", childRestartBackoffMillis="50", childRestartMaxAttempts="2"
    )
    app.put(1)
    run = app.start({"processRecords": [[EXIT_7]]})
    assert run.ends() == 1, run.output
    assert len(run.children()) == 3


def test_a_child_that_is_silent_for_too_long_ends_the_daemon(
    new_app: Callable[..., Application],
) -> None:
    # The child has to start within it, too.
    app = new_app(timeoutInSeconds="5", logWarningForTaskAfterMillis="300")
    app.put(1)
    run = app.start({"processRecords": [[["sleep", 600]]]})
    assert run.ends() == 1, run.output
    assert "child failed at processRecords" in run.output
    killed_children_are_gone(run)


def test_a_shard_end_that_is_not_checkpointed_is_told_again_then_ends_the_daemon(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(childRestartBackoffMillis="50")
    app.put(5)
    app.split(0)
    script = {"processRecords": [[CHECKPOINT, STATUS]], "shardEnded": [[STATUS]]}
    run = app.start(script)
    assert run.ends() == 1, run.output
    ends = [child for child in run.children() if "shardEnded" in heard(child)]
    assert len(ends) == 4
    assert "without a successful checkpoint" in run.output
    assert app.items()[shard_id(0)]["checkpoint"] != "SHARD_END"
    assert app.owners()[shard_id(0)] is None


def test_what_a_child_says_beside_the_protocol_is_logged_with_shard_and_pid(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(1)
    script = {
        "processRecords": [
            [
                ["stderr", "words on stderr"],
                ["write", "words on stdout\n"],
                ["write", '{"action":"bogus"}\n\n42\n'],
                CHECKPOINT,
                STATUS,
            ]
        ]
    }
    run = app.start(script)
    run.wait_for_actions("checkpoint")
    assert run.stop() == 0, run.output
    logged = [json.loads(line) for line in run.stderr.splitlines()]
    (pid,) = child_pids(run)
    for words in ("words on stderr", "words on stdout"):
        (line,) = [one for one in logged if words in json.dumps(one)]
        assert (line["shard"], line["pid"]) == (shard_id(0), pid)
    assert heard(run.child_of(0))[-3:] == ["shutdownRequested", "leaseLost", "EOF"]


RECORDS = [
    ["write", '{"action":"log","level":"warning","message":"late","order":7}\n'],
    ["write", '{"level":50,"msg":"no disk"}\n'],
    ["stderr", '{"levelname":"DEBUG","event":"seen"}'],
    ["stderr", "Traceback (most recent call last):\n  File \"a.py\"\nKeyError: 'b'"],
    ["stderr", "plain words"],
    CHECKPOINT,
    STATUS,
]


@pytest.mark.parametrize("level", ["DEBUG", "error", None])
def test_records_of_a_childs_own_logger_keep_their_level_and_fields(
    new_app: Callable[..., Application], level: str | None
) -> None:
    app = new_app()
    app.put(1)
    arguments = ("--log-level", "warning") if level is None else ()
    run = app.start({"processRecords": [RECORDS]}, arguments=arguments, childLogLevel=level)
    run.wait_for_actions("checkpoint")
    assert run.stop() == 0, run.output
    shown = [json.loads(line) for line in run.stderr.splitlines()]
    of_child = [one for one in shown if one["logger"] == "mld.child"]
    (pid,) = child_pids(run)
    assert all((one["shard"], one["pid"]) == (shard_id(0), pid) for one in of_child)
    found = {one["msg"].removeprefix(f"{shard_id(0)} "): one for one in of_child}
    expected = {
        "stdout: no disk": "ERROR",
        "stderr: Traceback (most recent call last):\n    File \"a.py\"\n  KeyError: 'b'": "ERROR",
    }
    if level != "error":
        expected["stdout: late"] = "WARNING"
        assert found["stdout: late"]["child"] == {"order": 7}
    if level == "DEBUG":
        expected |= {"stderr: seen": "DEBUG", "stderr: plain words": "INFO"}
    assert {text: one["level"] for text, one in found.items()} == expected


def test_with_the_text_format_only_the_log_message_is_a_record(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(1)
    run = app.start({"processRecords": [RECORDS]}, childLogFormat="text")
    run.wait_for_actions("checkpoint")
    assert run.stop() == 0, run.output
    shown = [json.loads(line) for line in run.stderr.splitlines()]
    found = {one["msg"]: one["level"] for one in shown if one["logger"] == "mld.child"}
    assert found[f"{shard_id(0)} stdout: late"] == "WARNING"
    (line,) = [text for text in found if "no disk" in text]
    assert '{"level":50' in line
    assert found[line] == "INFO"


@pytest.mark.parametrize("payloads", ["false", "true"])
def test_a_recording_has_the_whole_conversation(
    new_app: Callable[..., Application], tmp_path: Path, payloads: str
) -> None:
    app = new_app()
    app.put(1)
    folder = tmp_path / "made" / "here"
    run = app.start(
        {"processRecords": [[["stderr", "words"], CHECKPOINT, STATUS]]},
        recordTo=str(folder),
        recordPayloads=payloads,
    )
    run.wait_for_actions("checkpoint")
    assert run.stop() == 0, run.output
    (file,) = folder.iterdir()
    assert file.name.startswith(shard_id(0))
    assert file.stat().st_mode & 0o777 == 0o600
    lines = transcripts.parse(file.read_bytes())
    to_child = [json.loads(one.line) for one in lines if one.direction is Direction.TO_CHILD]
    actions = [message["action"] for message in to_child if message.get("records") != []]
    assert actions == [
        "initialize",
        "processRecords",
        "checkpoint",
        "shutdownRequested",
        "leaseLost",
    ]
    (record,) = [record for message in to_child for record in message.get("records", ())]
    assert (record["data"] != "") is (payloads == "true")
    said = [one.line for one in lines if one.direction is Direction.FROM_CHILD]
    assert json.loads(said[-1]) == {"action": "status", "responseFor": "leaseLost"}
    assert b"words" in [one.line for one in lines if one.direction is Direction.CHILD_STDERR]
    assert lines[-1].line == b"child exit rc=0"


def test_a_folder_for_recordings_that_cannot_be_made_is_refused(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    run = new_app().start(recordTo=str(tmp_path / "file" / "below"))
    assert run.ends() == 2, run.output
    assert "recordTo" in run.output


def test_checkpoint_errors_have_the_names_of_java(new_app: Callable[..., Application]) -> None:
    app = new_app()
    app.put(3, "key")
    asked = [
        ["$first", None],
        ["$above", 0],
        ["abc", 0],
        ["0", 0],
        ["SHARD_END", None],
        ["LATEST", 0],
        ["$last", 5],
        ["$last", 0],
        ["$first", 0],
        ["$last", 0],
        [None, 7],
    ]
    script = {
        "initialize": [[["checkpoint", None, None], STATUS]],
        "processRecords": [[*(["checkpoint", *one] for one in asked), STATUS]],
    }
    run = app.start(script)
    run.wait_for_actions("checkpoint", len(asked) + 1)
    assert run.stop() == 0, run.output
    results = [
        json.loads(line)["error"] for line in run.lines() if line.startswith('{"action":"checkp')
    ]
    illegal = "IllegalArgumentException"
    assert results == [
        "InvalidStateException",
        None,
        *[illegal] * 6,
        None,
        illegal,
        None,
        None,
    ]


def test_a_slow_child_does_not_keep_other_shards_from_reading(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2)
    app.put(1, "slow")
    script = {"processRecords": [[["sleep", 2.0], CHECKPOINT, STATUS], [CHECKPOINT, STATUS]]}
    run = app.start(script)
    run.wait_for_actions("processRecords")
    app.put(40)
    assert run.wait_for(lambda r: len(r.records()) >= 41, PATIENCE_S), run.output
    wait_until(
        lambda: all(row["checkpoint"].isdecimal() for row in app.items().values()), "checkpoints"
    )
    assert run.stop() == 0, run.output


@pytest.mark.parametrize(("policy", "code"), [("exit", 1), ("restart", 0)])
def test_a_child_that_ends_on_an_idle_shard_is_noticed_at_once(
    new_app: Callable[..., Application], policy: str, code: int
) -> None:
    # The shard stays idle: nothing is said to the child that could fail.
    app = new_app(childFailurePolicy=policy, childRestartBackoffMillis="100")
    app.put(1)
    run = app.start({"processRecords": [[CHECKPOINT, STATUS, EXIT_7]]})
    run.wait_for_actions("checkpoint")
    answered_at = time.monotonic()
    run.wait_for_log("child failed while idle: it exited unexpectedly")
    assert time.monotonic() - answered_at < 3.0  # about 0.5 s on a machine with nothing else to do
    assert "(exit status 7)" in run.output
    if policy == "restart":
        run.wait_for_actions("initialize", 2)
        assert run.stop() == code, run.output
    else:
        assert run.ends() == code, run.output
    assert app.owners() == {shard_id(0): None}


def test_a_locale_without_the_letters_of_a_name_keeps_no_child_from_starting(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(3)
    # Python takes the locale C for one of UTF-8, unless it is told not to.
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = app.start(environment=ascii_only, workerId="wörker")
    run.wait_for_actions("checkpoint")
    assert run.stop() == 0, run.output


def test_a_locale_without_the_letters_of_a_path_keeps_no_child_from_starting(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    app = new_app()
    app.put(3)
    # Of the program and of an argument, both from the file and so no bytes of the system's yet.
    # The file is written in UTF-8 and read as ISO-8859-1.
    written = str(tmp_path / "bücher" / "child")
    folder = tmp_path / "bücher".encode().decode("latin-1")
    folder.mkdir()
    program = folder / "child"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = "$0" ] && exec {sys.executable} {SCRIPTED_CHILD} "$JOURNAL/script.json"\n'
    )
    program.chmod(0o755)
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = app.start(environment=ascii_only, executable=(written, written))
    run.wait_for_actions("checkpoint")
    assert run.stop() == 0, run.output
