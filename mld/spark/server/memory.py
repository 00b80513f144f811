"""How much memory this machine, or the control group of this process, has left. Linux only."""

from __future__ import annotations

import contextlib
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")
_OWN_GROUP = Path("/proc/self/cgroup")
#: Limit, use, and where the cache is told that the kernel gives back; of versions 2 and 1.
_FILES = (
    ("memory.max", "memory.current", "inactive_file "),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
)


def free_bytes() -> int | None:
    """What may be taken before somebody is killed for it; None where that can't be known."""
    found = [each for each in (_machine(), *map(_group, _groups())) if each is not None]
    return min(found, default=None)


def _machine() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _groups() -> set[Path]:
    """Directories of our groups and of those above them, as far as they can be seen."""
    found = {_CGROUPS, _CGROUPS / "memory"}
    with contextlib.suppress(OSError):
        for line in _OWN_GROUP.read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds in {"", "memory"}:
                group = (_CGROUPS / kinds).joinpath(path.lstrip("/"))
                found |= {each for each in (group, *group.parents) if each.is_relative_to(_CGROUPS)}
    return found


def _group(directory: Path) -> int | None:
    for limit, used, cache in _FILES:
        with contextlib.suppress(OSError, ValueError):  # no limit is a word
            left = int((directory / limit).read_text()) - int((directory / used).read_text())
            for line in (directory / "memory.stat").read_text().splitlines():
                if line.startswith(cache):
                    left += int(line.split()[1])
            return left
    return None
