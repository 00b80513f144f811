"""Whether this worker does its job: what ``/readyz`` answers, and why.

Pure: a snapshot in, an answer out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why a worker is not ready; shown as ``reason`` by ``/readyz``."""

    NOT_RUNNING = "not_running"  #: it starts, stops or has stopped
    STREAM_DELETED = "stream_deleted"
    TABLE_DELETED = "table_deleted"
    UNREADABLE_ROWS = "unreadable_rows"


@dataclass(frozen=True, slots=True)
class Condition:
    """One reason, said to people.

    Attributes:
        reason: for programs.
        message: one sentence: what is wrong, where, and what to do.
    """

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer of ``/readyz``.

    Attributes:
        state: of the scheduler: ``starting``, ``running``, ``stopping`` or ``stopped``.
        reasons: why the worker is not ready; none = it is.
    """

    state: str
    reasons: tuple[Condition, ...] = ()

    @property
    def is_ready(self) -> bool:
        """True without reasons against it."""
        return not self.reasons

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "ready": self.is_ready,
            "state": self.state,
            "reasons": [asdict(one) for one in self.reasons],
        }


def readiness(state: str, conditions: tuple[Condition, ...]) -> Readiness:
    """Judge a worker.

    Args:
        state: of its scheduler.
        conditions: what its services reported and have not taken back.

    Returns:
        Ready while it runs and nothing speaks against it, with leases or as a standby.
    """
    reasons = conditions
    if state != "running":
        reasons = (Condition(Reason.NOT_RUNNING, f"the worker is {state}"), *conditions)
    return Readiness(state, reasons)
