"""CPU of a container, from the files of its control group.

Java measures it in Kubernetes only; here any container has figures.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.decide.worker_load import (
    CpuReading,
    group_percent,
    processors,
    quota_v1,
    quota_v2,
    usage_v2_s,
)
from mld.errors import MalformedData

if TYPE_CHECKING:
    from pathlib import Path

    from mld.ports.clock import Clock

_log = logging.getLogger(__name__)


class CgroupV2:
    """Files of cgroup v2, as a container sees them.

    Satisfies the port :class:`mld.ports.worker_load.LoadSource`. The limit is read with each
    sample, because it may be changed while the container runs.
    """

    name = "container (cgroup v2)"

    def __init__(self, folder: Path, clock: Clock, place: str) -> None:
        """Read nothing yet.

        Args:
            folder: where ``cpu.stat`` and ``cpu.max`` are.
            clock: for the time between two samples.
            place: name of the container.
        """
        self._folder = folder
        self._clock = clock
        self.place = place
        self._before: CpuReading | None = None

    async def sample(self) -> float | None:
        """See :class:`mld.ports.worker_load.LoadSource`."""
        try:
            used_s = usage_v2_s(_read(self._folder / "cpu.stat"))
            reading = CpuReading(used_s, self._clock.monotonic())
            limit = quota_v2(_read(self._folder / "cpu.max")) or processors(
                _read(self._folder / "cpuset.cpus.effective")
            )
        except (OSError, ValueError, MalformedData) as error:
            _log.debug("The CPU of %s could not be read: %s", self.name, error)
            return None
        before, self._before = self._before, reading
        return group_percent(before, reading, limit)


class CgroupV1:
    """Files of cgroup v1; otherwise as :class:`CgroupV2`."""

    name = "container (cgroup v1)"

    def __init__(self, folder: Path, clock: Clock, place: str) -> None:
        """Read nothing yet.

        Args:
            folder: where ``cpu``, ``cpuset`` and perhaps ``cpuacct`` are.
            clock: for the time between two samples.
            place: name of the container.
        """
        self._folder = folder
        self._usage = usage_v1(folder)
        self._clock = clock
        self.place = place
        self._before: CpuReading | None = None

    async def sample(self) -> float | None:
        """See :class:`mld.ports.worker_load.LoadSource`."""
        cpu = self._folder / "cpu"
        try:
            used_s = int(_read(self._usage)) / 1_000_000_000
            reading = CpuReading(used_s, self._clock.monotonic())
            limit = quota_v1(
                _read(cpu / "cpu.cfs_quota_us"), _read(cpu / "cpu.cfs_period_us")
            ) or processors(_read(self._folder / "cpuset" / "cpuset.effective_cpus"))
        except (OSError, ValueError, MalformedData) as error:
            _log.debug("The CPU of %s could not be read: %s", self.name, error)
            return None
        before, self._before = self._before, reading
        return group_percent(before, reading, limit)


def usage_v1(folder: Path) -> Path:
    """The counter of cgroup v1: with ``cpu``, where Java has it, or on its own."""
    together = folder / "cpu/cpuacct.usage"
    return together if together.exists() else folder / "cpuacct/cpuacct.usage"


def _read(path: Path) -> str:
    return path.read_text("ascii")
