"""The verdict on a recorded run: what was lost, given twice or out of order, and left over.

Everything that is wrong is a line of ``faults``; a run without one has passed. A record that a
reader is given twice is no fault if three things hold: no checkpoint at or behind it had been
stored when the second child began, something was done to the first child's worker between the two
(see :data:`CAUSE_WINDOW_S`) or the first child was sent leaseLost, and they are two
children. A record that nobody was given is lost if its reader was given later ones of its shard, or
has said that the shard is read; or if the run was complete.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kcl_mld.acceptance.rules.recorded import (
    START,
    Reader,
    Recorded,
    RecordIdentity,
    RecordSource,
    read,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kcl_mld.acceptance.rules.recorded import (
        ChildLife,
        RecordPosition,
        RecordSighting,
        StageResult,
    )

#: From what was done to a worker until another child begins with its shard, at most.
CAUSE_WINDOW_S = 120.0
#: What a worker has counted for CloudWatch and not sent yet when it is killed: its buffer of 10 s,
#: and a request that is under way.
UNSENT_S = 30.0
PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
#: The name of the last part of the proof, which waits until all records were read.
END = "end"
#: Cause of a redelivery after which the worker's last metrics are missing.
KILLED = "killed"
#: Cause of a redelivery to which nothing was done: such as a network that is gone for a while.
LEASE_LOST = "lease lost"
PROCESSED = ("ProcessTask", "RecordsProcessed")
_PERCENTILES = (50, 90, 99, 100)


class Latency(NamedTuple):
    """From before a put until a child has the record, of those that were put during a stage.

    Attributes:
        seconds: percentiles 50, 90, 99 and 100 (nearest rank).
    """

    reader: str
    stage: str
    records: int
    seconds: tuple[float, ...]


@dataclass(slots=True)
class ReaderFigures:
    """What one application was given.

    Attributes:
        put: user records of its source.
        received: of these, those that it was given.
        twice: redeliveries that are explained, by cause.
        metric: records that CloudWatch says were processed; None = not read.
        sightings: records given to children, each time.
    """

    put: int = 0
    received: int = 0
    lost: int = 0
    unexplained: int = 0
    out_of_order: int = 0
    out_of_lineage: int = 0
    children: int = 0
    workers: int = 0
    sightings: int = 0
    twice: Counter[str] = field(default_factory=Counter)
    metric: float | None = None


@dataclass(slots=True)
class RunReport:
    """The verdict.

    Attributes:
        run: region, start and limits.
        requests: who and operation -> calls.
        observed: name -> what the service did; seconds or a count, as the name says.
    """

    run: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    stages: list[StageResult] = field(default_factory=list)
    readers: dict[str, ReaderFigures] = field(default_factory=dict)
    latency: list[Latency] = field(default_factory=list)
    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    observed: dict[str, float] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    cleaned: int | None = None
    estimated_usd: float | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong; stages that were not run don't count."""
        return not self.faults


def judge(lines: Iterable[Mapping[str, Any]]) -> RunReport:
    """The verdict on the lines of a recording, see ``kcl_mld.acceptance.rules.recorded``."""
    recorded = read(lines)
    report = RunReport(
        recorded.run,
        stages=recorded.stages,
        requests=recorded.requests,
        leftovers=recorded.leftovers,
        cleaned=recorded.cleaned,
        estimated_usd=recorded.estimated_usd,
    )
    _judge_stages(report, recorded)
    is_complete = any(one.name == END and one.outcome == PASSED for one in recorded.stages)
    for name, reader in recorded.readers.items():
        source = recorded.sources.get(reader.source, RecordSource())
        _ReaderJudge(report, name, reader, source, is_complete).judge()
        report.latency += _latency(name, reader, source, recorded.stages)
        _count_requests(report, name, reader)
    report.observed = recorded.observed | _observed(recorded)
    report.faults += [f"left over after the clean-up: {one}" for one in recorded.leftovers]
    return report


