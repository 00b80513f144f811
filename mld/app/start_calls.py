"""The calls of a start: repeated while they are throttled, with more time if an answer is late.

A start makes a dozen calls. If each one that is throttled began a new start, none would complete
where 40 % are throttled. After the start, each service decides for itself what it repeats, and
calls go to the ports directly.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kcl_mld.errors import (
    AwsError,
    CredentialsRefused,
    LimitExceeded,
    MldError,
    ServiceError,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.signals.model.conditions import Conditions, Reason

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from kcl_mld.config.config import Config
    from kcl_mld.kernel.ports import Clock

log = logging.getLogger("mld.app")

#: A start that is throttled for longer fails, so that a supervisor sees it.
THROTTLED_S = 120.0
_FIRST_PAUSE_S = 0.2
_LAST_PAUSE_S = 5.0
#: Seconds between two log lines about throttled calls.
_LOGGED_EVERY_S = 10.0
#: The call was not carried out and may succeed a moment later.
_THROTTLED = (Throttled, LimitExceeded)
#: Some callers retry these themselves at each attempt to start; this is their limit.
_LASTING = (Unreachable, UnknownOutcome, CredentialsRefused)
_LATE = frozenset({"ConnectTimeoutError", "ReadTimeoutError", "SlowAnswer"})

_READS = ("describe", "get", "list", "query", "scan")

P = TypeVar("P")


class StartCalls:
    """Retries throttled calls of a start, and limits how long a call may fail.

    Args:
        config: how long a refused start is retried; the time limit of a call on the lease table.
        conditions: for ``/readyz``, of calls that are being retried.
    """

    def __init__(
        self, config: Config, clock: Clock, rng: random.Random, conditions: Conditions
    ) -> None:
        shards = config.shards
        self._lasting_s = max(1, shards.initialization_attempts) * shards.initialization_backoff_s
        self._leases = config.leases
        self._clock = clock
        self._rng = rng
        self._conditions = conditions
        self._is_over = False
        self._ports: list[_StartPort] = []
        self._logged_at: float | None = None
        #: Operation -> when it began to fail without a success since.
        self._failing_since: dict[str, float] = {}

    def of(self, interface: Any, port: P, patient: Callable[[], P] | None = None) -> P:
        """A port whose calls are retried until :meth:`end`.

        Args:
            interface: of the port; its methods are the operations.
            port: of DynamoDB or Kinesis.
            patient: creates one with a longer time limit, for when a call times out.
        """
        made = _StartPort(self, [name for name in vars(interface) if name[0] != "_"], port, patient)
        self._ports.append(made)
        return cast("P", made)

    def end(self) -> None:
        """The start has succeeded: from now on, calls go to the ports directly."""
        self._is_over = True
        for port in self._ports:
            port.end()

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
                    if self._is_over:
                        raise
                    self._check(operation, error, failures + 1)
                    if not isinstance(error, _THROTTLED):
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
        """Report that a call is throttled; raise when it has failed for too long."""
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
        if self._logged_at is None or now - self._logged_at >= _LOGGED_EVERY_S:
            self._logged_at = now
            log.warning("The start is throttled and keeps retrying: %s", error)

    def log_late(self, error: AwsError) -> None:
        """Log that a call on the lease table took longer than a renewal may."""
        log.warning(
            "%s: the lease table needs more than the %.2g s that failoverTimeMillis = %.0f leaves a "
            "call. The start continues with more time; to keep leases, raise failoverTimeMillis",
            error,
            self._leases.request_timeout_s,
            self._leases.failover_s * 1000,
        )


class _StartPort:
    """A port whose attributes are its operations.

    Until :meth:`end`, each is a call by :class:`StartCalls`; then it is the port's own method.
    """

    def __init__(
        self,
        calls: StartCalls,
        operations: list[str],
        port: Any,
        patient: Callable[[], Any] | None,
    ) -> None:
        self._calls = calls
        self._operations = operations
        self._port = port
        self._patient = patient
        self._used = port
        for operation in operations:
            setattr(self, operation, partial(self._repeated, operation))

    def end(self) -> None:
        for operation in self._operations:
            setattr(self, operation, getattr(self._port, operation))

    async def _repeated(self, operation: str, **request: Any) -> Any:
        return await self._calls.repeated(operation, partial(self._call, operation, **request))

    async def _call(self, operation: str, **request: Any) -> Any:
        used = self._used
        try:
            return await getattr(used, operation)(**request)
        except AwsError as error:
            if self._patient is None or used is not self._port or error.code not in _LATE:
                raise
            if self._used is self._port:
                self._calls.log_late(error)
                self._used = self._patient()
            if isinstance(error, UnknownOutcome) and not operation.startswith(_READS):
                raise  # a writer finds out by reading
        return await getattr(self._used, operation)(**request)
