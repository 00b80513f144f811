"""What a failed Spark call means, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pytest

from kcl_mld.spark.errors import SparkUnreachable
from kcl_mld.spark.failures import describe, is_server_gone, is_session_lost, raised


class _Status(Enum):
    UNAVAILABLE = 14
    INTERNAL = 13


@dataclass
class _SparkError(Exception):
    """Looks like the exceptions of ``pyspark.errors``."""

    text: str
    condition: str | None = None
    status: _Status = _Status.INTERNAL
    parameters: dict[str, str] | None = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text

    def getCondition(self) -> str | None:  # noqa: N802
        return self.condition

    def getMessageParameters(self) -> dict[str, str] | None:  # noqa: N802
        return self.parameters

    def getGrpcStatusCode(self) -> _Status:  # noqa: N802
        return self.status


class _OldSparkError(Exception):
    def getErrorClass(self) -> str:  # noqa: N802
        return "INVALID_HANDLE.SESSION_CLOSED"


def test_who_makes_a_session_of_his_own_is_told_of_ours_and_not_of_a_property():
    error = _SparkError("[CONNECT_URL_NOT_SET] define spark.remote", "CONNECT_URL_NOT_SET")
    assert raised(error) == (
        "it makes a Spark session; there is one already: use ctx.spark in the function"
    )
    assert raised(ValueError("no")) == "ValueError: no"


@pytest.mark.parametrize(
    "error",
    [
        _SparkError("x", "INVALID_HANDLE.SESSION_CLOSED"),
        _SparkError("x", "INVALID_HANDLE.SESSION_NOT_FOUND"),
        _SparkError("x", "INVALID_HANDLE.SESSION_CHANGED"),
        _SparkError("[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid."),
        _SparkError("[NO_ACTIVE_SESSION] No active Spark session found."),
        _OldSparkError("x"),
        AssertionError("Received incorrect server side session identifier for request. Please"),
        ValueError("Cannot invoke RPC on closed channel!"),
        RuntimeError('status = StatusCode.CANCELLED details = "Channel closed!"'),
    ],
)
def test_a_lost_session_is_told_by_its_condition_or_its_text(error):
    assert is_session_lost(error)


@pytest.mark.parametrize(
    "error",
    [_SparkError("no such table", "TABLE_OR_VIEW_NOT_FOUND"), ValueError("x"), SparkUnreachable()],
)
def test_other_errors_leave_the_session_alone(error):
    assert not is_session_lost(error)


def test_a_server_is_gone_when_nobody_answers():
    assert is_server_gone(_SparkError("connect refused", status=_Status.UNAVAILABLE))
    assert is_server_gone(_SparkError("no more tries", "RETRIES_EXCEEDED"))
    assert is_server_gone(SparkUnreachable("no server"))
    assert not is_server_gone(_SparkError("x"))
    assert not is_server_gone(ValueError("UNAVAILABLE"))


def test_a_jvm_stack_is_left_out():
    error = _SparkError("[X] Wrong.\n\nJVM stacktrace:\norg.apache.X\n\tat a.b.C.d(C.scala:1)")
    assert describe(error) == "[X] Wrong."


def test_a_bare_grpc_error_is_told_by_its_details():
    class RpcError(Exception):
        def code(self):
            return _Status.INTERNAL

        def details(self):
            return "Application error processing RPC"

    assert describe(RpcError("<_InactiveRpcError of RPC that …\n>")) == RpcError().details()


def test_the_plan_that_spark_prints_behind_its_reason_is_left_out():
    reason = "[UNRESOLVED_COLUMN] no column `usr`. Did you mean `user`?; SQLSTATE: 42703"
    plan = ";\n'Repartition 1, false\n+- 'Project ['usr]\n   +- LocalRelation [user#1]"
    assert describe(_SparkError(reason + plan)) == reason
    assert describe(_SparkError("a; b;\nSelect it")) == "a; b;\nSelect it"


def test_values_of_the_data_are_left_out():
    error = _SparkError(
        "[CAST_INVALID_INPUT] The value 'secret' of the type \"STRING\" cannot be cast.",
        parameters={"expression": "'secret'", "sourceType": '"STRING"'},
    )
    assert describe(error) == (
        '[CAST_INVALID_INPUT] The value … of the type "STRING" cannot be cast.'
    )


def test_an_error_without_parameters_is_described():
    assert describe(_SparkError("[X] y", parameters=None)) == "[X] y"


class _BrokenSparkError(Exception):
    def getMessageParameters(self) -> dict[str, str]:  # noqa: N802
        raise LookupError("the server is gone")


def test_an_error_whose_parameters_cannot_be_had_is_described():
    assert describe(_BrokenSparkError("[X] y")) == "[X] y"


_WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/env/pyspark/worker.py", line 2000, in main
    process()
  File "/srv/app.py", line 7, in parse
    raise ValueError("bad")
ValueError: bad
 SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.api.python.PythonException
"""


def test_a_python_worker_s_error_names_the_users_own_line():
    expected = 'a Python worker failed: ValueError: bad (File "/srv/app.py", line 7, in parse)'
    assert describe(_SparkError(_WORKER)) == expected


def test_a_python_worker_s_error_without_own_frames_names_the_last_one():
    text = _WORKER.replace("/srv/app.py", "/env/pyspark/util.py")
    assert 'pyspark/util.py", line 7' in describe(_SparkError(text))


def test_a_python_worker_s_error_without_frames_is_described():
    text = "Traceback (most recent call last):\nMemoryError\n"
    told = describe(_SparkError(text))
    assert told.startswith("a Python worker failed: MemoryError: lower spark.batch.maxRecords")


def test_of_a_python_worker_that_is_gone_is_said_what_may_have_killed_it():
    told = describe(
        _SparkError("Job aborted: Python worker exited unexpectedly (crashed). Consider")
    )
    assert told.startswith("a Python worker was killed or has crashed; if the kernel killed it")
    assert told.endswith("Job aborted: Python worker exited unexpectedly (crashed). Consider")


def test_a_long_text_is_cut():
    assert len(describe(ValueError("x" * 10_000))) == 600


def test_an_error_without_text_is_named():
    assert describe(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_of_what_an_exception_says_no_more_is_shown_than_people_read():
    assert len(raised(ValueError("x" * 1_000_000))) == 600


def test_a_full_disk_of_spark_is_told_with_where_it_may_be():
    told = describe(_SparkError("java.io.IOException: No space left on device"))
    assert told.startswith(
        "a disk of Spark is full; a server of our own writes to spark.conf.spark"
    )
