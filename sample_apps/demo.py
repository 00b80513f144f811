#!/usr/bin/env python3
"""50,000 flights through kcl-mld: a split and a merge on the way, counted at the far end.

Starts the embedded AWS, a stream of four shards and the daemon with ``flights_app.py`` as its
child program, puts the flights, reshards twice, waits until the program has seen every row, and
stops the daemon. The last line on stdout is one JSON object computed from what the *program* saw.
"""

import collections
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import click
import flights_data

from mld.local.embedded import EmbeddedAws

ROWS = int(os.environ.get("DEMO_ROWS", "50000"))
SHARDS = 4
STREAM = "flights"
BATCH = 500
TIMEOUT_S = 600
HERE = pathlib.Path(__file__).resolve().parent

PROPERTIES = """\
# Written by demo.py; the same file works for the Java daemon.
executableName = {python} {program}
applicationName = flights-demo
streamName = {stream}
AwsCredentialsProvider = DefaultCredentialsProvider
regionName = us-east-1
initialPositionInStream = TRIM_HORIZON
kinesisEndpoint = {kinesis}
dynamoDBEndpoint = {dynamodb}
metricsLevel = NONE
retrievalMode = POLLING
idleTimeBetweenReadsInMillis = 500
shutdownGraceMillis = 20000
"""


class Seen:
    """What the program's journals hold so far; reads only what is new."""

    def __init__(self, folder):
        self.folder = folder
        self.offsets = {}
        self.batches = []
        self.rows = 0

    def refresh(self):
        """Read the lines that were added since the last call."""
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open("rb") as journal:
                journal.seek(self.offsets.get(path, 0))
                for line in journal:
                    if not line.endswith(b"\n"):
                        break
                    self.offsets[path] = self.offsets.get(path, 0) + len(line)
                    batch = json.loads(line)
                    self.batches.append(batch)
                    self.rows += len(batch["rows"])
        return self.rows


def judge(batches, put):
    """Lost, doubled and disordered records, from the journals alone."""
    times = collections.Counter()
    last_of_key = {}
    out_of_order = 0
    for batch in sorted(batches, key=lambda one: one["at"]):
        for row, key, _sequence in batch["rows"]:
            times[row] += 1
            if times[row] > 1:
                continue
            if row < last_of_key.get(key, -1):
                out_of_order += 1
            last_of_key[key] = max(row, last_of_key.get(key, -1))
    return {
        "put": put,
        "processed": len(times),
        "lost": put - len(times),
        "duplicates": sum(times.values()) - len(times),
        "out_of_order": out_of_order,
        "shards": len({batch["shard"] for batch in batches}),
    }


def put_flights(kinesis, progress):
    """Put all rows in order; split a shard after a third and merge two after two thirds."""
    batch, sent = [], 0
    plan = {ROWS // 3: split_one, 2 * ROWS // 3: merge_two}
    for key, body in flights_data.flights(ROWS):
        batch.append({"PartitionKey": key, "Data": body})
        if len(batch) == BATCH:
            sent += put_batch(kinesis, batch)
            batch = []
            progress["put"] = sent
            for at in [at for at in plan if sent >= at]:
                plan.pop(at)(kinesis)
    if batch:
        sent += put_batch(kinesis, batch)
    progress["put"] = sent
    progress["done"] = True


def put_batch(kinesis, batch):
    """Put one batch; every record must be taken."""
    answer = kinesis.put_records(StreamName=STREAM, Records=batch)
    if answer["FailedRecordCount"]:
        raise SystemExit(f"{answer['FailedRecordCount']} records were refused")
    return len(batch)


def open_shards(kinesis):
    """Open shards in the order of their hash keys."""
    shards = kinesis.list_shards(StreamName=STREAM)["Shards"]
    still_open = [s for s in shards if "EndingSequenceNumber" not in s["SequenceNumberRange"]]
    return sorted(still_open, key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))


def wait_active(kinesis):
    """Wait until the stream takes the next change."""
    while (
        kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"][
            "StreamStatus"
        ]
        != "ACTIVE"
    ):
        time.sleep(0.05)


def split_one(kinesis):
    """Split the first open shard in the middle."""
    shard = open_shards(kinesis)[0]
    keys = shard["HashKeyRange"]
    middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
    kinesis.split_shard(
        StreamName=STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle)
    )
    wait_active(kinesis)


def merge_two(kinesis):
    """Merge the last two open shards, which are neighbors."""
    left, right = open_shards(kinesis)[-2:]
    kinesis.merge_shards(
        StreamName=STREAM, ShardToMerge=left["ShardId"], AdjacentShardToMerge=right["ShardId"]
    )
    wait_active(kinesis)


