"""Finds the source of CPU figures for the worker's environment, once at start.

The order is Java's: ECS, then containers, then EC2. Elsewhere there are no figures, and the leader
uses the throughput. Two differences: an ECS agent without version 4 of the metadata does not end
the search, and any container has figures, not only one of Kubernetes.

Source: WorkerMetricsSelector (3.5.1).
"""

from __future__ import annotations

import http.client
import json
import logging
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kcl_mld.errors import MalformedData
from kcl_mld.fleet.rules.worker_load import (
    CpuReading,
    HostTimes,
    group_percent,
    host_percent,
    host_times,
    online_processors,
    processors,
    quota_v1,
    quota_v2,
    task_limit,
    task_percent,
    usage_v2_s,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.kernel.ports import Clock, LoadSource, Offload

_log = logging.getLogger("mld.fleet")
#: Java waits 5 s; these servers are on the same host and answer within milliseconds.
TIMEOUT_S = 1.0
MAX_BYTES = 1 << 20


class NoMetadata(OSError):
    """The server answered, but not with the expected content."""


def get_json(url: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        OSError: there is no such server, or it gave another answer.
    """
    try:
        answer = json.loads(exchange("GET", url, {}))
    except ValueError as error:
        raise NoMetadata(f"{url} did not answer with JSON: {error}") from None
    if not isinstance(answer, dict):
        raise NoMetadata(f"{url} did not answer with a JSON object")
    return answer


def exchange(method: str, url: str, headers: dict[str, str]) -> bytes:
    """The body of an answer 200.

    Raises:
        OSError: there is no such server, or it gave another answer.
    """
    parts = urlsplit(url)
    path = parts.path or "/"
    connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read(MAX_BYTES)
    except http.client.HTTPException as error:
        raise NoMetadata(f"{url} did not answer as HTTP: {error!r}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise NoMetadata(f"{url} answered {answer.status}")
    return body


class CgroupV2:
    """Files of cgroup v2, as a container sees them.

    Satisfies the port :class:`kcl_mld.kernel.ports.LoadSource`. The limit is read with each
    sample, because it may be changed while the container runs.

    Args:
        folder: where ``cpu.stat`` and ``cpu.max`` are.
    """

    name = "container (cgroup v2)"

    def __init__(self, folder: Path, clock: Clock, place: str) -> None:
        self._folder = folder
        self._clock = clock
        self.place = place
        self._before: CpuReading | None = None

    async def sample(self) -> float | None:
        """CPU use in percent of the limit; see :class:`kcl_mld.kernel.ports.LoadSource`."""
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
    """Files of cgroup v1; otherwise as :class:`CgroupV2`.

    Args:
        folder: where ``cpu``, ``cpuset`` and perhaps ``cpuacct`` are.
    """

    name = "container (cgroup v1)"

    def __init__(self, folder: Path, clock: Clock, place: str) -> None:
        self._folder = folder
        self._usage = usage_v1(folder)
        self._clock = clock
        self.place = place
        self._before: CpuReading | None = None

    async def sample(self) -> float | None:
        """CPU use in percent of the limit; see :class:`kcl_mld.kernel.ports.LoadSource`."""
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


class EcsTask:
    """The container's part of its task. Satisfies :class:`kcl_mld.kernel.ports.LoadSource`.

    Args:
        url: ``ECS_CONTAINER_METADATA_URI_V4``.
        offload: runs requests outside the event loop.
    """

    name = "ECS task"

    def __init__(self, url: str, offload: Offload) -> None:
        self._url = url.rstrip("/")
        self.place = self._url
        self._offload = offload
        self._limit: float | None = None

    async def sample(self) -> float | None:
        """CPU use in percent of the task's limit; see :class:`kcl_mld.kernel.ports.LoadSource`."""
        try:
            stats = await self._get("/stats")
            if self._limit is None:
                task, container = await self._get("/task"), await self._get("")
                docker_id = str(container.get("DockerId"))
                self._limit = task_limit(task, docker_id, online_processors(stats))
            return task_percent(stats, self._limit)
        except (OSError, MalformedData) as error:
            _log.debug("The CPU of the %s could not be read: %s", self.name, error)
            return None

    async def _get(self, path: str) -> dict[str, Any]:
        return await self._offload.run(get_json, self._url + path)


class HostCpu:
    """All processors of the host. Satisfies :class:`kcl_mld.kernel.ports.LoadSource`.

    Args:
        stat: ``/proc/stat``.
    """

    name = "EC2 instance (/proc/stat)"

    def __init__(self, stat: Path, place: str) -> None:
        self._stat = stat
        self.place = place
        self._before: HostTimes | None = None

    async def sample(self) -> float | None:
        """CPU use of the host in percent; see :class:`kcl_mld.kernel.ports.LoadSource`."""
        try:
            times = host_times(self._stat.read_text("ascii"))
        except (OSError, ValueError, MalformedData) as error:
            _log.debug("The CPU in %s could not be read: %s", self._stat, error)
            return None
        before, self._before = self._before, times
        return host_percent(before, times)


ECS_URL = "ECS_CONTAINER_METADATA_URI_V4"
IMDS = "http://169.254.169.254"
#: A file that only processes in containers see: of Kubernetes, Docker and Podman.
_MARKS = (
    "var/run/secrets/kubernetes.io/serviceaccount/token",
    ".dockerenv",
    "run/.containerenv",
)


async def find_load_source(
    environ: Mapping[str, str],
    clock: Clock,
    offload: Offload,
    *,
    root: Path = Path("/"),
    imds: str = IMDS,
) -> LoadSource | None:
    """The source of CPU figures in this environment; None = there is none.

    Args:
        offload: runs requests outside the event loop; two of up to a second each.
        root: where ``/sys``, ``/proc`` and the rest are.
        imds: URL of the metadata server of EC2 instances.
    """
    if url := environ.get(ECS_URL):
        return EcsTask(url, offload)
    name = platform.node()
    groups = root / "sys/fs/cgroup"
    # The outermost group of a host has no cpu.max; a container's has.
    if (groups / "cgroup.controllers").exists() and (groups / "cpu.max").exists():
        return CgroupV2(groups, clock, name)
    is_container = any((root / mark).exists() for mark in _MARKS)
    if is_container and usage_v1(groups).exists():
        return CgroupV1(groups, clock, name)
    stat = root / "proc/stat"
    if stat.exists() and await offload.run(_is_ec2, imds):
        return HostCpu(stat, name)
    return None


def _is_ec2(imds: str) -> bool:
    """Ask the metadata server, with a token or, where it gives none, without."""
    headers = {}
    try:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "600"}
        token = exchange("PUT", f"{imds}/latest/api/token", ttl)
        headers["X-aws-ec2-metadata-token"] = token.decode("ascii")
    except (OSError, ValueError):
        pass
    try:
        exchange("GET", f"{imds}/latest/meta-data/", headers)
    except OSError:
        return False
    return True
