"""The process that serves a worker's shards: launches the server, imports the app, ends in time.

It goes when the daemon ends, when its server dies, when its last shard has been gone for
``spark.host.linger``, and on SIGTERM.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from kcl_mld.spark import host_socket
from kcl_mld.spark.app_loading import load, passing_session
from kcl_mld.spark.calls import call_within
from kcl_mld.spark.config import Facts, SparkConfig, gather_properties, read_properties, rooted
from kcl_mld.spark.errors import SparkChildError
from kcl_mld.spark.parts import address_of
from kcl_mld.spark.server.patience import MOST_TIMES
from kcl_mld.spark.worker.host_log import LinePump, ShardLogHandler
from kcl_mld.spark.worker.host_loop import DaemonWatch, End, HostLoop, is_gone, is_zombie
from kcl_mld.spark.worker.host_stubs import ExitNotice, Start, start_thread

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from kcl_mld.spark.parts import SparkParts, SparkService
    from kcl_mld.spark.ports import Address
    from kcl_mld.spark.server.launcher import EmbeddedServer

_log = logging.getLogger("mld.spark")

_T = TypeVar("_T")

_DESCRIPTORS = 65_536
#: How a host's scratch directory begins; its process id follows.
_SCRATCH = "kcl-mld-spark-"
_TELL_S = 1.0
_SIGNAL_S = 0.5
_CLOSE_S = 1.5
_PUMP_S = 0.5
_LEFTOVERS_S = 0.5
_LOOK_S = 0.02
_DEFAULT_LINGER_S = 30.0


class Host:
    """The process.

    Args:
        listener: bound, listening.
    """

    def __init__(
        self, options: argparse.Namespace, listener: socket.socket, parts: SparkParts
    ) -> None:
        self._options = options
        self._listener = listener
        self._parts = parts
        self._pump = LinePump.take_over()
        self._log = ShardLogHandler(self._pump)
        self._start = Start()
        self._server: EmbeddedServer | None = None
        self._service: SparkService | None = None
        self._directory = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-"))
        logging.basicConfig(level=logging.INFO, handlers=[self._log], force=True)
        logging.getLogger("py4j").setLevel(logging.WARNING)
        _raise_limit()
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # it is a text file

    def run(self) -> NoReturn:
        """Start, serve, end.

        The server is launched before there is another thread: its parent-death signal is tied to
        this one, and a fork beside threads is not safe.
        """
        known = self._try(self._launch)
        sweep(Path(self._options.lock).parent)
        sweep_scratch(self._directory.parent)
        loop = HostLoop(
            self._listener,
            self._options.lock,
            DaemonWatch(self._options.daemon),
            self._server,
            self._start,
            self._pump,
            self._log,
            linger_s=known[0].linger_s if known else _DEFAULT_LINGER_S,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: loop.request_end(_TERMINATED))
        self._pump.start()
        start_thread(lambda: self._watch(loop), "host-loop")
        if known is not None and (service := self._try(lambda: self._open(*known))) is not None:
            self._start.decide(service)
            _log.info("the Spark host is ready (pid %d)", os.getpid())
        while True:  # the host loop ends the process; signals arrive here
            # Not for ever: one that comes just before the wait begins would be noticed after it.
            threading.Event().wait(_SIGNAL_S)

    def _try(self, step: Callable[[], _T]) -> _T | None:
        """A step of the start; its failure goes to every stub."""
        try:
            return step()
        except SparkChildError as error:
            self._start.decide(ExitNotice.of(error))
        except Exception as error:  # noqa: BLE001 - goes to every stub, and into the log
            _log.exception("the start failed")
            text = why_not_started(error, self._directory)
            self._start.decide(ExitNotice(SparkChildError.exit_code, text))
        return None

    def _launch(self) -> tuple[SparkConfig, Facts]:
        """Read what is known without Spark, and start the server."""
        properties = gather_properties(os.environ, self._options.properties)
        config = rooted(read_properties(properties), os.getcwd())
        facts = Facts.gather(os.environ, properties)
        self._start.keep_alive_s = facts.keep_alive_s
        self._start.longest_s = (MOST_TIMES + 1) * config.start_timeout_s  # the sink's look is one
        self._server = self._parts.launch(config, self._directory)
        return config, facts

    def _open(self, config: SparkConfig, facts: Facts) -> SparkService:
        """Import the app while the server starts, then put all together."""

        def address() -> Address:
            return address_of(config, self._server)

        options = self._options
        pipeline = load(options.app, options.args, lambda: passing_session(config, facts, address))
        self._service = self._parts.open(config, facts, pipeline, address)
        return self._service

    def _watch(self, loop: HostLoop) -> NoReturn:
        """The other thread: watch until the end, then end everything."""
        try:
            end = loop.run()
            if why := end.notice.message:
                _log.log(logging.INFO if end.is_urgent else logging.ERROR, "%s", why)
            if end.is_urgent:
                self._close()
                loop.shut_down(end, _TELL_S)
            else:
                loop.shut_down(end, _TELL_S)
                self._close()
            self._pump.close(_PUMP_S)
        except BaseException:  # noqa: BLE001 - the process ends below, whatever it was
            _log.exception("the Spark host failed")
            self._close()
            self._pump.close(_PUMP_S)
        finally:
            os._exit(0)

    def _close(self) -> None:
        """Let go of the server: our own by its end, another's by closing the session.

        What either has left in our process session goes, too.
        """
        if self._server is not None:
            self._server.stop()
        elif (service := self._service) is not None:
            with contextlib.suppress(Exception):
                call_within(_CLOSE_S, service.close, name="closing")
        end_leftovers(_LEFTOVERS_S)
        shutil.rmtree(self._directory, ignore_errors=True)


def why_not_started(error: Exception, directory: Path) -> str:
    """What to tell of an error that nobody expects at the start of the host.

    Args:
        directory: of the host's own files.
    """
    text = f"the start of the Spark host failed: {type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{text}; its files are in {directory}, below TMPDIR"
    return text


_TERMINATED = End.because("the Spark host was asked to end")


def _raise_limit() -> None:
    """As many open files as are allowed: a shard takes five."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def sweep(directory: Path) -> None:
    """Remove what hosts left behind that were killed together with their daemon.

    Args:
        directory: of the sockets; the name of one begins with the process id of its daemon.
    """
    for path in directory.glob("*.sock"):
        pid = path.name.partition("-")[0]
        if not pid.isdecimal() or not is_gone(int(pid)):
            continue
        with (
            contextlib.suppress(OSError),
            host_socket.locked(str(path.with_suffix(".lock")), blocking=False) as is_held,
            socket.socket(socket.AF_UNIX) as probe,
        ):
            if is_held and probe.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink()
                path.with_suffix(".lock").unlink()


