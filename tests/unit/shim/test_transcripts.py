"""The stand-in for ``amazon_kclpy`` says what is expected, and so does the real one.

Every case runs twice with the same expectation: with the stand-in, and with amazon_kclpy 3.2.0
where it can be had.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kcl_mld.children.adapters.kclpy_path import SHIM
from tests.kclpy_cache import kclpy

PROGRAM = Path(__file__).resolve().parents[2] / "data" / "kclpy" / "processors.py"

INITIALIZE = {
    "action": "initialize",
    "shardId": "shardId-000000000000",
    "sequenceNumber": "TRIM_HORIZON",
    "subSequenceNumber": 0,
}
RECORD = {
    "action": "record",
    "sequenceNumber": "49590338271490256608559692538361571095921575989136588898",
    "subSequenceNumber": 0,
    "approximateArrivalTimestamp": 1500000000123,
    "partitionKey": "käy",
    "data": "AAH/",
    "extra": 7,
}
PROCESS = {"action": "processRecords", "records": [RECORD, RECORD], "millisBehindLatest": 12}
REPLY = {"action": "checkpoint", "sequenceNumber": "1", "subSequenceNumber": 0}
REFUSAL = {**REPLY, "error": "ShutdownException"}
LEASE_LOST = {"action": "leaseLost"}
SHARD_ENDED = {"action": "shardEnded"}
SHUTDOWN_REQUESTED = {"action": "shutdownRequested"}

CHECKPOINT = '\n{"action": "checkpoint", "sequenceNumber": null, "subSequenceNumber": null}\n'


def status(action: str) -> str:
    return f'\n{{"action": "status", "responseFor": "{action}"}}\n'


@dataclass
class Outcome:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def saw(self) -> list[str]:
        lines = self.stderr.splitlines()
        return [line.removeprefix("saw: ") for line in lines if line.startswith("saw: ")]


@pytest.fixture(params=["shim", "real"])
def library(request: pytest.FixtureRequest) -> Path:
    if request.param == "shim":
        return SHIM
    folder = kclpy()
    if folder is None:
        pytest.skip("amazon_kclpy cannot be fetched here")
    return folder


def run(library: Path, version: str, mode: str, *lines: object) -> Outcome:
    text = "".join(x if isinstance(x, str) else json.dumps(x) + "\n" for x in lines)
    done = subprocess.run(
        [sys.executable, "-B", str(PROGRAM), version, mode],
        input=text.encode(),
        capture_output=True,
        check=False,
        timeout=30,
        env={**os.environ, "PYTHONPATH": str(library), "TZ": "UTC", "PYTHONUTF8": "1"},
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize(
    ("version", "seen"),
    [
        ("1", "initialize shardId-000000000000"),
        ("2", "initialize shardId-000000000000 TRIM_HORIZON 0"),
        ("3", "initialize shardId-000000000000 TRIM_HORIZON 0"),
    ],
)
def test_py_01_initialize_is_answered_on_a_line_of_its_own(
    library: Path, version: str, seen: str
) -> None:
    outcome = run(library, version, "quiet", INITIALIZE)
    assert (outcome.exit_code, outcome.stdout) == (0, status("initialize"))
    assert outcome.saw == [seen]


@pytest.mark.parametrize("version", ["1", "2", "3"])
@pytest.mark.parametrize(
    "message", [INITIALIZE, PROCESS, LEASE_LOST, SHARD_ENDED, SHUTDOWN_REQUESTED]
)
def test_py_02_an_error_in_a_callback_is_told_on_stderr_and_reported_as_done(
    library: Path, version: str, message: dict[str, object]
) -> None:
    outcome = run(library, version, "raise", message)
    assert (outcome.exit_code, outcome.stdout) == (0, status(str(message["action"])))
    said = "Caught exception from action dispatch: as toldTraceback (most recent call last):\n"
    assert said in outcome.stderr
    assert outcome.stderr.endswith("\nValueError: as told\n")


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_py_03_a_checkpoint_without_a_position_sends_nulls(library: Path, version: str) -> None:
    outcome = run(library, version, "checkpoint", PROCESS, REPLY)
    assert (outcome.exit_code, outcome.stdout) == (0, CHECKPOINT + status("processRecords"))
    assert outcome.saw[-1] == "checkpoint"


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_a_checkpoint_at_a_record_sends_its_position_as_given(library: Path, version: str) -> None:
    outcome = run(library, version, "each", PROCESS, REPLY, REPLY)
    position = f'"sequenceNumber": "{RECORD["sequenceNumber"]}", "subSequenceNumber": 0'
    sent = f'\n{{"action": "checkpoint", {position}}}\n'
    assert outcome.stdout == sent * 2 + status("processRecords")


@pytest.mark.parametrize("version", ["1", "2", "3"])
@pytest.mark.parametrize("error", ["ShutdownException", ""])
def test_py_04_a_refusal_is_a_checkpoint_error_with_its_name(
    library: Path, version: str, error: str
) -> None:
    outcome = run(library, version, "checkpoint", PROCESS, {**REPLY, "error": error})
    assert outcome.saw[-1] == f"refused {error} {error!r}"
    assert outcome.stdout == CHECKPOINT + status("processRecords")


def test_a_null_error_is_success(library: Path) -> None:
    outcome = run(library, "3", "checkpoint", PROCESS, {**REPLY, "error": None})
    assert outcome.saw[-1] == "checkpoint"


@pytest.mark.parametrize("answer", [LEASE_LOST, PROCESS, None, [], 5])
def test_py_05_another_answer_to_a_checkpoint_is_an_invalid_state(
    library: Path, answer: object
) -> None:
    outcome = run(library, "3", "checkpoint", PROCESS, json.dumps(answer) + "\n")
    assert outcome.saw[-1] == "refused InvalidStateException 'InvalidStateException'"
    assert outcome.exit_code == 0


@pytest.mark.parametrize(
    ("version", "seen"),
    [
        ("1", "shutdown ZOMBIE LeaseLostCheckpointer"),
        ("2", "shutdown ZOMBIE LeaseLostCheckpointer shutdown"),
    ],
)
def test_py_06_a_lost_lease_is_a_zombie_to_older_versions_and_refuses_checkpoints(
    library: Path, version: str, seen: str
) -> None:
    outcome = run(library, version, "checkpoint", LEASE_LOST)
    assert outcome.saw[0] == seen
    assert outcome.saw[1].startswith("refused ")
    assert outcome.stdout == status("leaseLost")


@pytest.mark.parametrize(
    ("version", "seen"),
    [
        ("1", "shutdown TERMINATE Checkpointer"),
        ("2", "shutdown TERMINATE Checkpointer shutdown"),
    ],
)
def test_py_07_a_shard_end_terminates_older_versions_and_takes_their_checkpoint(
    library: Path, version: str, seen: str
) -> None:
    outcome = run(library, version, "checkpoint", SHARD_ENDED, REPLY)
    assert outcome.saw == [seen, "checkpoint"]
    assert outcome.stdout == CHECKPOINT + status("shardEnded")


def test_version_3_is_told_of_a_lost_lease_and_a_shard_end_by_name(library: Path) -> None:
    outcome = run(library, "3", "quiet", LEASE_LOST, SHARD_ENDED)
    assert outcome.saw == [
        "lease_lost LeaseLostInput leaseLost",
        "shard_ended ShardEndedInput shardEnded",
    ]
    assert outcome.stdout == status("leaseLost") + status("shardEnded")


@pytest.mark.parametrize(
    ("version", "seen"),
    [
        ("1", "shutdown_requested Checkpointer"),
        ("2", "shutdown_requested ShutdownRequestedInput shutdownRequested"),
        ("3", "shutdown_requested ShutdownRequestedInput shutdownRequested"),
    ],
)
def test_a_requested_shutdown_may_checkpoint(library: Path, version: str, seen: str) -> None:
    outcome = run(library, version, "checkpoint", SHUTDOWN_REQUESTED, REPLY)
    assert outcome.saw == [seen, "checkpoint"]
    assert outcome.stdout == CHECKPOINT + status("shutdownRequested")


def test_a_requested_shutdown_is_optional_before_version_3(library: Path) -> None:
    outcome = run(library, "bare", "quiet", SHUTDOWN_REQUESTED)
    assert (outcome.stdout, outcome.stderr) == (status("shutdownRequested"), "")


@pytest.mark.parametrize("message", [INITIALIZE, PROCESS, LEASE_LOST])
def test_callbacks_that_a_processor_lacks_are_reported(
    library: Path, message: dict[str, object]
) -> None:
    outcome = run(library, "bare", "quiet", message)
    assert outcome.stdout == status(str(message["action"]))
    assert "NotImplementedError" in outcome.stderr


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ({k: v for k, v in INITIALIZE.items() if k != "action"}, "MalformedAction"),
        ({"action": "unheardOf"}, "MalformedAction"),
        ({**PROCESS, "records": [{"data": "AA=="}]}, "MalformedAction"),
        ({**LEASE_LOST, "nested": {}}, "MalformedAction"),
        ({**PROCESS, "records": [{**RECORD, "approximateArrivalTimestamp": None}]}, "TypeError"),
        ("\n", "JSONDecodeError"),
        ("no json\n", "JSONDecodeError"),
        ({"action": "shutdown", "reason": "ZOMBIE"}, "TypeError"),
        (REPLY, "AttributeError"),
        (RECORD, "AttributeError"),
        ("null\n", "AttributeError"),
        *(({k: v for k, v in INITIALIZE.items() if k != gone}, "KeyError")
          for gone in ("shardId", "sequenceNumber", "subSequenceNumber")),
        *(({k: v for k, v in PROCESS.items() if k != gone}, "KeyError")
          for gone in ("records", "millisBehindLatest")),
        *(({**PROCESS, "records": [{k: v for k, v in RECORD.items() if k != gone}]}, "KeyError")
          for gone in RECORD if gone not in {"action", "extra"}),
    ],
)  # fmt: skip
def test_py_08_to_11_what_is_no_message_ends_the_process(
    library: Path, line: object, error: str
) -> None:
    outcome = run(library, "3", "quiet", line, INITIALIZE)
    assert (outcome.exit_code, outcome.stdout) == (1, "")
    assert error in outcome.stderr.splitlines()[-1]


def test_py_12_end_of_file_is_a_clean_end(library: Path) -> None:
    assert run(library, "3", "quiet") == Outcome(0, "", "")


def test_end_of_file_instead_of_an_answer_is_an_error_of_the_callback(library: Path) -> None:
    outcome = run(library, "3", "checkpoint", PROCESS)
    assert outcome.stdout == CHECKPOINT + status("processRecords")
    assert "JSONDecodeError" in outcome.stderr


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_an_exit_in_a_callback_ends_the_process_without_a_status(
    library: Path, version: str
) -> None:
    outcome = run(library, version, "exit", INITIALIZE)
    assert (outcome.exit_code, outcome.stdout) == (9, "")


def test_what_a_program_prints_does_not_spoil_the_message_after_it(library: Path) -> None:
    outcome = run(library, "3", "print", INITIALIZE, LEASE_LOST)
    assert outcome.stdout == "no message" + status("initialize") + "no message" + status(
        "leaseLost"
    )


def test_a_records_fields_arrive_as_documented(library: Path) -> None:
    outcome = run(library, "3", "quiet", {**PROCESS, "unknownField": 1})
    record = (
        f"{RECORD['sequenceNumber']} 0 käy AAH/ b'\\x00\\x01\\xff' "
        "1500000000123 2017-07-14T02:40:00.123000 käy 7"
    )
    assert outcome.saw == ["process_records 2 12 processRecords", record, record]


def test_a_line_without_an_end_is_a_message(library: Path) -> None:
    assert run(library, "3", "quiet", json.dumps(LEASE_LOST)).stdout == status("leaseLost")


def test_a_whole_life_is_one_transcript(library: Path) -> None:
    life = [INITIALIZE, PROCESS, REPLY, SHUTDOWN_REQUESTED, REFUSAL, LEASE_LOST]
    outcome = run(library, "3", "checkpoint", *life)
    assert outcome.exit_code == 0
    assert outcome.stdout == (
        status("initialize")
        + CHECKPOINT
        + status("processRecords")
        + CHECKPOINT
        + status("shutdownRequested")
        + status("leaseLost")
    )
