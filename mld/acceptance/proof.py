"""The stages of a run: what is done to workers that read the user's stream, in this order.

A stage that fails ends the proof, as the later ones build upon it. Whether records were lost is not
seen here: the judge reads the recording.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from kcl_mld.acceptance.budget import BudgetExhausted
from kcl_mld.acceptance.fleet import RunFleet, StageFailed
from kcl_mld.acceptance.java_worker import OUR_PROMISE, java_worker
from kcl_mld.acceptance.metrics_read import PATIENCE_S, read_metrics
from kcl_mld.acceptance.options import Stage
from kcl_mld.acceptance.producer import RECORDS, Producer
from kcl_mld.acceptance.recording import RunRecording
from kcl_mld.acceptance.rules.judge import END, FAILED, NOT_RUN, PASSED
from kcl_mld.acceptance.rules.table_rows import lost_rows, why_not_once
from kcl_mld.acceptance.spark_stage import APP, APP_FILE, SparkTables
from kcl_mld.acceptance.table_writer import CHANGES, write_changes
from kcl_mld.errors import MldError
from kcl_mld.kernel.model.masking import mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.acceptance.budget import Budget
    from kcl_mld.acceptance.fleet import WorkerProcess
    from kcl_mld.acceptance.options import Options
    from kcl_mld.acceptance.resources import Resources

#: A new application creates its table, and a consumer becomes active.
_START_S = 300.0
#: A dead worker's leases expire, or a leader moves leases; a shard's end is seen.
_MOVE_S = 180.0
#: A Java worker starts, and takes a lease at its second look.
_JAVA_S = 600.0
#: What was put has been read.
_DRAIN_S = 300.0
#: What comes after the rollovers: all is read, workers stop, and CloudWatch has their metrics.
_RESERVE_S = _DRAIN_S + 300.0 + PATIENCE_S
_CALM_PAUSE_S = 2.0
_CHECK_S = 10.0
#: A server of Spark starts, and reads all from the beginning.
_SPARK_S = 600.0
#: Between two looks at a whole table.
_ROWS_S = 3.0
#: Records that are put before a table is judged.
_LEAST_PUT = 500
_OPTIONS_OF: dict[str, str] = {
    Stage.JAVA: ": needs --java and --jars",
    Stage.SPARK: ": needs --bucket",
    Stage.ROLLOVERS: ": needs --hours",
}


def run_proof(
    options: Options,
    resources: Resources,
    budget: Budget,
    recording: RunRecording,
    progress: Callable[[str], None],
) -> None:
    """Run the stages that were asked for, and write down what happened.

    On return, however it comes, no process of the run is left.

    Raises:
        BudgetExhausted: a limit was reached, or the user pressed Ctrl-C.
    """
    with contextlib.ExitStack() as stack:
        proof = _Proof(options, resources, budget, recording, stack)
        stack.callback(proof.note_shards)
        stack.callback(proof.producer.stop)
        proof.producer.start()
        stopped_by: str | None = None
        for name, stage in proof.stages:
            reason = stopped_by or proof.why_not(name)
            began_s = time.time()
            outcome = NOT_RUN
            error: BudgetExhausted | None = None
            if not reason:
                progress(f"{name}: begins")
                try:
                    stage()
                    outcome = PASSED
                except BudgetExhausted as exhausted:
                    outcome, reason, error = FAILED, str(exhausted), exhausted
                except (MldError, ClientError, BotoCoreError) as failure:
                    outcome, reason = FAILED, str(failure)
                except Exception as unforeseen:  # noqa: BLE001 - of any library of a stage
                    outcome, reason = FAILED, f"{type(unforeseen).__name__}: {unforeseen}"
                    recording.append("traceback", text=mask(traceback.format_exc()))
            recording.append(
                "stage",
                name=name,
                outcome=outcome,
                reason=reason,
                began=began_s,
                ended=time.time(),
            )
            progress(f"{name}: {outcome}{reason and ': '}{reason}")
            if error is not None:
                raise error
            if outcome == FAILED:
                stopped_by = f"{name} has failed"


class _Proof:
    def __init__(
        self,
        options: Options,
        resources: Resources,
        budget: Budget,
        recording: RunRecording,
        stack: contextlib.ExitStack,
    ) -> None:
        self._options = options
        self._resources = resources
        self._budget = budget
        self._recording = recording
        self._stack = stack
        stream = options.names.stream
        self.producer = Producer(resources.data("kinesis"), stream, budget, recording)
        self._polling: RunFleet | None = None
        self._fan_out: RunFleet | None = None
        self._java: RunFleet | None = None
        self._current: list[WorkerProcess] = []
        self._began_s = time.time()
        self.stages: tuple[tuple[str, Callable[[], None]], ...] = (
            (Stage.POLLING, self.poll),
            (Stage.RESHARDING, self.reshard),
            (Stage.KILL, self.kill),
            (Stage.HAND_OFF, self.hand_off),
            (Stage.FAN_OUT, self.fan_out),
            (Stage.JAVA, self.java),
            (Stage.TABLE_STREAM, self.table_stream),
            (Stage.SPARK, self.spark),
            (Stage.ROLLOVERS, self.rollovers),
            (END, self.end),
            (Stage.METRICS, self.metrics),
        )

    def why_not(self, name: str) -> str:
        """Why a stage is not run; empty if it is."""
        if name != END and name not in self._options.stages:
            return f"not asked for{_OPTIONS_OF.get(name, '')}"
        if name == Stage.JAVA and not (self._options.java and self._options.jars):
            return "needs --java and --jars"
        needs_polling = name in (Stage.RESHARDING, Stage.KILL, Stage.HAND_OFF)
        if needs_polling and self._polling is None:
            return f"needs the stage {Stage.POLLING}"
        if name == Stage.ROLLOVERS and self._budget.left_s <= _RESERVE_S:
            return "the limit of time leaves nothing for it: use --hours"
        needs_any = name in (Stage.ROLLOVERS, Stage.METRICS)
        if needs_any and self._polling is None and self._fan_out is None:
            return f"needs the stage {Stage.POLLING} or {Stage.FAN_OUT}"
        return ""

    # -- stages ------------------------------------------------------------------------------

    def poll(self) -> None:
        """A worker reads all, a second one joins and gets a part."""
        self._polling = fleet = self._fleet(
            self._options.names.polling_application, {"retrievalMode": "POLLING"}
        )
        self._current = [self._join(fleet, "polling-1"), self._join(fleet, "polling-2")]

    def reshard(self) -> None:
        """A split and a merge, and what they leave is read."""
        assert self._polling is not None
        began_s = time.monotonic()
        self._resources.split(self._resources.open_shards()[0])
        self._observe("seconds until a split was done", began_s)
        self._until_all_read(self._polling, self._current, time.time())
        # The lower child of the split stays, its neighbor goes on with that of before.
        left, right = self._resources.open_shards()[1:3]
        began_s = time.monotonic()
        self._resources.merge(left, right)
        self._observe("seconds until a merge was done", began_s)
        self._until_all_read(self._polling, self._current, time.time())

    def kill(self) -> None:
        """``kill -9``: the other worker reads all; then a new one joins."""
        assert self._polling is not None
        self._current = self._kill_first(self._polling, self._current, "polling-3")

    def hand_off(self) -> None:
        """An orderly stop: the other worker goes on without a record twice; a new one joins."""
        fleet = self._polling
        assert fleet is not None
        leaving, staying = self._current
        fleet.stop(leaving)
        self._until_all_read(fleet, [staying], time.time())
        self._current = [staying, self._join(fleet, "polling-4")]

    def fan_out(self) -> None:
        """Another application gets all from the beginning; one of its workers is killed."""
        names = self._options.names
        consumer = {
            "retrievalMode": "FANOUT",
            "fanoutConfig.consumerName": names.fan_out_application,
        }
        self._fan_out = fleet = self._fleet(names.fan_out_application, consumer)
        workers = [self._join(fleet, "fan-out-1"), self._join(fleet, "fan-out-2")]
        workers = self._kill_first(fleet, workers, "fan-out-3")
        self._until_all_read(fleet, workers, time.time())

    def java(self) -> None:
        """A Java worker joins one of ours, reads alone, gives back a part and is killed."""
        java, jars = self._options.java, self._options.jars
        assert java is not None
        assert jars is not None
        command, changes = java_worker(java, Path(jars))
        name = self._options.names.java_application
        self._java = fleet = self._fleet(name, OUR_PROMISE | {"metricsLevel": "NONE"})
        ours = self._join(fleet, "java-ours-1")
        since_s = time.time()
        theirs = fleet.start("java-theirs", command, changes)
        fleet.until(lambda: fleet.shards_of(theirs, since_s), "Java is given records", _JAVA_S)
        fleet.stop(ours)
        self._until_all_read(fleet, [theirs], time.time())
        ours = self._join(fleet, "java-ours-2")
        fleet.kill(theirs)
        self._until_all_read(fleet, [ours], time.time())

    def table_stream(self) -> None:
        """A worker reads all changes of a table."""
        names, resources = self._options.names, self._resources
        properties = {"streamArn": resources.source_table_stream_arn, "retrievalMode": "POLLING"}
        fleet = self._fleet(names.table_application, properties, CHANGES)
        worker = fleet.start("table-stream-1")
        dynamodb = resources.data("dynamodb")
        taken = write_changes(dynamodb, names.source_table, self._budget, self._recording)
        fleet.until(partial(fleet.has, taken), "all changes have been read", _START_S)
        fleet.stop(worker)

    def spark(self) -> None:
        """PySpark children write each record once: into a Delta table, and into an Iceberg table."""
        tables = SparkTables(self._options, self._resources)
        (self._options.directory / APP_FILE).write_text(APP)
        # Its workers have other children than the recording one: the rows are judged here.
        recording = RunRecording(self._options.directory / "spark.jsonl")
        for sink, application in tables.applications.items():
            while len(put := self.producer.taken) < _LEAST_PUT and not self.producer.failure:
                self._budget.sleep(1.0)
            fleet = self._fleet(application, tables.properties(sink), recording=recording)
            worker = fleet.start(f"spark-{sink}")

            def is_complete(sink: str = sink, put: set[tuple[str, int]] = put) -> object:
                self._budget.sleep(_ROWS_S)
                rows = tables.rows(sink)
                return rows and not lost_rows(rows, put)

            fleet.until(is_complete, f"the {sink} table has {len(put)} records", _SPARK_S)
            fleet.stop(worker)
            rows = tables.rows(sink)
            if why := why_not_once(rows, self.producer.taken, self.producer.unsure):
                raise StageFailed(f"{sink} table: {why}")
            self._recording.append("observed", name=f"rows of the {sink} table", value=len(rows))

    def rollovers(self) -> None:
        """Time passes: iterators, subscriptions and credentials expire and are renewed."""
        self.producer.pause_s = _CALM_PAUSE_S
        while self._budget.left_s > _RESERVE_S:
            since_s = time.time()
            self._budget.sleep(_CHECK_S)
            for fleet in self._fleets:
                reads = partial(fleet.shards, since_s)
                fleet.until(reads, f"{fleet.reader} goes on reading", _MOVE_S)

    def end(self) -> None:
        """All that was put is read, and all workers stop."""
        if self.producer.failure:
            raise StageFailed(self.producer.failure)
        self.producer.stop()
        taken = self.producer.taken
        for fleet in self._fleets:
            has_all = partial(fleet.has, taken)
            fleet.until(has_all, f"{fleet.reader} has read all records", _DRAIN_S)
            fleet.stop_all()

    def metrics(self) -> None:
        """What the workers sent to CloudWatch is there."""
        began_s = time.monotonic()
        read_metrics(
            self._resources.data("cloudwatch"),
            [fleet for fleet in self._fleets if fleet is not self._java],
            [shard["ShardId"] for shard in self._listed()],
            self._began_s,
            self._budget,
            self._recording,
        )
        self._observe("seconds until CloudWatch had the metrics of stopped workers", began_s)

    # -- parts of stages -----------------------------------------------------------------------

    @property
    def _fleets(self) -> list[RunFleet]:
        """Those that read the stream."""
        fleets = (self._polling, self._fan_out, self._java)
        return [fleet for fleet in fleets if fleet is not None]

    def _fleet(
        self,
        reader: str,
        properties: dict[str, str],
        source: str = RECORDS,
        recording: RunRecording | None = None,
    ) -> RunFleet:
        common = {
            "regionName": self._options.region,
            "AWSCredentialsProvider": "DefaultCredentialsProvider",
            "initialPositionInStream": "TRIM_HORIZON",
            "metricsLevel": "DETAILED",
        }
        if source == RECORDS:
            common["streamName"] = self._options.names.stream
        fleet = RunFleet(
            reader,
            source,
            common | properties,
            self._options.directory,
            self._budget,
            recording or self._recording,
        )
        return self._stack.enter_context(fleet)

    def _join(self, fleet: RunFleet, name: str) -> WorkerProcess:
        """Start a worker, and wait until it is given records."""
        since_s = time.time()
        worker = fleet.start(name)
        fleet.until(lambda: fleet.shards_of(worker, since_s), f"{name} is given records", _START_S)
        return worker

    def _kill_first(
        self, fleet: RunFleet, workers: list[WorkerProcess], name: str
    ) -> list[WorkerProcess]:
        """Kill the first of two workers; then a new one joins."""
        killed, staying = workers
        fleet.kill(killed)
        self._until_all_read(fleet, [staying], time.time())
        return [staying, self._join(fleet, name)]

    def _until_all_read(
        self, fleet: RunFleet, workers: list[WorkerProcess], since_s: float
    ) -> None:
        """Each open shard gave these workers records after that time."""
        wanted = {shard["ShardId"] for shard in self._resources.open_shards()}

        def is_read() -> bool:
            if self.producer.failure:
                raise StageFailed(self.producer.failure)
            read = set().union(*(fleet.shards_of(worker, since_s) for worker in workers))
            return read >= wanted

        names = " and ".join(worker.name for worker in workers)
        fleet.until(is_read, f"{names} read {len(wanted)} shards", _MOVE_S)

    def _observe(self, name: str, began_s: float) -> None:
        self._recording.append("observed", name=name, value=round(time.monotonic() - began_s, 1))

    def _listed(self) -> list[dict[str, Any]]:
        """All shards of the stream, closed ones, too."""
        shards: list[dict[str, Any]] = []
        request = {"StreamName": self._options.names.stream}
        while request:
            answer = self._resources.call("kinesis", "list_shards", **request)
            shards += answer["Shards"]
            token = answer.get("NextToken")
            request = {"NextToken": token} if token else {}
        return shards

    def note_shards(self) -> None:
        """The family of the stream's shards, for the judge."""
        parents = {}
        for shard in self._listed():
            named = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
            if found := [name for name in named if name]:
                parents[shard["ShardId"]] = found
        self._recording.append("shards", source=RECORDS, parents=parents)
