"""Tuning malloc, in processes of their own: the settings cannot be read back or undone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kcl_mld.kernel.adapters import allocator


def run(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"from kcl_mld.kernel.adapters import allocator\n{code}"],
        capture_output=True,
        check=True,
        timeout=30,
        env={**os.environ, **env},
    )
    return done.stdout.decode().strip()


HAS_GLIBC = sys.platform.startswith("linux") and "glibc" in (
    os.confstr("CS_GNU_LIBC_VERSION") or "" if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
)
needs_glibc = pytest.mark.skipif(not HAS_GLIBC, reason="needs glibc")


@needs_glibc
def test_glibc_is_tuned_and_takes_every_setting() -> None:
    assert run("print(allocator.keep_large_blocks())") == "True"


@needs_glibc
@pytest.mark.parametrize(
    "variable",
    [
        {"MALLOC_ARENA_MAX": "4"},
        {"MALLOC_TRIM_THRESHOLD_": "1000000"},
        {"MALLOC_MMAP_THRESHOLD_": "1000000"},
        {"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"},
    ],
)
def test_what_the_user_has_tuned_is_left_alone(variable: dict[str, str]) -> None:
    assert run("print(allocator.keep_large_blocks())", **variable) == "False"


@needs_glibc
def test_large_blocks_are_kept_and_given_back_when_asked() -> None:
    code = (
        "def rss(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "allocator.keep_large_blocks()\n"
        "before = rss()\n"
        "pin = [bytearray(12 * 2**20), bytearray(100)]\n"
        "del pin[0]\n"
        "kept = rss() - before\n"
        "allocator.return_free_memory()\n"
        "print(kept > 8 * 2**20, rss() - before < 4 * 2**20)"
    )
    assert run(code) == "True True"


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert allocator.keep_large_blocks() is False
    assert allocator.return_free_memory() is False


def test_a_c_library_that_is_not_glibc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", unknown)
    assert allocator.keep_large_blocks() is False
