"""The catalogue of all metrics: what is emitted, and the names under which sinks show it.

A :class:`Metric` is what services emit. CloudWatch gets it under the name, operation, unit and level
of the KCL; the names under which Prometheus and OTLP get some of them are those of a
:class:`Family`. Further families are read from the state of the worker when somebody asks.

Source of names, units, levels and dimensions: KCL 3.5.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Level(IntEnum):
    """A metric goes to CloudWatch when its level is at least the configured one (``metricsLevel``)."""

    DETAILED = 9000
    SUMMARY = 10000
    NONE = 2**31 - 1


class Unit(StrEnum):
    """Of a value as it is emitted; CloudWatch gets times in milliseconds."""

    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"


class FamilyKind(StrEnum):
    """Of a family, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


#: Bounds of the buckets of histograms, in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
#: Label of counters of attempts, and its values.
OUTCOME, SUCCESS, FAILURE = "outcome", "success", "failure"
#: Label of what was passed.
CAUSE = "cause"


class PassCause(StrEnum):
    """Why a position was passed without delivery; label ``cause`` of ``kcl_passed_total``."""

    UNDECODABLE = "undecodable"
    OUTSIDE = "outside"
    TRIMMED = "trimmed"
    EXPIRED = "expired"
    VANISHED = "vanished"
    DEAD_LETTER = "dead_letter"
    RESET = "reset"


class Over(StrEnum):
    """What becomes of the values of all shards while shards are no label."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Series of one name for Prometheus and OTLP.

    Attributes:
        name: by Prometheus' rules: ``kcl_``, what it is, the unit in its base, ``_total``.
        labels: besides those of the shard; at most one: ``outcome``, or the values that its metrics
            name.
        over: of values by shard, how they become one; None = it has no values by shard.
    """

    name: str
    kind: FamilyKind
    help: str
    unit: Unit = Unit.COUNT
    labels: tuple[str, ...] = ()
    over: Over | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """Something that services emit.

    Attributes:
        operation: the dimension ``Operation``, e.g. ``ProcessTask``; "" = not for CloudWatch.
        name: of the KCL, e.g. ``RecordsProcessed``.
        level: SUMMARY or DETAILED.
        dimension: ``ShardId``, ``WorkerIdentifier`` or ""; ``StreamId`` is added to all metrics of
            a stream in multi-stream mode.
        is_own: the KCL has none like it.
        family: where Prometheus and OTLP count it; None = nowhere. A family with the label
            ``outcome`` counts values above 0 as successes, and others as failures.
        label: of a family with another label, its value.
    """

    operation: str
    name: str
    help: str
    unit: Unit = Unit.COUNT
    level: Level = Level.SUMMARY
    dimension: str = ""
    is_own: bool = False
    family: Family | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class CallMetrics:
    """Success and time of something that is tried."""

    success: Metric
    time: Metric


SHARD, WORKER = "ShardId", "WorkerIdentifier"
STREAM = "StreamId"
DETAILED = Level.DETAILED

# -- families of what is emitted ---------------------------------------------------------------


def _counter(name: str, text: str, *labels: str, of_shard: bool = False) -> Family:
    unit = Unit.BYTES if name.endswith("_bytes_total") else Unit.COUNT
    unit = Unit.SECONDS if name.endswith("_seconds_total") else unit
    return Family(name, FamilyKind.COUNTER, text, unit, labels, Over.SUM if of_shard else None)


def _histogram(name: str, text: str) -> Family:
    return Family(name, FamilyKind.HISTOGRAM, text, Unit.SECONDS)


