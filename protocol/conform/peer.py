"""The daemon's side of one real child process, with a time limit on everything."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Protocol

from kcl_mld_protocol.connection import DaemonConnection
from kcl_mld_protocol.errors import ProtocolError
from kcl_mld_protocol.events import (
    NEED_DATA,
    CheckpointRequested,
    JunkLine,
    StatusReceived,
)
from kcl_mld_protocol.jackson import decode_from_child
from kcl_mld_protocol.messages import CheckpointRequest, CheckpointResult, DaemonMessage, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

_READ_BYTES = 65_536
#: How long a child is listened to after its status, to catch a second one.
_LINGER_S = 0.1
#: How long the rest of an ended child's output is waited for: others may hold its pipes open.
_DRAIN_S = 1.0


def store(request: CheckpointRequest) -> CheckpointResult:
    """Answer a checkpoint request as if it had been stored."""
    return CheckpointResult(request.sequence_number, request.sub_sequence_number)


@dataclass(slots=True)
class Exchange:
    """What a child did with one action.

    Attributes:
        answered: the matching status came in time.
        checkpoints: requests in the order they came.
        junk: lines that were no message.
        failure: why it was not answered; empty when it was.
        seconds: from sending to the status.
        surplus: bytes that came after the status, unasked.
    """

    answered: bool = False
    checkpoints: list[CheckpointRequest] = field(default_factory=list)
    junk: list[JunkLine] = field(default_factory=list)
    failure: str = ""
    seconds: float = 0.0
    surplus: bytes = b""

    def evidence(self) -> str:
        """One sentence for the report."""
        answer = f"status after {self.seconds:.2f} s" if self.answered else self.failure
        asked = f", {len(self.checkpoints)} checkpoint requests" if self.checkpoints else ""
        return f"{answer}{asked}"


class Peer:
    """A child process and the conversation with it.

    Args:
        environment: added to the inherited environment.
        timeout_s: limit for each answer.
        on_stderr: called, from another thread, with each piece of its stderr as it comes.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._on_stderr = on_stderr
        self._process = _start_program(list(command), {**os.environ, **environment})
        self._connection = DaemonConnection("shardId-000000000000")
        self._chunks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._sent: Counter[str] = Counter()
        self.stdout = bytearray()
        self.stderr = bytearray()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._pumps = (
            self._start(self._pump, self._process.stdout, self._chunks.put),
            self._start(self._pump, self._process.stderr, self._hear),
        )

    @staticmethod
    def _start(target: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        return thread

    @staticmethod
    def _pump(stream: IO[bytes], sink: Callable[[bytes], object]) -> None:
        while chunk := os.read(stream.fileno(), _READ_BYTES):
            sink(chunk)
        sink(b"")

    def _hear(self, chunk: bytes) -> None:
        self.stderr += chunk
        if self._on_stderr is not None and chunk:
            self._on_stderr(chunk)

    def send(
        self,
        message: DaemonMessage,
        answer: Callable[[CheckpointRequest], CheckpointResult] = store,
    ) -> Exchange:
        """Send one action, serve its checkpoint requests, wait for its status."""
        exchange = Exchange()
        started = time.monotonic()
        deadline = started + self._timeout_s
        try:
            self._write(self._connection.send(message))
            self._sent[message.action] += 1
            while not exchange.answered:
                self._step(exchange, answer, deadline)
        except (ProtocolError, OSError, TimeoutError) as error:
            exchange.failure = str(error) or type(error).__name__
            return exchange
        exchange.seconds = time.monotonic() - started
        exchange.surplus = self._linger()
        return exchange

    def _step(
        self,
        exchange: Exchange,
        answer: Callable[[CheckpointRequest], CheckpointResult],
        deadline: float,
    ) -> None:
        match self._connection.next_event():
            case StatusReceived():
                exchange.answered = True
            case CheckpointRequested(request=request):
                exchange.checkpoints.append(request)
                self._write(self._connection.send(answer(request)))
            case JunkLine() as junk:
                exchange.junk.append(junk)
            case event if event is NEED_DATA:
                self._receive(deadline - time.monotonic())
            case _:  # a message that is no child's: daemons skip it
                pass

    def _receive(self, timeout_s: float) -> bytes:
        try:
            chunk = self._chunks.get(timeout=max(timeout_s, 0))
        except queue.Empty:
            raise TimeoutError(f"no answer within {self._timeout_s:g} s") from None
        self.stdout += chunk
        self._connection.receive_data(chunk)
        return chunk

    def _linger(self) -> bytes:
        before, deadline = len(self.stdout), time.monotonic() + _LINGER_S
        with contextlib.suppress(TimeoutError):
            all(iter(lambda: self._receive(deadline - time.monotonic()), b""))
        return bytes(self.stdout[before:])

    def surplus_statuses(self) -> list[str]:
        """Actions answered more often than they were sent, at any time; sorted."""
        statuses: Counter[str] = Counter()
        for line in self.stdout.splitlines():
            match decode_from_child(bytes(line)):
                case Status(response_for=str() as action):
                    statuses[action] += 1
                case _:
                    pass
        return sorted(action for action in self._sent if statuses[action] > self._sent[action])

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        writer = self._start(self._write_all, self._process.stdin, data)
        writer.join(self._timeout_s)
        if writer.is_alive():
            raise TimeoutError(f"the child did not read its stdin within {self._timeout_s:g} s")

    @staticmethod
    def _write_all(stream: IO[bytes], data: bytes) -> None:
        with contextlib.suppress(OSError):  # a dead child shows at its stdout
            stream.write(data)
            stream.flush()

    def write_raw(self, line: bytes) -> None:
        """Write a line outside the protocol."""
        self._write(line + b"\n")

    def close_stdin(self) -> None:
        """End the child's stdin."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def wait_exit(self, timeout_s: float) -> int | None:
        """The exit status (negative = signal); None if it still runs after that time."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        for pump in self._pumps:
            pump.join(_DRAIN_S)
        with contextlib.suppress(TimeoutError):
            while self._receive(_DRAIN_S):
                pass
        return code

    def kill(self) -> None:
        """End the whole session of the child, whatever it does."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.close_stdin()
        for pump, stream in zip(
            self._pumps, (self._process.stdout, self._process.stderr), strict=True
        ):
            pump.join(_DRAIN_S)
            if stream is not None and not pump.is_alive():
                stream.close()


def _start_program(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a child as daemons do: a file without a ``#!`` line is run by ``/bin/sh``."""
    try:
        return _popen(command, environment)
    except OSError as error:
        script = shutil.which(command[0], path=environment.get("PATH"))
        if error.errno != errno.ENOEXEC or script is None:
            raise
        return _popen(["/bin/sh", script, *command[1:]], environment)


def _popen(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )


class Peers(Protocol):
    """Where a case gets its children from."""

    def peer(self, **environment: str) -> AbstractContextManager[Peer]:
        """A fresh child with these variables, gone at the end of the block."""
