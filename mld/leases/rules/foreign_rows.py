"""Whether a lease table has rows of another application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.kernel.model.text import counted
from kcl_mld.leases.model.lease_item import (
    STREAM_MARK,
    is_lease_entity,
    is_moving,
    is_multi_stream_item,
    item_key,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kcl_mld.leases.model.table_item import Item

#: Number of rows that a sentence names.
_NAMED = 5


def foreign_rows(
    items: Iterable[Item], table: str, *, is_multi_stream: bool, stream_mark: str | None = None
) -> str | None:
    """Why no worker may use a table: it has rows of another application.

    Args:
        is_multi_stream: this worker writes keys ``account:stream:epoch:shardId``, not ``shardId``.
        stream_mark: ``account:region:name`` of a single stream, or only its name while the rest is
            unknown, which is then compared by name; None = one of many streams.

    Returns:
        A sentence that says what to do; None = all rows belong to this application.
    """
    moving: list[str] = []
    of_kind: dict[bool, list[str]] = {True: [], False: []}
    marked: dict[str, list[str]] = {}
    for item in items:
        if not is_lease_entity(item):
            continue
        key = item_key(item)
        if is_moving(item):
            moving.append(key)
            continue
        is_multi = is_multi_stream_item(item)
        # An unreadable row does not prove a single stream: any key would be one.
        if is_multi or "leaseCounter" in item:
            of_kind[is_multi].append(key)
        if mark := item.get(STREAM_MARK, {}).get("S"):
            marked.setdefault(str(mark), []).append(key)
    if moving:
        return (
            f"{counted(len(moving), 'row', 'rows')} of the lease table {table} on the way to other keys "
            f"({_named(moving)}): finish the move with kcl-mld leases migrate, or take it back with "
            "the other --to"
        )
    others = of_kind[not is_multi_stream]
    if others and is_multi_stream:
        return (
            f"the lease table {table} has rows of a single-stream application ({_named(others)}), "
            "but this configuration writes keys like account:stream:epoch:shardId. Give it an "
            "applicationName of its own, configure it for a single stream, or move the rows with "
            "kcl-mld leases migrate --to multi-stream"
        )
    if others:
        return (
            f"the lease table {table} has rows of a multi-stream application ({_named(others)}), "
            "but this configuration is for a single stream. Give it an applicationName of its own, "
            "or move the rows with kcl-mld leases migrate --to single-stream"
        )
    if stream_mark is None:
        return None
    is_whole = ":" in stream_mark
    foreign = {
        one for one in marked if (one if is_whole else one.rpartition(":")[2]) != stream_mark
    }
    return _two_streams(table, stream_mark, marked, min(foreign)) if foreign else None


def _two_streams(table: str, own: str, marked: Mapping[str, Collection[str]], other: str) -> str:
    rows = "; ".join(f"{mark}: {_named(keys)}" for mark, keys in sorted(marked.items()))
    # No list of commands, as there may be any number of rows. No double quote: JSON logs escape it.
    region = f" --region {other.split(':')[1]}" if other.count(":") > 1 else ""
    command = (
        f"aws dynamodb scan --table-name {table}{region} --filter-expression '{STREAM_MARK} = :s' "
        f"--expression-attribute-values ':s={{S={other}}}' --query 'Items[].[leaseKey.S]' "
        "--output text | xargs -I% aws dynamodb delete-item "
        f"--table-name {table}{region} --key 'leaseKey={{S=%}}'"
    )
    return (
        f"this worker reads the stream {own}, but the lease table {table} has rows of another "
        f"stream ({rows}); each would go on from the checkpoints of the other. Give each stream an "
        f"applicationName of its own. To clear the rows of {other}, stop all workers and run: "
        f"{command}"
    )


def _named(keys: Collection[str]) -> str:
    """The first keys, and the number of the others."""
    ordered = sorted(keys)
    more = len(ordered) - _NAMED
    return ", ".join(ordered[:_NAMED]) + (f" and {more} more" if more > 0 else "")
