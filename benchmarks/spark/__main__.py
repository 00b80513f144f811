"""``python -m benchmarks.spark [--quick] [--before CHECKOUT] [CASE ...]``: tables and a plot.

``--before`` measures another version's code in the same run, in turns, by this Python.
"""

import argparse
import os
import pathlib
import sys
import time

from benchmarks.measure import workspace
from benchmarks.spark import pipeline, structured

HERE = pathlib.Path(__file__).parent
SHARDS = 16
#: For a version that may run two jobs at a time, which would share the cores and the shards.
ONE_JOB = "spark.batch.maxInFlight = 1"
BATCH = 750
BATCHES = (250, 500, 1000, 2500, 5000)
CASES = ("throughput", "sweep", "aggregate", "memory", "start", "live")
#: Pairs of starts.
STARTS = 3


def table(rows):
    """Rows as Markdown."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def row(case, outcome):
    """One run for the table."""
    return {
        "case": case,
        "records/s": f"{outcome.records_s:,.0f}",
        "cut to commit p50 s": f"{outcome.cut_to_commit_s:.2f}",
        "between commits p50 s": f"{outcome.gap_s:.2f}",
        "first commit after s": f"{outcome.ready_s:.1f}",
        "all in s": f"{outcome.whole_s:.1f}",
        "commits": outcome.commits,
        "files": outcome.files,
        "CPU s daemon/stubs/host/JVM": "/".join(
            f"{outcome.cpu_s.get(part, 0):.0f}" for part in ("daemon", "stubs", "host", "jvm")
        ),
        "CPU s a 100,000 records": f"{outcome.cpu_100k_s:.1f}",
        "the same, warm": f"{outcome.warm_cpu_100k_s:.1f}",
        "PSS MiB": f"{sum(outcome.pss_mib.values()):.0f}",
    }


def versions(options):
    """(name for the table, checkout) of what is measured."""
    yield "kcl-mld", pipeline.HERE
    if options.before is not None:
        yield "the version before", options.before


def extra(code):
    """More properties for a version; ours has one job at a time, and no such key."""
    files = (code / "mld").rglob("*keys.py")
    has_key = any("batch.maxInFlight" in each.read_text("utf-8") for each in files)
    return ONE_JOB if has_key else ""


def yardstick(folder, count, per_file, files_per_batch):
    """Structured Streaming in a server that is launched as the host launches its own."""
    from kcl_mld.spark.config import read_properties  # noqa: PLC0415 (pyspark is slow to import)
    from kcl_mld.spark.server.launcher import EmbeddedServer  # noqa: PLC0415
    from kcl_mld.spark.server.sessions import ConnectSessions  # noqa: PLC0415

    config = read_properties({"spark.driver.memory": "1g"})
    structured.write_files(folder / "structured" / "source", count, per_file)
    environ = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    began_at = time.time()
    server = EmbeddedServer.launch(config, folder / "server", environ)
    try:
        server.wait_ready(120)
        sessions = ConnectSessions(server.url, server.token, config, "yardstick")
        try:
            return structured.run(
                server,
                sessions.get(),
                folder / "structured",
                count,
                began_at=began_at,
                per_file=per_file,
                files_per_batch=files_per_batch,
            )
        finally:
            sessions.close()
    finally:
        server.stop()


def throughput(aws, folder, options):
    """Ours beside the yardstick: as many records a job, both with an archive of classes."""
    count = 192_000 if options.quick else 384_000
    stream = pipeline.fill(aws, "typed", SHARDS, count)

    def measured(code):
        return pipeline.run(aws, folder, stream, batch=BATCH, extra=extra(code), code=code)

    keep_classes(aws, folder)
    rows = [(name, measured(code)) for name, code in versions(options)]
    rows.append(("Structured Streaming over files", yardstick(folder, count, BATCH, SHARDS)))
    for name, outcome in rows:
        first = row(f"{name}, {SHARDS} x {BATCH}", outcome)
        yield first
    ours = rows[0][1]
    for peer, outcome in rows[1:]:
        yield dict.fromkeys(first, "") | {
            "case": f"ratio to {peer}",
            "records/s": f"{ours.records_s / outcome.records_s:.2f}",
            "CPU s a 100,000 records": f"{ours.cpu_100k_s / outcome.cpu_100k_s:.2f}",
            "the same, warm": f"{ours.warm_cpu_100k_s / outcome.warm_cpu_100k_s:.2f}",
        }


def sweep(aws, folder, options):
    """MicroBatch sizes; draws the plot beside this module."""
    count = 96_000 if options.quick else 384_000
    stream = pipeline.fill(aws, "sweep", SHARDS, count)
    points = []
    for batch in BATCHES:
        outcome = pipeline.run(aws, folder, stream, batch=batch)
        points.append((batch, outcome.records_s, outcome.cut_to_commit_s))
        yield row(f"batches of {batch}", outcome)
    plot(points)


def aggregate(aws, folder, options):
    """One row a user and batch."""
    count = 96_000 if options.quick else 240_000
    stream = pipeline.fill(aws, "users", SHARDS, count)
    for batch in (1000, 5000):
        outcome = pipeline.run(aws, folder, stream, batch=batch, function="per_user")
        yield row(f"groupBy(user), batches of {batch} a shard", outcome)


def memory(aws, folder, options):
    """64 shards, 1 GB heap."""
    stream = pipeline.fill(aws, "wide", 64, 64_000 if options.quick else 640_000)
    for name, code in versions(options):
        outcome = pipeline.run(aws, folder, stream, extra=extra(code), code=code)
        yield row(f"{name}, 64 shards, batches of 1000", outcome)
        print({part: round(mib) for part, mib in outcome.pss_mib.items()}, file=sys.stderr)


def start(aws, folder, options):
    """From the start of the daemon to the first commit of four shards, in turns."""
    shards, each = 4, 250
    stream = pipeline.fill(aws, "start", shards, shards * each)
    keep_classes(aws, folder)
    plain = "spark.jvm.classArchive = false"
    settings = [
        (f"{name}, with an archive of classes", code, "") for name, code in versions(options)
    ]
    settings.append(("kcl-mld, without it", pipeline.HERE, plain))
    for number in range(1 if options.quick else STARTS):
        for name, code, extra in settings:
            outcome = pipeline.run(aws, folder, stream, batch=each, extra=extra, code=code)
            yield row(f"start {number + 1}, {name}", outcome)


def keep_classes(aws, folder):
    """Have the classes of a server kept in a cache."""
    from kcl_mld.spark.config import read_properties  # noqa: PLC0415 (pyspark is slow to import)
    from kcl_mld.spark.server.warm import warm  # noqa: PLC0415

    environ = aws.environment_for_child() | {"XDG_CACHE_HOME": str(folder / "cache")}
    print(warm(read_properties({"spark.driver.memory": "1g"}), environ), file=sys.stderr)


def live(aws, folder, options):
    """16 shards with 160 records/s in all, all settings at their defaults."""
    for name, code in versions(options):
        seconds = 40 if options.quick else 100
        outcome = pipeline.live(aws, folder, shards=SHARDS, rate=160, seconds=seconds, code=code)
        p50, p95 = outcome.arrival_to_commit_s
        yield {
            "case": f"{name}, {SHARDS} shards, 160 records/s in all",
            "jobs in 10 s": f"{outcome.jobs_10_s:.1f}",
            "arrival to commit p50 / p95 s": f"{p50:.1f} / {p95:.1f}",
            "CPU s in 100 s": f"{100 * outcome.cpu_s / outcome.seconds:.0f}",
            "files an hour": f"{outcome.files_hour:,.0f}",
        }


def plot(points):
    """Throughput and latency by batch size."""
    import matplotlib as mpl  # noqa: PLC0415 (only here)

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    sizes, speeds, latencies = zip(*points, strict=True)
    figure, left = plt.subplots(figsize=(7, 4), layout="constrained")
    left.plot(sizes, [speed / 1000 for speed in speeds], "o-", color="tab:blue")
    left.set_xscale("log")
    left.set_xticks(sizes, [f"{size}" for size in sizes])
    left.minorticks_off()
    left.set_xlabel("records in a batch of one shard (spark.batch.maxRecords)")
    left.set_ylabel("thousand records/s", color="tab:blue")
    left.set_ylim(bottom=0)
    right = left.twinx()
    right.plot(sizes, latencies, "s--", color="tab:red")
    right.set_ylabel("median time to commit, s", color="tab:red")
    right.set_ylim(bottom=0)
    left.set_title("16 shards, 1 KB JSON records, 2 cores")
    figure.savefig(HERE / "batch_size.png", dpi=110)
    plt.close(figure)


def main():
    """Print one table a case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--before", type=pathlib.Path, metavar="CHECKOUT")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    options = parser.parse_args()
    from kcl_mld.local.embedded import EmbeddedAws  # noqa: PLC0415 (slow to import)

    runs = {
        "throughput": throughput,
        "sweep": sweep,
        "aggregate": aggregate,
        "memory": memory,
        "start": start,
        "live": live,
    }
    for case in options.cases:
        with workspace() as folder, EmbeddedAws() as aws:
            print(f"\n### {case}\n")
            print(table(list(runs[case](aws, folder, options))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
