"""The network of one worker: every call passes here, and here is where calls go wrong.

A call is a request that travels, an effect at one instant, and an answer that travels back. The
request is out of the caller's hands once it was sent: a caller that is cancelled or loses patience
does not take the effect back, which may come long after, even while the caller stands still.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import ExpiredIterator, ServiceError, Throttled, UnknownOutcome, Unreachable
from tests.sim.loop import WORLD

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine

#: Error codes as the adapter spells them.
READ_TIMEOUT = "ReadTimeoutError"
CONNECT_TIMEOUT = "ConnectTimeoutError"


@dataclass
class Weather:
    """What the network of one worker is like just now; the nemesis changes it.

    Attributes:
        latency_s: shortest and longest way, each direction.
        slow_probability: how often one way takes ``slow_s`` at most instead.
        lost_before: probability that a request is lost.
        lost_after: probability that an answer is lost.
        throttled: probability of a refusal.
        broken: probability of an internal error of the service.
        expired: probability that GetRecords finds its iterator too old.
        partitioned: services that cannot be reached.
    """

    latency_s: tuple[float, float] = (0.002, 0.02)
    slow_probability: float = 0.0
    slow_s: float = 4.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    throttled: float = 0.0
    broken: float = 0.0
    expired: float = 0.0
    partitioned: set[str] = field(default_factory=set)


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Result of a coroutine that never really waits.

    Raises:
        RuntimeError: it waited: the fakes must do their work in one go.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise RuntimeError("a fake waited inside an effect")


class Gate:
    """One worker's way to the world.

    Args:
        rng: of this worker only, so that one worker's calls do not shift another's luck.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.weather = Weather()
        self.dead = False
        self.calls = 0
        #: Called with the number of the call that is about to be sent.
        self.on_call: Callable[[int], None] | None = None

    # -- the process itself --------------------------------------------------------------------

    def kill(self) -> None:
        """As ``kill -9``: from now on no call returns."""
        self.dead = True

    async def passable(self) -> None:
        """Return; never when the process is dead."""
        if self.dead:
            await asyncio.get_running_loop().create_future()

    # -- calls ---------------------------------------------------------------------------------

    def _way_s(self) -> float:
        weather = self.weather
        if weather.slow_probability and self.rng.random() < weather.slow_probability:
            return self.rng.uniform(0.1, weather.slow_s)
        return self.rng.uniform(*weather.latency_s)

    async def call(
        self,
        service: str,
        operation: str,
        effect: Callable[[], Coroutine[Any, Any, Any]],
        timeout_s: float,
    ) -> Any:
        """The answer of ``effect``, or an error of ``kcl_mld.errors``.

        Raises:
            Unreachable: nothing was sent.
            UnknownOutcome: no answer within ``timeout_s``; the effect may come even later.
            Throttled: refused, nothing happened.
            AwsError: what the service answered.
        """
        await self.passable()
        self.calls += 1
        if self.on_call is not None:
            self.on_call(self.calls)
        loop = asyncio.get_running_loop()
        later = partial(loop.call_later, context=WORLD)
        answer: asyncio.Future[Any] = loop.create_future()
        there_s, back_s = self._way_s(), self._way_s()
        if service in self.weather.partitioned:
            refused = self.rng.random() < 0.5
            later(timeout_s, self._no_answer, answer, operation, refused)
        elif (refusal := self._refusal(operation)) is not None:
            later(there_s + back_s, self._deliver, answer, None, refusal)
        elif self._happens(self.weather.lost_before):
            later(timeout_s, self._no_answer, answer, operation, False)
        else:
            lost = self._happens(self.weather.lost_after)
            if lost or there_s + back_s >= timeout_s:
                later(timeout_s, self._no_answer, answer, operation, False)
            later(there_s, self._effect, answer, effect, None if lost else back_s)
        result = await answer
        await self.passable()
        if isinstance(result, Exception):
            raise result
        return result

    async def carry(self, service: str, operation: str) -> None:
        """What is pushed on its way to the worker; a cut connection is noticed at its end.

        Raises:
            MldError: the connection broke, or the service ended it.
        """
        weather, why = self.weather, "by the nemesis"
        while service in weather.partitioned:  # noqa: ASYNC110 - packets are sent again and again
            await asyncio.sleep(1)
        await asyncio.sleep(self._way_s())
        await self.passable()
        if self._happens(weather.lost_before) or self._happens(weather.lost_after):
            raise UnknownOutcome(operation, "ProtocolError", why)
        if self._happens(weather.broken):
            raise ServiceError(operation, "InternalFailureException", why)
        if self._happens(weather.throttled / 2):
            raise Throttled(operation, "KMSThrottlingException", why)
        if self._happens(weather.expired):
            raise UnknownOutcome(operation, "ChecksumMismatch", why)

    def _happens(self, probability: float) -> bool:
        return bool(probability) and self.rng.random() < probability

    def _refusal(self, operation: str) -> ServiceError | None:
        """The service's own error, when it is in the mood."""
        weather, why = self.weather, "by the nemesis"
        if self._happens(weather.throttled):
            return Throttled(operation, "ProvisionedThroughputExceededException", why)
        if self._happens(weather.broken):
            return ServiceError(operation, "InternalServerError", why)
        if operation == "GetRecords" and self._happens(weather.expired):
            return ExpiredIterator(operation, "ExpiredIteratorException", why)
        return None

    def _effect(
        self,
        answer: asyncio.Future[Any],
        effect: Callable[[], Coroutine[Any, Any, Any]],
        back_s: float | None,
    ) -> None:
        if self.dead and self.rng.random() < 0.5:
            return  # the packet was still in the dead process
        result: Any = None
        error: Exception | None = None
        try:
            result = drive(effect())
        except Exception as raised:  # noqa: BLE001 - whatever it is, the caller gets it
            error = raised
        if back_s is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(back_s, self._deliver, answer, result, error, context=WORLD)

    def _no_answer(self, answer: asyncio.Future[Any], operation: str, refused: bool) -> None:
        error = (
            Unreachable(operation, CONNECT_TIMEOUT, "by the nemesis")
            if refused
            else UnknownOutcome(operation, READ_TIMEOUT, "by the nemesis")
        )
        self._deliver(answer, None, error)

    @staticmethod
    def _deliver(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        if not answer.done():  # as a result: an exception that nobody fetches would be reported
            answer.set_result(result if error is None else error)
