"""The yardstick: classic Structured Streaming over JSON files, same function, same batch size."""

import pathlib
import statistics
import time

from benchmarks.measure import cpu_s
from benchmarks.spark.data import SCHEMA, records, wanted
from benchmarks.spark.pipeline import LOOK_S, CpuWatch, Outcome, pss_mib, warm_figures


def write_files(folder, count, per_file):
    """Lines of JSON, ``per_file`` to a file."""
    folder.mkdir(parents=True)
    chunk, number = [], 0
    for body in records(count):
        chunk.append(body)
        if len(chunk) == per_file:
            (folder / f"{number:06d}.json").write_bytes(b"\n".join(chunk) + b"\n")
            chunk, number = [], number + 1
    if chunk:
        (folder / f"{number:06d}.json").write_bytes(b"\n".join(chunk) + b"\n")


def run(server, spark, folder, count, *, began_at, per_file, files_per_batch):
    """The same quantities as of the pipeline.

    Args:
        server: where it runs; all its CPU counts.
        spark: a session of it.
        folder: for everything; ``source`` has the files already.
        count: of records.
        began_at: when the server was started, in s since 1970.
        per_file: records in a file.
        files_per_batch: of a micro-batch.
    """
    target = folder / "target"
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_per_batch)
    with CpuWatch(lambda: cpu_s(server.pid)) as watch:
        query = (
            wanted(frame.json(str(folder / "source")))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .option("path", str(target))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(900)
        time.sleep(2 * LOOK_S)
    times = commits(folder / "checkpoint")
    per_batch = per_file * files_per_batch
    steps = [(at, min(per_batch, count - n * per_batch)) for n, at in enumerate(times)]
    records_s, gap_s, warm_cpu_100k_s = warm_figures(steps, count, watch)
    lasted = [each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress]
    return Outcome(
        records_s=records_s,
        whole_s=times[-1] - began_at,
        ready_s=times[0] - began_at,
        cut_to_commit_s=statistics.median(lasted[1:] or lasted),
        gap_s=gap_s,
        commits=len(times),
        files=len(list(target.rglob("*.parquet"))),
        records=count,
        cpu_s={"jvm": cpu_s(server.pid)},
        warm_cpu_100k_s=warm_cpu_100k_s,
        pss_mib={"jvm": pss_mib([server.pid])},
    )


def commits(checkpoint):
    """When each micro-batch was committed, in s since 1970."""
    names = [one for one in pathlib.Path(checkpoint, "commits").iterdir() if one.name.isdecimal()]
    return [one.stat().st_mtime for one in sorted(names, key=lambda one: int(one.name))]
