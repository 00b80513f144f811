"""Any life of a stream: no record is lost, doubled or out of order, no hash key without a shard."""

from __future__ import annotations

import base64
import itertools
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings, strategies as st

from kcl_mld.local.kinesis import KinesisModel, KinesisSettings

if TYPE_CHECKING:
    from kcl_mld.local.kinesis.fan_out import LocalSubscription

MAX_KEY = (1 << 128) - 1
STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(0, MAX_KEY), st.integers(1, 4)),
    st.tuples(st.just("split"), st.integers(0, 50), st.integers(1, 9)),
    st.tuples(st.just("merge"), st.integers(0, 50), st.just(0)),
    st.tuples(st.just("wait"), st.integers(0, 3000), st.just(0)),
)
STEPS = st.lists(STEP, max_size=60)
LOOK = st.tuples(st.just("look"), st.integers(0, 11), st.just(0))


class Life:
    """A stream to which things happen."""

    def __init__(self, shards: int, reshard_s: float, spare: float) -> None:
        self.now_ms = 1_700_000_000_000
        chosen = KinesisSettings(reshard_s=reshard_s, spare_answer_probability=spare)
        self.model = KinesisModel(lambda: self.now_ms / 1000, random.Random(1), chosen)
        self.call("CreateStream", ShardCount=shards)
        self.put: dict[int, list[int]] = {}
        self.count = itertools.count()

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        return self.model.call(operation, {"StreamName": "s", **request})

    def open_shards(self) -> list[dict[str, Any]]:
        listed = self.call("ListShards", ShardFilter={"Type": "AT_LATEST"})["Shards"]
        return sorted(listed, key=first_key)

    def do(self, what: str, number: int, tenth: int) -> None:
        if what == "wait":
            self.now_ms += number
        elif what == "put":
            for value in itertools.islice(self.count, tenth):
                data = base64.b64encode(str(value).encode()).decode()
                self.call("PutRecord", PartitionKey="k", Data=data, ExplicitHashKey=str(number))
                self.put.setdefault(number, []).append(value)
        elif self.model.stream("s").status == "ACTIVE":
            self.reshard(what, number, tenth)

    def reshard(self, what: str, number: int, tenth: int) -> None:
        shards = self.open_shards()
        if what == "split":
            chosen = shards[number % len(shards)]
            low, high = first_key(chosen), last_key(chosen)
            at = low + (high - low) * tenth // 10
            if low + 1 < at < high:
                self.call("SplitShard", ShardToSplit=chosen["ShardId"], NewStartingHashKey=str(at))
        elif len(shards) > 1:
            place = number % (len(shards) - 1)
            self.call(
                "MergeShards",
                ShardToMerge=shards[place]["ShardId"],
                AdjacentShardToMerge=shards[place + 1]["ShardId"],
            )

    def read_everything(self) -> list[int]:
        """Values in the order of a reader who takes a child after all its parents."""
        roots = [s["ShardId"] for s in self.call("ListShards")["Shards"] if not parents(s)]
        found: list[int] = []
        waiting: dict[str, set[str]] = {}
        todo = sorted(roots)
        while todo:
            shard = todo.pop(0)
            for child in self.read_shard(shard, found):
                left = waiting.setdefault(child["ShardId"], set(child["ParentShards"]))
                left.discard(shard)
                if not left:
                    todo.append(child["ShardId"])
        return found

    def read_shard(self, shard: str, found: list[int]) -> list[dict[str, Any]]:
        answer: dict[str, Any] = self.call(
            "GetShardIterator", ShardId=shard, ShardIteratorType="TRIM_HORIZON"
        )
        iterator = answer["ShardIterator"]
        while True:
            answer = self.model.call("GetRecords", {"ShardIterator": iterator, "Limit": 3})
            found += [int(base64.b64decode(r["Data"])) for r in answer["Records"]]
            if "ChildShards" in answer:
                children: list[dict[str, Any]] = answer["ChildShards"]
                return children
            if not answer["MillisBehindLatest"] and not answer["Records"]:
                return []
            iterator = answer["NextShardIterator"]


