"""The stubs of a worker: each brings its pipes, is served in a thread, and gets its exit code."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kcl_mld.spark.errors import SparkChildError
from kcl_mld.spark.keep_alive import KEEP_ALIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.spark.parts import SparkService
    from kcl_mld.spark.shard.session import ShardSession
    from kcl_mld.spark.worker.host_log import LinePump, ShardLogHandler

_log = logging.getLogger("mld.spark")

_HELLO_S = 10.0
_SIGN_S = 1.0
_LONGEST_S = 600.0
_MOST_HELLO = 65_536
#: Of a message to a stub, in characters: it must fit into the socket, which is not waited for.
_MOST_SAID = 8_000
_READ_BYTES = 1 << 20
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class ShardInput:
    """What the daemon says to the shard.

    Args:
        descriptor: reading end of the child's stdin.
        connection: to the stub; what comes there is an end, which ends this file too.
    """

    def __init__(self, descriptor: int, connection: socket.socket) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._connection = connection.fileno()
        self._poll.register(connection, select.POLLIN)
        self._chunks: list[bytes] = []

    def readline(self) -> bytes:
        """Bytes up to and including the next newline; empty when daemon or stub are gone."""
        while True:
            if self._chunks and (end := self._chunks[-1].find(b"\n")) >= 0:
                last = self._chunks.pop()
                line = b"".join([*self._chunks, last[: end + 1]])
                self._chunks = [last[end + 1 :]] if end + 1 < len(last) else []
                return line
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            if self._connection in ready or not (chunk := os.read(self._descriptor, _READ_BYTES)):
                self._chunks = []  # half a line is no message
                return b""
            self._chunks.append(chunk)


class ShardOutput:
    """What the shard says to the daemon; the only writer of the child's stdout.

    Args:
        descriptor: writing end of the child's stdout.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_closed = False

    def close(self) -> None:
        """Refuse everything from now on; from any thread."""
        self._is_closed = True

    def write(self, data: bytes) -> int:
        """Write all of it.

        Raises:
            BrokenPipeError: daemon or stub are gone.
        """
        view = memoryview(data)
        while view:
            if self._is_closed:
                raise BrokenPipeError("the stub of the shard is gone")
            view = view[os.write(self._descriptor, view) :]
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""


@dataclass(frozen=True, slots=True)
class ExitNotice:
    """How a stub ends.

    Attributes:
        code: exit code.
        message: what it prints first; "" = nothing.
    """

    code: int = 0
    message: str = ""

    @classmethod
    def of(cls, error: SparkChildError) -> ExitNotice:
        """What an error means to the child."""
        return cls(error.exit_code, str(error) or type(error).__name__)


class Start:
    """The outcome of the host's start, which stubs wait for.

    Attributes:
        keep_alive_s: how often a keep-alive is due meanwhile, in s.
        longest_s: after so long the start counts as hanging: no more keep-alives.
    """

    def __init__(self) -> None:
        self.keep_alive_s = _SIGN_S
        self.longest_s = _LONGEST_S
        self._changed = threading.Condition()
        self._outcome: SparkService | ExitNotice | None = None

    def decide(self, outcome: SparkService | ExitNotice) -> None:
        """All is ready, or nothing will be; a failure replaces what was ready."""
        with self._changed:
            if not isinstance(self._outcome, ExitNotice):
                self._outcome = outcome
            self._changed.notify_all()

    @property
    def outcome(self) -> SparkService | ExitNotice | None:
        """None while it is open."""
        return self._outcome

    def wait(self, stub: Stub) -> SparkService | ExitNotice | None:
        """The outcome, with keep-alives until then; None if the stub went away first."""
        until = time.monotonic() + self.longest_s
        while True:
            patience_s = self.keep_alive_s if time.monotonic() < until else None
            with self._changed:
                if self._changed.wait_for(
                    lambda: stub.is_gone or self._outcome is not None, patience_s
                ):
                    return None if stub.is_gone else self._outcome
            stub.show_life()

    def look_again(self) -> None:
        """A stub has gone."""
        with self._changed:
            self._changed.notify_all()


