"""Enhanced fan-out over HTTP, read by botocore's standard client."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from botocore.config import Config
from botocore.eventstream import ChecksumMismatch
from botocore.exceptions import ClientError, EventStreamError
from urllib3.exceptions import ProtocolError, ReadTimeoutError

from kcl_mld.local.embedded import EmbeddedAws
from kcl_mld.local.event_stream import MODELLED, serve_events
from kcl_mld.local.kinesis import KinesisModel
from tests.unit.local.in_this_process import InThisProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60
FIRST = "shardId-000000000000"
SETTINGS = {
    "subscription_s": 300.0,
    "takeover_s": 0.0,
    "event_interval_s": 0.02,
    "empty_event_s": 0.2,
    "delete_s": 0.0,
}


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedAws]:
    with InThisProcess(options=("--no-moto",)) as aws:
        yield aws


@pytest.fixture
def aws(running: EmbeddedAws) -> EmbeddedAws:
    running.control(faults=[], settings=SETTINGS)
    return running


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while Reader.opened:
        Reader.opened.pop().close()


class Reader:
    """A stream with one shard, and a consumer of it behind a standard client."""

    _numbers = itertools.count()
    #: Clients and streams of events that the test must close.
    opened: ClassVar[list[Any]] = []

    def __init__(self, aws: EmbeddedAws, **options: Any) -> None:
        self.aws = aws
        self.name = f"fan-out-{next(self._numbers)}"
        config = Config(retries={"total_max_attempts": 1}, **{"read_timeout": 20, **options})
        self.client = aws.client("kinesis", config=config)
        self.opened.append(self.client)
        self.client.create_stream(StreamName=self.name, ShardCount=1)
        summary = self.client.describe_stream_summary(StreamName=self.name)
        self.stream_arn: str = summary["StreamDescriptionSummary"]["StreamARN"]
        made = self.client.register_stream_consumer(StreamARN=self.stream_arn, ConsumerName="c")
        self.arn: str = made["Consumer"]["ConsumerARN"]

    def put(self, *data: bytes) -> None:
        for datum in data:
            self.client.put_record(StreamName=self.name, PartitionKey=repr(datum[:9]), Data=datum)

    def subscribe(self, kind: str = "TRIM_HORIZON", shard: str = FIRST, **position: Any) -> Any:
        """The stream of events."""
        answer = self.client.subscribe_to_shard(
            ConsumerARN=self.arn, ShardId=shard, StartingPosition={"Type": kind, **position}
        )
        self.opened.append(answer["EventStream"])
        return answer["EventStream"]

    def read(self, *args: Any, **more: Any) -> list[dict[str, Any]]:
        """All events until the end."""
        return [event["SubscribeToShardEvent"] for event in self.subscribe(*args, **more)]

    def split(self) -> None:
        self.client.split_shard(
            StreamName=self.name, ShardToSplit=FIRST, NewStartingHashKey=str(1 << 127)
        )


def data(events: list[dict[str, Any]]) -> list[bytes]:
    return [record["Data"] for event in events for record in event["Records"]]


# --- events ---------------------------------------------------------------------------------


def test_records_continuations_and_the_end_after_a_while(aws: EmbeddedAws) -> None:
    aws.control(settings={"subscription_s": 3.0})
    reader = Reader(aws)
    reader.put(b"a", b"b")
    started = time.monotonic()
    events = reader.read()
    assert time.monotonic() - started >= 3
    assert data(events) == [b"a", b"b"]
    assert len(events) >= 3, "empty events keep it alive"
    numbers = [int(event["ContinuationSequenceNumber"]) for event in events]
    assert numbers == sorted(numbers)
    assert all(event["MillisBehindLatest"] == 0 for event in events)
    assert events[0]["Records"][0]["ApproximateArrivalTimestamp"].tzinfo is not None
    assert "ChildShards" not in events[-1]


def test_renewals_and_a_reshard_lose_and_repeat_nothing(aws: EmbeddedAws) -> None:
    """As a consumer reads: from the continuation while there is one, then the children."""
    aws.control(settings={"subscription_s": 0.3})
    reader = Reader(aws)
    numbers = itertools.count()
    put: list[bytes] = []
    found: list[bytes] = []
    renewals = 0

    def more(count: int) -> None:
        fresh = [b"%d" % number for number in itertools.islice(numbers, count)]
        reader.put(*fresh)
        put.extend(fresh)

    def read_once(shard: str, position: dict[str, Any]) -> dict[str, Any]:
        """One subscription, with a record put at each event; its last event."""
        more(2)
        last: dict[str, Any] = {}
        for event in reader.subscribe(shard=shard, **position):
            last = event["SubscribeToShardEvent"]
            found.extend(data([last]))
            more(1)
        return last

    position: dict[str, Any] = {"kind": "TRIM_HORIZON"}
    while "ChildShards" not in (last := read_once(FIRST, position)):
        renewals += 1
        if "ContinuationSequenceNumber" in last:
            number = last["ContinuationSequenceNumber"]
            position = {"kind": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
        if renewals == 3:
            reader.split()
    aws.control(settings={"subscription_s": 300.0})
    for child in last["ChildShards"]:
        reader.client.split_shard(
            StreamName=reader.name,
            ShardToSplit=child["ShardId"],
            NewStartingHashKey=str(int(child["HashKeyRange"]["StartingHashKey"]) + 2**126),
        )
        found += data(reader.read(shard=child["ShardId"]))
    assert sorted(found) == sorted(put)
    assert len(put) >= 8


def test_large_records_pass(aws: EmbeddedAws) -> None:
    reader = Reader(aws)
    large = [bytes([number]) * 900_000 for number in range(5)]
    reader.put(*large)
    reader.split()
    events = reader.read()
    assert data(events) == large
    assert len(events) == 5


def test_positions_by_time(aws: EmbeddedAws) -> None:
    reader = Reader(aws)
    reader.put(b"a")
    time.sleep(0.05)
    middle = time.time() + aws.control()["now_s"] - time.time()
    reader.put(b"b")
    reader.split()
    assert data(reader.read("AT_TIMESTAMP", Timestamp=middle)) == [b"b"]


# --- the end --------------------------------------------------------------------------------


def test_a_closed_shard_ends_with_its_children(aws: EmbeddedAws) -> None:
    reader = Reader(aws)
    reader.split()
    (event,) = reader.read("LATEST")
    assert event["Records"] == []
    assert [child["ParentShards"] for child in event["ChildShards"]] == [[FIRST]] * 2


def test_a_later_subscription_takes_over(aws: EmbeddedAws) -> None:
    reader = Reader(aws)
    aws.control(settings={"takeover_s": 5.0})
    first = reader.subscribe()
    with pytest.raises(ClientError, match="ResourceInUseException"):
        reader.subscribe()
    aws.control(advance_s=5.0)
    second = reader.subscribe()
    with pytest.raises(EventStreamError, match="ResourceInUseException"):
        list(first)
    reader.put(b"a")
    assert next(e for e in second if e["SubscribeToShardEvent"]["Records"])


def test_a_deleted_stream_ends_its_subscriptions(aws: EmbeddedAws) -> None:
    reader = Reader(aws)
    events = reader.subscribe()
    reader.client.delete_stream(StreamName=reader.name, EnforceConsumerDeletion=True)
    with pytest.raises(EventStreamError, match="ResourceNotFoundException"):
        list(events)
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        reader.subscribe()


# --- faults ---------------------------------------------------------------------------------


def fault(aws: EmbeddedAws, **rule: Any) -> None:
    aws.control(faults=[{"operation": "SubscribeToShard", "times": 1, **rule}])


@pytest.mark.parametrize("code", [*sorted(MODELLED), "InternalFailure"])
def test_every_exception_can_be_ordered(aws: EmbeddedAws, code: str) -> None:
    reader = Reader(aws)
    reader.put(b"a")
    fault(aws, in_stream="exception", code=code, message="so it is", after_events=1)
    events = reader.subscribe()
    assert data([next(iter(events))["SubscribeToShardEvent"]]) == [b"a"]
    with pytest.raises(EventStreamError) as caught:
        list(events)
    assert caught.value.response["Error"] == {"Code": code, "Message": "so it is"}
    assert next(iter(reader.subscribe())), "the next one is well"


def test_an_exception_without_a_name_is_an_internal_failure(aws: EmbeddedAws) -> None:
    fault(aws, in_stream="exception")
    with pytest.raises(EventStreamError, match="InternalFailureException"):
        Reader(aws).read()


@pytest.mark.parametrize(("kind", "error"), [("cut", ProtocolError), ("corrupt", ChecksumMismatch)])
def test_events_can_be_broken(aws: EmbeddedAws, kind: str, error: type[Exception]) -> None:
    reader = Reader(aws)
    reader.put(b"a")
    fault(aws, in_stream=kind, after_events=1)
    events = reader.subscribe()
    assert data([next(iter(events))["SubscribeToShardEvent"]]) == [b"a"]
    with pytest.raises(error):
        list(events)


def test_a_subscription_can_fall_silent(aws: EmbeddedAws) -> None:
    reader = Reader(aws, read_timeout=1)
    fault(aws, in_stream="silence")
    reader.put(b"a")
    with pytest.raises(ReadTimeoutError):
        reader.read()


def test_a_subscription_can_end_early(aws: EmbeddedAws) -> None:
    reader = Reader(aws)
    reader.put(b"a")
    fault(aws, in_stream="end", after_events=2)
    events = reader.read()
    assert data(events) == [b"a"]
    assert len(events) == 2


def test_the_call_itself_can_be_refused_or_lost(aws: EmbeddedAws) -> None:
    reader = Reader(aws)
    fault(aws, code="LimitExceededException")
    with pytest.raises(ClientError, match="LimitExceededException"):
        reader.subscribe()
    aws.control(settings={"takeover_s": 5.0})
    fault(aws, code="InternalFailure", http_status=500, when="after")
    with pytest.raises(ClientError, match="InternalFailure"):
        reader.subscribe()
    with pytest.raises(ClientError, match="ResourceInUseException"):
        reader.subscribe()


# --- clients that go, and clients that stay without reading ---------------------------------


def until_served(aws: EmbeddedAws, count: int) -> float:
    """Wait until so many subscriptions are served; the seconds that it took."""
    started = time.monotonic()
    while aws.control()["subscriptions"] != count:
        assert time.monotonic() - started < PATIENCE_S
        time.sleep(0.01)
    return time.monotonic() - started


@pytest.mark.parametrize("how", [None, "silence"])
def test_a_client_that_goes_is_forgotten_at_once(aws: EmbeddedAws, how: str | None) -> None:
    until_served(aws, 0)
    reader = Reader(aws)
    aws.control(settings={"event_interval_s": 60.0, "empty_event_s": 60.0})
    fault(aws, in_stream=how)
    events = reader.subscribe()
    assert aws.control()["subscriptions"] == 1
    events.close()
    assert until_served(aws, 0) < 5


def test_a_client_that_does_not_read_is_not_buffered_for() -> None:
    """The service side alone: what is sent waits for the client, and so does everything else."""
    model = KinesisModel(lambda: 1_700_000_000.0, random.Random(0))
    model.call("CreateStream", {"StreamName": "s", "ShardCount": 1})
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
    made = model.call("RegisterStreamConsumer", {"StreamARN": arn, "ConsumerName": "c"})
    for _ in range(20):
        large = {"StreamName": "s", "PartitionKey": "k", "Data": "A" * 1_000_000}
        model.call("PutRecord", large)
    subscription = model.subscribe(
        {
            "ConsumerARN": made["Consumer"]["ConsumerARN"],
            "ShardId": FIRST,
            "StartingPosition": {"Type": "TRIM_HORIZON"},
        }
    )
    sent: list[int] = []

    async def life() -> None:
        unread = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0.2)
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(len(message.get("body", b"")))
            if sent[-1] > 1000:
                await unread.wait()

        await serve_events(subscription, None, receive, send, lambda: None)

    asyncio.run(life())
    assert len([size for size in sent if size > 1000]) == 1


def test_a_slow_client_holds_up_nobody(aws: EmbeddedAws) -> None:
    reader = Reader(aws)
    for number in range(20):
        reader.put(bytes([number]) * 900_000)
    slow = reader.subscribe()
    other = Reader(aws)
    other.put(b"a")
    assert next(iter(other.subscribe()))
    reader.split()
    assert len(data([event["SubscribeToShardEvent"] for event in slow])) == 20


def test_the_server_stops_with_a_subscription_open(capfd: pytest.CaptureFixture[str]) -> None:
    with EmbeddedAws(options=("--no-moto",)) as own:
        reader = Reader(own)
        events = reader.subscribe()
        process = own._process
        started = time.monotonic()
    assert process is not None
    assert process.returncode == 0
    assert time.monotonic() - started < 5
    assert capfd.readouterr().err == ""
    with pytest.raises(ProtocolError):
        list(events)
