"""The stream of a DynamoDB table under the fleet: shards that are replaced, and listed late.

What is simulated is the service: a real client of botocore asks it, so that all of
:mod:`kcl_mld.aws.dynamodb_streams` runs in virtual time. Its rules are those of the service; where it may
do one thing or another, a seed decides.
"""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import AWSResponse

from kcl_mld.aws.clients import ClientSettings, make_client
from kcl_mld.aws.dynamodb_streams import BotocoreDynamoDbStreams
from kcl_mld.aws.http_exchange import http_session_of
from kcl_mld.aws.whole_answers import AnswerLimit
from kcl_mld.config.stream import TableStreamArn
from kcl_mld.kernel.model.sequence import Sentinel
from tests.sim.plan import draw
from tests.sim.ports import EPOCH_S
from tests.sim.stream import ShardTruth, ShardView, SimStream
from tests.unit.aws.sessions import quick_session

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from botocore.awsrequest import AWSPreparedRequest
    from botocore.client import BaseClient

    from tests.sim.gate import Gate
    from tests.sim.plan import Plan

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders/stream/2026-09-21T14:13:20.000"
NAME = TableStreamArn.parse(ARN).name
ITERATOR_S = 900.0
#: More readers of a shard are throttled.
MOST_READERS = 2
#: Who has not read a shard for so long has stopped reading it.
TURN_S = 6.0


def table_plan(seed: int) -> Plan:
    """The plan of a seed for this source: without what Kinesis alone has, and without Java."""
    plan = draw(seed)
    return replace(
        plan,
        # By a clock that is an hour ahead, a parent that is listed late has expired.
        faults=tuple(fault for fault in plan.faults if fault != "step clock"),
        table_stream=TableStreamPlan.draw(seed),
        peers=0,
        joins_at_s=None,
        flip_at_s=None,
        loses=None,
        streams=(),
        stream_events=(),
        discovers=False,
        deletes_former=False,
        changes=None,
        fan_out=(False,),
        aggregated=0.0,
        shards=min(plan.shards, 4),
        reshard_every_s=plan.reshard_every_s or 30.0,
        max_records=min(plan.max_records, 1000),
        # Nobody sees which record a shard had first when a time in the past is asked for.
        start=Sentinel.TRIM_HORIZON if plan.start is Sentinel.AT_TIMESTAMP else plan.start,
    )


@dataclass(frozen=True)
class TableStreamPlan:
    """What one seed means for the service.

    Attributes:
        late_s: longest time until a new shard, or the end of an old one, is listed.
        page_shards: most shards of a DescribeStream answer.
        filters: it knows ``CHILD_SHARDS``.
        empty: probability that an answer has no records although there are some.
        splits: probability that a shard is replaced by two.
        first_number: of the first change; its text has 21 digits at least.
        misses: probability that a read does not find the shard, although it is there.
    """

    late_s: float
    page_shards: int
    filters: bool
    empty: float
    splits: float
    first_number: int
    misses: float

    @classmethod
    def draw(cls, seed: int) -> TableStreamPlan:
        """The plan of a seed."""
        rng = random.Random(f"table stream {seed}")
        return cls(
            late_s=rng.choice([0.0, 1.0, 8.0, 30.0]),
            page_shards=rng.choice([100, 100, 3, 1]),
            filters=rng.random() < 0.5,
            empty=rng.choice([0.0, 0.1, 0.5]),
            splits=rng.choice([0.0, 0.2]),
            first_number=rng.choice([1, 10**27]),
            misses=rng.choice([0.0, 0.0, 0.02]),
        )


class StreamsFault(Exception):
    """An answer that is an error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class TableRecord:
    """A change, in its wire form."""

    number: int
    made_s: float
    change: dict[str, Any]


@dataclass
class TableShard:
    """A shard of the service.

    Attributes:
        listed_s: from when it is listed; likewise ``end_listed_s`` for its end.
        last: number of its last change, or of the one before it; None while it is open.
        ended_s: when it ended.
        trimmed: number of the last change that is gone; -1 = none is.
    """

    shard_id: str
    parents: tuple[str, ...]
    first: int
    listed_s: float
    last: int | None = None
    end_listed_s: float = 0.0
    ended_s: float = 0.0
    trimmed: int = -1
    records: list[TableRecord] = field(default_factory=list)
    children: list[str] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether it takes changes."""
        return self.last is None


def number_text(number: int) -> str:
    """A sequence number as the service writes it."""
    return f"{number:021d}"


