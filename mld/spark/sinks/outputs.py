"""Several Delta tables from one function: ``return {"clicks": df1, "errors": df2}``.

Each table lies in a directory of its name below ``spark.sink.path``, with marks of its own. All
files are written first, then a manifest of them is made durable, then the table of positions is
committed, which decides, and then the tables, one after the other. The next owner of a shard adds
the *same files* where they are missing, and the function is never called again for them: see
:mod:`kcl_mld.spark.table.manifest`.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, cast

from kcl_mld.spark.errors import BatchFailed, SinkRefused
from kcl_mld.spark.failures import describe
from kcl_mld.spark.model import position_text
from kcl_mld.spark.ports import REQUESTS, CommitOutcome, outcomes
from kcl_mld.spark.sinks.delta import OUTPUTS_MARK, UPKEEP_THREAD, DeltaSink, StagedFiles
from kcl_mld.spark.table.data_files import DataFile
from kcl_mld.spark.table.delta_log import DeltaLog
from kcl_mld.spark.table.epoch import NEW_EPOCH
from kcl_mld.spark.table.manifest import Manifest, Step
from kcl_mld.spark.table.marks import BITS, Judgement
from kcl_mld.spark.table.stepped_table import Manifests, SteppedTable
from kcl_mld.spark.table.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.model import Position, ShardBatch, ShardKey
    from kcl_mld.spark.table.marked_table import MarkedTable
    from kcl_mld.spark.table.marks import Mark

_log = logging.getLogger("mld.spark")

#: The table that decides; it has no rows.
POSITIONS = OUTPUTS_MARK
#: The directory of manifests.
MANIFESTS = "kcl-mld-manifests"
#: A table of Delta has a column; this one is never written.
_NO_ROWS = (
    '{"type":"struct","fields":[{"name":"none","type":"string","nullable":true,"metadata":{}}]}'
)
#: Before the looks at a shard's marks after the first, in s: another host may be between two tables.
_LOOKS_S = (0.0, 0.1, 0.4, 1.0, 2.0)


#: What a job left below the tables, by the name of the output.
StagedOutputs: TypeAlias = dict[str, StagedFiles]


class Output(DeltaSink):
    """One table of several: writes files, and takes steps of manifests.

    Args:
        config: of all of them, with the path of this one.
        still_named: gives the paths of files that an open manifest names.
    """

    _table_type: type[MarkedTable] = SteppedTable

    def __init__(
        self, config: SparkConfig, application: str, still_named: Callable[[], set[str]]
    ) -> None:
        super().__init__(config, application)
        self._wanted = still_named

    @property
    def table(self) -> SteppedTable:
        """It takes the steps."""
        return cast("SteppedTable", self._table)

    def carry_out(self, manifest: Manifest, step: Step) -> None:
        """Add the files of a step, unless they are in the table.

        Raises:
            BatchFailed: files are gone, or do not fit the table any more.
            Exception: of delta-rs, at the last try.
        """
        self.table.carry_out(
            step, manifest.ends, manifest.identity, decides=False, examine=self._see
        )

    def _see(self, files: Sequence[DataFile]) -> None:
        for file in files:
            if not self.store.has(file.path):
                raise BatchFailed(
                    f"{self.store.name}: {file.path} is gone, which belongs to a batch that other tables "
                    f"have already. Put it back, or choose a new spark.sink.epoch"
                )


class OutputsSink:
    """The ``delta`` sink with ``spark.sink.outputs``. All methods may be called from any thread."""

    def __init__(
        self,
        config: SparkConfig,
        application: str,
        *,
        pause: Callable[[float], object] = time.sleep,
        new_identity: Callable[[], int] = lambda: secrets.randbits(BITS),
    ) -> None:
        """Read the configuration; nothing is touched before ``prepare``.

        Args:
            config: with ``spark.sink.path`` and ``spark.sink.outputs``.
            new_identity: gives each manifest its own number, 0 <= number < 2**62.

        Raises:
            SparkConfigError: a property is wrong.
            SinkRefused: the path is neither on a file system nor in S3.
        """
        assert config.sink_path is not None  # see ``config.require_places``
        self.store = open_store(config.sink_path)
        self._config = config
        self._application = application
        self._pause = pause
        self._new_identity = new_identity
        self._manifests = Manifests(self.store.below(MANIFESTS))
        place = self.store.below(POSITIONS)
        self._positions = SteppedTable(DeltaLog(place), place.name, application, config.epoch)
        self._outputs = {name: self._output(name) for name in sorted(config.outputs)}

    def counts(self) -> Mapping[str, int]:
        """As ``ports.Counts``."""
        stores = [self.store, *(each.store for each in self._outputs.values())]
        return {REQUESTS: sum(each.requests for each in stores)}

    def prepare(self, spark: SparkSession) -> None:
        """Look at the tables, and remove what no commit can use any more.

        Raises:
            SinkRefused: a table may not be written, or the executors write elsewhere.
            SinkUnavailable: one can't be read.
        """
        if self.store.has("_delta_log"):
            raise SinkRefused(
                f"spark.sink.path={self.store.name} is a Delta table: with spark.sink.outputs name the "
                f"directory above the tables"
            )
        try:
            self.store.make()
            self._manifests.prepare()
            if self._positions.look() is None:
                self._positions.create(_NO_ROWS, ())
            self._drop_void()
        except OSError as error:
            raise SinkRefused(
                f"spark.sink.path={self.store.name} can't be written: {error}"
            ) from error
        for output in self._outputs.values():
            output.prepare(spark)

    def mark(self, shard: ShardKey) -> Position | None:
        """Where a shard stands in all tables, once what its last batch lacks is added to them.

        Raises:
            SinkRefused: a table has another mark than the others.
            SinkUnavailable: a table can't be read.
            BatchFailed: the files of its last batch can't be added.
        """
        why = ""
        for pause_s in _LOOKS_S:
            self._pause(pause_s)
            mark = self._positions.read(shard)
            if mark is None:
                raise SinkRefused(f"{self.store.name}/{POSITIONS}: the table is gone; {NEW_EPOCH}")
            if mark.guard is None:
                self._refuse_older(shard)
            elif (manifest := self._manifests.get(mark.guard)) is not None:
                _log.info("%s: its last batch is added to all tables", shard.shard_id)
                self._finish(manifest)
            if not (why := self._difference(shard, mark)):
                return mark.position
        raise SinkRefused(
            f"{self.store.name}: {why}: a table was not written for a while, or set back. Give it another "
            f"name in spark.sink.outputs, or choose a new spark.sink.epoch"
        )

    def _difference(self, shard: ShardKey, mark: Mark) -> str:
        """Which tables have another mark of a shard than that of positions; empty = none.

        A table without any is younger than the shard's batches, in which it had no rows.
        """
        others = []
        for name, output in self._outputs.items():
            found = output.table.read(shard)
            if found is not None and found.guard is not None and found != mark:
                others.append(f"at {position_text(found.position)} in {name}")
        ours = f"{shard.shard_id} stands at {position_text(mark.position)}"
        return f"{ours}, but {' and '.join(others)}" if others else ""

    def write(self, frame: Mapping[str, DataFrame], batches: Sequence[ShardBatch]) -> StagedOutputs:
        """Write the rows of each output into a directory below its table, one after the other.

        Raises:
            BatchFailed: rows do not fit their table.
            OSError: the disk is full. It may be tried again, like what Spark raises.
        """
        staged: StagedOutputs = {}
        try:
            for name in sorted(frame):
                staged[name] = self._outputs[name].write(frame[name], batches)
        except BaseException:
            self.discard(staged)
            raise
        return staged

    def commit_all(
        self, staged: StagedOutputs, batches: Sequence[ShardBatch]
    ) -> Mapping[ShardKey, CommitOutcome]:
        """The manifest, the table that decides, then the others; see ``ports.Sink``.

        Raises:
            BatchFailed: it stands and a table lacks it; the next owners of the shards add it.
            Exception: whether it stands is not known.
        """
        before, lost = self._positions.behind(batches)
        if lost is not None:
            return lost
        manifest = self._manifest(staged, batches, before)
        self._manifests.keep(manifest)
        for part in staged.values():
            part.may_stand = True
        first = manifest.steps[0]
        moved = self._positions.carry_out(first, manifest.ends, manifest.identity, decides=True)
        if moved:
            # If others have moved all shards, they may have done so behind this very commit, and
            # then all tables have its files. A shard that did not move proves that it never stood.
            may_stand = len(moved) == len(batches)
            for part in staged.values():
                part.may_stand = may_stand
            self._manifests.remove(manifest)
            return outcomes(batches, moved)
        try:
            self._finish(manifest)
        except Exception as error:
            raise BatchFailed(
                f"{self.store.name}: the batch is in some of its tables and not yet in all; it is added "
                f"to them when its shards begin again: {describe(error)}"
            ) from error
        for name, part in staged.items():
            self._outputs[name].settle(part)
        # No daemon thread: delta-rs does not survive the end of the interpreter in mid-call.
        threading.Thread(target=self._keep_short, name=UPKEEP_THREAD).start()
        return dict.fromkeys(manifest.ends, CommitOutcome.STANDS)

    def discard(self, staged: StagedOutputs) -> None:
        """Remove a job that no commit can use any more."""
        for name, part in staged.items():
            self._outputs[name].discard(part)

    def _manifest(
        self,
        staged: StagedOutputs,
        batches: Sequence[ShardBatch],
        before: Mapping[ShardKey, int | None],
    ) -> Manifest:
        ends = {batch.shard: batch.to for batch in batches}
        steps = [Step(POSITIONS, before, ())]
        for name, output in self._outputs.items():
            if (guards := output.table.guards(ends)) is not None:
                found = staged[name].files if name in staged else ()
                files = [each for each in found if isinstance(each, DataFile)]
                steps.append(Step(name, guards, files))
        return Manifest(self._new_identity(), ends, steps)

    def _finish(self, manifest: Manifest) -> None:
        """Add the files of a manifest that stands to all of its tables."""
        for step in manifest.steps[1:]:
            output = self._outputs.get(step.table) or self._output(step.table)
            output.carry_out(manifest, step)
        self._manifests.remove(manifest)

    def _drop_void(self) -> None:
        """Remove the manifests that will not be carried out, or are not needed any more.

        Only the process that made a manifest may commit it, and at once. One that did not for a week is
        dead, also in an epoch whose shards have no owner any more.
        """
        old = self._manifests.old()
        for manifest in self._manifests.all():
            verdict = self._verdict(manifest)
            is_dead = verdict is Judgement.REPEAT and manifest.identity in old
            if is_dead or verdict is Judgement.LOST:
                self._manifests.remove(manifest)

    def _verdict(self, manifest: Manifest) -> Judgement:
        return self._positions.verdict(manifest.steps[0], manifest.identity)

    def _refuse_older(self, shard: ShardKey) -> None:
        """See that no older epoch has left a batch of the shard in some of the tables only.

        It is not checkpointed, so its records come again under the new epoch.

        Raises:
            SinkRefused: it has; the message says what to do.
        """
        for manifest in self._manifests.all():
            for other in manifest.ends:
                if (
                    replace(other, epoch=shard.epoch) == shard
                    and self._verdict(manifest) is Judgement.STANDS
                ):
                    raise SinkRefused(
                        f"{self.store.name}: epoch {other.epoch} has left a batch of {shard.shard_id} in "
                        f"some tables and not yet in all. Start once more with spark.sink.epoch="
                        f"{other.epoch} and stop the workers in order, or remove "
                        f"{self._manifests.path(manifest.identity)}: then its records are written "
                        f"again, and the tables that have them get them twice"
                    )

    def _keep_short(self) -> None:
        self._positions.keep_short()
        for output in self._outputs.values():
            output.table.keep_short()

    def _output(self, name: str) -> Output:
        config = replace(self._config, sink_path=self.store.below(name).name)
        return Output(config, self._application, lambda: self._manifests.named(name))
