"""What a failure means to the batches that it met: all of them, one, or try again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.calls import GivenUp, Overdue
from mld.spark.errors import (
    BatchFailed,
    RecordRefused,
    SinkUnavailable,
    SparkChildError,
    SparkUnreachable,
)
from mld.spark.failures import describe, is_server_gone, is_session_lost
from mld.spark.rows.decode import bad_record_in

if TYPE_CHECKING:
    from mld.spark.jobs.tickets import Ticket


def is_everybodys(error: BaseException) -> bool:
    """True if no batch is to blame: a lost session, a server that is away, a neighbor's lease."""
    return is_session_lost(error) or is_server_gone(error) or isinstance(error, GivenUp)


def is_analysis(error: BaseException) -> bool:
    """True if Spark refuses the plan, whatever the rows."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - takes half a second

    return isinstance(error, AnalysisException)


def verdict(ticket: Ticket, error: Exception) -> BaseException | None:
    """What ends a batch at once; None = it may be tried again.

    A driver's own error is no verdict: a database or a disk that fails now may work in a second.
    """
    if isinstance(error, SparkUnreachable | SinkUnavailable):
        return None
    if isinstance(error, SparkChildError):
        return error
    if isinstance(error, Overdue):
        text = "the job did not end within spark.batch.timeout"
        return as_failure(ticket, text, error)
    if (where := bad_record_in(str(error))) is not None:
        return RecordRefused(
            f"the record of {where} cannot be decoded, and spark.decoder.onError is fail"
        )
    if is_analysis(error):
        return as_failure(ticket, f"Spark refuses the plan: {describe(error)}", error)
    return None


def as_failure(ticket: Ticket, text: str, cause: BaseException) -> BatchFailed:
    """The error of a batch, with shard and batch named."""
    failure = BatchFailed(f"{ticket.shard_id}: batch {ticket.batch.batch_id}: {text}")
    failure.__cause__ = cause
    return failure
