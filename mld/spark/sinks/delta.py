"""Append to a Delta table: Spark computes the rows, this process writes and commits them.

All batches of a job become visible in one step, which also records how far each shard has come, so
a redelivery that is cut anew is dropped up to the mark. Spark knows nothing of the table: its rows
come as Arrow, pyarrow writes them into a directory of the job below the table, and delta-rs (the
PyPI package ``deltalake``) the log. See :mod:`kcl_mld.spark.table.marked_table` for the proof.
"""

from __future__ import annotations

import errno
import json
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.config.spark.keys import COMPRESSION, MERGE_SCHEMA, PARTITION_BY
from kcl_mld.spark.calls import raise_if_abandoned
from kcl_mld.spark.errors import BatchFailed, SinkRefused
from kcl_mld.spark.ports import REQUESTS, CommitOutcome
from kcl_mld.spark.sinks.results import fetch
from kcl_mld.spark.table.changes import Append
from kcl_mld.spark.table.delta_log import DeltaLog
from kcl_mld.spark.table.marked_table import MarkedTable
from kcl_mld.spark.table.parquet import FileLayout, require_codec
from kcl_mld.spark.table.rules import as_nullable
from kcl_mld.spark.table.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import PurePath
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.model import Position, ShardBatch, ShardKey
    from kcl_mld.spark.table.changes import Change
    from kcl_mld.spark.table.data_files import Rows, Staged
    from kcl_mld.spark.table.snapshot import Snapshot

_log = logging.getLogger("mld.spark")

#: Name of the thread that shortens the log after a commit.
UPKEEP_THREAD = "log-checkpoint"
#: What several outputs leave in the directory above their tables.
OUTPUTS_MARK = "kcl-mld-positions"
_NO_ROOM_TEXT = "No space left on device"


@dataclass(slots=True)
class StagedFiles:
    """What a job left.

    Attributes:
        files: of its rows; or the rows themselves, for a commit that makes files of them.
        job: directory of the files below the table; None = there are none.
        may_stand: True once a commit may have made them visible.
    """

    files: Sequence[Staged]
    job: PurePath | None = None
    may_stand: bool = False


class DeltaSink:
    """The ``delta`` sink. One instance a process; all methods may be called from any thread."""

    _table_type: type[MarkedTable] = MarkedTable
    #: Gives the paths of files that somebody may still commit.
    _wanted: Callable[[], Collection[str]] = frozenset

    def __init__(self, config: SparkConfig, application: str) -> None:
        """Read the configuration; nothing is touched before ``prepare``.

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
        self._codec = require_codec(options.pop(COMPRESSION, ""))
        if options:
            _log.warning("no effect: %s", ", ".join(f"spark.sink.options.{n}" for n in options))
        self._most_bytes = config.max_result_bytes
        change = self._change(application, config)
        self._log = DeltaLog(self.store, syncs_files=not change.keeps_files)
        self._table = self._table_type(
            self._log,
            self.store.name,
            application,
            config.epoch,
            adds_columns=adds_columns,
            change=change,
        )
        self._files = self.store.jobs()
        self._layout: FileLayout | None = None

    def counts(self) -> Mapping[str, int]:
        """As ``ports.Counts``: without the requests that delta-rs makes by itself."""
        return {REQUESTS: self.store.requests}

    def prepare(self, spark: SparkSession) -> None:
        """Look at the table, and sweep what dead processes left.

        Raises:
            SinkRefused: the table may not be written.
            SinkUnavailable: it can't be read.
        """
        del spark
        try:
            self.store.make()
            table = self._table.look()
            if table is None:
                self._refuse_other_files()
            else:
                self._lay_out(table)
            self._files.open()
            if count := self._files.sweep(self._log.live_paths, self._wanted):
                _log.info("%s: removed %d uncommitted jobs", self.store.name, count)
        except OSError as error:
            raise SinkRefused(
                f"spark.sink.path={self.store.name} can't be written: {error}"
            ) from error

    def mark(self, shard: ShardKey) -> Position | None:
        """Where the shard stands in the table; None = no commit of this epoch names it."""
        return self._table.mark(shard)

    def write(self, frame: DataFrame, batches: Sequence[ShardBatch]) -> StagedFiles:
        """Have the rows computed, and write them into a directory of their own below the table.

        Raises:
            ResultTooLarge: they are too many for one job.
            BatchFailed: the rows do not fit the table.
            OSError: the disk is full. It may be tried again, like what Spark raises.
        """
        del batches
        rows = fetch(frame, self.store.name, self._most_bytes)
        raise_if_abandoned()
        return self._stage(rows, self._layout or self._create(rows.fields))

    def _stage(self, rows: Rows, layout: FileLayout) -> StagedFiles:
        rows = self._table.examine(rows)
        job = None
        try:
            job = self._files.new_job()
            return StagedFiles(self._files.write(job, rows, layout), job)
        except BaseException as error:
            if job is not None:
                self._files.remove(job)
            if _NO_ROOM_TEXT in str(error):
                text = f"{self.store.name}: the disk is full; nothing was committed"
                raise OSError(errno.ENOSPC, text) from error
            raise

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
            self.settle(staged)
            # No daemon thread: delta-rs does not survive the end of the interpreter in mid-call.
            threading.Thread(target=self._table.keep_short, name=UPKEEP_THREAD).start()
        return outcomes

    def settle(self, staged: StagedFiles) -> None:
        """A commit has made the job's files visible."""
        if staged.job is not None:
            self._files.committed(staged.job)

    def discard(self, staged: StagedFiles) -> None:
        """Remove a job that no commit can use any more."""
        if staged.job is not None and not staged.may_stand:
            self._files.remove(staged.job)

    def _change(self, application: str, config: SparkConfig) -> Change:
        """What a commit does with staged files."""
        del application, config
        return Append()

    def _create(self, columns: Sequence[Mapping[str, Any]]) -> FileLayout:
        """Create the table with the rows' columns, unless somebody else has done so meanwhile."""
        if (table := self._table.look()) is None:
            fields = [as_nullable(field) for field in columns]
            names = [field["name"] for field in fields]
            if missing := [each for each in self._partitions if each not in names]:
                raise BatchFailed(
                    f"{self.store.name}: spark.sink.partitionBy names {', '.join(missing)}, but the function's rows "
                    f"have {', '.join(names)}"
                )
            schema = json.dumps({"type": "struct", "fields": fields})
            table = self._table.create(schema, self._partitions)
        return self._lay_out(table)

    def _lay_out(self, table: Snapshot) -> FileLayout:
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
        self._layout = FileLayout(types, self._codec)
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
