"""What a child is called in the log and in errors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChildName:
    """``shardId-000000000000`` or, of several children of a shard, ``shardId-000000000000/3``.

    Attributes:
        shard_id: bare shard id.
        index: from 0; None for the only child of a shard.
    """

    shard_id: str
    index: int | None = None

    def __str__(self) -> str:
        return self.shard_id if self.index is None else f"{self.shard_id}/{self.index}"

    @property
    def facts(self) -> dict[str, object]:
        """For ``extra`` of a log record."""
        return {"shard_id": self.shard_id, "child_index": self.index}
