"""A job's calls of Spark: a session, a tag to interrupt them by, and a limit of time."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from mld.spark.calls import Overdue, call_within
from mld.spark.errors import SparkUnreachable
from mld.spark.failures import is_session_lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from mld.spark.ports import Sessions

#: For a session that has to be made anew, in s; who answers at all does so in ten.
SESSION_S = 60.0


class JobCalls:
    """The calls of one job.

    Args:
        sessions: where a Spark session comes from.
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
        if is_session_lost(error) and (renew := getattr(self._sessions, "renew", None)):
            with contextlib.suppress(Overdue):  # the next attempt asks for a session again
                call_within(SESSION_S, lambda: renew(session), name=f"{self._tag}-renewal")

    def within(
        self, seconds: float, session: SparkSession, work: Callable[[], Any], **more: Any
    ) -> Any:
        """Call in a thread whose Spark operations carry the job's tag; see ``call_within``."""

        def tagged() -> Any:
            session.addTag(self._tag)
            return work()

        return call_within(
            seconds,
            tagged,
            name=self._tag,
            interrupt=lambda: self._sessions.interrupt(self._tag),
            **more,
        )
