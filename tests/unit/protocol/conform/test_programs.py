"""The programs of the kit, in this process."""

from __future__ import annotations

import json
import os
import runpy
import sys
import types
from contextlib import closing

import pytest

from kcl_mld_protocol import Initialize, LeaseLost, ProcessRecords, Record, encode
from kcl_mld_protocol.conform import __main__ as program, child, scripted_child
from kcl_mld_protocol.conform.child import ChildKit
from kcl_mld_protocol.conform.daemon import SCRIPTED_CHILD
from kcl_mld_protocol.conform.report import Report, failed, items_by_id, passed

BATCH = encode(ProcessRecords((Record("", "k", "7", 1), Record("", "k", "9", 1)), 0))


def play(tmp_path, actions, *lines):
    into, out = os.pipe(), os.pipe()
    os.write(into[1], b"".join(lines))
    os.close(into[1])
    child = scripted_child.Child({"record": str(tmp_path), "actions": actions}, into[0], out[1])
    try:
        with closing(child._log):
            child.run()
    finally:
        os.close(into[0])
        os.close(out[1])
    with open(out[0], "rb") as said:
        return said.read().decode().splitlines()


def test_a_scripted_child_says_what_its_script_says(tmp_path, capsys):
    (tmp_path / "gate").touch()
    steps = [
        ["gate"],
        ["sleep", 0],
        ["stderr", "oops"],
        ["write", "text\n"],
        ["checkpoint", "$first", None],
        ["checkpoint", "$last", 1],
        ["checkpoint", "$above", None],
        ["checkpoint", None, None],
        ["silence", 0],
        ["status", "other"],
    ]
    answer = b'{"action":"checkpoint"}\n'
    said = play(tmp_path, {"processRecords": [steps]}, BATCH, *[answer] * 4, encode(LeaseLost()))
    asked = [json.loads(line)["sequenceNumber"] for line in said[1:5]]
    assert (said[0], asked) == ("text", ["7", "9", "10", None])
    assert json.loads(said[5])["responseFor"] == "other"
    assert capsys.readouterr().err == "oops\n"


def test_the_end_of_stdin_can_be_played_too(tmp_path):
    said = play(tmp_path, {"eof": [[["write", "bye\n"]]]}, encode(Initialize("s", "1", 0)))
    assert said[-1] == "bye"


def test_a_scripted_child_can_exit_and_waits_at_its_gate(tmp_path, monkeypatch):
    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(scripted_child.time, "sleep", lambda _: (tmp_path / "gate").touch())
    with pytest.raises(SystemExit) as ended:
        play(tmp_path, {"leaseLost": [[["gate"], ["exit", 3]]]}, encode(LeaseLost()))
    assert ended.value.code == 3


def test_a_step_that_nobody_knows_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="bogus"):
        play(tmp_path, {"leaseLost": [[["bogus"]]]}, encode(LeaseLost()))


def test_silence_is_noted(tmp_path):
    into, out = os.pipe(), os.pipe()
    child = scripted_child.Child({"record": str(tmp_path), "actions": {}}, into[0], out[1])
    with closing(child._log):
        assert child._read_line(0) is None
    record = next(tmp_path.glob("child-*.jsonl")).read_text()
    assert '"silence"' in record
    for descriptor in (*into, *out):
        os.close(descriptor)


def test_the_kit_for_children_runs_without_the_daemon(tmp_path, capsys):
    path = tmp_path / "report.json"
    options = ["child", "--timeout-s", "20", "--json", str(path), "--", "true"]
    assert program.main(options) == 1
    shown = capsys.readouterr()
    assert "CHILD-01" in shown.out
    assert "life of a lease" in shown.err
    assert json.loads(path.read_text())["totals"]["fail"] > 0


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e10", "86401", "soon"])
def test_a_time_that_cannot_be_waited_for_is_an_error_of_usage(capsys, seconds):
    with pytest.raises(SystemExit) as ended:
        program.main(["child", f"--timeout-s={seconds}", "--", "true"])
    assert ended.value.code == 2
    assert "is not a number of seconds above 0 and up to 86400" in capsys.readouterr().err


def test_a_place_of_the_report_that_does_not_exist_is_told_before_the_child_runs(tmp_path, capsys):
    path = tmp_path / "missing" / "report.json"
    with pytest.raises(SystemExit) as ended:
        program.main(["child", "--json", str(path), "--", "true"])
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert f"{path}: the folder does not exist" in shown.err
    assert not shown.out


@pytest.mark.parametrize(("finding", "status"), [(passed, 0), (failed, 1)])
def test_the_exit_status_of_the_program_says_whether_something_failed(
    monkeypatch, capsys, finding, status
):
    def run(kit, progress):
        progress("a case")
        report = Report([items_by_id()["CHILD-01"]])
        report.add(finding("CHILD-01", "seen"))
        return report

    monkeypatch.setattr(ChildKit, "run", run)
    monkeypatch.setattr(sys, "argv", ["conform", "child", "--", "true"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(program.__file__, run_name="__main__")
    assert ended.value.code == status
    shown = capsys.readouterr()
    assert shown.err == "a case\n"
    assert shown.out.startswith("CHILD-01")


class Refused(Exception):
    value = "X"


def probe_of(monkeypatch, version):
    kcl = types.SimpleNamespace(CheckpointError=Refused)
    monkeypatch.setitem(sys.modules, "amazon_kclpy", types.SimpleNamespace(kcl=kcl))
    monkeypatch.setenv("PROBE_VERSION", version)
    path = SCRIPTED_CHILD.with_name("kclpy_probe.py")
    return runpy.run_path(str(path))["Processor"]()


class Checkpointer:
    def __init__(self, error=None):
        self.error = error

    def checkpoint(self):
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_the_probe_obeys_records_in_every_version(monkeypatch, capsys, version):
    probe = probe_of(monkeypatch, version)
    probe.initialize(None)
    orders = [types.SimpleNamespace(binary_data=data) for data in (b"other", b"checkpoint")]
    batch = types.SimpleNamespace(records=orders, checkpointer=Checkpointer(Refused("X")))
    if version == "1":
        probe.process_records(orders, batch.checkpointer)
    else:
        probe.process_records(batch)
    assert "CheckpointError value='X'" in capsys.readouterr().err
    batch.records[:] = [types.SimpleNamespace(binary_data=b"raise")]
    with pytest.raises(ValueError, match="as ordered"):
        probe.process_records(batch.records if version == "1" else batch, batch.checkpointer)


def test_the_probe_tells_how_a_lease_ends(monkeypatch, capsys):
    end = types.SimpleNamespace(checkpointer=Checkpointer(), reason="ZOMBIE")
    probe = probe_of(monkeypatch, "2")
    probe.lease_lost(end)
    probe.shard_ended(end)
    probe.shutdown_requested(end)
    probe.shutdown(end)
    probe_of(monkeypatch, "1").shutdown(Checkpointer(), "TERMINATE")
    said = capsys.readouterr().err
    assert "reason=ZOMBIE" in said
    assert "reason=TERMINATE" in said
    assert said.count("checkpoint stored") == 3


def test_items_of_kclpy_need_its_probe(tmp_path):
    kit = ChildKit(["true"], "kclpy", 20.0)
    found = [finding for case in child.KCLPY_CASES for finding in case(kit)]
    assert "pass" not in {f.verdict.value for f in found if f.item_id != "PY-12"}
