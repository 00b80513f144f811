"""A whole application for tests: stream, table, workers with real children, what each of them saw."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcl_mld_protocol.conform.daemon import SCRIPTED_CHILD, ChildEntry, DaemonRun, properties_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kcl_mld.local.embedded import EmbeddedAws
    from kcl_mld_protocol.conform.daemon import Script

#: Long enough for a loaded machine; nothing is ever waited for that long when all is well.
PATIENCE_S = 120.0
RAISING = Path(__file__).resolve().parents[1] / "data" / "kclpy" / "raising.py"
JOURNALING = Path(__file__).resolve().parents[1] / "data" / "kclpy" / "journal.py"
STATUS: list[Any] = ["status"]
#: Exit codes of a process that native code has crashed.
CRASHES = {
    128 + number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)
}
#: What ``entityType`` may be of a lease.
LEASES = {None, "LEASE"}
#: A checkpoint without a position.
CHECKPOINT: list[Any] = ["checkpoint", None, None]
#: What a well-behaved program does.
GOOD: Script = {
    "processRecords": [[CHECKPOINT, STATUS]],
    "shardEnded": [[CHECKPOINT, STATUS]],
    "shutdownRequested": [[CHECKPOINT, STATUS]],
}


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Poll until the condition is true; its value.

    Polls are counted, as the clock of a machine that was paused jumps.
    """
    pause_s = 0.05
    for _ in range(int(timeout_s / pause_s)):
        if value := condition():
            return value
        time.sleep(pause_s)
    raise AssertionError(f"never happened: {what}")


class Running(DaemonRun):
    """One worker with the questions that tests ask."""

    def wait_for_log(self, text: str) -> None:
        """Until the output has that text."""
        assert self.wait_for(lambda run: text in run.output, PATIENCE_S), self.output

    def wait_for_actions(self, action: str, count: int = 1) -> None:
        """Until so many of these messages reached children."""
        assert self.wait_for_action(action, PATIENCE_S, count), self.output

    def ends(self, timeout_s: float = PATIENCE_S) -> int:
        """Its exit code."""
        code = self.exit_code(timeout_s)
        assert code is not None, self.output
        assert code not in CRASHES, self.output
        return code

    def stop(self) -> int:
        """SIGTERM and its exit code."""
        code = self.terminate_and_wait(PATIENCE_S)
        assert code is not None, self.output
        assert code not in CRASHES, self.output
        return code

    @property
    def pid(self) -> int:
        """Of the daemon."""
        return self._process.pid

    def child_of(self, shard: int) -> list[ChildEntry]:
        """Record of the last child of a shard."""
        name = shard_id(shard)
        for child in reversed(self.children()):
            if any(e.direction == "in" and f'"shardId":"{name}"' in str(e.what) for e in child):
                return child
        raise AssertionError(f"no child for {name}")

    def records(self) -> list[dict[str, Any]]:
        """All records that children got, in the order of time."""
        return [
            record
            for line in self.lines()
            if line.startswith('{"action":"processRecords"')
            for record in json.loads(line)["records"]
        ]


def heard(child: Iterable[ChildEntry]) -> list[str]:
    """Actions that one child heard, and ``EOF``; checkpoint results with their error."""
    found = []
    for entry in child:
        if entry.direction == "eof":
            found.append("EOF")
        elif entry.direction == "in":
            message = json.loads(entry.what)
            action = message["action"]
            error = message.get("error")
            found.append(f"checkpoint {error}" if error else action)
    return found


def plain(value: Mapping[str, Any]) -> Any:
    """One attribute value of DynamoDB JSON."""
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return float(content) if "." in content else int(content)
        case "SS":
            return sorted(content)
        case "M":
            return {name: plain(one) for name, one in content.items()}
        case "L":
            return [plain(one) for one in content]
        case _:
            return content


def shard_id(number: int) -> str:
    """As Kinesis numbers them."""
    return f"shardId-{number:012d}"


