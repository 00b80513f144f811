"""What a shard has the daemon store: checkpoints, and its end."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from mld.spark.errors import BatchFailed
from protocol import CheckpointRequest
from protocol.errors import DEPENDENCY, SHUTDOWN, THROTTLING, UNREACHABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.spark.model import Position
    from mld.spark.shard.wire import ChildWire

_log = logging.getLogger(__name__)

#: The table is busy or out of reach: what was refused may be asked again.
_PASSING = frozenset({THROTTLING, DEPENDENCY, UNREACHABLE})
_ATTEMPTS = 6


class LeaseStorage:
    """The lease's row, through the daemon; only usable while a message is outstanding.

    Args:
        wire: to the daemon.
        pause_s: before a refused request is sent again, in s; doubles.
        is_over: True if nobody listens any more.
        keep_alive_s: how often a keep-alive is due in a pause, in s.
        sleep: waits for so many s.
    """

    def __init__(
        self,
        wire: ChildWire,
        pause_s: float,
        is_over: Callable[[], bool],
        *,
        keep_alive_s: float,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._wire = wire
        self._pause_s = pause_s
        self._is_over = is_over
        self._sign_s = keep_alive_s
        self._sleep = sleep

    def checkpoint(self, name: str, position: Position | None) -> bool:
        """Store how far a shard is durable.

        Args:
            name: of the shard, for messages.
            position: None = the end of the shard.

        Returns:
            False if the lease is gone.

        Raises:
            BatchFailed: it was refused for another reason.
        """
        if position is None:
            return self._store(name, CheckpointRequest(), "the end of the shard")
        request = CheckpointRequest(str(position.sequence), position.sub)
        return self._store(name, request, f"the checkpoint {position}")

    def _store(self, name: str, request: CheckpointRequest, what: str) -> bool:
        error = self._wire.ask(request)
        for attempt in range(_ATTEMPTS - 1):
            if error not in _PASSING or not self._pause(self._pause_s * 2**attempt):
                break
            error = self._wire.ask(request)
        if error == SHUTDOWN:
            _log.info("%s: the lease is gone: %s was refused", name, what)
            return False
        if error is not None:
            raise BatchFailed(f"{name}: {what} was refused: {error}")
        return True

    def _pause(self, seconds: float) -> bool:
        """Wait, with keep-alives to the daemon; False once nobody listens any more."""
        while not self._is_over() and seconds > 0:
            step_s = min(seconds, self._sign_s)
            self._sleep(step_s)
            seconds -= step_s
            if seconds > 0 and not self._is_over():
                self._wire.keep_alive()
        return not self._is_over()
