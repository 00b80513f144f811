"""Whether a fleet is as a deployment waits for it to be."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from mld.model.fleet.verdict import Verdict, VerdictSeverity
from mld.model.sequence import LATEST

if TYPE_CHECKING:
    from mld.model.fleet.verdict import Conclusion, Explanation


class Awaited(StrEnum):
    """What is waited for."""

    ALL_OWNED = "all-owned"
    CAUGHT_UP = "caught-up"


def missing(told: Explanation, awaited: Awaited, within_s: float) -> Explanation | None:
    """What is still to come.

    Args:
        told: by looks of which the last is the newest.
        within_s: a checkpoint that is so far behind is caught up.

    Returns:
        The same with those shards alone that are not yet as they should be; None = all are.
    """
    if not told.shards:
        return told
    left = tuple(one for one in told.shards if _is_missing(one, awaited, within_s))
    return replace(told, shards=left) if left else None


def _is_missing(one: Conclusion, awaited: Awaited, within_s: float) -> bool:
    lease = one.lease
    if lease is None or one.verdict is Verdict.CHILDREN_MISSING:
        return True
    if one.verdict is Verdict.STREAM_GONE:
        return one.severity is VerdictSeverity.CRITICAL
    if lease.is_finished:
        return False
    if not one.lives:
        return True
    if awaited is Awaited.ALL_OWNED or lease.checkpoint == LATEST:
        return False
    return one.behind_s is None or one.behind_s > within_s
