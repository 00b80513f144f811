"""How long a shard is read by nobody when one of two workers dies, stops, restarts or joins.

Eight shards get a record each every tenth of a second; children write down when they got some. A
fleet takes its leases as 2.x workers do, or a leader assigns them as in 3.x.
"""

import contextlib
import itertools
import signal
import subprocess
import sys
import threading
import time

from benchmarks.measure import PROPERTIES
from benchmarks.throughput import fill

SHARDS = 8
PUT_EVERY_S = 0.1
#: Longer than any change takes.
SETTLE_S = 60.0
WATCH_S = 25.0
EXTRA = """\
workerId = {worker}
idleTimeBetweenReadsInMillis = 200
"""


class Fleet:
    """Two workers on a stream of their own."""

    def __init__(self, aws, folder, app, *, is_3x):
        self.aws, self.folder, self.app = aws, folder, app
        self.kinesis, self.table = aws.client("kinesis"), aws.client("dynamodb")
        self.out = folder / f"out-{app}"
        self.out.mkdir()
        self.workers = {}
        fill(self.kinesis, app, SHARDS, SHARDS, 100)
        if is_3x:
            self._begin_3x()

    def _begin_3x(self):
        """The table as a 3.x worker makes it for a new application."""
        self.table.create_table(
            TableName=self.app,
            KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        said = {"mb": {"S": "benchmark"}, "mts": {"N": str(int(time.time() * 1000))}}
        self.table.put_item(
            TableName=self.app,
            Item={
                "leaseKey": {"S": "Migration3.0"},
                "entityType": {"S": "CLIENT_VERSION_MIGRATION"},
                "cv": {"S": "CLIENT_VERSION_3X"},
                "h": {"L": [{"M": {"cv": {"S": "CLIENT_VERSION_INIT"}, **said}}]},
                **said,
            },
        )

    def start(self, worker):
        """Start a worker."""
        file = self.folder / f"{self.app}-{worker}.properties"
        file.write_text(
            PROPERTIES.format(
                aws=self.aws,
                child=f"{sys.executable} -m benchmarks.stamping_child",
                app=self.app,
                stream=self.app,
                mode="POLLING",
                extra=EXTRA.format(worker=worker),
            )
        )
        self.workers[worker] = subprocess.Popen(
            [sys.executable, "-m", "mld", "--properties", str(file), "--log-level", "ERROR"],
            env=self.aws.environment_for_child() | {"BENCH_OUT": str(self.out)},
        )

    def end(self, worker, number):
        """Send a signal and wait for the end."""
        process = self.workers.pop(worker)
        process.send_signal(number)
        process.wait(60)

    def leader(self):
        """Who has the lock of a 3.x fleet, else who holds most leases."""
        items = self.table.scan(TableName=self.app)["Items"]
        locks = [item["ownerName"]["S"] for item in items if item["leaseKey"]["S"] == "Leader"]
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
        while time.monotonic() < began + SETTLE_S:
            if self.is_even(time.monotonic() - 1):
                return time.monotonic() - began
            time.sleep(0.05)
        return None

    def longest_silence(self, since):
        """Seconds, of any shard, in what follows a moment."""
        time.sleep(WATCH_S)
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


def failover_rows(aws, folder, quick):
    """Yield a row an event: both ways to get leases, each in a few lives."""
    seconds: dict[str, dict[str, list[str]]] = {}
    for life in range(1 if quick else 3):
        for name, is_3x in (("2.x", False), ("3.x", True)):
            fleet = Fleet(aws, folder, f"failover-{life}-{name.replace('.', '')}", is_3x=is_3x)
            try:
                with records_coming(fleet):
                    for event, took in changes(fleet):
                        text = "-" if took is None else f"{took:.1f}"
                        seconds.setdefault(event, {}).setdefault(name, []).append(text)
            finally:
                for worker in tuple(fleet.workers):
                    fleet.end(worker, signal.SIGTERM)
    for event, by_name in seconds.items():
        yield {"s": event, **{name: " ".join(texts) for name, texts in by_name.items()}}
