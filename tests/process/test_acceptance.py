"""A whole ``kcl-mld acceptance``, with all its stages, against the embedded AWS."""

from __future__ import annotations

import contextlib
import copy
import fnmatch
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kcl_mld.acceptance.recording import read_lines
from kcl_mld.acceptance.rules.judge import END, judge
from kcl_mld.acceptance.rules.policy import acceptance_policy
from kcl_mld.local.embedded import EmbeddedAws
from tests.process.daemon import wait_until

pytestmark = [pytest.mark.process, pytest.mark.proof, pytest.mark.xdist_group("acceptance")]

ACCOUNT = "123456789012"
#: Ends what hangs; a run takes two minutes.
_TIMEOUT_S = 1700
#: What the embedded AWS calls a service -> what a policy calls it.
_SERVICES = {"monitoring": "cloudwatch", "dynamodbstreams": "dynamodb"}
#: For this nobody needs a permission.
_FREE = {"sts:GetCallerIdentity"}


class Run(NamedTuple):
    """A run that has ended."""

    code: int
    output: str
    report: dict[str, Any]
    page: str
    lines: list[dict[str, Any]]
    calls: dict[str, int]


def _command(folder: Path, *options: str) -> list[str]:
    return [
        *(sys.executable, "-m", "kcl_mld", "acceptance", "--account", ACCOUNT, "--yes"),
        *("--region", "us-east-1", "--control-interval", "0.05", "--directory", str(folder)),
        *options,
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("acceptance") / "run"
    with EmbeddedAws(options=("--create-s", "0.1", "--reshard-s", "0.1")) as aws:
        ended = subprocess.run(
            _command(folder),
            env=aws.environment_for_child(),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        calls = aws.control()["calls"]
    assert (folder / "report.json").exists(), ended.stderr
    return Run(
        ended.returncode,
        ended.stdout + ended.stderr,
        json.loads((folder / "report.json").read_text()),
        (folder / "report.md").read_text(),
        list(read_lines(folder / "recording.jsonl")),
        calls,
    )


def test_every_record_arrives_and_what_comes_twice_has_a_cause(run):
    assert run.report["faults"] == [], run.output
    assert run.code == 0, run.output
    assert run.report["passed"]
    outcomes = {stage["name"]: stage["outcome"] for stage in run.report["stages"]}
    not_run = {name for name, how in outcomes.items() if how == "not run"}
    assert not_run == {"java", "spark", "rollovers"}
    assert list(outcomes.values()).count("passed") == len(outcomes) - 3 == 8
    polling, fan_out, table = run.report["readers"].values()
    for reader in (polling, fan_out, table):
        assert reader["received"] == reader["put"] > 100
        assert reader["given"] == reader["put"] + sum(reader["twice"].values())
    assert polling["put"] == fan_out["put"]
    assert set(polling["twice"]) | set(fan_out["twice"]) <= {"killed", "stopped", "joined"}
    assert (polling["workers"], fan_out["workers"], table["workers"]) == (4, 3, 1)
    assert polling["processed_by_cloudwatch"] > 0
    assert run.report["leftovers"] == []
    assert run.report["observed"]["seconds until a split was done"] > 0


def test_the_page_says_that_it_proves_nothing_about_aws_and_names_no_account(run):
    assert "proves nothing about AWS" in run.page
    assert ACCOUNT not in run.page + json.dumps(run.report)


def test_only_what_the_policy_of_the_role_allows_is_called(run):
    statements = acceptance_policy("us-east-1", ACCOUNT, "kcl-mld-acceptance", None)
    allowed = {action for statement in statements for action in statement.actions} | _FREE
    called = set()
    for name in run.calls:
        service, _, operation = name.partition(".")
        called.add(f"{_SERVICES.get(service, service)}:{operation}")
    assert "kinesis:SubscribeToShard" in called
    assert {
        one for one in called if not any(fnmatch.fnmatch(one, each) for each in allowed)
    } == set()


def _workers_of(folder: Path) -> list[str]:
    """Ids of processes with a properties file in that folder among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if (
                f"{folder}/".encode() in path.read_bytes()
                and b"app.properties" in path.read_bytes()
            ):
                found.append(path.parent.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc")
def test_no_worker_outlives_a_command_that_is_killed(tmp_path):
    folder = tmp_path / "run"
    with EmbeddedAws() as aws:
        command = subprocess.Popen(
            _command(folder, "--stage", "polling"),
            env=aws.environment_for_child(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def has_child() -> bool:
            assert command.poll() is None
            return any(folder.glob("children-*/*.jsonl"))

        try:
            wait_until(has_child, "a child of a worker")
            assert _workers_of(folder)
        finally:
            command.kill()
            command.wait()
        wait_until(lambda: not _workers_of(folder), "the end of all workers")


def _lose(lines: list[dict[str, Any]]) -> None:
    lost = next(line for line in lines if line["what"] == "put")
    for line in lines:
        if line["what"] == "got":
            line["records"] = [
                one for one in line["records"] if (one[2], one[3]) != (lost["key"], lost["first"])
            ]


def _lose_and_wait_in_vain(lines: list[dict[str, Any]]) -> None:
    """As the run itself sees it: it waits for the record, and ends early."""
    _lose(lines)
    end = next(line for line in lines if line["what"] == "stage" and line["name"] == END)
    end.update(outcome="failed", reason="not within 300 s")


def _repeat(lines: list[dict[str, Any]]) -> None:
    """To a child of the same shard that began when all of it was checkpointed."""
    got = next(line for line in reversed(lines) if line["what"] == "got")
    again = {**got, "child": "another", "at": got["at"] + 1000.0}
    position = [got["records"][0][0], got["records"][0][1]]
    began = {**again, "what": "began", "position": position}
    lines += [began, again]


def _swap(lines: list[dict[str, Any]]) -> None:
    """Within the batch of a child, two records."""
    got = next(line for line in lines if line["what"] == "got" and len(line["records"]) > 1)
    got["records"][0], got["records"][-1] = got["records"][-1], got["records"][0]


def _leave(lines: list[dict[str, Any]]) -> None:
    lines.append({"what": "leftover", "kind": "stream", "name": "of this run"})


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (_lose, "1 records lost"),
        (_lose_and_wait_in_vain, "1 records lost"),
        (_repeat, "given twice without a cause"),
        (_swap, "a child was given a record after later ones"),
        (_leave, "left over after the clean-up: stream of this run"),
    ],
)
def test_a_fault_in_the_recording_is_found(run, plant, fault):
    lines = copy.deepcopy(run.lines)
    plant(lines)
    assert any(fault in one for one in judge(lines).faults)
