"""Where dead letters go, as the consumer of a shard sees it."""

from __future__ import annotations

from typing import Protocol


class LetterStore(Protocol):
    """Keeps documents by their ids; the same id again overwrites, or its readers see that it is one."""

    async def put(self, letter_id: str, shard_id: str, document: bytes) -> None:
        """Keep a document for good; on return it survives a crash.

        Raises:
            LetterRefused: it is not known to be kept.
        """
        ...
