"""The end of the process: with the code that was decided, whatever other threads are doing.

Calls that hang are left to themselves, so at the end there are threads in the middle of TLS, a
checksum or an answer. The usual way out takes the interpreter apart under them, then the C library
runs the end of OpenSSL while they use it. That may crash, and a supervisor would read 139 in place
of the exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from typing import NoReturn

#: Of a command whose output could not be written.
_UNWRITTEN_EXIT = 1


def end_process(code: int) -> NoReturn:
    """End now; daemon threads and what they hold are not waited for.

    As at the usual end, threads that are no daemon threads end first, and what is registered with
    ``atexit`` is run, e.g. what closes log handlers. Neither has a public name: in an interpreter
    that lacks one, log handlers are closed and nothing else is.

    Args:
        code: exit code; 0 becomes 1 if standard output takes no more.
    """
    try:
        getattr(threading, "_shutdown", _nothing)()
        getattr(atexit, "_run_exitfuncs", logging.shutdown)()  # it prints errors itself
        os._exit(_flushed(code))
    finally:  # e.g. an interrupt by a signal
        os._exit(code)


def _nothing() -> None:
    """Where there is no way to wait for threads."""


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader is gone, and misses nothing
        code = code or _UNWRITTEN_EXIT
    except (OSError, ValueError) as error:
        code = code or _UNWRITTEN_EXIT
        with contextlib.suppress(OSError, ValueError):
            print(f"kcl-mld: standard output: {error}", file=sys.stderr)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    return code
