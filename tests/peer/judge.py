"""What was put and what programs saw: which records are lost, doubled or out of order, per shard.

Programs keep journals as ``tests/data/kclpy/journal.py`` does: a file for each time that a program
held a shard, a *hold*. The data of a record is ``stream/number``.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: So long two workers may be given records of one shard at once: who loses a lease learns of it by its
#: next renewal, which is due within the failover time of all fleets here.
OVERLAP_S = 10.0

_SENTINELS = {"AT_TIMESTAMP": -3, "TRIM_HORIZON": -2, "LATEST": -1, "SHARD_END": 1 << 256}


class Shard(NamedTuple):
    """A shard of one of the streams."""

    stream: str
    shard_id: str


@dataclass(frozen=True, slots=True)
class Hold:
    """One program, one shard, from ``initialize`` to its end.

    Attributes:
        worker: who held the lease.
        begun_s: epoch seconds of ``initialize``.
        position: sequence number that it was told to begin after; negative = a sentinel.
        seen: time and sequence number of each record, as they came.
        confirmed: time and sequence number of each checkpoint that was answered without error.
        ended: whether it heard ``shardEnded``.
    """

    worker: str
    shard: Shard
    begun_s: float
    position: int
    seen: tuple[tuple[float, int], ...]
    confirmed: tuple[tuple[float, int], ...]
    ended: bool


@dataclass(slots=True)
class Verdict:
    """What the judge found; everything that is wrong is a line of ``faults``.

    Attributes:
        put: records that the streams took.
        lost: of these, nobody saw.
        doubled: sightings of a record beyond the first.
        disordered: records of a hold that came after a later one.
        reread: holds that began before what was already confirmed.
        out_of_lineage: shards that were read before all of a parent.
        overlap_s: the longest time that two workers were given records of one shard at once.
        shards: records put and sightings for each.
        edges: pairs of parent and child with records in both.
    """

    put: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    reread: int = 0
    out_of_lineage: int = 0
    overlap_s: float = 0.0
    edges: int = 0
    shards: dict[Shard, tuple[int, int]] = field(default_factory=dict)
    by_worker: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        workers = ", ".join(f"{name} {count}" for name, count in sorted(self.by_worker.items()))
        return (
            f"{self.put} records in {len(self.shards)} shards: {self.lost} lost, {self.doubled} "
            f"doubled, {self.disordered} out of order, {self.reread} read again though confirmed, "
            f"{self.out_of_lineage} of {self.edges} children before a parent's end; two workers at "
            f"once for at most {self.overlap_s:.1f} s; seen by {workers}"
        )


def holds(journals: Path, worker: str, stream: str = "") -> list[Hold]:
    """All holds of a worker's journals.

    Args:
        journals: folder.
        worker: its id.
        stream: of those whose programs do not know one, and saw no record.
    """
    found = []
    for path in sorted(journals.glob("journal-*.jsonl")):
        lines = [line for line in path.read_text().splitlines() if line.endswith("}")]
        entries = [json.loads(line) for line in lines]
        if entries and entries[0]["saw"] == "initialize":
            found.append(_hold(entries, worker, stream))
    return found


def _hold(entries: list[dict[str, Any]], worker: str, stream: str) -> Hold:
    first = entries[0]
    seen: list[tuple[float, int]] = []
    confirmed: list[tuple[float, int]] = []
    position = _number(first["position"][0])
    last, ended = position, False
    for entry in entries:
        if entry["saw"] == "records":
            seen += [(entry["at"], int(record[0])) for record in entry["records"]]
            last = seen[-1][1]
        elif entry["saw"] == "shard_ended":
            last, ended = _SENTINELS["SHARD_END"], True
        elif entry["saw"] == "checkpoint":
            confirmed.append((entry["at"], last))
    records = [record for entry in entries for record in entry.get("records", ())]
    named = first["stream"] or (records[0][3].partition("/")[0] if records else stream)
    shard = Shard(named, first["shard"])
    return Hold(worker, shard, first["at"], position, tuple(seen), tuple(confirmed), ended)


def _number(position: str | None) -> int:
    return _SENTINELS.get(str(position), -2) if not str(position).isdigit() else int(str(position))


def judge(
    put: Mapping[Shard, Iterable[int]],
    found: Iterable[Hold],
    parents: Mapping[Shard, Iterable[Shard]],
) -> Verdict:
    """Compare.

    Args:
        put: sequence numbers of each shard.
        found: holds of all workers.
        parents: of each shard that has some.
    """
    verdict = Verdict()
    by_shard: dict[Shard, list[Hold]] = defaultdict(list)
    for hold in found:
        by_shard[hold.shard].append(hold)
        verdict.by_worker[hold.worker] += len(hold.seen)
    for shard in dict.fromkeys([*put, *by_shard]):
        _judge_shard(verdict, shard, set(put.get(shard, ())), by_shard[shard])
    _judge_lineage(verdict, by_shard, parents)
    return verdict


def _judge_shard(verdict: Verdict, shard: Shard, put: set[int], found: list[Hold]) -> None:
    seen = Counter(number for hold in found for _, number in hold.seen)
    lost, unknown = put - set(seen), set(seen) - put
    verdict.put += len(put)
    verdict.lost += len(lost)
    verdict.doubled += seen.total() - len(seen)
    verdict.shards[shard] = len(put), seen.total()
    if lost:
        verdict.faults.append(f"{shard}: {len(lost)} lost, first {min(lost)}")
    if unknown:
        verdict.faults.append(f"{shard}: {len(unknown)} seen that nobody put, {min(unknown)}")
    for hold in found:
        numbers = [hold.position, *(number for _, number in hold.seen)]
        wrong = sum(later <= sooner for sooner, later in itertools.pairwise(numbers))
        verdict.disordered += wrong
        if wrong:
            verdict.faults.append(f"{shard}: {wrong} out of order at {hold.worker}")
        for other in found:
            before = [at for at in other.confirmed if at[0] < hold.begun_s]
            if other is not hold and before and before[-1][1] > hold.position:
                verdict.reread += 1
                verdict.faults.append(
                    f"{shard}: {hold.worker} began after {hold.position}, but {other.worker} had "
                    f"confirmed {before[-1][1]} {hold.begun_s - before[-1][0]:.1f} s before"
                )
    ordered = sorted((hold for hold in found if hold.seen), key=lambda hold: hold.seen[0][0])
    for sooner, later in itertools.pairwise(ordered):
        overlap_s = sooner.seen[-1][0] - later.seen[0][0]
        verdict.overlap_s = max(verdict.overlap_s, overlap_s)
        if overlap_s > OVERLAP_S:
            both = f"{sooner.worker} and {later.worker}"
            verdict.faults.append(f"{shard}: {both} read it at once for {overlap_s:.1f} s")


def _judge_lineage(
    verdict: Verdict,
    by_shard: Mapping[Shard, list[Hold]],
    parents: Mapping[Shard, Iterable[Shard]],
) -> None:
    first: dict[Shard, dict[int, float]] = {}
    for shard, found in by_shard.items():
        sights = first[shard] = {}
        for at_s, number in (one for hold in found for one in hold.seen):
            sights[number] = min(at_s, sights.get(number, at_s))
    for child, of_child in parents.items():
        for parent in of_child:
            if first.get(parent) and first.get(child):
                verdict.edges += 1
                late_s = max(first[parent].values()) - min(first[child].values())
                if late_s > 0:
                    verdict.out_of_lineage += 1
                    verdict.faults.append(
                        f"{child}: read {late_s:.1f} s before the end of its parent"
                    )
