"""The checks of ``kcl-mld doctor`` on the collected facts. Pure.

Each function checks one kind of facts. A check states the finding, its severity, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from kcl_mld.config.stream import KINESIS
from kcl_mld.errors import CredentialsRefused, Denied, NotFound, ServiceError, Throttled
from kcl_mld.kernel.model.text import counted
from kcl_mld.leases.model.lease_item import LEASE_KEY
from kcl_mld.leases.model.owner_index import LEASE_OWNER_INDEX, index_status
from kcl_mld.streams.rules.existence import disabled_stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kcl_mld.config.stream import SourceTraits
    from kcl_mld.errors import MldError

#: AWS refuses requests from five minutes on. Source: "Signing AWS API requests", IAM user guide.
SKEW_ERROR_S = 300.0
SKEW_WARNING_S = 60.0
#: Open files of a worker without children: connections, its log, the loop.
FILES_OF_WORKER = 200
#: Its shard may have a connection of its own.
FILES_A_SHARD = 1
#: Three pipes and a process descriptor.
FILES_A_CHILD = 4
#: Threads of the pools and the guardian, rounded up; see ``kcl_mld.aws.clients``.
THREADS_OF_WORKER = 100
_GRANT = "grant it: kcl-mld iam FILE --role worker prints the policy"
#: A table's stream that is gone never comes back under its ARN.
_NO_TABLE_STREAM = (
    "name LatestStreamArn in aws dynamodb describe-table; if the table has none, enable its stream"
)
_MIB = 2**20


class CheckSeverity(IntEnum):
    """How much a check matters. ERROR: a worker can't do its work."""

    OK = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        """As it is shown."""
        return self.name.lower()


OK, WARNING, ERROR = CheckSeverity.OK, CheckSeverity.WARNING, CheckSeverity.ERROR


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    Attributes:
        subject: what was checked, one or two words.
        text: the finding, a clause without a full stop.
        todo: what the operator does; "" = nothing.
    """

    subject: str
    severity: CheckSeverity
    text: str
    todo: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The credentials that one property gives.

    Attributes:
        provider: botocore's name of their source; None = there are none.
        arn: by STS; None = STS did not return it.
        why: why there are none, or why STS did not return it.
    """

    key: str
    provider: str | None = None
    arn: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class EndpointFact:
    """Where one client sends its requests.

    Attributes:
        service: e.g. ``kinesis``.
        origin: what overrides the address of AWS, e.g. ``property kinesisEndpoint``; None = nothing.
        is_of_file: the properties file does, so that it holds for every worker.
    """

    service: str
    url: str
    origin: str | None = None
    is_of_file: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call that reads.

    Attributes:
        action: as IAM names it, e.g. ``kinesis:ListShards``.
        on: stream or table.
        error: None = it was answered.
    """

    action: str
    on: str
    error: MldError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """What Kinesis returns for one stream.

    Attributes:
        summary: ``StreamDescriptionSummary``; None = unknown.
        consumer: status of the consumer of enhanced fan-out; "" = there is none yet, None = none is
            needed, or it was not requested.
    """

    name: str
    summary: Mapping[str, Any] | None = None
    error: MldError | None = None
    consumer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What DynamoDB returns for the lease table.

    Attributes:
        table: as in DescribeTable; None = unknown.
        is_assigned: a leader assigns the leases, so workers find theirs by the index.
    """

    name: str
    table: Mapping[str, Any] | None = None
    error: MldError | None = None
    is_assigned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLimits:
    """What this process may have at most; None = no limit is known.

    Attributes:
        files: that may be open, once the worker has raised its limit.
        processes: processes and threads.
        memory_bytes: of the container, or of the machine.
    """

    files: int | None = None
    processes: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTrial:
    """What a child did that was started and got no records.

    Attributes:
        answered_s: from its start to its answer to ``initialize``.
        resident_bytes: its memory then; None = not known.
        error: why it failed; "" = it did not.
    """

    answered_s: float = 0.0
    resident_bytes: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsFacts:
    """The results of the calls.

    Attributes:
        ahead_s: how far the clock here is ahead of the service; None = no answer had a date.
        attempts: all calls that were tried.
    """

    ahead_s: float | None = None
    streams: tuple[StreamFacts, ...] = ()
    table: TableFacts | None = None
    attempts: tuple[Attempt, ...] = field(default=())


# -- who, where, when ----------------------------------------------------------------------------


def judge_identity(identity: Identity) -> Check:
    """Whose credentials there are in this shell."""
    subject = f"credentials ({identity.key})"
    if identity.provider is None:
        todo = "check the provider that the property names; log in again"
        return Check(subject, ERROR, identity.why, todo)
    who = identity.arn or f"whose is not known ({identity.why})"
    text = (
        f"{who}, by the provider {identity.provider}, in this shell; a worker elsewhere has its own"
    )
    return Check(subject, OK, text)


