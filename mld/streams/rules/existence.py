"""Whether a stream or a shard is still the one that this worker began with.

Shard ids and lease keys start again at 0 in a stream that is created again. Java treats "not found"
as the end of a shard, so a deleted stream finishes all its leases. Here the stream itself is
checked first.

These functions are pure: they turn the result of a check into a sentence.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from kcl_mld.config.stream import KINESIS, TableStreamArn
from kcl_mld.streams.model.shard import creation_in_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kcl_mld.config.stream import SourceTraits
    from kcl_mld.streams.model.shard import Shard

#: A shard of a table is listed for so long at least, from its creation on.
LISTED_S = 24 * 3600.0
#: Status of a stream that is being deleted.
DELETING = "DELETING"
#: Statuses of a table's stream that gets no more records.
DISABLED = frozenset({"DISABLING", "DISABLED"})


class ShardExistence(Enum):
    """The state of a shard that could not be read."""

    #: The stream still lists it: request its records again.
    LISTED = auto()
    #: Its records are past retention, and the stream still exists: it has ended.
    TRIMMED = auto()
    #: It never was a shard of this stream, so its lease belongs to an earlier one.
    FOREIGN = auto()


def shard_existence(
    shard_id: str,
    sequence_number: str | None,
    shards: Iterable[Shard],
    now_s: float,
    traits: SourceTraits = KINESIS,
) -> ShardExistence:
    """Classify a shard that the service does not know, or whose position it refuses.

    A stream numbers its shards upward and forgets the oldest first. So a shard above all listed
    ones was never in this stream, and neither was a record from before its shard began.

    Args:
        sequence_number: decimal text of a record that was read or checkpointed in it, or None.
        shards: the unfiltered list, not empty.
        now_s: epoch seconds. A shard whose id says that it is younger than :data:`LISTED_S` is listed
            late.
        traits: where no other stream gets a stream's name, a shard above all listed ones is not
            listed yet. Where lists are late, they have closed shards whose records are gone.
    """
    listed = {shard.shard_id: shard for shard in shards}
    shard = listed.get(shard_id)
    if shard is None and now_s - (creation_in_id(shard_id) or -math.inf) < LISTED_S:
        return ShardExistence.LISTED
    if shard is None:
        is_older = any(other > shard_id for other in listed)
        unknown = ShardExistence.FOREIGN if traits.reuses_names else ShardExistence.LISTED
        return ShardExistence.TRIMMED if is_older else unknown
    if not traits.reuses_names:
        is_gone = traits.lists_late and not shard.is_open
        return ShardExistence.TRIMMED if is_gone else ShardExistence.LISTED
    if sequence_number is not None and int(sequence_number) < int(shard.starting_sequence_number):
        return ShardExistence.FOREIGN
    return ShardExistence.LISTED


def is_another_stream(before: Mapping[str, str], shards: Iterable[Shard]) -> bool:
    """Whether a later shard list belongs to a stream that was created since the earlier one.

    Args:
        before: starting sequence number by shard id, of the earlier list.
        shards: the later list, unfiltered.

    Returns:
        True when a shard begins elsewhere than before, or is new although its number is not: a
        stream never uses a number twice.
    """
    highest = max(before, default="")
    return any(
        before.get(shard.shard_id) != shard.starting_sequence_number
        for shard in shards
        if shard.shard_id <= highest
    )


def beginnings(shards: Iterable[Shard]) -> dict[str, str]:
    """Starting sequence number by shard id, for :func:`is_another_stream`."""
    return {shard.shard_id: shard.starting_sequence_number for shard in shards}


def missing_stream(
    name: str,
    table: str,
    summary: Mapping[str, Any] | None,
    created: object,
    *,
    is_one_of_many: bool = False,
) -> str | None:
    """What is wrong with a stream, as a sentence; None = it is the one of the worker's start.

    Args:
        summary: ``StreamDescriptionSummary``; None = the stream does not exist.
        created: creation time that the worker remembers; None = unknown.
        is_one_of_many: its lease keys have its creation time.
    """
    if summary is None or summary.get("StreamStatus") == DELETING:
        what = "was deleted" if summary is None else "is being deleted"
        if is_one_of_many and TableStreamArn.of_name(name) is not None:
            return (
                f"stream {name} {what}. Its leases in table {table} stay as they are. Remove it from "
                "streams; a new stream of its DynamoDB table has another ARN, to be added"
            )
        if is_one_of_many:
            return (
                f"stream {name} {what}. Its leases in table {table} stay as they are; a new stream "
                "of that name gets leases of its own"
            )
        return (
            f"stream {name} {what}. Its leases in table {table} stay as they are. To read a new "
            "stream of that name, stop all workers and delete that table first, or use another "
            "applicationName"
        )
    now = summary.get("StreamCreationTimestamp")
    if None in (created, now) or now == created:
        return None
    why = f"the new one was created at {now}, not at {created}"
    return recreated_stream(name, table, why, is_one_of_many=is_one_of_many)


def disabled_stream(
    summary: Mapping[str, Any] | None, *, is_one_of_many: bool
) -> tuple[str, str] | None:
    """Of a table's stream that was disabled, a clause on it, and what to do; None = it was not.

    Args:
        summary: as of :func:`missing_stream`; its ``NewerStreamARN`` is that of the table's newest
            stream, where that is known; its ``NewerStreamDenied`` is true where the policy does not
            allow looking for it.
        is_one_of_many: streams are added to a list.
    """
    if summary is None or summary.get("StreamStatus") not in DISABLED:
        return None
    newer = summary.get("NewerStreamARN")
    next_one = f"the table's newest stream is {newer}"
    if newer is None and summary.get("NewerStreamDenied"):
        next_one = (
            "the table's newest stream is not known, because dynamodb:ListStreams is not allowed "
            "(LatestStreamArn in aws dynamodb describe-table)"
        )
    elif newer is None:
        next_one = (
            "no newer stream of the table is known (LatestStreamArn in aws dynamodb describe-table)"
        )
    todo = "a worker with an applicationName of its own reads the newest stream"
    if is_one_of_many:
        todo = "add the newest stream to streams, or restart the workers if streams has the table"
    return f"it was disabled, and is read to its end; its records stay 24 hours; {next_one}", todo


def recreated_stream(name: str, table: str, why: str, *, is_one_of_many: bool = False) -> str:
    """The sentence about a stream that was deleted and created again.

    Args:
        why: one clause, the evidence.
        is_one_of_many: its lease keys have its creation time.
    """
    if is_one_of_many:
        return (
            f"stream {name} was deleted and created again ({why}). The leases of the earlier one in "
            f"table {table} stay as they are; the new one gets leases of its own, unless the list "
            "of streams names the creation time of the earlier one: then correct it"
        )
    return (
        f"stream {name} was deleted and created again ({why}). The leases in table {table} belong "
        "to the earlier stream. Stop all workers and delete that table, or use another "
        "applicationName; then start again"
    )
