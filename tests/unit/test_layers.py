"""The layers hold, and the check that says so refuses what it must refuse."""

import os
import pathlib
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


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        (
            "mld.model.lease",
            "import mld.ports.clock",
            "mld.model is not allowed to import mld.ports",
        ),
        ("mld.decide.taking", "import asyncio", "mld.decide is not allowed to import asyncio"),
        ("mld.decide.taking", "import mld.services.wakeup", "mld.decide is not allowed to import"),
        (
            "mld.services.leases.lease_taker",
            "import mld.adapters.aws.clients",
            "mld.services is not allowed",
        ),
        (
            "mld.adapters.aws.clients",
            "import mld.app",
            "mld.adapters is not allowed to import mld.app",
        ),
        (
            "mld.model.spark_settings",
            "import mld.spark.config",
            "mld.model is not allowed to import mld.spark",
        ),
        ("mld.model.lease", "import protocol.codec", "mld.model is not allowed to import protocol"),
        ("mld.errors", "import mld.model.lease", "mld.errors is not allowed to import mld.model"),
        (
            "mld.simulate.fleet",
            "import mld.services.wakeup",
            "mld.simulate is not allowed to import mld.services",
        ),
        ("mld.simulate.fleet", "import time", "mld.simulate is not allowed to import time"),
        ("mld.app.wiring", "import mld.spark.host", "mld.app is not allowed to import mld.spark"),
        (
            "mld.cli.properties",
            "import mld.spark.config",
            "mld.cli is not allowed to import mld.spark",
        ),
        (
            "mld.spark.config",
            "import mld.services.wakeup",
            "mld.spark is not allowed to import mld.services",
        ),
        ("protocol.codec", "import socket", "protocol.codec is not allowed to import socket"),
        ("protocol.child", "import mld.errors", "protocol is not allowed to import mld"),
    ],
)
def test_a_planted_violation_is_refused(copy, module, line, complaint):
    plant(copy, module, line)
    code, report = check(copy)
    assert code != 0
    assert complaint in report
    assert "0 broken" not in report
