"""Read what Spark answers to a failed call: its condition, and whether a repeat can help.

Spark Connect hands over errors of Delta as texts of classes that pyspark does not know, so the
condition is read from the text where the exception itself does not say.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from mld.spark.calls import raise_if_abandoned
from mld.spark.errors import BatchFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mld.spark.model import ShardBatch

T = TypeVar("T")

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]{4,}(?:\.[A-Z0-9_]+)*)\]")
_CONFLICTS = ("DELTA_CONCURRENT_", "DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED")
#: Pauses between the tries of a commit that met a concurrent one, in seconds; 16 s in all.
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 2.0, 3.0, 4.0, 4.0)


def condition(error: BaseException) -> str:
    """The condition that Spark or Delta names, e.g. ``DELTA_METADATA_MISMATCH``; "" if none."""
    for name in ("getCondition", "getErrorClass"):
        getter = getattr(error, name, None)
        if getter is not None and (found := getter()):
            return str(found)
    match = _CONDITION.search(str(error))
    return match[1] if match else ""


def first_line(error: BaseException) -> str:
    """The message without Java's stack trace."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def is_conflict(error: BaseException) -> bool:
    """True if another commit to the same Delta table came between, so that a repeat can succeed."""
    return condition(error).startswith(_CONFLICTS)


def refuse_none(batches: Sequence[ShardBatch], sink: str) -> None:
    """See that a missing frame means that there are no rows.

    Raises:
        BatchFailed: there are; the function returned None instead of a frame.
    """
    if shards := [batch.shard.shard_id for batch in batches if batch.rows]:
        raise BatchFailed(
            f"{', '.join(shards)}: the function returned None, but spark.sink={sink} writes what "
            "it returns; return a DataFrame, or set spark.sink=foreach"
        )


def retry_conflicts(what: str, call: Callable[[], T], pause: Callable[[float], None]) -> T:
    """Repeat a Delta commit as long as others come between, a bounded number of times.

    Args:
        what: the table, for the error.
        call: commits all or nothing, and may be repeated.
        pause: waits the given number of seconds.

    Raises:
        BatchFailed: others came between each time.
        GivenUp: nobody waits for it any more, or the shard was lost meanwhile.
    """
    for pause_s in _PAUSES_S:
        raise_if_abandoned()
        try:
            return call()
        except Exception as error:
            if not is_conflict(error):
                raise
            pause(pause_s)
    raise_if_abandoned()
    try:
        return call()
    except Exception as error:
        if not is_conflict(error):
            raise
        raise BatchFailed(
            f"{what}: another writer came between {len(_PAUSES_S) + 1} times "
            f"({condition(error)}); look for a job that rewrites the table"
        ) from error
