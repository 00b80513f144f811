"""Parquet files on a shared file system, appended batch by batch with one rename each.

Exactly once whatever the cut: a batch's directory is named by the position that it follows, so a
second batch after the same position collides, whoever writes it. See :mod:`mld.spark.parquet.chain_layout`.

Promises: each record's rows once, over crashes of any process, lease moves and redeliveries; a
batch is durable on the disk of the file system before it is checkpointed. Needs: a POSIX file
system that the Spark host and all executors see under the same path.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mld.spark.calls import raise_if_abandoned
from mld.spark.errors import BatchFailed, Fenced, SinkRefused, SparkConfigError
from mld.spark.model import BATCH_COLUMN, position_text
from mld.spark.parquet import chain, chain_files, chain_layout
from mld.spark.parquet.staging import Staging
from mld.spark.sinks.write_tasks import TASKS_OPTION, write_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.model import Position, ShardBatch, ShardKey

#: Commits of a shard between two hints: the longest walk of a restart.
HINT_EVERY = 256
#: Files that one task holds open instead of sorting its rows by batch.
_OPEN_WRITERS = "64"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_NO_ROOM_TEXT = "No space left on device"


@dataclass(frozen=True, slots=True)
class StagedJob:
    """What a job left in staging.

    Attributes:
        directory: the job's own.
        rows: directory of each batch that has rows, by batch id.
    """

    directory: Path
    rows: Mapping[str, Path] = field(default_factory=dict)


class ParquetChainSink:
    """See the module. One instance a process; all methods may be called from any thread.

    Args:
        config: ``spark.sink.path`` is required; ``spark.sink.options.writeTasks`` is ours (see
            :func:`write_tasks`), other options go to Spark's writer.
        application: whose output it is.

    Raises:
        SparkConfigError: a property is missing or wrong.
        SinkRefused: the path is on no file system of this kind.
    """

    coalesces = True
    stages_ahead = True
    uses_intents = False
    commits_together = False

    def __init__(self, config: SparkConfig, application: str) -> None:
        if config.sink_path is None:
            raise SparkConfigError("spark.sink.path is missing: the parquet sink writes there")
        self.root = chain_files.local_root(config.sink_path)
        self._application = application
        self._options = dict(config.sink_options)
        self._tasks = write_tasks(config)
        self._options.pop(TASKS_OPTION, None)
        self._is_far = config.remote is not None or not config.master.startswith("local")
        self._writer = uuid.uuid4().hex
        self._staging = Staging(self.root)
        self._lock = threading.Lock()
        self._ends: dict[ShardKey, tuple[Position | None, str | None]] = {}
        self._commits: dict[ShardKey, int] = {}
        self._tuned: SparkSession | None = None

    def prepare(self, spark: SparkSession) -> None:
        """Claim the directory, sweep what dead writers left, and probe what the sink rests on.

        Raises:
            SinkRefused: not writable, not shared with the executors, or without a rename that
                refuses to overwrite; or the output of another application.
        """
        try:
            chain_files.make_directories(self.root)
            chain_files.claim(self.root, self._application)
            self._staging.open()
            self._staging.sweep()
            self._staging.probe_rename()
        except OSError as error:
            raise SinkRefused(f"spark.sink.path={self.root} can't be written: {error}") from error
        if self._is_far:
            self._staging.probe_shared(spark)

    def mark(self, shard: ShardKey) -> Position | None:
        """The end of the shard's chain; None = it has none in this epoch.

        What is seen is durable: whoever renamed it may have been killed, or given up, before its
        disk had answered, and what is behind the mark is never written again.
        """
        directory = self.root / chain_layout.shard_path(shard)
        last = chain_files.find_last(directory)
        if last is not None:
            chain_files.sync_up_to(self.root, (directory / last.name).parent)
        with self._lock:
            self._ends[shard] = (None, None) if last is None else (last.to, last.name)
        return None if last is None else last.to

    def write(self, frame: DataFrame | None, batches: Sequence[ShardBatch]) -> StagedJob:
        """Write the rows of all batches into staging, one directory a batch, with one Spark job.

        Raises:
            BatchFailed: the batches or the rows can't be told apart; nothing was written.
            OSError: the disk is full. It may be tried again, like what Spark raises.
        """
        wanted = {each.batch_id for each in batches}
        if len(wanted) != len(batches):
            raise BatchFailed("two batches of one job have the same name; nothing was written")
        job = self._staging.new_job()
        try:
            rows = {} if frame is None else self._write_rows(frame, len(batches), job)
            _refuse_strangers(set(rows) - wanted)
        except BaseException as error:
            shutil.rmtree(job, ignore_errors=True)
            if _NO_ROOM_TEXT in str(error):
                text = f"{self.root}: the disk is full; nothing was committed"
                raise OSError(errno.ENOSPC, text) from error
            raise
        return StagedJob(job, rows)

    def commit(self, staged: StagedJob, batch: ShardBatch) -> None:
        """Append one batch to its shard's chain.

        Raises:
            Fenced: another writer has extended the same position.
            BatchFailed: the chain was changed under this process; nothing was committed.
            OSError: the disk refuses. Nothing was committed; it may be tried again.
        """
        shard = self.root / chain_layout.shard_path(batch.shard)
        name = chain_layout.link_name(batch.after)
        marker = chain_layout.Marker(batch.to, len(batch.rows), writer=self._writer)
        try:
            if not self._is_ours(shard / name, marker):
                self._require_predecessor(shard, batch)
                self._append(staged, batch, shard / name, marker)
        except OSError as error:
            what = "the disk is full" if error.errno in _NO_ROOM else error.strerror
            text = f"{what}; the batch after {position_text(batch.after)} is not committed"
            raise OSError(error.errno, text, str(shard)) from error
        self._advance(shard, batch, chain.Link(batch.after, batch.to, name, marker))

    def discard(self, staged: StagedJob) -> None:
        """Remove what is left of a job."""
        shutil.rmtree(staged.directory, ignore_errors=True)

    def _write_rows(self, frame: DataFrame, batches: int, job: Path) -> dict[str, Path]:
        session = frame.sparkSession
        if session is not self._tuned:
            session.conf.set("spark.sql.maxConcurrentOutputFileWriters", _OPEN_WRITERS)
            self._tuned = session
        tasks = batches if self._tasks is None else min(batches, self._tasks)
        if tasks:
            frame = frame.coalesce(tasks)
        target = job / "rows"
        writer = frame.write.partitionBy(BATCH_COLUMN).options(**self._options)
        writer.parquet(chain_files.spark_url(target))
        return dict(_batch_directories(target))

    def _is_ours(self, target: Path, marker: chain_layout.Marker) -> bool:
        """True if this very commit happened before; False if the name is free."""
        text = chain_files.read_marker(target)
        if text is None:
            return False
        found = chain_layout.Marker.decode(text)
        if found.writer == self._writer and found.to == marker.to:
            chain_files.sync_directory(target.parent)
            return True
        raise Fenced(
            f"{target}: another writer has appended there up to {found.to}; this process has lost "
            f"the shard"
        )

    def _append(
        self, staged: StagedJob, batch: ShardBatch, target: Path, marker: chain_layout.Marker
    ) -> None:
        source = staged.rows.get(batch.batch_id)
        if source is None:
            source = staged.directory / f"empty-{chain_layout.escape(batch.batch_id)}"
            source.mkdir(exist_ok=True)
        chain_files.seal(source, marker)
        raise_if_abandoned()
        try:
            chain_files.publish(source, target)
        except chain_files.Taken:
            if not self._is_ours(target, marker):
                raise BatchFailed(f"{target} is taken, but has no marker; look at it") from None

    def _require_predecessor(self, shard: Path, batch: ShardBatch) -> None:
        """A link that nothing leads to would never be read."""
        with self._lock:
            end, name = self._ends.get(batch.shard, (None, None))
        if end != batch.after or (name and chain_files.read_marker(shard / name) is None):
            last = chain_files.find_last(shard)
            end = None if last is None else last.to
        if end != batch.after:
            raise BatchFailed(
                f"{shard} ends at {position_text(end)}, but the batch follows "
                f"{position_text(batch.after)}: the output was changed under this process"
            )

    def _advance(self, shard: Path, batch: ShardBatch, link: chain.Link) -> None:
        with self._lock:
            self._ends[batch.shard] = (link.to, link.name)
            count = self._commits[batch.shard] = self._commits.get(batch.shard, 0) + 1
        if count % HINT_EVERY == 0:
            chain_files.write_hint(shard, link, self._writer)


def _refuse_strangers(found: set[str]) -> None:
    if found:
        raise BatchFailed(
            f"the function's rows carry {BATCH_COLUMN} values that no batch has: "
            f"{sorted(found)[:3]}; nothing was committed"
        )


def _batch_directories(target: Path) -> Iterator[tuple[str, Path]]:
    """ShardBatch ids and directories that Spark made of the batch column; names are escaped by it."""
    prefix = f"{BATCH_COLUMN}="
    with os.scandir(target) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                yield unquote(entry.name.removeprefix(prefix)), Path(entry.path)
