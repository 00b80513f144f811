"""The yardstick: classic Structured Streaming over JSON files, same function, same batch size."""

import pathlib
import shutil
import statistics

from benchmarks.spark.data import SCHEMA, records, wanted


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


def run(spark, folder, count, *, per_file, files_per_batch):
    """(records/s without the first 20 %, p50 of a micro-batch's duration in s, micro-batches)."""
    source, target = folder / "source", folder / "target"
    shutil.rmtree(folder, ignore_errors=True)
    write_files(source, count, per_file)
    query = (
        wanted(
            spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", files_per_batch)
            .json(str(source))
        )
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(target))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(900)
    done = commits(folder / "checkpoint")
    per_batch = per_file * files_per_batch
    warm = max(1, int(0.2 * len(done)))
    times = [at for at, _ in done]
    span = times[-1] - times[warm - 1]
    gaps = [
        later - earlier for earlier, later in zip(times[warm - 1 :], times[warm:], strict=False)
    ]
    counted = count - per_batch * warm
    return counted / span, statistics.median(gaps), len(done)


def commits(checkpoint):
    """(time, number) of every committed micro-batch."""
    names = [one for one in pathlib.Path(checkpoint, "commits").iterdir() if one.name.isdecimal()]
    return sorted((one.stat().st_mtime, int(one.name)) for one in names)
