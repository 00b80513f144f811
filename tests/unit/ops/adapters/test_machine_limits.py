"""Limits of files, processes and memory, from the process and its control groups."""

from __future__ import annotations

import os
import resource

import pytest

from kcl_mld.ops.adapters import machine_limits as tested
from kcl_mld.ops.adapters.machine_limits import machine_limits


@pytest.fixture
def limited(monkeypatch):
    """What getrlimit says of files and processes."""
    said = {resource.RLIMIT_NOFILE: (1024, 4096), resource.RLIMIT_NPROC: (500, 900)}
    monkeypatch.setattr(tested.resource, "getrlimit", said.__getitem__)
    return said


def test_the_limits_of_a_process(limited, tmp_path):
    found = machine_limits(tmp_path, tmp_path / "none")
    assert (found.files, found.processes) == (4096, 500)
    assert found.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    infinity = resource.RLIM_INFINITY
    limited[resource.RLIMIT_NOFILE] = (1024, infinity)
    limited[resource.RLIMIT_NPROC] = (infinity, infinity)
    found = machine_limits(tmp_path, tmp_path / "none")
    assert (found.files, found.processes) == (65_536, None)
    limited[resource.RLIMIT_NOFILE] = (infinity, infinity)
    assert machine_limits(tmp_path, tmp_path / "none").files is None


def test_the_least_limit_of_the_groups_around_counts(limited, tmp_path):
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "pids.max").write_text("max\n")
    (tmp_path / "outer" / "pids.max").write_text("77\n")
    (inner / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.max").write_text("max\n")
    own = tmp_path / "own"
    own.write_text("1:name=x:/other\n0::/outer/inner\n")
    found = machine_limits(tmp_path, own)
    assert (found.processes, found.memory_bytes) == (77, 1_000_000)


def test_a_group_outside_of_the_mount_is_passed_over(limited, tmp_path):
    own = tmp_path / "own"
    own.write_text("0::/../../elsewhere\n")
    assert machine_limits(tmp_path, own).processes == 500


def test_groups_of_the_first_version(limited, tmp_path):
    for name, file, text in (
        ("memory", "memory.limit_in_bytes", "2000000"),
        ("pids", "pids.max", "60"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(f"{text}\n")
    found = machine_limits(tmp_path, tmp_path / "none")
    assert (found.processes, found.memory_bytes) == (60, 2_000_000)
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert machine_limits(tmp_path, tmp_path / "none").memory_bytes > 2_000_000
