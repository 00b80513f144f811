"""Which interpreters can be used, and what is said of the others."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import pythons
from tests.interpreter import missing
from tests.pythons import Interpreter, ask, candidates, ends

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("version", "lacking", "debian", "said"),
    [
        ((3, 11, 2), (), True, None),
        ((3, 14, 0), (), False, None),
        ((3, 9, 18), (), True, "Python 3.9 is too old: Python 3.11 or newer is needed."),
        ((2, 7, 18), ("venv", "ensurepip"), False, "make PYTHON=python3.13"),
        ((3, 11, 2), ("ensurepip",), True, "Install it first: apt-get install python3.11-venv"),
        ((3, 12, 1), ("venv", "ensurepip"), False, "is here without venv and ensurepip"),
    ],
)
def test_what_an_interpreter_lacks_is_one_sentence_with_the_remedy(version, lacking, debian, said):
    found = missing(version, lambda name: name not in lacking, debian)
    assert found is None if said is None else said in found


def test_make_asks_before_it_makes_an_environment():
    told = subprocess.run(
        ["make", "--dry-run", "--always-make", "check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()
    asked = next(i for i, line in enumerate(told) if "tests/interpreter.py" in line)
    assert "-m venv" in told[asked + 1]


def python(version):
    return Interpreter(version, f"/{version}")


def test_the_oldest_and_the_newest_are_taken_once():
    found = [python((3, 13, 0)), python((3, 11, 7)), python((3, 11, 2)), python((3, 13, 0))]
    assert [each.name for each in ends(found)] == ["3.11.2", "3.13.0"]
    assert [each.name for each in ends(found[:1])] == ["3.13.0"]


def test_pyenv_and_the_path_are_looked_through(tmp_path):
    for name in ("path/python3.12", "path/python3.9", "pyenv/versions/3.13.0/bin/python"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(0o700)
    found = candidates({"PATH": str(tmp_path / "path"), "PYENV_ROOT": str(tmp_path / "pyenv")})
    assert found == [
        sys.executable,
        str(tmp_path / "path/python3.12"),
        str(tmp_path / "pyenv/versions/3.13.0/bin/python"),
    ]


def test_an_interpreter_tells_its_version():
    assert ask(sys.executable) == Interpreter(sys.version_info[:3], sys.executable)


@pytest.mark.parametrize(
    "told", ["3 14 0 1", "3 10 9 0", "", "pyenv: python3.12: command not found"]
)
def test_what_is_unfinished_or_too_old_or_no_python_is_left_out(told, tmp_path):
    (tmp_path / "python").write_text(f"#!{shutil.which('sh')}\necho '{told}'\n")
    (tmp_path / "python").chmod(0o700)
    assert ask(str(tmp_path / "python")) is None
    assert ask(str(tmp_path / "nothing")) is None


def test_the_only_one_is_said_to_be_the_only_one(monkeypatch, capsys):
    monkeypatch.setattr(pythons, "candidates", lambda environ: [sys.executable])
    assert pythons.main([]) == 0
    version = ".".join(map(str, sys.version_info[:3]))
    assert capsys.readouterr().out.startswith(f"Only Python {version} is here")
