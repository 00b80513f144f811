"""What the log says of the ``amazon_kclpy`` that children of a program find."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import sysconfig
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from kcl_mld.children.adapters import kclpy_report
from kcl_mld.children.adapters.child_process import ProcessLauncher
from kcl_mld.children.adapters.kclpy_report import KclpyReport
from kcl_mld.config.config import Kclpy

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process


def put_package(folder: Path) -> Path:
    """A regular package ``amazon_kclpy``, as installers lay it out."""
    (folder / "amazon_kclpy").mkdir(parents=True)
    (folder / "amazon_kclpy" / "__init__.py").touch()
    return folder


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "app" / "program.py"
    path.parent.mkdir()
    path.touch()
    return path


@pytest.fixture
def venv(tmp_path: Path) -> tuple[str, Path]:
    """A fresh interpreter without anything, and its site-packages."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    return str(folder / "bin" / "python"), packages


@pytest.fixture(autouse=True)
def _no_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)


def reported(
    caplog: pytest.LogCaptureFixture, *commands: list[str], kclpy: Kclpy = Kclpy.AUTO
) -> list[str]:
    """What is logged when children of these commands are started, each twice."""
    ordinary = ProcessLauncher(kclpy=kclpy)
    launcher = KclpyReport(ordinary, ordinary)

    async def start() -> None:
        for command in (*commands, *commands):
            child = await launcher.start(command, {"KCL_SHARD_ID": "s"}, lambda _line: None)
            await child.close_stdin()
            await child.wait()
        await launcher.reported()

    with caplog.at_level(logging.INFO, "mld.children"):
        asyncio.run(asyncio.wait_for(start(), 120))
    messages = [record.getMessage() for record in caplog.records]
    return [text.partition("amazon_kclpy for children of ")[2] for text in messages]


def put_msgspec(packages: Path) -> None:
    """What this interpreter has of it, for another one of the same version."""
    (packages / "requirements.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


def test_the_log_says_once_for_a_program_that_it_has_the_stand_in_and_its_decoder(
    venv: tuple[str, Path], program: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = reported(caplog, [venv[0], str(program)], [venv[0], str(program), "again"])
    (text,) = told
    assert text.startswith(f"{program}: the bundled one, which decodes with json (")
    put_msgspec(venv[1])
    caplog.clear()
    told = reported(caplog, [venv[0], "-u", str(program)], kclpy=Kclpy.BUNDLED)
    (text,) = told
    assert text.endswith(
        f"the bundled one, which decodes with msgspec {metadata.version('msgspec')}"
    )


def test_the_log_names_an_installed_one_wherever_the_program_finds_it(
    venv: tuple[str, Path], program: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_package(venv[1])
    put_package(program.parent)
    other = tmp_path / "other.py"
    other.write_text("print('no word that is JSON')")
    link = tmp_path / "link.py"
    link.symlink_to(program)
    env = ["env", f"PYTHONPATH={put_package(tmp_path / 'mine')}"]
    told = reported(
        caplog,
        [venv[0], str(program)],
        [venv[0], str(link)],
        [venv[0], str(other)],
        [*env, venv[0], str(other)],
    )
    assert sorted(text.partition(": ")[2] for text in told) == sorted(
        f"{folder}/amazon_kclpy, which decodes with json"
        for folder in (program.parent, venv[1], tmp_path / "mine")
    )


@pytest.mark.parametrize(
    ("content", "is_old"),
    [
        (("kcl.py", "v2/processor.py"), True),
        (("kcl.py", "v2/processor.py", "v3/processor.py"), False),
    ],
    ids=["1.x", "2.0"],
)
def test_an_installed_one_of_1x_is_a_warning(
    content: tuple[str, ...],
    is_old: bool,
    venv: tuple[str, Path],
    program: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    package = put_package(venv[1]) / "amazon_kclpy"
    for name in content:
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).touch()
    (text,) = reported(caplog, [venv[0], str(program)])
    (record,) = caplog.records
    if is_old:
        assert text.startswith(f"{program}: {package}, whose version is 1.x: ")
        assert text.endswith("(install amazon_kclpy 2 or later, or write kclpy = bundled)")
        assert record.levelno == logging.WARNING
    else:
        assert text == f"{program}: {package}, which decodes with json"
        assert record.levelno == logging.INFO


def test_the_log_says_where_none_is_found_and_where_nothing_is_known(
    venv: tuple[str, Path], program: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "python3.0"
    broken.write_text("#!/bin/sh\necho nothing\n")
    broken.chmod(0o755)
    spark = tmp_path / "kcl-mld-spark"
    spark.symlink_to(broken)
    told = reported(
        caplog,
        [venv[0], "-I", str(program)],
        ["cat"],
        [str(broken), str(program)],
        [str(spark), "app.py"],
    )
    assert sorted(told) == sorted(
        [
            f"{program}: none is found",
            "cat: unknown, as it is no Python script",
            f"{program}: unknown, as its interpreter does not tell",
        ]
    )


def test_an_interpreter_that_does_not_answer_is_given_up(
    program: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "python3.0"
    slow.write_text('#!/bin/sh\n[ "$1" = -c ] && exec sleep 1000\n')
    slow.chmod(0o755)
    monkeypatch.setattr(kclpy_report, "ANSWER_S", 0.2)
    told = reported(caplog, [str(slow), str(program)])
    assert told == [f"{program}: unknown, as its interpreter does not tell"]
