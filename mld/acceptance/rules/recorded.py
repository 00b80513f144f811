"""What a run recorded, sorted for the judge; the lines are those of ``kcl_mld.acceptance.recording``.

========== ======================================================================================
what       further members
========== ======================================================================================
run        ``region``, ``started_at``, ``is_local``, limits: what the run is
reader     ``name`` of an application, ``source`` that it reads
put        ``source``, ``key``, ``first`` number, ``count`` of user records, ``shard``, ``sequence``
unsure     ``source``, ``key``, ``first``, ``count``: perhaps twice in the source; perhaps not at all,
           unless there is a ``put``, too
shards     ``source``, ``parents``: shard -> its parents
began      ``reader``, ``worker``, ``child``, ``shard``, ``position`` after which records follow
got        the same, ``records``: [sequence, sub-sequence number, key, number] each
confirmed  the same, ``position`` of a checkpoint that was stored, or ``SHARD_END``
lost       the same without more: the child was sent leaseLost
cause      ``reader``, ``cause`` of redelivery, ``worker`` that it hits ("" = any)
stage      ``name``, ``outcome``, ``reason``, ``began``, ``ended``
metric     ``reader``, ``operation``, ``name``, ``total``, ``samples``: CloudWatch, read back
requests   ``by``, ``counts``: operation -> calls
observed   ``name``, ``value``: what the service did
leftover   ``kind``, ``name``: still there after the clean-up
cleaned    ``count`` of resources that were deleted
cost       ``estimated_usd``
========== ======================================================================================

``at``, ``began`` and ``ended`` are seconds since 1970, by the clock of the one machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Sequence and sub-sequence number; those of sentinels are infinite.
RecordPosition: TypeAlias = "tuple[float, int]"
START: RecordPosition = (-math.inf, 0)
END: RecordPosition = (math.inf, 0)


class RecordIdentity(NamedTuple):
    """Of a user record: its partition key, and its number among those of the key."""

    key: str
    number: int


@dataclass(frozen=True, slots=True)
class Put:
    """One user record that its source took.

    Attributes:
        at_s: before the request.
        shard: "" = unknown, as of changes of a table.
        position: :data:`START` if unknown.
    """

    at_s: float
    shard: str
    position: RecordPosition


@dataclass(slots=True)
class RecordSource:
    """A stream, or a table with a stream.

    Attributes:
        puts: in the order in which they were put.
        unsure: nobody knows how often these were taken; those that were put, once or twice.
        parents: of the shards that have some.
    """

    puts: dict[RecordIdentity, Put] = field(default_factory=dict)
    unsure: set[RecordIdentity] = field(default_factory=set)
    parents: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ChildLife:
    """One child process, which has one shard; equal to itself only.

    Attributes:
        began_s: None if it was given records before it was initialized.
        confirmed: times and positions of its checkpoints.
        lost_s: when it was sent leaseLost; None = never.
    """

    worker: str
    shard: str
    began_s: float | None = None
    position: RecordPosition = START
    confirmed: list[tuple[float, RecordPosition]] = field(default_factory=list)
    lost_s: float | None = None


class RecordSighting(NamedTuple):
    """One user record that a child was given."""

    at_s: float
    child: ChildLife
    position: RecordPosition
    identity: RecordIdentity


class Cause(NamedTuple):
    """What made a worker's shards go to another one, or back to itself.

    Attributes:
        name: such as ``killed``.
        worker: "" = any.
    """

    at_s: float
    name: str
    worker: str


@dataclass(slots=True)
class Reader:
    """An application.

    Attributes:
        sightings: in the order of time.
    """

    source: str
    children: dict[str, ChildLife] = field(default_factory=dict)
    sightings: list[RecordSighting] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    totals: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)


class StageResult(NamedTuple):
    """How a stage ended: ``passed``, ``failed`` or ``not run``."""

    name: str
    outcome: str
    reason: str
    began_s: float
    ended_s: float


@dataclass(slots=True)
class Recorded:
    """All lines of a run."""

    run: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, RecordSource] = field(default_factory=dict)
    readers: dict[str, Reader] = field(default_factory=dict)
    stages: list[StageResult] = field(default_factory=list)
    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    observed: dict[str, float] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    cleaned: int | None = None
    estimated_usd: float | None = None


def read(lines: Iterable[Mapping[str, Any]]) -> Recorded:
    """Sort the lines of a recording; what the judge does not need is left out."""
    recorded = Recorded()
    for line in lines:
        if (sort := _SORTS.get(line["what"])) is not None:
            sort(recorded, line)
    for reader in recorded.readers.values():
        reader.sightings.sort(key=lambda sighting: sighting.at_s)
    return recorded


def _run(recorded: Recorded, line: Mapping[str, Any]) -> None:
    recorded.run = {name: value for name, value in line.items() if name != "what"}


def _reader(recorded: Recorded, line: Mapping[str, Any]) -> None:
    recorded.readers[line["name"]] = Reader(line["source"])


def _put(recorded: Recorded, line: Mapping[str, Any]) -> None:
    puts = _source(recorded, line).puts
    sequence = line.get("sequence")
    for index in range(line["count"]):
        position = START if sequence is None else (int(sequence), index)
        identity = RecordIdentity(line["key"], line["first"] + index)
        puts[identity] = Put(line["at"], line.get("shard", ""), position)


def _unsure(recorded: Recorded, line: Mapping[str, Any]) -> None:
    unsure = _source(recorded, line).unsure
    unsure |= {RecordIdentity(line["key"], line["first"] + index) for index in range(line["count"])}


def _shards(recorded: Recorded, line: Mapping[str, Any]) -> None:
    _source(recorded, line).parents = dict(line["parents"])


def _source(recorded: Recorded, line: Mapping[str, Any]) -> RecordSource:
    return recorded.sources.setdefault(line["source"], RecordSource())


def _child(recorded: Recorded, line: Mapping[str, Any]) -> ChildLife:
    children = recorded.readers[line["reader"]].children
    return children.setdefault(line["child"], ChildLife(line["worker"], line["shard"]))


def _began(recorded: Recorded, line: Mapping[str, Any]) -> None:
    child = _child(recorded, line)
    child.began_s, child.position = line["at"], _position(line["position"])


def _got(recorded: Recorded, line: Mapping[str, Any]) -> None:
    child, sightings = _child(recorded, line), recorded.readers[line["reader"]].sightings
    for sequence, sub, key, number in line["records"]:
        sightings.append(
            RecordSighting(line["at"], child, (int(sequence), sub), RecordIdentity(key, number))
        )


def _confirmed(recorded: Recorded, line: Mapping[str, Any]) -> None:
    _child(recorded, line).confirmed.append((line["at"], _position(line["position"])))


def _lost(recorded: Recorded, line: Mapping[str, Any]) -> None:
    _child(recorded, line).lost_s = line["at"]


def _position(position: Sequence[Any]) -> RecordPosition:
    sequence, sub = position
    if sequence == "SHARD_END":
        return END
    return (int(sequence), sub) if str(sequence).isdecimal() else START


def _cause(recorded: Recorded, line: Mapping[str, Any]) -> None:
    cause = Cause(line["at"], line["cause"], line["worker"])
    recorded.readers[line["reader"]].causes.append(cause)


def _stage(recorded: Recorded, line: Mapping[str, Any]) -> None:
    recorded.stages.append(
        StageResult(line["name"], line["outcome"], line["reason"], line["began"], line["ended"])
    )


def _metric(recorded: Recorded, line: Mapping[str, Any]) -> None:
    figures = line["total"], line["samples"]
    recorded.readers[line["reader"]].totals[line["operation"], line["name"]] = figures


def _requests(recorded: Recorded, line: Mapping[str, Any]) -> None:
    for operation, count in line["counts"].items():
        key = line["by"], operation
        recorded.requests[key] = recorded.requests.get(key, 0) + count


def _observed(recorded: Recorded, line: Mapping[str, Any]) -> None:
    recorded.observed[line["name"]] = line["value"]


def _leftover(recorded: Recorded, line: Mapping[str, Any]) -> None:
    recorded.leftovers.append(f"{line['kind']} {line['name']}")


def _cleaned(recorded: Recorded, line: Mapping[str, Any]) -> None:
    recorded.cleaned = line["count"]


def _cost(recorded: Recorded, line: Mapping[str, Any]) -> None:
    recorded.estimated_usd = line["estimated_usd"]


_SORTS = {
    "run": _run,
    "reader": _reader,
    "put": _put,
    "unsure": _unsure,
    "shards": _shards,
    "began": _began,
    "got": _got,
    "confirmed": _confirmed,
    "lost": _lost,
    "cause": _cause,
    "stage": _stage,
    "metric": _metric,
    "requests": _requests,
    "observed": _observed,
    "leftover": _leftover,
    "cleaned": _cleaned,
    "cost": _cost,
}
