"""What several children of a shard wrote down, and the judge of it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.process.daemon import alive, journals

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kcl_mld_protocol.conform.daemon import DaemonRun

Position = tuple[int, int]
DATA = Path(__file__).resolve().parents[1] / "data"


class Sight(NamedTuple):
    """A record as a process saw it; they sort by time, those of a batch by position."""

    at_s: float
    position: Position
    key: str
    text: str


@dataclass
class Sibling:
    """A process that was one of the children of a shard.

    Attributes:
        child: its index; None = it is the only one.
        begins: where it was told to begin, as text and number.
        confirmed: its last checkpoint that was answered without an error.
    """

    pid: int
    shard: str
    child: str | None
    children: str | None
    arguments: list[str]
    begins: list[Any]
    entries: list[dict[str, Any]]
    sights: list[Sight] = field(default_factory=list)
    confirmed: Position = (-1, -1)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return alive(self.pid)

    def heard(self, what: str) -> bool:
        """Whether it had such a message, or such a result."""
        return any(entry["saw"] == what for entry in self.entries)


def siblings(*runs: DaemonRun) -> list[Sibling]:
    """All processes that workers had so far."""
    found = []
    for run in runs:
        for pid, entries in journals(run).items():
            if entries:
                found.append(_sibling(pid, entries))
    return found


def _sibling(pid: int, entries: list[dict[str, Any]]) -> Sibling:
    first = entries[0]
    made = Sibling(
        pid,
        first["shard"],
        first.get("child"),
        first.get("children"),
        first["arguments"],
        first.get("position", []),
        entries,
    )
    for entry in entries:
        made.sights += [
            Sight(entry["at"], (int(number), sub or 0), key, text)
            for number, sub, key, text in entry.get("records", ())
        ]
        if entry["saw"] == "checkpoint" and entry["position"]:
            number, sub = entry["position"]
            made.confirmed = int(number), sub or 0
    return made


def texts(*runs: DaemonRun) -> list[str]:
    """Of all records that processes saw, in no order."""
    return [sight.text for one in siblings(*runs) for sight in one.sights]


def faults(
    put: dict[str, list[str]],
    found: Collection[Sibling],
    killed: Iterable[int] = (),
    killed_workers: Iterable[int] = (),
    at_once: Collection[frozenset[int]] = (),
) -> list[str]:
    """What is wrong; empty = nothing is.

    Args:
        put: texts of each key in their order, each once.
        killed: processes that were killed alone: what they did not confirm may come again.
        killed_workers: children of workers that were killed: what is behind the mark may come again.
        at_once: pairs of processes that may see the same, as the lease of one was taken from it.
    """
    place = {text: (key, at) for key, of_key in put.items() for at, text in enumerate(of_key)}
    seen = {sight.text for one in found for sight in one.sights}
    wrong = [f"lost: {text}" for text in place if text not in seen]
    wrong += [f"unknown: {text}" for text in seen if text not in place]
    for one in found:
        wrong += [
            f"{one.pid}: two living children for {e['key']}"
            for e in one.entries
            if e["saw"] == "doubled" and not any(one.pid in pair for pair in at_once)
        ]
    wrong += _order(place, found)
    return wrong + _repeated(found, set(killed), set(killed_workers), at_once)


def _order(place: dict[str, tuple[str, int]], found: Collection[Sibling]) -> list[str]:
    """Each process has each of its keys without a gap, and begins no later than others ended."""
    wrong = []
    for one in found:
        last: dict[str, int] = {}
        for sight in one.sights:
            key, at = place[sight.text]
            if at != last.get(key, at - 1) + 1:
                wrong.append(f"{one.pid}: {key} has {at} after {last[key]}")
            last[key] = at
    reached: dict[str, int] = defaultdict(lambda: -1)
    for sight in sorted(itertools.chain(*(one.sights for one in found))):
        key, at = place[sight.text]
        if at > reached[key] + 1:
            wrong.append(f"{key}: {at} before {reached[key] + 1}")
        reached[key] = max(reached[key], at)
    return wrong


def _repeated(
    found: Collection[Sibling],
    killed: set[int],
    of_workers: set[int],
    at_once: Collection[frozenset[int]],
) -> list[str]:
    first: dict[str, tuple[Sibling, Sight]] = {}
    wrong = []
    everything = [(sight, one) for one in found for sight in one.sights]
    for sight, one in sorted(everything, key=lambda pair: pair[0]):
        if sight.text in first:
            before, _ = first[sight.text]
            if frozenset((before.pid, one.pid)) in at_once:
                pass
            elif before.pid not in killed | of_workers:
                wrong.append(f"{sight.text}: again by {one.pid} after {before.pid}")
            elif before.pid in killed and sight.position <= before.confirmed:
                wrong.append(f"{sight.text}: again by {one.pid} though {before.pid} confirmed it")
        first[sight.text] = one, sight
    return wrong
