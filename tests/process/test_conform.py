"""The conformance kit against this package's own daemon and child runner, as a user runs it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

import mld

pytestmark = pytest.mark.process

ROOT = pathlib.Path(mld.__file__).parent.parent
CHILD = """
from protocol import child

class Quiet(child.RecordProcessor):
    def process_records(self, batch):
        pass

child.run(Quiet())
"""


def conform(tmp_path, *arguments):
    report = tmp_path / "report.json"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mld",
            "conform",
            *arguments[:1],
            "--json",
            str(report),
            *arguments[1:],
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=ROOT,
    )
    assert report.exists(), done.stderr
    found = json.loads(report.read_text())
    return done, {finding["item"]: finding["verdict"] for finding in found["findings"]}


def test_our_daemon_passes_a_whole_life_and_its_checkpoints(tmp_path):
    daemon = [sys.executable, "-m", "mld", "--properties", "{properties}"]
    sys_path = f"PYTHONPATH={ROOT}"
    done, verdicts = conform(
        tmp_path,
        *("daemon", "--only", "whole_life", "--only", "many_checkpoints"),
        *("--", "env", sys_path, *daemon),
    )
    assert done.returncode == 0, done.stdout
    for item in ("WIRE-01", "WIRE-02", "WIRE-03", "WIRE-13", "CKPT-01", "CKPT-10", "SHUT-08"):
        assert verdicts[item] == "pass", done.stdout
    assert verdicts["SHUT-03"] == "differs"


def test_a_child_on_our_runner_passes(tmp_path):
    program = tmp_path / "app.py"
    program.write_text(CHILD)
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, str(program)]
    done, verdicts = conform(tmp_path, "child", "--", *command)
    assert done.returncode == 0, done.stdout
    assert verdicts["CHILD-01"] == "pass"
    assert "fail" not in verdicts.values()


def test_a_daemon_command_needs_its_placeholder():
    done = subprocess.run(
        [sys.executable, "-m", "mld", "conform", "daemon", "--", "true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert "{properties}" in done.stderr
