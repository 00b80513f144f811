"""Child processes: started in their own sessions, always reaped, and awaited without blocking.

Works on the raw descriptors of the three pipes: a line of several megabytes goes to the kernel from
the bytes object that holds it, without another copy. asyncio's own subprocess transports would copy
it into a buffer and, on Python 3.11, add a thread per child.

A child's session outlives neither its leader nor the daemon: processes that the leader leaves are
ended here, and those that the daemon leaves by :mod:`kcl_mld.children.adapters.guardian`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import shutil
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeAlias

from kcl_mld.children.adapters.kclpy_path import PYTHON_PATHS
from kcl_mld.children.adapters.pipes import PipeReader, PipeWriter, StderrDrain
from kcl_mld.children.adapters.spawning import start_program
from kcl_mld.children.rules.child_environment import environment_of_child
from kcl_mld.config.config import Kclpy
from kcl_mld.errors import ThreadRefused
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.kernel.adapters.system import limit_advice, system_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kcl_mld.children.adapters.guardian import Guardian
    from kcl_mld.children.adapters.spawning import Descriptors, Started

#: Seconds after the leader's exit until processes left in its group get SIGTERM, then SIGKILL, and
#: until pipes that a process still holds open are closed.
LEFTOVER_TERM_S = 1.0
LEFTOVER_KILL_S = 4.0
GIVE_UP_PIPES_S = 5.0

#: How often a child's exit status is polled where the kernel has no process descriptors.
_POLL_S = 0.05

#: Soft limit of open files that is enough for some 16,000 children.
DESCRIPTORS = 65_536
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: What to do when the system refuses a child, by error number.
_START_ADVICE = {
    errno.EAGAIN: " (raise the limit of processes and threads: ulimit -u, pids.max, or TasksMax of"
    " systemd)",
    errno.ENOMEM: " (there is no memory for another process: give the worker more, or set"
    " maxLeasesForWorker)",
    errno.ETXTBSY: " (the program is being written: deploy it under another name, then rename it)",
}
#: Number of programs that start at the same time, as many as consumers ask for.
_STARTS = CallPool("starts", 8)


Pipes: TypeAlias = tuple[PipeWriter, PipeReader, StderrDrain]


class ChildProcess:
    """A running child; satisfies :class:`kcl_mld.children.ports.Child`. Created by the launchers only.

    Args:
        reaped: gets its exit status when it is reaped, negative = signal number.
        keeper: watches its session.
    """

    def __init__(
        self, pid: int, reaped: asyncio.Future[int], pipes: Pipes, keeper: Guardian | None
    ) -> None:
        self._pid = pid
        self._stdin, self._stdout, self._stderr = pipes
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._stderr.start()
        reaped.add_done_callback(self._note_exit)

    @property
    def pid(self) -> int:
        """Process id; also the id of its session and process group."""
        return self._pid

    async def write(self, data: bytes) -> None:
        """Write all of it, waiting while the pipe is full.

        Raises:
            BrokenPipeError: the child closed its stdin or is gone.

        Cancellation: a part may have been written; the child's stdin can't be used afterwards.
        """
        await self._stdin.write(data)

    async def read(self) -> bytes:
        """Read from stdout, at least one byte; ``b""`` at its end. One reader at a time.

        The end is also reported a few seconds after the child's exit if another process still holds
        the pipe.

        Cancellation: nothing is lost.
        """
        return await self._stdout.read()

    async def close_stdin(self) -> None:
        """End of file for the child; may be called again."""
        self._stdin.close()

    async def wait(self) -> int:
        """Exit status, negative = signal number. Returns at once when it has already ended.

        All lines of its stderr have been logged by then.
        """
        return await asyncio.shield(self._exit)

    def read_stderr(self) -> None:
        """Process the stderr written so far: all that preceded the latest message on stdout."""
        self._stderr.catch_up()

    def terminate(self) -> None:
        """Send SIGTERM to its process group; does nothing when it is gone."""
        self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to its process group; does nothing when it is gone."""
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        if not self._exit.done() or self._has_leftovers():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _has_leftovers(self) -> bool:
        """Whether the reaped leader's group still has members.

        While it has, the kernel does not reuse its number; a process with that number would be the
        leader of another, newer group.
        """
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False

    def _note_exit(self, reaped: asyncio.Future[int]) -> None:
        self._stderr.catch_up()  # code that waits for the exit may end the daemon next
        self._exit.set_result(reaped.result())
        if self._has_leftovers():
            self._loop.call_later(LEFTOVER_TERM_S, self.terminate)
            self._loop.call_later(LEFTOVER_KILL_S, self.kill)
            self._loop.call_later(GIVE_UP_PIPES_S, self._finish)
        else:
            self._loop.call_later(LEFTOVER_TERM_S, self._finish)

    def _finish(self) -> None:
        """Close the pipes; what they hold now can still be read."""
        self._stdin.close()
        self._stdout.finish()
        self._stderr.finish()
        if self._keeper is not None:
            self._keeper.forget(self.pid)


