"""The stream of a table: workers of ours and of the Java adapter 2.x on one lease table."""

from __future__ import annotations

import itertools
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore.config import Config

from kcl_mld_protocol.conform.daemon import properties_text
from tests import kclpy_cache
from tests.emulators import CONTROLLED_DYNAMODB_LOCAL, Emulator
from tests.peer import fetched
from tests.peer.fleet import COMPATIBLE, NATIVE, PATIENCE_S, PROGRAM, REGION, StandIn, Worker
from tests.peer.judge import Hold, Shard, Verdict, holds, judge
from tests.peer.regional_proxy import RegionalProxy
from tests.process.daemon import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ROOT = Path(__file__).resolve().parents[2]
_TABLE = "table"
#: The line of a worker that has started, by the first part of its id.
_STARTED = {"ours": "Initialized as worker", "java": "Starting worker loop"}


class TableFleet:
    """A table that changes all the time, and the workers of one application that read its stream.

    Args:
        url: of DynamoDB Local with its test control.
        name: of the table, and of the application.
        folder: exists.
        client_version: ``clientVersionConfig`` of all.
    """

    def __init__(self, url: str, name: str, folder: Path, client_version: str) -> None:
        self._url, self.name, self._folder = url, name, folder
        self._client_version = client_version
        self.application = f"{name}-readers"
        self._dynamodb, self._streams = self._client("dynamodb"), self._client("dynamodbstreams")
        self._dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        self.arn = self._dynamodb.describe_table(TableName=name)["Table"]["LatestStreamArn"]
        self._workers: list[Worker] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._change)
        self._thread.start()

    def close(self) -> None:
        """Ends all."""
        self.rest()
        for worker in self._workers:
            worker.kill()

    def _client(self, service: str) -> Any:
        return botocore.session.Session().create_client(
            service,
            region_name=REGION,
            endpoint_url=self._url,
            aws_access_key_id="peer",
            aws_secret_access_key="peer",
            config=Config(proxies={}),
        )

    def _change(self) -> None:
        number = 0
        while not self._ending.wait(0.2):
            self._dynamodb.put_item(TableName=self.name, Item={"pk": {"S": str(number)}})
            number += 1

    def rest(self) -> None:
        """The table does not change any more."""
        self._ending.set()
        self._thread.join()

    # -- the stream ----------------------------------------------------------------------------

    def roll_over(self) -> None:
        """The open shard gets a child."""
        item = {"ACTION": {"S": "ROLLOVER"}}
        self._dynamodb.put_item(TableName="[TEST_CONTROL]", Item=item)

    def _shards(self) -> list[dict[str, Any]]:
        answer = self._streams.describe_stream(StreamArn=self.arn)
        found: list[dict[str, Any]] = answer["StreamDescription"]["Shards"]
        return found

    def _put(self) -> dict[Shard, list[int]]:
        found = {}
        for shard in self._shards():
            iterator = self._streams.get_shard_iterator(
                StreamArn=self.arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            numbers: list[int] = []
            while iterator:
                answer = self._streams.get_records(ShardIterator=iterator)
                numbers += [int(one["dynamodb"]["SequenceNumber"]) for one in answer["Records"]]
                iterator = answer.get("NextShardIterator") if answer["Records"] else None
            found[Shard(_TABLE, shard["ShardId"])] = numbers
        return found

    # -- workers -------------------------------------------------------------------------------

    def ours(self, name: str) -> Worker:
        """kcl-mld with a program of kclpy."""
        folder = self._new_folder(name)
        values = {
            "executableName": PROGRAM,
            "applicationName": self.application,
            "AWSCredentialsProvider": "DefaultCredentialsProvider",
            "streamArn": self.arn,
            "kinesisEndpoint": self._url,
            "dynamoDBEndpoint": self._url,
            "initialPositionInStream": "TRIM_HORIZON",
            "idleTimeBetweenReadsInMillis": "500",
            "metricsLevel": "NONE",
            "workerId": name,
            "clientVersionConfig": self._client_version
            + ("_PHASE1" if self._client_version == COMPATIBLE else ""),
        }
        file = folder / "app.properties"
        file.write_text(properties_text(values))
        command = [sys.executable, "-m", "kcl_mld", "--properties", str(file)]
        environment = {"JOURNAL": str(folder), "PYTHONPATH": f"{kclpy_cache.kclpy()}:{_ROOT}"}
        return self._start(name, command, folder, environment)

    def adapter(self, name: str) -> Worker:
        """The Java adapter."""
        folder = self._new_folder(name)
        options = {
            "dynamodb": self._url,
            "stream": self.arn,
            "application": self.application,
            "worker": name,
            "journal": str(folder),
            "version": self._client_version,
            "org.slf4j.simpleLogger.showDateTime": "true",
        }
        defined = [f"-D{key}={text}" for key, text in options.items()]
        command = [*fetched.JVM, *defined, "-cp", fetched.table_stream(), "TableStream"]
        return self._start(name, command, folder, {})

    def daemon(self, name: str) -> Worker:
        """The MultiLangDaemon of the adapter 1.x, with its own file."""
        folder = self._new_folder(name)
        values = {
            "executableName": f"{sys.executable} {_ROOT / 'tests/peer/journal_1x.py'}",
            "applicationName": self.application,
            "AWSCredentialsProvider": "DefaultAWSCredentialsProviderChain",
            "streamName": self.arn,
            "regionName": REGION,
            "kinesisEndpoint": self._url,
            "dynamoDBEndpoint": self._url,
            "initialPositionInStream": "TRIM_HORIZON",
            "idleTimeBetweenReadsInMillis": "500",
            "metricsLevel": "NONE",
            "workerId": name,
        }
        file = folder / "app.properties"
        file.write_text(properties_text(values))
        command = [*fetched.table_stream_daemon(), str(file)]
        return self._start(name, command, folder, {"JOURNAL": str(folder)})

    def _new_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def _start(
        self, name: str, command: list[str], folder: Path, environment: dict[str, str]
    ) -> Worker:
        worker = Worker(name, command, folder, StandIn().environment | environment)
        self._workers.append(worker)
        return worker

    # -- what is seen --------------------------------------------------------------------------

    def holds(self, *workers: Worker) -> list[Hold]:
        """From their journals."""
        found = itertools.chain.from_iterable(holds(w.folder, w.name) for w in workers)
        return [replace(one, shard=Shard(_TABLE, one.shard.shard_id)) for one in found]

    def until_it_reads(self, worker: Worker) -> None:
        """It has a record of a shard that was open when this was called, or of a later one."""
        newest = self._shards()[-1]["ShardId"]

        def reads() -> bool:
            assert worker.exit_code(0) is None, f"{worker.name} ended: {worker.output[-3000:]}"
            return any(h.seen and h.shard.shard_id >= newest for h in self.holds(worker))

        wait_until(reads, f"{worker.name} reads {newest}", PATIENCE_S)

    def until_it_waits(self, worker: Worker) -> None:
        """It has started, and another worker has the open shard."""
        sign = _STARTED[worker.name.partition("-")[0]]
        wait_until(lambda: sign in worker.output, f"{worker.name} says {sign!r}", PATIENCE_S)

    def verdict(self) -> Verdict:
        """After all is read."""
        self.rest()
        put = self._put()
        wanted = {(shard, number) for shard, numbers in put.items() for number in numbers}

        def all_read() -> bool:
            found = self.holds(*self._workers)
            return wanted <= {(hold.shard, number) for hold in found for _, number in hold.seen}

        wait_until(all_read, f"{len(wanted)} changes are read", PATIENCE_S)
        family = {
            Shard(_TABLE, one["ShardId"]): [Shard(_TABLE, one["ParentShardId"])]
            for one in self._shards()
            if one.get("ParentShardId")
        }
        return judge(put, self.holds(*self._workers), family)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    try:
        fetched.table_stream()
    except fetched.Unavailable as error:
        pytest.skip(str(error))
    CONTROLLED_DYNAMODB_LOCAL.fetch_if_missing()
    if reason := CONTROLLED_DYNAMODB_LOCAL.missing():
        pytest.skip(reason)
    with (
        Emulator(CONTROLLED_DYNAMODB_LOCAL) as emulator,
        RegionalProxy(emulator.url) as regional,
    ):
        yield regional.url


@pytest.fixture
def new_fleet(url: str, tmp_path: Path) -> Iterator[Callable[[str, str], TableFleet]]:
    """Makes a table and its fleet; both are gone afterwards."""
    made: list[TableFleet] = []

    def make(name: str, client_version: str) -> TableFleet:
        made.append(TableFleet(url, name, tmp_path, client_version))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


@pytest.mark.peer
@pytest.mark.parametrize("version", [COMPATIBLE, NATIVE])
def test_both_read_a_table_through_shards_that_are_replaced_and_deaths(
    new_fleet: Callable[[str, str], TableFleet], version: str
) -> None:
    fleet = new_fleet(f"Shared{version[-2:]}", version)
    java = fleet.adapter("java-1")
    fleet.until_it_reads(java)
    fleet.roll_over()
    fleet.until_it_reads(java)
    ours = fleet.ours("ours-1")
    fleet.until_it_waits(ours)
    java.leave()
    fleet.roll_over()
    fleet.until_it_reads(ours)
    java = fleet.adapter("java-2")
    fleet.until_it_waits(java)
    ours.kill_dash_9()
    fleet.roll_over()
    fleet.until_it_reads(java)
    ours = fleet.ours("ours-2")
    fleet.until_it_waits(ours)
    java.kill_dash_9()
    fleet.roll_over()
    fleet.until_it_reads(ours)
    verdict = fleet.verdict()
    assert verdict.faults == []
    assert verdict.edges >= 4
    assert {"java-1", "java-2", "ours-1", "ours-2"} == set(+verdict.by_worker)
    print(verdict)


@pytest.mark.peer
@pytest.mark.parametrize("version", [COMPATIBLE, NATIVE])
def test_a_table_of_the_1x_daemon_is_taken_over(
    new_fleet: Callable[[str, str], TableFleet], version: str
) -> None:
    """After its last worker has ended: workers of KCL 1 share no table with others."""
    try:
        fetched.table_stream_daemon()
    except fetched.Unavailable as error:
        pytest.skip(str(error))
    fleet = new_fleet(f"Left{version[-2:]}", version)
    java = fleet.daemon("java-1")
    fleet.until_it_reads(java)
    fleet.roll_over()
    fleet.until_it_reads(java)
    java.kill_dash_9()
    ours = fleet.ours("ours-1")
    fleet.until_it_reads(ours)
    fleet.roll_over()
    fleet.until_it_reads(ours)
    verdict = fleet.verdict()
    assert verdict.faults == []
    assert verdict.edges >= 2
    assert {"java-1", "ours-1"} == set(+verdict.by_worker)
    print(verdict)
