"""Manifests on the disk, in a directory that all workers' hosts see.

A manifest's name is its identity, so the guard of a shard in the table of positions names the one
that moved it last. It is there, durably, before that commit, and goes when all tables have it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from mld.spark.errors import SinkRefused, SinkUnavailable
from mld.spark.table.disk import make_directories, sync_directory, sync_file
from mld.spark.table.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SUFFIX, _DRAFT = ".json", ".draft"


class Manifests:
    """The open manifests of several tables. Safe to use from any thread.

    Args:
        directory: where they are.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def prepare(self) -> None:
        """Make the directory."""
        make_directories(self._directory)

    def keep(self, manifest: Manifest) -> None:
        """Make a manifest durable.

        Raises:
            OSError: it may be there or not; nothing was committed.
        """
        path = self._path(manifest.identity)
        draft = path.with_suffix(_DRAFT)
        try:
            with draft.open("w", encoding="utf-8") as file:
                file.write(manifest.encode())
                file.flush()
                sync_file(file.fileno())
            draft.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        sync_directory(self._directory)

    def get(self, identity: int) -> Manifest | None:
        """An open manifest; None if there is none, so that all tables have what it named.

        Raises:
            SinkRefused: the file is broken.
            SinkUnavailable: it can't be read.
        """
        return self._read(self._path(identity))

    def all(self) -> Iterator[Manifest]:
        """Every open manifest, of whatever shard.

        Raises:
            SinkRefused: a file is broken.
            SinkUnavailable: one can't be read.
        """
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            if (found := self._read(path)) is not None:
                yield found

    def remove(self, manifest: Manifest) -> None:
        """All tables have it, or none ever will; quiet if it is gone."""
        self._path(manifest.identity).unlink(missing_ok=True)

    def named(self, table: str) -> set[str]:
        """Paths of the files that somebody may still add to a table, from its directory on."""
        return {
            file.path
            for manifest in self.all()
            for step in manifest.steps
            if step.table == table
            for file in step.files
        }

    def _path(self, identity: int) -> Path:
        return self._directory / f"{identity:016x}{_SUFFIX}"

    def _read(self, path: Path) -> Manifest | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SinkUnavailable(f"{path} can't be read: {error}") from error
        try:
            with open(descriptor, encoding="utf-8") as file:
                return Manifest.decode(file.read())
        except OSError as error:
            raise SinkUnavailable(f"{path} can't be read: {error}") from error
        except ValueError as error:
            raise SinkRefused(
                f"{path} says which files belong to a batch, and can't be read: {error}. Use the "
                f"release that wrote it, or choose a new spark.sink.epoch"
            ) from error
