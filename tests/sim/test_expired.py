"""Fleets that stand still for longer than the stream keeps records: each loss is reported.

The court takes a record that expired unread for a dead letter, which children need not get. At the
end each must lie between the two positions of a report of its shard.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from bisect import bisect_right
from functools import partial

import pytest

from kcl_mld.aws import dynamodb_streams
from kcl_mld.children.consuming import loss_watch
from kcl_mld.retrieval.rules.polling import EXPIRED_S
from kcl_mld.shards.rules import shardsync
from kcl_mld.streams.rules import existence
from tests.sim.fleet import Fleet
from tests.sim.loop import run
from tests.sim.plan import Plan
from tests.sim.table_stream import TableStreamPlan

pytestmark = pytest.mark.sim

RETENTION_S = 1200.0
#: In place of the number of the record that follows a gap, where no record is left.
NONE_LEFT = 2**255
#: How long nobody reads, as a share of the retention.
OUTAGES = (0.3, 0.8, 1.1, 1.5, 2.5)
_REPORT = re.compile(
    r"(?P<shard>\S+): records (?P<how>were LOST|MAY BE LOST): those (?:between|after) (?P<after>\S+) "
    r"\([^)]*\)(?: and (?P<before>[0-9]+) )?"
)


class Reports(logging.Handler):
    """What workers say of losses: shard, whether it is certain, both numbers."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[tuple[str, bool, int, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.module != "loss_watch":
            return
        said = _REPORT.match(record.getMessage())
        assert said is not None, record.getMessage()
        after = said["after"] if said["after"].isdigit() else "-1"
        before = int(said["before"]) if said["before"] else NONE_LEFT
        self.found.append((said["shard"], said["how"] == "were LOST", int(after), before))


class Expiring(Fleet):
    """Its records expire, its shards too, and now and then all of its workers are down."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        #: Shard -> indices of records that expired before a child had processed them.
        self.expired: dict[str, set[int]] = {}
        self._expire()
        processed = self.judges.children.processed

        def note(child, records):
            truth = self.stream.truth[child.shard_id]
            places = {(int(one.sequence_number), one.sub_sequence_number) for one in records}
            self.expired.get(child.shard_id, set()).difference_update(
                truth.index[place] for place in places
            )
            processed(child, records)

        self.judges.children.processed = note  # type: ignore[method-assign]

    def _expire(self):
        """A request lets records expire, as the model settles what is due."""
        model = self.stream.model
        model.stream(self.stream.name).retention_hours = RETENTION_S / 3600
        for kind in ("call", "body"):
            setattr(model, kind, partial(self._after, getattr(model, kind)))

    def _after(self, real, *request):
        try:
            return real(*request)
        finally:
            self._note_expired()

    def _note_expired(self):
        self.stream.refresh()
        starts = self.starts()
        for key, truth in self.stream.truth.items():
            log, is_gone = self.court.log(key), key not in starts
            start = starts.get(key, len(truth.places))
            if is_gone and not log.leased:
                log.ended = True  # its children wait for nobody
            for index in range(min(start, len(truth.places))):
                if index >= len(log.done) or not log.done[index]:
                    log.dead.add(index)
                    log.mark(index)
                    self.expired.setdefault(key, set()).add(index)

    def starts(self):
        """Index of the first record that is left, of each shard that the service knows."""
        shards = self.stream.model.stream(self.stream.name).shards
        return {key: shard.start for key, shard in shards.items()}

    async def change_streams(self) -> None:
        """Everybody is down for a while, over and over."""
        rng = random.Random(f"outages {self.plan.seed}")
        for _outage in range(4):
            await asyncio.sleep(rng.uniform(30, 200))
            self.open.clear()
            for node in self.alive():
                if rng.random() < 0.5:
                    await node.kill()
                else:
                    node.stop()
            await asyncio.sleep(rng.choice(OUTAGES) * RETENTION_S)
            self.open.set()


class ExpiringTable(Expiring):
    """The same of a DynamoDB stream."""

    def _expire(self):
        service = self.stream.service
        service.retention_s = RETENTION_S
        service.call = partial(self._after, service.call)
        # One shard of a lineage after the other is not found for a minute, and has ended.
        self.ends_late_s = 16 * EXPIRED_S

    def starts(self):
        """As above."""
        truth = self.stream.truth
        return {
            key: bisect_right(truth[key].places, (shard.trimmed, 0))
            for key, shard in self.stream.service.shards.items()
        }


@pytest.fixture
def reports():
    found = Reports()
    loss_watch.log.addHandler(found)
    loss_watch.log.setLevel(logging.WARNING)
    yield found
    loss_watch.log.removeHandler(found)
    loss_watch.log.setLevel(logging.NOTSET)


def fleet_of(seed, *, fan_out=False, reshards=False, of_table=False):
    async def main():
        plan = Plan(
            seed=seed,
            workers=2,
            shards=2,
            chaos_s=10,
            put_every_s=20.0,
            reshard_every_s=400.0 if reshards else None,
            fan_out=(fan_out,),
            is_assigned=seed % 2 == 1,
            table_stream=TableStreamPlan.draw(seed) if of_table else None,
        )
        fleet = (ExpiringTable if of_table else Expiring)(plan)
        await fleet.run()
        return fleet

    return run(main())


def lineage_of(fleet, key):
    """A shard and all above it: one that vanished before it had a lease is reported with these."""
    found, left = set(), [key]
    while left:
        one = left.pop()
        found.add(one)
        left += fleet.stream.truth[one].parents if one in fleet.stream.truth else ()
    return found


def silent(fleet, reports):
    """Records of which nobody has said anything, by shard."""
    found = {}
    for key, indices in fleet.expired.items():
        lineage = {key} if fleet.court.log(key).leased else lineage_of(fleet, key)
        ranges = [
            (after if shard == key else -1, before)
            for shard, _, after, before in reports.found
            if shard in lineage and (shard == key or before == NONE_LEFT)
        ]
        numbers = {fleet.stream.truth[key].places[index][0] for index in indices}
        found[key] = [
            number
            for number in sorted(numbers)
            if not any(after < number < before for after, before in ranges)
        ]
    return {key: numbers for key, numbers in found.items() if numbers}


@pytest.mark.parametrize("reshards", [False, True])
@pytest.mark.parametrize("fan_out", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_each_record_that_expires_unread_is_reported(reports, seed, fan_out, reshards):
    fleet = fleet_of(seed, fan_out=fan_out, reshards=reshards)
    assert fleet.court.violations == []
    assert silent(fleet, reports) == {}
    for shard, is_certain, after, before in reports.found:
        numbers = (fleet.stream.truth[shard].places[i][0] for i in fleet.expired.get(shard, ()))
        assert not is_certain or any(after < number < before for number in numbers)


@pytest.mark.parametrize("reshards", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_each_change_of_a_table_that_expires_unread_is_reported(
    reports, monkeypatch, seed, reshards
):
    """The service keeps changes for a day, always."""
    monkeypatch.setattr(dynamodb_streams, "RETENTION_HOURS", RETENTION_S / 3600)
    monkeypatch.setattr(shardsync, "PARENT_PATIENCE_S", 60.0)
    monkeypatch.setattr(existence, "LISTED_S", RETENTION_S)
    fleet = fleet_of(seed, of_table=True, reshards=reshards)
    assert fleet.court.violations == []
    assert silent(fleet, reports) == {}


def test_a_loss_that_nobody_reports_is_noticed(reports, monkeypatch):
    monkeypatch.setattr(loss_watch, "judge_gap", lambda *_known: None)
    assert any(silent(fleet_of(seed, fan_out=False), reports) for seed in range(2))
