"""glibc's malloc, told that this process uses and frees blocks of several megabytes all day.

Untold, it maps and unmaps memory for every GetRecords answer and pays page faults for each batch:
about half of the throughput of a fresh process. The price of keeping blocks is that up to the trim
threshold of free memory stays resident.
"""

from __future__ import annotations

import ctypes
import os
import sys

#: Free memory at the top of the heap beyond which it goes back to the system. Not more: it stays
#: resident in every idle daemon.
TRIM_BYTES = 16 * 2**20

#: Blocks below this come from the heap. 32 MiB is glibc's own upper bound.
MMAP_BYTES = 32 * 2**20

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_large_blocks() -> bool:
    """Set glibc's trim and mmap thresholds for this process; call once, early.

    Does nothing where there is no glibc (musl, macOS, Windows), and nothing where the user has set
    ``MALLOC_TRIM_THRESHOLD_``, ``MALLOC_MMAP_THRESHOLD_`` or ``GLIBC_TUNABLES`` for malloc.

    Returns: whether both were set.
    """
    if not _is_glibc() or _user_has_tuned():
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    trimmed = mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
    mapped = mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)
    return bool(trimmed and mapped)


def _is_glibc() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, OSError, ValueError):
        return False


def _user_has_tuned() -> bool:
    return (
        "MALLOC_TRIM_THRESHOLD_" in os.environ
        or "MALLOC_MMAP_THRESHOLD_" in os.environ
        or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    )
