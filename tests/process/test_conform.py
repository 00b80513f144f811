"""The conformance kit against this package's own daemon and child runner, as a user runs it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from kcl_mld_protocol.conform.report import load_items
from tests.kclpy_cache import kclpy

pytestmark = pytest.mark.process

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: What imports our packages needs it on its path.
SOURCE = ROOT / "src"
#: Where console scripts are found by their names, as a user types them.
PATH = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
PROBE = ROOT / "protocol/conform/kclpy_probe.py"
CHILD = """
from kcl_mld_protocol import child

class Quiet(child.RecordProcessor):
    def process_records(self, batch):
        pass

child.run(Quiet())
"""
#: The command, whose own lines are traced, but not those of the AWS and the daemons that it starts.
ALONE = """
import os

for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
    os.environ.pop(name, None)

from kcl_mld.cli import main

main()
"""


def conform(tmp_path, *arguments, program=("-m", "kcl_mld")):
    report = tmp_path / "report.json"
    done = subprocess.run(
        [
            *(sys.executable, *program, "conform"),
            *arguments[:1],
            "--json",
            str(report),
            *arguments[1:],
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PATH": PATH},
    )
    assert report.exists(), done.stderr
    found = json.loads(report.read_text())
    return done, {finding["item"]: finding["verdict"] for finding in found["findings"]}


def test_our_daemon_fails_nothing_and_differs_only_where_the_docs_say_so(tmp_path):
    done, verdicts = conform(
        tmp_path,
        *("daemon", "--jobs", "4", "--baseline", "java-3.1.3"),
        *("--", "kcl-mld", "--properties", "{properties}"),
        program=("-c", ALONE),
    )
    assert done.returncode == 0, done.stdout
    for item in ("WIRE-01", "WIRE-02", "WIRE-03", "WIRE-13", "CKPT-01", "CKPT-10", "SHUT-08"):
        assert verdicts[item] == "pass", done.stdout
    assert verdicts["SHUT-03"] == "differs"
    assert "java-3.1.3" in done.stdout.splitlines()[0]
    table = (ROOT / "docs/differences.md").read_text("utf-8")
    known = set(re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE))
    report = json.loads((tmp_path / "report.json").read_text())
    assert {finding.get("row") for finding in report["findings"]} - {None} <= known
    unjudged = {item for item, verdict in verdicts.items() if verdict == "not testable"}
    reasons = {item.id for item in load_items() if item.reason}
    assert unjudged - reasons == {"CFG-13", "CFG-14", "CFG-32"}


KCLPY_CHILD = """
import os, sys
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

class Quiet(processor.RecordProcessorBase):
    def initialize(self, start): print("for", os.environ["KCL_SHARD_ID"], file=sys.stderr)
    def process_records(self, batch): pass
    def lease_lost(self, lost): pass
    def shard_ended(self, ended): ended.checkpointer.checkpoint()
    def shutdown_requested(self, asked): asked.checkpointer.checkpoint()

kcl.KCLProcess(Quiet()).run()
"""


@pytest.mark.parametrize("options", [[], ["--verbose"]], ids=["quiet", "verbose"])
def test_a_kclpy_program_runs_as_under_the_daemon_with_the_stand_in(tmp_path, options):
    program = tmp_path / "app.py"
    program.write_text(KCLPY_CHILD)
    done, verdicts = conform(tmp_path, "child", *options, "--", sys.executable, str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdicts["CHILD-10"] == "pass"
    assert ("for shardId-000000000000\n" in done.stderr) is bool(options)


def test_a_child_that_fails_is_shown_with_its_last_words(tmp_path):
    program = tmp_path / "app.py"
    program.write_text("import no_such_module\n")
    done, verdicts = conform(tmp_path, "child", "--", sys.executable, str(program))
    assert done.returncode == 1
    assert verdicts["CHILD-01"] == "fail"
    assert done.stdout.count("No module named 'no_such_module'") == 1
    assert "stderr of the child in: life of a lease, " in done.stdout


def test_a_program_that_is_not_there_is_said_to_be(tmp_path):
    (tmp_path / "app.py").touch()
    command = [sys.executable, "-m", "kcl_mld", "conform", "child", "--", "app.py"]
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env=environ
    )
    assert done.returncode == 2
    assert done.stderr.startswith("app.py is not found in PATH (./app.py is here: write ")


def test_a_child_on_our_runner_passes(tmp_path):
    program = tmp_path / "app.py"
    program.write_text(CHILD)
    command = ["env", f"PYTHONPATH={SOURCE}", sys.executable, str(program)]
    done, verdicts = conform(tmp_path, "child", "--", *command)
    assert done.returncode == 0, done.stdout
    assert verdicts["CHILD-01"] == "pass"
    assert "fail" not in verdicts.values()


@pytest.mark.parametrize("library", ["stand-in", "stand-in without msgspec", "amazon_kclpy"])
def test_the_library_for_kclpy_programs_does_as_kclpy(tmp_path, library):
    path = SOURCE / "kcl_mld/shim"
    if library == "amazon_kclpy" and (path := kclpy()) is None:
        pytest.skip("amazon_kclpy cannot be fetched here")
    if library == "stand-in without msgspec":
        (tmp_path / "msgspec.py").write_text("raise ImportError\n")
        path = f"{tmp_path}:{path}"
    command = ["env", f"PYTHONPATH={path}:{SOURCE}", sys.executable, str(PROBE)]
    done, verdicts = conform(tmp_path, "child", "--implementation", "kclpy", "--", *command)
    assert done.returncode == 0, done.stdout
    assert {v for item, v in verdicts.items() if item.startswith("PY-")} == {"pass"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("true",), "{properties}"),
        (("--only", "nothing like it", "--", "true", "{properties}"), "no case"),
        (("--baseline", "bogus", "--", "true", "{properties}"), "java-3.1.3"),
    ],
)
def test_what_cannot_be_run_is_said(arguments, said):
    done = subprocess.run(
        [sys.executable, "-m", "kcl_mld", "conform", "daemon", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert said in done.stderr
