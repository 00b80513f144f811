"""How long a shard is read by nobody when one of two workers dies, stops, restarts or joins.

Eight shards get a record each every tenth of a second; children write down when they got some. A
fleet takes its leases as 2.x workers do, or a leader assigns them as in 3.x. Java's fleets live
through the same on request, all on npm kinesis-local and DynamoDB Local, which Java can talk to.
"""

import contextlib
import itertools
import pathlib
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from benchmarks.measure import properties_of, worker_command
from benchmarks.throughput import fill
from tests.peer import fetched
from tests.peer.fleet import StandIn

ROOT = str(pathlib.Path(__file__).resolve().parents[1])
SHARDS = 8
PUT_EVERY_S = 0.1
WATCH_S = 25.0
EXTRA = """\
workerId = {worker}
idleTimeBetweenReadsInMillis = 200
"""
NATIVE = "clientVersionConfig = CLIENT_VERSION_CONFIG_3X\n"
OLD = "clientVersionConfig = CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1\n"


@dataclass(frozen=True)
class Kind:
    """Whose workers, and how they get leases.

    Attributes:
        name: heading of a column.
        is_3x: a leader assigns the leases.
        java: version of the MultiLangDaemon; None = ours.
        settle_s: longer than any change takes.
        unread_s: so long a shard that nobody reads is waited for.
    """

    name: str
    is_3x: bool = False
    java: str | None = None
    settle_s: float = 60.0
    unread_s: float = WATCH_S


OURS = (Kind("2.x"), Kind("3.x", is_3x=True))
JAVA = (
    Kind("Java 2.5.4", java="2.5.4", settle_s=300.0, unread_s=300.0),
    Kind("Java 3.1.3", is_3x=True, java="3.1.3", settle_s=300.0, unread_s=300.0),
)


class StandInAws(StandIn):
    """The stand-in of ``tests/peer`` with the names of the embedded AWS."""

    @property
    def moto_url(self):
        """Where the tables are."""
        return self.dynamodb_url

    def environment_for_child(self):
        """Of every worker."""
        return self.environment