def judge_clock(ahead_s: float | None) -> Check:
    """The clock here beside the ``Date`` of the service, which has whole seconds."""
    if ahead_s is None:
        return Check("clock", WARNING, "not compared: no answer of Kinesis had a date")
    size_s, word = abs(ahead_s), "ahead of" if ahead_s > 0 else "behind"
    if size_s < SKEW_WARNING_S:
        return Check("clock", OK, f"within {max(2.0, size_s):.0f} s of the service's")
    severity = ERROR if size_s >= SKEW_ERROR_S else WARNING
    todo = "set the clock (NTP); AWS refuses requests that are more than five minutes off"
    return Check("clock", severity, f"{size_s:.0f} s {word} the service's", todo)


def judge_endpoints(endpoints: Iterable[EndpointFact]) -> Iterator[Check]:
    """Which addresses are not those of AWS, and why."""
    overridden = [one for one in endpoints if one.origin is not None]
    if not overridden:
        yield Check("endpoints", OK, "those of AWS, nothing overrides them")
    for one in overridden:
        subject, text = f"endpoint {one.service}", f"{one.url}, by {one.origin}"
        if one.is_of_file:
            yield Check(subject, OK, text)
        else:
            todo = "is it meant? Another shell or pod may have another one"
            yield Check(subject, WARNING, text, todo)


# -- what is reached -----------------------------------------------------------------------------


def judge_stream(facts: StreamFacts, traits: SourceTraits = KINESIS) -> Iterator[Check]:
    """Whether a stream is there and can be read."""
    subject = f"stream {facts.name}"
    if facts.summary is None:
        todo = "create it, or correct its name" if traits.reuses_names else _NO_TABLE_STREAM
        yield _failed(subject, facts.error, "the stream", todo)
        return
    status = str(facts.summary.get("StreamStatus"))
    shards = facts.summary.get("OpenShardCount")
    hours = facts.summary.get("RetentionPeriodHours")
    counted = "" if shards is None else f"{shards} open shards, "
    text = f"{status}, {counted}keeps records for {hours} hours"
    if facts.summary.get("EncryptionType") == "KMS":
        text += f", encrypted with {facts.summary.get('KeyId')}: readers need kms:Decrypt"
    if status in {"ACTIVE", "UPDATING"}:
        yield Check(subject, OK, text)
    elif (disabled := disabled_stream(facts.summary, is_one_of_many=False)) is not None:
        todo = "name the newest stream of the table"
        yield Check(subject, WARNING, f"{text}: {disabled[0]}", todo)
    else:
        yield Check(subject, ERROR, text, "wait until it is ACTIVE")
    if facts.consumer is not None:
        yield _consumer(facts.name, facts.consumer)


def _consumer(stream: str, status: str) -> Check:
    subject = f"consumer of {stream}"
    if not status:
        text = "none is registered yet; the first worker registers it"
        return Check(subject, OK, text)
    if status == "DELETING":
        return Check(subject, WARNING, status, "workers register it again once it is gone")
    return Check(subject, OK, status)


def judge_table(facts: TableFacts) -> Iterator[Check]:
    """Whether the lease table is there, and is one."""
    subject = f"table {facts.name}"
    if isinstance(facts.error, NotFound):
        yield Check(subject, OK, "does not exist yet; the first worker creates it")
        return
    if facts.table is None:
        yield _failed(subject, facts.error, "the table", "create it, or correct its name")
        return
    key = [(part["AttributeName"], part["KeyType"]) for part in facts.table.get("KeySchema", ())]
    if key != [(LEASE_KEY, "HASH")]:
        todo = "choose another applicationName or tableName"
        yield Check(subject, ERROR, f"its primary key is {key}, so it is no lease table", todo)
        return
    status = str(facts.table.get("TableStatus"))
    sse = facts.table.get("SSEDescription", {})
    text = f"{status}, a lease table"
    if "KMSMasterKeyArn" in sse:
        text += f", encrypted with {sse['KMSMasterKeyArn']}: its users need that key, too"
    if status in {"ACTIVE", "UPDATING"}:
        yield Check(subject, OK, text)
    else:
        yield Check(subject, ERROR, text, "wait until it is ACTIVE")
    if facts.is_assigned:
        yield _index(index_status(dict(facts.table)))


def _index(status: str | None) -> Check:
    subject = f"index {LEASE_OWNER_INDEX}"
    if status == "ACTIVE":
        return Check(subject, OK, status)
    text = "is missing" if status is None else status
    todo = "workers scan the table until it is ACTIVE; the leader creates it by UpdateTable"
    return Check(subject, WARNING, text, todo)


