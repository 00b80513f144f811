"""What a table lies on: a directory, or a place in S3. The one module that tells them apart.

What differs is behind two small surfaces. A ``Store`` has names and small files, ``Jobs`` has the
files of jobs. On a directory the writer waits for the disk; S3 answers a put once it is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kcl_mld.config.spark.addresses import is_s3, s3_place
from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.table.disk import Directory, local_root

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path, PurePath

    import pyarrow as pa

    from kcl_mld.spark.table.data_files import DataFile, Rows
    from kcl_mld.spark.table.parquet import FileLayout


class Jobs(Protocol):
    """The files that jobs write below a table, before and after a commit names them."""

    def open(self) -> None:
        """Make a place for this process's jobs."""

    def new_job(self) -> PurePath:
        """Where a job's files go; nothing is there yet."""

    def write(self, job: PurePath, rows: Rows, layout: FileLayout) -> list[DataFile]:
        """Make a job's files, durably; none of no rows.

        Raises:
            BatchFailed: a partition column has a value that is none.
            OSError: the store does not take them.
        """

    def committed(self, job: PurePath) -> None:
        """The log names what is in the job's directory, so it stays."""

    def remove(self, job: PurePath) -> None:
        """No commit can use the job any more."""

    def sweep(
        self,
        live: Callable[[], Collection[str]],
        wanted: Callable[[], Collection[str]] = frozenset,
    ) -> int:
        """Remove what dead processes left without a commit.

        Args:
            live: gives the paths of the table's files, from its place on. Called once it is known
                who is dead: one of them may have committed just before.
            wanted: gives the paths of files that somebody may still commit; their jobs are left to
                a later sweep. Called before ``live``: what is wanted no more is there.

        Returns:
            how many jobs were removed.

        Raises:
            OSError: the store does not answer.
        """


class Store(Protocol):
    """Where a table lies, or what belongs to several. Paths go on from there, with slashes."""

    @property
    def name(self) -> str:
        """For messages, and for delta-rs."""

    @property
    def directory(self) -> Path | None:
        """Where it is on a file system, on which a writer waits for the disk; None = S3."""

    @property
    def requests(self) -> int:
        """How often this process has asked a service, without what delta-rs asks by itself."""

    def options(self) -> Mapping[str, str]:
        """For delta-rs.

        Raises:
            SinkRefused: the store can't be used.
            OSError: it can't be reached.
        """

    def below(self, name: str) -> Store:
        """A place in it."""

    def above(self) -> Store:
        """The place it is in."""

    def jobs(self) -> Jobs:
        """The files of this process's jobs."""

    def make(self) -> None:
        """Make it unless it is there."""

    def has(self, path: str) -> bool:
        """True if there is a file, or a directory with some."""

    def stamp(self, path: str) -> object | None:
        """What tells a file from an earlier one of its name; None if it is not there."""

    def source(self, path: str) -> str | pa.BufferReader:
        """What pyarrow reads a Parquet file from."""

    def put(self, path: str, content: bytes) -> None:
        """Make a file, durably and in one step, in place of one that is there."""

    def get(self, path: str) -> str | None:
        """A small file; None if it is not there."""

    def names(self, suffix: str) -> Sequence[str]:
        """The names of small files right in it that end so, in their order."""

    def old_names(self, suffix: str) -> Collection[str]:
        """Those that were written ``OLD_S`` ago or before, by the store's own clock."""

    def drop(self, path: str) -> None:
        """Remove a small file; quiet if it is gone."""


def open_store(text: str, sink: str = "delta", key: str = "spark.sink.path") -> Store:
    """The place that a property names; nothing is looked at yet.

    Args:
        text: a path, or a URL with the scheme ``file``, ``s3`` or ``s3a``.

    Raises:
        SinkRefused: it is neither on a file system nor in S3.
    """
    if not is_s3(text):
        return Directory(local_root(text, sink, key))
    from kcl_mld.spark.table.s3_store import Bucket  # noqa: PLC0415 - most workers need none

    try:
        return Bucket(s3_place(text))
    except ValueError as error:
        raise SinkRefused(f"{key}={text}: {error}; write it like s3://bucket/prefix") from error
