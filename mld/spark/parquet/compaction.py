"""Merge the small files of the parquet chain while others write and read.

Run it from time to time, on a host that sees the path, with any Spark session::

    from mld.spark import compact

    for report in compact(spark, "/data/flights"):
        print(report)

For each shard a run of links becomes one segment, published by one rename; from then on a walk
takes the segment, whose rows are the same. What it replaces is removed ``keep_s`` later by another
call, when no reader can still be looking at it; the directories stay with their markers, because a
writer that has lost its shard must still find the name taken. A crash leaves either no segment, or
a segment beside files that nobody reads and that the next call removes.

One compaction works on a shard at a time: it holds a lock (``flock``) that dies with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mld.spark.errors import BatchFailed
from mld.spark.parquet import chain, chain_files, chain_layout
from mld.spark.parquet.reading import shard_directories
from mld.spark.parquet.staging import Staging

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_LOCK = "_compact.lock"
_ORDER, _ROW = "_kcl_order", "_kcl_row"


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was done for a shard.

    Attributes:
        shard: directory of the shard.
        merged: links that became one segment; 0 = not enough of them.
        rows: in that segment.
        removed: directories whose files were removed, replaced long enough ago.
    """

    shard: str
    merged: int
    rows: int
    removed: int


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    epoch: str = "0",
    min_batches: int = 16,
    keep_s: float = 3600.0,
    full_rows: int = 5_000_000,
    now_s: float | None = None,
) -> list[Compaction]:
    """Merge the small files of every shard of an epoch.

    Args:
        spark: any session whose executors see the path.
        path: ``spark.sink.path``.
        epoch: ``spark.sink.epoch``.
        min_batches: fewer links than this, >= 2, are left for later.
        keep_s: for how long after a merge its sources stay, for readers that began before; in s.
            Longer than the longest query.
        full_rows: a segment with so many rows is not merged again.
        now_s: wall time in s since 1970; None = the clock's.

    Returns:
        one report for each shard for which something was done.

    Raises:
        SinkRefused: the path is not on a file system of this kind, or was tampered with.
        BatchFailed: the merged rows are not as many as the sources'; nothing was changed.
    """
    root = chain_files.local_root(os.fspath(path))
    now = time.time() if now_s is None else now_s
    reports = []
    for shard in shard_directories(root, epoch):
        with _sole(shard) as is_sole:
            if is_sole:
                merged, rows = _merge(spark, root, shard, (max(2, min_batches), full_rows), now)
                removed = _remove_replaced(shard, now - keep_s)
                if merged or removed:
                    reports.append(Compaction(str(shard), merged, rows, removed))
    return reports


@contextlib.contextmanager
def _sole(shard: Path) -> Iterator[bool]:
    """Hold the shard's lock; False if somebody else does."""
    descriptor = os.open(shard / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _merge(
    spark: SparkSession, root: Path, shard: Path, limits: tuple[int, int], now: float
) -> tuple[int, int]:
    """Publish a segment of the links that are due; how many, and their rows."""
    run = chain.run_to_merge(list(chain_files.walk_shard(shard)), *limits)
    if not run:
        return 0, 0
    files = [
        path
        for link in run
        if link.marker.files
        for path in chain_files.data_files(shard / link.name)
    ]
    staging = Staging(root)
    staging.open()
    try:
        target = staging.new_job() / "rows"
        rows = _write_merged(spark, files, target)
        count = sum(link.marker.count for link in run)
        marker = chain_layout.Marker(run[-1].to, count, rows=rows, published_s=now)
        chain_files.seal(target, marker)
        name = chain_layout.segment_name(run[0].after, run[-1].to)
        chain_files.publish(target, shard / name)
    except chain_files.Taken:  # no lock held on that file system: somebody was as quick
        return 0, 0
    finally:
        staging.close()
    return len(run), rows


def _write_merged(spark: SparkSession, files: Sequence[Path], target: Path) -> int:
    """Write the rows of the files, in their order, into one file; how many they are.

    Raises:
        BatchFailed: the result has another number of rows.
    """
    if not files:
        target.mkdir()
        return 0
    wanted = _row_count(files)
    _in_order(spark, files).write.parquet(chain_files.spark_url(target))
    found = _row_count(chain_files.data_files(target))
    if found != wanted:
        raise BatchFailed(f"{target}: merged {found} rows of {wanted}; nothing was changed")
    return found


def _in_order(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """The rows of the files in one partition, sorted by file and place in it."""
    urls = [chain_files.spark_url(path) for path in files]
    frame = spark.read.option("mergeSchema", value=True).parquet(*urls)
    names = [(path.name, index) for index, path in enumerate(files)]
    places = spark.createDataFrame(names, f"_kcl_file string, {_ORDER} long")
    columns = frame.columns
    placed = frame.select(
        *(F.col(f"`{name}`") for name in columns),
        F.col("_metadata.file_name").alias("_kcl_name"),
        F.col("_metadata.row_index").alias(_ROW),
    ).join(F.broadcast(places), F.col("_kcl_name") == F.col("_kcl_file"))
    return (
        placed.coalesce(1)
        .sortWithinPartitions(_ORDER, _ROW)
        .select(*(F.col(f"`{name}`") for name in columns))
    )


def _row_count(files: Sequence[Path]) -> int:
    return sum(pq.read_metadata(path).num_rows for path in files)


def _remove_replaced(shard: Path, published_before: float) -> int:
    """Remove the files behind segments that every reader knows; how many directories had some."""
    taken = [
        link
        for link in chain_files.walk_shard(shard)
        if link.is_segment and link.marker.published_s <= published_before
    ]
    if not taken:
        return 0
    removed = 0
    for name in list(chain.superseded(os.listdir(shard), chain_files.segment_names(shard), taken)):
        directory = shard / name
        if name.startswith(chain_layout.SEGMENTS):
            shutil.rmtree(directory, ignore_errors=True)
            removed += 1
        elif paths := [path for path in directory.iterdir() if path.name != chain_layout.MARKER]:
            for path in paths:
                path.unlink(missing_ok=True)
            removed += 1
    return removed