def sweep_scratch(directory: Path) -> None:
    """Remove the scratch directories of hosts that were killed; rows may lie in them.

    Args:
        directory: for temporary files; only what is ours is looked at.
    """
    for path in directory.glob(f"{_SCRATCH}*-*"):
        pid = path.name.removeprefix(_SCRATCH).partition("-")[0]
        with contextlib.suppress(OSError):
            is_ours = path.lstat().st_uid == os.getuid() and not path.is_symlink()
            if is_ours and pid.isdecimal() and is_gone(int(pid)):
                shutil.rmtree(path, ignore_errors=True)


def end_leftovers(patience_s: float) -> None:
    """Kill everything else in this process's session, if it leads one; return once that is empty.

    That is, above all, Spark's Python workers. They end when the server's end reaches them, by SIGHUP.
    One that was just being forked ignores that signal, goes on in vain, and the daemon does not know
    it. Only Linux shows what a session has.

    Args:
        patience_s: how long to look, in s: what forks may slip through a look.
    """
    if os.getsid(0) != os.getpid():
        return  # the session is somebody else's, and so are its processes
    until = time.monotonic() + patience_s
    while left := list(_others_in_session()):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= until:
            return
        time.sleep(_LOOK_S)


def _others_in_session() -> Iterator[int]:
    """Living processes of our session, zombies left out."""
    own = os.getpid()
    with contextlib.suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):
            pid = int(name)
            with contextlib.suppress(OSError):
                if pid != own and os.getsid(pid) == own and not is_zombie(pid):
                    yield pid
