"""The loop of the host: takes stubs in, notices every end, and knows when the host is done.

One thread waits for all of it: a new stub, a stub that went away, the end of the daemon, of the
server, and of the linger after the last shard.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kcl_mld.spark import host_socket
from kcl_mld.spark.errors import SparkChildError
from kcl_mld.spark.host_socket import start_time
from kcl_mld.spark.server.failure import ending
from kcl_mld.spark.worker.host_stubs import ExitNotice, Start, Stub, serve, start_thread

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from kcl_mld.spark.server.launcher import EmbeddedServer
    from kcl_mld.spark.worker.host_log import LinePump, ShardLogHandler

_log = logging.getLogger("mld.spark")

#: How often is asked what the kernel does not tell.
_TICK_MS = 250
#: A shard whose daemon closed its input has this long to end by itself, and to obey.
_EOF_GRACE_S = 1.0
_ABANDON_GRACE_S = 3.0
_LOCK_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class End:
    """Why the host ends.

    Attributes:
        notice: for the stubs that are still there; its message goes to the log, too.
        is_urgent: True if the daemon has ended, so that the stubs can wait.
    """

    notice: ExitNotice
    is_urgent: bool = False

    @classmethod
    def because(cls, why: str, *, is_urgent: bool = False) -> End:
        """An end that is a failure for the stubs that are still there."""
        return cls(ExitNotice(SparkChildError.exit_code, why), is_urgent)


class DaemonWatch:
    """Watches one process, by a descriptor of the kernel where there is one.

    Attributes:
        descriptor: becomes readable when it ends; None: :meth:`has_ended` must be asked.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start_time = start_time(pid)
        self.descriptor: int | None = None
        self._has_ended = False
        try:
            self.descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._has_ended = True
        except (AttributeError, OSError):
            pass  # no such call here, or not allowed: it is asked for

    def has_ended(self) -> bool:
        """True once it is gone; a zombie is."""
        self._has_ended = (
            self._has_ended
            or is_gone(self._pid)
            or self._start_time != start_time(self._pid)
            or is_zombie(self._pid)
        )
        return self._has_ended


def is_gone(pid: int) -> bool:
    """True if there is no process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def is_zombie(pid: int) -> bool:
    """True for one that has ended and waits for its parent; False where that can't be known."""
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in {b"Z", b"X"}
    return False


