"""Calls that may never return: a limit of time, and for Spark's a session and a tag to interrupt them by."""

from __future__ import annotations

import contextlib
import queue
import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

from kcl_mld.spark.errors import SparkUnreachable
from kcl_mld.spark.failures import is_session_lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from kcl_mld.spark.ports import Sessions

_T = TypeVar("_T")

#: How long an interrupted call has to come to its end before its thread is given up, in s.
GRACE_S = 5.0
_here = threading.local()
#: For a session that has to be made anew, in s; who answers at all does so in ten.
SESSION_S = 60.0


class Overdue(Exception):
    """A call did not return in time; its thread is given up if it does not end by itself.

    Attributes:
        call: the outcome, now or later.
    """

    def __init__(self, text: str, call: Future[Any]) -> None:
        super().__init__(text)
        self.call = call

    @property
    def has_succeeded(self) -> bool:
        """True if the call has returned after all, while it was being interrupted."""
        return self.call.done() and self.call.exception() is None


class GivenUp(Exception):
    """The call's time is up, or its result is not wanted: it must not go on to its next step."""


def raise_if_abandoned() -> None:
    """Asked inside a call before each step that others would see: does it still count?

    A thread cannot be ended from outside, but it can look. Quiet outside of ``call_within``.

    Raises:
        GivenUp: the call's time is up, or ``is_wanted`` says no.
    """
    is_wanted: Callable[[], bool] | None = getattr(_here, "is_wanted", None)
    if is_wanted is not None and not is_wanted():
        raise GivenUp("the call was given up before its next step")


class CallThread:
    """A thread that makes one call after the other: what pyspark keeps for a thread is there for all.

    It does not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def start(self, work: Callable[[], None]) -> None:
        """Have it called once what was given before is over; it raises nothing."""
        self._calls.put(work)

    def end(self) -> None:
        """Make no further call; one that has begun goes on."""
        self._calls.put(None)

    def _run(self) -> None:
        while (work := self._calls.get()) is not None:
            work()
            del work  # nor keep what it held until the next one


def call_within(
    seconds: float,
    work: Callable[[], _T],
    *,
    name: str,
    interrupt: Callable[[], None] | None = None,
    grace_s: float = GRACE_S,
    is_wanted: Callable[[], bool] | None = None,
    late: Callable[[_T], None] | None = None,
    start: Callable[[Callable[[], None]], object] | None = None,
) -> _T:
    """Call ``work`` in a thread of its own, and wait for it only so long.

    A Python thread cannot be ended from outside: one that never returns is left behind, and with
    it whatever it holds. So a lock that others need is taken by who calls this, never inside
    ``work``. It is a daemon thread, so it does not keep the process alive.

    Args:
        seconds: how long to wait, >= 0.
        work: its result or exception is this function's.
        interrupt: called when time is up, to make ``work`` end, and once more in the middle of the
            grace: the first one may have come just before a step began.
        grace_s: how long to wait after the interrupt.
        is_wanted: what ``raise_if_abandoned`` asks inside ``work``, beside the time.
        late: gets a result that came too late, in whichever thread.
        start: has something called in another thread; None = in a new one.

    Raises:
        Overdue: time is up.
    """
    done: Future[_T] = Future()
    is_over = threading.Event()

    def run() -> None:
        _here.is_wanted = lambda: not is_over.is_set() and (is_wanted is None or is_wanted())
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it was called
            done.set_exception(error)

    if start is None:
        threading.Thread(target=run, name=name, daemon=True).start()
    else:
        start(run)
    wait([done], max(0.0, seconds))
    if done.done():
        return done.result()
    is_over.set()
    if interrupt is not None:
        for _ in range(2):
            interrupt()
            wait([done], grace_s / 2)
            if done.done():
                break
    if late is not None:
        done.add_done_callback(lambda call: None if call.exception() else late(call.result()))
    raise Overdue(f"{name} did not end within {seconds:.3g} s", done)


class JobCalls:
    """The calls of one job.

    Args:
        tag: carried by Spark's operations, to interrupt them.
    """

    def __init__(self, sessions: Sessions, tag: str) -> None:
        self._sessions = sessions
        self._tag = tag

    def session(self) -> SparkSession:
        """The live session.

        Raises:
            SparkUnreachable: there is no server, or one that gives no session.
        """
        try:
            session: SparkSession = call_within(
                SESSION_S, self._sessions.get, name=f"{self._tag}-session"
            )
        except Overdue as error:
            text = f"the Spark server gives no session within {SESSION_S:g} s"
            raise SparkUnreachable(text) from error
        return session

    def renew_if_lost(self, session: SparkSession, error: Exception) -> None:
        """After a failure: another session, if the server no longer knows this one."""
        if is_session_lost(error):
            self._renew(session)

    def _renew(self, session: SparkSession) -> None:
        with contextlib.suppress(Overdue):  # the next attempt asks for a session again
            call_within(
                SESSION_S, lambda: self._sessions.renew(session), name=f"{self._tag}-renewal"
            )

    def within(
        self, seconds: float, session: SparkSession, work: Callable[[], Any], **more: Any
    ) -> Any:
        """Call in the session's thread, where Spark's operations carry the job's tag.

        A call that never returns keeps that thread, so the session is given up with it.

        See ``call_within`` for arguments and errors.
        """

        def tagged() -> Any:
            session.addTag(self._tag)
            try:
                return work()
            finally:
                session.clearTags()  # the function's own, too: the next call is another one's

        try:
            return call_within(
                seconds,
                tagged,
                name=self._tag,
                interrupt=lambda: self._sessions.interrupt(self._tag),
                start=lambda run: self._sessions.start(session, run),
                **more,
            )
        except Overdue as late:
            if not late.call.done():
                self._renew(session)
            raise
