"""Which rows to write, in which order, to move a lease table between the two kinds of keys.

Three phases, each complete before the next begins:

1. every row is copied to its new key, *staged*: no worker can take the copy;
2. every old row is deleted, if it is still what was copied;
3. every staged row is made valid.

At any moment each shard has a row that says how far it is read, and never two that a worker could
take: that is, no row is lost and no shard is read twice. A table that is half moved has staged rows
or rows of both kinds, and is refused by kcl-mld workers of both kinds. Whatever was written, a plan
made from the rows that are there goes on to the same end; a plan in the other direction goes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kcl_mld.config.stream import Stream
from kcl_mld.errors import MalformedData
from kcl_mld.leases.model.lease_item import is_lease_entity, is_moving, item_key, lease_from_item
from kcl_mld.leases.model.lease_move import (
    RowKind,
    RowName,
    comparable,
    contents,
    staged,
    valid,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kcl_mld.leases.model.table_item import Item


class MigrationPhase(StrEnum):
    """What a step does, in the order of the phases."""

    COPY = "copy"
    DELETE = "delete"
    VALIDATE = "make valid"


@dataclass(frozen=True, slots=True)
class RowWrite:
    """One write: the row ``key`` goes from ``before`` to ``after``.

    Attributes:
        before: the whole item as the write expects it; None = there must be none.
        after: the whole item that it leaves; None = none.
        source: key of the row that ``after`` is a copy of, else None.
    """

    phase: MigrationPhase
    key: str
    before: Item | None
    after: Item | None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """A plan.

    Attributes:
        steps: what to write, in order; empty when there is nothing to move, or with problems.
        problems: why the table can't be moved as it is, a sentence each.
        moved: rows that are on their way, or will be.
        kept: keys of all other rows, which stay as they are; sorted.
    """

    steps: tuple[RowWrite, ...]
    problems: tuple[str, ...]
    moved: int
    kept: tuple[str, ...]


def plan_move(items: Iterable[Item], to: RowKind, identifier: str | None) -> MigrationPlan:
    """Plan from the rows that are there.

    Args:
        identifier: ``account:stream:epoch`` of the stream whose rows are moved; None, for
            ``single-stream`` only: there are no rows of any stream.
    """
    table = _Table.sort_out(items)
    problems = list(table.problems) or _problems_of_kind(table, to, identifier)
    singles = table.rows.get(None, {})
    multis = table.rows.get(identifier, {}) if identifier is not None else {}
    sources, targets = (singles, multis) if to is RowKind.MULTI else (multis, singles)
    steps: list[RowWrite] = []
    for shard_id in sorted(sources.keys() | targets.keys()):
        name = RowName(shard_id, identifier if to is RowKind.MULTI else None)
        source, target = sources.get(shard_id), targets.get(shard_id)
        why = _conflict(source, target)
        if why is not None:
            problems.append(why)
        else:
            steps += _steps(name.key, source, target)
    ordered = sorted(steps, key=lambda step: list(MigrationPhase).index(step.phase))
    touched = {step.key for step in steps} | {step.source for step in steps}
    return MigrationPlan(
        steps=() if problems else tuple(ordered),
        problems=tuple(problems),
        moved=sum(step.phase is MigrationPhase.VALIDATE for step in steps),
        kept=tuple(sorted(table.keys - touched)),
    )


def identifiers_of(items: Iterable[Item]) -> tuple[str, ...]:
    """``account:stream:epoch`` of all multi-stream rows, staged ones too; sorted.

    Rows that can't be read are left out; :func:`plan_move` reports them.
    """
    return tuple(sorted(name for name in _Table.sort_out(items).rows if name is not None))


def moving_to(items: Iterable[Item], name: str) -> str | None:
    """``account:stream:epoch`` to which rows of the stream ``name`` have begun to move, or None."""
    begun = {
        identifier
        for identifier, rows in _Table.sort_out(items).rows.items()
        if identifier is not None
        and Stream.parse_identifier(identifier).name == name
        and any(map(is_moving, rows.values()))
    }
    return begun.pop() if len(begun) == 1 else None


def _problems_of_kind(table: _Table, to: RowKind, identifier: str | None) -> list[str]:
    streams = [name for name in table.rows if name is not None]
    if to is RowKind.SINGLE:
        others = sorted(name for name in streams if name != identifier)
        if not others:
            return []
        listed = ", ".join(sorted(streams))
        why = f"the table has rows of {len(streams)} streams ({listed})"
        return [f"{why}; keys without a stream can hold one of them only"]
    begun = sorted(
        name
        for name in streams
        if name != identifier and any(map(is_moving, table.rows[name].values()))
    )
    return [
        f"a move of the rows to {name} has begun; finish it with --stream {name}, or take it back "
        "with --to single-stream"
        for name in begun
    ]


def _conflict(source: Item | None, target: Item | None) -> str | None:
    """Why one shard's two rows can't become one."""
    if source is None or target is None or is_moving(source) is not is_moving(target):
        return None
    if is_moving(source) and contents(source) == contents(target):
        return None
    return (
        f"one shard has two rows, {_described(source)} and {_described(target)}: nothing tells "
        "which one is right. Delete the other one"
    )


def _described(item: Item) -> str:
    position = item.get("checkpoint", {}).get("S", "-")
    return f"{item_key(item)} (checkpoint {position})"


def _steps(key: str, source: Item | None, target: Item | None) -> list[RowWrite]:
    """What is left to do for one shard, in the order of the phases."""
    if source is None:
        if target is None or not is_moving(target):
            return []
        return [RowWrite(MigrationPhase.VALIDATE, key, target, valid(target))]
    delete = RowWrite(MigrationPhase.DELETE, item_key(source), source, None)
    if target is not None and not is_moving(target):
        return [delete]  # the copy of a move that was taken back before this row was touched
    after = staged(source, key)
    validate = RowWrite(MigrationPhase.VALIDATE, key, after, valid(after))
    if target is not None and comparable(target) == after:
        return [delete, validate]
    return [RowWrite(MigrationPhase.COPY, key, target, after, item_key(source)), delete, validate]


@dataclass(frozen=True, slots=True)
class _Table:
    """Lease rows by stream (None = keys without one) and shard."""

    rows: Mapping[str | None, Mapping[str, Item]]
    problems: tuple[str, ...]
    keys: frozenset[str]

    @classmethod
    def sort_out(cls, items: Iterable[Item]) -> _Table:
        rows: dict[str | None, dict[str, Item]] = {}
        problems: list[str] = []
        keys: set[str] = set()
        for item in sorted(items, key=item_key):
            keys.add(item_key(item))
            if not is_lease_entity(item):
                continue
            try:
                name = _checked(item)
            except MalformedData as error:
                problems.append(f"row {item_key(item)} can't be read: {error}")
            else:
                rows.setdefault(name.identifier, {})[name.shard_id] = item
        return cls(rows, tuple(problems), frozenset(keys))


def _checked(item: Item) -> RowName:
    """The name of a row all of which can be read, and whose attributes fit its key."""
    lease_from_item(valid(item) if is_moving(item) else item)
    return RowName.parse(item_key(item))


def signs_of_life(before: Iterable[Item], after: Iterable[Item]) -> tuple[str, ...]:
    """What changed between two scans, a sentence each: a worker writes to the table.

    Workers renew each of their leases within the failover time, take those of dead workers, and,
    from KCL 3.x on, renew the leader's lock and write their metrics.
    """
    old = {item_key(item): comparable(item) for item in before}
    new = {item_key(item): comparable(item) for item in after}
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return tuple(_sign(key, old.get(key), new.get(key)) for key in changed)


def _sign(key: str, before: Item | None, after: Item | None) -> str:
    if after is None:
        return f"somebody deleted row {key}"
    if before is None:
        return f"{_writer(after)} created row {key}"
    counters = [item.get("leaseCounter", {}).get("N") for item in (before, after)]
    if counters[0] != counters[1]:
        return f"{_writer(after)} wrote row {key}: its counter went from {counters[0]} to {counters[1]}"
    return f"{_writer(after)} wrote row {key}"


def _writer(item: Item) -> str:
    for name in ("checkpointOwner", "leaseOwner", "ownerName"):
        if owner := item.get(name, {}).get("S"):
            return f"worker {owner}"
    if item.get("entityType", {}).get("S") == "WORKER_METRIC_STATS":
        return f"worker {item_key(item)}"
    return "somebody"
