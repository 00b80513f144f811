"""How far each shard has come, as application transactions of a Delta table. Pure.

The log of a Delta table keeps one number per application id; the newest one counts, and it is
written in the same step that makes files visible. A position does not fit into one: a sequence
number has up to 186 bits. So a shard has five ids: three for its sequence number, one for the
sub-sequence number, and a *guard*, a random number that each commit gives to all shards in it.

The library that commits refuses only if a commit newer than its snapshot names one of the same
ids; it compares no values. So the first to commit sees in that very snapshot that each guard is
the one that it knows, and two writers behind one position cannot both succeed.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from kcl_mld.spark.model import Position, ShardKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Bits of a sequence number in one application transaction; its numbers are signed, of 64 bits.
BITS = 62
_PARTS = ("sequence-2", "sequence-1", "sequence-0")
_SUB, _GUARD = "sub", "guard"
_BELOW = 1 << BITS


class Mark(NamedTuple):
    """What a table says of one shard.

    Attributes:
        position: of the last record whose rows are in the table; None = the shard has no mark.
        guard: of the commit that wrote it, 0 <= guard < 2**62; None = the shard has no mark.
    """

    position: Position | None
    guard: int | None


#: Of a shard that no commit names.
NO_MARK = Mark(None, None)


def app_id(shard: ShardKey, what: str) -> str:
    """An application id of a shard; no two shards share one, whatever their names are."""
    return f"{_prefix(shard)}/{what}"


@lru_cache(maxsize=8192)
def _prefix(shard: ShardKey) -> str:
    names = (shard.application, shard.epoch, shard.stream, shard.shard_id)
    return "/".join(("kcl-mld", *(quote(name, safe="") for name in names)))


def guard_id(shard: ShardKey) -> str:
    """The application id of a shard's guard."""
    return app_id(shard, _GUARD)


def shard_of(application_id: str) -> ShardKey | None:
    """Whose guard an application id is; None = it is something else."""
    match application_id.split("/"):
        case ["kcl-mld", application, epoch, stream, shard_id, what] if what == _GUARD:
            names = (application, stream, shard_id, epoch)
            return ShardKey(*(unquote(name) for name in names))
    return None


def transactions(shard: ShardKey, position: Position, guard: int) -> dict[str, int]:
    """What a commit has to write for one shard: numbers by application id.

    Args:
        position: of the last record in the commit; the sequence number has at most 186 bits.
        guard: of the commit, 0 <= guard < 2**62.

    Raises:
        ValueError: a number does not fit.
    """
    rest = position.sequence
    found: dict[str, int] = {}
    for name in reversed(_PARTS):
        rest, found[app_id(shard, name)] = divmod(rest, _BELOW)
    found[app_id(shard, _SUB)] = position.sub
    found[app_id(shard, _GUARD)] = guard
    if rest or not all(0 <= number < _BELOW for number in found.values()):
        raise ValueError(f"{shard.shard_id}: the position {position} does not fit into a mark")
    return found


def read_mark(shard: ShardKey, number_of: Callable[[str], int | None]) -> Mark:
    """A shard's mark.

    Args:
        number_of: the table's number for an application id; None = it has none.

    Raises:
        ValueError: some of the numbers are missing.
    """
    numbers = [number_of(app_id(shard, name)) for name in (*_PARTS, _SUB, _GUARD)]
    there = [number for number in numbers if number is not None]
    if not there:
        return NO_MARK
    if len(there) < len(numbers):
        raise ValueError(f"{shard.shard_id}: the table has only a part of the shard's mark")
    *parts, sub, guard = there
    sequence = 0
    for part in parts:
        sequence = sequence * _BELOW + part
    return Mark(Position(sequence, sub), guard)


class Judgement(StrEnum):
    """What a look at the guards says about a commit."""

    STANDS = "stands"
    REPEAT = "repeat"
    LOST = "lost"


def judge(
    before: Mapping[ShardKey, int | None], identity: int, now: Mapping[ShardKey, int | None]
) -> tuple[Judgement, frozenset[ShardKey]]:
    """What became of a commit, or whether it may be made; no error's text is asked.

    A commit is one step: a single guard that is ours proves all of it, even if others have built on
    the rest since. It stands or moves all guards of its shards, so one that did not move proves
    that it does not stand.

    Args:
        before: the guard of each shard in the commit, as it was when its batch was cut.
        identity: the guard of this commit.
        now: the guards in a snapshot that was taken afterwards.

    Returns:
        ``STANDS``; or ``REPEAT``: no other commit came between, commit the same files on that very snapshot;
        or ``LOST`` with the shards that another writer has moved: nothing of this commit is wanted
        for them.
    """
    if any(now[shard] == identity for shard in before):
        return Judgement.STANDS, frozenset()
    moved = frozenset(shard for shard in before if now[shard] != before[shard])
    return (Judgement.LOST, moved) if moved else (Judgement.REPEAT, moved)


class EpochState(StrEnum):
    """Whether a table knows the beginning of an application's epoch."""

    NEW = "new"
    BEGUN = "begun"
    MARKS_DROPPED = "marks dropped"
    SET_BACK = "set back"


def output_property(application: str, epoch: str, what: str) -> str:
    """A table property about an application's output; it goes back with RESTORE."""
    return f"kclMld.{what}.{quote(application, safe='')}.{quote(epoch, safe='')}"


def output_id(application: str, epoch: str, what: str) -> str:
    """An application id about the same; it stays with RESTORE."""
    return "/".join(("kcl-mld", quote(application, safe=""), quote(epoch, safe=""), what))


def is_set_back(text: str | None, number: int | None) -> bool:
    """True if the table was restored to before its newest witness: only the property went back."""
    return text != (None if number is None else str(number))


def epoch_state(*, has_property: bool, has_transaction: bool) -> EpochState:
    """Two records of one step: they are there together, or something was done to the table.

    ``delta.setTransactionRetentionDuration`` drops the oldest transactions first, so while that of
    the beginning is there, no mark was dropped, and a shard without one has never begun.
    """
    if has_property:
        return EpochState.BEGUN if has_transaction else EpochState.MARKS_DROPPED
    return EpochState.SET_BACK if has_transaction else EpochState.NEW