RECORDS = _counter("kcl_records_processed_total", "Records given to children.", of_shard=True)
DATA_BYTES = _counter(
    "kcl_processed_bytes_total",
    "Bytes of the payloads of records given to children.",
    of_shard=True,
)
BATCHES = _counter(
    "kcl_batches_total", "Batches from Kinesis, empty ones included.", OUTCOME, of_shard=True
)
PROCESS_RECORDS = _histogram(
    "kcl_process_records_seconds", "Time from processRecords to the answer of the child."
)
GET_RECORDS_CALLS = _counter("kcl_get_records_total", "GetRecords calls.", OUTCOME, of_shard=True)
GET_RECORDS_TIMES = _histogram("kcl_get_records_seconds", "Time of a GetRecords call.")
EXPIRED_ITERATORS = _counter(
    "kcl_expired_iterators_total", "Iterators that expired before they were used.", of_shard=True
)
CHECKPOINTS = _counter(
    "kcl_checkpoints_total", "Writes of checkpoints to the lease table.", OUTCOME, of_shard=True
)
CHECKPOINT_TIMES = _histogram("kcl_checkpoint_seconds", "Time of a write of a checkpoint.")
EXCEPTIONS = _counter(
    "kcl_processor_exceptions_total",
    "Exceptions in a processor of amazon_kclpy after which the program continued.",
    of_shard=True,
)
DEAD_LETTERS = _counter(
    "kcl_dead_lettered_records_total",
    "Records that children failed at and that became dead letters.",
    of_shard=True,
)
HELD_MINUTES = _counter(
    "kcl_shard_held_total",
    "Minutes in which a shard was held because of its dead letters, the first one included.",
    of_shard=True,
)
RESTARTS = _counter("kcl_child_restarts_total", "Restarts of children that failed.", of_shard=True)
SCHEMA_FAILURES_SEEN = _counter(
    "kcl_schema_failures_total",
    "Records that kept their schema registry frame because it could not be removed.",
    of_shard=True,
)
UNREADABLE_RECORDS = _counter(
    "kcl_unreadable_user_records_total",
    "User records of KPL aggregates that could not be read and were not delivered.",
    of_shard=True,
)
OUTSIDE_RECORDS = _counter(
    "kcl_user_records_outside_shard_total",
    "User records of KPL aggregates with keys of other shards that were not delivered.",
    of_shard=True,
)
PASSED = _counter(
    "kcl_passed_total",
    "Positions passed without delivery: records where their number is known, else gaps.",
    CAUSE,
    of_shard=True,
)
RENEWALS = _counter("kcl_lease_renewals_total", "Renewals of leases.", OUTCOME)
RENEWAL_TIMES = _histogram("kcl_lease_renewal_seconds", "Time of the renewal of a lease.")
LOST = _counter(
    "kcl_leases_lost_total", "Leases that this worker lost: they expired or others took them."
)
TAKEN = _counter("kcl_leases_taken_total", "Leases that this worker took (2.x).")
HAND_OFFS_DONE = _counter(
    "kcl_lease_handoffs_total",
    "Leases handed to the next owner; failure = the child did not finish in time.",
    OUTCOME,
    of_shard=True,
)
ASSIGNMENT_RUNS = _counter(
    "kcl_lease_assignment_runs_total", "Runs of the assignment of leases by the leader.", OUTCOME
)
ASSIGNMENT_TIMES = _histogram(
    "kcl_lease_assignment_seconds", "Time of a run of the assignment of leases."
)
SHARD_SYNCS = _counter("kcl_shard_syncs_total", "Shard syncs.", OUTCOME)
LOOP_BLOCKED = _counter(
    "kcl_event_loop_blocked_seconds_total",
    "Time for which the event loop was blocked, counted in pieces above 0.5 s.",
)

# -- families of what the state of the worker says ----------------------------------------------


def _gauge(
    name: str, text: str, *labels: str, unit: Unit = Unit.COUNT, over: Over | None = None
) -> Family:
    return Family(name, FamilyKind.GAUGE, text, unit, labels, over)


def _age(name: str, text: str) -> Family:
    return _gauge(name, text, unit=Unit.SECONDS, over=Over.MAX)


