"""Children as scripts: coroutines that read lines and answer, with all the manners they like."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

#: Free bytes of a pipe, as in Linux.
PIPE_BYTES = 65_536


class Pipe:
    """Bytes in one direction."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.changed = asyncio.Event()
        self.is_closed = False
        self.is_broken = False

    def close(self) -> None:
        self.is_closed = True
        self.changed.set()

    def break_off(self) -> None:
        self.is_broken = True
        self.changed.set()

    async def write(self, data: bytes) -> None:
        if self.is_broken or self.is_closed:
            raise BrokenPipeError("the reader is gone")
        self.buffer += data
        self.changed.set()
        while len(self.buffer) > PIPE_BYTES and not self.is_broken:
            self.changed.clear()
            await self.changed.wait()
        if len(self.buffer) > PIPE_BYTES:
            raise BrokenPipeError("the reader is gone")

    async def read(self) -> bytes:
        while not self.buffer and not self.is_closed:
            self.changed.clear()
            await self.changed.wait()
        data = bytes(self.buffer)
        self.buffer.clear()
        self.changed.set()
        return data


class ScriptedChild:
    """One process. Its script sees :meth:`receive` and :meth:`say`; a returned int is its status.

    Attributes:
        argv: what it was started as.
        env: what was added to its environment.
        heard: the daemon's messages, decoded.
        stderr: passes a line on at once.
        unread_stderr: lines that are still in the pipe.
        signals: names of the signals that came.
        ignores_eof: it goes on after its input ended until it gets a signal.
        ignores_term: only SIGKILL ends it.
        holds_stdout: something that it started keeps its stdout open.
    """

    def __init__(self, pid: int, on_stderr: Callable[[bytes], None]) -> None:
        self.pid = pid
        self.stderr = on_stderr
        self.unread_stderr: list[bytes] = []
        self.stdin = Pipe()
        self.stdout = Pipe()
        self.argv: tuple[str, ...] = ()
        self.env: dict[str, str] = {}
        self.heard: list[dict[str, Any]] = []
        self.signals: list[str] = []
        self.ignores_eof = False
        self.ignores_term = False
        self.holds_stdout = False
        self.status: int | None = None
        self.ended = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._lines = bytearray()

    # -- for the script ------------------------------------------------------------------------

    async def receive(self) -> dict[str, Any] | None:
        """The next message, None at the end of the input."""
        while b"\n" not in self._lines:
            data = await self.stdin.read()
            if not data:
                return None
            self._lines += data
        line, _, rest = bytes(self._lines).partition(b"\n")
        self._lines = bytearray(rest)
        message: dict[str, Any] = json.loads(line)
        self.heard.append(message)
        return message

    async def print(self, line: bytes) -> None:
        """Print a line."""
        await self.stdout.write(line + b"\n")

    async def say(self, **message: Any) -> None:
        """Print a message."""
        await self.print(json.dumps(message).encode())

    async def answer(self, message: Mapping[str, Any]) -> None:
        """Print the status for a message."""
        await self.say(action="status", responseFor=message["action"])

    async def checkpoint(
        self, sequence_number: str | None = None, sub_sequence_number: int | None = None
    ) -> str | None:
        """Ask for a checkpoint; the error name that came back."""
        await self.say(
            action="checkpoint",
            sequenceNumber=sequence_number,
            subSequenceNumber=sub_sequence_number,
        )
        result = await self.receive()
        assert result is not None
        assert result["action"] == "checkpoint"
        error: str | None = result["error"]
        return error

    # -- for the daemon ------------------------------------------------------------------------

    async def write(self, data: bytes) -> None:
        await self.stdin.write(data)

    async def read(self) -> bytes:
        return await self.stdout.read()

    async def close_stdin(self) -> None:
        self.stdin.close()

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.status is not None
        return self.status

    def read_stderr(self) -> None:
        lines, self.unread_stderr = self.unread_stderr, []
        for line in lines:
            self.stderr(line)

    def terminate(self) -> None:
        self.signals.append("TERM")
        if not self.ignores_term:
            self.end(-15)

    def kill(self) -> None:
        self.signals.append("KILL")
        self.holds_stdout = False
        self.stdout.close()
        self.end(-9)

    def end(self, status: int) -> None:
        """The process ends."""
        if self.status is None:
            self.status = status
            self.stdin.break_off()
            if not self.holds_stdout:
                self.stdout.close()
            self.ended.set()
            if self.task is not None and self.task is not asyncio.current_task():
                self.task.cancel()


Script = Callable[[ScriptedChild], Awaitable[int | None]]


def ends_at(action: str, status: int) -> Script:
    """A script that answers all messages, and ends with a status at the first of an action."""

    async def script(child: ScriptedChild) -> int:
        while (message := await child.receive()) is not None:
            if message["action"] == action:
                return status
            await child.answer(message)
        return 0

    return script


async def polite(child: ScriptedChild) -> int:
    """Answers everything; checkpoints after every batch, at shard end and at shutdown."""
    while (message := await child.receive()) is not None:
        if message["action"] in {"processRecords", "shardEnded", "shutdownRequested"}:
            await child.checkpoint()
        await child.answer(message)
    return 0


class ScriptedChildren:
    """A ChildLauncher; the n-th child runs the n-th script, the last script is used again."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts) or [polite]
        self.children: list[ScriptedChild] = []
        self.envs: list[Mapping[str, str]] = []
        self.refuses: OSError | None = None

    async def start(
        self, argv: Sequence[str], env: Mapping[str, str], on_stderr: Callable[[bytes], None]
    ) -> ScriptedChild:
        if self.refuses is not None:
            raise self.refuses
        script = self.scripts[min(len(self.children), len(self.scripts) - 1)]
        child = ScriptedChild(1000 + len(self.children), on_stderr)
        child.argv, child.env = tuple(argv), dict(env)
        self.children.append(child)
        self.envs.append(env)
        child.task = asyncio.get_running_loop().create_task(self._live(child, script))
        return child

    async def _live(self, child: ScriptedChild, script: Script) -> None:
        try:
            status = await script(child)
        except BrokenPipeError:
            status = 1
        if child.ignores_eof and child.status is None:
            await asyncio.get_running_loop().create_future()
        child.end(status or 0)

    def heard(self, index: int = -1) -> list[str]:
        """Actions that a child was told, checkpoint results left out."""
        actions = [message["action"] for message in self.children[index].heard]
        return [action for action in actions if action != "checkpoint"]