class HostLoop:
    """Watches; everything here happens in the thread of :meth:`run`, unless noted.

    Args:
        listener: bound, listening.
        lock_path: of the lock under which stubs connect.
        daemon: whose end ends the host.
        server: likewise; None = it is somebody else's.
        pump: gets the stubs' standard errors.
        log: learns which thread serves which shard.
        linger_s: how long to stay without a stub, in s.
    """

    def __init__(
        self,
        listener: socket.socket,
        lock_path: str,
        daemon: DaemonWatch,
        server: EmbeddedServer | None,
        start: Start,
        pump: LinePump,
        log: ShardLogHandler,
        *,
        linger_s: float,
    ) -> None:
        self._listener = listener
        self._lock_path = lock_path
        self._daemon = daemon
        self._start = start
        self._pump = pump
        self._log = log
        self._linger_s = linger_s
        self._server = server
        self._stubs: dict[int, Stub] = {}
        self._newcomers: deque[Stub] = deque()
        self._finished: deque[Stub] = deque()
        self._keys = iter(range(1, 1 << 62))
        self._poll = select.poll()
        self._watched: dict[int, Callable[[], None]] = {}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._end: End | None = None
        self._alone_since: float | None = time.monotonic()
        self._leaving_since: float | None = None
        listener.settimeout(0)
        self._watch(listener.fileno(), select.POLLIN, self._accept)
        self._watch(self._wake_read, select.POLLIN, self._woken)
        if daemon.descriptor is not None:
            self._watch(daemon.descriptor, select.POLLIN, self._look_at_daemon)

    def request_end(self, end: End) -> None:
        """End; from any thread. The first one counts."""
        if self._end is None:
            self._end = end
        self._wake()

    def run(self) -> End:
        """Watch until there is a reason to end; no stub can connect any more when it returns."""
        while (end := self._reason()) is None or not self._leave(end):
            self._turn()
        return end

    def shut_down(self, end: End, timeout_s: float) -> None:
        """Tell every stub how to end, once its thread has let go or after the time."""
        self._start.decide(end.notice)
        for stub in list(self._stubs.values()):
            stub.notice = end.notice
            self._abandon(stub)
        deadline = time.monotonic() + timeout_s
        while self._stubs and time.monotonic() < deadline:
            self._turn(50)
        for stub in list(self._stubs.values()):
            stub.dismiss(end.notice)

    # -- events --------------------------------------------------------------------------------

    def _turn(self, timeout_ms: int = _TICK_MS) -> None:
        for descriptor, _ in self._poll.poll(timeout_ms):
            if (react := self._watched.get(descriptor)) is not None:
                react()
        while self._newcomers:
            self._watch_stub(self._newcomers.popleft())
        while self._finished:
            self._release(self._finished.popleft())
        self._look_at_late_ones()

    def _watch(self, descriptor: int, events: int, react: Callable[[], None]) -> None:
        self._watched[descriptor] = react
        self._poll.register(descriptor, events)

    def _unwatch(self, descriptor: int) -> None:
        if self._watched.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # too many open files: it waits for its turn
                _log.error("cannot accept a stub: %s", error)
                time.sleep(_TICK_MS / 1000)
                return
            connection.settimeout(None)
            stub = Stub(connection, next(self._keys))
            self._stubs[stub.key] = stub
            self._alone_since = None
            start_thread(partial(self._serve, stub), f"stub-{stub.key}")

    def _serve(self, stub: Stub) -> None:
        """In the stub's own thread."""
        notice = ExitNotice(SparkChildError.exit_code, "its thread in the Spark host ended")
        try:
            notice = serve(stub, self._start, self._pump, self._log, self._introduced)
        finally:
            stub.notice = stub.notice or notice
            self._finished.append(stub)
            self._wake()

    def _release(self, stub: Stub) -> None:
        """Its thread is over: let go of the pipes first, so that its exit is the last thing."""
        self._unwatch_stub(stub)
        stub.close()
        self._pump.remove(stub.key)
        stub.dismiss(stub.notice or ExitNotice())
        stub.connection.close()
        del self._stubs[stub.key]
        if not self._stubs:
            self._alone_since = time.monotonic()

    # -- stubs ---------------------------------------------------------------------------------

    def _introduced(self, stub: Stub) -> None:
        """A stub's descriptors are here; in the stub's own thread."""
        self._newcomers.append(stub)
        self._wake()

    def _watch_stub(self, stub: Stub) -> None:
        if stub.key not in self._stubs:
            return
        self._watch(stub.connection.fileno(), select.POLLIN, lambda: self._stub_gone(stub))
        if stub.stdin is not None:
            self._watch(stub.stdin, 0, lambda: self._daemon_gone(stub))  # only its hang-up

    def _unwatch_stub(self, stub: Stub) -> None:
        self._unwatch(stub.connection.fileno())
        if stub.stdin is not None:
            self._unwatch(stub.stdin)

    def _stub_gone(self, stub: Stub) -> None:
        self._unwatch_stub(stub)
        stub.left_at = stub.left_at or time.monotonic()
        self._abandon(stub)

    def _abandon(self, stub: Stub) -> None:
        stub.abandon()
        self._start.look_again()

    def _daemon_gone(self, stub: Stub) -> None:
        """Nothing more will be said to the shard; what was said is still read."""
        assert stub.stdin is not None
        self._unwatch(stub.stdin)
        stub.left_at = time.monotonic()
        if self._start.outcome is None:  # there is nothing that could still be done for it
            stub.left_at -= _EOF_GRACE_S
            self._abandon(stub)

    def _look_at_late_ones(self) -> None:
        for stub in list(self._stubs.values()):
            if stub.left_at is None:
                continue
            late = time.monotonic() - stub.left_at
            if late > _EOF_GRACE_S and not stub.is_gone:
                self._abandon(stub)
            is_late = late > _ABANDON_GRACE_S or (late > _EOF_GRACE_S and not stub.is_under_way)
            if is_late and not stub.is_dismissed:
                self._pump.remove(stub.key)
                stub.dismiss(_LEFT_IN_MID_BATCH if stub.is_under_way else ExitNotice())

    # -- the end -------------------------------------------------------------------------------

    def _look_at_daemon(self) -> None:
        if self._daemon.has_ended():
            self.request_end(_DAEMON_ENDED)

    def _reason(self) -> End | None:
        # A request from another thread may come while we look, and must not be overwritten.
        if self._end is None and (failure := self._failure()) is not None:
            self.request_end(failure)
        if self._end is not None:
            return self._end
        since = self._alone_since
        if since is not None and time.monotonic() - since >= self._linger_s:
            return _LINGERED
        return None

    def _failure(self) -> End | None:
        if self._daemon.has_ended():
            return _DAEMON_ENDED
        outcome = self._start.outcome
        if isinstance(outcome, ExitNotice):
            return End(outcome)
        if outcome is None or self._server is None or (code := self._server.poll()) is None:
            return None
        how = ending(code, self._server.last_lines())
        return End.because(f"the Spark server (pid {self._server.pid}) {how}")

    def _leave(self, end: End) -> bool:
        """Close the door under the lock; False if it can't be had yet, or somebody came in."""
        now = time.monotonic()
        self._leaving_since = self._leaving_since or now
        with host_socket.locked(self._lock_path, blocking=False) as is_held:
            has_patience = not end.is_urgent and now - self._leaving_since < _LOCK_PATIENCE_S
            if not is_held and has_patience:
                return False
            self._accept()
            if end is _LINGERED and (self._stubs or not is_held):
                self._leaving_since = None
                return False
            self._unwatch(self._listener.fileno())
            for path in (self._listener.getsockname(), self._lock_path):
                with contextlib.suppress(OSError):
                    os.unlink(path)
            self._listener.close()
        return True


_LEFT_IN_MID_BATCH = ExitNotice(SparkChildError.exit_code, "the daemon left in mid-batch")
_DAEMON_ENDED = End.because("the daemon has ended", is_urgent=True)
_LINGERED = End(ExitNotice())
