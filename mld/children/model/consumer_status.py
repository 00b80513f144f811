"""The status of one shard's consumer, for pages and health checks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

#: A child that owes an answer and sends no message for so many seconds does not count as reading.
CHILD_SILENT_S = 60.0
#: One of several children may leave records unconfirmed for so many seconds without a warning.
#: kclpy's sample confirms every 30 s.
UNCONFIRMED_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStatus:
    """One of several children of a shard.

    Attributes:
        child: its index.
        pid: None while it has no process.
        call_age_s: as in :class:`ConsumerStatus`; likewise ``silent_s``, ``restarts`` and
            ``failures``.
        unanswered: records that it was assigned and has not answered.
        confirmed: position up to which its records are confirmed, as text.
        owes: True while it has records that it has not confirmed.
        is_left_out: its records are left out of new lines, and read again when it is ready.
    """

    child: int
    pid: int | None
    call_age_s: float | None
    silent_s: float | None
    unanswered: int
    confirmed: str
    owes: bool
    is_left_out: bool
    restarts: int
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus:
    """What ``/leases`` shows of a shard. Ages are in seconds.

    Attributes:
        state: name of a :class:`~kcl_mld.children.rules.lifecycle.ConsumerState`.
        reason: why it stops, None while it does not.
        held_s: since this hold of the lease began.
        millis_behind_latest: of the last batch, None before the first.
        processing_lag_s: age of the oldest record that was fetched and that the child has not
            answered; None while there is none.
        reading_lag_s: how far the last batch was behind, plus the time since Kinesis returned it;
            None before the first.
        records: user records that the child was given in this hold of the lease.
        last_batch_age_s: since the last processed answer of Kinesis, None before the first.
        last_processed_age_s: since a batch was completed: answered by the child, or empty. None
            before the first.
        reading_fails_s: for how long all calls to Kinesis fail, or a batch can't be decoded; None
            while nothing fails.
        reading_error: the last error of these, its code first; None while nothing fails.
        reading_todo: what to do about it; None = only wait.
        child_pid: None while there is no child.
        call_age_s: since a message was sent that the child has not answered; None while none is
            pending.
        child_silent_s: since the last message of a child that owes an answer; None while none is
            pending.
        silence_cause: why it has been silent for long, if known.
        child_exceptions: exceptions of its processor after which it continued as if all records
            were processed.
        child_exception_age_s: since the last of them; None without one.
        checkpoint: last stored position, as text.
        blocked_by: shard id of the parent that is waited for.
        waits_to_start: other children start first; the lease is held and renewed meanwhile.
        restarts: of the child in this hold of the lease.
        child_failures: in a row without a checkpoint in between.
        child_failure_age_s: since the last of them; None without one.
        last_error: the last failure, one sentence.
        checkpoint_age_s: all records that are older are checkpointed; None = unknown.
        loss: records that were lost, or may be, within the last day; None = none.
        retention_s: how long the stream keeps records; None = not known.
        held_because: why the shard is on hold although the lease is held; None = it is read.
        children: of a shard that has several, each; the values of the shard are then those of the
            worst of them.
        unconfirmed_s: for how long the checkpoint has waited for one of several children; None
            while none of them owes a confirmation.
    """

    lease_key: str
    shard_id: str
    state: str
    stream: str = ""
    reason: str | None = None
    held_s: float = 0.0
    millis_behind_latest: int | None = None
    processing_lag_s: float | None = None
    reading_lag_s: float | None = None
    records: int = 0
    last_batch_age_s: float | None = None
    last_processed_age_s: float | None = None
    reading_fails_s: float | None = None
    reading_error: str | None = None
    reading_todo: str | None = None
    child_pid: int | None = None
    call_age_s: float | None = None
    child_silent_s: float | None = None
    silence_cause: str | None = None
    child_exceptions: int = 0
    child_exception_age_s: float | None = None
    checkpoint: str = ""
    blocked_by: str | None = None
    waits_to_start: bool = False
    restarts: int = 0
    child_failures: int = 0
    child_failure_age_s: float | None = None
    last_error: str | None = None
    checkpoint_age_s: float | None = None
    loss: str | None = None
    retention_s: float | None = None
    held_because: str | None = None
    children: tuple[ChildStatus, ...] = ()
    unconfirmed_s: float | None = None

    @property
    def lag_s(self) -> float | None:
        """How far behind the shard is: the greater of both lags; None while neither is known."""
        known = [lag for lag in (self.processing_lag_s, self.reading_lag_s) if lag is not None]
        return max(known, default=None)

    @property
    def retention_used(self) -> float | None:
        """The lag as a share of the retention; None while either is not known."""
        lag_s = self.lag_s
        return None if lag_s is None or not self.retention_s else lag_s / self.retention_s

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of its child, or of several."""
        if not self.children:
            return () if self.child_pid is None else (self.child_pid,)
        return tuple(child.pid for child in self.children if child.pid is not None)

    @property
    def calls(self) -> int:
        """How many of its children owe an answer."""
        if not self.children:
            return int(self.call_age_s is not None)
        return sum(child.call_age_s is not None for child in self.children)

    @property
    def shown_shard(self) -> str:
        """The shard for display; several streams may have shards of the same id."""
        return (
            self.shard_id if self.lease_key == self.shard_id else f"{self.stream}:{self.shard_id}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)
