"""kcl-mld with its Spark host on a stream that is full already; everything counts."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

from benchmarks.measure import cpu_s, wait_until
from benchmarks.spark.data import records

APP = pathlib.Path(__file__).with_name("app.py")
MARKER = "KCL_MLD_BENCH"
PUT = 500
#: Commits before this share of the records are warm-up.
WARM_UP = 0.2

PROPERTIES = """\
executableName = {python} -m mld.spark.stub {app}
applicationName = {name}
streamName = {stream}
AwsCredentialsProvider = DefaultCredentialsProvider
regionName = us-east-1
initialPositionInStream = TRIM_HORIZON
kinesisEndpoint = {aws.kinesis_url}
dynamoDBEndpoint = {aws.moto_url}
metricsLevel = NONE
retrievalMode = POLLING
idleTimeBetweenReadsInMillis = 200
maxRecords = {max_records}
spark.driver.memory = 1g
spark.batch.maxRecords = {batch}
spark.batch.maxDelay = {delay}
spark.sink.path = {path}
{extra}
"""

#: Defaults for all that is not named.
LIVE = """\
executableName = {python} -m mld.spark.stub {app}
applicationName = {name}
streamName = {stream}
AwsCredentialsProvider = DefaultCredentialsProvider
regionName = us-east-1
initialPositionInStream = TRIM_HORIZON
kinesisEndpoint = {aws.kinesis_url}
dynamoDBEndpoint = {aws.moto_url}
metricsLevel = NONE
retrievalMode = POLLING
spark.sink = parquet
spark.sink.path = {path}
"""


@dataclasses.dataclass
class Outcome:
    """One run of the pipeline."""

    records_s: float
    whole_s: float
    ready_s: float
    latency_p50_s: float
    batches: int
    cpu_s: dict
    pss_mib: dict


def fill(aws, stream, shards, count):
    """A stream whose shards hold equally many records."""
    client = aws.client("kinesis")
    client.create_stream(StreamName=stream, ShardCount=shards)
    while (
        client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"][
            "StreamStatus"
        ]
        != "ACTIVE"
    ):
        time.sleep(0.05)
    step = 2**128 // shards
    chunk = []
    for number, body in enumerate(records(count)):
        chunk.append(
            {"Data": body, "PartitionKey": "k", "ExplicitHashKey": str(number % shards * step)}
        )
        if len(chunk) == PUT:
            client.put_records(StreamName=stream, Records=chunk)
            chunk = []
    if chunk:
        client.put_records(StreamName=stream, Records=chunk)


def commits(path):
    """(time, records) of every committed batch in the chain, in the order of time."""
    found = []
    for marker in pathlib.Path(path).glob("epoch=*/stream=*/shard=*/after=*/_kcl.json"):
        with contextlib.suppress(OSError):
            found.append((marker.stat().st_mtime, json.loads(marker.read_text())["count"]))
    return sorted(found)


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
            elif "mld.spark.host" in command:
                parts["host"].append(int(path.name))
            elif "mld.spark.stub" in command and "--properties" not in command:
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
    """Medians that the host tells of the time from a batch's cut to its commit, in s.

    One every ten seconds; the first one is left out if there are more, as the JVM was cold.
    """
    found = []
    for line in pathlib.Path(log).read_text(errors="replace").splitlines():
        _, _, rest = line.partition("p50 ")
        if rest and "commit" in line:
            with contextlib.suppress(ValueError):
                found.append(float(rest.split()[0]))
    return found[1:] or found


def start(aws, properties, log, name, function="keep"):
    """The daemon in a process; with the monotonic and the wall time of its start."""
    env = aws.environment_for_child() | {MARKER: name, "BENCH_FUNCTION": function}
    env["XDG_CACHE_HOME"] = str(properties.parent / "cache")
    env["PYTHONPATH"] = os.pathsep.join([str(APP.parents[2]), env.get("PYTHONPATH", "")])
    began, began_at = time.monotonic(), time.time()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "mld", "--properties", str(properties)],
            env=env,
            stderr=out,
            stdout=out,
        )
    return process, began, began_at


def stop(process):
    """End the daemon in its own way, or at once."""
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(60)
    process.kill()


def run(aws, folder, stream, count, *, batch=1000, delay="1s", function="keep", extra=""):
    """Process ``count`` records that are in the stream already.

    Args:
        aws: the embedded one.
        folder: for everything.
        stream: its name.
        count: of records, all that the stream has.
        batch: ``spark.batch.maxRecords``.
        delay: ``spark.batch.maxDelay``.
        function: of the app.
        extra: more properties.

    Returns:
        an :class:`Outcome`; ``records_s`` is without the first 20 % and the start, ``whole_s``
        from the start of the daemon to the last commit.
    """
    name = f"bench-{time.monotonic_ns()}"
    path = folder / name
    properties = folder / f"{name}.properties"
    properties.write_text(
        PROPERTIES.format(
            python=sys.executable,
            app=APP,
            name=name,
            stream=stream,
            aws=aws,
            batch=batch,
            delay=delay,
            max_records=min(10_000, max(batch, 1000)),
            path=path,
            extra=extra,
        )
    )
    log = folder / f"{name}.log"
    process, began, began_at = start(aws, properties, log, name, function)
    try:
        wait_until(lambda: commits(path), 120, process)
        ready_s = time.monotonic() - began
        wait_until(lambda: _is_done(path, count), 900, process)
        parts = family(name)
        pss = {part: pss_mib(pids) for part, pids in parts.items()}
        cpu = {part: sum(cpu_s(pid) for pid in pids) for part, pids in parts.items()}
    finally:
        stop(process)
    done = commits(path)
    total, warm_at, warm = 0, None, 0
    for at, records_of_batch in done:
        total += records_of_batch
        if warm_at is None and total >= WARM_UP * count:
            warm_at, warm = at, total
    seen = latencies(log)
    return Outcome(
        records_s=(total - warm) / max(done[-1][0] - warm_at, 1e-9),
        whole_s=done[-1][0] - began_at,
        ready_s=ready_s,
        latency_p50_s=statistics.median(seen) if seen else float("nan"),
        batches=len(done),
        cpu_s=cpu,
        pss_mib=pss,
    )


@dataclasses.dataclass
class LiveOutcome:
    """The live end of a stream: little arrives, in many shards."""

    jobs_10_s: float
    commits: int
    arrival_to_commit_s: tuple
    cpu_s: float
    seconds: float


def live(aws, folder, *, shards, rate, seconds):
    """``rate`` records/s, one second's at a time, over all shards; defaults otherwise.

    The first fifth is warm-up: its jobs, records and CPU count for nothing.
    """
    client = aws.client("kinesis")
    stream = f"live-{time.monotonic_ns()}"
    fill(aws, stream, shards, 0)
    name = f"bench-{time.monotonic_ns()}"
    path, properties, log = folder / name, folder / f"{name}.properties", folder / f"{name}.log"
    properties.write_text(
        LIVE.format(python=sys.executable, app=APP, name=name, stream=stream, aws=aws, path=path)
    )
    process, began, _ = start(aws, properties, log, name)
    bodies = records(10**9)
    step = 2**128 // shards
    sent, warm, sent_before = [], None, 0
    try:
        while warm is None or time.monotonic() < warm + seconds:
            second = time.monotonic()
            if warm is None and commits(path) and second > began + seconds / 5:
                warm, sent_before, jobs_before = second, len(sent), jobs(path)
                cpu_before = cpu_of(name)
            entries = [
                {
                    "Data": next(bodies),
                    "PartitionKey": "k",
                    "ExplicitHashKey": str(n % shards * step),
                }
                for n in range(rate)
            ]
            answer = client.put_records(StreamName=stream, Records=entries)["Records"]
            at = time.time()
            sent += [(each["ShardId"], int(each["SequenceNumber"]), at) for each in answer]
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            time.sleep(max(0.0, second + 1 - time.monotonic()))
        spent_s = time.monotonic() - warm
        cpu, ran = cpu_of(name) - cpu_before, jobs(path) - jobs_before
        wait_until(lambda: _is_done(path, len(sent)), 60, process)
    finally:
        stop(process)
    found = sorted(_waits(path, sent[sent_before:]))
    p50, p95 = (found[int(share * (len(found) - 1))] for share in (0.5, 0.95))
    return LiveOutcome(10 * ran / spent_s, len(commits(path)), (p50, p95), cpu, spent_s)


def cpu_of(name):
    """All that the pipeline has used, in s."""
    return sum(cpu_s(pid) for pids in family(name).values() for pid in pids)


def jobs(path):
    """Jobs that have committed: their batches were written by one Spark job, which names the files."""
    found = set()
    for file in pathlib.Path(path).glob("epoch=*/stream=*/shard=*/after=*/part-*.parquet"):
        if (uuid := re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", file.name)) is not None:
            found.add(uuid[0])
    return len(found)


def _waits(path, sent):
    """Seconds from arrival to commit, record by record."""
    ends = {}
    for marker in pathlib.Path(path).glob("epoch=*/stream=*/shard=*/after=*/_kcl.json"):
        to = int(json.loads(marker.read_text())["to"].partition(".")[0])
        shard = marker.parent.parent.name.partition("=")[2]
        ends.setdefault(shard, []).append((to, marker.stat().st_mtime))
    for each in ends.values():
        each.sort()
    for shard, sequence, at in sent:
        yield next(done for to, done in ends[shard] if to >= sequence) - at


def _is_done(path, count):
    time.sleep(0.25)
    return sum(records_of_batch for _, records_of_batch in commits(path)) >= count
