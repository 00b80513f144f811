"""A fleet with Spark children under kill -9, judged by what lies in the sink.

Two workers share a stream of four shards; while records are put, and a shard is split and two are
merged, stubs, hosts, JVMs and daemons are killed, many of them while a commit goes on; leases are
taken away in commits; commits are slow, or raise although they stand; and a user works in the
table, and restores it. Daemons come back with another ``maxRecords`` and another batch size, so
that redelivered records are cut anew. At the end every (shard, sequence number, sub-sequence
number) that Kinesis gave out must be in the sink once, as two readers count it. What happened is
counted, and what never happened in a run of several seeds fails it.

``python -m tests.spark.chaos --sink delta --seeds 3 --first-seed 7``
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fakes.aggregate import aggregate
from tests.spark import chaos_faults
from tests.spark.small_server import SMALL_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kcl_mld.local.embedded import EmbeddedAws
    from tests.spark.chaos_sinks import Sink

APP = Path(__file__).with_name("chaos_app.py")
MARKER = "KCL_MLD_CHAOS"
SHARDS = 4
ROUNDS = 30
PER_ROUND = 200
ROUND_S = 1.0
KILLS = 8
#: How likely a user works in the output in a round.
DISTURB = 0.4
#: How likely a kill waits for a commit, and for how long, in s.
IN_COMMIT, COMMIT_S = 0.7, 3.0
#: How long until the fleet says that a table was restored, in s.
TOLD_S = 60.0
#: Seeds from which on whatever never happened fails the run.
ENOUGH = 6
#: What a run of several seeds has to have seen, besides a kill of each kind.
WANTED = (
    "commits",
    "lost answers",
    "refused commits",
    "kills in a commit",
    "lease moves",
    "leases taken in a commit",
    "splits",
    "merges",
)
VICTIMS = ("stub", "stub", "stub", "host", "jvm", "daemon", "daemon")
#: The fleet is given up when nothing has moved at so many looks, a second and more apart. A busy
#: machine may be slow, and one that was paused shows a clock that has jumped.
STILL_LOOKS = 300
LOOK_S = 1.0

Key = tuple[str, int, int]


def processes(run_id: str) -> dict[int, str]:
    """Command lines of the living processes that carry the marker of a run."""
    found = {}
    wanted = f"{MARKER}={run_id}".encode()
    for path in Path("/proc").iterdir():
        if not path.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if wanted in (path / "environ").read_bytes().split(b"\0"):
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if state != "Z" and command:
                    found[int(path.name)] = command
    return found


def kind_of(command: str) -> str:
    """Which part of the fleet a command line belongs to."""
    if "SparkConnectServer" in command:
        return "jvm"
    if "kcl_mld.spark.host" in command:
        return "host"
    if "kcl_mld.spark.stub" in command or "kcl-mld-spark" in command:
        return "stub"
    return "daemon" if "-m kcl_mld --properties" in command else "other"


@dataclass
class Worker:
    """One place in the fleet: a daemon that is started again whenever it has ended."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    codes: list[int] = field(default_factory=list)


@dataclass
class Verdict:
    """What a run showed."""

    seed: int
    put: int
    rows: int
    lost: int
    doubled: int
    foreign: int
    kills: Counter[str]
    disturbances: Counter[str]
    happened: Counter[str]
    readers_differ: bool
    starts: int
    left_over: dict[int, str]
    unfinished: dict[str, Any]
    seconds: float

    @property
    def is_clean(self) -> bool:
        """True if the promise was kept."""
        bad = self.lost or self.doubled or self.foreign or self.left_over or self.unfinished
        return not bad and not self.readers_differ and self.put > 0

    def __str__(self) -> str:
        kills, others, happened = (
            ", ".join(f"{kind} {count}" for kind, count in sorted(each.items())) or "none"
            for each in (self.kills, self.disturbances, self.happened)
        )
        return (
            f"seed {self.seed}: put {self.put}, rows {self.rows}, lost {self.lost}, doubled "
            f"{self.doubled}, foreign {self.foreign}; kills: {kills}; "
            f"the user's own: {others}; seen: {happened}; {self.starts} daemon starts, "
            f"the second reader {'DIFFERS' if self.readers_differ else 'agrees'}, "
            f"{self.seconds:.0f} s; left over {self.left_over}; unfinished {self.unfinished}"
        )


