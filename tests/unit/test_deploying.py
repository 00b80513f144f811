"""The unit for systemd: valid, and what it says twice is the same."""

import re
import shutil
import subprocess

import pytest

from tests.markdown_pages import ROOT

UNIT = ROOT / "packaging" / "systemd" / "kcl-mld@.service"
#: The default of ``shutdownGraceMillis``, and what a stop may take beyond it.
STOP_S = 20 + 10
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze")


def settings():
    """Key -> value of the unit; no key is there twice."""
    lines = re.findall(r"(?m)^(\w+)=(.*)$", UNIT.read_text("utf-8"))
    assert len(dict(lines)) == len(lines)
    return dict(lines)


def complaints(text, folder):
    """What systemd says of a unit with this text, whose program is there."""
    program = folder / "kcl-mld"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = folder / "kcl-mld@orders.service"
    unit.write_text(text.replace("/opt/kcl-mld/bin/kcl-mld", str(program)))
    done = subprocess.run(
        [ANALYZE, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    # It reads the units of the machine, too.
    return [line for line in done.stderr.splitlines() if unit.name in line]


@needs_systemd
def test_systemd_accepts_the_unit(tmp_path):
    assert complaints(UNIT.read_text("utf-8"), tmp_path) == []


@needs_systemd
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("KillMode=mixed", "KillMode=main"),
        ("WatchdogSec=", "WatchdogSeconds="),
        ("RestartPreventExitStatus=2 5", "RestartPreventExitStatus=2 a"),
        ("ExecStart=/opt", "ExecStart=/optional"),
    ],
)
def test_a_fault_in_the_unit_is_seen(old, new, tmp_path):
    text = UNIT.read_text("utf-8")
    assert old in text
    assert complaints(text.replace(old, new), tmp_path)


def test_the_unit_stops_and_restarts_as_the_page_on_supervision_says():
    unit = settings()
    assert int(unit["TimeoutStopSec"]) == STOP_S
    assert (unit["KillMode"], unit["Type"], unit["Restart"]) == ("mixed", "notify", "on-failure")
    rules = re.search(
        r"Restart on failure, except on exit codes (\d) and (\d)",
        (ROOT / "docs/supervising.md").read_text("utf-8"),
    )
    assert unit["RestartPreventExitStatus"].split() == list(rules.groups())
