"""The wheel holds everything, and works where the checkout is not."""

from __future__ import annotations

import pathlib
import sys
import zipfile

import pytest

from tests.checkout import ROOT, run, tracked

pytestmark = pytest.mark.process

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


def test_every_file_of_the_packages_is_in_the_wheel(wheel):
    listed = {f"kcl_{name}" for name in tracked("mld")}
    listed |= {f"kcl_mld_{name}" for name in tracked("protocol")}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert listed - names == set()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        "kcl_mld",
        "kcl_mld_protocol",
    }
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_alerts_dashboard_and_samples_are_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    shared = {name.partition(".data/data/share/kcl-mld/")[2] for name in names}
    assert set(tracked("properties", "sample_apps")) - shared == set()
    manifests = tracked("packaging/ecs", "packaging/kubernetes", "packaging/systemd")
    assert {name.removeprefix("packaging/") for name in manifests} - shared == set()


def test_the_license_is_the_one_that_is_named():
    assert (ROOT / "LICENSE").read_text().split("\n\n")[0].split() == [
        *("Apache", "License", "Version", "2.0,", "January", "2004"),
        "http://www.apache.org/licenses/",
    ]
    assert "license = Apache-2.0\nlicense_files = LICENSE\n" in (ROOT / "setup.cfg").read_text()


def test_the_commands_run_from_the_wheel(installed, tmp_path):
    where = run(
        installed / "python", "-c", "import kcl_mld; print(kcl_mld.__file__)", folder=tmp_path
    )
    assert pathlib.Path(where.strip()).is_relative_to(installed.parent)
    assert run(installed / "kcl-mld", "--version", folder=tmp_path).startswith("kcl-mld, version")
    (tmp_path / "app.py").write_text(f"#!{installed}/python\n{PROGRAM}")
    (tmp_path / "app.py").chmod(0o755)
    (tmp_path / "app.properties").write_text(PROPERTIES)
    said = run(installed / "kcl-mld", "validate", "app.properties", folder=tmp_path)
    assert said.startswith("app.properties: no errors or warnings\n")
    assert "| `streamName` |" in run(installed / "kcl-mld", "properties", folder=tmp_path)


def required(wheel, extra):
    """What the wheel requires for an extra alone."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    marked = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    return [one.partition(";")[0] for one in marked if one.endswith(f'extra == "{extra}"')]


def test_the_extra_of_children_is_msgspec_alone(wheel):
    assert required(wheel, "child") == ["msgspec>=0.18"]


@pytest.mark.proof
def test_a_child_with_an_environment_of_its_own_decodes_with_the_oldest_and_the_newest_msgspec(
    wheel, installed, tmp_path
):
    """Its interpreter has that package alone; the stand-in is that of the daemon."""
    (requirement,) = required(wheel, "child")
    (tmp_path / "app.py").write_text(PROGRAM)
    decoder = "from amazon_kclpy.batch_decoder import NAME; print(NAME)"
    oldest = requirement.replace(">=", "==") + ".0"
    for name, version in (("oldest", oldest), ("newest", requirement)):
        venv = tmp_path / name
        run(sys.executable, "-m", "venv", "--without-pip", venv, folder=tmp_path)
        python = venv / "bin" / "python"
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        run(*pip, "--python", python, "install", version, folder=tmp_path)
        where = run(
            installed / "python",
            "-c",
            "import kcl_mld; print(kcl_mld.__path__[0])",
            folder=tmp_path,
        )
        path = f"PYTHONPATH={where.strip()}/shim"
        assert run("env", path, python, "-c", decoder, folder=tmp_path).startswith("msgspec ")
        command = (installed / "kcl-mld", "conform", "child", "--", python, "app.py")
        assert " 0 fail, " in run(*command, folder=tmp_path)


def test_a_kclpy_program_finds_the_stand_in_of_the_wheel(installed, tmp_path):
    (tmp_path / "app.py").write_text(PROGRAM)
    command = (installed / "kcl-mld", "conform", "child", "--", installed / "python", "app.py")
    assert " 0 fail, " in run(*command, folder=tmp_path)
