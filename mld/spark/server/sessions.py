"""Sessions with a Spark Connect server: made anew when lost, quick to report that no server answers.

What pyspark does by itself, and what is done about it here:

* Its client retries for more than ten minutes, even while the interpreter exits: four retries
  within about three seconds here, and no calls at exit. A session's own policies are told so by
  their public attributes, and asked how long they would wait now. What does not obey is left as
  pyspark made it, with a warning.
* It speaks plain text with a token only if the host is literally ``localhost``. With any other
  name a token means TLS, so a cluster that wants a token must offer TLS.
* Made from the Connect class directly, ``pyspark.sql.functions`` stays in classic mode: the
  session comes from ``pyspark.sql.SparkSession.builder``.
* A server drops a session that was idle for an hour, and a restarted one knows none.
* The active session is one of the thread that has made it, and nothing public makes it that of
  another thread. So each session has a thread, which makes it and then all calls of the function.

A call that failed because its session was lost is not repeated here: whether a write may be
repeated is for the sink to know.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import threading
import urllib.parse
from functools import cache
from typing import TYPE_CHECKING, Any

from kcl_mld.config.spark import addresses as spark_addresses
from kcl_mld.config.spark.places import token_fault
from kcl_mld.spark.calls import CallThread, Overdue, call_within
from kcl_mld.spark.errors import SparkConfigError, SparkUnreachable
from kcl_mld.spark.failures import describe, is_server_gone, is_session_lost, status_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import SparkSession

    from kcl_mld.spark.config import SparkConfig

_log = logging.getLogger("mld.spark")

#: pyspark writes every failed query there, on standard error, with the values that it failed on.
_LOGGERS_OF_DATA = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_PROBE_TIMEOUT_S = 3.0
_CLOSE_TIMEOUT_S = 3.0
_CREATE_TIMEOUT_S = 30.0
_RETRIES = 4
_REMOTE_VARIABLE = "SPARK_REMOTE"
_LONGEST_MS = 2000
#: Of all waits together; with pyspark's jitter of half a second each.
_PATIENCE_S = 8.0


def remote_token(config: SparkConfig, environ: Mapping[str, str]) -> str | None:
    """The token for ``spark.remote``; None if no variable is named.

    Raises:
        SparkConfigError: ``spark.remote.token.env`` names a variable that is not set.
    """
    if config.token_variable is None:
        return None
    if (fault := token_fault(config.texts, environ)) is not None:
        raise SparkConfigError(str(fault))
    return environ.get(config.token_variable)


class ConnectSessions:
    """The session of this process with one server; implements ``ports.Sessions``."""

    def __init__(self, url: str, token: str | None, config: SparkConfig, app_name: str) -> None:
        """Nothing is opened before the first :meth:`get`.

        Args:
            url: ``sc://host:port``, perhaps with parameters (``/;use_ssl=true``).
            token: what the server wants to see; None = nothing, or what the URL holds.
            config: with a server that is not ours its ``conf`` is set in every session.
            app_name: shown by the server beside our calls.
        """
        self._host, self._port = connect_address(url)
        self._url = complete_url(url, token, app_name)
        self._offered = f"sc://{self._host}:{self._port}"
        self._conf = {"spark.sql.session.timeZone": "UTC"} if not config.is_embedded else {}
        self._conf |= config.conf if not config.is_embedded else {}
        self._lock = threading.RLock()
        self._session: SparkSession | None = None
        self._thread: CallThread | None = None
        self._is_closed = False

    def get(self) -> SparkSession:
        """The live session; a new one if the old one was given up or is closed.

        Raises:
            SparkUnreachable: no server answers, or it refuses us; after less than 10 s.
            SparkConfigError: the server does not take something of ``spark.conf.*``.
        """
        with self._lock:
            if self._is_closed:
                raise SparkUnreachable("the Spark sessions of this process are closed")
            if self._session is not None and _client(self._session).is_closed:
                self.renew(self._session)
            if self._session is None:
                self._session = self._open()
            return self._session

    def offer(self) -> None:
        """Let ``SparkSession.builder.getOrCreate()`` in an app give this very session.

        pyspark looks for a URL before it looks for its session. It needs no token.
        """
        os.environ[_REMOTE_VARIABLE] = self._offered

    def renew(self, lost: SparkSession | None = None) -> None:
        """Give a session up, so that the next :meth:`get` makes a new one.

        Args:
            lost: the session that a call failed with. If somebody has renewed it already, nothing
                happens; so each of several threads may say so. None = whichever there is.
        """
        with self._lock:
            session = self._session
            if session is None or (lost is not None and lost is not session):
                return
            self._session = None
            self._end_thread()
        _log.info("the Spark session is abandoned; a new one is created")
        _end(session, release=False)

    def start(self, session: SparkSession, work: Callable[[], None]) -> None:
        """As ``ports.Sessions``; for a session that was given up meanwhile in any thread."""
        with self._lock:
            thread = self._thread if session is self._session else None
        if thread is None:
            threading.Thread(target=work, name="spark-call", daemon=True).start()
        else:
            thread.start(work)

    def interrupt(self, tag: str) -> None:
        """End the operations that carry a tag, of any thread.

        Quiet if that is not possible, and back after three seconds even if the server hangs.
        """
        if (session := self._session) is not None:
            _within_seconds(lambda: session.interruptTag(tag), f"interrupting {tag}")

    def close(self) -> None:
        """Let go of the server within three seconds, whatever its state; for good."""
        with self._lock:
            session, self._session = self._session, None
            self._is_closed = True
            self._end_thread()
        if os.environ.get(_REMOTE_VARIABLE) == self._offered:
            del os.environ[_REMOTE_VARIABLE]
        if session is not None:
            _end(session, release=True)

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    def _open(self) -> SparkSession:
        """A session that has answered once, with its thread."""
        self._probe()
        from pyspark.logger import PySparkLogger  # noqa: PLC0415 - takes half a second
        from pyspark.sql import SparkSession  # noqa: PLC0415

        for name in _LOGGERS_OF_DATA:  # made here by pyspark's own class, or it would stumble
            PySparkLogger.getLogger(name).disabled = True
        offered = os.environ.pop(_REMOTE_VARIABLE, None)  # pyspark refuses two URLs
        self._thread = CallThread("spark-calls")
        try:
            session = call_within(
                _CREATE_TIMEOUT_S,
                SparkSession.builder.remote(self._url).create,  # asks the server nothing
                name="spark-session",
                start=self._thread.start,
            )
        except BaseException:
            self._end_thread()
            raise
        finally:
            if offered is not None:
                os.environ[_REMOTE_VARIABLE] = offered
        try:
            client = _client(session)
            retry_shortly(client, _RETRIES)
            _forbid_calls_at_exit(client)
            # The first call of a session is the one that a wrong token fails.
            session.conf.get("spark.sql.session.timeZone")
            for key, text in self._conf.items():
                _configure(session, key, text)
        except SparkConfigError:
            self._end_thread()
            _end(session, release=True)
            raise
        except Exception as error:
            self._end_thread()
            _end(session, release=False)
            raise self._refusal(error) from error
        return session

    def _refusal(self, error: Exception) -> SparkUnreachable:
        where = f"the Spark server at {self._host}:{self._port}"
        if status_name(error) == "UNAUTHENTICATED":
            return SparkUnreachable(
                # A comma, since logs hide the word that follows "token:" or "token ".
                f"{where} refuses our token, see the variable that spark.remote.token.env names"
            )
        if is_server_gone(error):
            return SparkUnreachable(f"{where} does not speak Spark Connect: {describe(error)}")
        return SparkUnreachable(
            f"{where} gives us no session, perhaps because of a value of spark.conf.*, as its own "
            f"log may tell: {describe(error)}"
        )

    def _probe(self) -> None:
        """Notice at once, not after 20 s as gRPC does, that no server is there."""
        try:
            with socket.create_connection((self._host, self._port), _PROBE_TIMEOUT_S):
                pass
        except OSError as error:
            raise SparkUnreachable(
                f"no Spark server answers at {self._host}:{self._port}: {error}"
            ) from error


def connect_address(url: str) -> tuple[str, int]:
    """Host and port of ``spark.remote``.

    Raises:
        SparkConfigError: it is no Connect URL.
    """
    try:
        return spark_addresses.connect_address(url)
    except ValueError as error:
        raise SparkConfigError(f"spark.remote {error}") from error


def complete_url(url: str, token: str | None, app_name: str) -> str:
    """A Connect URL with the token, and with our name for the server's log."""
    base, _, given = url.partition(";")
    parameters = [given.strip(";")] if given else []
    if token is not None:
        parameters.append("token=" + urllib.parse.quote(token, safe=""))
    if "user_agent=" not in given:
        parameters.append("user_agent=" + urllib.parse.quote(f"kcl-mld {app_name}", safe=""))
    return f"{base.rstrip('/')}/;" + ";".join(parameters)


