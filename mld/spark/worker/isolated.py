"""A shard's process that runs everything itself: ``spark.processor.mode=isolated``.

The stub becomes this program. With an embedded server the worker's host launches the JVM and tells
URL and token; it runs no app then. With ``spark.remote`` there is no host.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import logging
import os
import select
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn

from mld.spark import stub
from mld.spark.app_loading import load, passing_session, require_pyspark
from mld.spark.config import read_properties
from mld.spark.errors import SparkChildError, SparkConfigError, SparkUnreachable
from mld.spark.facts import Facts, gather_properties
from mld.spark.keep_alive import KEEP_ALIVE, KeepAlive
from mld.spark.parts import SparkParts, address_of
from mld.spark.shard.pipes import ShardInput, ShardOutput
from mld.spark.stub_wait import end
from mld.spark.worker.host_stubs import start_thread
from mld.spark.worker.packages import check_packages

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from mld.spark.parts import Address, Parts, Session

_log = logging.getLogger("mld.spark.worker.isolated")

_EOF_GRACE_S = 1.0
_ABANDON_GRACE_S = 2.0
_GONE = (SparkChildError.exit_code, "the Spark host has ended")


def main(argv: Sequence[str] | None = None, parts: Parts | None = None) -> NoReturn:
    """Serve one shard; ends the process.

    Args:
        argv: arguments; None = those of the process.
        parts: what it is made of; None = the real ones.
    """
    stdin, stdout = _take_over_pipes()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    options = _parse(sys.argv[1:] if argv is None else argv)
    try:
        _serve(options, parts or SparkParts(), stdin, stdout)
    except SparkChildError as error:
        end(error.exit_code, str(error))
    except Exception as error:  # noqa: BLE001 - said to the daemon's log
        _log.exception("the shard's session failed")
        end(SparkChildError.exit_code, f"{type(error).__name__}: {error}")
    end(0, "")


def _take_over_pipes() -> tuple[int, int]:
    """The protocol's pipes for us alone; prints go to standard error from here on."""
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # it is a text file
    return stdin, stdout


def _serve(options: argparse.Namespace, parts: Parts, stdin: int, stdout: int) -> None:
    watch = _Watch(stdin)
    watch.start()
    properties = gather_properties(os.environ, options.properties)
    config = read_properties(properties)
    if config.mode != "isolated":
        raise SparkConfigError(
            f"spark.processor.mode={config.mode} was read as isolated when the process was "
            f"started: write the key and its value on one line, without escapes"
        )
    facts = Facts.gather(os.environ, properties)
    check_packages()
    worker = _Worker.attach(options) if config.is_embedded else None

    @functools.cache
    def address() -> Address:
        if worker is None:
            return address_of(config, None)
        found = worker.address()
        watch.start_host(worker)
        return found

    output = ShardOutput(stdout)
    longest_s = 2 * config.start_timeout_s
    with KeepAlive(lambda: output.write(KEEP_ALIVE), facts.keep_alive_s, longest_s):
        require_pyspark()
        pipeline = load(options.app, options.args, lambda: passing_session(config, facts, address))
        service = parts.open(config, facts, pipeline, address)
    connection = None if worker is None else worker.connection
    session = service.session(facts, ShardInput(stdin, connection), output)
    watch.over(session, output)
    session.serve()
    if (notice := watch.exit_notice()) is not None:  # its input ended because the server did
        end(*notice)


class _Worker:
    """The worker's host, which has the server."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._unread = b""

    @classmethod
    def attach(cls, options: argparse.Namespace) -> _Worker:
        """Find or start it.

        Raises:
            SparkUnreachable: it can't be started.
        """
        command = stub.host_command(
            options.host, options.properties, options.app, options.args, server_only=True
        )
        words = ["isolated", options.properties or "", options.app, *options.args]
        try:
            return cls(stub.connect(command, words, "server", (2,)))
        except OSError as error:
            raise SparkUnreachable(f"the Spark host can't be reached: {error}") from error

    def address(self) -> Address:
        """URL and token, once the server is ready.

        Raises:
            SparkChildError: it did not start; with the host's own exit code.
        """
        while (word := self.next_word()) is not None:
            if "url" in word:
                return word["url"], word["token"]
            if "exit" in word:
                _fail(word)
        raise SparkUnreachable("the Spark host has ended")

    def has_news(self) -> bool:
        """True if it said something more, or ended."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        return bool(self._unread or poll.poll(0))

    def next_word(self) -> dict[str, Any] | None:
        """The next line of the host; None at the end."""
        while b"\n" not in self._unread:
            with contextlib.suppress(OSError):
                if chunk := self.connection.recv(65_536):
                    self._unread += chunk
                    continue
            return None
        line, _, self._unread = self._unread.partition(b"\n")
        return dict(json.loads(line))


def _fail(word: dict[str, Any]) -> NoReturn:
    error = SparkUnreachable(word["message"])
    error.exit_code = int(word["exit"])
    raise error


class _Watch:
    """Ends the process when the daemon or the server is gone, whatever the session is doing.

    Args:
        stdin: hung up when the daemon is gone.

    Attributes:
        host: whose words mean an end; None with a remote server.
    """

    def __init__(self, stdin: int) -> None:
        self._stdin = stdin
        self.host: _Worker | None = None
        self._lock = threading.Lock()
        self._word: tuple[int, str] | None = None
        self._session: Session | None = None
        self._output: ShardOutput | None = None
        self._never = threading.Event()

    def start(self) -> None:
        """Watch the daemon from now on."""
        start_thread(self._watch_daemon, "daemon-watch")

    def start_host(self, host: _Worker) -> None:
        """Watch the host as well, which has told its address."""
        self.host = host
        start_thread(self._watch_host, "host-watch")

    def over(self, session: Session, output: ShardOutput) -> None:
        """Whom to tell."""
        self._output, self._session = output, session

    def _watch_daemon(self) -> None:
        poll = select.poll()
        poll.register(self._stdin, 0)  # only its hang-up
        poll.poll()
        self._never.wait(_EOF_GRACE_S)
        self._end((SparkChildError.exit_code, "the daemon left in mid-batch"))

    def _watch_host(self) -> None:
        assert self.host is not None
        poll = select.poll()
        poll.register(self.host.connection, select.POLLIN)
        poll.poll()
        self._end(self.exit_notice() or _GONE)

    def _end(self, notice: tuple[int, str]) -> NoReturn:
        """Give the session a moment to come to an end, then end the process."""
        if self._output is not None:
            self._output.close()
        if self._session is not None:
            start_thread(self._session.abandon, "abandon")
        self._never.wait(_ABANDON_GRACE_S)
        end(*notice)

    def exit_notice(self) -> tuple[int, str] | None:
        """Exit code and message, if the host has ended or said them; from any thread."""
        with self._lock:
            if self._word is None and self.host is not None and self.host.has_news():
                word = self.host.next_word()
                self._word = _GONE if word is None else (int(word["exit"]), word["message"])
            return self._word


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mld.spark.worker.isolated")
    parser.add_argument("--host", required=True)
    parser.add_argument("--properties")
    parser.add_argument("app")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
