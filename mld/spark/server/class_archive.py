"""Spark's classes, read and verified once and mapped into memory by every later server.

A third of the CPU that a server costs until its first job goes into loading classes. Java's
class-data sharing keeps them in a file. It is written by a server that has worked for a while, into
the user's own cache directory, and used from the next start on. Whatever goes wrong with it costs
nothing but the gain: Java ignores a file that does not fit, and so do we.

Java runs code from that file, so nobody else may be able to write it. This is the file of Java 17
to 24; that of Java 25 is in :mod:`mld.spark.server.aot_cache`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import platform
import signal
import socket
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mld.spark.server.java import JavaHome

_log = logging.getLogger(__name__)

#: Options of the user's own that deal with it: ours would contradict them.
_OWN_OPTIONS = (
    *("-Xshare", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xlog:cds"),
    *("-XX:AOT", "-Xlog:aot"),
)
#: Without these Java warns of a file that does not fit.
_QUIET = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
#: Files of other keys that nobody has used for so long are removed, in s.
_UNUSED_S = 30 * 86_400.0
_ATTACH_S, _DUMP_S = 5.0, 120.0
_LOOK_S = 0.05
#: Where Java listens for those who may attach to it, whatever its ``java.io.tmpdir`` says.
_ATTACH_DIRECTORY = Path("/tmp")  # noqa: S108 - so does Java


class ClassArchive:
    """The file that belongs to one Java with one Spark.

    Args:
        path: where it is, or is going to be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(
        cls,
        java: JavaHome,
        class_path: Sequence[str],
        options: Sequence[str],
        environ: Mapping[str, str],
    ) -> ClassArchive | None:
        """The archive for a server; None if there can be none.

        Args:
            java: with an archive of its own classes, which ours builds upon.
            class_path: of the server; ``…/*`` stands for the jars of a folder.
            options: of the user for this Java.
            environ: ``XDG_CACHE_HOME`` and ``HOME`` say where caches are.
        """
        if not (java.path / "lib" / "server" / "classes.jsa").is_file():
            return None
        path = archive_path(java, class_path, options, environ, ".jsa")
        return None if path is None else cls(path)

    def begin(self, command: Sequence[str]) -> None:
        """A server starts that may be asked to write the file; from the main thread.

        Args:
            command: of the server, up to its class path.
        """

    def close(self) -> None:
        """That server has ended."""

    def options(self) -> list[str]:
        """For the server's command line: to use the file, or to be able to write it."""
        if self.path.is_file():
            with contextlib.suppress(OSError):
                os.utime(self.path)
            return [f"-XX:SharedArchiveFile={self.path}", *_QUIET]
        return ["-XX:+RecordDynamicDumpInfo", *_QUIET]

    def write(self, pid: int) -> bool:
        """Have a running server write it down, unless it is there; True if this call did it.

        The server stands still for a few seconds meanwhile. Raises nothing.

        Args:
            pid: of a server that was started with :meth:`options`.
        """
        try:
            with _alone(self.path.with_suffix(".lock")) as is_alone:
                if not is_alone or self.path.exists():
                    return False
                making = self.path.with_suffix(f".{pid}")
                answer = self.make(pid, making)
                if not making.is_file():
                    _log.info("Java keeps no archive of Spark's classes: %s", answer.strip()[-300:])
                    return False
                making.chmod(0o600)
                making.replace(self.path)
                _sweep(self.path.parent)
        except OSError as error:
            _log.info("Spark's classes can't be kept for the next start: %s", error)
            return False
        _log.info("Spark's classes are kept in %s: the next start is faster", self.path)
        return True

    def make(self, pid: int, making: Path) -> str:
        """Have a file made, if Java does; gives what it says.

        Args:
            pid: of the server.
            making: the file.

        Raises:
            OSError: it can't be asked.
        """
        return ask_java(pid, f"VM.cds dynamic_dump {making}")


def archive_path(
    java: JavaHome,
    class_path: Sequence[str],
    options: Sequence[str],
    environ: Mapping[str, str],
    suffix: str,
) -> Path | None:
    """Where the classes of this Java with these jars and options are kept; None = nowhere.

    The arguments are those of :meth:`ClassArchive.of`, and the suffix tells kinds of files apart.
    """
    if any(option.startswith(_OWN_OPTIONS) for option in options):
        return None
    if (directory := private_cache(environ)) is None:
        return None
    key = hashlib.sha256()
    for word in (str(java.path), *_facts(java.path / "release"), platform.machine(), *options):
        key.update(f"{word}\0".encode())
    for entry in class_path:
        for fact in _class_path_facts(entry):
            key.update(f"{fact}\0".encode())
    return directory / f"spark-{key.hexdigest()[:24]}{suffix}"


def private_cache(environ: Mapping[str, str]) -> Path | None:
    """Our directory in the user's cache, made if missing; None if it is not his alone."""
    home = environ.get("XDG_CACHE_HOME") or (
        f"{environ['HOME']}/.cache" if environ.get("HOME") else ""
    )
    if not os.path.isabs(home) or any(character in home for character in " '\"\\\n"):
        return None
    path = Path(home) / "kcl-mld" / "classes"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError:
        return None
    is_private = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return path if is_private and os.access(path, os.W_OK) else None


def ask_java(pid: int, command: str) -> str:
    """Give a diagnostic command to a running Java of ours, as ``jcmd`` does.

    Raises:
        OSError: it does not listen, or says nothing in time.
    """
    door = _ATTACH_DIRECTORY / f".java_pid{pid}"
    if not door.exists():
        trigger = _ATTACH_DIRECTORY / f".attach_pid{pid}"
        trigger.touch(mode=0o600)
        try:
            os.kill(pid, signal.SIGQUIT)
            give_up_at = time.monotonic() + _ATTACH_S
            while not door.exists() and time.monotonic() < give_up_at:
                time.sleep(_LOOK_S)
        finally:
            trigger.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_DUMP_S)
        connection.connect(str(door))
        connection.sendall(f"1\0jcmd\0{command}\0\0\0".encode())
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
    return answer.decode(errors="replace")


def _class_path_facts(entry: str) -> Iterator[str]:
    """Name, size and time of whatever an entry stands for."""
    if entry.endswith("/*"):
        for jar in sorted(Path(entry[:-2]).glob("*.jar")):
            yield from _facts(jar)
    else:
        yield from _facts(Path(entry))


def _facts(path: Path) -> Iterable[str]:
    try:
        found = path.stat()
    except OSError:
        return (str(path),)
    return (str(path), str(found.st_size), str(found.st_mtime_ns))


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Hold a lock that one host at a time has; False if another has it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _sweep(directory: Path) -> None:
    """Remove what no Java has used for a month, and what was never finished."""
    oldest = time.time() - _UNUSED_S
    for path in directory.glob("spark-*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
