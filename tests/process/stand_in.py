"""``kcl-mld-java`` for tests: the script that pip makes, and workers that launchers start with it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kcl_mld.ops.rules.java_command import MAIN_CLASS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def program(folder: Path) -> Path:
    """The script in a folder; tests need no newer installation of the checkout."""
    path = folder / "kcl-mld-java"
    path.write_text(f"#!{sys.executable}\nfrom kcl_mld.cli.java import main\nmain()\n")
    path.chmod(0o755)
    return path


def by_shell(command: str) -> Sequence[str]:
    """A launcher for ``Application.start``: a shell command, in which ``$FILE`` is the properties."""
    # What follows are: python -m kcl_mld --properties FILE
    return ("sh", "-c", f'FILE="$5"; export FILE; {command}', "sh")


def java(path: Path | str, words: str = "", main_class: str = MAIN_CLASS) -> Sequence[str]:
    """The same for a command line of ``java`` with options before the main class."""
    return by_shell(f'exec "{path}" {words} {main_class} --properties-file "$FILE"')