@dataclass(eq=False)
class Stub:
    """A child of the daemon that waits for its exit code.

    Attributes:
        connection: to it.
        key: tells stubs apart.
        stdin: the child's, ours now; None before and after.
        stdout: likewise.
        environ: what it knows that other stubs don't.
        is_gone: True once its shard has no stub or daemon any more.
        left_at: when that was noticed, monotonic s; None before.
        notice: how its thread ended; None while it runs.
    """

    connection: socket.socket
    key: int
    stdin: int | None = None
    stdout: int | None = None
    environ: dict[str, str] = field(default_factory=dict)
    is_gone: bool = False
    left_at: float | None = None
    notice: ExitNotice | None = None
    is_dismissed: bool = False
    _session: ShardSession | None = None
    _output: ShardOutput | None = None

    @property
    def is_under_way(self) -> bool:
        """True while its shard is; before and after, nothing is lost if it ends at once."""
        return self._session is not None and self._session.is_under_way

    def receive(self) -> int:
        """Take the hello and the descriptors.

        Returns:
            its standard error.

        Raises:
            OSError, ValueError: it said nothing, or something else.
        """
        self.connection.settimeout(_HELLO_S)
        data, descriptors, _, _ = socket.recv_fds(self.connection, _MOST_HELLO, 3, _CLOEXEC)
        self.connection.settimeout(None)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # noqa: FBT003 - as it is named there
        if len(descriptors) != 3:
            for descriptor in descriptors:
                os.close(descriptor)
            raise ValueError("a stub came without its descriptors")
        self.stdin, self.stdout, stderr = descriptors
        hello: dict[str, Any] = json.loads(data)
        self.environ = dict(hello["environ"])
        return stderr

    def say(self, message: dict[str, Any]) -> None:
        """One line to the stub; quiet if it is gone."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT)

    def show_life(self) -> None:
        """Start the daemon's time-out again; only while a status is owed and it is not served."""
        if self.stdout is not None:
            with contextlib.suppress(OSError):
                os.write(self.stdout, KEEP_ALIVE)

    def converse(self, service: SparkService) -> None:
        """Serve its shard until that ends."""
        assert self.stdin is not None
        assert self.stdout is not None
        self._output = ShardOutput(self.stdout)
        stdin = ShardInput(self.stdin, self.connection)
        self._session = service.session(self.environ, stdin, self._output)
        if not self.is_gone:
            self._session.serve()

    def abandon(self) -> None:
        """Nobody listens to the shard any more: its session ends, without another checkpoint."""
        self.is_gone = True
        if self._output is not None:
            self._output.close()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)  # wakes who reads
        if self._session is not None:
            start_thread(self._session.abandon, "abandon")  # it may ask the server

    def dismiss(self, notice: ExitNotice) -> None:
        """Tell the stub how to end; nothing is said to it afterwards."""
        if not self.is_dismissed:
            self.is_dismissed = True
            self.say({"exit": notice.code, "message": notice.message[:_MOST_SAID]})
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the pipes; only once they are not used any more."""
        for descriptor in (self.stdin, self.stdout):
            if descriptor is not None:
                os.close(descriptor)
        self.stdin = self.stdout = None


def serve(
    stub: Stub,
    start: Start,
    pump: LinePump,
    log: ShardLogHandler,
    introduced: Callable[[Stub], None],
) -> ExitNotice:
    """A stub's thread: from its hello to its exit notice.

    Args:
        pump: gets its standard error.
        log: learns that this thread serves it.
        introduced: called once its descriptors are here.
    """
    try:
        stub.say({"host": os.getpid()})
        stderr = stub.receive()
        pump.add(stub.key, stderr)
        log.serve(stub.key)
        introduced(stub)
        outcome = start.wait(stub)
        if isinstance(outcome, ExitNotice):
            return outcome
        if outcome is not None:
            stub.converse(outcome)
    except SparkChildError as error:
        return ExitNotice.of(error)
    except Exception as error:  # noqa: BLE001 - goes to the stub, and into the log
        if not stub.is_gone:
            _log.exception("a shard's session failed")
            return ExitNotice(SparkChildError.exit_code, f"{type(error).__name__}: {error}")
    return ExitNotice()


def start_thread(work: Callable[[], None], name: str) -> None:
    """A thread that doesn't keep the process alive."""
    threading.Thread(target=work, name=name, daemon=True).start()