def _judge_stages(report: RunReport, recorded: Recorded) -> None:
    report.faults += [
        f"stage {stage.name}: {stage.reason}"
        for stage in recorded.stages
        if stage.outcome == FAILED
    ]
    if not any(stage.outcome == PASSED and stage.name != END for stage in recorded.stages):
        report.faults.append("no stage has passed: nothing is proven")


@dataclass(slots=True)
class _ReaderJudge:
    report: RunReport
    name: str
    reader: Reader
    source: RecordSource
    is_complete: bool

    def judge(self) -> None:
        figures = self.report.readers[self.name] = ReaderFigures(
            put=len(self.source.puts),
            children=len(self.reader.children),
            workers=len({child.worker for child in self.reader.children.values()}),
            sightings=len(self.reader.sightings),
        )
        seen = {sighting.identity for sighting in self.reader.sightings}
        missing = [one for one in self.source.puts if one not in seen]
        lost = missing if self.is_complete else self._passed(missing)
        figures.received = len(seen & self.source.puts.keys())
        if not self.source.puts:
            self._fault("nothing was put, so nothing is proven")
        figures.lost = len(lost)
        if lost:
            self._fault(f"{len(lost)} records lost, the first: {_text(lost[0])}")
        if unread := len(missing) - len(lost):
            self._fault(f"{unread} records were not read yet when the run ended early")
        unknown = sorted(seen - self.source.puts.keys() - self.source.unsure)
        if unknown:
            self._fault(f"{len(unknown)} records that nobody put, such as {_text(unknown[0])}")
        self._judge_children()
        self._judge_repeats(figures)
        first: dict[RecordIdentity, RecordSighting] = {}
        for sighting in self.reader.sightings:
            first.setdefault(sighting.identity, sighting)
        firsts = list(first.values())  # in the order of time
        self._judge_order(figures, firsts)
        self._judge_lineage(figures, firsts)
        self._judge_metric(figures)

    def _passed(self, missing: Iterable[RecordIdentity]) -> list[RecordIdentity]:
        """Of records that nobody was given, those behind which the reader is.

        Where positions of puts are unknown, as of changes of a table, the numbers of a key decide.
        """
        furthest: dict[str, RecordPosition] = {}
        highest: dict[str, int] = {}
        for child in self.reader.children.values():
            furthest[child.shard] = max(
                furthest.get(child.shard, START),
                *(position for _, position in child.confirmed),
                START,
            )
        for sighting in self.reader.sightings:
            shard, (key, number) = sighting.child.shard, sighting.identity
            furthest[shard] = max(furthest[shard], sighting.position)
            highest[key] = max(highest.get(key, number), number)
        passed = []
        for one in missing:
            put = self.source.puts[one]
            if put.position == START:
                is_passed = one.number < highest.get(one.key, one.number)
            else:
                is_passed = put.position < furthest.get(put.shard, START)
            if is_passed:
                passed.append(one)
        return passed

    def _fault(self, text: str) -> None:
        self.report.faults.append(f"{self.name}: {text}")

    def _judge_children(self) -> None:
        """Each child begins at the last checkpoint or behind it."""
        by_shard = self._by_shard()
        for child in self.reader.children.values():
            if child.began_s is None:
                self._fault(f"a child of {child.shard} was given records before initialize")
                continue
            stored = _stored(by_shard[child.shard], child.began_s)
            if child.position < stored:
                where = f"{child.worker} read {child.shard} again"
                self._fault(f"{where} from before a checkpoint that had been stored")

    def _by_shard(self) -> dict[str, list[ChildLife]]:
        by_shard: dict[str, list[ChildLife]] = defaultdict(list)
        for child in self.reader.children.values():
            by_shard[child.shard].append(child)
        return by_shard

    def _judge_repeats(self, figures: ReaderFigures) -> None:
        by_identity: dict[RecordIdentity, list[RecordSighting]] = defaultdict(list)
        for sighting in self.reader.sightings:
            by_identity[sighting.identity].append(sighting)
        by_shard = self._by_shard()
        unexplained: list[str] = []
        for identity, sightings in by_identity.items():
            for first, second in itertools.pairwise(sightings):
                why_not, cause = self._explained(first, second, by_shard)
                if why_not:
                    unexplained.append(f"{_text(identity)} {why_not}")
                else:
                    figures.twice[cause] += 1
        figures.unexplained = len(unexplained)
        if unexplained:
            self._fault(f"{len(unexplained)} given twice without a cause: {unexplained[0]}")

    def _explained(
        self, first: RecordSighting, second: RecordSighting, by_shard: Mapping[str, list[ChildLife]]
    ) -> tuple[str, str]:
        """Why not, or the cause."""
        one, other = first.child, second.child
        if (one.shard, first.position) != (other.shard, second.position):
            if second.identity in self.source.unsure:
                return "", "put twice by the producer"
            return "has two sequence numbers", ""
        if one is other:
            return "twice to one child", ""
        # The older child may be given records for a while after the newer one has begun.
        older, newer = sorted((one, other), key=lambda child: child.began_s or 0.0)
        since_s, began_s = older.began_s or 0.0, newer.began_s or second.at_s
        if first.position <= _stored(by_shard[one.shard], began_s):
            return "after it was checkpointed", ""
        last_s = second.at_s if other is older else began_s
        for cause in reversed(self.reader.causes):
            is_between = since_s <= cause.at_s <= began_s
            is_soon = last_s <= cause.at_s + CAUSE_WINDOW_S
            if is_between and is_soon and cause.worker in ("", older.worker):
                return "", cause.name
        is_lost = _was_lost(older, first if one is older else second, began_s)
        return ("", LEASE_LOST) if is_lost else (f"to {one.worker} and {other.worker}", "")

    def _judge_order(self, figures: ReaderFigures, firsts: Sequence[RecordSighting]) -> None:
        last: dict[ChildLife, RecordPosition] = {}
        for sighting in self.reader.sightings:
            if sighting.position <= last.get(sighting.child, START):
                figures.out_of_order += 1
                if figures.out_of_order == 1:
                    where = f"{_text(sighting.identity)} in {sighting.child.shard}"
                    self._fault(f"a child was given a record after later ones: {where}")
            last[sighting.child] = sighting.position
        ranks = _ranks(self.source)
        highest: dict[str, int] = {}
        wrong: list[RecordIdentity] = []
        for sighting in firsts:
            key = sighting.identity.key
            if (rank := ranks.get(sighting.identity)) is not None:
                if rank < highest.get(key, -1):
                    wrong.append(sighting.identity)
                highest[key] = max(rank, highest.get(key, -1))
        figures.out_of_order += len(wrong)
        if wrong:
            self._fault(f"{len(wrong)} out of the order of their key, the first: {_text(wrong[0])}")

    def _judge_lineage(self, figures: ReaderFigures, firsts: Sequence[RecordSighting]) -> None:
        times: dict[str, list[float]] = defaultdict(list)
        for sighting in firsts:
            times[sighting.child.shard].append(sighting.at_s)
        for shard, parents in self.source.parents.items():
            for parent in parents:
                if shard in times and parent in times and times[shard][0] < times[parent][-1]:
                    figures.out_of_lineage += 1
                    self._fault(f"{shard} was read before the end of its parent {parent}")

    def _judge_metric(self, figures: ReaderFigures) -> None:
        """Nothing may be missing but what killed workers had not sent yet.

        As in Java, workers also count what they read again at the checkpoint and don't deliver.
        """
        if PROCESSED not in self.reader.totals:
            return
        figures.metric = self.reader.totals[PROCESSED][0]
        killed = [cause for cause in self.reader.causes if cause.name == KILLED]
        unsent = sum(
            any(
                sighting.child.worker == cause.worker and sighting.at_s > cause.at_s - UNSENT_S
                for cause in killed
            )
            for sighting in self.reader.sightings
        )
        positions = [child.position for child in self.reader.children.values()]
        reread = sum(position[1] + 1 for position in positions if position != START)
        if not figures.sightings - unsent <= figures.metric <= figures.sightings + reread:
            given = f"children were given {figures.sightings}"
            self._fault(f"CloudWatch has {figures.metric:.0f} processed records, {given}")


