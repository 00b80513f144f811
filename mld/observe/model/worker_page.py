"""A worker's status on ``/leases``: one answer, read by commands that watch a fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from kcl_mld.errors import MalformedData

if TYPE_CHECKING:
    from collections.abc import Mapping

#: States in which a child owes the answer to a message, by the name of that message.
_CALLS = {
    "INITIALIZING": "initialize",
    "PROCESSING": "processRecords",
    "SHUTDOWN_REQUESTED": "shutdownRequested",
}


class ChildOnPage(msgspec.Struct, gc=False, frozen=True):
    """One of several children of a shard, likewise."""

    child: int
    pid: int | None = None
    silent_s: float | None = None
    unanswered: int = 0
    confirmed: str = ""
    owes: bool = False
    is_left_out: bool = False
    restarts: int = 0


class ShardOnPage(msgspec.Struct, gc=False, frozen=True):
    """A held shard; attributes as in :class:`~kcl_mld.children.model.consumer_status.ConsumerStatus`."""

    lease_key: str
    state: str
    reason: str | None = None
    processing_lag_s: float | None = None
    reading_lag_s: float | None = None
    reading_fails_s: float | None = None
    reading_error: str | None = None
    reading_todo: str | None = None
    child_silent_s: float | None = None
    child_exceptions: int = 0
    child_exception_age_s: float | None = None
    records: int | None = None
    restarts: int = 0
    child_failures: int = 0
    child_failure_age_s: float | None = None
    last_error: str | None = None
    unconfirmed_s: float | None = None
    children: tuple[ChildOnPage, ...] = ()

    @property
    def lag_s(self) -> float | None:
        """The greater of both lags; None while neither is known."""
        known = [lag for lag in (self.processing_lag_s, self.reading_lag_s) if lag is not None]
        return max(known, default=None)

    @property
    def call(self) -> str | None:
        """The message whose answer the child owes; None = it owes none."""
        if self.child_silent_s is None:
            return None
        ending = "shardEnded" if self.reason == "SHARD_END" else "leaseLost"
        return _CALLS.get(self.state, ending)


class _Reason(msgspec.Struct, gc=False):
    reason: str
    message: str


class _Page(msgspec.Struct, gc=False):
    worker_id: str
    leases: list[ShardOnPage]
    reasons: list[_Reason] = []
    clock_ahead_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPage:
    """One answer.

    Attributes:
        url: where it came from.
        asked_at: reading of ``Clock.monotonic``.
        worker: its id.
        shards: those that it holds, by lease key.
        reasons: (reason, sentence) why it is not ready, as on ``/readyz``.
        clock_ahead_s: seconds by which the clock of its machine is ahead of AWS; None = not known.
        failure: why there is no answer; None = there is one.
    """

    url: str
    asked_at: float
    worker: str = ""
    shards: Mapping[str, ShardOnPage] = field(default_factory=dict)
    reasons: tuple[tuple[str, str], ...] = ()
    clock_ahead_s: float | None = None
    failure: str | None = None

    @property
    def host(self) -> str | None:
        """Name or address of the host in the URL."""
        return urlsplit(self.url).hostname


def read_page(url: str, asked_at: float, body: bytes) -> WorkerPage:
    """The page of an answer.

    Raises:
        MalformedData: it is not what ``/leases`` answers.
    """
    try:
        page = msgspec.json.decode(body, type=_Page)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MalformedData(f"it is not the page /leases of a worker: {error}") from error
    shards = {one.lease_key: one for one in page.leases}
    reasons = tuple((one.reason, one.message) for one in page.reasons)
    return WorkerPage(
        url=url,
        asked_at=asked_at,
        worker=page.worker_id,
        shards=shards,
        reasons=reasons,
        clock_ahead_s=page.clock_ahead_s,
    )