WORKER_INFO = _gauge(
    "kcl_worker_info", "1, with who the worker is.", "application", "worker_id", "version"
)
READY = _gauge("kcl_worker_ready", "1 while /readyz answers 200, else 0.")
LEASES = _gauge("kcl_leases_held", "Leases with a consumer, by the health of their shard.", "state")
UNREADABLE = _gauge("kcl_unreadable_leases", "Rows of the lease table that can't be read.")
LEFT_FREE = _gauge(
    "kcl_leases_left_free", "Leases without owner because all hold maxLeasesForWorker."
)
BEHIND = _age(
    "kcl_behind_latest_seconds", "MillisBehindLatest of the last batch: its distance to the tip."
)
PROCESSING_LAG = _age(
    "kcl_processing_lag_seconds",
    "Age of the oldest fetched record that the child has not answered; 0 without one.",
)
READING_LAG = _age(
    "kcl_reading_lag_seconds", "MillisBehindLatest of the last answer and the age of that answer."
)
RETENTION_USED = _gauge(
    "kcl_retention_used_ratio",
    "Lag in shares of the retention of the stream: at 1 records expire unread.",
    over=Over.MAX,
)
UNCONFIRMED = _age(
    "kcl_unconfirmed_seconds",
    "Time for which the checkpoint has waited for one of several children of a shard; absent with one"
    " child a shard, and while none owes a confirmation.",
)
BATCH_AGE = _age(
    "kcl_last_batch_age_seconds", "Time since a batch was finished, of shards to be read."
)
CALLS = _gauge("kcl_calls_in_progress", "Children that owe the answer to a message.", over=Over.SUM)
CALL_AGE = _age(
    "kcl_call_age_seconds", "Age of the message that a child has not answered; 0 without one."
)
CHILD_TIMEOUT = _gauge(
    "kcl_child_timeout_seconds",
    "Silence after which a child is ended, timeoutInSeconds; absent without it.",
    unit=Unit.SECONDS,
)
CHILDREN = _gauge("kcl_children", "Child processes.", over=Over.SUM)
CHILD_MEMORY = _gauge(
    "kcl_child_resident_memory_bytes",
    "Resident memory of children; pages that they share count for each (Linux only).",
    unit=Unit.BYTES,
    over=Over.SUM,
)
CLOCK_AHEAD = _gauge(
    "kcl_clock_ahead_seconds",
    "Time by which the clock of the machine is ahead of AWS, negative = behind; 0 up to two seconds.",
    unit=Unit.SECONDS,
)
DROPPED = _counter("kcl_log_messages_dropped_total", "Log messages that were lost.")

# -- metrics --------------------------------------------------------------------------------------


def _call(
    operation: str,
    prefix: str = "",
    *,
    what: str,
    level: Level = Level.SUMMARY,
    dimension: str = "",
    is_own: bool = False,
    families: tuple[Family | None, Family | None] = (None, None),
) -> CallMetrics:
    """Success and time of ``what``; where one of them is no metric, the other is taken alone."""
    success = Metric(
        operation,
        f"{prefix}Success",
        f"{what}: 1 = succeeded, 0 = failed",
        Unit.COUNT,
        level,
        dimension,
        is_own,
        families[0],
    )
    time = Metric(
        operation,
        f"{prefix}Time",
        f"{what}: its time",
        Unit.SECONDS,
        level,
        dimension,
        is_own,
        families[1],
    )
    return CallMetrics(success, time)


