"""Worker metrics: each worker's report to the leader of a 3.x fleet, and reading all of them.

They show that a worker is alive, and how loaded it is. A worker without a recent item is assigned
no lease. So the first item is written before anything is measured, and a worker that stops deletes
its item, so that no more leases are assigned to it. Measurements are reported only where all others
report theirs, see :mod:`kcl_mld.fleet.rules.worker_sightings`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING, Any, TypeAlias

from kcl_mld.errors import AwsError, Denied, NotFound
from kcl_mld.fleet.model.worker_life import failed_lives_in
from kcl_mld.fleet.model.worker_metrics import (
    FAILED_SAMPLE,
    SINGLE_TABLE_MIGRATION,
    WorkerMetrics,
    metrics_in,
)
from kcl_mld.fleet.rules.assignment.fleet import REPORTS_MISSED
from kcl_mld.fleet.rules.assignment.looks import LONGEST_PAUSE_S
from kcl_mld.fleet.rules.worker_sightings import OtherFigures
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.kernel.rules.clock_offset import wrong_by_s
from kcl_mld.leases.model.table_item import rounded
from kcl_mld.signals.failing_condition import FailingCondition
from kcl_mld.signals.model.conditions import Conditions, Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kcl_mld.config.fleet import FleetConfig
    from kcl_mld.fleet.coordinator_state import CoordinatorStateStore
    from kcl_mld.fleet.model.worker_life import FailedLife
    from kcl_mld.fleet.model.worker_metrics import WorstLag
    from kcl_mld.fleet.own_process import OwnProcess
    from kcl_mld.fleet.twin_watch import TwinWatch
    from kcl_mld.kernel.concurrency import Wakeup
    from kcl_mld.kernel.ports import Clock, LoadSource
    from kcl_mld.leases.lease_scan import TableScan
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.signals.runtime import Runtime

log = logging.getLogger("mld.fleet")

#: Samples that are kept between two reports (WorkerMetricStatsManager, 3.5.1).
MOST_SAMPLES = 300
#: Operating range in percent; Java's default, too.
OPERATING_RANGE = 100
#: Pauses between retries of a failed report, in seconds.
RETRY_FIRST_S = 0.5
RETRY_CAP_S = 5.0
#: Pauses between attempts to delete the item at the end, in seconds.
RETIRE_FIRST_S = 0.1
RETIRE_CAP_S = 1.0
#: At the end, the item is deleted within this many seconds, or expires.
RETIRE_LIMIT_S = 6.0

#: Failover times between the first and the second report: the scans of a leader that see both are
#: at least one failover time apart.
SECOND_SHARE = 1.5
#: Seconds between two reports after a loss: a leader may notice the loss up to two of its scans
#: later than this worker, and only a later report shows it that this worker is alive.
AGAIN_S = LONGEST_PAUSE_S

#: Java's short name of the CPU.
CPU = "C"

FindLoad: TypeAlias = "Callable[[], Awaitable[LoadSource | None]]"


class WorkerMetricsReader:
    """Reads the metrics of all workers, wherever they are stored."""

    def __init__(self, items: CoordinatorStateStore, store: LeaseStore, clock: Clock) -> None:
        self._items = items
        self._store = store
        self._clock = clock
        # A change of the wall clock must not change the age of earlier records.
        self._epoch_s = clock.wall() - clock.monotonic()
        self._unreadable: set[tuple[str, str]] = set()

    def now_s(self) -> float:
        """Epoch seconds for the age of an item, by a clock that can't be set."""
        now_s = self._clock.monotonic() + self._epoch_s
        if self._clock.ahead_s() is None:
            return now_s
        return min(now_s, self._clock.corrected())

    async def read(self, scan: TableScan) -> tuple[WorkerMetrics, ...]:
        """The newest item of each worker, given a scan of the lease table."""
        stored, broken = await self._stored(scan)
        for worker, why in sorted(set(broken) - self._unreadable):
            text = "The metrics of worker %s can't be read, so it is given no leases: %s"
            log.warning(text, worker, why)
        self._unreadable = set(broken)
        return tuple(stored.values())

    async def read_recent(self, oldest_s: float) -> tuple[WorkerMetrics, ...]:
        """The newest item of each worker, for occasional readers.

        Args:
            oldest_s: maximum age of a reused scan.
        """
        scan = self._store.last_scan
        if scan is None or self._clock.monotonic() - scan.started_at > oldest_s:
            scan = await self._store.scan()
        stored, _broken = await self._stored(scan)
        return tuple(stored.values())

    def in_scan(self, scan: TableScan) -> tuple[WorkerMetrics, ...] | None:
        """The items of a scan alone; None if other tables have some."""
        if not self._items.layout.is_single_table:
            return None
        return metrics_in(scan.foreign.values(), self._items.layout.leases.key_name)[0]

    def failed_in(self, scan: TableScan) -> tuple[FailedLife, ...]:
        """The processes that left an item when they failed.

        Such items are in the lease table only.
        """
        return failed_lives_in(scan.foreign.values(), self._items.layout.leases.key_name)

    async def note(self, life: FailedLife) -> None:
        """Store an item of a process that died.

        Does nothing for an application with three tables.
        """
        if self._items.layout.is_single_table:
            await self._items.note_failed_life(life)

    async def forget(self, life: FailedLife) -> None:
        """Delete the item of a process that failed."""
        await self._items.forget_failed_life(life)

    async def delete(self, metrics: WorkerMetrics) -> None:
        """Delete an outdated item, unless it was written meanwhile."""
        for place in self._items.layout.metrics_reads:
            await self._items.delete_metrics(place, metrics)

    async def _stored(
        self, scan: TableScan
    ) -> tuple[dict[str, WorkerMetrics], tuple[tuple[str, str], ...]]:
        """Worker id -> its metrics, the newer of two items.

        And (worker id, reason) of unreadable ones.
        """
        found, broken = metrics_in(scan.foreign.values(), self._items.layout.leases.key_name)
        stored = {one.worker_id: one for one in found}
        if not self._items.layout.is_single_table:
            legacy, broken_too = await self._items.legacy_metrics()
            broken += broken_too
            for one in legacy:
                other = stored.get(one.worker_id)
                if other is None or other.updated_at_s < one.updated_at_s:
                    stored[one.worker_id] = one
        return stored, broken