class Application:
    """A stream and a lease table of one name on the embedded AWS, and its workers.

    Args:
        aws: running.
        name: of stream and table.
        folder: for properties, output and journals.
        properties: for every worker; :meth:`start` may say more.
    """

    def __init__(self, aws: EmbeddedAws, name: str, folder: Path, **properties: str) -> None:
        self.aws = aws
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.properties = properties
        self.kinesis = aws.client("kinesis")
        self.dynamodb = aws.client("dynamodb")
        self._workers: list[Running] = []
        self._put = 0

    # -- stream --------------------------------------------------------------------------------

    def create_stream(self, shards: int) -> None:
        """ACTIVE on return."""
        self.kinesis.create_stream(StreamName=self.name, ShardCount=shards)
        self.wait_active()

    def wait_active(self) -> None:
        """Until the stream takes the next change."""

        def status() -> str:
            answer = self.kinesis.describe_stream_summary(StreamName=self.name)
            return str(answer["StreamDescriptionSummary"]["StreamStatus"])

        wait_until(lambda: status() == "ACTIVE", "the stream is ACTIVE")

    def put(self, count: int, key: str | None = None) -> list[str]:
        """Put records ``0``, ``1``, …; the keys differ unless one is given; what was put."""
        numbers = [str(self._put + more) for more in range(count)]
        self._put += count
        for start in range(0, count, 500):
            answer = self.kinesis.put_records(
                StreamName=self.name,
                Records=[
                    {"Data": number.encode(), "PartitionKey": key or f"key-{int(number) % 50}"}
                    for number in numbers[start : start + 500]
                ],
            )
            assert answer["FailedRecordCount"] == 0
        return numbers

    def split(self, shard: int) -> None:
        """In the middle; ACTIVE on return."""
        (found,) = [
            one
            for one in self.kinesis.list_shards(StreamName=self.name)["Shards"]
            if one["ShardId"] == shard_id(shard)
        ]
        keys = found["HashKeyRange"]
        middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
        self.kinesis.split_shard(
            StreamName=self.name, ShardToSplit=shard_id(shard), NewStartingHashKey=str(middle)
        )
        self.wait_active()

    def merge(self, left: int, right: int) -> None:
        """Two neighbors; ACTIVE on return."""
        self.kinesis.merge_shards(
            StreamName=self.name,
            ShardToMerge=shard_id(left),
            AdjacentShardToMerge=shard_id(right),
        )
        self.wait_active()

    # -- table ---------------------------------------------------------------------------------

    def items(self, table: str | None = None) -> dict[str, dict[str, Any]]:
        """Items by key as plain values, of the lease table its leases; empty without a table."""
        found = self.everything(table)
        return {k: item for k, item in found.items() if table or item.get("entityType") in LEASES}

    def everything(self, table: str | None = None) -> dict[str, dict[str, Any]]:
        """All items by key as plain values; empty without a table."""
        try:
            answer = self.dynamodb.scan(TableName=table or self.name, ConsistentRead=True)
        except self.dynamodb.exceptions.ResourceNotFoundException:
            return {}
        return {
            item.get("leaseKey", item.get("key"))["S"]: {n: plain(v) for n, v in item.items()}
            for item in answer["Items"]
        }

    def owners(self) -> dict[str, str | None]:
        """Owner of every lease."""
        return {
            key: item.get("leaseOwner")
            for key, item in self.items().items()
            if "leaseCounter" in item
        }

    def change(self, key: str, **attributes: str | int) -> None:
        """Set attributes of an item behind everybody's back."""
        kinds = {name: "N" if isinstance(value, int) else "S" for name, value in attributes.items()}
        self.dynamodb.update_item(
            TableName=self.name,
            Key={"leaseKey": {"S": key}},
            AttributeUpdates={
                name: {"Action": "PUT", "Value": {kinds[name]: str(value)}}
                for name, value in attributes.items()
            },
        )

    def create_table(self, table: str | None = None, key: str = "leaseKey") -> None:
        """As the daemon would make it."""
        self.dynamodb.create_table(
            TableName=table or self.name,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )

    def indexes(self) -> list[dict[str, Any]]:
        """Of the lease table; empty without a table."""
        try:
            table = self.dynamodb.describe_table(TableName=self.name)["Table"]
        except self.dynamodb.exceptions.ResourceNotFoundException:
            return []
        return list(table.get("GlobalSecondaryIndexes", ()))

    def calls(self) -> dict[str, int]:
        """What the embedded AWS was asked so far, by ``service.Operation``."""
        counted: dict[str, int] = self.aws.control()["calls"]
        return counted

    # -- workers -------------------------------------------------------------------------------

    def start(
        self,
        script: Script | None = None,
        *,
        worker: str = "w1",
        executable: Sequence[str] | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (),
        **properties: str | None,
    ) -> Running:
        """Start a worker.

        Args:
            script: what its children do; None = :data:`GOOD`.
            worker: worker id; names its folder, too.
            executable: another program than the scripted child.
            arguments: further ones of the command line.
            environment: replaces variables of the embedded AWS; an empty value removes one.
            launcher: a command that makes itself the daemon, whose command line follows.
            properties: replace those of the application; None removes one.
        """
        folder = self.folder / f"{worker}-{len(self._workers)}"
        folder.mkdir()
        script_file = folder / "script.json"
        script_file.write_text(
            json.dumps({"record": str(folder), "actions": GOOD if script is None else script})
        )
        program = executable or (sys.executable, str(SCRIPTED_CHILD), str(script_file))
        values: dict[str, str | None] = {
            "executableName": " ".join(program),
            "applicationName": self.name,
            "streamName": self.name,
            "AwsCredentialsProvider": "DefaultCredentialsProvider",
            "regionName": self.aws.region,
            "initialPositionInStream": "TRIM_HORIZON",
            "idleTimeBetweenReadsInMillis": "250",
            "metricsLevel": "NONE",
            "workerId": worker,
            **self.properties,
            **properties,
        }
        file = folder / "app.properties"
        file.write_text(
            properties_text({key: value for key, value in values.items() if value is not None})
        )
        env = self.aws.environment_for_child() | {"JOURNAL": str(folder)} | dict(environment or {})
        run = Running(
            (*launcher, sys.executable, "-m", "kcl_mld", "--properties", str(file), *arguments),
            folder,
            {name: value for name, value in env.items() if value},
        )
        self._workers.append(run)
        return run

    def kill_all(self) -> None:
        """End every worker that still runs."""
        for run in self._workers:
            run.kill()


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def child_pids(run: DaemonRun) -> list[int]:
    """Process ids of the scripted children that a worker had."""
    return [int(path.stem.removeprefix("child-")) for path in run.folder.glob("child-*.jsonl")]


def killed_children_are_gone(run: DaemonRun) -> None:
    """Wait for the end of children that a worker killed as its last act: SIGKILL takes a moment."""
    wait_until(lambda: not any(alive(pid) for pid in child_pids(run)), "the children are gone")


def journals(run: DaemonRun) -> dict[int, list[dict[str, Any]]]:
    """What each journaling program wrote, by process id."""
    return {
        int(path.stem.removeprefix("journal-")): [
            json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")
        ]
        for path in run.folder.glob("journal-*.jsonl")
    }


def processes_of_session(session_id: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError):
                if os.getsid(int(path.name)) == session_id and alive(int(path.name)):
                    found.append(int(path.name))
    return found
