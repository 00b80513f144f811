"""Every error that kcl-mld raises on purpose, and what the receiver should do about it.

The tree is shallow: one root, one branch per kind of reaction. botocore's errors become these in
``kcl_mld.aws`` and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class MldError(Exception):
    """Root of all errors of this package; never raised itself."""

    #: Process exit code when this error ends the daemon.
    exit_code = 1


class ConfigError(MldError):
    """The user's input is wrong: fix the named key or argument and start again."""

    exit_code = 2

    def __init__(self, why: str, *, key: str | None = None, where: str | None = None) -> None:
        self.why = why
        self.key = key
        self.where = where
        prefix = f"{where}: " if where else ""
        subject = f"{key}: " if key else ""
        super().__init__(f"{prefix}{subject}{why}")


class CredentialsMissing(MldError):
    """No usable AWS credentials: check the provider named in the message."""

    exit_code = 3


class ResourceMissing(MldError):
    """A stream or table that must exist does not: create it or correct its name."""

    exit_code = 4


class UnservableFleet(MldError):
    """The lease table belongs to a fleet that this version cannot serve; the message says why."""

    exit_code = 5


class MoveRefused(MldError):
    """The rows of a lease table can't be moved to other keys; the message says which and why."""

    exit_code = 5


class WorkersAlive(MldError):
    """What needs a table at rest found somebody writing to it: stop every worker, then try again."""

    exit_code = 6


