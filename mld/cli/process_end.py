"""The end of the process: with the code that was decided, whatever other threads are doing.

Calls that hang are left to themselves, so at the end there are threads in the middle of TLS, a
checksum or an answer. The usual way out takes the interpreter apart under them, then the C library
runs the end of OpenSSL while they use it. That may crash, and a supervisor would read 139 in place
of the exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import sys
import threading
from typing import NoReturn

#: Of a command whose output could not be written.
_UNWRITTEN_EXIT = 1


def end_process(code: int) -> NoReturn:
    """End now; daemon threads and what they hold are not waited for.

    As at the usual end, threads that are no daemon threads end first, what is registered with
    ``atexit`` is run, e.g. what closes log files, and what open files still hold is written.

    Args:
        code: exit code; 0 becomes 1 if standard output takes no more.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001 - as the interpreter does
        atexit._run_exitfuncs()  # noqa: SLF001 - errors are told there
        _flush_files()
        os._exit(_flushed(code))
    finally:  # e.g. an interrupt by a signal
        os._exit(code)


def _flush_files() -> None:
    """Write what files hold that nobody has closed, e.g. those of an operator's log handlers."""
    standard = {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}
    for each in gc.get_objects():
        if isinstance(each, io.TextIOWrapper | io.BufferedWriter | io.BufferedRandom):
            with contextlib.suppress(Exception):  # it is closed, or whoever reads it is gone
                if each not in standard:
                    each.flush()


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it is gone, and misses nothing
        code = code or _UNWRITTEN_EXIT
    except (OSError, ValueError) as error:
        code = code or _UNWRITTEN_EXIT
        with contextlib.suppress(OSError, ValueError):
            print(f"kcl-mld: standard output: {error}", file=sys.stderr)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    return code