def _configure(session: SparkSession, key: str, text: str) -> None:
    try:
        session.conf.set(key, text)
    except Exception as error:
        if is_server_gone(error) or is_session_lost(error):
            raise
        raise SparkConfigError(
            f"spark.conf.{key}: a session cannot change it on this server, so set it there: "
            f"{describe(error)}"
        ) from error


def _client(session: SparkSession) -> Any:
    return session.client


def _forbid_calls_at_exit(client: Any) -> None:
    """Let the interpreter end without a last call to the server, which may hang."""
    if (handler := getattr(client, "_on_exit", None)) is None:
        _log.warning(
            "this version of pyspark has another handler at exit: a server that is gone may hold "
            "up the end of this process"
        )
    else:
        atexit.unregister(handler)


def _end(session: SparkSession, *, release: bool) -> None:
    """Close a session in at most three seconds; what takes longer goes on behind our back.

    Args:
        session: not used afterwards.
        release: tell the server too; False if it no longer knows the session.
    """
    with contextlib.suppress(Exception):
        retry_shortly(_client(session), 1)
        if not release:
            session.release_session_on_close = False  # type: ignore[attr-defined]
    if not _within_seconds(session.stop, "closing the session with Spark"):
        # Or the calls that hang would hold up the end of the interpreter, which joins threads.
        hang_up(_client(session))


