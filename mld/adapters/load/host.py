"""CPU of an EC2 instance, from ``/proc/stat``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.decide.worker_load import HostTimes, host_percent, host_times
from mld.errors import MalformedData

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)


class HostCpu:
    """All processors of the host. Satisfies :class:`mld.ports.worker_load.LoadSource`."""

    name = "EC2 instance (/proc/stat)"

    def __init__(self, stat: Path, place: str) -> None:
        """Read nothing yet.

        Args:
            stat: ``/proc/stat``.
            place: name of the host.
        """
        self._stat = stat
        self.place = place
        self._before: HostTimes | None = None

    async def sample(self) -> float | None:
        """See :class:`mld.ports.worker_load.LoadSource`."""
        try:
            times = host_times(self._stat.read_text("ascii"))
        except (OSError, ValueError, MalformedData) as error:
            _log.debug("The CPU in %s could not be read: %s", self._stat, error)
            return None
        before, self._before = self._before, times
        return host_percent(before, times)
