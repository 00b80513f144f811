"""Spark's classes, read and verified once and mapped into memory by every later server.

A third of the CPU that a server costs until its first job goes into loading classes. Java's
class-data sharing keeps them in a file in the user's own cache directory. It is made in two steps:
a server lists the classes that it loads, which costs it nothing, and works on; after a while a
second Java, which runs nothing, makes the file of the list. That one is made of a process that was
started before there was a thread (:mod:`mld.spark.server.later`), runs when nobody else wants the
processor, and not at all where memory is short. Whatever goes wrong with it costs nothing but the
gain: Java ignores a file that does not fit, and so do we.

Java runs code from that file, so nobody else may be able to write it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import platform
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mld.spark.server.later import Later
from mld.spark.server.memory import free_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mld.spark.server.java import JavaHome

_log = logging.getLogger(__name__)

#: The first that links classes for such a file although Spark opens modules.
_OLDEST_LINKING = 25
#: Options of the user's own that deal with it: ours would contradict them.
_OWN_OPTIONS = (
    *("-Xshare", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xlog:cds"),
    *("-XX:DumpLoadedClassList", "-XX:SharedClassListFile", "-XX:AOT", "-Xlog:aot"),
)
#: Without these Java warns of a file that does not fit, and of each class that it leaves out.
_QUIET = ("-Xshare:auto", "-Xlog:cds*=off")
_QUIET_LINKING = (*_QUIET, "-Xlog:aot*=off")
_CREATE_S = 600.0
#: Who makes a file takes 0.9 to 1.1 GB, in bytes.
ROOM_BYTES = 3 * 1024**3 // 2
#: Files of other keys that nobody has used for so long are removed, in s.
_UNUSED_S = 30 * 86_400.0


class ClassArchive:
    """The file that belongs to one Java with one Spark.

    Args:
        path: where it is, or is going to be.
        listed: the classes of a server; lies in that server's own directory, and goes with it.
        links: True if this Java can also link them.
    """

    def __init__(self, path: Path, listed: Path, *, links: bool) -> None:
        self.path = path
        self._listed = listed
        self._linking = ("-XX:+AOTClassLinking",) if links else ()
        self._quiet = _QUIET_LINKING if links else _QUIET
        self._making: Path | None = None
        self._maker: Later | None = None

    @classmethod
    def of(
        cls,
        java: JavaHome,
        class_path: Sequence[str],
        options: Sequence[str],
        environ: Mapping[str, str],
        directory: Path,
    ) -> Self | None:
        """The archive for a server; None if there can be none.

        Args:
            java: whose it is.
            class_path: of the server; ``…/*`` stands for the jars of a folder.
            options: that tell one archive from another: the collector's, the user's.
            environ: ``XDG_CACHE_HOME`` and ``HOME`` say where caches are.
            directory: the server's own.
        """
        path = _archive_path(java, class_path, options, environ)
        if path is None:
            return None
        return cls(path, directory / "classes.list", links=java.version >= _OLDEST_LINKING)

    def options(self) -> list[str]:
        """For the server's command line: to use the file, or to list what shall be in it."""
        if self.path.is_file():
            with contextlib.suppress(OSError):
                os.utime(self.path)
            return [f"-XX:SharedArchiveFile={self.path}", *self._quiet]
        return [f"-XX:DumpLoadedClassList={self._listed}", *self._quiet]

    def begin(self, command: Sequence[str]) -> None:
        """Start the process that will make the file, unless there is one; from the main thread.

        Args:
            command: of the server, up to its class path.
        """
        if self.path.is_file():
            return
        self._making = self.path.with_suffix(f".{os.getpid()}")
        ours = self.options()
        program, *rest = (word for word in command if word not in ours)
        self._maker = Later(
            [
                *(program, "-Xshare:dump", *self._linking),
                f"-XX:SharedClassListFile={self._listed}",
                f"-XX:SharedArchiveFile={self._making}",
                *("-Xlog:disable", *rest),
            ]
        )

    def write(self) -> bool:
        """Make the file of the list as it is now, unless it is there; True if this call did it.

        The server is not asked, and works on. Raises nothing.
        """
        try:
            with _alone(self.path.with_suffix(".lock")) as is_alone:
                if not is_alone or self.path.exists():
                    return False
                answer = self._make()
                if self._making is None or not self._making.is_file():
                    _log.info("Java keeps no archive of Spark's classes: %s", answer.strip()[-300:])
                    return False
                self._making.chmod(0o600)
                self._making.replace(self.path)
                _sweep(self.path.parent)
        except OSError as error:
            _log.info("Spark's classes can't be kept for the next start: %s", error)
            return False
        _log.info("Spark's classes are kept in %s: the next start is faster", self.path)
        return True

    def close(self) -> None:
        """End who makes the file, whatever it does, and leave no half of one."""
        if self._maker is not None:
            self._maker.stop()
        if self._making is not None:
            self._making.unlink(missing_ok=True)

    def _make(self) -> str:
        """What Java says."""
        if self._maker is None:
            return "it was there when the server started"
        if not has_room():
            return "too little memory is free"
        if not self._end_list():
            return "it lists no classes"
        return self._maker.run(_CREATE_S)

    def _end_list(self) -> bool:
        """Keep whole lines: the server goes on writing, but into a file that has no name any more."""
        if not self._listed.is_file():
            return False
        text = self._listed.read_bytes()
        self._listed.unlink()
        self._listed.write_bytes(text[: text.rfind(b"\n") + 1])
        return True


def has_room(more_bytes: int = 0) -> bool:
    """Whether an archive may be made here; False where free memory is not known.

    Args:
        more_bytes: what else is going to be taken until then.
    """
    free = free_bytes()
    return free is not None and free >= ROOM_BYTES + more_bytes


def _archive_path(
    java: JavaHome, class_path: Sequence[str], options: Sequence[str], environ: Mapping[str, str]
) -> Path | None:
    """Where the classes of this Java with these jars and options are kept; None = nowhere."""
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
    return directory / f"spark-{key.hexdigest()[:24]}.jsa"


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
