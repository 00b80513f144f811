"""The ports of one worker: the shared world behind the worker's own gate, and its own clocks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import MldError
from kcl_mld.kernel.adapters.system import ROUNDED_S
from kcl_mld.kernel.ports import Clock

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine

    from kcl_mld.aws.ports import Subscription
    from tests.sim.gate import Gate

#: Wall-clock time at virtual second 0.
EPOCH_S = 1_790_000_000.0


class ThroughGate:
    """Any port of one async method per operation, behind a gate.

    Args:
        service: name for faults, ``dynamodb``, ``kinesis`` or ``cloudwatch``.
        shared: the fake that all workers share.
        timeout_s: after which the client gives up on an answer.
        entered: called before each effect.
        sent: called with each request, at the moment when it leaves the process.
    """

    def __init__(
        self,
        service: str,
        shared: Any,
        gate: Gate,
        timeout_s: float,
        entered: Callable[[], None] | None = None,
        sent: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._service = service
        self._shared = shared
        self._gate = gate
        self._timeout_s = timeout_s
        self._entered = entered
        self._sent = sent

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self._shared, name)
        operation = "".join(word.capitalize() for word in name.split("_"))

        async def call(**request: Any) -> Any:
            async def effect() -> Any:
                if self._entered is not None:
                    self._entered()
                return await method(**request)

            if self._sent is not None:
                self._sent(request)
            answer = await self._gate.call(self._service, operation, effect, self._timeout_s)
            if operation == "SubscribeToShard":
                return SubscriptionThroughGate(answer, self._gate)
            return answer

        setattr(self, name, call)
        return call


class SubscriptionThroughGate:
    """The events of a subscription on their way to a worker.

    Args:
        shared: the fake's.
        gate: of the worker.
    """

    def __init__(self, shared: Subscription, gate: Gate) -> None:
        self._shared = shared
        self._gate = gate
        self._held: list[bytes | None] = []
        self._error: MldError | None = None

    async def next_event(self) -> bytes | None:
        """The next event, after its way; what a caller no longer awaits is not lost."""
        if self._error is not None:
            raise self._error
        await self._gate.passable()
        if not self._held:
            self._held.append(await self._shared.next_event())
        try:
            await self._gate.carry("kinesis", "SubscribeToShard")
        except MldError as error:
            self._error = error
            raise
        return self._held.pop()

    def close(self) -> None:
        """End it; a dead worker cannot."""
        if not self._gate.dead:
            self._shared.close()


@dataclass
class SimClock(Clock):
    """The clocks of one machine.

    Attributes:
        skew_s: wall clock minus true time; may be stepped.
        rate: seconds that the monotonic clock counts in one true second, within 1 % of 1.
        zero_s: reading of the monotonic clock at virtual second 0.
        knows_service: answers of the table have the true time as their date.
    """

    now: Callable[[], float]
    skew_s: float = 0.0
    rate: float = 1.0
    zero_s: float = 0.0
    knows_service: bool = False

    def monotonic(self) -> float:
        return self.zero_s + self.now() * self.rate

    def wall(self) -> float:
        return EPOCH_S + self.now() + self.skew_s

    def ahead_s(self) -> float | None:
        if not self.knows_service:
            return None
        return 0.0 if abs(self.skew_s) <= ROUNDED_S else self.skew_s


class SimIds:
    """Ids in order."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0

    def new_id(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count}"


class InlineOffload:
    """Work that a thread would do, done at once after a drawn pause."""

    def __init__(self, rng: random.Random, longest_s: float = 0.05) -> None:
        self._rng = rng
        self._longest_s = longest_s

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(self._rng.uniform(0, self._longest_s))
        return work(*args, **kwargs)
