"""Manifests, in a place that all workers' hosts see.

A manifest's name is its identity, so the guard of a shard in the table of positions names the one
that moved it last. It is there, durably, before that commit, and goes when all tables have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.errors import SinkRefused, SinkUnavailable
from mld.spark.table.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mld.spark.table.store import Store

_SUFFIX = ".json"


class Manifests:
    """The open manifests of several tables. Safe to use from any thread.

    Args:
        store: where they are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def prepare(self) -> None:
        """Make the place."""
        self._store.make()

    def keep(self, manifest: Manifest) -> None:
        """Make a manifest durable.

        Raises:
            OSError: it may be there or not; nothing was committed.
        """
        self._store.put(_name(manifest.identity), manifest.encode().encode())

    def get(self, identity: int) -> Manifest | None:
        """An open manifest; None if there is none, so that all tables have what it named.

        Raises:
            SinkRefused: the file is broken.
            SinkUnavailable: it can't be read.
        """
        return self._read(_name(identity))

    def all(self) -> Iterator[Manifest]:
        """Every open manifest, of whatever shard.

        Raises:
            SinkRefused: a file is broken.
            SinkUnavailable: one can't be read.
        """
        for name in self._store.names(_SUFFIX):
            if (found := self._read(name)) is not None:
                yield found

    def old(self) -> set[int]:
        """The identities of those that were made a week ago or before.

        Raises:
            SinkRefused: a file is broken.
            SinkUnavailable: one can't be read.
            OSError: the store does not answer.
        """
        if not (names := self._store.old_names(_SUFFIX)):
            return set()
        return {each.identity for each in self.all() if _name(each.identity) in names}

    def remove(self, manifest: Manifest) -> None:
        """All tables have it, or none ever will; quiet if it is gone."""
        self._store.drop(_name(manifest.identity))

    def named(self, table: str) -> set[str]:
        """Paths of the files that somebody may still add to a table, from its directory on."""
        return {
            file.path
            for manifest in self.all()
            for step in manifest.steps
            if step.table == table
            for file in step.files
        }

    def path(self, identity: int) -> str:
        """Where a manifest is, or would be."""
        return f"{self._store.name}/{_name(identity)}"

    def _read(self, name: str) -> Manifest | None:
        try:
            text = self._store.get(name)
            return None if text is None else Manifest.decode(text)
        except OSError as error:
            raise SinkUnavailable(f"{self._store.name}/{name} can't be read: {error}") from error
        except ValueError as error:
            raise SinkRefused(
                f"{self._store.name}/{name} says which files belong to a batch, and can't be read: {error}. Use the "
                f"release that wrote it, or choose a new spark.sink.epoch"
            ) from error


def _name(identity: int) -> str:
    return f"{identity:016x}{_SUFFIX}"