class ThreadRefused(MldError):
    """The system starts no more threads: the limit of processes is reached, or memory is out."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no thread {name} can be started: raise the limit of processes and threads "
            "(ulimit -u, pids.max of the container), or give more memory"
        )


class AwsError(MldError):
    """A call to AWS failed; the subclasses say what is known about its effect.

    Attributes:
        operation: API operation, e.g. ``UpdateItem``.
        code: error code of the service, or the name of the client-side failure.
    """

    def __init__(self, operation: str, code: str, message: str = "") -> None:
        self.operation = operation
        self.code = code
        self.message = message
        super().__init__(f"{operation}: {code}" + (f": {message}" if message else ""))


class ServiceError(AwsError):
    """The service answered with an error that has no class of its own here; nothing was changed."""


class ConditionFailed(ServiceError):
    """A conditional write met another state.

    Attributes:
        item: the item as stored (DynamoDB JSON) where the service returned it, else None.
    """

    def __init__(
        self, operation: str, message: str = "", item: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(operation, "ConditionalCheckFailedException", message)
        self.item = item


class TransactionCanceled(ServiceError):
    """Writes that were to be done together were not done, none of them.

    Attributes:
        reasons: the service's code for each write in order, e.g. ``ConditionalCheckFailed``,
            ``TransactionConflict``; ``None`` as a text where that write was not to blame.
    """

    def __init__(self, operation: str, message: str = "", reasons: tuple[str, ...] = ()) -> None:
        super().__init__(operation, "TransactionCanceledException", message)
        self.reasons = reasons


class Throttled(ServiceError):
    """Too many requests; the effect did not happen; wait and repeat."""


class NotFound(ServiceError):
    """The table, stream or shard does not exist (ResourceNotFoundException)."""


class MissingStreams(NotFound):
    """Some of a worker's streams do not exist.

    Attributes:
        names: which, as the file has them.
    """

    def __init__(self, names: tuple[str, ...], error: NotFound) -> None:
        self.names = names
        super().__init__(error.operation, error.code, error.message)


class InUse(ServiceError):
    """The resource is being created, changed or used by another (ResourceInUseException)."""


class LimitExceeded(ServiceError):
    """An account-wide call limit (LimitExceededException); wait and repeat."""


class StreamNotReady(ServiceError):
    """The stream is neither ACTIVE nor UPDATING, so its shards are unknown: wait and repeat."""


class InconsistentShards(ServiceError):
    """A shard list has holes, overlaps or open parents with children: wait and list again."""


class ExpiredIterator(ServiceError):
    """The shard iterator is older than five minutes: get a new one."""


class TrimmedData(ServiceError):
    """A position in a DynamoDB stream whose records have expired (TrimmedDataAccessException)."""


class InvalidArgument(ServiceError):
    """Kinesis refused an argument (InvalidArgumentException): get a new iterator."""


class Denied(ServiceError):
    """Access denied, bad signature or expired token: fix credentials or permissions."""


class CredentialsRefused(Denied):
    """The keys, the token or the clock were refused, not the action: every other call meets it, too.

    It passes with new keys or a clock that is right.
    """


class Unreachable(AwsError):
    """The service was not reached, so nothing was changed (DNS, refused, no credentials)."""


class NameNotKnown(Unreachable):
    """The name of the endpoint could not be resolved: DNS, or a region without this service."""


class UnknownOutcome(AwsError):
    """The request was sent and no answer came: it may or may not have happened. Read to find out."""


class MixedTable(AwsError):
    """The lease table has rows that are none of this application: wait until they are gone.

    Nothing was sent. Beside such rows nothing is created, taken, assigned or deleted.
    """

    def __init__(self, operation: str, why: str) -> None:
        super().__init__(operation, "MixedTable", why)


class LeaseLost(MldError):
    """This worker no longer holds the lease: stop working on the shard without a checkpoint."""

    def __init__(self, lease_key: str, why: str) -> None:
        self.lease_key = lease_key
        self.why = why
        super().__init__(f"{lease_key}: {why}")


class BlockedOnParent(MldError):
    """A step at shard end must wait for another parent of a merge: keep the lease and repeat."""

    def __init__(self, lease_key: str, parent_key: str, why: str) -> None:
        self.lease_key = lease_key
        self.parent_key = parent_key
        super().__init__(f"{lease_key}: waits for {parent_key}: {why}")


class InvalidShardEnd(MldError):
    """A shard end contradicts the lease table: drop the lease locally, another worker tries."""

    def __init__(self, lease_key: str, why: str) -> None:
        self.lease_key = lease_key
        self.why = why
        super().__init__(f"{lease_key}: {why}")


class CheckpointRefused(MldError):
    """The child asked for a position that it may not checkpoint; nothing was written.

    Attributes:
        error_name: simple class name sent to the child, e.g. ``IllegalArgumentException``.
    """

    def __init__(self, error_name: str, why: str) -> None:
        self.error_name = error_name
        self.why = why
        super().__init__(f"{error_name}: {why}")


class ChildFailed(MldError):
    """A child process broke the protocol, died or timed out.

    Attributes:
        action: the message that it had to answer, e.g. ``processRecords``; None = it had none.
        child_exit_code: its exit status where known; negative = signal number.
    """

    def __init__(
        self,
        shard_id: str,
        action: str | None,
        why: str,
        child_exit_code: int | None = None,
        *,
        advice: str = "",
    ) -> None:
        self.shard_id = shard_id
        self.action = action
        self.why = why
        self.child_exit_code = child_exit_code
        ended = "" if child_exit_code is None else f" (exit status {child_exit_code})"
        advice = f". {advice}" if advice else ""
        super().__init__(f"{shard_id}: child failed {self.when}: {why}{ended}{advice}")

    @property
    def when(self) -> str:
        """In words: at which message, or between two of them."""
        return "while idle" if self.action is None else f"at {self.action}"


class EndNotCheckpointed(ChildFailed):
    """A child answered shardEnded without a checkpoint, so the shard can't be finished.

    Java keeps such a shard forever; here its child is started again from the last checkpoint.
    """


class ChildTimedOut(ChildFailed):
    """A child did not answer within ``timeoutInSeconds``."""


class ProcessorRaised(ChildFailed):
    """A program of amazon_kclpy answered, although its processor had raised an exception."""


class ChildReported(ChildFailed):
    """A child answered with a failure of its own.

    Attributes:
        sequence_number: of the record that it blames; None = it names none.
        sub_sequence_number: of that record.
    """

    def __init__(
        self,
        shard_id: str,
        action: str,
        why: str,
        sequence_number: str | None = None,
        sub_sequence_number: int = 0,
    ) -> None:
        super().__init__(shard_id, action, why)
        self.sequence_number = sequence_number
        self.sub_sequence_number = sub_sequence_number


class LetterRefused(MldError):
    """A dead letter is not known to be stored: nothing may be skipped; correct the cause or wait."""


class MalformedData(MldError):
    """Stored or received data cannot be read; the message says which and why."""
