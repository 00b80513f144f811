"""Second part of the demo: the same flights through ``spark_flights_app.py`` into a Delta table.

The worker is killed with ``kill -9`` halfway and a second one takes over. What is lost or doubled
is counted from its files, by the row number of each flight, without asking anybody.
"""

import collections
import pathlib
import sys
import time
import uuid

import click
import demo_stream
import pyarrow.parquet as pq
from deltalake import DeltaTable
from demo_daemon import Daemon, processes_with, wait_gone, write_properties

STREAM = "flights-spark"
TIMEOUT_S = 600
#: Time that a killed worker's children, host and JVM have to notice and end.
ORPHAN_TIMEOUT_S = 20
#: In the environment of a worker and thus of all that it starts.
MARK = "FLIGHTS_DEMO_WORKER"
HERE = pathlib.Path(__file__).resolve().parent
SPARK_PROPERTIES = """\
# Quick to notice that a worker is gone, and that shards were split or merged.
failoverTimeMillis = 3000
shardSyncIntervalMillis = 1000
parentShardPollIntervalMillis = 500

spark.sink.path = {output}
spark.master = local[2]
spark.jvm.options = -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.batch.maxRecords = 5000
spark.batch.maxDelay = 1s
"""


def visible_files(folder):
    """The Parquet files of a Delta table: those that its log names, whatever else lies there."""
    if DeltaTable.is_deltatable(str(folder)):
        yield from map(pathlib.Path, DeltaTable(folder).file_uris())


class Committed:
    """The rows in the files of the table."""

    def __init__(self, folder):
        self.folder = folder
        self.times = collections.Counter()
        self.files = set()

    def refresh(self):
        """Look at new files; distinct rows so far."""
        for path in visible_files(self.folder):
            if path not in self.files:
                self.files.add(path)
                column = pq.ParquetFile(path).read(columns=["row"]).column("row")
                self.times.update(column.to_pylist())
        return len(self.times)

    def judge(self, put):
        """Rows, doubled rows and lost rows."""
        rows = sum(self.times.values())
        wanted = set(range(put))
        return {
            "spark_rows": rows,
            "spark_duplicates": rows - len(self.times),
            "spark_lost": len(wanted - self.times.keys()),
        }


class Workers:
    """One worker at a time; each has a mark, by which its processes are found."""

    def __init__(self, aws, folder, properties):
        self.aws = aws
        self.folder = folder
        self.properties = properties
        self.number = 0
        self.start()

    def start(self):
        """A worker with a new id."""
        self.number += 1
        self.mark = uuid.uuid4().hex
        environment = self.aws.environment_for_child() | {MARK: self.mark}
        log = self.folder / f"spark-worker-{self.number}.log"
        self.daemon = Daemon(self.properties, log, environment)

    def kill(self):
        """``kill -9`` of the daemon; which of its processes outlived it, and a sentence on that."""
        had = processes_with(MARK, self.mark) or []
        started = time.monotonic()
        self.daemon.kill()
        left = wait_gone(MARK, self.mark, ORPHAN_TIMEOUT_S)
        seconds = time.monotonic() - started
        gone = f"{len(had) - len(left or [])} of its {len(had)} processes"
        return left, f"kill -9 of the worker: {gone} were gone after {seconds:.1f} s"


def watch(committed, putting, workers):
    """Show the progress until every row is in a file; kill the first worker at half of them."""
    started = time.monotonic()
    orphans = []
    with click.progressbar(length=putting.rows, label="spark", file=sys.stderr, width=30) as bar:
        shown = 0
        while not putting.done or committed.refresh() < putting.put:
            workers.daemon.check()
            putting.check()
            seconds = time.monotonic() - started
            if seconds > TIMEOUT_S:
                break
            putting.read = committed.refresh()
            behind = putting.put - putting.read
            bar.label = f"spark   {putting.read / seconds:6.0f}/s {behind:6} to go"
            bar.update(putting.read - shown)
            shown = putting.read
            if workers.number == 1 and putting.read >= putting.rows // 2:
                orphans, sentence = workers.kill()
                click.echo(f"\n{sentence}; another takes over at {shown} rows", err=True)
                workers.start()
            time.sleep(0.25)
        bar.update(len(committed.times) - shown)
    return orphans


def run(aws, folder, rows):
    """Run it; the counts, and whether all went as it should."""
    kinesis = aws.client("kinesis")
    demo_stream.create(kinesis, STREAM)
    output = folder / "flights"
    output.mkdir()
    stub = pathlib.Path(sys.executable).with_name("kcl-mld-spark")
    properties = write_properties(
        folder / "spark.properties",
        aws,
        f"{stub} {HERE / 'spark_flights_app.py'}",
        "flights-spark-demo",
        STREAM,
        SPARK_PROPERTIES.format(output=output),
    )
    committed = Committed(output)
    workers = Workers(aws, folder, properties)
    started = time.monotonic()
    putting = demo_stream.Putting(kinesis, STREAM, rows, backlog=max(1000, rows // 3))
    try:
        orphans = watch(committed, putting, workers)
    finally:
        code = workers.daemon.stop()
    left = wait_gone(MARK, workers.mark, ORPHAN_TIMEOUT_S)
    committed.refresh()
    click.echo(
        f"spark: {time.monotonic() - started:.1f} s, {len(committed.files)} files in .demo/flights,"
        f" the last worker stopped with exit code {code}; logs are in .demo/spark-worker-*.log"
    )
    if orphans or left:
        click.echo(f"processes that outlived their worker: {orphans} {left}", err=True)
    counts = committed.judge(putting.put)
    return counts, not (orphans or left or code)