class TableStreamService:
    """What DynamoDB Streams answers.

    Args:
        now: virtual seconds.
        rng: for what the service may do one way or another.
    """

    def __init__(self, now: Callable[[], float], rng: random.Random, plan: TableStreamPlan) -> None:
        self._now = now
        self._rng = rng
        self._plan = plan
        self.shards: dict[str, TableShard] = {}
        self.number = plan.first_number
        #: Shard -> reader -> times of its first read and of its last one, of each of its turns.
        self._reads: dict[str, dict[str, list[list[float]]]] = {}
        #: How long changes are kept, in s; None = as long as a run lasts.
        self.retention_s: float | None = None
        self.is_disabled = False
        #: Who asks.
        self.reader = ""

    # -- what happens to the table -----------------------------------------------------------------

    def open_shard(self, parents: tuple[str, ...] = ()) -> TableShard:
        """A shard begins."""
        made_ms = int((EPOCH_S + self._now()) * 1000)
        shard_id = f"shardId-{made_ms:020d}-{self._rng.getrandbits(32):08x}"
        late_s = self._rng.uniform(0, self._plan.late_s) if parents else 0.0
        shard = TableShard(shard_id, parents, self.number, self._now() + late_s)
        self.shards[shard_id] = shard
        for parent in parents:
            self.shards[parent].children.append(shard_id)
        return shard

    def replace(self, shard: TableShard) -> int:
        """A shard ends and others follow; how many do."""
        self._end(shard, self._plan.late_s)
        self.number += 1
        count = 2 if self._rng.random() < self._plan.splits else 1
        for _child in range(count):
            self.open_shard((shard.shard_id,))
        return count

    def disable(self) -> None:
        """The table gets no more changes here: all shards end, without children."""
        self.is_disabled = True
        for shard in self.shards.values():
            if shard.is_open:
                self._end(shard, late_s=0.0)

    def _end(self, shard: TableShard, late_s: float) -> None:
        shard.last = self.number
        shard.ended_s = self._now()
        shard.end_listed_s = self._now() + self._rng.uniform(0, late_s)

    def change(self, shard: TableShard, key: str) -> dict[str, Any]:
        """An item is put; the change as the service sends it."""
        self.number += self._rng.randint(1, 1000)
        change = {
            "eventID": f"{self.number:x}",
            "eventName": "INSERT",
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "dynamodb": {
                "ApproximateCreationDateTime": float(int(EPOCH_S + self._now())),
                "Keys": {"pk": {"S": key}},
                "SequenceNumber": number_text(self.number),
                "SizeBytes": 2 + len(key),
                "StreamViewType": "KEYS_ONLY",
            },
        }
        shard.records.append(TableRecord(self.number, self._now(), change))
        return change

    # -- operations --------------------------------------------------------------------------------

    def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            StreamsFault: it is an error.
        """
        self._trim()
        if request.get("StreamArn", ARN) != ARN:
            raise StreamsFault("ResourceNotFoundException", "Requested resource not found")
        answers = {
            "ListStreams": lambda _: {"Streams": [{"StreamArn": ARN}]},
            "DescribeStream": self._describe_stream,
            "GetShardIterator": self._get_shard_iterator,
            "GetRecords": self._get_records,
        }
        return answers[operation](request)

    def _trim(self) -> None:
        """Forget changes that are too old, and closed shards that ended so long ago."""
        if self.retention_s is None:
            return
        horizon_s = self._now() - self.retention_s
        for shard_id, shard in list(self.shards.items()):
            while shard.records and shard.records[0].made_s < horizon_s:
                shard.trimmed = shard.records.pop(0).number
            if not shard.is_open and shard.ended_s < horizon_s:
                del self.shards[shard_id]

    def _describe_stream(self, request: dict[str, Any]) -> dict[str, Any]:
        only = request.get("ShardFilter")
        if only is not None and not self._plan.filters:
            raise StreamsFault("ValidationException", "unknown parameter ShardFilter")
        after = request.get("ExclusiveStartShardId", "")
        listed = sorted(
            shard_id
            for shard_id in self.listed(self.shards)
            if shard_id > after
            and (only is None or only["ShardId"] in self.shards[shard_id].parents)
        )
        page = listed[: min(self._plan.page_shards, request.get("Limit", 100))]
        stream = {
            "StreamArn": ARN,
            "StreamStatus": "DISABLED" if self.is_disabled else "ENABLED",
            "CreationRequestDateTime": EPOCH_S,
            "Shards": [self._entry(self.shards[shard_id]) for shard_id in page],
        }
        if len(page) < len(listed):
            stream["LastEvaluatedShardId"] = page[-1]
        return {"StreamDescription": stream}

    def listed(self, shard_ids: Iterable[str]) -> list[str]:
        """Those of some shards that are listed by now."""
        known = (self.shards.get(one) for one in shard_ids)
        return [one.shard_id for one in known if one is not None and one.listed_s <= self._now()]

    def _entry(self, shard: TableShard) -> dict[str, Any]:
        numbers = {"StartingSequenceNumber": number_text(shard.first)}
        if shard.last is not None and shard.end_listed_s <= self._now():
            numbers["EndingSequenceNumber"] = number_text(shard.last)
        listed = {"ShardId": shard.shard_id, "SequenceNumberRange": numbers}
        return listed | ({"ParentShardId": shard.parents[0]} if shard.parents else {})

    def _get_shard_iterator(self, request: dict[str, Any]) -> dict[str, Any]:
        shard = self._shard(request["ShardId"])
        kind = request["ShardIteratorType"]
        if kind == "TRIM_HORIZON":
            after = -1
        elif kind == "LATEST":
            after = self.number
        elif kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
            after = int(request["SequenceNumber"]) - (kind == "AT_SEQUENCE_NUMBER")
        else:
            raise StreamsFault("ValidationException", f"Invalid ShardIteratorType: {kind}")
        if kind != "TRIM_HORIZON" and after < shard.trimmed:
            raise StreamsFault("TrimmedDataAccessException", "beyond the trim horizon")
        return {"ShardIterator": self._iterator(shard, after)}

    def _iterator(self, shard: TableShard, after: int) -> str:
        return json.dumps([shard.shard_id, after, self._now()])

    def _shard(self, shard_id: str) -> TableShard:
        if shard_id not in self.shards:
            raise StreamsFault("ResourceNotFoundException", "Shard does not exist")
        return self.shards[shard_id]

    def _get_records(self, request: dict[str, Any]) -> dict[str, Any]:
        shard_id, after, made_s = json.loads(request["ShardIterator"])
        if self._now() - made_s > ITERATOR_S:
            raise StreamsFault("ExpiredIteratorException", "the iterator is too old")
        shard = self._shard(shard_id)
        self._note_reader(shard_id)
        if self._plan.misses and self._rng.random() < self._plan.misses:
            raise StreamsFault("ResourceNotFoundException", "Shard does not exist")
        if -1 < after < shard.trimmed:
            raise StreamsFault("TrimmedDataAccessException", "beyond the trim horizon")
        left = [one for one in shard.records if one.number > after]
        page = left[: request.get("Limit", 1000)]
        if page and self._rng.random() < self._plan.empty:
            page = page[: self._rng.randrange(len(page))]
        after = page[-1].number if page else after
        answer: dict[str, Any] = {"Records": [one.change for one in page]}
        if shard.is_open or len(page) < len(left):
            answer["NextShardIterator"] = self._iterator(shard, after)
        return answer

    def _note_reader(self, shard_id: str) -> None:
        turns = self._reads.setdefault(shard_id, {}).setdefault(self.reader, [])
        if not turns or self._now() - turns[-1][1] > TURN_S:
            turns.append([self._now(), self._now()])
        turns[-1][1] = self._now()

    def crowds(self, steal_s: float) -> Iterator[tuple[str, list[str]]]:
        """Shards that more processes read at a time than the service allows, with all of them.

        Args:
            steal_s: so long a worker of 2.x may read a shard whose lease was taken from it; of a
                fleet that begins, two may in a row.
        """
        for shard_id, reads in self._reads.items():
            turns = [(*turn, reader) for reader, each in reads.items() for turn in each]
            for began_s, _, _ in turns:
                readers = [
                    reader
                    for first_s, last_s, reader in turns
                    if first_s <= began_s and last_s - began_s > steal_s
                ]
                if len(readers) > MOST_READERS:
                    yield shard_id, readers


class SimTableStream(SimStream):
    """The stream of a table with the notes of who changes it."""

    def __init__(
        self, now: Callable[[], float], rng: random.Random, plan: TableStreamPlan, shards: int
    ) -> None:
        self._rng = rng
        self._count = 0
        self.name = NAME
        self.service = TableStreamService(now, rng, plan)
        self.truth: dict[str, ShardTruth] = {}
        self._ever: dict[str, TableShard] = {}
        self.is_deleted = False
        self.prefix = ""
        #: How many keys there are; None = each change has its own.
        self.keys: int | None = None
        self.generations = [self]
        for _shard in range(shards):
            self.service.open_shard()
        self.refresh()

    @property
    def shards(self) -> dict[str, Any]:
        """The service's shards by lease key, forgotten ones too; of children those that are listed."""
        self._ever |= self.service.shards
        return {one.shard_id: self._view(one) for one in self._ever.values()}

    def _view(self, shard: TableShard) -> ShardView:
        listed = self.service.listed(shard.children)
        # Hash keys as rows have them.
        return ShardView(shard.shard_id, shard.parents, tuple(listed), 0, 1, shard.is_open)

    def has_hole(self, unfinished: Collection[str]) -> bool:
        """Whether a shard that takes changes has no lease."""
        return any(shard.shard_id not in unfinished for shard in self.open_shards)

    def put(self, *, aggregated: bool = False) -> None:
        """One change somewhere."""
        assert not aggregated
        shard = self.service.shards[self._rng.choice(self.open_shards).shard_id]
        key = f"r{self._count}" if self.keys is None else f"r{self._count % self.keys}"
        change = self.service.change(shard, key)
        self._count += 1
        truth = self.truth[shard.shard_id]
        truth.add((self.service.number, 0), data_of(change), key_of(change))

    def reshard(self) -> str:
        """Replace a shard; what was done, in words."""
        shard = self.service.shards[self._rng.choice(self.open_shards).shard_id]
        count = self.service.replace(shard)
        self.refresh()
        return f"{shard.shard_id[-3:]} is replaced by {count}"