def _was_lost(older: ChildLife, its: RecordSighting, began_s: float) -> bool:
    """Whether the older of two children lost its lease to the newer one, which began at a time.

    It may be told a while after the newer one has begun, and is given nothing after that.
    """
    return older.lost_s is not None and its.at_s <= older.lost_s <= began_s + CAUSE_WINDOW_S


def _stored(children: Iterable[ChildLife], until_s: float) -> RecordPosition:
    """The furthest checkpoint of a shard that was stored before a time."""
    positions = (
        position for child in children for at_s, position in child.confirmed if at_s <= until_s
    )
    return max(positions, default=START)


def _ranks(source: RecordSource) -> dict[RecordIdentity, int]:
    """Place of each record among those of its key, as the source has them.

    Within a shard sequence numbers decide, between shards the time of the put.
    """
    by_key: dict[str, list[RecordIdentity]] = defaultdict(list)
    for identity in source.puts:
        if identity not in source.unsure:
            by_key[identity.key].append(identity)
    ranks: dict[RecordIdentity, int] = {}
    for identities in by_key.values():
        generation: dict[str, int] = {}
        for identity in sorted(identities, key=lambda one: one.number):
            generation.setdefault(source.puts[identity].shard, len(generation))

        def place(
            one: RecordIdentity, generation: dict[str, int] = generation
        ) -> tuple[int, RecordPosition, int]:
            put = source.puts[one]
            return generation[put.shard], put.position, one.number

        ranks |= {one: rank for rank, one in enumerate(sorted(identities, key=place))}
    return ranks


