"""Which figures there are where this worker runs; found out once, at start.

The order is Java's: ECS, then containers, then EC2. Elsewhere there are none, and the leader goes
by throughput. Two differences: an ECS agent without version 4 of the metadata does not end the
search, and any container has figures, not only one of Kubernetes.

Source: WorkerMetricsSelector (3.5.1).
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from mld.adapters.load.cgroup import CgroupV1, CgroupV2, usage_v1
from mld.adapters.load.ecs import EcsTask
from mld.adapters.load.host import HostCpu
from mld.adapters.load.metadata import exchange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.ports.clock import Clock
    from mld.ports.offload import Offload
    from mld.ports.worker_load import LoadSource

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
    """The figures of this place.

    Args:
        environ: of the process.
        clock: for the time between two samples.
        offload: where requests may take their time; two of up to a second each.
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