class Chaos:
    """One run; use :meth:`run`."""

    def __init__(
        self,
        aws: EmbeddedAws,
        sink: Sink,
        seed: int,
        folder: Path,
        *,
        rounds: int = ROUNDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.aws, self.sink, self.seed, self.folder = aws, sink, seed, folder
        self.rounds = rounds
        self.environment = environment or {}
        self.rng = random.Random(seed)
        self.name = f"chaos-{sink.name}-{seed}-{uuid.uuid4().hex[:8]}"
        self.kinesis = aws.client("kinesis")
        self.dynamodb = aws.client("dynamodb")
        self.put: Counter[Key] = Counter()
        self.kills: Counter[str] = Counter()
        self.disturbances: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.blows: list[tuple[str, float]] = []
        self.owners: dict[str, str] = {}
        self.events = folder / "events"
        self.epoch = 0
        self.workers = [Worker(name, folder / name) for name in ("wa", "wb")]

    # -- fleet ---------------------------------------------------------------------------------

    def properties(self, worker: Worker) -> dict[str, str]:
        """Of the next start of a worker: cut sizes and policy are drawn anew."""
        return {
            "executableName": f"{sys.executable} -m kcl_mld.spark.stub {APP}",
            "applicationName": self.name,
            "streamName": self.name,
            "workerId": f"{worker.name}-{worker.starts}",
            "AwsCredentialsProvider": "DefaultCredentialsProvider",
            "regionName": self.aws.region,
            "initialPositionInStream": "TRIM_HORIZON",
            "idleTimeBetweenReadsInMillis": "200",
            "failoverTimeMillis": "6000",
            "shardSyncIntervalMillis": "1000",
            "metricsLevel": "NONE",
            "maxRecords": str(self.rng.randint(50, 400)),
            "childFailurePolicy": self.rng.choice(("exit", "restart")),
            "childRestartBackoffMillis": "500",
            "shutdownGraceMillis": "20000",
            "spark.batch.maxRecords": str(self.rng.randint(*self.sink.cut)),
            "spark.batch.maxDelay": self.rng.choice(("500ms", "1s", "2s")),
            **SMALL_SERVER,
            "spark.host.linger": "5s",
            "spark.sink.epoch": str(self.epoch),
            **self.sink.properties(),
        }

    def start(self, worker: Worker) -> None:
        """Start a worker's daemon."""
        worker.starts += 1
        worker.folder.mkdir(exist_ok=True, parents=True)
        file = worker.folder / f"app-{worker.starts}.properties"
        file.write_text("".join(f"{k} = {v}\n" for k, v in self.properties(worker).items()))
        env = self.aws.environment_for_child() | {MARKER: self.name} | self.sink.environment()
        env |= self.environment
        env |= {chaos_faults.EVENTS: str(self.events), "CHAOS_SINK": self.sink.name}
        with (worker.folder / "log").open("ab") as log:
            worker.process = subprocess.Popen(
                [sys.executable, "-m", "kcl_mld", "--properties", str(file)],
                env=env,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def tend(self) -> None:
        """Start again what has ended."""
        for worker in self.workers:
            if worker.process is not None and (code := worker.process.poll()) is not None:
                worker.codes.append(code)
                worker.process = None
            if worker.process is None:
                self.start(worker)

    def kill_one(self) -> None:
        """kill -9 of one process of a drawn kind."""
        alive: dict[str, list[int]] = {}
        for pid, command in sorted(processes(self.name).items()):
            alive.setdefault(kind_of(command), []).append(pid)
        kinds = [kind for kind in VICTIMS if kind in alive]
        if not kinds:
            return
        kind = self.rng.choice(kinds)
        pid = self.rng.choice(alive[kind])
        if self.rng.random() < IN_COMMIT:
            self.wait_for_commit()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills[kind] += 1
            self.blows.append(("kills in a commit", time.monotonic()))

    def wait_for_commit(self) -> None:
        """Until a living host is in a commit, or patience ends."""
        living = set(processes(self.name))
        deadline = time.monotonic() + COMMIT_S
        while time.monotonic() < deadline:
            if chaos_faults.Commits(chaos_faults.events(self.events)).go_on(living):
                return
            time.sleep(0.01)

    def leases(self) -> list[Any]:
        """Rows of the lease table that are of shards."""
        try:
            items = self.dynamodb.scan(TableName=self.name, ConsistentRead=True)["Items"]
        except self.dynamodb.exceptions.ResourceNotFoundException:
            return []
        return [item for item in items if "checkpoint" in item]

    def watch_owners(self) -> None:
        """Count the leases that are at another worker than before."""
        for item in self.leases():
            key, owner = item["leaseKey"]["S"], item.get("leaseOwner", {}).get("S", "")[:2]
            if owner and self.owners.get(key, owner) != owner:
                self.happened["lease moves"] += 1
            self.owners[key] = owner or self.owners.get(key, "")

    def take_lease(self) -> None:
        """Somebody takes a lease while a commit goes on, and is never heard of again."""
        self.wait_for_commit()
        owned = [item for item in self.leases() if "leaseOwner" in item]
        if not owned:
            return
        item = self.rng.choice(owned)
        with contextlib.suppress(self.dynamodb.exceptions.ConditionalCheckFailedException):
            self.dynamodb.update_item(
                TableName=self.name,
                Key={"leaseKey": item["leaseKey"]},
                UpdateExpression="SET leaseOwner = :thief ADD leaseCounter :one",
                ConditionExpression="leaseOwner = :owner",
                ExpressionAttributeValues={
                    ":thief": {"S": "thief"},
                    ":one": {"N": "1"},
                    ":owner": item["leaseOwner"],
                },
            )
            self.blows.append(("leases taken in a commit", time.monotonic()))

    # -- stream --------------------------------------------------------------------------------

    def put_round(self, number: int) -> None:
        """Put some records; now and then an aggregate of three."""
        records, subs = [], []
        for more in range(PER_ROUND):
            key = f"key-{self.rng.randrange(1000)}"
            body = json.dumps({"id": number * PER_ROUND + more, "pad": "x" * 40}).encode()
            is_aggregate = self.rng.random() < 0.05
            data = aggregate(*[(key, body)] * 3) if is_aggregate else body
            records.append({"Data": data, "PartitionKey": key})
            subs.append(3 if is_aggregate else 1)
        answer = self.kinesis.put_records(StreamName=self.name, Records=records)
        assert answer["FailedRecordCount"] == 0
        for taken, count in zip(answer["Records"], subs, strict=True):
            for sub in range(count):
                self.put[taken["ShardId"], int(taken["SequenceNumber"]), sub] += 1

    def open_shards(self) -> list[Any]:
        """In the order of their hash keys."""
        shards = self.kinesis.list_shards(StreamName=self.name)["Shards"]
        still = [one for one in shards if "EndingSequenceNumber" not in one["SequenceNumberRange"]]
        return sorted(still, key=lambda one: int(one["HashKeyRange"]["StartingHashKey"]))

    def wait_active(self) -> None:
        """Until the stream takes the next change."""
        while (
            self.kinesis.describe_stream_summary(StreamName=self.name)["StreamDescriptionSummary"][
                "StreamStatus"
            ]
            != "ACTIVE"
        ):
            time.sleep(0.05)

    def split(self) -> None:
        """The first open shard, in the middle."""
        shard = self.open_shards()[0]
        keys = shard["HashKeyRange"]
        middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
        self.kinesis.split_shard(
            StreamName=self.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle)
        )
        self.wait_active()
        self.happened["splits"] += 1

    def merge(self) -> None:
        """The last two open shards."""
        left, right = self.open_shards()[-2:]
        self.kinesis.merge_shards(
            StreamName=self.name,
            ShardToMerge=left["ShardId"],
            AdjacentShardToMerge=right["ShardId"],
        )
        self.wait_active()
        self.happened["merges"] += 1

    # -- the run -------------------------------------------------------------------------------

    def run(self) -> Verdict:
        """Put, kill, settle, stop, judge."""
        began = time.monotonic()
        self.kinesis.create_stream(StreamName=self.name, ShardCount=SHARDS)
        self.wait_active()
        self.dynamodb.list_tables()  # a cold server is slower than the workers' time-outs
        try:
            self._storm()
            self._settle()
            self._stop()
            left_over = self._left_over()
        finally:
            for pid in processes(self.name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        seen = self.sink.keys()
        self._count_events()
        return Verdict(
            self.seed,
            put=len(self.put),
            rows=sum(seen.values()),
            lost=len(self.put.keys() - seen.keys()),
            doubled=sum(count - 1 for count in seen.values()),
            foreign=len(seen.keys() - self.put.keys()),
            kills=self.kills,
            disturbances=self.disturbances,
            happened=self.happened,
            readers_differ=self.sink.second_count() != sum(seen.values()),
            starts=sum(worker.starts for worker in self.workers),
            left_over=left_over,
            unfinished=self._unfinished(),
            seconds=time.monotonic() - began,
        )

    def _storm(self) -> None:
        kills = KILLS * self.rounds // ROUNDS
        kill_rounds = sorted(self.rng.sample(range(2, self.rounds), kills))
        take_rounds = self.rng.sample(range(3, self.rounds), max(1, self.rounds // 10))
        # Some restores are early, some late; one run in three has none.
        restore_round = self.rng.choice((self.rounds // 2, 3 * self.rounds // 4, None))
        for number in range(self.rounds):
            if number == 2:
                self._wait_for_rows()
            self.tend()
            self.put_round(number)
            self.watch_owners()
            if number == self.rounds // 3:
                self.split()
            if number == 2 * self.rounds // 3:
                self.merge()
            if number in kill_rounds:
                self.kill_one()
            if number in take_rounds:
                self.take_lease()
            if number == restore_round:
                self.restore()
            may_disturb = number > 2 and self.rng.random() < DISTURB
            if may_disturb and (what := self.sink.disturb(self.rng)):
                self.disturbances[what] += 1
            time.sleep(ROUND_S)

    def restore(self) -> None:
        """A user restores the table in mid-run, and does what the docs say about it."""
        told = self._refusals()
        if (path := self.sink.restore(self.rng)) is None:
            return
        self.happened["restores"] += 1
        deadline = time.monotonic() + TOLD_S
        while self._refusals() == told and time.monotonic() < deadline:
            self.tend()
            time.sleep(0.2)
        self.happened["restores told"] += self._refusals() > told
        self._stop()
        for pid in processes(self.name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.epoch += 1
        if (answer := self._new_epoch(path)).returncode:
            # A worker has committed on what was restored: the answer says to which version to go.
            again = re.search(r"RESTORE the table to version (\d+)", answer.stderr)
            assert again is not None, answer.stderr
            self.sink.restore_to(int(again[1]))
            self.happened["restored once more"] += 1
            answer = self._new_epoch(path)
            assert answer.returncode == 0, answer.stderr
        self.dynamodb.delete_table(TableName=self.name)
        self.owners.clear()

    def _refusals(self) -> int:
        """How often workers have said that the table was restored."""
        logs = [worker.folder / "log" for worker in self.workers]
        return sum(log.read_text(errors="replace").count("was restored") for log in logs)

    def _new_epoch(self, table: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kcl_mld.spark.stub", "new-epoch", table, str(self.epoch)]
        env = self.aws.environment_for_child()
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    def _count_events(self) -> None:
        found = chaos_faults.events(self.events)
        commits = chaos_faults.Commits(found)
        forks = sum(what == "fork" for what, _, _ in found)
        assert not forks, f"{forks} forks of hosts that had imported deltalake"
        names = {"begin": "commits", "lost": "lost answers", "refused": "refused commits"}
        self.happened.update(names[what] for what, _, _ in found if what in names)
        self.happened.update(what for what, when in self.blows if commits.at(when))

    def _wait_for_rows(self) -> None:
        """A fleet that is still starting has little to lose."""
        for _ in range(STILL_LOOKS):
            self.tend()
            if self.sink.count():
                return
            time.sleep(LOOK_S)

    def _settle(self) -> None:
        """Until everything is in the sink and checkpointed, or nothing moves any more."""
        before: object = None
        looks = 0
        while looks < STILL_LOOKS:
            self.tend()
            now = count, unfinished = self.sink.count(), self._unfinished()
            if count >= len(self.put) and not unfinished:
                return
            looks = looks + 1 if now == before else 0
            before = now
            time.sleep(LOOK_S)

    def _unfinished(self) -> dict[str, Any]:
        """Leases whose checkpoint is not at the last record of their shard."""
        last: dict[str, tuple[int, int]] = {}
        for shard, sequence, sub in self.put:
            last[shard] = max(last.get(shard, (0, 0)), (sequence, sub))
        if not (items := self.leases()):
            return {"table": "missing"}
        at = {}
        for item in items:
            at[item["leaseKey"]["S"]] = (
                item["checkpoint"]["S"],
                int(item.get("checkpointSubSequenceNumber", {"N": "0"})["N"]),
            )
        # A finished shard's row may be gone already; its records are judged by the sink.
        return {
            shard: at[shard]
            for shard, position in last.items()
            if shard in at
            and at[shard][0] != "SHARD_END"
            and (not at[shard][0].isdigit() or (int(at[shard][0]), at[shard][1]) != position)
        }

    def _stop(self) -> None:
        for worker in self.workers:
            if worker.process is not None:
                worker.process.send_signal(signal.SIGTERM)
        for worker in self.workers:
            if worker.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.codes.append(worker.process.wait(40))
                    worker.process = None

    def _left_over(self) -> dict[int, str]:
        """What lives on after the end of the fleet; hosts linger for 5 s, a busy machine is slow."""
        deadline = time.monotonic() + 30
        while (left := processes(self.name)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return {pid: command[:120] for pid, command in left.items()}


@contextlib.contextmanager
def cloud() -> Iterator[EmbeddedAws]:
    """An embedded AWS whose reshards are quick."""
    from kcl_mld.local.embedded import EmbeddedAws  # noqa: PLC0415 (slow to import)

    with EmbeddedAws(options=("--create-s", "0.1", "--reshard-s", "0.1")) as aws:
        yield aws


def main(arguments: list[str]) -> int:
    """Run seeds; exit code 1 if one is convicted."""
    import argparse  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    from tests.spark.chaos_sinks import make, why_not  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="python -m tests.spark.chaos", description=__doc__)
    parser.add_argument("--sink", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="more means longer, more kills")
    parser.add_argument("--keep", help="folder for logs and output; the default is thrown away")
    options = parser.parse_args(arguments)
    guilty = 0
    with tempfile.TemporaryDirectory(prefix="kcl-mld-chaos-") as scratch, cloud() as aws:
        for name in options.sink or ["delta"]:
            if (why := why_not(name)) is not None:
                print(f"{name}: skipped: {why}", flush=True)
                continue
            total: Counter[str] = Counter()
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                folder = Path(options.keep or scratch) / f"{name}-{seed}"
                is_clean = False
                try:
                    with make(name, folder, aws) as sink:
                        verdict = Chaos(aws, sink, seed, folder, rounds=options.rounds).run()
                except Exception:  # noqa: BLE001 - the next seeds are run all the same
                    print(f"{name} seed {seed}: the run itself failed", flush=True)
                    traceback.print_exc()
                else:
                    print(name, verdict, flush=True)
                    is_clean = verdict.is_clean
                    total += verdict.kills + verdict.disturbances + verdict.happened
                if not is_clean:
                    guilty += 1
                    print(f"replay: python -m tests.spark.chaos --sink {name} --first-seed {seed}")
            never = [what for what in (*WANTED, *sorted(set(VICTIMS))) if not total[what]]
            print(f"{name}: in all {dict(sorted(total.items()))}", flush=True)
            if never and options.seeds >= ENOUGH:
                guilty += 1
                print(f"{name}: never happened: {', '.join(never)}", flush=True)
    return 1 if guilty else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