PROCESS = "ProcessTask"
PROCESS_TASK = _call(PROCESS, what="a batch", dimension=SHARD, families=(BATCHES, None))
RECORDS_PROCESSED = Metric(
    PROCESS, "RecordsProcessed", "records given to the child", dimension=SHARD, family=RECORDS
)
DATA_BYTES_PROCESSED = Metric(
    PROCESS,
    "DataBytesProcessed",
    "bytes of their payloads",
    Unit.BYTES,
    dimension=SHARD,
    family=DATA_BYTES,
)
MILLIS_BEHIND_LATEST = Metric(
    PROCESS,
    "MillisBehindLatest",
    "distance of a batch to the tip of its shard",
    Unit.MILLISECONDS,
    dimension=SHARD,
)
ANY_MILLIS_BEHIND_LATEST = Metric(
    "ApplicationTracker",
    "MillisBehindLatest",
    "the same, of all shards in one metric",
    Unit.MILLISECONDS,
)
PROCESS_RECORDS_TIME = _call(
    PROCESS,
    "RecordProcessor.processRecords.",
    what="processRecords until the child answers",
    dimension=SHARD,
    families=(None, PROCESS_RECORDS),
).time
PROCESSOR_EXCEPTIONS = Metric(
    PROCESS,
    "ProcessorExceptions",
    "exceptions that amazon_kclpy caught",
    dimension=SHARD,
    is_own=True,
    family=EXCEPTIONS,
)
DEAD_LETTERED = Metric(
    PROCESS,
    "DeadLetteredRecords",
    "records that were skipped and became dead letters",
    dimension=SHARD,
    is_own=True,
    family=DEAD_LETTERS,
)
SHARD_HELD = Metric(
    PROCESS,
    "ShardHeld",
    "once a minute while a shard is held because of its dead letters",
    dimension=SHARD,
    is_own=True,
    family=HELD_MINUTES,
)
SCHEMA_FAILURES = Metric(
    PROCESS,
    "SchemaFailures",
    "records that kept their schema registry frame",
    dimension=SHARD,
    is_own=True,
    family=SCHEMA_FAILURES_SEEN,
)
UNREADABLE_USER_RECORDS = Metric(
    PROCESS,
    "UnreadableUserRecords",
    "user records of aggregates that could not be read",
    dimension=SHARD,
    is_own=True,
    family=UNREADABLE_RECORDS,
)
USER_RECORDS_OUTSIDE_SHARD = Metric(
    PROCESS,
    "UserRecordsOutsideShard",
    "user records of aggregates with keys of other shards",
    dimension=SHARD,
    is_own=True,
    family=OUTSIDE_RECORDS,
)


def _passed(cause: PassCause, name: str, text: str) -> Metric:
    operation = PROCESS if name else ""
    return Metric(
        operation, name or f"Passed.{cause}", text, dimension=SHARD, is_own=True, family=PASSED,
        label=cause,
    )  # fmt: skip


PASSED_EXPIRED = _passed(
    PassCause.EXPIRED, "RecordsLost", "times that records expired before they were read"
)
PASSED_TRIMMED = _passed(
    PassCause.TRIMMED, "RecordsMayBeLost", "times that records may have expired unread"
)
PASSED_VANISHED = _passed(
    PassCause.VANISHED, "ShardsVanished", "shards that vanished before they were read to their end"
)
PASSED_RESET = _passed(
    PassCause.RESET, "ResetsForward", "times that people moved a checkpoint forward"
)
#: Not for CloudWatch, which has metrics of their own for these.
PASSED_UNDECODABLE = _passed(PassCause.UNDECODABLE, "", "user records that could not be read")
PASSED_OUTSIDE = _passed(PassCause.OUTSIDE, "", "user records with keys of other shards")
PASSED_DEAD_LETTER = _passed(PassCause.DEAD_LETTER, "", "records that became dead letters")
EXPIRED_ITERATOR = Metric(
    PROCESS, "ExpiredIterator", "iterators that expired", family=EXPIRED_ITERATORS
)
CATCH_UP_ACTIVE = Metric(
    "ApplicationTracker",
    "DynamoDBStreamsCatchUpModeActive",
    "pauses between reads that catchupEnabled made shorter; of the adapter for DynamoDB Streams",
    is_own=True,
)
GET_RECORDS = _call(
    PROCESS,
    "KinesisDataFetcher.getRecords.",
    what="GetRecords",
    level=DETAILED,
    dimension=SHARD,
    families=(GET_RECORDS_CALLS, GET_RECORDS_TIMES),
)
GET_SHARD_ITERATOR = _call(
    PROCESS,
    "KinesisDataFetcher.getShardIterator.",
    what="GetShardIterator",
    level=DETAILED,
    dimension=SHARD,
)


def _update_lease(operation: str, what: str) -> CallMetrics:
    return _call(
        operation,
        "UpdateLease.",
        what=what,
        level=DETAILED,
        dimension=SHARD,
        families=(CHECKPOINTS, CHECKPOINT_TIMES),
    )


