"""The conformance kit against this package's own daemon and child runner, as a user runs it."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest

import mld
from protocol.conform import items

pytestmark = pytest.mark.process

ROOT = pathlib.Path(mld.__file__).parent.parent
PROBE = ROOT / "protocol/conform/kclpy_probe.py"
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
        timeout=900,
        check=False,
        cwd=ROOT,
    )
    assert report.exists(), done.stderr
    found = json.loads(report.read_text())
    return done, {finding["item"]: finding["verdict"] for finding in found["findings"]}


def test_our_daemon_fails_nothing_and_differs_only_where_the_docs_say_so(tmp_path):
    daemon = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "mld"]
    done, verdicts = conform(
        tmp_path,
        *("daemon", "--jobs", "4", "--baseline", "java-3.1.3"),
        *("--", *daemon, "--properties", "{properties}"),
    )
    assert done.returncode == 0, done.stdout
    for item in ("WIRE-01", "WIRE-02", "WIRE-03", "WIRE-13", "CKPT-01", "CKPT-10", "SHUT-08"):
        assert verdicts[item] == "pass", done.stdout
    assert verdicts["SHUT-03"] == "differs"
    assert "java-3.1.3" in done.stdout.splitlines()[0]
    table = (ROOT / "docs/differences.md").read_text("utf-8")
    known = set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))
    report = json.loads((tmp_path / "report.json").read_text())
    assert {finding.get("row") for finding in report["findings"]} - {None} <= known
    unjudged = {item for item, verdict in verdicts.items() if verdict == "not testable"}
    reasons = {item.id for item in items.load() if item.reason}
    assert unjudged - reasons == {"CFG-13", "CFG-14", "CFG-32"}


def test_a_child_on_our_runner_passes(tmp_path):
    program = tmp_path / "app.py"
    program.write_text(CHILD)
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, str(program)]
    done, verdicts = conform(tmp_path, "child", "--", *command)
    assert done.returncode == 0, done.stdout
    assert verdicts["CHILD-01"] == "pass"
    assert "fail" not in verdicts.values()


def test_the_library_for_kclpy_programs_does_as_kclpy(tmp_path):
    command = ["env", f"PYTHONPATH={ROOT / 'mld/shim'}:{ROOT}", sys.executable, str(PROBE)]
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
        [sys.executable, "-m", "mld", "conform", "daemon", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert said in done.stderr
