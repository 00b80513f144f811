"""A fleet of real workers, ours and others', on one lease table and a stand-in for AWS."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from kcl_mld_protocol.conform.daemon import DaemonRun, properties_text
from tests import kclpy_cache
from tests.emulators import DYNAMODB_LOCAL, KINESIS_LOCAL, Emulator
from tests.peer import fetched
from tests.peer.judge import Hold, Shard, Verdict, holds, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

REGION = "us-east-1"
COMPATIBLE = "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X"
NATIVE = "CLIENT_VERSION_CONFIG_3X"
#: Index of the lease table by owner, and the item that says what a fleet of 3.x works as.
INDEX = "LeaseOwnerToLeaseKeyIndex"
GENERATION = "Migration3.0"
_ROOT = Path(__file__).resolve().parents[2]
#: For amazon_kclpy, whoever runs it.
PROGRAM = f"{sys.executable} {_ROOT / 'tests/data/kclpy/journal.py'} 3"
#: Java workers may need minutes to start on a busy machine, and two looks to take a lease.
PATIENCE_S = 300.0
_PAUSE_S = 0.5


class StandIn:
    """npm's kinesis-local and DynamoDB Local; a context manager."""

    def __init__(self) -> None:
        self._running = contextlib.ExitStack()
        self.kinesis_url = self.dynamodb_url = ""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.kinesis_url = stack.enter_context(Emulator(KINESIS_LOCAL)).url
            self.dynamodb_url = stack.enter_context(Emulator(DYNAMODB_LOCAL)).url
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def environment(self) -> dict[str, str]:
        """Of every worker."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
        return kept | {
            "AWS_ACCESS_KEY_ID": "peer",
            "AWS_SECRET_ACCESS_KEY": "peer",
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, service: str) -> Any:
        """Of ``kinesis`` or ``dynamodb``; a failed call is not repeated."""
        return botocore.session.Session().create_client(
            service,
            region_name=REGION,
            endpoint_url=self.kinesis_url if service == "kinesis" else self.dynamodb_url,
            aws_access_key_id="peer",
            aws_secret_access_key="peer",
            config=Config(proxies={}, retries={"total_max_attempts": 1}),
        )


class Worker(DaemonRun):
    """A worker; its folder has its output and its journals."""

    def __init__(
        self, name: str, arguments: Iterable[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        super().__init__(list(arguments), folder, environment)

    def kill_dash_9(self) -> None:
        """The worker alone; its children see the end of their stdin."""
        self.signal(signal.SIGKILL)
        assert self.exit_code(PATIENCE_S) == 137

    def leave(self) -> None:
        """SIGTERM, and the end that it asks for."""
        code = self.terminate_and_wait(PATIENCE_S)
        assert code in (0, 143), f"{self.name} ended with {code}: {self.output[-3000:]}"


class Feeder:
    """Puts records to the streams all the time, and knows the shard of each; a thread."""

    def __init__(self, kinesis: Any) -> None:
        self._kinesis = kinesis
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._put: dict[Shard, list[int]] = {}
        self._failure: Exception | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def feed(self, stream: str) -> None:
        """This stream, too, from now on."""
        with self._lock:
            self._numbers[stream] = 0

    def forget(self, stream: str) -> None:
        """No more records for a stream."""
        with self._lock:
            del self._numbers[stream]

    def stop(self) -> None:
        """Raises what went wrong meanwhile."""
        self._ending.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def put(self) -> dict[Shard, list[int]]:
        """Sequence numbers of each shard so far."""
        with self._lock:
            return {shard: list(numbers) for shard, numbers in self._put.items()}

    def _run(self) -> None:
        try:
            while not self._ending.wait(_PAUSE_S):
                with self._lock:
                    for stream in self._numbers:
                        self._put_some(stream)
        except (BotoCoreError, ClientError) as error:
            self._failure = error

    def _put_some(self, stream: str, count: int = 5) -> None:
        first = self._numbers[stream]
        self._numbers[stream] += count
        numbers = range(first, first + count)
        answer = self._kinesis.put_records(
            StreamName=stream,
            Records=[{"Data": f"{stream}/{n}", "PartitionKey": f"key-{n}"} for n in numbers],
        )
        for record in answer["Records"]:
            shard = Shard(stream, record["ShardId"])
            self._put.setdefault(shard, []).append(int(record["SequenceNumber"]))


class Fleet:
    """Workers of one application; a context manager that ends all of them.

    Args:
        aws: running.
        application: name of the lease table.
        streams: name -> shards; created here, see :meth:`create_stream`.
        folder: exists.
        client_version: ``clientVersionConfig`` of the others, and of ours in a fleet of 3.x.
    """

    def __init__(
        self,
        aws: StandIn,
        application: str,
        streams: Mapping[str, int],
        folder: Path,
        client_version: str = COMPATIBLE,
    ) -> None:
        self.aws = aws
        self.application = application
        self.client_version = client_version
        self.folder = folder
        self.kinesis, self.dynamodb = aws.client("kinesis"), aws.client("dynamodb")
        self.feeder = Feeder(aws.client("kinesis"))
        self.streams: list[str] = []
        self._workers: list[Worker] = []
        self._family: dict[Shard, list[Shard]] = {}
        self._begun_s = time.monotonic()
        self.diary: list[str] = []
        for name, shards in streams.items():
            self.create_stream(name, shards)

    def __enter__(self) -> Self:
        self.feeder.start()
        return self

    def __exit__(self, *_: object) -> None:
        items = self.items() | self.states()
        (self.folder / "items.json").write_text(json.dumps(items, indent=1))
        for worker in self._workers:
            worker.kill()
        self.feeder.stop()

    def note(self, what: str) -> None:
        """For who reads the output."""
        self.diary.append(f"{time.monotonic() - self._begun_s:5.0f} s  {what}")
        (self.folder / "diary").write_text("\n".join(self.diary) + "\n")

    # -- streams -------------------------------------------------------------------------------

    def create_stream(self, name: str, shards: int) -> str:
        """Fed from then on; its name, which begins with the application's."""
        stream = f"{self.application}-{name}"
        self.kinesis.create_stream(StreamName=stream, ShardCount=shards)
        self._wait_active(stream)
        self.streams.append(stream)
        self.feeder.feed(stream)
        return stream

    def delete_stream(self, stream: str) -> None:
        """With all its records."""
        self.feeder.forget(stream)
        self._learn_family(stream)
        self.kinesis.delete_stream(StreamName=stream)
        self.note(f"{stream} deleted")

    def split(self, shard: Shard) -> list[Shard]:
        """In the middle; its children."""
        keys = self._listed(shard.stream)[shard.shard_id]["HashKeyRange"]
        middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
        self.kinesis.split_shard(
            StreamName=shard.stream, ShardToSplit=shard.shard_id, NewStartingHashKey=str(middle)
        )
        self.note(f"{shard.stream} {shard.shard_id} is split")
        return self._children_of(shard)

    def merge(self, left: Shard, right: Shard) -> list[Shard]:
        """Two neighbors; their child."""
        self.kinesis.merge_shards(
            StreamName=left.stream,
            ShardToMerge=left.shard_id,
            AdjacentShardToMerge=right.shard_id,
        )
        self.note(f"{left.stream} {left.shard_id} and {right.shard_id} are merged")
        return self._children_of(left)

    def tag(self, stream: str, **tags: str) -> None:
        """More tags for a stream."""
        self.kinesis.add_tags_to_stream(StreamName=stream, Tags=tags)
        self.note(f"{stream} has the tags {tags}")

    def identifier(self, stream: str) -> str:
        """``account:name:epoch`` with the epoch in seconds."""
        answer = self.kinesis.describe_stream_summary(StreamName=stream)
        summary = answer["StreamDescriptionSummary"]
        account = summary["StreamARN"].split(":")[4]
        return f"{account}:{stream}:{int(summary['StreamCreationTimestamp'].timestamp())}"

    def _children_of(self, shard: Shard) -> list[Shard]:
        self._wait_active(shard.stream)
        self._learn_family(shard.stream)
        return sorted(child for child, parents in self._family.items() if shard in parents)

    def _wait_active(self, stream: str) -> None:
        def status() -> str:
            answer = self.kinesis.describe_stream_summary(StreamName=stream)
            return str(answer["StreamDescriptionSummary"]["StreamStatus"])

        self.until(lambda: status() == "ACTIVE", f"{stream} is ACTIVE")

    def _listed(self, stream: str) -> dict[str, Any]:
        shards = self.kinesis.list_shards(StreamName=stream)["Shards"]
        return {shard["ShardId"]: shard for shard in shards}

    def _learn_family(self, stream: str) -> None:
        for shard_id, shard in self._listed(stream).items():
            names = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
            if parents := [Shard(stream, name) for name in names if name]:
                self._family[Shard(stream, shard_id)] = parents

    # -- table ---------------------------------------------------------------------------------

    def rows(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The leases by key, in DynamoDB's JSON; empty without a table."""
        lease = {"S": "LEASE"}
        return {key: i for key, i in self.items().items() if i.get("entityType", lease) == lease}

    def items(self) -> dict[str, dict[str, dict[str, Any]]]:
        """All items, also what KCL 3.x keeps beside its leases."""
        try:
            answer = self.dynamodb.scan(TableName=self.application, ConsistentRead=True)
        except self.dynamodb.exceptions.ResourceNotFoundException:
            return {}
        return {item["leaseKey"]["S"]: item for item in answer["Items"]}

    def states(self) -> dict[str, dict[str, dict[str, Any]]]:
        """What a fleet of 3.x keeps beside its leases, by key, in one table or in three."""
        found = {key: item for key, item in self.items().items() if "checkpoint" not in item}
        for name, key in (("CoordinatorState", "key"), ("WorkerMetricStats", "wid")):
            with contextlib.suppress(self.dynamodb.exceptions.ResourceNotFoundException):
                answer = self.dynamodb.scan(
                    TableName=f"{self.application}-{name}", ConsistentRead=True
                )
                found |= {item[key]["S"]: item for item in answer["Items"]}
        return found

    @property
    def leader(self) -> str | None:
        """Owner of the lock of a fleet of 3.x."""
        owner = self.states().get("Leader", {}).get("ownerName", {}).get("S")
        return None if owner is None else str(owner)

    @property
    def generation(self) -> str | None:
        """What the fleet works as, without its common beginning; None = nobody says so."""
        said = self.states().get(GENERATION, {}).get("cv", {}).get("S")
        return None if said is None else str(said).removeprefix("CLIENT_VERSION_")

    def roll_back(self) -> None:
        """As KCL's migration tool does it; its wait for all workers is left to the caller."""
        found = self.states()[GENERATION]
        now = {"N": str(round(time.time() * 1000))}
        said = {
            "cv": {"S": "CLIENT_VERSION_2X"},
            "mb": {"S": "KclMigrationTool-rollback"},
            "mts": now,
        }
        before = {"M": {name: found[name] for name in said}}
        history = {"L": [before, *found["h"]["L"]][:10]}
        item = found | said | {"h": history}
        is_single = "leaseKey" in item
        table = self.application if is_single else f"{self.application}-CoordinatorState"
        self.dynamodb.put_item(
            TableName=table,
            Item=item,
            ConditionExpression="cv = :before",
            ExpressionAttributeValues={":before": found["cv"]},
        )
        self.note("the fleet is rolled back")

    def delete_index(self) -> None:
        """The tool's second step."""
        self.dynamodb.update_table(
            TableName=self.application,
            GlobalSecondaryIndexUpdates=[{"Delete": {"IndexName": INDEX}}],
        )
        self.note("the index is deleted")

    def owned(self, worker: Worker) -> list[str]:
        """Keys of its leases with records to come."""
        return sorted(key for key, owner in self._owners().items() if owner == worker.name)

    def _owners(self) -> dict[str, str | None]:
        return {
            key: row.get("checkpointOwner", row.get("leaseOwner", {})).get("S")
            for key, row in self.rows().items()
            if row["checkpoint"]["S"] != "SHARD_END"
        }

    @property
    def share(self) -> int:
        """Of four leases, what one of two workers gets at least; a 3.x leader goes by load, too."""
        return 1 if self.client_version == NATIVE else 2

    # -- workers -------------------------------------------------------------------------------

    def ours(self, name: str, *, ahead_s: float | None = None, **properties: str) -> Worker:
        """A worker of kcl-mld; of one stream unless the properties say more.

        Beside 2.x workers it begins no upgrade: they cannot list a table with such an item.

        Args:
            ahead_s: seconds by which its wall clock is ahead of the others'.
        """
        promise = NATIVE if self.client_version == NATIVE else f"{COMPATIBLE}_PHASE1"
        properties = {"clientVersionConfig": promise} | properties
        command: tuple[str, ...] = (sys.executable, "-m", "kcl_mld", "--properties")
        if ahead_s is not None:
            file = self.folder / f"clock-{name}"
            file.write_text(str(ahead_s))
            command = (
                sys.executable,
                str(_ROOT / "tests/data/other_clock.py"),
                str(file),
                *command,
            )
        return self._daemon(name, command, properties)

    def older(self, name: str, **properties: str) -> Worker:
        """A worker of an older kcl-mld; otherwise as :meth:`ours`."""
        promise = NATIVE if self.client_version == NATIVE else f"{COMPATIBLE}_PHASE1"
        command = (sys.executable, "-m", "mld", "--properties")
        properties = {"clientVersionConfig": promise} | properties
        return self._daemon(name, command, properties, fetched.older())

    def multilang(self, name: str, version: str, **properties: str) -> Worker:
        """The unmodified Java MultiLangDaemon."""
        given = {
            "clientVersionConfig": self.client_version,
            "AWSCredentialsProvider": fetched.provider(version),
        }
        return self._daemon(name, fetched.multilang_command(version), given | properties)

    def many_streams(self, name: str, version: str, identifiers: Iterable[str]) -> Worker:
        """Our program over the Java library."""
        folder = self._folder(name)
        streams = folder / "streams"
        streams.write_text("".join(f"{one}\n" for one in identifiers))
        options = {
            "kinesis": self.aws.kinesis_url,
            "dynamodb": self.aws.dynamodb_url,
            "application": self.application,
            "worker": name,
            "streams": str(streams),
            "journal": str(folder),
            "version": self.client_version if version.startswith("3") else "",
            "org.slf4j.simpleLogger.showDateTime": "true",
        }
        defined = [f"-D{key}={text}" for key, text in options.items()]
        command = [*fetched.JVM, *defined, "-cp", fetched.many_streams(version), "ManyStreams"]
        return self._start(name, command, folder, {})

    def kcl_rs(self, name: str, identifiers: Iterable[str] = ()) -> Worker:
        """kcl-rs; of one stream unless identifiers are given."""
        folder = self._folder(name)
        options: dict[str, Any] = {
            "application_name": self.application,
            "worker_identifier": name,
            "initial_position": "TRIM_HORIZON",
            "retrieval_mode": "POLLING",
            "idle_time_between_reads_millis": 500,
            "shard_sync_interval_millis": 1000,
            "region": REGION,
            "journal": str(folder),
        }
        if several := list(identifiers):
            options["stream_identifiers"] = several
        else:
            (options["stream_name"],) = self.streams
        environment = {
            "PYTHONPATH": fetched.kcl_rs(),
            "AWS_ENDPOINT_URL_KINESIS": self.aws.kinesis_url,
            "AWS_ENDPOINT_URL_DYNAMODB": self.aws.dynamodb_url,
            "AWS_ENDPOINT_URL_CLOUDWATCH": self.aws.dynamodb_url,
        }
        command = (sys.executable, str(Path(__file__).with_name("rs_worker.py")))
        return self._start(name, [*command, json.dumps(options)], folder, environment)

    def _daemon(
        self,
        name: str,
        command: Iterable[str],
        properties: Mapping[str, str],
        package: str = str(_ROOT),
    ) -> Worker:
        folder = self._folder(name)
        values = {
            "executableName": PROGRAM,
            "applicationName": self.application,
            "AWSCredentialsProvider": "DefaultCredentialsProvider",
            "regionName": REGION,
            "kinesisEndpoint": self.aws.kinesis_url,
            "dynamoDBEndpoint": self.aws.dynamodb_url,
            "initialPositionInStream": "TRIM_HORIZON",
            "maxRecords": "1000",
            "idleTimeBetweenReadsInMillis": "500",
            "shardSyncIntervalMillis": "1000",
            "metricsLevel": "NONE",
            "workerId": name,
        }
        if "multiStream" not in properties:
            (values["streamName"],) = self.streams
        file = folder / "app.properties"
        file.write_text(properties_text(values | dict(properties)))
        environment = {"JOURNAL": str(folder), "PYTHONPATH": f"{kclpy_cache.kclpy()}:{package}"}
        return self._start(name, [*command, str(file)], folder, environment)

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder

    def _start(
        self, name: str, command: Iterable[str], folder: Path, environment: Mapping[str, str]
    ) -> Worker:
        worker = Worker(name, command, folder, self.aws.environment | dict(environment))
        self._workers.append(worker)
        self.note(f"{name} is started")
        return worker

    # -- what happens --------------------------------------------------------------------------

    def until(
        self, condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S
    ) -> None:
        """Wait for it; fails if it takes too long, or a worker ends that was not told to."""
        begun_s = time.monotonic()
        while not condition():
            assert time.monotonic() - begun_s < patience_s, f"never: {what}; {self.diary}"
            time.sleep(0.5)
        self.note(f"{what} ({time.monotonic() - begun_s:.0f} s)")

    def until_it_holds(self, worker: Worker, at_least: int) -> None:
        """Leases, by the table; and its programs see records."""

        def lives() -> None:
            assert worker.exit_code(0) is None, f"{worker.name} ended: {worker.output[-3000:]}"

        def holds_them() -> bool:
            lives()
            return len(self.owned(worker)) >= at_least

        def reads() -> bool:
            lives()
            return any(hold.seen for hold in self.holds(worker))

        self.until(holds_them, f"{worker.name} holds {at_least}")
        self.until(reads, f"{worker.name} reads")

    def until_all_is_owned_by(self, *workers: Worker) -> None:
        """Every lease with records to come."""
        names = {worker.name for worker in workers}
        self.until(
            lambda: bool(self.rows()) and set(self._owners().values()) <= names,
            f"{' and '.join(sorted(names))} hold all",
        )

    def until_read_by_anybody(self, *shards: Shard) -> None:
        """Somebody has seen a record of each from now on."""
        since_s = time.time()

        def read() -> bool:
            found = self.holds(*self._workers)
            return set(shards) <= {h.shard for h in found if h.seen and h.seen[-1][0] > since_s}

        self.until(read, f"{len(shards)} shards are read: {', '.join(s.shard_id for s in shards)}")

    def until_all_is_read(self, *but: str) -> None:
        """Every record that was put until now, but for those of some streams."""
        put = {
            (shard, number)
            for shard, numbers in self.feeder.put().items()
            for number in numbers
            if shard.stream not in but
        }

        def all_read() -> bool:
            found = self.holds(*self._workers)
            return put <= {(hold.shard, number) for hold in found for _, number in hold.seen}

        self.until(all_read, f"all {len(put)} records are read")

    def holds(self, *workers: Worker) -> list[Hold]:
        """From their journals."""
        only = self.streams[0] if len(self.streams) == 1 else ""
        found = [one for w in workers for one in holds(w.folder, w.name, only)]
        return [one for one in found if one.shard.stream]

    def verdict(self, *but: str) -> Verdict:
        """After all is read: the feeder stops, what is left is read, the judge looks.

        Args:
            but: streams that were deleted with records that nobody could read any more.
        """
        self.feeder.stop()
        self.until_all_is_read(*but)
        for stream in self.streams:
            if stream not in but:
                self._learn_family(stream)
        found = [one for one in self.holds(*self._workers) if one.shard.stream not in but]
        put = {s: numbers for s, numbers in self.feeder.put().items() if s.stream not in but}
        verdict = judge(put, found, self._family)
        self.note(str(verdict))
        return verdict
