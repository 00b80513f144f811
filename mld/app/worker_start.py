"""The start of a worker: table, fleet check, first shard sync, own leases.

It is attempted as often as configured, and a stop ends it at once. It never starts a consumer or a
service loop, and never releases leases that it adopted: the Scheduler does.

Throttled calls are retried individually (:mod:`kcl_mld.app.start_calls`).

Source: Scheduler.initialize (KCL 3.5.1), without its pauses that have no purpose; the AWS SDK
retries Java's calls.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import (
    AwsError,
    MissingStreams,
    MixedTable,
    MldError,
    NotFound,
    ResourceMissing,
    UnservableFleet,
)
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.signals.model.metrics import START

if TYPE_CHECKING:
    from kcl_mld.app.worker_streams import WorkerStreams
    from kcl_mld.config.config import Config
    from kcl_mld.fleet.lease_coordinator import LeaseCoordinator
    from kcl_mld.signals.ports import Metrics

log = logging.getLogger("mld.app")

#: What the start asks of Kinesis; a missing table is reported by operations of DynamoDB.
_STREAM_OPERATIONS = frozenset(
    {"DescribeStreamSummary", "ListShards", "DescribeStream", "ListStreams"}
)


class WorkerStart:
    """One start. Use: ``started = await WorkerStart(...).run_unless(stop_requested)``."""

    def __init__(
        self,
        config: Config,
        coordinator: LeaseCoordinator,
        streams: WorkerStreams,
        metrics: Metrics,
        conditions: Conditions,
    ) -> None:
        self._conditions = conditions
        self._config = config
        self._coordinator = coordinator
        self._streams = streams
        self._metrics = metrics
        self._failure: Exception | None = None

    async def run_unless(self, stop_requested: asyncio.Event) -> bool:
        """Initialize unless a stop comes first.

        Returns:
            False when the stop came first; leases may be held nevertheless.

        Raises:
            ResourceMissing: stream or table do not exist after all attempts.
            UnservableFleet: the lease table is one that this version cannot serve.
            MldError: initialization failed for another reason.
        """
        async with asyncio.TaskGroup() as group:
            initialize = group.create_task(self._try_initialize(), name="initialize")
            watch = group.create_task(_cancel_on(stop_requested, initialize), name="stop-watch")
            # What it resumes first may be due before it has read the list of shards.
            renewing = group.create_task(self._coordinator.renewer.heartbeat.run(), name="renewals")
            initialize.add_done_callback(lambda _: watch.cancel())
            initialize.add_done_callback(lambda _: renewing.cancel())
        if self._failure is not None:
            raise self._failure
        return not initialize.cancelled()

    async def _try_initialize(self) -> None:
        """Keep the error instead of letting a TaskGroup wrap it."""
        try:
            await self._initialize()
        except Exception as error:  # noqa: BLE001 - raised by the caller
            self._failure = error

    async def _initialize(self) -> None:
        """All steps, up to the configured attempts."""
        shards = self._config.shards
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._coordinator.start()
                await self._streams.start()
            except MixedTable as error:
                raise UnservableFleet(error.message) from error
            except AwsError as error:
                self._metrics.add(START, 0)
                attempts = self._attempts(error)
                text = f"attempt {attempt} of {attempts} to start failed: {error}"
                self._conditions.report(Reason.START_FAILS, text)
                if attempt >= attempts:
                    raise self._gave_up(error, attempt) from error
                if attempt == 1 and _is_about_stream(error):
                    wait_s = (attempts - 1) * shards.initialization_backoff_s
                    log.warning("%s; waiting %.3g s for it", self._missing_stream(error), wait_s)
                else:
                    log.warning("Start attempt %d of %d failed: %s", attempt, attempts, error)
                await asyncio.sleep(shards.initialization_backoff_s)
            else:
                self._conditions.clear(Reason.START_FAILS)
                self._metrics.add(START, 1)
                log.info("Initialized as worker %s", self._config.worker_id)
                return

    def _attempts(self, error: AwsError) -> int:
        shards = self._config.shards
        attempts = max(1, shards.initialization_attempts)
        return (
            min(attempts, shards.missing_stream_attempts) if _is_about_stream(error) else attempts
        )

    def _gave_up(self, error: AwsError, attempts: int) -> MldError:
        if _is_about_stream(error):
            return ResourceMissing(f"{self._missing_stream(error)} ({attempts} attempts)")
        if isinstance(error, NotFound):
            table = self._config.leases.table_name
            return ResourceMissing(
                f"the lease table {table} does not exist after {attempts} attempts ({error});"
                " create it or correct the name"
            )
        return MldError(f"unable to initialize after {attempts} attempts: {error}")

    def _missing_stream(self, error: AwsError) -> str:
        config = self._config
        region = config.aws.kinesis_region or config.stream.region
        endpoint = config.aws.kinesis_endpoint
        place = f" in {region}" if region else ""
        place += f" at {endpoint}" if endpoint else ""
        if isinstance(error, MissingStreams):
            names = ", ".join(error.names)
            what = f"stream {names} does" if len(error.names) == 1 else f"streams {names} do"
            return (
                f"the {what} not exist{place} ({error}); create what is missing or correct the"
                " names: check streams, regionName and whose credentials are used"
            )
        key = "streamName" if config.stream.arn is None else "streamArn"
        return (
            f"the stream {config.stream.name} does not exist{place} ({error});"
            f" create it or correct the name: check {key}, regionName and whose credentials are used"
        )


def _is_about_stream(error: AwsError) -> bool:
    return isinstance(error, NotFound) and error.operation in _STREAM_OPERATIONS


async def _cancel_on(stop_requested: asyncio.Event, task: asyncio.Task[None]) -> None:
    await stop_requested.wait()
    task.cancel()
