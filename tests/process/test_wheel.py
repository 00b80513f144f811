"""The wheel holds everything, and works where the checkout is not."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata

import pytest

pytestmark = pytest.mark.process

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

class Quiet(processor.RecordProcessorBase):
    def initialize(self, start): pass
    def process_records(self, batch): pass
    def lease_lost(self, lost): pass
    def shard_ended(self, ended): ended.checkpointer.checkpoint()
    def shutdown_requested(self, asked): pass

kcl.KCLProcess(Quiet()).run()
"""
PROPERTIES = """\
executableName = ./app.py
applicationName = app
streamName = orders
AwsCredentialsProvider = DefaultCredentialsProvider
regionName = us-east-1
retrievalMode = POLLING
"""


def run(*command: object, folder: pathlib.Path) -> str:
    """Standard output of a command that must succeed."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=folder,
        env=environ,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Built from a copy of the checkout, which stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    listed = run("git", "ls-files", "-z", folder=ROOT).split("\0")[:-1]
    for name in listed:
        if (ROOT / name).is_file():  # not one that is being removed
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    # Without a setuptools that is new enough pip gets one.
    has_backend = int(metadata.version("setuptools").partition(".")[0]) >= 77
    options = ["--no-build-isolation"] if has_backend else []
    run(*pip, "wheel", "--no-deps", *options, "-w", folder, copy, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: pathlib.Path) -> pathlib.Path:
    """Folder of the scripts of a fresh environment: the wheel, and what it requires."""
    venv = wheel.parent / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, folder=wheel.parent)
    python = venv / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, folder=wheel.parent)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = pathlib.Path(run(python, "-c", where, folder=wheel.parent).strip())
    # An editable installation there is not seen from here.
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def test_every_file_of_the_packages_is_in_the_wheel(wheel):
    tracked = run("git", "ls-files", "-z", "mld", "protocol", folder=ROOT).split("\0")[:-1]
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name for name in tracked if (ROOT / name).exists()} - names == set()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_license_is_the_one_that_is_named():
    assert (ROOT / "LICENSE").read_text().split("\n\n")[0].split() == [
        *("Apache", "License", "Version", "2.0,", "January", "2004"),
        "http://www.apache.org/licenses/",
    ]
    assert "license = Apache-2.0\nlicense_files = LICENSE\n" in (ROOT / "setup.cfg").read_text()


def test_the_commands_run_from_the_wheel(installed, tmp_path):
    where = run(installed / "python", "-c", "import mld; print(mld.__file__)", folder=tmp_path)
    assert pathlib.Path(where.strip()).is_relative_to(installed.parent)
    assert run(installed / "kcl-mld", "--version", folder=tmp_path).startswith("kcl-mld, version")
    (tmp_path / "app.py").write_text(f"#!{installed}/python\n{PROGRAM}")
    (tmp_path / "app.py").chmod(0o755)
    (tmp_path / "app.properties").write_text(PROPERTIES)
    said = run(installed / "kcl-mld", "validate", "app.properties", folder=tmp_path)
    assert said.startswith("app.properties: nothing to complain about\n")
    assert "| `streamName` |" in run(installed / "kcl-mld", "properties", folder=tmp_path)


def test_a_kclpy_program_finds_the_stand_in_of_the_wheel(installed, tmp_path):
    (tmp_path / "app.py").write_text(PROGRAM)
    command = (installed / "kcl-mld", "conform", "child", "--", installed / "python", "app.py")
    assert " 0 fail, " in run(*command, folder=tmp_path)
