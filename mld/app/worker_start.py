"""The start of a worker: table, fleet check, first shard sync, own leases.

It is attempted as often as configured, and a stop ends it at once. It never starts a consumer or a
service loop, and never releases leases that it adopted: the Scheduler does.

Throttled calls are retried individually (:class:`StartCalls`): a start makes a dozen of them, and
if each failure began a new start, it would never complete where 40 % are throttled.

Source: Scheduler.initialize (KCL 3.5.1), without its pauses that have no purpose; the AWS SDK
retries Java's calls.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mld.errors import (
    AwsError,
    CredentialsRefused,
    LimitExceeded,
    MissingStreams,
    MixedTable,
    MldError,
    NotFound,
    ResourceMissing,
    ServiceError,
    Throttled,
    UnknownOutcome,
    Unreachable,
    UnservableFleet,
)
from mld.kernel.rules.backoff import backoff_s
from mld.signals.model.metrics import START
from mld.signals.model.reasons import Reason

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from mld.app.worker_streams import WorkerStreams
    from mld.config.config import Config
    from mld.fleet.lease_coordinator import LeaseCoordinator
    from mld.kernel.ports import Clock
    from mld.signals.conditions import Conditions
    from mld.signals.ports import Metrics

log = logging.getLogger("mld.app")

#: What the start asks of Kinesis; a missing table is reported by operations of DynamoDB.
_STREAM_OPERATIONS = frozenset({"DescribeStreamSummary", "ListShards"})

#: A start that is throttled for longer fails, so that a supervisor sees it.
THROTTLED_S = 120.0
_FIRST_PAUSE_S = 0.2
_LAST_PAUSE_S = 5.0
_SAID_EVERY_S = 10.0
#: The call was not carried out and may succeed a moment later.
_THROTTLED = (Throttled, LimitExceeded)
#: Some callers retry these themselves at each attempt to start; this is their limit.
_LASTING = (Unreachable, UnknownOutcome, CredentialsRefused)
_LATE = frozenset({"ConnectTimeoutError", "ReadTimeoutError", "SlowAnswer"})

_READS = ("describe", "get", "list", "query", "scan")
#: What reads a table whole is repeated later, too, so often: its next turn is seconds away, and a
#: leader that fails thrice leaves its fleet without one for a while.
_ALWAYS_REPEATED = ("query", "scan")
_REPEATS = 3

P = TypeVar("P")


class StartCalls:
    """Retries throttled calls of a start and scans, and limits how long a start's call may fail.

    Args:
        config: how long a refused start is retried; the time limit of a call on the lease table.
        is_starting: afterwards only reads of whole tables are retried, and only three times.
        conditions: for ``/readyz``, of calls that are being retried.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        rng: random.Random,
        is_starting: Callable[[], bool],
        conditions: Conditions,
    ) -> None:
        shards = config.shards
        self._lasting_s = max(1, shards.initialization_attempts) * shards.initialization_backoff_s
        self._leases = config.leases
        self._clock = clock
        self._rng = rng
        self.is_starting = is_starting
        self._conditions = conditions
        self._said_at: float | None = None
        #: Operation -> when it began to fail without a success since.
        self._failing_since: dict[str, float] = {}

    def of(self, port: P, patient: Callable[[], P] | None = None) -> P:
        """A port whose calls are retried during the start.

        Args:
            port: of DynamoDB or Kinesis.
            patient: creates one with a longer time limit, for when a call times out.
        """
        return cast("P", _StartPort(self, port, patient))

    async def repeated(self, operation: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """The outcome of a call, as soon as it is not throttled.

        Raises:
            AwsError: it failed otherwise.
            MldError: it has failed for too long; the start is to end.
        """
        failures = 0
        try:
            while True:
                try:
                    answer = await call()
                except AwsError as error:
                    if self.is_starting():
                        self._check(operation, error, failures + 1)
                    if not isinstance(error, _THROTTLED):
                        raise
                    if failures >= _REPEATS and not self.is_starting():
                        raise
                else:
                    self._failing_since.pop(operation, None)
                    return answer
                pause_s = backoff_s(
                    failures, self._rng, first_s=_FIRST_PAUSE_S, cap_s=_LAST_PAUSE_S
                )
                failures += 1
                await asyncio.sleep(pause_s)
        finally:
            self._conditions.clear(Reason.START_FAILS, operation)

    def _check(self, operation: str, error: AwsError, attempt: int) -> None:
        """Say that a call is throttled; raise when it has failed for too long."""
        is_throttled = isinstance(error, _THROTTLED)
        if not is_throttled and not isinstance(error, _LASTING) and type(error) is not ServiceError:
            return
        now = self._clock.monotonic()
        failing_s = now - self._failing_since.setdefault(operation, now)
        if failing_s >= (THROTTLED_S if is_throttled else self._lasting_s):
            raise MldError(f"unable to initialize within {failing_s:.0f} s: {error}") from error
        if not is_throttled:
            return
        text = f"attempt {attempt} of a call was throttled, it is repeated: {error}"
        self._conditions.report(Reason.START_FAILS, text, operation)
        if self._said_at is None or now - self._said_at >= _SAID_EVERY_S:
            self._said_at = now
            log.warning("The start is throttled and keeps retrying: %s", error)

    def say_late(self, error: AwsError) -> None:
        """A call on the lease table took longer than a renewal may."""
        log.warning(
            "%s: the lease table needs more than the %.2g s that failoverTimeMillis = %.0f leaves a "
            "call. The start continues with more time; to keep leases, raise failoverTimeMillis",
            error,
            self._leases.request_timeout_s,
            self._leases.failover_s * 1000,
        )


class _StartPort:
    """Every operation of a port, by :class:`StartCalls` while the worker starts."""

    def __init__(self, calls: StartCalls, port: Any, patient: Callable[[], Any] | None) -> None:
        self._calls = calls
        self._port = port
        self._patient = patient
        self._used = port

    def __getattr__(self, operation: str) -> Any:
        is_starting = self._calls.is_starting()
        made = getattr(self._port, operation)
        if not is_starting and operation not in _ALWAYS_REPEATED:
            return made

        async def call(**request: Any) -> Any:
            once = partial(self._call, operation) if is_starting else made
            return await self._calls.repeated(operation, partial(once, **request))

        return call

    async def _call(self, operation: str, **request: Any) -> Any:
        used = self._used
        try:
            return await getattr(used, operation)(**request)
        except AwsError as error:
            if self._patient is None or used is not self._port or error.code not in _LATE:
                raise
            if self._used is self._port:
                self._calls.say_late(error)
                self._used = self._patient()
            if isinstance(error, UnknownOutcome) and not operation.startswith(_READS):
                raise  # a writer finds out by reading
        return await getattr(self._used, operation)(**request)


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
