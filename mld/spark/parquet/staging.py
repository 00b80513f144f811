"""Where a job of the parquet sink writes before anything of it counts.

Each process has a directory of its own in ``_staging`` and holds a lock on a file in it for as long
as it lives: whoever gets that lock knows that the owner is dead. A sweep first renames the
directory away, so that even a wrong verdict can only make a commit fail, never lose a part of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import time
import uuid
from typing import TYPE_CHECKING

from mld.spark.errors import SinkRefused
from mld.spark.parquet import chain_files, chain_layout

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_LOCK = "_owner.lock"
_DEAD = "_dead-"
#: Age in s after which staging without a lock file is nobody's.
_FORGOTTEN_S = 7 * 24 * 3600.0


class Staging:
    """A process's place in ``_staging``.

    Args:
        root: of the chain.
    """

    def __init__(self, root: Path) -> None:
        self._parent = root / chain_layout.STAGING
        self._directory = self._parent / uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._lock: int | None = None

    def open(self) -> None:
        """Create the directory and hold its lock until the process ends."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks: age decides
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Remove the directory and let go of the lock."""
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def new_job(self) -> Path:
        """An empty directory for a job."""
        job = self._directory / f"job-{next(self._numbers)}"
        job.mkdir(parents=True)
        return job

    def sweep(self) -> None:
        """Remove what dead processes left."""
        for directory in list(self._parent.iterdir()):
            if directory == self._directory:
                continue
            with contextlib.suppress(OSError):
                if directory.name.startswith(_DEAD):
                    shutil.rmtree(directory, ignore_errors=True)
                elif _is_dead(directory):
                    grave = self._parent / f"{_DEAD}{directory.name}"
                    directory.rename(grave)
                    shutil.rmtree(grave, ignore_errors=True)

    def probe_rename(self) -> None:
        """See whether a rename refuses to overwrite a directory that isn't empty.

        Raises:
            SinkRefused: it does not.
        """
        job = self.new_job()
        first, second, target = job / "first", job / "second", job / "target"
        for directory in (first, second):
            directory.mkdir()
            (directory / chain_layout.MARKER).write_text(directory.name, encoding="utf-8")
        chain_files.publish(first, target)
        try:
            chain_files.publish(second, target)
        except chain_files.Taken:
            return
        finally:
            shutil.rmtree(job, ignore_errors=True)
        raise SinkRefused(
            f"{self._parent}: a rename overwrites there, so two writers could not be told apart. "
            f"Use a POSIX file system"
        )

    def probe_shared(self, spark: SparkSession) -> None:
        """See whether Spark's executors and this process share the directory.

        Raises:
            SinkRefused: they don't, or neither may change what the other wrote.
        """
        job = self.new_job()
        word, rows, moved = uuid.uuid4().hex, job / "rows", job / "moved"
        (job / "word.txt").write_text(word, encoding="utf-8")
        try:
            url = chain_files.spark_url(job / "word.txt")
            if [row[0] for row in spark.read.text(url).collect()] != [word]:
                raise FileNotFoundError(url)  # noqa: TRY301 - one way out for all that can be wrong
            spark.range(1).coalesce(1).write.parquet(chain_files.spark_url(rows))
            rows.rename(moved)
            (moved / chain_layout.MARKER).write_text(word, encoding="utf-8")
            if not any(path.name.startswith("part-") for path in chain_files.data_files(moved)):
                raise FileNotFoundError(rows)  # noqa: TRY301
        except Exception as error:
            raise SinkRefused(
                f"{self._parent.parent}: Spark's executors and this host don't share that directory "
                f"with the right to change each other's files ({type(error).__name__}). Mount it on "
                f"all of them"
            ) from error
        finally:
            shutil.rmtree(job, ignore_errors=True)


def _is_dead(directory: Path) -> bool:
    """True if the owner's lock can be had, or if nothing there has changed for a week."""
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - directory.stat().st_mtime > _FORGOTTEN_S
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
