"""The suites of protocol and daemon on the oldest and the newest Python: ``make test-pythons``.

Looks for interpreters on the ``PATH`` and in pyenv's folder, makes an environment of each of the
two in ``.cache`` and runs everything but Spark there. Says so where there is only one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.interpreter import OLDEST

ROOT = Path(__file__).resolve().parents[1]
#: What needs pyspark or pyarrow, which the Python of tomorrow may not have yet.
SPARK = ("tests/spark", "tests/sim_spark", "tests/unit/spark", "tests/unit/test_demo.py")
#: Checked once, under any Python: style and layers of the source.
STATIC = ("tests/unit/test_layers.py",)
NEWEST_TRIED = 30
_ASK = (
    "import sys, ensurepip, venv;"
    "print(*sys.version_info[:3], int(sys.version_info.releaselevel != 'final'))"
)


class Interpreter(NamedTuple):
    """A Python that can make environments."""

    version: tuple[int, ...]
    path: str

    @property
    def name(self) -> str:
        """``3.11.2``."""
        return ".".join(map(str, self.version))


def candidates(environ: dict[str, str]) -> list[str]:
    """Paths of executables that may be interpreters."""
    names = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST_TRIED)]
    folders = [*environ.get("PATH", "").split(os.pathsep)]
    found = [shutil.which(name, path=folder) for folder in folders for name in names]
    pyenv = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME", "/")) / ".pyenv")
    return [sys.executable, *filter(None, found), *map(str, pyenv.glob("versions/*/bin/python"))]


def ask(path: str) -> Interpreter | None:
    """What is there; None = nothing that can be used, or no final release."""
    try:
        asked = subprocess.run(
            [path, "-c", _ASK], capture_output=True, text=True, timeout=60, check=True
        )
        *version, unfinished = map(int, asked.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    if unfinished or tuple(version) < OLDEST:
        return None
    return Interpreter(tuple(version), path)


def ends(found: list[Interpreter]) -> list[Interpreter]:
    """The oldest and the newest; one if all are of one version."""
    by_version = {each.version: each for each in sorted(found, reverse=True)}
    return [by_version[version] for version in sorted({min(by_version), max(by_version)})]


def run(interpreter: Interpreter, arguments: list[str]) -> int:
    """Make its environment if there is none yet, and run the suites; pytest's exit code."""
    folder = ROOT / ".cache" / f"python-{interpreter.name}"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if not stamp.exists() or stamp.stat().st_mtime < (ROOT / "setup.cfg").stat().st_mtime:
        subprocess.run([interpreter.path, "-m", "venv", "--clear", folder], check=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "--editable", ".[local,schemas,test]"], cwd=ROOT, check=True)
        stamp.touch()
    workers = str(max(2, os.cpu_count() or 2))
    left_out = [f"--ignore={path}" for path in (*SPARK, *STATIC)]
    command = [python, "-m", "pytest", "-n", workers, "--dist", "loadgroup", *left_out]
    print(f"+ Python {interpreter.name}:", *map(str, command[1:]), *arguments, flush=True)
    return subprocess.call([*command, *arguments], cwd=ROOT)


def main(arguments: list[str]) -> int:
    """Exit code: of the first run that failed. The arguments are pytest's."""
    found = [each for each in map(ask, dict.fromkeys(candidates(dict(os.environ)))) if each]
    chosen = ends(found)
    if len(chosen) == 1:
        print(f"Only Python {chosen[0].name} is here: there is no other to run the suites on.")
        return 0
    codes = [run(each, arguments) for each in chosen]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
