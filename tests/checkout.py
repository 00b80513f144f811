"""The checkout: its files, a copy of it, and programs that know nothing of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(*command: object, folder: Path) -> str:
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


def tracked(*places: str) -> list[str]:
    """The files of the checkout, or of some of its folders, that are not being removed."""
    listed = run("git", "ls-files", "-z", *places, folder=ROOT).split("\0")[:-1]
    return [name for name in listed if os.path.lexists(ROOT / name)]


def copy_checkout(folder: Path) -> Path:
    """Copy every file of the checkout into a new folder, which is returned."""
    for name in tracked():
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy, follow_symlinks=False)
    return folder
