"""How far each shard has come, as properties of an Iceberg table. Pure.

Each shard has one property: two workers whose commits follow one another change other ones. It names
the commit that wrote it: the commit's number, its snapshot, and the snapshot's sequence number.
Properties survive a rollback of the table, and rows do not. So the newest mark's snapshot must be an
ancestor of the current one, or the marks are ahead of the rows.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.spark.model import Position, ShardKey

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Begins the keys of the properties. Catalogs bound their length, so a digest follows.
PREFIX = "kclMld.mark."
_DIGITS = 32


class TableMark(NamedTuple):
    """What a table says of one shard.

    Attributes:
        position: of the last record whose rows are in the table.
        commit: number of the commit that wrote it.
        snapshot: id of that commit's snapshot.
        sequence: sequence number of that snapshot, > 0.
    """

    position: Position
    commit: int
    snapshot: int
    sequence: int


def mark_key(shard: ShardKey) -> str:
    """The property of a shard's mark, of 44 characters."""
    names = json.dumps([shard.application, shard.epoch, shard.stream, shard.shard_id])
    return PREFIX + hashlib.sha256(names.encode()).hexdigest()[:_DIGITS]


def mark_text(shard: ShardKey, mark: TableMark) -> str:
    """The value of that property, with the names for people."""
    return json.dumps(
        {
            "application": shard.application,
            "epoch": shard.epoch,
            "stream": shard.stream,
            "shard": shard.shard_id,
            "position": str(mark.position),
            "commit": f"{mark.commit:x}",
            "snapshot": mark.snapshot,
            "sequence": mark.sequence,
        }
    )


def read_marks(
    properties: Mapping[str, str], application: str, epoch: str
) -> dict[ShardKey, TableMark]:
    """All marks of an application's epoch.

    Args:
        properties: of the table.

    Raises:
        ValueError: one can't be read.
    """
    found: dict[ShardKey, TableMark] = {}
    for key, text in properties.items():
        if not key.startswith(PREFIX):
            continue
        try:
            value = json.loads(text)
            shard = ShardKey(value["application"], value["stream"], value["shard"], value["epoch"])
            mark = TableMark(
                Position.parse(value["position"]),
                int(value["commit"], 16),
                int(value["snapshot"]),
                int(value["sequence"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the property {key} is no mark of a shard: {text[:200]}") from error
        if (shard.application, shard.epoch) == (application, epoch):
            found[shard] = mark
    return found


class SnapshotLink(NamedTuple):
    """A snapshot that a table retains.

    Attributes:
        parent: id of the snapshot before it; None = it is the first one.
        sequence: its sequence number.
    """

    parent: int | None
    sequence: int


class History(StrEnum):
    """Whether the rows that marks speak of are still in the table."""

    WHOLE = "whole"
    SET_BACK = "set back"
    EXPIRED = "expired"
    """The snapshots that would tell are gone."""


def history(
    marks: Mapping[ShardKey, TableMark], retained: Mapping[int, SnapshotLink], current: int | None
) -> History:
    """Follow the parents of the current snapshot to that of the newest mark.

    Each commit that moves marks was made on a snapshot of which this held, so the newest mark stands
    for all. Of an expired parent Java leaves the id, and pyiceberg nothing: as of a first snapshot.

    Args:
        retained: the table's snapshots by id.
        current: id of the branch's snapshot; None = it has none.
    """
    if not marks:
        return History.WHOLE
    newest = max(marks.values(), key=lambda mark: mark.sequence)
    if current is None:
        return History.SET_BACK
    at: int | None = current
    while at != newest.snapshot:
        if at is None or (link := retained.get(at)) is None:
            return History.EXPIRED
        if link.sequence <= newest.sequence:
            return History.SET_BACK
        at = link.parent
    return History.WHOLE
