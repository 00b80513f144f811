"""Whether the lease table is still the one that this worker started with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Status of a table that is being deleted.
_DELETING = "DELETING"


def missing_table(name: str, table: Mapping[str, Any] | None, known: object) -> str | None:
    """What is wrong with a lease table, as a sentence; None = it is the one of the start.

    Args:
        table: ``Table`` of DescribeTable; None = the table does not exist.
        known: the :func:`table_identity` at the start; None = unknown.
    """
    if table is None or table.get("TableStatus") == _DELETING:
        what = "was deleted" if table is None else "is being deleted"
        return (
            f"lease table {name} {what}, so no checkpoint can be stored. Restore it from a backup, "
            "or start again with a new one: every shard is then read from the initial position"
        )
    if None in (known, table_identity(table)) or table_identity(table) == known:
        return None
    return (
        f"lease table {name} was deleted and created again, so the checkpoints of this worker are "
        "lost. Start again: every shard without a lease is read from the initial position"
    )


def table_identity(table: Mapping[str, Any]) -> object:
    """Distinguishes a table from another of the same name; None if the server returns no id."""
    return table.get("TableId") or table.get("CreationDateTime")
