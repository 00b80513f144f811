"""How a job's rows get from this process into Spark.

Inline they travel in the plan: Spark turns them into rows on one thread, keeps them in the plan,
and serializes them into every task. Beside a server of our own on this machine files are cheaper,
from some size on: 16,000 records of 1 KB cost the server 0.62 instead of 0.90 CPU s. There are as
many as tasks run at a time: one file Spark would cut in two so that one task has twice the rows.
"""

from __future__ import annotations

import itertools
import shutil
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Below this many bytes a file costs more than it saves: Spark lists it and reads its footer.
LEAST_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Parcel:
    """Rows on their way.

    Attributes:
        schema: of the rows.
        table: the rows; None if files have them.
        files: with the rows; none = they go inline.
    """

    schema: pa.Schema
    table: pa.Table | None = None
    files: tuple[Path, ...] = ()


class HandOff:
    """The way of this process's rows; safe to use from any thread.

    Each table is a row group of its own in a file, so that a task reads whole batches.

    Args:
        directory: of the files, ours alone (0700), which a server of our own on this machine reads;
            what an earlier process left in it is removed. None = all rows go inline.
        least_bytes: smaller jobs go inline.
        most_files: of a job, >= 1.
    """

    def __init__(
        self,
        directory: Path | None = None,
        least_bytes: int = LEAST_BYTES,
        *,
        most_files: int = 1,
    ) -> None:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(mode=0o700, parents=True)
        self._directory = directory
        self._least_bytes = least_bytes
        self._most_files = most_files
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._files: dict[int, list[Path]] = {}

    def pack(self, tables: Mapping[int, pa.Table]) -> Parcel:
        """Make the rows ready; Spark is not asked, so it may happen while a job runs.

        Args:
            tables: by the ``id`` of their batch, and not by its name: the shard's next hold has
                batches of the same names. At least one, all of the same schema.

        Raises:
            OSError: the directory's disk does not take them.
        """
        is_small = sum(table.nbytes for table in tables.values()) < self._least_bytes
        if self._directory is None or is_small:
            table = pa.concat_tables(tables.values()).combine_chunks()
            return Parcel(table.schema, table)
        groups = shared_out(list(tables.values()), self._most_files)
        number = next(self._numbers)
        files = [self._directory / f"rows-{number}-{part}.parquet" for part in range(len(groups))]
        schema = groups[0][0].schema
        with self._lock:
            for key in tables:
                self._files.setdefault(key, []).extend(files)
        try:
            for file, group in zip(files, groups, strict=True):
                with pq.ParquetWriter(file, schema, compression="none") as writer:
                    for table in group:
                        writer.write_table(table)
        except OSError as error:
            raise OSError(
                error.errno,
                f"the rows for Spark can't be written into {self._directory}, which is below "
                f"TMPDIR: {error}",
            ) from error
        with self._lock:
            is_released = not all(files[0] in self._files.get(each, ()) for each in tables)
        if is_released:  # while they were written: nothing else would remove them
            for file in files:
                file.unlink(missing_ok=True)
        return Parcel(schema, files=tuple(files))

    def frame(self, spark: SparkSession, parcel: Parcel) -> DataFrame:
        """The rows as a frame that can be used until one of the batches is released."""
        if not parcel.files:  # with a schema, because Spark finds none in an empty table
            return spark.createDataFrame(parcel.table, _schema_of(parcel.schema))
        urls = [file.as_uri() for file in parcel.files]
        return spark.read.schema(_schema_of(parcel.schema)).parquet(*urls)

    def release(self, keys: Iterable[int]) -> None:
        """An attempt at the batches of these keys is over; their frames are not used any more."""
        with self._lock:
            gone = [file for each in keys for file in self._files.pop(each, ())]
        for file in gone:
            file.unlink(missing_ok=True)


def shared_out(tables: Sequence[pa.Table], most: int) -> list[list[pa.Table]]:
    """Groups of neighbours with about equally many bytes.

    Args:
        tables: at least one.
        most: how many groups at most, >= 1.

    Returns:
        at least one group, and no empty one; together all tables in their order.
    """
    whole = sum(table.nbytes for table in tables)
    groups: dict[int, list[pa.Table]] = {}
    before = 0
    for table in tables:
        middle = before + table.nbytes / 2
        number = min(most - 1, int(middle * most / whole)) if whole else 0
        groups.setdefault(number, []).append(table)
        before += table.nbytes
    return list(groups.values())


def _schema_of(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - takes half a second

    return from_arrow_schema(schema)
