"""What a service needs of its process: clocks, ids, threads, the CPU load.

Waiting is ``asyncio.sleep``: in a simulation the loop itself is virtual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    """Two clocks, both in seconds, and what the dates of AWS say about the second one.

    Waiting, leases and ages of what this process saw go by :meth:`monotonic`. The wall clock of a
    machine may be wrong: what is stored for others is stamped with :meth:`service`, what others
    have stamped is judged at :meth:`earliest`, and moments that people chose at :meth:`corrected`.
    """

    def monotonic(self) -> float:
        """Never steps; for ages and deadlines. Its zero has no meaning."""
        ...

    def wall(self) -> float:
        """Epoch seconds; may step or be wrong; only for what is logged or shown."""
        ...

    def ahead_s(self) -> float | None:
        """Seconds by which :meth:`wall` is ahead of AWS, negative = behind; None = not known."""
        return None

    def service(self) -> float:
        """Epoch seconds to store for others, who compare them with their own clock.

        The later of wall clock and AWS's time: what seems old is taken for dead, while a time in
        the future costs nothing.
        """
        return self.wall() + max(0.0, -(self.ahead_s() or 0.0))

    def earliest(self) -> float:
        """Epoch seconds to judge by how old something of another worker is.

        The earlier of wall clock and AWS's time: a worker whose clock is as wrong as this one, or
        right, is young.
        """
        return self.wall() - max(0.0, self.ahead_s() or 0.0)

    def corrected(self) -> float:
        """Epoch seconds of AWS, by the wall clock where they are not known."""
        return self.wall() - (self.ahead_s() or 0.0)


class IdSource(Protocol):
    """Where fresh ids come from."""

    def new_id(self) -> str:
        """A unique text, e.g. a random UUID."""
        ...


P = ParamSpec("P")
R = TypeVar("R")


class Offload(Protocol):
    """A place for pure functions that take too long for the loop (> 1 ms)."""

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Result of ``work(*args, **kwargs)``, computed elsewhere; its exceptions come through."""
        ...


class LoadSource(Protocol):
    """Measures the CPU of the machine, the task or the container.

    Called once a second; the caller averages.
    """

    @property
    def name(self) -> str:
        """What is measured, for the log, such as ``container (cgroup v2)``."""
        ...

    @property
    def place(self) -> str:
        """What is measured, as others would name it: the same for workers that share it."""
        ...

    async def sample(self) -> float | None:
        """Percent of what may be used, since the last call; 0..100.

        Returns:
            None when it is not known: at the first call, or because the figures could not be
            read, which was logged.
        """
        ...
