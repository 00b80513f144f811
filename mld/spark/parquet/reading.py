"""What the parquet sink has committed, as a DataFrame.

A reader must not take every file below the path: what lies in staging doesn't count, and while a
compaction works the same rows lie there twice. Ask::

    from mld.spark import read_chain

    flights = read_chain(spark, "/data/flights")

It walks the chains on this host and hands Spark exactly the committed directories as they are now;
batches that are committed later are not in the frame. It works with an embedded server and over
``sc://`` as long as the path is shared.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mld.spark.errors import SparkConfigError
from mld.spark.parquet import chain_files, chain_layout

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Columns that ``with_source`` adds.
STREAM_COLUMN, SHARD_COLUMN = "_stream", "_shard"


def read_chain(
    spark: SparkSession,
    path: str | os.PathLike[str],
    epoch: str = "0",
    *,
    streams: Collection[str] | None = None,
    shards: Collection[str] | None = None,
    schema: StructType | str | None = None,
    merge_schema: bool = True,
    with_source: bool = False,
) -> DataFrame:
    """The rows of an epoch that are committed now, each once.

    Args:
        spark: any session whose executors see the path.
        path: ``spark.sink.path`` of the app that wrote them.
        epoch: ``spark.sink.epoch``; other epochs' rows are not in the frame.
        streams: only these; None = all.
        shards: only these shard ids; None = all.
        schema: of the rows, if known: spares Spark a look into the files.
        merge_schema: True = all columns that any batch had; False is faster where the function
            never changed.
        with_source: add ``_stream`` and ``_shard``.

    Raises:
        SparkConfigError: nothing is committed there, so that there is no schema; give one.
        SinkRefused: the path is not on a file system of this kind, or was tampered with.
    """
    root = chain_files.local_root(os.fspath(path))
    directories = [
        chain_files.spark_url(shard / link.name)
        for shard in shard_directories(root, epoch, streams, shards)
        for link in chain_files.walk_shard(shard)
        if link.marker.files
    ]
    frame = _frame(spark, directories, schema, merge_schema=merge_schema, where=f"{root} {epoch}")
    if not with_source:
        return frame
    if not directories:
        nothing = F.lit(None).cast("string")
        return frame.withColumns({STREAM_COLUMN: nothing, SHARD_COLUMN: nothing})
    return frame.withColumns({STREAM_COLUMN: _part("stream"), SHARD_COLUMN: _part("shard")})


def _frame(
    spark: SparkSession,
    directories: list[str],
    schema: StructType | str | None,
    *,
    merge_schema: bool,
    where: str,
) -> DataFrame:
    if not directories:
        if schema is None:
            raise SparkConfigError(
                f"no rows are committed in {where.rpartition(' ')[0]} for the epoch "
                f"{where.rpartition(' ')[2]!r}: name another one, or hand over their schema"
            )
        return spark.createDataFrame([], schema)
    reader = spark.read
    if schema is not None:
        return reader.schema(schema).parquet(*directories)
    return reader.option("mergeSchema", merge_schema).parquet(*directories)


def shard_directories(
    root: Path,
    epoch: str,
    streams: Collection[str] | None = None,
    shards: Collection[str] | None = None,
) -> Iterator[Path]:
    """Directories of the shards of an epoch, sorted by stream and shard.

    Args:
        root: of the chain.
        epoch: which.
        streams: only these; None = all.
        shards: only these shard ids; None = all.
    """
    for stream in _sorted(root / chain_layout.epoch_path(epoch)):
        name = chain_layout.stream_of(stream.name)
        if name is None or (streams is not None and name not in streams):
            continue
        for shard in _sorted(stream):
            shard_id = chain_layout.shard_of(shard.name)
            if shard_id is not None and (shards is None or shard_id in shards):
                yield shard


def _sorted(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []


def _part(name: str) -> Column:
    """The value of a directory's name in the path of a row's file."""
    found = F.regexp_extract(F.col("_metadata.file_path"), f"/{name}=([^/]+)/", 1)
    return F.url_decode(F.url_decode(found))