def hang_up(client: Any) -> None:
    """Close a client's channel without the ten seconds that its ``close`` may wait."""
    with contextlib.suppress(Exception):
        client._channel.close()  # noqa: SLF001 - no public way without waiting
        client._closed = True  # noqa: SLF001 - so that nobody takes it for active
    if not client.is_closed:
        _log.warning(
            "cannot disconnect this version of pyspark: this process may end seconds later"
        )


def _within_seconds(call: Callable[[], object], what: str) -> bool:
    """Wait at most three seconds for a call; False if it goes on behind our back."""
    try:
        call_within(_CLOSE_TIMEOUT_S, call, name="spark-bounded")
    except Overdue:
        return False
    except Exception as error:  # noqa: BLE001 - only the log is left to report it to
        _log.info("%s failed: %s", what, describe(error))
    return True


def retry_shortly(client: Any, retries: int) -> None:
    """Let a session's client retry a few times, two seconds apart at most; raises nothing.

    Args:
        client: of a session; its policies are its own.
        retries: how many; four end after about 3 s: 0.05 + 0.2 + 0.8 + 2 and some jitter.
    """
    try:
        policies = client.get_retry_policies()
        for policy in policies:
            policy.max_retries = retries
            policy.max_backoff = _LONGEST_MS
            policy.max_server_retry_delay = _LONGEST_MS  # ten minutes by default
        waited_s = waits_s(policies, retries)
    except Exception as error:  # noqa: BLE001 - of another pyspark, which goes on without it
        _warn_once(repr(error))
    else:
        if waited_s is None or waited_s > _PATIENCE_S:
            _warn_once(f"they would wait for {waited_s or 'more than so many tries'}")


def waits_s(policies: Iterable[Any], retries: int) -> float | None:
    """How long policies would wait altogether, in s; None = for more tries than they were told."""
    total_ms = 0
    for policy in policies:
        state = policy.to_state()
        for _ in range(retries):
            total_ms += state.next_attempt() or 0
        if state.next_attempt() is not None:
            return None
    return total_ms / 1000


@cache
def _warn_once(why: str) -> None:
    _log.warning(
        "this version of pyspark can't be configured to retry for a few seconds only (%s): a server that "
        "is gone may be noticed after ten minutes",
        why,
    )