def _latency(
    name: str, reader: Reader, source: RecordSource, stages: Iterable[StageResult]
) -> list[Latency]:
    """For each stage, of records that were put in it while the reader ran."""
    begun_s = min((one.began_s for one in reader.children.values() if one.began_s), default=0.0)
    first: dict[RecordIdentity, float] = {}
    for sighting in reader.sightings:
        first.setdefault(sighting.identity, sighting.at_s)
    found = []
    for stage in stages:
        since_s = max(stage.began_s, begun_s)
        times = sorted(
            first[identity] - put.at_s
            for identity, put in source.puts.items()
            if identity in first and since_s <= put.at_s < stage.ended_s
        )
        if times:
            ranks = (max(0, math.ceil(len(times) * one / 100) - 1) for one in _PERCENTILES)
            row = Latency(name, stage.name, len(times), tuple(times[rank] for rank in ranks))
            found.append(row)
    return found


def _count_requests(report: RunReport, name: str, reader: Reader) -> None:
    """Calls as the workers' metrics count them."""
    for (_, metric), (_, samples) in reader.totals.items():
        if metric.endswith(".Success"):
            key = name, metric.removesuffix(".Success").removeprefix("KinesisDataFetcher.")
            report.requests[key] = report.requests.get(key, 0) + round(samples)


def _observed(recorded: Recorded) -> dict[str, float]:
    """What the service did where AWS leaves it open and the embedded AWS has chosen."""
    numbers = [
        (put, identity)
        for source in recorded.sources.values()
        for identity, put in source.puts.items()
        if put.position != START
    ]
    if not numbers:
        return {}
    digits = {len(str(put.position[0])) for put, _ in numbers}
    swapped = 0
    last: dict[tuple[str, str], RecordPosition] = {}
    for put, identity in numbers:
        where = put.shard, identity.key
        swapped += put.position < last.get(where, START)
        last[where] = put.position
    return {
        "digits of a sequence number, at least": min(digits),
        "digits of a sequence number, at most": max(digits),
        "records of a key with a lower sequence number than one put before": swapped,
    }


def _text(identity: RecordIdentity) -> str:
    return f"{identity.key}/{identity.number}"
