"""What is left of the machine's memory and of a control group's."""

from __future__ import annotations

import pytest

from kcl_mld.spark.server import setup

MIB = 1024**2


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A kernel's files; each test writes some."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    for name, place in (
        ("_MEMINFO", "meminfo"),
        ("_OWN_GROUP", "own"),
        ("_CGROUPS", "groups"),
    ):
        monkeypatch.setattr(setup, name, tmp_path / place)
    return write


def test_nothing_is_known_where_the_kernel_tells_nothing(system):
    assert setup.free_bytes() is None


def test_a_machine_without_groups(system):
    system("meminfo", "MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    assert setup.free_bytes() == 2 * MIB


def group(write, directory, limit, used, cached=0):
    write(f"groups/{directory}/memory.max", f"{limit}\n")
    write(f"groups/{directory}/memory.current", f"{used}\n")
    write(f"groups/{directory}/memory.stat", f"anon 1\ninactive_file {cached}\n")


def test_the_tightest_group_counts_and_its_cache_is_free(system):
    system("meminfo", "MemAvailable: 999999999 kB\n")
    system("own", "0::/pod/one\n")
    group(system, "pod", 100 * MIB, 60 * MIB)
    assert setup.free_bytes() == 40 * MIB
    group(system, "pod/one", 50 * MIB, 45 * MIB, cached=20 * MIB)
    assert setup.free_bytes() == 25 * MIB
    group(system, "pod/one", "max", 45 * MIB)
    assert setup.free_bytes() == 40 * MIB


def test_groups_of_version_1(system):
    system("own", "5:cpu:/x\n4:memory:/pod\n")
    system("groups/memory/pod/memory.limit_in_bytes", f"{30 * MIB}\n")
    system("groups/memory/pod/memory.usage_in_bytes", f"{10 * MIB}\n")
    system("groups/memory/pod/memory.stat", "inactive_file 1\ntotal_inactive_file 7\n")
    assert setup.free_bytes() == 20 * MIB + 7
