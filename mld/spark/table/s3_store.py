"""A table in S3: its small files and its jobs' files. See ``table.store``.

A put is there for everybody, durably, once S3 has answered, and so is a listing. So nothing is
synced. There are no locks either, so it is not known which processes live: each job that is not committed has
a small object below ``kcl-mld-pending``, and what one has left is removed a week later.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath, PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa

from kcl_mld.spark.table.data_files import jobs_of
from kcl_mld.spark.table.disk import OLD_S, OWNER_PREFIX
from kcl_mld.spark.table.parquet import file_parts
from kcl_mld.spark.table.s3_access import PENDING, S3Access, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from kcl_mld.config.spark.addresses import S3Place
    from kcl_mld.spark.table.data_files import DataFile, Rows
    from kcl_mld.spark.table.parquet import FileLayout, FilePart
    from kcl_mld.spark.table.s3_access import ListedObject

_log = logging.getLogger("mld.spark")

_OLD_MS = int(OLD_S * 1000)
_AT_ONCE = 8


class Bucket:
    """A place in S3; see ``Store``.

    Args:
        access: to the bucket; None = as this process finds it.
    """

    directory: Path | None = None

    def __init__(self, place: S3Place, access: S3Access | None = None) -> None:
        self.place = place
        self.access = access or S3Access(place.bucket)
        self.name = str(place)

    def options(self) -> Mapping[str, str]:
        """As ``Store``."""
        return self.access.reach.options()

    def below(self, name: str) -> Bucket:
        """As ``Store``."""
        return Bucket(self.place.below(name), self.access)

    def above(self) -> Bucket:
        """As ``Store``."""
        return Bucket(self.place.above(), self.access)

    def jobs(self) -> StoredJobs:
        """As ``Store``."""
        return StoredJobs(self)

    def make(self) -> None:
        """As ``Store``: there is nothing to make."""

    def has(self, path: str) -> bool:
        """As ``Store``."""
        key = self.key(path)
        return any(each.key == key or each.key.startswith(f"{key}/") for each in self._first(key))

    def stamp(self, path: str) -> object | None:
        """As ``Store``."""
        return self.access.stamp(self.key(path))

    def source(self, path: str) -> pa.BufferReader:
        """As ``Store``: the whole file, in memory.

        Raises:
            StoreError: it is not there.
        """
        if (content := self.access.get(self.key(path))) is None:
            raise StoreError(f"{self.name}/{path} is gone")
        return pa.BufferReader(content)

    def put(self, path: str, content: bytes) -> None:
        """As ``Store``."""
        self.access.put(self.key(path), content)

    def get(self, path: str) -> str | None:
        """As ``Store``."""
        content = self.access.get(self.key(path))
        return None if content is None else content.decode()

    def create(self, path: str, content: bytes) -> object:
        """Make a file that must not be there yet; its stamp.

        Raises:
            StoreError: it may be there or not.
        """
        return self.access.put(self.key(path), content, is_new=True)

    def read(self, path: str) -> tuple[bytes, object] | None:
        """A small file with its stamp; None if it is not there.

        Raises:
            StoreError: it can't be read.
        """
        return self.access.read(self.key(path))

    @property
    def requests(self) -> int:
        """As ``Store``."""
        return self.access.calls

    def names(self, suffix: str) -> Sequence[str]:
        """As ``Store``."""
        return [name for name, _ in self._named(suffix)]

    def old_names(self, suffix: str) -> Collection[str]:
        """As ``Store``."""
        then_ms = self.access.now_ms(self.key("")) - _OLD_MS
        return {name for name, modified_ms in self._named(suffix) if modified_ms <= then_ms}

    def drop(self, path: str) -> None:
        """As ``Store``."""
        self.access.delete(self.key(path))

    def key(self, path: str) -> str:
        """Of an object, from the table's place on."""
        return self.place.key(path)

    def _named(self, suffix: str) -> Iterator[tuple[str, int]]:
        """Names right in it that end so, and when they were written, in ms since 1970."""
        begin = self.key("")
        for each in self.access.list(begin, is_flat=True):
            if each.key.endswith(suffix):
                yield each.key.removeprefix(begin), each.modified_ms

    def _first(self, key: str) -> list[ListedObject]:
        """Of the names that begin so, the one itself, and one below it; others may lie between."""
        found = itertools.islice(self.access.list(key), 1)
        return [*found, *itertools.islice(self.access.list(f"{key}/"), 1)]


class StoredJobs:
    """A process's jobs in a table in S3; see ``Jobs``."""

    def __init__(self, store: Bucket) -> None:
        self._store = store
        self._access = store.access
        self._owner = f"{OWNER_PREFIX}{uuid.uuid4().hex[:16]}"
        self._numbers = itertools.count(1)

    def open(self) -> None:
        """As ``Jobs``: names need no making."""

    def new_job(self) -> PurePath:
        """As ``Jobs``."""
        job = PurePosixPath(self._owner, f"job-{next(self._numbers)}")
        self._access.put(self._pending(job), b"")
        return job

    def write(self, job: PurePath, rows: Rows, layout: FileLayout) -> list[DataFile]:
        """As ``Jobs``, several at once."""
        with ThreadPoolExecutor(_AT_ONCE, "files") as pool:
            return list(pool.map(lambda part: self._write(job, part), file_parts(rows, layout)))

    def _write(self, job: PurePath, part: FilePart) -> DataFile:
        content = part.content()
        path = f"{job}/{part.name}"
        self._access.put(self._store.key(path), content)
        return part.named(path, len(content), int(time.time() * 1000))

    def committed(self, job: PurePath) -> None:
        """As ``Jobs``. If the mark stays, a later sweep finds that the log names the files."""
        try:
            self._access.delete(self._pending(job))
        except OSError as error:
            _log.info("%s: the mark of %s stays behind: %s", self._store.name, job, error)

    def remove(self, job: PurePath) -> None:
        """As ``Jobs``. What stays is removed by a sweep, a week later."""
        try:
            self._remove(job)
        except OSError as error:
            _log.info("%s: %s stays behind: %s", self._store.name, job, error)

    def sweep(
        self,
        live: Callable[[], Collection[str]],
        wanted: Callable[[], Collection[str]] = frozenset,
    ) -> int:
        """As ``Jobs``: those of other processes that were begun a week ago, by S3's clock."""
        begin = self._store.key(f"{PENDING}/")
        then_ms = self._access.now_ms(begin) - _OLD_MS
        left = [_job(each.key) for each in self._access.list(begin) if each.modified_ms <= then_ms]
        left = [job for job in left if job.parent.name != self._owner]
        kept = jobs_of(wanted()) if left else set()
        named = jobs_of(live()) if left else set()
        count = 0
        for job in left:
            if str(job) in kept:
                continue
            if str(job) in named:
                self._access.delete(self._pending(job))
            else:
                self._remove(job)
                count += 1
        return count

    def _remove(self, job: PurePath) -> None:
        for each in self._entries(job):
            self._access.delete(each.key)
        self._access.delete(self._pending(job))

    def _entries(self, job: PurePath) -> list[ListedObject]:
        return list(self._access.list(self._store.key(f"{job}/")))

    def _pending(self, job: PurePath) -> str:
        return self._store.key(f"{PENDING}/{job.parent.name}.{job.name}")


def _job(key: str) -> PurePath:
    """Of the key of its mark."""
    owner, _, job = key.rpartition("/")[2].partition(".")
    return PurePosixPath(owner, job)
