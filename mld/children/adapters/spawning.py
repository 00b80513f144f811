"""Starts programs by ``posix_spawn`` of the C library, without stopping other threads.

``subprocess`` holds the interpreter lock from vfork until the new process executes its program. On
a busy machine that process first waits for a processor, and all threads of the daemon wait with it,
lease renewals included. ``os.posix_spawn`` holds the lock, too, and can't create a session on all
systems.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Descriptors of stdin, stdout and stderr.
Descriptors: TypeAlias = tuple[int, int, int]

#: Larger than any C library's structures for attributes, file actions and signal sets.
_OPAQUE_BYTES = 1024
#: From ``spawn.h`` of glibc.
_SETSIGDEF, _SETSID = 0x04, 0x80
#: Signals that Python ignores, and children must not. Source: ``restore_signals`` of
#: ``subprocess``.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
#: Exit status of a process that the kernel reaped itself. Source: ``subprocess``.
_REAPED = 0


class Started(Protocol):
    """A process that was started; satisfied by ``subprocess.Popen``."""

    @property
    def pid(self) -> int:
        """Process id."""
        ...

    def poll(self) -> int | None:
        """Exit status, negative = signal number; None while it runs."""
        ...


class Spawned:
    """A process that :func:`spawn` started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """Exit status, negative = signal number; None while it runs."""
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._status = _REAPED
            else:
                self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status


def start_program(
    argv: Sequence[str], pipes: Descriptors, environment: Mapping[bytes, bytes]
) -> Started:
    """Start a program, found by PATH of its environment, in a session of its own.

    Blocks until it is executed. Other threads continue meanwhile if the C library supports all
    options; glibc does from 2.34 on.

    Raises:
        OSError: it can't be started.
        ValueError: an argument or a variable has a NUL byte.
    """
    libc = _library()
    if libc is not None and min(pipes) > max(range(len(pipes))):  # else one would overwrite another
        return Spawned(_spawn(libc, argv, pipes, environment))
    return subprocess.Popen(  # noqa: S603 - the user's own program
        argv,
        stdin=pipes[0],
        stdout=pipes[1],
        stderr=pipes[2],
        env=environment,
        start_new_session=True,
    )


def _library() -> Any:
    """The C library if it can close all other descriptors of a new process; else None."""
    try:
        libc = ctypes.CDLL(None)
        version = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):  # musl does not know the name
        return None
    is_glibc = version.startswith("glibc")
    return libc if is_glibc and hasattr(libc, "posix_spawn_file_actions_addclosefrom_np") else None


def _spawn(
    libc: Any, argv: Sequence[str], pipes: Descriptors, environment: Mapping[bytes, bytes]
) -> int:
    arguments = _strings([os.fsencode(word) for word in argv])
    variables = _strings([name + b"=" + value for name, value in environment.items()])
    with ExitStack() as undo:
        attributes = _made(libc, "posix_spawnattr", undo)
        signals = _opaque()
        libc.sigemptyset(signals)
        for restored in _RESTORED:
            libc.sigaddset(signals, restored)
        _check(libc.posix_spawnattr_setsigdefault(attributes, signals))
        _check(libc.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSIGDEF | _SETSID)))
        actions = _made(libc, "posix_spawn_file_actions", undo)
        for number, pipe in enumerate(pipes):
            _check(libc.posix_spawn_file_actions_adddup2(actions, pipe, number))
        _check(libc.posix_spawn_file_actions_addclosefrom_np(actions, len(pipes)))
        return _first(libc, argv[0], environment, (actions, attributes, arguments, variables))


def _first(
    libc: Any, program: str, environment: Mapping[bytes, bytes], arguments: tuple[Any, ...]
) -> int:
    """Process id of the first file of this name that can be executed."""
    name = os.fsencode(program)
    folders = os.get_exec_path({"PATH": os.fsdecode(environment.get(b"PATH", os.defpath))})
    files = [name] if b"/" in name else [os.fsencode(os.path.join(one, program)) for one in folders]
    pid = ctypes.c_int()
    number = errno.ENOENT
    for file in files:
        failed = libc.posix_spawn(ctypes.byref(pid), file, *arguments)
        if not failed:
            return pid.value
        if number in (errno.ENOENT, errno.ENOTDIR):
            number = failed
    raise OSError(number, os.strerror(number), program)


def _strings(texts: Sequence[bytes]) -> Any:
    """A list of C strings.

    Raises:
        ValueError: one has a NUL byte.
    """
    if any(b"\0" in text for text in texts):
        raise ValueError("embedded null byte")
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)


def _opaque() -> Any:
    return ctypes.create_string_buffer(_OPAQUE_BYTES)


def _made(libc: Any, kind: str, undo: ExitStack) -> Any:
    made = _opaque()
    _check(getattr(libc, f"{kind}_init")(made))
    undo.callback(getattr(libc, f"{kind}_destroy"), made)
    return made


def _check(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))
