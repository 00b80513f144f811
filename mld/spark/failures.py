"""What a failed Spark call means, and how to tell people in a few lines.

Works on exceptions of pyspark without importing it: a stub of a shard has none.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from kcl_mld.spark.errors import SparkUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOST = (
    *("INVALID_HANDLE.SESSION_CLOSED", "INVALID_HANDLE.SESSION_NOT_FOUND"),
    *("INVALID_HANDLE.SESSION_CHANGED", "NO_ACTIVE_SESSION"),
    "Received incorrect server side session identifier",
    *("Channel closed", "closed channel"),  # by another job, which found the session lost first
)
#: What some versions of pyspark raise in the place of the last answer.
_RETRIES_EXCEEDED = "RETRIES_EXCEEDED"
_OWN_SESSION = "CONNECT_URL_NOT_SET"
_MOST_CHARACTERS = 600
#: Behind what is wrong with a plan Spark prints all of it, which holds nothing of the user's.
_PLAN = re.compile(r";\n'?[A-Z]\w*[^\n]*\n[ :]*\+- ")
#: Parameters of Spark's messages that hold values of the data.
_DATA_PARAMETERS = ("expression", "badRecord", "value", "input", "inputRow", "row", "field")
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")
_SQL_STATES = re.compile(r"SQLSTATE: (\w{5})")
#: Classes of SQL states: data exceptions, external routines, what is not supported, syntax and
#: names, and what the function itself raises (``raise_error``, ``assert_true``).
_OF_ROWS_OR_PLAN = frozenset({"21", "22", "23", "38", "39", "0A", "42", "P0"})
#: What Spark says of a Python worker that is gone, by a signal or by ``os._exit``.
_WORKER_GONE = "Python worker exited unexpectedly"
_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
_MORE_MEMORY = (
    "Spark is out of memory: raise spark.driver.memory (on a cluster "
    "spark.conf.spark.executor.memory), or lower spark.batch.maxBytes"
)
_LESS_AT_ONCE = (
    "lower spark.batch.maxRecords or spark.batch.maxBytes, let the UDF hold less at once, or give "
    "the machine more memory"
)
_WORKER_KILLED = (
    "a Python worker was killed or has crashed; if the kernel killed it for a lack of memory (see "
    f"its log), {_LESS_AT_ONCE}"
)
_JVM_NO_ROOM = "No space left on device"
_MORE_ROOM = (
    "a disk of Spark is full; a server of our own writes to spark.conf.spark.local.dir, or else "
    "below TMPDIR"
)
_WORKER_TRACE = "Traceback (most recent call last):"
_JVM_TRACE = re.compile(r"\n\s*(JVM stacktrace:|at [\w.$]+\(|Caused by: |Driver stacktrace:)")


def is_session_lost(error: BaseException) -> bool:
    """True if the server no longer knows the session: ``renew``, then repeat what may be."""
    text = f"{condition(error)} {said_by(error)}"
    return any(mark in text for mark in _LOST)


def is_server_gone(error: BaseException) -> bool:
    """True if no server answers, after the retries."""
    is_unavailable = status_name(error) == "UNAVAILABLE" or condition(error) == _RETRIES_EXCEEDED
    return is_unavailable or isinstance(error, SparkUnreachable)


def is_deterministic(error: BaseException) -> bool:
    """True if the same rows would fail again: a cast, a function of the user's that raised, a plan.

    By Spark's SQL states, whose first two characters are a class: that of the error, or of what
    caused it in a task. A lost executor, a full disk, a time-out have others.
    """
    names = {each.__name__ for each in type(error).__mro__}
    if names & {"AnalysisException", "PythonException", "PicklingError", "PySparkPicklingError"}:
        return True
    getter = getattr(error, "getSqlState", None)
    states = [getter() or ""] if callable(getter) else []
    text = said_by(error)
    states += _SQL_STATES.findall(text)
    return _WORKER_TRACE in text or any(state[:2] in _OF_ROWS_OR_PLAN for state in states)


def is_worker_gone(error: BaseException) -> bool:
    """True if a Python worker died instead of an answer.

    A record may have done that (a library's crash), and so may a lack of memory, which passes.
    """
    return _WORKER_GONE in said_by(error)


def describe(error: BaseException) -> str:
    """An error of Spark in a few lines: condition, message, the user's own line; no JVM stack.

    Values of the data that Spark puts into its messages are left out. The text of an exception
    that the user's function raised is shown, cut after 600 characters.
    """
    text = _details(error) or said_by(error)
    if (worker := _worker_error(text)) is not None:
        return worker
    for name, value in _parameters(error).items():
        if name in _DATA_PARAMETERS and value:
            text = text.replace(value, "…")
    is_full = _OUT_OF_MEMORY in text
    text = _PLAN.split(_JVM_TRACE.split(text, maxsplit=1)[0], maxsplit=1)[0].strip()
    text = _shortened(text) or type(error).__name__
    if is_full:
        return f"{_MORE_MEMORY}: {text}"
    if _JVM_NO_ROOM in text:
        return f"{_MORE_ROOM}: {text}"
    return f"{_WORKER_KILLED}: {text}" if is_worker_gone(error) else text


def raised(error: BaseException) -> str:
    """What the user's own code has raised, in one sentence."""
    if condition(error) == _OWN_SESSION:  # Spark advises to set a property, which would not help
        return "it makes a Spark session; there is one already: use ctx.spark in the function"
    return _shortened(f"{type(error).__name__}: {said_by(error)}")


def said_by(error: BaseException) -> str:
    """The text of an exception; of one of the user's even making it may fail."""
    try:
        return str(error)
    except BaseException as another:  # noqa: BLE001 - any may be raised there
        return f"(its text can't be made: {type(another).__name__})"


def _worker_error(text: str) -> str | None:
    """The last frame and the exception of a Python worker's traceback."""
    begin = text.rfind(_WORKER_TRACE)
    if begin < 0:
        return None
    trace = _JVM_TRACE.split(text[begin:], maxsplit=1)[0].strip()
    frames = re.findall(r'^ *File "([^"]+)", line (\d+), in (.+)$', trace, re.MULTILINE)
    own = [frame for frame in frames if "/pyspark/" not in frame[0]] or frames
    where = f' (File "{own[-1][0]}", line {own[-1][1]}, in {own[-1][2]})' if own else ""
    what = _SQL_STATE.sub("", re.split(r"^(?=\S)", trace, flags=re.MULTILINE)[-1]).strip()
    message = _shortened(f"a Python worker failed: {what}") + where
    return f"{message}: {_LESS_AT_ONCE}" if what.startswith("MemoryError") else message


def _details(error: BaseException) -> str:
    """What a bare gRPC error says, which pyspark did not turn into one of its own; else ""."""
    details = getattr(error, "details", None)
    return (
        str(details() or "") if callable(details) and callable(getattr(error, "code", None)) else ""
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def condition(error: BaseException) -> str:
    """Spark's name for what is wrong, e.g. ``CAST_INVALID_INPUT``; "" if it has none."""
    getter = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    return (getter() or "") if callable(getter) else ""


def _parameters(error: BaseException) -> Mapping[str, str]:
    getter = getattr(error, "getMessageParameters", None)
    with contextlib.suppress(Exception):
        return (getter() or {}) if callable(getter) else {}
    return {}


def status_name(error: BaseException) -> str:
    """Name of the gRPC status, e.g. ``UNAVAILABLE``; "" if there is none."""
    getter = getattr(error, "getGrpcStatusCode", None)
    status = getter() if callable(getter) else None
    return getattr(status, "name", "")
