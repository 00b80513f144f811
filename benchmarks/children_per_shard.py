"""One shard with eight children beside the same shard with one.

What splitting a line costs, in this process alone; CPU of the daemon with children that discard;
and records a second of children that take 5 ms a record, also where one key has 30 % of them.
"""

import base64
import json
import os
import statistics
import sys
import time

from benchmarks.fan_out import steady_run
from benchmarks.measure import daemon, wait_until
from benchmarks.python_child import FIRST_NUMBER
from benchmarks.throughput import CHILDREN, fill
from kcl_mld.children.rules.delivery import deliver
from kcl_mld.children.rules.routing import Route, child_of
from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from kcl_mld.retrieval.model.wire import read_batch

N = 8
KEYS = 10_000
BYTES = 100
#: Has three of ten records, where one key is hot.
HOT_KEY = "hot"
BATCHES = (1_000, 10_000)


def even(number):
    """The key of a record: all have as many."""
    return f"key-{number % KEYS}"


def skewed(number):
    """The key of a record: one has 30 % of them."""
    return HOT_KEY if number % 10 < 3 else even(number)


def answer_of(count):
    """A GetRecords answer."""
    records = [
        {
            "SequenceNumber": str(FIRST_NUMBER + number),
            "ApproximateArrivalTimestamp": 1_500_000_000.123,
            "Data": base64.b64encode(os.urandom(BYTES)).decode(),
            "PartitionKey": even(number),
        }
        for number in range(count)
    ]
    body = {"Records": records, "NextShardIterator": "i", "MillisBehindLatest": 0}
    return json.dumps(body).encode()


def delivered_ns(body, route):
    """CPU time of one batch."""
    batch = read_batch(body)
    began = time.process_time_ns()
    deliver(batch, TRIM_HORIZON, None, even_if_empty=False, route=route)
    return time.process_time_ns() - began


def split_row(count, rounds):
    """CPU of delivery without a route and with one, in turn; medians."""
    body, route = answer_of(count), Route((TRIM_HORIZON,) * N)
    found = [(delivered_ns(body, None), delivered_ns(body, route)) for _ in range(rounds)]
    alone, parted = (statistics.median(one) / count / 1000 for one in zip(*found, strict=True))
    return row(f"delivery, CPU µs a record, {count:,} a batch", alone, parted, 2)


def row(what, one, many, digits=0):
    """A row of the table."""
    return {
        "100 B records of 10,000 keys, one shard": what,
        "1 child": f"{one:,.{digits}f}",
        f"{N} children": f"{many:,.{digits}f}",
        "ratio": f"{many / one:.2f}",
        "load": f"{os.getloadavg()[0]:.0f}",
    }


class Bench:
    """Workers on the streams of one table of figures.

    Args:
        aws: the embedded AWS.
    """

    def __init__(self, aws, folder):
        self._aws, self._folder = aws, folder
        self._workers = 0

    def fill(self, stream, records, key):
        """Create a stream of one shard."""
        fill(self._aws.client("kinesis"), stream, 1, records, BYTES, key)

    def worker(self, stream, child, limit, children):
        """A worker, from the beginning of the stream."""
        self._workers += 1
        extra = f"maxRecords = {limit}\nidleTimeBetweenReadsInMillis = 200\n"
        return daemon(
            self._aws,
            self._folder,
            stream=stream,
            app=f"children{self._workers}",
            child=child,
            extra=extra + (f"childrenPerShard = {children}" if children > 1 else ""),
        )

    def cpu_us(self, stream, limit, children, records):
        """CPU of a worker for a record."""
        child = f"{sys.executable} {CHILDREN['discard']}"
        with self.worker(stream, child, limit, children) as running:
            return steady_run(running, records)[0] * 1e6

    def rates(self, stream, limit, children, seconds):
        """Records a second of each slow child, by index, from the first record on."""
        child = f"{sys.executable} -m benchmarks.slow_child"
        with self.worker(stream, child, limit, children) as (process, progress):
            wait_until(lambda: progress.records() > 0, 60, process)
            before, began = _counts(progress), time.monotonic()
            time.sleep(seconds)
            took_s = time.monotonic() - began
            found = _counts(progress)
            progress.folder.with_name(f"{progress.folder.name}.done").touch()
        return [(found[child] - before.get(child, 0)) / took_s for child in sorted(found)]


def _counts(progress):
    """Records by index of the child."""
    return {
        int(one.name.partition("-")[0]): int(one.read_text() or 0)
        for one in progress.folder.iterdir()
    }


def children_rows(aws, folder, quick):
    """Yield one row a figure; the workers of a row run one after the other on the same stream."""
    for count in BATCHES:
        yield split_row(count, (20 if quick else 100) * BATCHES[-1] // count)
    bench = Bench(aws, folder)
    most = 200_000 if quick else 400_000
    bench.fill("even", most, even)
    for limit, records in zip(BATCHES, (most // 4, most), strict=True):
        found = [
            [bench.cpu_us("even", limit, children, records) for children in (1, N)]
            for _ in range(1 if quick else 3)
        ]
        one, many = map(statistics.median, zip(*found, strict=True))
        yield row(f"worker, CPU µs a record, {limit:,} a batch", one, many, 2)
    seconds = 20 if quick else 40
    for limit in BATCHES:
        one, many = (sum(bench.rates("even", limit, children, seconds)) for children in (1, N))
        yield row(f"5 ms a record, records/s, {limit:,} a batch", one, many)
    bench.fill("skewed", most // 4, skewed)
    for limit in BATCHES:
        one = sum(bench.rates("skewed", limit, 1, seconds))
        found = bench.rates("skewed", limit, N, seconds)
        yield row(f"one key has 30 %, records/s, {limit:,} a batch", one, sum(found))
        hot = found.pop(child_of(HOT_KEY, N))
        yield row("of these the child of that key, and each other one", hot, statistics.mean(found))