class WorkerMetricsReporter:
    """Measures and reports while :meth:`run` runs.

    Args:
        config: section ``fleet``.
        find_load: finds the source of this worker's load. Without one, the worker is judged by its
            throughput.
        others: the metrics of all workers; without them no figures are reported.
        on_first: called after the first report is stored: the worker can be assigned leases.
        failover_s: of the fleet. A second report follows the first so soon that a leader that lets
            newcomers wait for one failover time then knows that this one is alive; None = no second
            report.
        lapses: set when this worker loses a lease or the lead by expiry; it then reports at once.
        find_most: how many leases this worker can renew in time; None = unknown.
        find_worst_lag: which lease is furthest behind; None = none is read.
        process: this process; None = the items don't name it.
        twins: gets the item that each report replaces, and may stop the reports.
    """

    def __init__(  # noqa: PLR0913 - what surrounds it
        self,
        store: CoordinatorStateStore,
        config: FleetConfig,
        worker_id: str,
        runtime: Runtime,
        *,
        find_load: FindLoad | None,
        others: WorkerMetricsReader | None,
        conditions: Conditions,
        on_first: Callable[[], None],
        failover_s: float | None,
        lapses: Wakeup,
        find_most: Callable[[], int | None],
        find_worst_lag: Callable[[], WorstLag | None],
        process: OwnProcess | None,
        twins: TwinWatch | None,
    ) -> None:
        self._store = store
        self._config = config
        self._worker_id = worker_id
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._find_load = find_load if config.measures else None
        self._samples: dict[str, list[float]] = {}
        self._means: dict[str, tuple[float, ...]] = {}
        self._place: str | None = None
        self._reader = others
        self._others = OtherFigures()
        self._on_first: Callable[[], None] | None = on_first
        self._last: WorkerMetrics | None = None
        self._why_not = ""
        self._reporting: asyncio.Task[Any] | None = None
        self._is_answered = asyncio.Event()
        self._second_s = None if failover_s is None else SECOND_SHARE * failover_s
        self._lapses = lapses
        self._find_most = find_most
        self._find_worst_lag = find_worst_lag
        self._process = process
        self._twins = twins
        self._failing = FailingCondition(Reason.METRICS_FAIL, conditions, runtime.clock)

    async def run(self) -> None:
        """Measure and report until cancelled; then delete the item.

        Raises:
            ConfigError: this worker's id is the key of another item in the lease table.
        """
        try:
            async with asyncio.TaskGroup() as group:
                if self._find_load is not None:
                    group.create_task(self._take_samples(self._find_load))
                group.create_task(self._report_for_ever())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            self._failing.forget()
            await self._retire()

    async def report_once(self) -> None:
        """Write an item now; only read while another process with this worker id continues.

        Raises:
            ConfigError: as :meth:`run`.
            AwsError: it was not written.
        """
        if self._twins is not None and self._twins.stands_aside:
            await self._twins.look()
            if self._twins.stands_aside:
                return
        now_s = int(self._clock.service())
        wrong_s = wrong_by_s(self._clock.ahead_s())
        means = self._means if self._others.are_reported else {}
        metrics = WorkerMetrics(
            worker_id=self._worker_id,
            updated_at_s=now_s,
            samples=means,
            limits=dict.fromkeys(means, (OPERATING_RANGE,)),
            support=SINGLE_TABLE_MIGRATION,
            support_at_s=now_s,
            group=self._config.group,
            place=self._place,
            most=self._find_most(),
            honors_pause=True,
            clock_ahead_s=None if wrong_s is None else round(wrong_s),
            instance=None if self._process is None else self._process.instance,
            worst_lag=self._find_worst_lag(),
        )
        self._last = metrics
        replaced = await self._store.report(metrics)
        if self._process is not None:
            await self._process.reported(replaced)
        if self._twins is not None:
            self._twins.reported(replaced)

    async def _report_to_the_end(self) -> None:
        self._reporting = asyncio.current_task()
        self._is_answered.clear()
        try:
            await self.report_once()
        finally:
            self._is_answered.set()

    async def _report_for_ever(self) -> None:
        failures, early_s = 0, self._second_s
        due_at = self._clock.monotonic() + self._config.report_s
        while True:
            try:
                # Not cancelled with this loop: an item that is written after its deletion remains.
                await asyncio.shield(self._report_to_the_end())
            except AwsError as error:
                table = self._store.layout.metrics.table
                text = f"Could not write this worker's metrics into table {table}; without them "
                self._failing.failed(f"{text}it gets no leases", error)
                first_s, cap_s = RETRY_FIRST_S, RETRY_CAP_S
                pause_s = backoff_s(failures, self._rng, first_s=first_s, cap_s=cap_s)
                failures += 1
                await asyncio.sleep(pause_s)
                continue
            failures = 0
            self._failing.resolved()
            if self._on_first is not None:
                self._on_first()
                self._on_first = None
            left_s = due_at - self._clock.monotonic()
            is_due = early_s is None or early_s >= left_s
            if await self._lapses.wait(left_s if is_due else early_s):
                early_s = AGAIN_S
                continue
            early_s = None
            if is_due:
                due_at = self._clock.monotonic() + self._config.report_s
                self._summarize()
                await self._look_at_others()

    async def _look_at_others(self) -> None:
        """Check whether another worker has no figures; a failed read changes nothing."""
        if self._reader is None or self._place is None:
            return
        try:
            found = await self._reader.read_recent(self._config.report_s)
        except AwsError as error:
            log.debug("Could not read the metrics of the other workers: %s", error)
            return
        others = [one for one in found if one.worker_id != self._worker_id]
        before, now = self._others, self._clock.monotonic()
        expiry_s = REPORTS_MISSED * self._config.report_s
        self._others = before.seen(others, now, self._reader.now_s(), expiry_s)
        if self._others.without and not before.without:
            text = (
                "Worker %s reports no CPU, so this worker reports none either: a Java leader "
                "compares only workers that report the same"
            )
            log.info(text, self._others.without[0])
        elif self._others.are_reported and not before.are_reported:
            log.info("All other workers report their CPU, so this worker reports its own")

    def _summarize(self) -> None:
        """Append the mean of each metric since the last report; -1 where nothing was measured."""
        for name in sorted({*self._samples, *self._means}):
            taken = self._samples.get(name)
            mean = rounded(sum(taken) / len(taken)) if taken else FAILED_SAMPLE
            self._means[name] = (*self._means.get(name, ()), mean)[-self._config.samples :]
        self._samples = {}

    async def _take_samples(self, find_load: FindLoad) -> None:
        source = await find_load()
        if source is None:
            log.info("The CPU can't be measured here; this worker is judged by its throughput only")
            return
        log.info("This worker reports the CPU of: %s", source.name)
        self._place = source.place
        await asyncio.sleep(self._rng.random() * self._config.sample_s)
        while True:
            percent = await source.sample()
            if percent is not None and 0 <= percent <= 100:
                samples = self._samples.setdefault(CPU, [])
                samples.append(percent)
                del samples[:-MOST_SAMPLES]
            await asyncio.sleep(self._config.sample_s)

    async def _retire(self) -> None:
        """Delete the item, if the table responds in time.

        A process that failed stores another one.
        """
        if self._last is None:
            return
        try:
            # Not asyncio.timeout: before Python 3.11.3 it raises nothing in a task that was cancelled.
            await asyncio.wait_for(self._delete(self._last), RETIRE_LIMIT_S)
        except TimeoutError:
            why = self._why_not or f"no answer within {RETIRE_LIMIT_S:g} s"
            log.warning("Could not delete this worker's metrics; they will expire: %s", why)
        finally:
            self._last = None
            if self._reporting is not None:
                self._reporting.cancel()

    async def _delete(self, last: WorkerMetrics) -> None:
        """Repeat until it succeeds.

        While the item exists, other workers assign leases to this one.
        """
        self._why_not = ""
        if self._reporting is not None:
            await self._is_answered.wait()
        if self._process is not None:
            await self._process.ended()
        for attempt in itertools.count():
            try:
                await self._store.delete_metrics(self._store.layout.metrics, last)
            except (Denied, NotFound) as error:
                log.warning("Could not delete this worker's metrics; they will expire: %s", error)
                return
            except AwsError as error:
                self._why_not = str(error)
            else:
                return
            pause_s = backoff_s(attempt, self._rng, first_s=RETIRE_FIRST_S, cap_s=RETIRE_CAP_S)
            await asyncio.sleep(pause_s)
