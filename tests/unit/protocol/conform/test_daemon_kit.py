"""The kit for daemons, with programs that are no daemon: they pass nothing."""

from __future__ import annotations

import pathlib
import signal
import sys

import pytest

from kcl_mld_protocol.conform import daemon_cases
from kcl_mld_protocol.conform.daemon import Cloud, DaemonKit, DaemonRun, Limits
from kcl_mld_protocol.conform.daemon_cases import in_turn, stop
from kcl_mld_protocol.conform.report import Verdict, judged, load_items, passed

pytestmark = pytest.mark.process


class EmptyCloud(Cloud):
    """An AWS without anything in it."""

    kinesis_url = "http://127.0.0.1:1"
    dynamodb_url = "http://127.0.0.1:2"

    def __init__(self):
        self.streams = []

    @property
    def environment(self):
        return {"AWS_REGION": "us-east-1"}

    def create_stream(self, stream, shards):
        self.streams.append((stream, shards))

    def put(self, stream, records):
        assert stream in dict(self.streams)

    def split(self, stream, shard_id):
        assert stream in dict(self.streams)

    def lease_rows(self, table):
        return []

    def change_lease(self, table, lease_key, values):
        assert table in dict(self.streams)

    def consumers(self, stream):
        return 0

    def fail(self, operation, contains, code):
        assert operation == "UpdateItem"

    def heal(self):
        pass


def kit_for(tmp_path, *command, implementation="kcl-mld", jobs=1):
    kit = DaemonKit([*command, "{properties}"], implementation, EmptyCloud(), tmp_path, jobs)
    kit.limits = Limits(0.2, 0.2, 0.2, 0.2)
    return kit


@pytest.mark.parametrize("implementation", ["java", "java-2", "kcl-mld"])
@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_program_that_ends_at_once_passes_nothing(tmp_path, implementation, code):
    kit = kit_for(tmp_path, "sh", "-c", f"exit {code}", implementation=implementation, jobs=4)
    report = kit.run(daemon_cases.ALL)
    assert "broke off" not in report.text()
    good = [f for f in report.findings() if f.verdict in {Verdict.PASS, Verdict.DIFFERS}]
    assert good == []
    assert report.exit_status == 1


@pytest.mark.parametrize("implementation", ["java", "kcl-mld"])
def test_a_program_that_does_nothing_passes_nothing(tmp_path, implementation):
    kit = kit_for(tmp_path, "sh", "-c", "exec sleep 600", implementation=implementation, jobs=4)
    report = kit.run(daemon_cases.ALL)
    assert "broke off" not in report.text()
    good = [f for f in report.findings() if f.verdict in {Verdict.PASS, Verdict.DIFFERS}]
    assert good == []


def test_every_item_has_a_case_or_a_reason(tmp_path):
    report = kit_for(tmp_path, "true", jobs=4).run(daemon_cases.ALL)
    reasons = {item.id: item.reason for item in load_items()}
    silent = [
        finding.item_id
        for finding in report.findings()
        if finding.verdict is Verdict.NOT_TESTABLE and reasons[finding.item_id] is None
    ]
    # These cases say nothing about items that they do not come to.
    assert set(silent) <= {"CKPT-01", "WIRE-02"} | {f"CKPT-{n:02d}" for n in range(2, 12)} | {
        "PROP-09",
        "LIFE-01",
        "LIFE-13",
        "CFG-13",
        "CFG-14",
        "CFG-32",
        "WIRE-10",
    }


def test_a_case_that_breaks_does_not_hide_the_others(tmp_path):
    def broken(kit):
        yield passed("CLI-01", "seen before")
        raise OSError("no")

    def whole(kit):
        yield judged("CLI-02", ok=True, evidence="seen")

    names = []
    report = kit_for(tmp_path, "true").run([broken, whole], names.append, whole=False)
    assert names == ["broken", "whole"]
    assert [finding.item_id for finding in report.findings()] == ["CLI-01", "CLI-02"]
    assert "broke off: broken: OSError: no" in report.text()
    assert report.exit_status == 1


def test_an_interrupted_run_shows_what_it_saw(tmp_path):
    def whole(kit):
        yield judged("CLI-02", ok=True, evidence="seen")

    def interrupt(name):
        raise KeyboardInterrupt

    report = kit_for(tmp_path, "true").run([whole, whole], interrupt, whole=False)
    assert "interrupted" in report.text()


def test_the_command_needs_its_placeholder(tmp_path):
    with pytest.raises(ValueError, match="needs an argument"):
        DaemonKit(["true"], "java", EmptyCloud(), tmp_path)


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (["env", "daemon", "--properties", "{properties}"], ("env", "daemon")),
        (["daemon", "{properties}"], ("daemon",)),
        (["daemon", "--properties={properties}"], ("daemon",)),
    ],
)
def test_the_program_is_what_stands_before_the_file(tmp_path, command, program):
    kit = DaemonKit(command, "kcl-mld", EmptyCloud(), tmp_path)
    assert kit.program == program


def test_a_relative_program_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(pathlib.Path(sys.executable).parent)
    kit = DaemonKit(["./python", "{properties}"], "kcl-mld", EmptyCloud(), tmp_path)
    assert pathlib.Path(kit.program[0]).is_absolute()


@pytest.mark.parametrize("implementation", ["java", "java-2"])
def test_java_gets_shorter_pauses_and_the_names_of_its_time(tmp_path, implementation):
    kit = kit_for(tmp_path, "true", implementation=implementation)
    usual = kit.usual_properties("app", tmp_path / "script.json")
    assert usual["shardSyncIntervalMillis"] == "1000"
    old = usual["AWSCredentialsProvider"] == "DefaultAWSCredentialsProviderChain"
    assert old is (implementation == "java-2")


def test_signals_and_gates_reach_the_right_ones(tmp_path):
    kit = kit_for(tmp_path, "sh", "-c", "exec sleep 600")
    kit.limits = Limits(60, 60, 60, 60)
    with kit.start("one") as run:
        assert stop(kit, run, signal.SIGINT) == 130
        run.open_gate()
        assert (run.folder / "gate").exists()


def test_two_actions_without_an_answer_between_are_seen(tmp_path):
    (tmp_path / "child-1.jsonl").write_text(
        '{"t": 1, "dir": "start", "what": {}}\n'
        '{"t": 2, "dir": "in", "what": "{\\"action\\":\\"initialize\\"}"}\n'
        '{"t": 3, "dir": "in", "what": "{\\"action\\":\\"leaseLost\\"}"}\n'
        '{"t": 4, "dir": "in"'
    )
    (tmp_path / "child-2.jsonl").write_text("")
    with DaemonRun(["true"], tmp_path, {}) as run:
        assert not in_turn(run)
        assert run.actions() == ["initialize", "leaseLost"]


@pytest.mark.parametrize(
    ("implementation", "as_java", "otherwise", "verdict"),
    [
        ("kcl-mld", True, False, "pass"),
        ("kcl-mld", False, True, "differs"),
        ("kcl-mld", False, False, "fail"),
        ("java", True, False, "pass"),
        ("java", False, True, "fail"),
    ],
)
def test_only_ours_may_do_what_was_decided_otherwise(
    implementation, as_java, otherwise, verdict, tmp_path
):
    kit = DaemonKit(["{properties}"], implementation, None, tmp_path)
    found = kit.decided(
        "CLI-01", as_java=as_java, row="exit-codes", otherwise=otherwise, evidence="seen"
    )
    assert found.verdict == verdict