def data_of(change: dict[str, Any]) -> str:
    """The data that a child gets of a change, JSON text."""
    inner = dict(change["dynamodb"])
    inner["ApproximateCreationDateTime"] = int(1000 * inner["ApproximateCreationDateTime"])
    return json.dumps({**change, "dynamodb": inner}, separators=(",", ":"))


def key_of(change: dict[str, Any]) -> str:
    """What a change is ordered by: its Keys in the order of their names, JSON text."""
    return json.dumps(change["dynamodb"]["Keys"], sort_keys=True, separators=(",", ":"))


# -- the client ------------------------------------------------------------------------------------


def client_of(service: TableStreamService) -> BaseClient:
    """A client of botocore whose requests are answered by the service."""
    settings = ClientSettings(
        service="dynamodbstreams",
        region="us-east-1",
        endpoint="http://127.0.0.1:9",
        threads=1,
        connect_timeout_s=5.0,
        read_timeout_s=30.0,
        signed=False,
    )
    client = make_client(quick_session(), settings)

    def send(request: AWSPreparedRequest) -> AWSResponse:
        operation = request.headers["X-Amz-Target"].decode().partition(".")[2]
        status = 200
        try:
            answer = service.call(operation, json.loads(request.body))
        except StreamsFault as fault:
            status, answer = 400, {"__type": f"#{fault.code}", "message": str(fault)}
        headers = {"Content-Type": "application/x-amz-json-1.0"}
        return AWSResponse(
            request.url, status, headers, _Raw(json.dumps(answer, separators=(",", ":")).encode())
        )

    session: Any = http_session_of(client)
    session.send = send
    return client


