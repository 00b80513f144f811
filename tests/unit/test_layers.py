"""The layers hold, and the check that says so refuses what it must refuse."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(tmp_path):
    """The packages and the contracts, to be spoilt."""
    for package in ("mld", "protocol"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    return tmp_path


def check(folder):
    """Exit code and report of import-linter on the packages in a folder."""
    # -P and PYTHONPATH: the copy is looked at, wherever the checkout is installed.
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "--no-cache"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def plant(folder, module, line):
    """Add an import to a module of the copy."""
    path = folder.joinpath(*module.split(".")).with_suffix(".py")
    before, future, after = path.read_text("utf-8").partition("annotations\n")
    assert future
    path.write_text(f"{before}{future}{line}\n{after}", "utf-8")


def test_the_layers_hold(copy):
    code, report = check(copy)
    assert code == 0, report
    assert "0 broken" in report


#: Module, import that is planted in it, who must not import what.
VIOLATIONS = [
    ("mld.model.leases.lease", "mld.ports.clock", "mld.model", "mld.ports"),
    ("mld.decide.leases.taking", "asyncio", "mld.decide", "asyncio"),
    ("mld.decide.leases.taking", "mld.services.wakeup", "mld.decide", "mld.services"),
    ("mld.services.leases.lease_taker", "mld.adapters.aws.clients", "mld.services", "mld.adapters"),
    ("mld.adapters.aws.clients", "mld.app", "mld.adapters", "mld.app"),
    ("mld.model.spark.settings", "mld.spark.config", "mld.model", "mld.spark"),
    ("mld.model.leases.lease", "protocol.codec", "mld.model", "protocol"),
    ("mld.errors", "mld.model.leases.lease", "mld.errors", "mld.model"),
    ("mld.simulate.fleet", "mld.services.wakeup", "mld.simulate", "mld.services"),
    ("mld.simulate.fleet", "time", "mld.simulate", "time"),
    ("mld.app.wiring", "mld.spark.host", "mld.app", "mld.spark"),
    ("mld.cli.properties", "mld.spark.config", "mld.cli", "mld.spark"),
    ("mld.spark.config", "mld.services.wakeup", "mld.spark", "mld.services"),
    ("protocol.codec", "socket", "protocol.codec", "socket"),
    ("protocol.child", "mld.errors", "protocol", "mld"),
]


def test_planted_violations_are_refused(copy):
    """All at once, as a look at all modules takes seconds; each is in the report with its line."""
    for module, imported, _importer, _forbidden in VIOLATIONS:
        plant(copy, module, f"import {imported}")
    code, report = check(copy)
    assert code != 0
    chains = report.partition("Broken contracts")[2]
    for module, imported, importer, forbidden in VIOLATIONS:
        complaint = f"{importer} is not allowed to import {forbidden}:"
        (_, *found) = chains.split(complaint)
        told = [each.partition("is not allowed to import")[0] for each in found]
        planted = re.compile(
            rf"^- +{re.escape(module)} -> {re.escape(imported)} \(l\.\d+\)", re.MULTILINE
        )
        assert any(planted.search(each) for each in told), f"{complaint} is not in {report}"
