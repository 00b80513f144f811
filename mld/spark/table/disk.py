"""A table on a file system: its small files and its jobs' files. See ``table.store``.

Each process has a directory of its own in the table, with a plain name: what begins with ``_`` or
``.`` is never vacuumed. It holds a lock there as long as it lives, and a file ``pending-N`` for each
job that is not committed. A process that starts later removes what the dead left pending, unless the log
names it: a process may die between its commit and the removal of that file. Where the file system
has no locks, it is not known which processes live: there a job is left for a week, by the file system's clock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import shutil
import uuid
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.table.data_files import jobs_of
from kcl_mld.spark.table.parquet import file_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import PurePath

    import pyarrow as pa

    from kcl_mld.spark.table.data_files import DataFile, Rows
    from kcl_mld.spark.table.parquet import FileLayout, FilePart

#: How the names of directories of processes begin.
OWNER_PREFIX = "kcl-mld-"
_LOCK = "owner.lock"
_LOCK_DRAFT = "owner.draft"
_PENDING = "pending-"
#: Longer than any job with its tries, in s; as long as a vacuum leaves alone what it does not know.
OLD_S = 7 * 86_400.0
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
#: Characters that Spark reads as a pattern in a path.
_PATTERN = set("*?[]{}\\")
#: What delta-rs takes for an escaped character, so that it looks in another directory.
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_DRAFT = b".draft"


class Directory:
    """A directory; see ``Store``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.name = str(root)
        self.directory: Path | None = root
        self.requests = 0

    def options(self) -> Mapping[str, str]:
        """As ``Store``: none."""
        return {}

    def below(self, name: str) -> Directory:
        """As ``Store``."""
        return Directory(self._root / name)

    def above(self) -> Directory:
        """As ``Store``."""
        return Directory(self._root.parent)

    def jobs(self) -> JobFiles:
        """As ``Store``."""
        return JobFiles(self._root)

    def make(self) -> None:
        """As ``Store``, durably."""
        make_directories(self._root)

    def has(self, path: str) -> bool:
        """As ``Store``; also for an empty directory."""
        return os.path.exists(native(self._root, path))

    def stamp(self, path: str) -> object | None:
        """As ``Store``."""
        try:
            found = os.stat(self._root / path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns

    def source(self, path: str) -> str | pa.BufferReader:
        """As ``Store``."""
        return str(self._root / path)

    def put(self, path: str, content: bytes) -> None:
        """As ``Store``."""
        place = native(self._root, path)
        draft = place + _DRAFT
        try:
            with open(draft, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
        sync(os.path.dirname(place))

    def get(self, path: str) -> str | None:
        """As ``Store``."""
        try:
            descriptor = os.open(self._root / path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with open(descriptor, encoding="utf-8") as file:
            return file.read()

    def names(self, suffix: str) -> Sequence[str]:
        """As ``Store``."""
        return sorted(path.name for path in self._root.glob(f"*{suffix}"))

    def old_names(self, suffix: str) -> Collection[str]:
        """As ``Store``."""
        os.utime(self._root)  # the file system knows what time it is
        now_s = self._root.stat().st_mtime
        return {path.name for path in self._root.glob(f"*{suffix}") if is_old(path, now_s)}

    def drop(self, path: str) -> None:
        """As ``Store``."""
        (self._root / path).unlink(missing_ok=True)


class JobFiles:
    """A process's jobs in a table on a file system; see ``Jobs``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._directory = root / f"{OWNER_PREFIX}{uuid.uuid4().hex[:16]}"
        self._numbers = itertools.count(1)
        self._lock: int | None = None

    def open(self) -> None:
        """Create the directory and hold its lock until the process ends."""
        self._directory.mkdir(parents=True)
        draft = self._directory / _LOCK_DRAFT
        self._lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks, see ``sweep``
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(self._directory / _LOCK)  # a lock that is not held yet would look dead

    def new_job(self) -> Path:
        """As ``Jobs``."""
        number = next(self._numbers)
        (self._directory / f"{_PENDING}{number}").touch()
        return self._directory / f"job-{number}"

    def committed(self, job: PurePath) -> None:
        """As ``Jobs``."""
        _pending(Path(job)).unlink(missing_ok=True)

    def remove(self, job: PurePath) -> None:
        """As ``Jobs``."""
        shutil.rmtree(job, ignore_errors=True)
        _pending(Path(job)).unlink(missing_ok=True)

    def sweep(
        self,
        live: Callable[[], Collection[str]],
        wanted: Callable[[], Collection[str]] = frozenset,
    ) -> int:
        """As ``Jobs``."""
        now_s = (self._directory / _LOCK).stat().st_mtime
        left: list[Path] = []
        dead: list[Path] = []
        for directory in self._root.glob(f"{OWNER_PREFIX}*"):
            if directory == self._directory or (is_dead := _is_dead(directory)) is False:
                continue
            found = directory.glob(f"{_PENDING}*")
            left += (each for each in found if is_dead or is_old(each, now_s))
            if is_dead:
                dead.append(directory)
        kept = jobs_of(wanted()) if left else set()
        named = jobs_of(live()) if left else set()
        count = 0
        for pending in left:
            job = _job(pending)
            if (name := f"{job.parent.name}/{job.name}") in kept:
                dead = [each for each in dead if each != job.parent]
                continue
            if name not in named:
                shutil.rmtree(job, ignore_errors=True)
                count += 1
            pending.unlink(missing_ok=True)
        for directory in dead:
            (directory / _LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it has committed files
                directory.rmdir()
        return count

    def write(self, job: PurePath, rows: Rows, layout: FileLayout) -> list[DataFile]:
        """As ``Jobs``."""
        below = str(Path(job).relative_to(self._root))
        files = [self._write(f"{below}/{part.name}", part) for part in file_parts(rows, layout)]
        for directory in {parent for file in files for parent in PurePosixPath(file.path).parents}:
            sync(native(self._root, str(directory)))
        return files

    def _write(self, path: str, part: FilePart) -> DataFile:
        place = native(self._root, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "xb") as file:
            part.write(file)
            file.flush()
            os.fsync(file.fileno())
            about = os.fstat(file.fileno())
        return part.named(path, about.st_size, about.st_mtime_ns // 1_000_000)


def _job(pending: Path) -> Path:
    return pending.parent / f"job-{pending.name.removeprefix(_PENDING)}"


def _pending(job: Path) -> Path:
    return job.parent / f"{_PENDING}{job.name.removeprefix('job-')}"


def _is_dead(directory: Path) -> bool | None:
    """Whether the owner's lock can be had; without a lock file it was swept.

    None: there are no locks, so it is not known.
    """
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return None if error.errno in _NO_LOCKS else False
    else:
        return True
    finally:
        os.close(descriptor)


def is_old(path: Path, now_s: float) -> bool:
    """True if a file was last changed long ago; False also if it is gone."""
    try:
        return now_s - path.stat().st_mtime > OLD_S
    except OSError:
        return False


def local_root(text: str, sink: str = "delta", key: str = "spark.sink.path") -> Path:
    """The directory that a property names.

    Args:
        text: a path, or a URL with the scheme ``file``.

    Raises:
        SinkRefused: it is on no file system.
    """
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "file":
        if rest.startswith("//") and not rest.startswith("///"):
            raise SinkRefused(f"{key}={text}: write it like file:/directory")
        text = "/" + rest.lstrip("/")
    elif colon and "/" not in scheme and rest.startswith("/"):
        raise SinkRefused(
            f"{key}={text}: the {sink} sink writes to S3, or to a file system of this machine, and "
            f"{scheme}:// is neither. Name a directory or s3://bucket/prefix"
        )
    if found := sorted(_PATTERN & set(text)):
        raise SinkRefused(
            f"{key}={text}: Spark reads {' '.join(found)} as a pattern; choose a directory without"
        )
    if (escape := _ESCAPE.search(text)) is not None:
        raise SinkRefused(
            f"{key}={text}: delta-rs reads {escape[0]} as an escaped character; choose a directory "
            f"without"
        )
    return Path(os.path.abspath(text))


def native(root: Path, path: str) -> bytes:
    """A path below a directory as every reader spells it, whatever encoding the locale has.

    Args:
        path: with slashes.
    """
    return os.fsencode(root) + b"/" + path.encode()


def sync(path: Path | bytes) -> None:
    """Wait until a file's content, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(directory: Path) -> None:
    """Create a directory and its parents, durably."""
    if directory.is_dir():
        return
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            each.mkdir()
        sync(each.parent)