CHECKPOINT = _update_lease(PROCESS, "a checkpoint")
LAST_CHECKPOINT = _update_lease("ShutdownTask", "the checkpoint of the end of a shard")
INITIALIZE_TIME = _call(
    "InitializeTask", "RecordProcessor.initialize.", what="initialize until the child answers"
).time
SHUTDOWN_TIME = _call(
    "ShutdownTask",
    "RecordProcessor.shutdown.",
    what="leaseLost or shardEnded until the child answers",
).time
#: Not for CloudWatch: the KCL has no child, and no such number.
CHILD_RESTARTED = Metric("", "ChildRestarts", "restarts of children", is_own=True, family=RESTARTS)
HANDED_OFF = Metric("", "HandOffs", "leases handed off", is_own=True, family=HAND_OFFS_DONE)

MISSING_MERGE_PARENT = Metric(
    "ShutdownTask", "MissingMergeParent", "merged shards whose child names no second parent"
)
MISSING_MERGE_PARENT_LEASE = Metric(
    "ShutdownTask", "MissingMergeParentLease", "merged shards whose second parent has no lease"
)


@dataclass(frozen=True, slots=True)
class CreateLease:
    """Of a new row of the lease table.

    Attributes:
        by_position: its success by where the lease begins.
    """

    call: CallMetrics
    by_position: Mapping[str, Metric]


