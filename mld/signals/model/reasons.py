"""Why a worker is not ready: what services report, and ``/readyz`` shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a worker is not ready; shown as ``reason`` by ``/readyz``."""

    NOT_RUNNING = "not_running"  #: it starts, stops or has stopped
    STREAM_DELETED = "stream_deleted"
    TABLE_DELETED = "table_deleted"
    TABLE_SILENT = "table_silent"  #: no answer of the lease table for long
    UNREADABLE_ROWS = "unreadable_rows"
    FOREIGN_ROWS = "foreign_rows"  #: of another stream or stream mode, or on their way
    LEASE_WRITES_FAIL = "lease_writes_fail"  #: leases can't be renewed or taken
    START_FAILS = "start_fails"  #: the last attempt to start
    NO_CONSUMER = "no_consumer"  #: of enhanced fan-out
    LOCK_FAILS = "leader_lock_fails"  #: of a 3.x fleet
    DOUBLED_ID = "doubled_id"  #: another living process has this worker's id
    METRICS_FAIL = "worker_metrics_fail"  #: of this worker, for the leader of a 3.x fleet
    ASSIGNING_FAILS = "assigning_fails"  #: of this worker, which leads
    ALL_SHARDS_FAIL = "all_shards_fail"
    TOO_OLD = "too_old"  #: a shard exceeds the age that was asked for


@dataclass(frozen=True, slots=True)
class Condition:
    """One reason, said to people.

    Attributes:
        message: one sentence: what is wrong, where, and what to do.
    """

    reason: Reason
    message: str