def _failed(subject: str, error: MldError | None, what: str, absent: str) -> Check:
    """A call that should show what exists failed."""
    if isinstance(error, NotFound):
        return Check(subject, ERROR, f"{what} does not exist ({error})", absent)
    if isinstance(error, CredentialsRefused):
        todo = "renew the credentials, or set the clock"
        return Check(subject, ERROR, f"the credentials are refused ({error})", todo)
    if isinstance(error, Denied):
        return Check(subject, WARNING, f"not known: {error}", _GRANT)
    if isinstance(error, Throttled):
        return Check(subject, WARNING, f"not known: {error}", "try again later")
    todo = "check network, proxy and endpoint"
    if isinstance(error, ServiceError):
        todo = "correct what the message says"
    return Check(subject, ERROR, f"not reached: {error}", todo)


def judge_permissions(attempts: Sequence[Attempt], needed: Sequence[str]) -> Iterator[Check]:
    """Which actions of a worker were tried, and which were not.

    Args:
        attempts: calls that read.
        needed: all actions of a worker; the others change something.
    """
    denied = [one for one in attempts if _is_denied(one)]
    for one in denied:
        text = f"denied on {one.on}: {one.error}"
        yield Check(one.action, ERROR, text, _GRANT)
    refused = {one.action for one in denied}
    answered = [one.action for one in attempts if one.error is None or _was_judged(one.error)]
    tried = [action for action in dict.fromkeys(answered) if action not in refused]
    if tried:
        yield Check("permissions", OK, f"tried and allowed: {', '.join(tried)}")
    left = [action for action in dict.fromkeys(needed) if action not in {*tried, *refused}]
    if left:
        yield Check("not tried", OK, ", ".join(left))


def _is_denied(attempt: Attempt) -> bool:
    error = attempt.error
    return isinstance(error, Denied) and not isinstance(error, CredentialsRefused)


def _was_judged(error: MldError) -> bool:
    """Whether the service has let the caller in, and refused for another reason."""
    return isinstance(error, NotFound)


# -- this machine --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MostHeld:
    """Most that one worker has at a time."""

    shards: int
    children: int

    def __str__(self) -> str:
        shards = counted(self.shards, "shard", "shards")
        if self.children == self.shards:
            return shards
        return f"{shards} and {counted(self.children, 'child', 'children')}"


def most_held(streams: Iterable[tuple[int, int]], limit: int) -> MostHeld:
    """What one worker has that holds all shards, or those with most children up to a limit.

    Args:
        streams: number of shards of each stream, and of children of each of its shards.
        limit: ``maxLeasesForWorker``.
    """
    left, children = limit, 0
    for shards, each in sorted(streams, key=lambda one: -one[1]):
        held = min(shards, left)
        left, children = left - held, children + held * each
    return MostHeld(limit - left, children)


def judge_limits(limits: MachineLimits, most: MostHeld, child_bytes: int | None) -> Iterator[Check]:
    """Whether one worker could have all shards at once here, as after the loss of the others.

    Args:
        limits: of this process.
        child_bytes: memory of one child; None = it was not tried.
    """
    files = most.shards * FILES_A_SHARD + most.children * FILES_A_CHILD + FILES_OF_WORKER
    processes = most.children + THREADS_OF_WORKER
    need = f"one worker with {most} needs about"
    yield _limit("files", limits.files, files, need, "raise it: ulimit -n, LimitNOFILE of systemd")
    advice = "raise it: ulimit -u, TasksMax of systemd, pids.max of the container"
    more = " and the threads of the children"
    yield _limit("processes", limits.processes, processes, need, advice, more)
    memory = limits.memory_bytes
    if memory is None:
        yield Check("memory", OK, "no limit is known")
        return
    text = f"{memory // _MIB} MiB"
    if child_bytes is None:
        yield Check("memory", OK, f"{text}; --try-child tells what a child takes")
        return
    wanted = most.children * child_bytes
    text += f"; {counted(most.children, 'child takes', 'children take')} {wanted // _MIB} MiB"
    if wanted < memory:
        yield Check("memory", OK, text)
    else:
        todo = "give it more, set maxLeasesForWorker, or run more workers"
        yield Check("memory", WARNING, text, todo)


def _limit(
    subject: str, limit: int | None, wanted: int, need: str, advice: str, more: str = ""
) -> Check:
    if limit is None:
        return Check(subject, OK, f"no limit; {need} {wanted}{more}")
    text = f"{limit} allowed; {need} {wanted}{more}"
    if wanted <= limit:
        return Check(subject, OK, text)
    return Check(subject, WARNING, text, f"{advice}; or set maxLeasesForWorker")


def judge_child(trial: ChildTrial) -> Check:
    """What the child did that was tried."""
    if trial.error:
        todo = "correct the program; its stderr is above"
        return Check("child", ERROR, trial.error, todo)
    memory = "" if trial.resident_bytes is None else f", {trial.resident_bytes // _MIB} MiB"
    text = f"answered initialize after {trial.answered_s:.1f} s{memory}, and leaseLost"
    return Check("child", OK, text)
