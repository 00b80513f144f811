"""Foreign workers, fetched once into ``.cache/peer``: ``python -m tests.peer.fetched``.

Nothing of them is in this repository: jars come from Maven Central, kcl-rs from PyPI.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests import kclpy_cache
from tests.emulators import DYNAMODB_LOCAL, KINESIS_LOCAL

if TYPE_CHECKING:
    from collections.abc import Sequence

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "peer"
_JAVA = Path(__file__).with_name("java")
_FETCH_TIMEOUT_S = 900

#: Java daemons that share a stream with ours.
MULTILANG = ("2.5.4", "3.1.3")
#: Versions of the Java library under the program of ours.
CLIENTS = ("3.5.1", "2.7.2")
#: The library that reads streams of tables.
ADAPTER = "2.0.1"
#: The same with a daemon for other languages, on KCL 1.
ADAPTER_1 = "1.6.1"
KCL_RS = "0.1.4"
#: kcl-mld of 2026-11-25.
OLDER = "1755abf3"
#: Small heaps, one collector thread: several JVMs share the machine with everything else.
JVM = ("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Unavailable(Exception):
    """Something is missing here; the text says what."""


def stand_in() -> None:
    """Both emulators and the real ``amazon_kclpy``.

    Raises:
        Unavailable: one cannot be had.
    """
    for kind in (KINESIS_LOCAL, DYNAMODB_LOCAL):
        try:
            kind.fetch_if_missing()
        except (OSError, subprocess.SubprocessError) as error:
            raise Unavailable(f"cannot fetch {kind.name}: {error}") from error
        if reason := kind.missing():
            raise Unavailable(reason)
    if kclpy_cache.kclpy() is None:
        raise Unavailable("cannot fetch amazon_kclpy")


def multilang(version: str) -> str:
    """Class path of the Java MultiLangDaemon.

    Raises:
        Unavailable: no Java, or no Maven to fetch it.
    """
    _need("java")
    return f"{_jars('amazon-kinesis-client-multilang', version) / 'lib'}/*"


def multilang_command(version: str, jvm: Sequence[str] = JVM) -> list[str]:
    """The Java MultiLangDaemon; the name of a properties file follows.

    Raises:
        Unavailable: see :func:`multilang`.
    """
    main = "software.amazon.kinesis.multilang.MultiLangDaemon"
    return [*jvm, "-cp", multilang(version), main, "--properties-file"]


def provider(version: str) -> str:
    """Where a Java MultiLangDaemon looks for credentials: up to 2.6 it builds names of SDK 1 only."""
    return "DefaultAWSCredentialsProviderChain" if version < "2.7" else "DefaultCredentialsProvider"


def many_streams(version: str) -> str:
    """Class path of our program over the Java library; compiled if the source is newer.

    Raises:
        Unavailable: no JDK, or no Maven to fetch the library.
    """
    return _program(_jars("amazon-kinesis-client", version, "-Plog"), "ManyStreams")


def table_stream(version: str = ADAPTER) -> str:
    """Class path of our program over the DynamoDB Streams adapter; likewise.

    Raises:
        Unavailable: no JDK, or no Maven to fetch the library.
    """
    group = "-Dpeer.group=com.amazonaws"
    return _program(
        _jars("dynamodb-streams-kinesis-adapter", version, group, "-Plog"), "TableStream"
    )


def table_stream_daemon(version: str = ADAPTER_1) -> list[str]:
    """The MultiLangDaemon of the DynamoDB Streams adapter 1.x; the name of a properties file follows.

    Raises:
        Unavailable: no Java, or no Maven to fetch it.
    """
    _need("java")
    folder = _jars(
        "dynamodb-streams-kinesis-adapter", version, "-Dpeer.group=com.amazonaws", "-Plog"
    )
    main = "com.amazonaws.services.dynamodbv2.streamsadapter.StreamsMultiLangDaemon"
    return [*JVM, "-cp", f"{folder / 'lib'}/*", main]


def _program(folder: Path, name: str) -> str:
    _need("java", "javac")
    sources = [_JAVA / f"{one}.java" for one in (name, "Journaling")]
    classes = folder / "classes"
    made = classes / f"{name}.class"
    if not made.exists() or made.stat().st_mtime < max(one.stat().st_mtime for one in sources):
        classes.mkdir(exist_ok=True)
        _run("javac", "-cp", f"{folder / 'lib'}/*", "-d", str(classes), *map(str, sources))
    return f"{classes}:{folder / 'lib'}/*"


def kcl_rs() -> str:
    """Folder to put on ``PYTHONPATH``.

    Raises:
        Unavailable: there is no wheel for this machine, or no network.
    """
    folder = CACHE / f"kcl-rs-{KCL_RS}"
    if not folder.is_dir():
        with _scratch() as scratch:
            wanted = (f"kcl-rs=={KCL_RS}", "--no-deps", "--only-binary=:all:")
            _run(sys.executable, "-m", "pip", "install", "-q", "--target", scratch, *wanted)
            Path(scratch).rename(folder)
    return str(folder)


def older() -> str:
    """Folder with an older version of this package, to put on ``PYTHONPATH``.

    Raises:
        Unavailable: this is no checkout with that commit.
    """
    folder = CACHE / f"kcl-mld-{OLDER}"
    if not folder.is_dir():
        _need("git", "tar")
        with _scratch() as scratch:
            archive = Path(scratch) / "all.tar"
            root = str(Path(__file__).resolve().parents[2])
            _run("git", "-C", root, "archive", "-o", str(archive), OLDER, "mld", "protocol")
            _run("tar", "-C", scratch, "-xf", str(archive))
            archive.unlink()
            Path(scratch).rename(folder)
    return str(folder)


def _jars(artifact: str, version: str, *options: str) -> Path:
    folder = CACHE / f"{artifact}-{version}"
    if not folder.is_dir():
        _need("mvn")
        with _scratch() as scratch:
            shutil.copy(_JAVA / "pom.xml", scratch)
            what = (f"-Dpeer.artifact={artifact}", f"-Dpeer.version={version}", *options)
            copy = ("dependency:copy-dependencies", "-DoutputDirectory=lib")
            _run("mvn", "-q", "-B", "-f", f"{scratch}/pom.xml", *copy, *what)
            Path(scratch).rename(folder)
    return folder


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder beside the others, so that what is half fetched is never found."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=CACHE, ignore_cleanup_errors=True)


def _need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise Unavailable(f"there is no {program} here")


def _run(*command: str) -> None:
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        said = (error.stdout + error.stderr).strip().splitlines()[-3:]
        raise Unavailable(f"{command[0]} failed: {' '.join(said)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]} failed: {error}") from error


def main() -> int:
    """Fetch all; say for each whether it is there."""
    wanted = [
        ("emulators and amazon_kclpy", stand_in),
        *((f"Java MultiLangDaemon {one}", lambda one=one: multilang(one)) for one in MULTILANG),
        *((f"Java library {one}", lambda one=one: many_streams(one)) for one in CLIENTS),
        (f"DynamoDB Streams adapter {ADAPTER}", table_stream),
        (f"DynamoDB Streams adapter {ADAPTER_1}", table_stream_daemon),
        (f"kcl-rs {KCL_RS}", kcl_rs),
        (f"kcl-mld {OLDER}", older),
    ]
    for name, fetch in wanted:
        try:
            fetch()
            print(f"{name}: there")
        except Unavailable as error:
            print(f"{name}: SKIPPED, {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
