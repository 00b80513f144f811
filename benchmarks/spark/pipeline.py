"""kcl-mld with its Spark host on a stream that is full already; everything counts."""

import contextlib
import dataclasses
import json
import os
import pathlib
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
    env = aws.environment_for_child() | {MARKER: name, "BENCH_FUNCTION": function}
    env["XDG_CACHE_HOME"] = str(folder / "cache")
    env["PYTHONPATH"] = os.pathsep.join([str(APP.parents[2]), env.get("PYTHONPATH", "")])
    began, began_at = time.monotonic(), time.time()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "mld", "--properties", str(properties)],
            env=env,
            stderr=out,
            stdout=out,
        )
    try:
        wait_until(lambda: commits(path), 120, process)
        ready_s = time.monotonic() - began
        wait_until(lambda: _is_done(path, count), 900, process)
        parts = family(name)
        pss = {part: pss_mib(pids) for part, pids in parts.items()}
        cpu = {part: sum(cpu_s(pid) for pid in pids) for part, pids in parts.items()}
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
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


def _is_done(path, count):
    time.sleep(0.25)
    return sum(records_of_batch for _, records_of_batch in commits(path)) >= count
