"""Why an embedded server did not start, from what it printed: one clear line where the cause is known.

Pure: lines in, an error out.
"""

from __future__ import annotations

import re
import signal
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.config.spark.needs import REPOSITORY_VARIABLE
from kcl_mld.kernel.model.masking import mask
from kcl_mld.spark.errors import MissingPart, SparkChildError, SparkConfigError, SparkUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUOTED_LINES = 12
_MOST_CHARACTERS = 400
#: Frames of a trace, lines without a word, and nothing.
_NOISE = re.compile(r"\s*(at [\w.$/<>]+\(.*|\.{3} \d+ (more|common frames omitted)|\W*)?\s*$")
#: Lines that say why, the surest first: a trace's root, its head, an error in a log, one of Java.
_TELLING = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s*Caused by: ",
        r"Exception in thread \"|\s*[\w.$]+(Exception|Error)(: |$)",
        r"(\S+ \S+ )?(FATAL|ERROR) ",
        r"Error: |Terminating due to |There is insufficient memory",
    )
)
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
    _Cause(
        "java.lang.OutOfMemoryError",
        "its heap is too small; raise spark.driver.memory",
        SparkUnreachable,
    ),
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
        repository: that the environment names for packages; None = Maven Central.
    """

    def __init__(self, repository: str | None) -> None:
        self._repository = repository
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
        if not self._lines:
            return SparkUnreachable(f"the Spark server {what}; it printed nothing")
        why = _shortened(telling_line(self._lines))
        tail = "".join(f"\n  | {line}" for line in self._lines)
        return SparkUnreachable(f"the Spark server {what}: {why}; its last lines:{tail}")

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
        where = "Maven Central"
        if self._repository is not None:
            where = f"{mask(self._repository)} ({REPOSITORY_VARIABLE})"
        return (
            f"the package {names or 'of spark.jars.packages'} cannot be fetched from {where}: "
            f"correct the coordinate in spark.conf.spark.jars.packages, or name a repository that "
            f"has it in {REPOSITORY_VARIABLE}; without a network put the jar and all that it needs "
            f"on this machine and name them in spark.conf.spark.jars, separated by commas"
        )


def telling_line(lines: Sequence[str]) -> str:
    """Of what a JVM printed last, the line that says why it ended; "" if none says anything."""
    words = [line.strip() for line in lines if not _NOISE.match(line)]
    for pattern in _TELLING:
        if found := [line for line in words if pattern.match(line)]:
            return found[-1]
    return words[-1] if words else ""


def ending(code: int, lines: Sequence[str]) -> str:
    """How a server ended that had been ready, and why as far as it said.

    Args:
        code: of its exit, negative for a signal.
        lines: that it printed last, oldest first.
    """
    if code == -signal.SIGKILL:
        return (
            "was killed (signal 9), as the kernel does for a lack of memory: see its log, and "
            "lower spark.driver.memory or give the machine more"
        )
    how = ended(code)
    telling = [line for line in lines if any(pattern.match(line) for pattern in _TELLING)]
    if any("java.lang.OutOfMemoryError" in line for line in lines):
        how += " for a lack of heap: raise spark.driver.memory, or lower spark.batch.maxBytes"
    return f"{how}; its output: {_shortened(telling_line(telling))}" if telling else how


def ended(code: int) -> str:
    """``ended with exit code 1``; negative codes are signals."""
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _shortened(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"