class Pushed:
    """A consumer that reads along, renews its subscriptions at will and forgets some events.

    What it forgets it gets again from the continuation number before, as after a cut connection.
    """

    def __init__(self, life: Life) -> None:
        self.life = life
        self.found: list[int] = []
        self.has_read: set[str] = set()
        self.open: dict[str, LocalSubscription] = {}
        self.waiting: dict[str, set[str]] = {}
        stream = life.call("DescribeStreamSummary")["StreamDescriptionSummary"]
        made = life.call("RegisterStreamConsumer", StreamARN=stream["StreamARN"], ConsumerName="c")
        self.arn = made["Consumer"]["ConsumerARN"]
        roots = [shard["ShardId"] for shard in life.call("ListShards")["Shards"]]
        self.positions: dict[str, dict[str, str]] = {
            root: {"Type": "TRIM_HORIZON"} for root in roots
        }

    def look(self, number: int) -> None:
        """Take what is due of every shard; an even number forgets, one of four renews."""
        for shard, position in list(self.positions.items()):
            if shard not in self.open:
                request = {"ConsumerARN": self.arn, "ShardId": shard, "StartingPosition": position}
                self.open[shard] = self.life.model.subscribe(request)
            body = self.open[shard].next_event()
            if body is None or number % 2 == 0:
                if body is not None or number % 4 == 0 or self.open[shard].is_over:
                    del self.open[shard]
                continue
            event = json.loads(body)
            self.found += [int(base64.b64decode(r["Data"])) for r in event["Records"]]
            if "ChildShards" in event:
                self.ended(shard, event["ChildShards"])
                continue
            if event["Records"]:
                self.has_read.add(shard)
            kind = "AT_SEQUENCE_NUMBER" if number % 3 else "AFTER_SEQUENCE_NUMBER"
            if shard in self.has_read:
                # The number may be that of the last record, which AT would give again; also that of
                # an event without records within the same second.
                kind = "AFTER_SEQUENCE_NUMBER"
            self.positions[shard] = {
                "Type": kind,
                "SequenceNumber": event["ContinuationSequenceNumber"],
            }

    def ended(self, shard: str, children: list[dict[str, Any]]) -> None:
        del self.positions[shard], self.open[shard]
        for child in children:
            left = self.waiting.setdefault(child["ShardId"], set(child["ParentShards"]))
            left.discard(shard)
            if not left:
                self.positions[child["ShardId"]] = {"Type": "TRIM_HORIZON"}


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 5),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 0.5]),
    st.lists(st.one_of(STEP, LOOK, LOOK), max_size=60),
)
@example(
    1,
    0.0,
    0.5,
    [
        ("put", 0, 1),
        ("look", 0, 0),
        ("look", 0, 0),
        ("look", 1, 0),
        ("put", 0, 1),
        ("look", 1, 0),
    ],
)
def test_a_consumer_that_reads_along_gets_every_record_once(
    shards: int, reshard_s: float, spare: float, steps: list[tuple[str, int, int]]
) -> None:
    life = Life(shards, reshard_s, spare)
    life.model.settings = replace(
        life.model.settings, takeover_s=0.0, empty_event_s=1.0, subscription_s=5.0
    )
    reader = Pushed(life)
    for step in steps:
        if step[0] == "look":
            reader.look(step[1])
        else:
            life.do(*step)
    total = sum(map(len, life.put.values()))
    patience = 300
    while (open_ids := {shard["ShardId"] for shard in life.open_shards()}) and patience:
        patience -= 1
        life.now_ms += 2000
        reader.look(patience % 5)
        is_done = set(reader.positions) == open_ids and len(reader.found) >= total
        if is_done and patience < 285:
            break
    assert sorted(reader.found) == list(range(next(life.count)))
    place = {value: index for index, value in enumerate(reader.found)}
    for values in life.put.values():
        assert [place[value] for value in values] == sorted(place[value] for value in values)
    assert set(reader.positions) == open_ids


def first_key(shard: dict[str, Any]) -> int:
    return int(shard["HashKeyRange"]["StartingHashKey"])


def last_key(shard: dict[str, Any]) -> int:
    return int(shard["HashKeyRange"]["EndingHashKey"])


def parents(shard: dict[str, Any]) -> set[str]:
    return {shard[name] for name in ("ParentShardId", "AdjacentParentShardId") if name in shard}


def assert_covers_all_keys(shards: list[dict[str, Any]]) -> None:
    shards = sorted(shards, key=first_key)
    assert first_key(shards[0]) == 0
    assert last_key(shards[-1]) == MAX_KEY
    for left, right in itertools.pairwise(shards):
        assert first_key(right) == last_key(left) + 1


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5), st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 0.5]), STEPS)
def test_every_life_keeps_every_record(
    shards: int, reshard_s: float, spare: float, steps: list[tuple[str, int, int]]
) -> None:
    life = Life(shards, reshard_s, spare)
    started_ms = life.now_ms
    for step in steps:
        life.do(*step)
        assert_covers_all_keys(life.open_shards())
    life.now_ms += 2000
    everything = life.call("ListShards")["Shards"]
    for moment in (started_ms, (started_ms + life.now_ms) // 2, life.now_ms):
        chosen = {"Type": "AT_TIMESTAMP", "Timestamp": moment / 1000}
        assert_covers_all_keys(life.call("ListShards", ShardFilter=chosen)["Shards"])
    found = life.read_everything()
    assert sorted(found) == list(range(next(life.count)))
    place = {value: index for index, value in enumerate(found)}
    for values in life.put.values():
        assert [place[value] for value in values] == sorted(place[value] for value in values)
    ids = {shard["ShardId"] for shard in everything}
    assert all(parents(shard) <= ids for shard in everything)