class Fleet:
    """Two workers on a stream of their own."""

    def __init__(self, aws, folder, app, kind):
        self.aws, self.folder, self.app, self.kind = aws, folder, app, kind
        self.kinesis, self.table = aws.client("kinesis"), aws.client("dynamodb")
        self.out = folder / f"out-{app}"
        self.out.mkdir()
        self.workers = {}
        fill(self.kinesis, app, SHARDS, SHARDS, 100)

    @property
    def _generation(self):
        """Java 2.x begins nothing else than what it is, and knows no key for it."""
        if self.kind.is_3x:
            return NATIVE
        return OLD if self.kind.java is None else ""

    def start(self, worker):
        """Start a worker."""
        file = self.folder / f"{self.app}-{worker}.properties"
        text = properties_of(
            self.aws,
            child=f"{sys.executable} -m benchmarks.stamping_child",
            app=self.app,
            stream=self.app,
            extra=EXTRA.format(worker=worker) + self._generation,
            java=self.kind.java,
        )
        file.write_text(text)
        settings = {"BENCH_OUT": str(self.out), "BENCH_WORKER": worker, "PYTHONPATH": ROOT}
        quiet = ["--log-level", "ERROR"] if self.kind.java is None else []
        with (self.folder / f"{self.app}-{worker}.log").open("ab") as log:
            self.workers[worker] = subprocess.Popen(
                [*worker_command(self.kind.java), str(file), *quiet],
                env=self.aws.environment_for_child() | settings,
                stdout=None if self.kind.java is None else log,
                stderr=None if self.kind.java is None else log,
            )

    def end(self, worker, number):
        """Send a signal and wait for the end."""
        process = self.workers.pop(worker)
        process.send_signal(number)
        process.wait(120)

    def leader(self):
        """Who has the lock of a 3.x fleet, else who holds most leases."""
        items = self.table.scan(TableName=self.app)["Items"]
        with contextlib.suppress(self.table.exceptions.ResourceNotFoundException):
            items += self.table.scan(TableName=f"{self.app}-CoordinatorState")["Items"]
        locks = [item["ownerName"]["S"] for item in items if "ownerName" in item]
        owners = [item["leaseOwner"]["S"] for item in items if "leaseOwner" in item]
        return locks[0] if locks else max(sorted(self.workers), key=owners.count)

    def stamps(self):
        """Of each shard: (when, worker), in order."""
        return {
            path.name: sorted(
                (float(at), worker) for at, worker in map(str.split, path.read_text().splitlines())
            )
            for path in self.out.iterdir()
            if path.stat().st_size
        }

    def is_even(self, since):
        """Whether each worker reads its share of the shards, all of them since a moment."""
        last = [stamps[-1] for stamps in self.stamps().values()]
        readers = [worker for at, worker in last if at > since]
        counts = {readers.count(worker) for worker in self.workers}
        return len(readers) == SHARDS and counts == {SHARDS // len(self.workers)}

    def settle(self):
        """Seconds until it is even; None = it did not become so."""
        began = time.monotonic()
        while time.monotonic() < began + self.kind.settle_s:
            if self.is_even(time.monotonic() - 1):
                return time.monotonic() - began
            time.sleep(0.05)
        return None

    def is_read(self, since):
        """Whether every shard has been read since a moment."""
        stamps = self.stamps()
        return len(stamps) == SHARDS and all(one[-1][0] > since for one in stamps.values())

    def longest_silence(self, since):
        """Seconds, of any shard, in what follows a moment, until all are read."""
        time.sleep(WATCH_S)
        while not self.is_read(time.monotonic() - 2):
            if time.monotonic() > since + self.kind.unread_s:
                break
            time.sleep(0.5)
        now = time.monotonic()
        silences = []
        for stamps in self.stamps().values():
            before = max(at for at, _ in stamps if at <= since)
            times = [before, *(at for at, _ in stamps if at > since), now]
            silences += [later - earlier for earlier, later in itertools.pairwise(times)]
        return max(silences)


@contextlib.contextmanager
def records_coming(fleet):
    """Each shard gets a record every :data:`PUT_EVERY_S`."""
    is_over = threading.Event()
    step = 2**128 // SHARDS

    def put():
        while not is_over.wait(PUT_EVERY_S):
            fleet.kinesis.put_records(
                StreamName=fleet.app,
                Records=[
                    {"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": str(n * step)}
                    for n in range(SHARDS)
                ],
            )

    thread = threading.Thread(target=put)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def changes(fleet):
    """Yield (event, seconds) of one life of a fleet."""
    fleet.start("a")
    fleet.settle()
    fleet.start("b")
    yield "a second worker joins, until it reads its half", fleet.settle()
    for who, number in (("leader", signal.SIGKILL), ("other", signal.SIGKILL)):
        leader = fleet.leader()
        victim = leader if who == "leader" else next(one for one in fleet.workers if one != leader)
        since = time.monotonic()
        fleet.end(victim, number)
        yield f"kill -9 of the {who}, longest silence", fleet.longest_silence(since)
        fleet.start(victim)
        fleet.settle()
    victim = min(fleet.workers)
    since = time.monotonic()
    fleet.end(victim, signal.SIGTERM)
    fleet.start(victim)
    yield "a worker is restarted, longest silence", fleet.longest_silence(since)


def failover_rows(aws, folder, quick, kinds=OURS):
    """Yield a row an event: each kind of fleet, in a few lives."""
    seconds: dict[str, dict[str, list[str]]] = {}
    for life in range(1 if quick else 3):
        for number, kind in enumerate(kinds):
            fleet = Fleet(aws, folder, f"failover-{life}-{number}", kind)
            try:
                with records_coming(fleet):
                    for event, took in changes(fleet):
                        text = "-" if took is None else f"{took:.1f}"
                        seconds.setdefault(event, {}).setdefault(kind.name, []).append(text)
            finally:
                for worker in tuple(fleet.workers):
                    fleet.end(worker, signal.SIGTERM)
    for event, by_name in seconds.items():
        yield {"s": event, **{name: " ".join(texts) for name, texts in by_name.items()}}


def failover_beside_java(aws, folder, quick):
    """Yield the rows of :func:`failover_rows` with Java's fleets, and one for each that is not there.

    Args:
        aws: for ours alone, where Java's stand-in cannot be had.
    """
    kinds, missing = list(OURS), {}
    try:
        fetched.stand_in()
        for kind in JAVA:
            assert kind.java is not None
            fetched.multilang(kind.java)
            kinds.append(kind)
    except fetched.Unavailable as error:
        missing = {kind.name: str(error) for kind in JAVA if kind not in kinds}
    with contextlib.ExitStack() as stack:
        if len(kinds) > len(OURS):
            aws = stack.enter_context(StandInAws())
        yield from failover_rows(aws, folder, quick, kinds)
    for name, why in missing.items():
        yield {"s": f"{name}: skipped, {why}", **{kind.name: "" for kind in kinds}}