_POSITIONS = ("TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "SHARD_END", "SEQUENCE_NUMBER")


def _create_lease(operation: str) -> CreateLease:
    what = "creating a lease"
    return CreateLease(
        _call(operation, "CreateLease.", what=what, level=DETAILED),
        {
            position: _call(
                operation, f"CreateLease_{position}.", what=f"{what} at {position}", level=DETAILED
            ).success
            for position in _POSITIONS
        },
    )


CREATE_LEASE_AT_END = _create_lease("ShutdownTask")
CREATE_LEASE_IN_SYNC = _create_lease("ShardSyncTask")
SHARD_SYNC = _call("ShardSyncTask", what="a shard sync", families=(SHARD_SYNCS, None))
SYNC_SHARDS = _call("ShardSyncTask", "SyncShards.", what="the same", level=DETAILED).success
_AUDIT = "PeriodicShardSyncManager"
AUDIT = _call(_AUDIT, what="an audit of the hash ranges by the leader")
STREAMS_WITH_PARTIAL_LEASES = Metric(
    _AUDIT, "NumStreamsWithPartialLeases", "1 if leases lack hash keys, else 0"
)
STREAMS_TO_SYNC = Metric(_AUDIT, "NumStreamsToSync", "1 if the stream needs a shard sync, else 0")
SKIPPED_SHARD_SYNC = Metric(
    _AUDIT, "NumSkippedShardSyncTask", "1 if it was skipped because there was one, else 0"
)

_RENEW = "RenewAllLeases"
RENEW_ALL = _call(_RENEW, what="a round of renewals", dimension=WORKER)
RENEW_LEASE = _call(
    _RENEW,
    "RenewLease.",
    what="the renewal of a lease",
    level=DETAILED,
    dimension=WORKER,
    families=(RENEWALS, RENEWAL_TIMES),
)
CURRENT_LEASES = Metric(_RENEW, "CurrentLeases", "leases held", dimension=WORKER)
LOST_LEASES = Metric(_RENEW, "LostLeases", "leases lost", dimension=WORKER, family=LOST)
SLOW_ROUNDS = Metric(
    _RENEW,
    "SlowRounds",
    "rounds that took over half of failoverTimeMillis",
    dimension=WORKER,
    is_own=True,
)
RENEWAL_LATENESS = Metric(
    _RENEW,
    "Lateness",
    "time that a renewal began after it was due",
    Unit.SECONDS,
    DETAILED,
    WORKER,
    is_own=True,
)

_TAKE = "TakeLeases"
TAKE_LEASES = _call(_TAKE, what="a look at the lease table to take leases (2.x)", dimension=WORKER)
LIST_LEASES = _call(
    _TAKE, "ListLeases.", what="the scan of the lease table", level=DETAILED, dimension=WORKER
)
TAKE_LEASE = _call(_TAKE, "TakeLease.", what="taking a lease", level=DETAILED, dimension=WORKER)


def _taking(
    name: str, text: str, level: Level = Level.SUMMARY, family: Family | None = None
) -> Metric:
    return Metric(_TAKE, name, text, level=level, dimension=WORKER, family=family)


TAKEN_LEASES = _taking("TakenLeases", "leases taken", family=TAKEN)
UNTAKEN_LEASES = _taking("UntakenLeases", "leases that others took first, or writes that failed")
NUM_WORKERS = _taking("NumWorkers", "workers that hold leases")
EXPIRED_LEASES = _taking("ExpiredLeases", "leases that are free or expired")
VERY_OLD_LEASES = _taking("VeryOldLeases", "leases expired for long, taken first")
LEASE_SPILLOVER = _taking("LeaseSpillover", "leases that maxLeasesForWorker keeps from being taken")
TOTAL_LEASES = _taking("TotalLeases", "leases of the application", DETAILED)
NEEDED_LEASES = _taking("NeededLeases", "leases that this worker lacks", DETAILED)
LEASES_TO_TAKE = _taking("LeasesToTake", "leases that it tries to take", DETAILED)
UNREADABLE_LEASES = Metric(
    _TAKE,
    "UnreadableLeases",
    "rows of the lease table that can't be read",
    dimension=WORKER,
    is_own=True,
)

_DISCOVERY = "LeaseDiscovery"
DISCOVERY = _call(_DISCOVERY, what="a look for assigned leases (3.x)", dimension=WORKER)
NUM_LEASES = Metric(
    _DISCOVERY, "NumLeases", "leases that name this worker", level=DETAILED, dimension=WORKER,
    is_own=True,
)  # fmt: skip

_ASSIGNMENT = "LeaseAssignmentManager"
ASSIGNMENT = _call(
    _ASSIGNMENT,
    what="a run of the assignment by the leader (3.x)",
    dimension=WORKER,
    families=(ASSIGNMENT_RUNS, ASSIGNMENT_TIMES),
)


def _assigning(name: str, text: str, level: Level = Level.SUMMARY) -> Metric:
    return Metric(_ASSIGNMENT, name, text, level=level, dimension=WORKER)


ASSIGNMENT_SPILLOVER = _assigning("LeaseSpillover", "leases that no worker may take")
FAILED_ASSIGNMENTS = _assigning("FailedAssignmentCount", "assignments whose write failed")
ASSIGNMENT_WORKERS = _assigning("NumWorkers", "workers of the fleet", DETAILED)
ASSIGNMENT_LEASES = _assigning("TotalLeases", "leases of the application", DETAILED)

_TRACKER = "MultiStreamTracker"
ACTIVE_STREAMS = Metric(_TRACKER, "ActiveStreams.Count", "streams in the list")
STREAMS_PENDING_DELETION = Metric(
    _TRACKER, "StreamsPendingDeletion.Count", "former streams whose leases may be deleted"
)
NON_EXISTING_STREAMS = Metric(
    _TRACKER, "NonExistingStreamDelete.Count", "streams of these that do not exist"
)
DELETED_STREAMS = Metric(_TRACKER, "DeletedStreams.Count", "streams whose leases were deleted")

START = _call("Scheduler:Initialize", "Initialize.", what="an attempt to start").success
GET_SCHEMA_VERSION = _call("GetSchemaVersion", what="GetSchemaVersion of Glue", is_own=True)
LOOP_LATENESS = Metric(
    "Worker",
    "EventLoopLateness",
    "time for which the event loop was blocked, above 0.5 s",
    Unit.SECONDS,
    DETAILED,
    WORKER,
    is_own=True,
    family=LOOP_BLOCKED,
)
LOG_MESSAGES_DROPPED = Metric(
    "Worker", "LogMessagesDropped", "log messages lost", dimension=WORKER, is_own=True
)


def _metrics_in(value: object) -> tuple[Metric, ...]:
    match value:
        case Metric():
            return (value,)
        case CallMetrics():
            return (value.success, value.time)
        case CreateLease():
            return (*_metrics_in(value.call), *value.by_position.values())
        case _:
            return ()


#: All of them, in the order of this module.
METRICS: tuple[Metric, ...] = tuple(
    metric for value in tuple(globals().values()) for metric in _metrics_in(value)
)
FAMILIES: tuple[Family, ...] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, Family)
)
