"""What metrics cost a worker: none, a scrape by Prometheus every 15 s, and CloudWatch.

The same stream is read back to back with each. What one scrape costs by the number of shards is
measured by :mod:`benchmarks.scrape`.
"""

import contextlib
import socket
import statistics
import sys
import threading
import urllib.request

from benchmarks.idle import Usage
from benchmarks.measure import daemon, wait_until
from benchmarks.startup import KINDS
from benchmarks.table_server import fast_table
from benchmarks.throughput import CHILDREN, fill, one_run

SCRAPE_S = 15
BUSY = "maxRecords = 500\nidleTimeBetweenReadsInMillis = 200"
OFF = "metricsLevel = NONE\n"
#: Lines of the file, and whether it is scraped.
WAYS = {
    "NONE": (OFF, False),
    "Prometheus": (OFF, True),
    "Prometheus, shard labels": (f"{OFF}metricsShardLabels = true\n", True),
    "CloudWatch, DETAILED": ("metricsLevel = DETAILED\n", False),
}


@contextlib.contextmanager
def scraping(address):
    """Ask for /metrics at regular intervals."""
    stop = threading.Event()

    def ask():
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while not stop.wait(SCRAPE_S):
            with direct.open(f"http://{address}/metrics", timeout=30) as answer:
                answer.read()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def free_address():
    """A port of loopback that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def metrics_rows(aws, folder, quick):
    """Yield a row a way."""
    client = aws.client("kinesis")
    shards, records, rounds = (30, 50_000, 1) if quick else (300, 200_000, 3)
    fill(client, "metrics-idle", shards, shards * 2, 100)
    fill(client, "metrics-busy", 4, records, 100)
    busy = {way: [] for way in WAYS}
    for number in range(rounds):
        for place, way in enumerate(WAYS):
            app = f"busy-{number}-{place}"
            busy[way].append(busy_cpu_s(aws, folder, app, way, records) / records * 100_000)
    for place, way in enumerate(WAYS):
        idle = idle_cpu_s(aws, folder, f"idle-{place}", way, shards, 30 if quick else 60)
        yield {
            "metrics": way,
            f"CPU s/min, {shards} idle shards": f"{idle:.2f}",
            "CPU s/100,000 records of 100 B": f"{statistics.median(busy[way]):.2f}",
            "of each round": ", ".join(f"{one:.2f}" for one in busy[way]),
        }


@contextlib.contextmanager
def worker(aws, folder, app, way, **options):
    """A daemon that is scraped where that is the way."""
    extra, is_scraped = WAYS[way]
    address = free_address()
    arguments = ("--http", address) if is_scraped else ()
    extra = options.pop("extra", "") + "\n" + extra
    with (
        daemon(aws, folder, app=app, extra=extra, arguments=arguments, **options) as run,
        scraping(address) if is_scraped else contextlib.nullcontext(),
    ):
        yield run


def busy_cpu_s(aws, folder, app, way, records):
    """Of the daemon, for all records of a stream of four shards in answers of 500."""
    child = f"{sys.executable} {CHILDREN['discard']}"
    settings = {"stream": "metrics-busy", "child": child, "extra": BUSY}
    with worker(aws, folder, app, way, **settings) as run:
        return one_run(run, records)[0]


def idle_cpu_s(aws, folder, app, way, shards, window_s):
    """Of the daemon in a minute."""
    child = f"{sys.executable} -S {CHILDREN['discard']}"
    with fast_table() as table:
        settings = {"stream": "metrics-idle", "child": child, "extra": KINDS["3.x"]}
        with worker(aws, folder, app, way, table_url=table.url, **settings) as (process, progress):
            wait_until(lambda: progress.started() == shards, 300, process)
            return Usage(aws, table, process.pid, window_s).cpu_s