def _reaped(process: Started) -> asyncio.Future[int]:
    """Resolves to the exit status when our process has ended."""
    loop = asyncio.get_running_loop()
    reaped: asyncio.Future[int] = loop.create_future()

    def poll() -> None:
        status = process.poll()
        if status is None:
            loop.call_later(_POLL_S, poll)
        else:
            reaped.set_result(status)

    def reap(pidfd: int) -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        poll()

    try:
        pidfd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        loop.call_later(_POLL_S, poll)
    else:
        loop.add_reader(pidfd, reap, pidfd)
    return reaped


class ProcessLauncher:
    """Starts children; satisfies :class:`kcl_mld.children.ports.ChildLauncher`.

    A child gets the daemon's environment and working directory, the given variables, and the
    folders of :mod:`kcl_mld.children.adapters.kclpy_path` in ``PYTHONPATH``. Its own session keeps
    Ctrl-C of the daemon's terminal away.

    Args:
        keeper: ends the children if the daemon is killed; None = nothing does.
    """

    def __init__(self, keeper: Guardian | None = None, kclpy: Kclpy = Kclpy.AUTO) -> None:
        self._keeper = keeper
        self._path = PYTHON_PATHS[kclpy]

    async def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        on_stderr: Callable[[bytes], None],
    ) -> ChildProcess:
        """See the port; a file without ``#!`` runs in a shell.

        Cancellation: takes effect once the child has started; the child is then ended.
        """
        with child_pipes() as (theirs, ours):
            try:
                environment = encoded(environment_of_child(os.environ, env, self._path))
                process = await self._start([*map(system_text, argv)], theirs, environment)
            except ValueError as error:  # a NUL byte in an argument, or no program
                raise OSError(str(error)) from error
        return ChildProcess(process.pid, _reaped(process), opened(ours, on_stderr), self._keeper)

    async def _start(
        self, argv: list[str], pipes: Descriptors, environment: Mapping[bytes, bytes]
    ) -> Started:
        """Start it in a thread, because starting takes long on a busy machine."""
        starting = asyncio.ensure_future(_STARTS.run(_spawn, argv, pipes, environment))
        is_cancelled = False
        while not starting.done():
            try:
                await asyncio.wait([starting])
            except asyncio.CancelledError:
                is_cancelled = True
        try:
            process = starting.result()
        except ThreadRefused:
            process = _spawn(argv, pipes, environment)
        if self._keeper is not None:
            self._keeper.watch(process.pid)
        if is_cancelled:
            self._end_unclaimed(process)
            raise asyncio.CancelledError
        return process

    def _end_unclaimed(self, process: Started) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if (keeper := self._keeper) is not None:
            _reaped(process).add_done_callback(lambda _: keeper.forget(process.pid))


@contextlib.contextmanager
def child_pipes() -> Iterator[tuple[Descriptors, Descriptors]]:
    """A child's ends of its pipes, closed on exit, and ours, closed on an exception.

    Raises:
        OSError: no descriptors are left; the text says what to do.
    """
    with _naming_limits(), ExitStack() as undo:
        (child_stdin, stdin), (stdout, child_stdout), (stderr, child_stderr) = (
            _pipe(undo) for _ in range(3)
        )
        yield (child_stdin, child_stdout, child_stderr), (stdin, stdout, stderr)
        undo.pop_all()
        for end in (child_stdin, child_stdout, child_stderr):
            os.close(end)


def opened(ours: Descriptors, on_stderr: Callable[[bytes], None]) -> Pipes:
    """Our ends of a child's pipes, driven by the loop."""
    stdin, stdout, stderr = ours
    return PipeWriter(stdin), PipeReader(stdout), StderrDrain(stderr, on_stderr)


def _spawn(argv: list[str], pipes: Descriptors, environment: Mapping[bytes, bytes]) -> Started:
    """Start a program; a file without a ``#!`` line by ``/bin/sh``, as the JDK does."""
    try:
        return start_program(argv, pipes, environment)
    except OSError as error:
        script = shutil.which(argv[0], path=os.fsdecode(environment.get(b"PATH", os.defpath)))
        if error.errno != errno.ENOEXEC or script is None:
            raise
        return start_program(["/bin/sh", script, *argv[1:]], pipes, environment)


def encoded(environment: Mapping[str, str]) -> dict[bytes, bytes]:
    """The environment in bytes.

    Application and worker names may have any characters: no locale may prevent a child's start.
    """

    def in_bytes(text: str) -> bytes:
        return os.fsencode(system_text(text))

    return {in_bytes(name): in_bytes(value) for name, value in environment.items()}


@contextlib.contextmanager
def _naming_limits() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = _START_ADVICE.get(error.errno or 0, "") or limit_advice(str(error))
        if advice:
            raise OSError(error.errno, f"{error.strerror}{advice}") from error
        raise


def _pipe(undo: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        undo.callback(os.close, end)
    return ends


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files, as the JVM does: a child takes four of the usual 1024.

    Not beyond :data:`DESCRIPTORS`: children inherit it, and some programs close every number up to
    their limit when they start another one.

    Returns: the soft limit in force.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


def resident_bytes(pid: int) -> int | None:
    """Resident memory of a process; None if it is gone or there is no ``/proc``."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return None
