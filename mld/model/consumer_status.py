"""One shard's consumer at one moment, for people and for what judges the worker."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus:
    """What ``/leases`` shows of a shard. Ages are in seconds.

    Attributes:
        stream: name of the shard's stream.
        state: name of a :class:`~mld.decide.lifecycle.ConsumerState`.
        reason: why it stops, None while it does not.
        held_s: since this hold of the lease began.
        millis_behind_latest: of the last batch, None before the first.
        last_batch_age_s: since the last answer of Kinesis that was taken up, None before the first.
        last_processed_age_s: since a batch was done with: answered by the child, or empty. None
            before the first.
        reading_fails_s: since which no call to Kinesis succeeds, or a batch can't be decoded; None
            while all is well.
        child_pid: None while there is no child.
        checkpoint: last stored position, as text.
        blocked_by: shard id of the parent that is waited for.
        restarts: of the child in this hold of the lease.
        child_failures: in a row without a checkpoint in between.
        child_failure_age_s: since the last of them; None without one.
        last_error: the last failure, one sentence.
    """

    lease_key: str
    shard_id: str
    state: str
    stream: str = ""
    reason: str | None = None
    held_s: float = 0.0
    millis_behind_latest: int | None = None
    last_batch_age_s: float | None = None
    last_processed_age_s: float | None = None
    reading_fails_s: float | None = None
    child_pid: int | None = None
    checkpoint: str = ""
    blocked_by: str | None = None
    restarts: int = 0
    child_failures: int = 0
    child_failure_age_s: float | None = None
    last_error: str | None = None

    @property
    def shown_shard(self) -> str:
        """The shard for people; several streams have shards of the same id."""
        return (
            self.shard_id if self.lease_key == self.shard_id else f"{self.stream}:{self.shard_id}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)
