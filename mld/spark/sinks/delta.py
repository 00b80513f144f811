"""Append to a Delta table: Spark writes the files, one commit of this process makes them visible.

All batches of a job become visible in one step, which also records how far each shard has come, so
a redelivery that is cut anew is dropped up to the mark. Spark needs no Delta jar: it writes plain
Parquet into a directory of the job below the table, and the log is written by delta-rs (the PyPI
package ``deltalake``). See :mod:`mld.spark.table.marked_table` for the proof.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.model.spark.keys import MERGE_SCHEMA, PARTITION_BY, WRITE_TASKS
from mld.spark.calls import raise_if_abandoned
from mld.spark.errors import BatchFailed, SinkRefused
from mld.spark.ports import CommitOutcome
from mld.spark.sinks.directories import DirectoryLayout
from mld.spark.sinks.writing import can_lay_out, write_tasks, writer_options
from mld.spark.table.changes import Append
from mld.spark.table.delta_log import DeltaLog
from mld.spark.table.footers import NULL_DIRECTORY
from mld.spark.table.marked_table import MarkedTable
from mld.spark.table.rules import as_nullable, fields_in, refused_type
from mld.spark.table.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import PurePath

    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.model import Position, ShardBatch, ShardKey
    from mld.spark.table.changes import Change
    from mld.spark.table.footers import DataFile
    from mld.spark.table.snapshot import Snapshot

_log = logging.getLogger(__name__)

#: Name of the thread that shortens the log after a commit.
UPKEEP_THREAD = "log-checkpoint"
#: What several outputs leave in the directory above their tables.
OUTPUTS_MARK = "kcl-mld-positions"
_NO_ROOM_TEXT = "No space left on device"
#: INT96, Spark's default, is nanoseconds to others, and Spark's own Delta reader refuses it.
_TIMESTAMPS = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


@dataclass(slots=True)
class StagedFiles:
    """What a job left below the table.

    Attributes:
        job: its directory.
        files: in it.
        may_stand: True once a commit may have made them visible.
    """

    job: PurePath
    files: Sequence[DataFile]
    may_stand: bool = False


class DeltaSink:
    """The ``delta`` sink. One instance a process; all methods may be called from any thread."""

    _table_type: type[MarkedTable] = MarkedTable
    #: Gives the paths of files that somebody may still commit.
    _wanted: Callable[[], Collection[str]] = frozenset

    def __init__(self, config: SparkConfig, application: str) -> None:
        """Read the configuration; nothing is touched before ``prepare``.

        Args:
            config: with ``spark.sink.path``.
            application: name of the KCL application.

        Raises:
            SparkConfigError: a property is wrong.
            SinkRefused: the path is neither on a file system nor in S3.
        """
        assert config.sink_path is not None  # see ``config.require_places``
        self.store = open_store(config.sink_path, config.sink)
        options = dict(config.sink_options)
        # As Delta's own writer names them.
        words = options.pop(PARTITION_BY, "").split(",")
        columns = tuple(word.strip() for word in words if word.strip())
        self._partitions = config.partition_by or columns
        merges = options.pop(MERGE_SCHEMA, "").strip().lower() == "true"
        adds_columns = config.adds_columns or merges
        self._tasks = write_tasks(config)
        options.pop(WRITE_TASKS, None)
        self._options = {**writer_options(config), **options}
        self._is_far = not config.local_cores
        change = self._change(application, config)
        self._keeps_files = change.keeps_files
        self._log = DeltaLog(self.store, syncs_files=not self._keeps_files)
        self._table = self._table_type(
            self._log,
            self.store.name,
            application,
            config.epoch,
            adds_columns=adds_columns,
            change=change,
        )
        lays_out = self.store.directory is not None and can_lay_out(config, os.environ)
        self._mode = "append" if lays_out else "error"
        self._files = self.store.jobs(lays_out=lays_out)
        self._layout: DirectoryLayout | None = None
        self._tuned: SparkSession | None = None

    def prepare(self, spark: SparkSession) -> None:
        """Look at the table, sweep what dead processes left, and see that Spark writes here.

        Raises:
            SinkRefused: the table may not be written, or the executors write elsewhere.
            SinkUnavailable: it can't be read.
        """
        try:
            self.store.make()
            table = self._table.look()
            if table is None:
                self._refuse_other_files()
            else:
                self._lay_out(table)
            self._files.open()
            if count := self._files.sweep(self._log.live_paths, self._wanted):
                _log.info("%s: %d jobs that nobody committed were removed", self.store.name, count)
        except OSError as error:
            raise SinkRefused(
                f"spark.sink.path={self.store.name} can't be written: {error}"
            ) from error
        if self._is_far:
            self._probe_shared(spark)

    def mark(self, shard: ShardKey) -> Position | None:
        """Where the shard stands in the table; None = no commit of this epoch names it."""
        return self._table.mark(shard)

    def write(self, frame: DataFrame, batches: Sequence[ShardBatch]) -> StagedFiles:
        """Write the rows into a directory of their own below the table, with one Spark job.

        Raises:
            BatchFailed: the rows do not fit the table.
            OSError: the disk is full. It may be tried again, like what Spark raises.
        """
        del batches
        layout = self._layout or self._create(frame)
        job = None
        try:
            job = self._files.new_job()
            raise_if_abandoned()
            self._run(frame, layout, job)
            files = self._files.found(job, layout.types)
            self._table.examine(files)
        except BaseException as error:
            if job is not None:
                self._files.remove(job)
            if _NO_ROOM_TEXT in str(error):
                text = f"{self.store.name}: the disk is full; nothing was committed"
                raise OSError(errno.ENOSPC, text) from error
            raise
        return StagedFiles(job, files)

    def commit_all(
        self, staged: StagedFiles, batches: Sequence[ShardBatch]
    ) -> Mapping[ShardKey, CommitOutcome]:
        """One commit for all batches of a job; see ``ports.Sink``."""
        staged.may_stand = True
        outcomes = self._table.commit(staged.files, batches)
        found = set(outcomes.values())
        if CommitOutcome.AGAIN in found:
            staged.may_stand = False
        if CommitOutcome.STANDS in found:
            if self._keeps_files:
                self._files.committed(staged.job)
            # No daemon thread: delta-rs does not survive the end of the interpreter in mid-call.
            threading.Thread(target=self._table.keep_short, name=UPKEEP_THREAD).start()
        return outcomes

    def discard(self, staged: StagedFiles) -> None:
        """Remove a job that no commit can use any more."""
        if not staged.may_stand:
            self._files.remove(staged.job)

    def _change(self, application: str, config: SparkConfig) -> Change:
        """What a commit does with staged files."""
        del application, config
        return Append()

    def _run(self, rows: DataFrame, layout: DirectoryLayout, job: PurePath) -> None:
        session = rows.sparkSession
        if session is not self._tuned:
            session.conf.set(*_TIMESTAMPS)
            self._tuned = session
        rows = layout.apply(rows)
        if self._tasks:
            rows = rows.coalesce(self._tasks)
        writer = rows.write.mode(self._mode).options(**self._options)
        if layout.types:
            writer = writer.partitionBy(*layout.types)
        try:
            writer.parquet(self.store.spark_url(job))
        except Exception as error:
            if (column := layout.unfit_column(error)) is None:
                raise
            raise BatchFailed(
                f"{self.store.name}: a value of the partition column {column} can't name a "
                f"directory: it is longer than 255 bytes with the column's name, has a NUL, or is "
                f"{NULL_DIRECTORY}; change the function"
            ) from error

    def _create(self, rows: DataFrame) -> DirectoryLayout:
        """Create the table with the rows' columns, unless somebody else has done so meanwhile."""
        if (table := self._table.look()) is None:
            fields = [as_nullable(field) for field in fields_in(rows.schema.json())]
            if why := refused_type(fields):
                raise BatchFailed(f"{self.store.name}: {why}")
            names = [field["name"] for field in fields]
            if missing := [each for each in self._partitions if each not in names]:
                raise BatchFailed(
                    f"{self.store.name}: spark.sink.partitionBy names {', '.join(missing)}, but the function's rows "
                    f"have {', '.join(names)}"
                )
            schema = json.dumps({"type": "struct", "fields": fields})
            table = self._table.create(schema, self._partitions)
        return self._lay_out(table)

    def _lay_out(self, table: Snapshot) -> DirectoryLayout:
        if self._partitions and list(self._partitions) != table.partitions:
            raise SinkRefused(
                f"{self.store.name} is partitioned by {', '.join(table.partitions) or 'nothing'}, but "
                f"spark.sink.partitionBy names {', '.join(self._partitions)}: leave it out, or name another "
                f"directory"
            )
        fields = {field["name"]: field["type"] for field in table.fields}
        types = {name: str(fields[name]) for name in table.partitions}
        if binary := [name for name, kind in types.items() if kind == "binary"]:
            raise SinkRefused(f"{self.store.name}: the partition column {binary[0]} is binary")
        self._layout = DirectoryLayout(types)
        return self._layout

    def _refuse_other_files(self) -> None:
        if self.store.has(OUTPUTS_MARK):
            raise SinkRefused(
                f"{self.store.name} is the place above the tables of several outputs: name them in "
                f"spark.sink.outputs, or name another directory"
            )
        if self.store.names(".parquet"):
            raise SinkRefused(
                f"{self.store.name} has files, but is no Delta table: name another directory"
            )

    def _probe_shared(self, spark: SparkSession) -> None:
        """See that what executors write is seen here.

        Raises:
            SinkRefused: it is not.
        """
        job = self._files.new_job()
        try:
            spark.range(1).coalesce(1).write.parquet(self.store.spark_url(job))
            if not self._files.found(job, {}):
                raise FileNotFoundError(job)  # noqa: TRY301 - one way out for all that can be wrong
        except Exception as error:
            raise SinkRefused(
                f"{self.store.name}: Spark's executors and this host don't share that directory with the "
                f"right to change each other's files ({type(error).__name__}). Mount it on all of "
                f"them"
            ) from error
        finally:
            self._files.remove(job)