class _Raw(io.BytesIO):
    """The body of an answer, as urllib3 has it."""

    def stream(self, *_: Any, **__: Any) -> Any:
        yield self.read()


class PoolThroughGate:
    """:class:`kcl_mld.kernel.adapters.calls.CallPool` of one worker: its calls pass the worker's gate.

    Args:
        worker_id: who reads.
        timeout_s: after which the client gives up on an answer.
    """

    def __init__(
        self, service: TableStreamService, worker_id: str, gate: Gate, timeout_s: float
    ) -> None:
        self._service = service
        self._worker_id = worker_id
        self._gate = gate
        self._timeout_s = timeout_s

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not (args and isinstance(args[0], AnswerLimit)):  # no call, only work for a thread
            return work(*args, **kwargs)
        operation = "".join(word.capitalize() for word in args[1].split("_"))

        async def effect() -> Any:
            self._service.reader = self._worker_id
            return work(*args, **kwargs)

        return await self._gate.call("kinesis", operation, effect, self._timeout_s)


def port_of(
    stream: SimTableStream,
    worker_id: str,
    gate: Gate,
    *,
    timeout_s: float,
    patience_s: float,
    monotonic: Callable[[], float],
) -> BotocoreDynamoDbStreams:
    """The port of one worker."""
    pool: Any = PoolThroughGate(stream.service, worker_id, gate, timeout_s)
    return BotocoreDynamoDbStreams(client_of(stream.service), pool, pool, patience_s, monotonic)
