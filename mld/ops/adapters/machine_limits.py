"""The resource limits of this process: its own, and those of its control groups.

Source: getrlimit(2); "Control Group v2" of the kernel's documentation.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from kcl_mld.children.adapters.child_process import DESCRIPTORS
from kcl_mld.ops.rules.doctor import MachineLimits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_GROUPS = Path("/sys/fs/cgroup")
#: cgroup v1 stores "no limit" as a number that no machine has.
_NO_LIMIT = 2**60


def machine_limits(groups: Path = _GROUPS, own: Path = Path("/proc/self/cgroup")) -> MachineLimits:
    """The limits in force for a worker that is started like this process.

    Args:
        groups: where control groups are mounted.
        own: which of them this process is in.
    """
    folders = list(_folders(groups, own))
    memory = [groups / "memory" / "memory.limit_in_bytes"]
    return MachineLimits(
        files=_least([_of_process(resource.RLIMIT_NOFILE, DESCRIPTORS)]),
        processes=_least(
            [
                _of_process(resource.RLIMIT_NPROC),
                *_numbers([*(one / "pids.max" for one in folders), groups / "pids" / "pids.max"]),
            ]
        ),
        memory_bytes=_least(
            [
                _of_machine(),
                *_numbers([*(one / "memory.max" for one in folders), *memory]),
            ]
        ),
    )


def _folders(groups: Path, own: Path) -> Iterator[Path]:
    """The group of this process and those around it; in a container it is the outermost one."""
    path = ""
    with contextlib.suppress(OSError):
        for line in own.read_text("ascii", "replace").splitlines():
            if line.startswith("0::"):
                path = line.removeprefix("0::").strip("/")
    folder = groups / path
    while folder != groups and groups in folder.parents:
        yield folder
        folder = folder.parent
    yield groups


def _numbers(files: Iterable[Path]) -> Iterator[int | None]:
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            yield int(file.read_text("ascii"))  # "max" is no number


def _of_process(kind: int, most: int | None = None) -> int | None:
    """The hard limit of files, which a worker makes its own; the soft one of all else."""
    soft, hard = resource.getrlimit(kind)
    limit = soft if most is None else max(soft, min(hard, most) if hard >= 0 else most)
    return None if soft == resource.RLIM_INFINITY else limit


def _of_machine() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _least(limits: Iterable[int | None]) -> int | None:
    return min((one for one in limits if one is not None and one < _NO_LIMIT), default=None)
