"""kcl-mld with its Spark host on a stream that is full already; everything counts."""

import bisect
import contextlib
import dataclasses
import itertools
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import threading
import time

from benchmarks.measure import cpu_s, wait_until
from benchmarks.spark import outputs
from benchmarks.spark.data import records

#: Of the version that is measured, unless another one is named.
HERE = pathlib.Path(__file__).parents[2]
APP = pathlib.Path("benchmarks", "spark", "app.py")
MARKER = "KCL_MLD_BENCH"
PUT = 500
#: Records that are warm-up, or a fifth of all if that is more: a JVM compiles its first jobs.
WARM_UP = 96_000
#: How often the CPU of a run is looked at, in s.
LOOK_S = 0.5

#: Defaults for all that is not named.
LIVE = """\
executableName = {python} -m kcl_mld.spark.stub {app}
applicationName = {name}
streamName = {stream}
AwsCredentialsProvider = DefaultCredentialsProvider
regionName = us-east-1
initialPositionInStream = TRIM_HORIZON
kinesisEndpoint = {aws.kinesis_url}
dynamoDBEndpoint = {aws.moto_url}
metricsLevel = NONE
retrievalMode = POLLING
spark.sink.path = {path}
"""

PROPERTIES = f"""\
{LIVE}\
idleTimeBetweenReadsInMillis = 200
maxRecords = {{max_records}}
spark.driver.memory = 1g
spark.batch.maxRecords = {{batch}}
spark.batch.maxDelay = {{delay}}
{{extra}}
"""


@dataclasses.dataclass
class Stream:
    """What was put into a stream.

    Attributes:
        name: of the stream.
        sent: sequence numbers by shard, in their order.
        at: when each was put, in s since 1970, by shard.
    """

    name: str
    sent: dict
    at: dict

    @property
    def count(self):
        """Records in all shards."""
        return sum(len(each) for each in self.sent.values())

    def put(self, client, entries):
        """Put up to 500 records; asserts that all were taken."""
        answer = client.put_records(StreamName=self.name, Records=entries)
        assert not answer["FailedRecordCount"]
        now = time.time()
        for each in answer["Records"]:
            self.sent.setdefault(each["ShardId"], []).append(int(each["SequenceNumber"]))
            self.at.setdefault(each["ShardId"], []).append(now)

    def upto(self, shard, sequence):
        """Records of a shard up to a sequence number, that one included."""
        return bisect.bisect_right(self.sent.get(shard, ()), sequence)


@dataclasses.dataclass
class Output:
    """Where one run writes, as commits are read from it."""

    path: pathlib.Path
    application: str
    stream: Stream

    def commits(self):
        """In the order of time."""
        return outputs.commits(self.path, self.application, self.stream.name, self.stream.sent)

    def is_done(self):
        """True once all that was sent is committed; takes a quarter of a second."""
        time.sleep(0.25)
        ends = {}
        for each in self.commits():
            ends |= each.ends
        return all(ends.get(shard, -1) >= sent[-1] for shard, sent in self.stream.sent.items())

    def steps(self):
        """(time, records that this commit made durable), in the order of time."""
        before = dict.fromkeys(self.stream.sent, 0)
        for each in self.commits():
            gained = 0
            for shard, end in each.ends.items():
                now = self.stream.upto(shard, end)
                gained, before[shard] = gained + now - before[shard], now
            yield each.at, gained


@dataclasses.dataclass
class Outcome:
    """One run, of the pipeline or of the yardstick.

    Attributes:
        records_s: behind the warm-up.
        whole_s: from the start of the first process to the last commit.
        ready_s: to the first one.
        cut_to_commit_s: median time that one batch took.
        gap_s: median time between two commits, behind the warm-up.
        commits, files, records: in all.
        cpu_s: by part, the start included.
        warm_cpu_100k_s: for 100,000 records behind the warm-up.
        pss_mib: by part, at the end.
    """

    records_s: float
    whole_s: float
    ready_s: float
    cut_to_commit_s: float
    gap_s: float
    commits: int
    files: int
    records: int
    cpu_s: dict
    warm_cpu_100k_s: float
    pss_mib: dict

    @property
    def cpu_100k_s(self):
        """CPU seconds for 100,000 records, the start included."""
        return sum(self.cpu_s.values()) / self.records * 100_000


