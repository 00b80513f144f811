"""Children that are forked from a template process with their program's imports loaded.

The template is :mod:`kcl_mld.children.adapters.template_main`, one process per command line. If a
program can't have a template, its children start normally, and the reason is logged once. If a
template ends, its children continue, and another one is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcl_mld.children.adapters.child_process import (
    ChildProcess,
    ProcessLauncher,
    child_pipes,
    encoded,
    opened,
)
from kcl_mld.children.adapters.kclpy_path import PYTHON_PATHS
from kcl_mld.children.adapters.pipes import StderrDrain
from kcl_mld.children.adapters.template_main import UNKNOWN_STATUS
from kcl_mld.children.rules.child_environment import environment_of_child
from kcl_mld.config.child_command import SHARD_VARIABLES, PythonCommand, python_command
from kcl_mld.config.config import Kclpy
from kcl_mld.kernel.adapters.system import system_text
from kcl_mld.kernel.model.masking import mask, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kcl_mld.children.adapters.child_process import Pipes
    from kcl_mld.children.adapters.guardian import Guardian
    from kcl_mld.children.adapters.spawning import Descriptors

_log = logging.getLogger("mld.children")

_PROGRAM = Path(__file__).with_name("template_main.py")
_HEAD_BYTES = 256
_MESSAGE_BYTES = 2**16
#: Time limits for a template's imports and for its answers, in seconds.
READY_S = 60.0
ANSWER_S = 10.0
#: A template that ends sooner than this after it was ready failed early; after so many early
#: failures in a row, the next start is delayed.
_SHORT_LIFE_S = 5.0
_SHORT_LIVES = 3
_REST_S = 60.0
#: Time for a template to notice the end of its socket; it does at once, unless it is importing.
_END_S = 0.2
#: Time from the end of such a child until it is certainly reaped.
_REAPED_S = 0.05
#: Longest line of an import's output, in characters.
_LINE_CHARS = 500
#: Number of a template's children that end at the same time: each copies shared memory when Python
#: unloads its modules. One that takes longer than this is waiting for something and no longer
#: counts.
ENDS = 8
END_S = 1.0


class TemplateFailed(Exception):
    """The template could not fork a child; the text says why."""


@dataclass(slots=True)
class _Forked:
    pid: int
    pidfd: int
    reaped: asyncio.Future[int]


class _ForkedChild(ChildProcess):
    """A child of a template; only a few of them end at the same time."""

    def __init__(
        self, child: _Forked, pipes: Pipes, keeper: Guardian | None, ends: asyncio.Semaphore
    ) -> None:
        super().__init__(child.pid, child.reaped, pipes, keeper)
        self._reaped = child.reaped
        self._ends = ends
        self._has_turn = False

    async def close_stdin(self) -> None:
        """End of file for the child, once few others are ending; may be called again.

        Cancellation: the child's stdin stays open.
        """
        if not (self._has_turn or self._reaped.done()):
            await self._ends.acquire()
            self._has_turn = True
            self._reaped.add_done_callback(self._give_back)
            self._loop.call_later(END_S, self._give_back)
        await super().close_stdin()

    def _give_back(self, _reaped: asyncio.Future[int] | None = None) -> None:
        if self._has_turn:
            self._has_turn = False
            self._ends.release()


class PreforkLauncher:
    """Starts children; satisfies :class:`kcl_mld.children.ports.ChildLauncher`.

    Args:
        preload: additional modules for templates to import.
    """

    def __init__(
        self,
        keeper: Guardian | None = None,
        preload: Sequence[str] = (),
        kclpy: Kclpy = Kclpy.AUTO,
    ) -> None:
        self._ordinary = ProcessLauncher(keeper, kclpy)
        self._keeper = keeper
        self._preload = tuple(preload)
        self._path = PYTHON_PATHS[kclpy]
        self._templates: dict[object, _Template] = {}
        self._logged: set[str] = set()

    async def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        on_stderr: Callable[[bytes], None],
    ) -> ChildProcess:
        """Fork a child from the template of its program, or start it normally.

        The first child waits for the imports. Arguments and errors are those of
        :meth:`ProcessLauncher.start`.

        Cancellation: a child that was forked meanwhile is ended.
        """
        words = [*map(system_text, argv)]
        command = _command_of(words, env)
        if isinstance(command, PythonCommand):
            try:
                return await self._template(command, env).start_child(env, on_stderr)
            except TemplateFailed as error:
                command = str(error)
        if command not in self._logged:
            self._logged.add(command)
            _log.warning("childPrefork: %s starts as usual: %s", " ".join(words), command)
        return await self._ordinary.start(argv, env, on_stderr)

    def close(self) -> None:
        """End the templates; their children continue."""
        for template in self._templates.values():
            template.close()

    def _template(self, command: PythonCommand, env: Mapping[str, str]) -> _Template:
        shared = {name: env[name] for name in sorted(env) if name not in SHARD_VARIABLES}
        key = (command, *shared.items())
        known = self._templates.get(key)
        if known is None:
            inherited = {
                name: value for name, value in os.environ.items() if name not in SHARD_VARIABLES
            }
            environment = encoded(environment_of_child(inherited, shared, self._path))
            known = _Template(command, environment, self._preload, self._keeper)
            self._templates[key] = known
        return known


def _command_of(argv: list[str], env: Mapping[str, str]) -> PythonCommand | str:
    if sys.platform != "linux":
        return "only Linux has what it needs"
    path = shutil.which(argv[0], path=env.get("PATH"))
    if path is None:
        return f"{argv[0]} is not found"
    try:
        with open(path, "rb") as program:
            head = program.read(_HEAD_BYTES)
    except OSError as error:
        return str(error)
    return python_command(argv, path, head, env)


class _Template:
    """The template of one command line; replaced if its process ends."""

    def __init__(
        self,
        command: PythonCommand,
        environment: Mapping[bytes, bytes],
        preload: Sequence[str],
        keeper: Guardian | None,
    ) -> None:
        self._command = command
        self._environment = environment
        self._order = {"preload": preload, "variables": SHARD_VARIABLES, "name": command.name}
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._short_lives = 0
        self._last_line = ""
        self._timer: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._ends = asyncio.Semaphore(ENDS)
        self._begin()

    # -- the process -------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._ready = self._future()
        self._ready_at = 0.0
        self._asked: deque[asyncio.Future[_Forked]] = deque()
        self._children: dict[int, _Forked] = {}
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._spawn()
        except (OSError, ValueError) as error:
            self._ready = self._failed(f"no template can be started: {error}")

    def _future(self) -> asyncio.Future[None]:
        """A future whose exception may stay unretrieved."""
        future: asyncio.Future[None] = self._loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    def _failed(self, why: str) -> asyncio.Future[None]:
        future = self._future()
        future.set_exception(TemplateFailed(why))
        return future

    def _spawn(self) -> None:
        command = self._command
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as undo, theirs, child_pipes() as (pipes, ours):
            undo.callback(self._control.close)
            self._control.send(json.dumps(self._order).encode())
            self._process = subprocess.Popen(  # noqa: S603 - the user's own interpreter
                [
                    *(command.interpreter, *command.options, str(_PROGRAM)),
                    *(str(theirs.fileno()), command.script, *command.arguments),
                ],
                stdin=pipes[0],
                stdout=pipes[1],
                stderr=pipes[2],
                env=self._environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            undo.pop_all()
        os.close(ours[0])
        for output in ours[1:]:
            StderrDrain(output, self._note_line).start()
        if self._keeper is not None:
            self._keeper.watch(self._process.pid)
        self._control.setblocking(False)  # noqa: FBT003
        self._loop.add_reader(self._control, self._receive)
        why = f"its imports take more than {READY_S:.0f} s"
        self._timer = self._loop.call_later(READY_S, self._give_up, why)

    def _note_line(self, line: bytes) -> None:
        self._last_line = mask(printable(line.decode("utf-8", "replace")))[:_LINE_CHARS]
        _log.info("template of %s: %s", self._command.script, self._last_line)

    def _give_up(self, why: str) -> None:
        """End a template process that fails; the same follows as if it had ended by itself."""
        if not self._ready.done():
            self._ready.set_exception(TemplateFailed(why))
        self._kill_group()

    def _kill_group(self) -> None:
        """Kill the template's group: children about to be forked.

        Processes that imports started.
        """
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it without a replacement."""
        if self._timer is not None:
            self._timer.cancel()
        if self._process is not None:
            self._end()

    def _end(self) -> tuple[int, int]:
        """Close its descriptors; returns its process id and exit status."""
        process = self._process
        assert process is not None
        self._loop.remove_reader(self._control)
        self._control.close()
        try:
            status = process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._kill_group()
            status = process.wait()
        self._process = None
        if self._keeper is not None:
            self._keeper.forget(process.pid)
        return process.pid, status

    def _lost(self) -> None:
        """The template has ended: its children continue, and another one replaces it."""
        if self._timer is not None:
            self._timer.cancel()
        pid, status = self._end()
        children, self._children = self._children, {}
        for child in children.values():
            self._loop.add_reader(child.pidfd, self._note_orphan_end, child)
        error = TemplateFailed(f"its template ended (status {status}): {self._last_line}")
        for waiting in self._asked:
            if not waiting.done():
                waiting.set_exception(error)
        if not self._ready.done():
            self._ready.set_exception(error)
        if self._ready.exception() is not None:
            return
        is_short = time.monotonic() - self._ready_at < _SHORT_LIFE_S
        self._short_lives = self._short_lives + 1 if is_short else 0
        if self._short_lives < _SHORT_LIVES:
            self._begin()
            after = "another one takes its place"
        else:
            self._ready = self._failed("its template ended too often")
            self._timer = self._loop.call_later(_REST_S, self._begin)
            after = f"another one takes its place in {_REST_S:.0f} s"
        text = "The template process %d of %s ended (status %s): its %d children go on; %s"
        _log.warning(text, pid, self._command.script, status, len(children), after)

    # -- its children ------------------------------------------------------------------------------

    async def start_child(
        self, env: Mapping[str, str], on_stderr: Callable[[bytes], None]
    ) -> ChildProcess:
        """Fork a child.

        Raises:
            TemplateFailed: it can't, now or permanently.
            OSError: no descriptors are left.
        """
        async with self._turn:  # its socket holds few messages
            ready = None
            while ready is not self._ready:  # another template may have replaced it meanwhile
                ready = self._ready
                await asyncio.shield(ready)
            with child_pipes() as (theirs, ours):
                child = await self._fork(env, theirs)
        return _ForkedChild(child, opened(ours, on_stderr), self._keeper, self._ends)

    async def _fork(self, env: Mapping[str, str], descriptors: Descriptors) -> _Forked:
        own = encoded({name: env[name] for name in SHARD_VARIABLES if name in env})
        variables = {name.decode("latin-1"): value.decode("latin-1") for name, value in own.items()}
        asked: asyncio.Future[_Forked] = self._loop.create_future()
        try:
            message = json.dumps({"variables": variables}).encode()
            socket.send_fds(self._control, [message], descriptors)
        except OSError as error:
            raise TemplateFailed(f"its template takes no more: {error}") from error
        self._asked.append(asked)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asked
        except (TimeoutError, asyncio.CancelledError) as error:
            if asked.done() and not asked.cancelled() and asked.exception() is None:
                self._end_unclaimed(asked.result())  # it was forked at the same moment
            if isinstance(error, asyncio.CancelledError):
                raise
            why = f"its template has not answered for {ANSWER_S:.0f} s"
            self._give_up(why)
            raise TemplateFailed(why) from None

    def _end_unclaimed(self, child: _Forked) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        if (keeper := self._keeper) is not None:
            child.reaped.add_done_callback(lambda _: keeper.forget(child.pid))

    def _receive(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._lost()
            return
        message = json.loads(data)
        if "why" in message:
            self._note_ready(message["why"])
        elif "status" in message:
            if (child := self._children.pop(message["pid"], None)) is not None:
                os.close(child.pidfd)
                child.reaped.set_result(message["status"])
        else:
            self._note_child(message, descriptors)

    def _note_ready(self, why: str | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._ready.done():
            return
        if why is not None:
            self._ready.set_exception(TemplateFailed(mask(printable(why))))
            return
        self._ready.set_result(None)
        self._ready_at = time.monotonic()
        if self._process is not None:
            text = "Children of %s are forked from the template process %d"
            _log.info(text, self._command.script, self._process.pid)

    def _note_child(self, message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        asked = self._asked.popleft()
        if "failed" in message:
            if not asked.done():
                asked.set_exception(TemplateFailed(message["failed"]))
            return
        if asked.done() or not descriptors:  # the caller is gone, or no descriptor is left
            for pidfd in descriptors:
                os.close(pidfd)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(message["pid"], signal.SIGKILL)
            if not asked.done():
                asked.set_exception(TemplateFailed(os.strerror(errno.EMFILE)))
            return
        child = _Forked(message["pid"], descriptors[0], self._loop.create_future())
        self._children[child.pid] = child
        if self._keeper is not None:
            self._keeper.watch(child.pid)
        with contextlib.suppress(OSError):
            self._control.send(json.dumps({"seen": child.pid}).encode())
        asked.set_result(child)

    def _note_orphan_end(self, child: _Forked) -> None:
        """A child ended whose template is gone; usually another process reaps it."""
        self._loop.remove_reader(child.pidfd)
        status = UNKNOWN_STATUS
        with contextlib.suppress(ChildProcessError):  # process 1 reaps it
            if (end := os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED)) is not None:
                status = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        os.close(child.pidfd)
        self._loop.call_later(_REAPED_S, child.reaped.set_result, status)
