"""What the schemas of records need: a place for definitions, and decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kcl_mld.retrieval.model.schema import Decode, SchemaVersion


class DefinitionFiles(Protocol):
    """Where children find definitions."""

    @property
    def folder(self) -> str:
        """Absolute path; each definition is a file there whose name is the version id."""
        ...

    async def put(self, version: SchemaVersion) -> None:
        """Write one, whole from the moment it is there.

        Raises:
            OSError: it cannot be written.
        """
        ...


class DecoderFactory(Protocol):
    """Makes what turns payloads into JSON text."""

    def __call__(self, version: SchemaVersion) -> Decode | None:
        """Read a definition; None = payloads of this format are passed on as they are.

        Raises:
            Undecodable: the definition cannot be used.
        """
        ...
