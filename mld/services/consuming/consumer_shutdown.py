"""Why the consumer of one held lease ends: who may ask for it, and what stays of several reasons.

Everybody else only reads the reason.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mld.decide.children.lifecycle import ShutdownReason, stronger

if TYPE_CHECKING:
    from collections.abc import Callable


class ConsumerShutdown:
    """The requests that end one hold of a lease.

    The worker asks for a stop, or a leader for a hand-over to another worker; whoever finds the
    lease lost says so; the shard itself ends. The strongest of them is the :attr:`reason`, by the
    ranks of :class:`~mld.decide.children.lifecycle.ShutdownReason`.
    """

    def __init__(self, on_request: Callable[[], None]) -> None:
        """No reason yet.

        Args:
            on_request: called after every request, so that whoever waits for data or parents looks.
        """
        self._on_request = on_request
        self._reason: ShutdownReason | None = None
        self._is_stop_requested = False
        #: True when the next owner of the lease is named already and waits for it.
        self.is_handing_over = False
        self._is_leaving = asyncio.Event()

    @property
    def reason(self) -> ShutdownReason | None:
        """Why the consumer ends; None while it does not."""
        return self._reason

    def stop(self) -> None:
        """The worker stops: finish the batch in hand, tell the child, release the lease."""
        self._is_stop_requested = True
        self._is_leaving.set()
        self._request(ShutdownReason.REQUESTED)

    def hand_over(self) -> None:
        """Another worker is to go on: as :meth:`stop`, but the lease goes before the child does."""
        self.is_handing_over = True
        self.stop()

    def lease_lost(self) -> None:
        """The lease is not ours any more: finish the batch in hand, tell the child."""
        self._is_leaving.set()
        self._request(ShutdownReason.LEASE_LOST)

    def shard_ended(self) -> None:
        """The last batch is delivered: the child checkpoints the end, the cleanup comes."""
        self._request(ShutdownReason.SHARD_END)

    def withdraw_shard_end(self) -> None:
        """The shard's end could not be settled and will be read again, here or by the next owner.

        A stop that was requested stays; a lost lease stays lost.
        """
        if self._reason is ShutdownReason.SHARD_END:
            self._reason = ShutdownReason.REQUESTED if self._is_stop_requested else None

    @property
    def may_leave_shard_end(self) -> bool:
        """True when the lease is being given up, so that the next owner may settle the shard's end."""
        return self._is_stop_requested and self._reason is ShutdownReason.SHARD_END

    async def pause(self, seconds: float) -> None:
        """Sleep before something is tried again; a stop or a lost lease ends it, nothing else."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_leaving.wait()
        except TimeoutError:
            pass

    async def leaving(self) -> None:
        """Return once the lease is being given up or is lost."""
        await self._is_leaving.wait()

    def _request(self, reason: ShutdownReason) -> None:
        self._reason = stronger(self._reason, reason)
        self._on_request()
