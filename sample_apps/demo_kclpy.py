"""First part of the demo: flights through ``flights_app.py``, a program for amazon_kclpy."""

import collections
import json
import pathlib
import sys
import time

import click
import demo_stream
import flights_data
from demo_daemon import Daemon, lag_text, write_properties

STREAM = "flights"
TIMEOUT_S = 600
HERE = pathlib.Path(__file__).resolve().parent


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

    def unique(self):
        """Distinct rows seen so far."""
        return {row[0] for batch in self.batches for row in batch["rows"]}


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


def watch(seen, putting, daemon):
    """Show the progress until every row was seen; the daemon must live that long."""
    started = time.monotonic()
    with click.progressbar(length=putting.rows, label="flights", file=sys.stderr, width=30) as bar:
        shown = 0
        while not (putting.done and len(seen.unique()) >= putting.put):
            daemon.check()
            putting.check()
            if time.monotonic() - started > TIMEOUT_S:
                break
            rows = min(seen.refresh(), putting.rows)
            rate = rows / (time.monotonic() - started)
            bar.label = f"flights {rate:6.0f}/s lag {lag_text(daemon.worst_lag_s())}"
            bar.update(rows - shown)
            shown = rows
            time.sleep(0.25)
        bar.update(putting.rows - shown)


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


def run(aws, folder, rows):
    """Run it; the numbers, and the exit code of the daemon."""
    kinesis = aws.client("kinesis")
    demo_stream.create(kinesis, STREAM)
    program = f"{sys.executable} {HERE / 'flights_app.py'}"
    properties = write_properties(
        folder / "flights.properties", aws, program, "flights-demo", STREAM
    )
    (folder / "seen").mkdir()
    seen = Seen(folder / "seen")
    started = time.time()
    environment = aws.environment_for_child() | {"FLIGHTS_OUT": str(seen.folder)}
    daemon = Daemon(properties, folder / "daemon.log", environment)
    putting = demo_stream.Putting(kinesis, STREAM, rows)
    try:
        watch(seen, putting, daemon)
    finally:
        seconds = time.time() - started
        code = daemon.stop()
    seen.refresh()
    result = judge(seen.batches, putting.put)
    first = min((batch["at"] for batch in seen.batches), default=None)
    result["first_record_s"] = None if first is None else round(first - started, 2)
    result["seconds"] = round(seconds, 1)
    click.echo(table(seen.batches))
    click.echo(f"the daemon stopped with exit code {code}; its log is in .demo/daemon.log")
    return result, code
