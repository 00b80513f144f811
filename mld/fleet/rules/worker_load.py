"""How busy a machine, a task or a container is, from two readings of its counters.

The formulas are Java's, so that a leader can compare its workers with ours. Where Java answers 0
or 100 because there is nothing to divide by, the answer here is None: not known.

Source: Ec2Resource, EcsResource, EksResource and their suppliers (3.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import MalformedData

if TYPE_CHECKING:
    from collections.abc import Mapping

#: CPU shares of a container that has none of its own.
DEFAULT_SHARE = 2.0


@dataclass(frozen=True, slots=True)
class HostTimes:
    """The first line of ``/proc/stat``: all processors since boot, in ticks.

    Attributes:
        total: user, nice, system, idle and waiting together; interrupts and stolen time don't
            count.
    """

    total: int
    idle: int


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU time of a control group.

    Attributes:
        used_s: seconds of one processor, since the group exists.
        at_s: monotonic clock.
    """

    used_s: float
    at_s: float


def host_times(stat: str) -> HostTimes:
    """Read ``/proc/stat``.

    Raises:
        MalformedData: its first line is not that of all processors.
    """
    words = stat.partition("\n")[0].split()
    if len(words) < 6 or words[0] != "cpu" or not all(word.isdigit() for word in words[1:6]):
        raise MalformedData("its first line is not 'cpu' with five numbers")
    ticks = [int(word) for word in words[1:6]]
    return HostTimes(sum(ticks), ticks[3])


def host_percent(before: HostTimes | None, after: HostTimes) -> float | None:
    """Share of the time in which the processors were not idle, 0..100."""
    if before is None or after == before:
        return None
    total, idle = abs(after.total - before.total), abs(after.idle - before.idle)
    if total == 0 or idle > total:
        return None  # counters of the kernel may go back a little
    return (total - idle) / total * 100


def group_percent(before: CpuReading | None, after: CpuReading, limit_cores: float) -> float | None:
    """Share of what a control group may use, 0..100.

    Args:
        before: None = this is the first reading.
        limit_cores: processors that the group may use, > 0.
    """
    if before is None or after.at_s <= before.at_s or after.used_s < before.used_s:
        return None
    cores = (after.used_s - before.used_s) / (after.at_s - before.at_s)
    return min(100.0, cores / limit_cores * 100)


def usage_v2_s(cpu_stat: str) -> float:
    """Read ``cpu.stat`` of cgroup v2.

    Raises:
        MalformedData: it has no ``usage_usec``.
    """
    for line in cpu_stat.splitlines():
        name, _space, number = line.partition(" ")
        if name == "usage_usec" and number.isdigit():
            return int(number) / 1_000_000
    raise MalformedData("it has no usage_usec")


def quota_v2(cpu_max: str) -> float | None:
    """Processors by ``cpu.max`` of cgroup v2; None = no limit.

    Raises:
        MalformedData: it is not ``MAX PERIOD``.
    """
    words = cpu_max.split()
    if len(words) == 2 and words[0] == "max":
        return None
    if len(words) != 2 or not all(word.isdigit() and int(word) for word in words):
        raise MalformedData(f"{cpu_max.strip()!r} is not a quota and a period")
    return int(words[0]) / int(words[1])


def quota_v1(quota_us: str, period_us: str) -> float | None:
    """Processors by ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``; None = no limit.

    Raises:
        MalformedData: they are not numbers.
    """
    if quota_us.strip() == "-1":
        return None
    return quota_v2(f"{quota_us.strip()} {period_us.strip()}")


def processors(cpuset: str) -> int:
    """How many processors a list like ``0-3,7`` names; ranges include both ends.

    Raises:
        MalformedData: it is not such a list, or empty.
    """
    count = 0
    for part in cpuset.strip().split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise MalformedData(f"{cpuset.strip()!r} is not a list of processors")
        count += int(last or first) - int(first) + 1
    return count


def task_percent(stats: Mapping[str, Any], limit_cores: float) -> float | None:
    """Share of its part of an ECS task that a container uses, 0..100.

    Args:
        stats: answer of ``${ECS_CONTAINER_METADATA_URI_V4}/stats``, which has two readings.
        limit_cores: from :func:`task_limit`, > 0.

    Raises:
        MalformedData: a number is missing.
    """
    now, before = _stats(stats, "cpu_stats"), _stats(stats, "precpu_stats")
    if before == (0.0, 0.0) or now[1] <= before[1]:
        return None
    cores = (now[0] - before[0]) / (now[1] - before[1]) * online_processors(stats)
    return max(0.0, min(100.0, cores / limit_cores * 100))


def task_limit(task: Mapping[str, Any], docker_id: str, online: float) -> float:
    """Processors that a container of an ECS task may count on.

    Args:
        task: answer of ``${ECS_CONTAINER_METADATA_URI_V4}/task``.
        docker_id: ``DockerId`` of the container itself.
        online: processors of the machine, for a task without a limit.
    """
    shares = {
        str(one.get("DockerId")): _limit(one) or DEFAULT_SHARE for one in task.get("Containers", ())
    }
    mine = shares.setdefault(docker_id, DEFAULT_SHARE)
    return mine / sum(shares.values()) * (_limit(task) or online)


def online_processors(stats: Mapping[str, Any]) -> float:
    """Processors of the machine, in the answer that :func:`task_percent` reads.

    Raises:
        MalformedData: it is not in the data.
    """
    return _number(stats.get("cpu_stats"), "online_cpus")


def _limit(of: Mapping[str, Any]) -> float | None:
    limit = (of.get("Limits") or {}).get("CPU")
    return float(limit) if isinstance(limit, int | float) and limit > 0 else None


def _stats(stats: Mapping[str, Any], name: str) -> tuple[float, float]:
    """CPU time of the container and of the machine; the machine's is absent in a first reading."""
    of = stats.get(name)
    used = _number((of or {}).get("cpu_usage"), "total_usage")
    return used, float((of or {}).get("system_cpu_usage") or 0)


def _number(of: object, name: str) -> float:
    value = of.get(name) if isinstance(of, dict) else None
    if not isinstance(value, int | float):
        raise MalformedData(f"it has no {name}")
    return float(value)
