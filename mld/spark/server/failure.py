"""Why an embedded server did not start, from what it printed: one clear line where the cause is known.

Pure: lines in, an error out.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from mld.spark.errors import MissingPart, SparkChildError, SparkConfigError, SparkUnreachable
from mld.spark.server.settings import REPOSITORY_VARIABLE

_QUOTED_LINES = 12
_MOST_CHARACTERS = 400
#: Frames of a trace, and nothing.
_NOISE = re.compile(r"\s*(at [\w.$/<>]+\(.*|\.{3} \d+ (more|common frames omitted))?\s*$")
_COORDINATE = re.compile(r"([\w.-]+)#([\w.-]+);([\w.+-]+)")
#: Java's own words before the reason, and after it.
_BEFORE_REASON = "Error occurred during initialization of VM"
_AFTER_REASON = "Could not create the Java Virtual Machine"
_JAVA_REFUSES = "Java refuses an option; see spark.jvm.options and spark.driver.memory"
_WRONG_MASTER = "spark.master is not one that Spark knows"


class _Cause(NamedTuple):
    mark: str
    text: str
    kind: type[SparkChildError]


_CAUSES = (
    _Cause("System memory", "its heap is too small; raise spark.driver.memory", SparkConfigError),
    _Cause(
        "Could not reserve enough space",
        "there is too little memory for spark.driver.memory",
        SparkUnreachable,
    ),
    _Cause("Could not parse Master URL", _WRONG_MASTER, SparkConfigError),
    _Cause("Master must either be", _WRONG_MASTER, SparkConfigError),
    _Cause(
        "All masters are unresponsive",
        "spark.master is no Spark master, or one of another release",
        SparkUnreachable,
    ),
    _Cause(
        "Master removed our application",
        "the cluster cannot run executors; see their logs on its workers",
        SparkUnreachable,
    ),
    _Cause(
        "ClassNotFoundException: org.apache.spark.sql.connect",
        "pyspark has no Connect server: pip install 'kcl-mld[spark]'",
        MissingPart,
    ),
)


class Diagnosis:
    """Reads along while a server starts.

    Args:
        has_repository: True if packages come from a repository that the environment names.
    """

    def __init__(self, *, has_repository: bool) -> None:
        self._has_repository = has_repository
        self._lines: deque[str] = deque(maxlen=_QUOTED_LINES)
        self._known: tuple[type[SparkChildError], str] | None = None

    def note(self, line: str) -> None:
        """One more line; the first known cause counts, however long the trace behind it is."""
        if _NOISE.match(line):
            return
        if self._known is None:
            self._known = self._cause_in(line)
        self._lines.append(line)

    def error(self, what: str) -> SparkChildError:
        """What to raise.

        Args:
            what: has happened to the server, e.g. ``ended with exit code 1``.
        """
        if self._known is not None:
            kind, text = self._known
            return kind(f"the Spark server {what}: {text}")
        tail = "".join(f"\n  | {line}" for line in self._lines)
        said = f"; its last lines:{tail}" if tail else "; it printed nothing"
        return SparkUnreachable(f"the Spark server {what}{said}")

    def _cause_in(self, line: str) -> tuple[type[SparkChildError], str] | None:
        for cause in _CAUSES:
            if cause.mark in line:
                return cause.kind, f"{cause.text} ({_shortened(line)})"
        if "[unresolved dependency" in line or "[download failed" in line:
            return MissingPart, self._missing_package(line)
        before = self._lines[-1] if self._lines else ""
        if _BEFORE_REASON in before:
            return SparkConfigError, f"{_JAVA_REFUSES} ({_shortened(line)})"
        if _AFTER_REASON in line:
            return SparkConfigError, f"{_JAVA_REFUSES} ({_shortened(before)})"
        return None

    def _missing_package(self, line: str) -> str:
        names = ", ".join(dict.fromkeys(":".join(found) for found in _COORDINATE.findall(line)))
        where = (
            f"the repository in {REPOSITORY_VARIABLE}" if self._has_repository else "Maven Central"
        )
        return (
            f"the package {names or 'of spark.jars.packages'} cannot be fetched from {where}: "
            f"correct the coordinate in spark.conf.spark.jars.packages, name a repository that "
            f"has it in {REPOSITORY_VARIABLE}, or a jar on this machine in spark.conf.spark.jars"
        )


def _shortened(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"