class CpuWatch:
    """The CPU of a run over time, as a context manager.

    Args:
        spent: gives the CPU seconds so far.
    """

    def __init__(self, spent):
        self._spent = spent
        self._seen = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    def _watch(self):
        while not self._is_over.wait(LOOK_S):
            self._seen.append((time.time(), self._spent()))

    def between(self, begin, end):
        """CPU seconds between two moments, in s since 1970."""
        return self._at(end) - self._at(begin)

    def _at(self, when):
        times = [at for at, _ in self._seen]
        number = min(max(1, bisect.bisect(times, when)), len(times) - 1)
        (before, low), (after, high) = self._seen[number - 1], self._seen[number]
        share = min(1.0, max(0.0, (when - before) / (after - before)))
        return low + share * (high - low)


def warm_figures(steps, count, watch):
    """What counts behind the warm-up.

    Args:
        steps: (time, records) of each commit, in order.
        count: records in all.
        watch: of the CPU.

    Returns:
        records/s, median seconds between commits, CPU seconds for 100,000 records.
    """
    total, warm_up = 0, max(count // 5, min(WARM_UP, count // 2))
    for number, (_, gained) in enumerate(steps):  # noqa: B007 - used behind the loop
        total += gained
        if total >= warm_up:
            break
    times = [at for at, _ in steps[number:]]
    rest, span_s = sum(gained for _, gained in steps[number + 1 :]), times[-1] - times[0]
    if not rest:
        return float("nan"), float("nan"), float("nan")
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    cpu = watch.between(times[0], times[-1]) / rest * 100_000
    return rest / max(span_s, 1e-9), statistics.median(gaps), cpu


def fill(aws, name, shards, count):
    """A stream whose shards hold equally many records."""
    client = aws.client("kinesis")
    client.create_stream(StreamName=name, ShardCount=shards)
    while (
        client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamStatus"]
        != "ACTIVE"
    ):
        time.sleep(0.05)
    stream, bodies = Stream(name, {}, {}), records(count)
    for first in range(0, count, PUT):
        stream.put(client, entries_of(bodies, first, min(PUT, count - first), shards))
    return stream


def entries_of(bodies, first, count, shards):
    """The next ``count`` records, dealt to the shards in turn."""
    step = 2**128 // shards
    return [
        {"Data": next(bodies), "PartitionKey": "k", "ExplicitHashKey": str(n % shards * step)}
        for n in range(first, first + count)
    ]


def family(marker):
    """Process ids by part of the pipeline: daemon, stubs, host, jvm."""
    parts: dict[str, list[int]] = {"daemon": [], "stubs": [], "host": [], "jvm": []}
    for path in pathlib.Path("/proc").iterdir():
        if not path.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if f"{MARKER}={marker}".encode() not in (path / "environ").read_bytes().split(b"\0"):
                continue
            command = (path / "cmdline").read_bytes().decode()
            if "SparkConnectServer" in command:
                parts["jvm"].append(int(path.name))
            elif "kcl_mld.spark.host" in command:
                parts["host"].append(int(path.name))
            elif "kcl_mld.spark.stub" in command and "--properties" not in command:
                parts["stubs"].append(int(path.name))
            elif command:
                parts["daemon"].append(int(path.name))
    return parts


def pss_mib(pids):
    """Proportional set size of some processes together."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def latencies(log):
    """Medians from the host's log of the time from a batch's cut to its commit, in s.

    One every ten seconds; the first one is left out if there are more, as the JVM was cold.
    """
    found = []
    for line in pathlib.Path(log).read_text(errors="replace").splitlines():
        _, _, rest = line.partition("p50 ")
        if rest and "commit" in line:
            with contextlib.suppress(ValueError):
                found.append(float(rest.split()[0]))
    return found[1:] or found


def start(aws, properties, log, name, *, function="keep", code=HERE):
    """The daemon in a process; with the monotonic and the wall time of its start."""
    env = aws.environment_for_child() | {MARKER: name, "BENCH_FUNCTION": function}
    env["XDG_CACHE_HOME"] = str(properties.parent / "cache")
    env["PYTHONPATH"] = os.pathsep.join([str(code / "src"), env.get("PYTHONPATH", "")])
    began, began_at = time.monotonic(), time.time()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "kcl_mld", "--properties", str(properties)],
            env=env,
            stderr=out,
            stdout=out,
            cwd=properties.parent,
        )
    return process, began, began_at


def stop(process):
    """End the daemon in its own way, or at once."""
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(60)
    process.kill()


def run(aws, folder, stream, *, batch=1000, delay="1s", function="keep", extra="", code=HERE):
    """Process all records that are in the stream already.

    Args:
        stream: of :func:`fill`.
        batch: ``spark.batch.maxRecords``.
        delay: ``spark.batch.maxDelay``.
        code: a checkout of the version that is measured, 1.0 or later.

    Returns:
        an :class:`Outcome`.
    """
    name = f"bench-{time.monotonic_ns()}"
    output = Output(folder / name, name, stream)
    properties = folder / f"{name}.properties"
    properties.write_text(
        PROPERTIES.format(
            python=sys.executable,
            app=code / APP,
            name=name,
            stream=stream.name,
            aws=aws,
            batch=batch,
            delay=delay,
            max_records=min(10_000, max(batch, 1000)),
            path=output.path,
            extra=extra,
        )
    )
    log = folder / f"{name}.log"
    process, began, began_at = start(aws, properties, log, name, function=function, code=code)
    watch = CpuWatch(lambda: cpu_of(name))
    try:
        with watch:
            wait_until(output.commits, 120, process)
            ready_s = time.monotonic() - began
            wait_until(output.is_done, 900, process)
            time.sleep(2 * LOOK_S)
        parts = family(name)
        pss = {part: pss_mib(pids) for part, pids in parts.items()}
        cpu = {part: sum(cpu_s(pid) for pid in pids) for part, pids in parts.items()}
    finally:
        stop(process)
    steps = list(output.steps())
    records_s, gap_s, warm_cpu_100k_s = warm_figures(steps, stream.count, watch)
    seen, done = latencies(log), output.commits()
    return Outcome(
        records_s=records_s,
        whole_s=steps[-1][0] - began_at,
        ready_s=ready_s,
        cut_to_commit_s=statistics.median(seen) if seen else float("nan"),
        gap_s=gap_s,
        commits=len(done),
        files=sum(each.files for each in done),
        records=stream.count,
        cpu_s=cpu,
        warm_cpu_100k_s=warm_cpu_100k_s,
        pss_mib=pss,
    )


@dataclasses.dataclass
class LiveOutcome:
    """The live end of a stream: little arrives, in many shards."""

    jobs_10_s: float
    files_hour: float
    arrival_to_commit_s: tuple
    cpu_s: float
    seconds: float


def live(aws, folder, *, shards, rate, seconds, code=HERE):
    """``rate`` records/s, one second's at a time, over all shards; defaults otherwise.

    The first fifth is warm-up: its jobs, records and CPU count for nothing.
    """
    client = aws.client("kinesis")
    stream = fill(aws, f"live-{time.monotonic_ns()}", shards, 0)
    name = f"bench-{time.monotonic_ns()}"
    output = Output(folder / name, name, stream)
    properties, log = folder / f"{name}.properties", folder / f"{name}.log"
    properties.write_text(
        LIVE.format(
            python=sys.executable,
            app=code / APP,
            name=name,
            stream=stream.name,
            aws=aws,
            path=output.path,
        )
    )
    process, began, _ = start(aws, properties, log, name, code=code)
    bodies, warm = records(10**9), None
    try:
        while warm is None or time.monotonic() < warm + seconds:
            second = time.monotonic()
            if warm is None and output.commits() and second > began + seconds / 5:
                warm, warm_at, cpu_before = second, time.time(), cpu_of(name)
            stream.put(client, entries_of(bodies, 0, rate, shards))
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            time.sleep(max(0.0, second + 1 - time.monotonic()))
        spent_s, until = time.monotonic() - warm, time.time()
        cpu = cpu_of(name) - cpu_before
        wait_until(output.is_done, 60, process)
    finally:
        stop(process)
    found = sorted(_waits(output, warm_at))
    p50, p95 = (found[int(share * (len(found) - 1))] for share in (0.5, 0.95))
    counted = [each for each in output.commits() if warm_at <= each.at < until]
    return LiveOutcome(
        jobs_10_s=10 * len({each.job for each in counted}) / spent_s,
        files_hour=3600 * sum(each.files for each in counted) / spent_s,
        arrival_to_commit_s=(p50, p95),
        cpu_s=cpu,
        seconds=spent_s,
    )


def cpu_of(name):
    """All that the pipeline has used, in s; without processes that are gone."""
    total = 0.0
    for pid in itertools.chain.from_iterable(family(name).values()):
        with contextlib.suppress(OSError):
            total += cpu_s(pid)
    return total


def _waits(output, since):
    """Seconds from arrival to commit, of each record that was put after a moment."""
    before = dict.fromkeys(output.stream.sent, 0)
    for each in output.commits():
        for shard, end in each.ends.items():
            now = output.stream.upto(shard, end)
            for put_at in output.stream.at[shard][before[shard] : now]:
                if put_at >= since:
                    yield each.at - put_at
            before[shard] = max(before[shard], now)