def worst_lag_s(url):
    """Largest lag of any shard in seconds as the daemon's /leases reports it, or None."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            leases = json.load(answer)["leases"]
    except (OSError, ValueError, KeyError):
        return None
    lags = [one["millis_behind_latest"] for one in leases if one.get("millis_behind_latest")]
    return max(lags, default=0) / 1000


def watch(seen, progress, daemon, url):
    """Show the progress until every row was seen; the daemon must live that long."""
    started = time.monotonic()
    label = "flights"
    with click.progressbar(length=ROWS, label=label, file=sys.stderr, width=30) as bar:
        shown = 0
        while not (progress.get("done") and len(unique(seen)) >= progress["put"]):
            if daemon.poll() is not None:
                raise SystemExit(f"the daemon ended early with exit code {daemon.returncode}")
            if time.monotonic() - started > TIMEOUT_S:
                break
            if "error" in progress:
                raise SystemExit(f"putting failed: {progress['error']}")
            rows = min(seen.refresh(), ROWS)
            rate = rows / (time.monotonic() - started)
            lag = worst_lag_s(url)
            bar.label = f"flights {rate:6.0f}/s lag {'?' if lag is None else f'{lag:.1f} s'}"
            bar.update(rows - shown)
            shown = rows
            time.sleep(0.25)
        bar.update(ROWS - shown)


def unique(seen):
    """Distinct rows seen so far."""
    return {row[0] for batch in seen.batches for row in batch["rows"]}


def table(batches):
    """A table for people: flights and mean departure delay per carrier."""
    total = collections.defaultdict(lambda: [0, 0, 0.0])
    for batch in batches:
        for carrier, (count, known, delay) in batch["carriers"].items():
            seen = total[carrier]
            seen[0] += count
            seen[1] += known
            seen[2] += delay
    names = flights_data.airlines()
    lines = [f"{'carrier':<32}{'flights':>9}{'mean delay, min':>18}"]
    for carrier, (count, known, delay) in sorted(total.items(), key=lambda one: -one[1][0]):
        mean = f"{delay / known:.1f}" if known else "-"
        lines.append(f"{carrier + ' ' + names.get(carrier, ''):<32}{count:>9}{mean:>18}")
    return "\n".join(lines)


def free_port():
    """A port of the loopback interface that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_daemon(aws, folder):
    """Write the properties and start ``kcl-mld --properties`` on them."""
    properties = folder / "flights.properties"
    properties.write_text(
        PROPERTIES.format(
            python=sys.executable,
            program=HERE / "flights_app.py",
            stream=STREAM,
            kinesis=aws.kinesis_url,
            dynamodb=aws.moto_url,
        ),
        encoding="latin-1",
    )
    env = aws.environment_for_child() | {"FLIGHTS_OUT": str(folder / "seen")}
    log = (folder / "daemon.log").open("w", encoding="utf-8")
    port = free_port()
    daemon = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mld",
            "--properties",
            str(properties),
            "--http",
            f"127.0.0.1:{port}",
        ],
        env=env,
        stderr=log,
        stdout=log,
    )
    return daemon, f"http://127.0.0.1:{port}/leases"


def main():
    """Run it all; exit code 0 when nothing was lost, disordered, or left running."""
    folder = HERE.parent / ".demo"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "seen").mkdir(parents=True)
    with EmbeddedAws() as aws:
        kinesis = aws.client("kinesis")
        kinesis.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        wait_active(kinesis)
        progress = {"put": 0}
        started = time.time()
        daemon, url = start_daemon(aws, folder)

        def put():
            try:
                put_flights(kinesis, progress)
            except BaseException as error:  # noqa: BLE001 - shown by the main thread
                progress["error"] = repr(error)

        putting = threading.Thread(target=put, daemon=True)
        putting.start()
        seen = Seen(folder / "seen")
        try:
            watch(seen, progress, daemon, url)
        finally:
            seconds = time.time() - started
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
            code = daemon.wait(60)
        seen.refresh()
    result = judge(seen.batches, progress["put"])
    first = min((batch["at"] for batch in seen.batches), default=None)
    result["first_record_s"] = None if first is None else round(first - started, 2)
    result["seconds"] = round(seconds, 1)
    click.echo(table(seen.batches))
    click.echo(f"the daemon stopped with exit code {code}; its log is in .demo/daemon.log")
    click.echo(json.dumps(result))
    return 0 if result["lost"] == result["out_of_order"] == code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
