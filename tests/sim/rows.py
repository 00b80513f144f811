"""Rows of the lease table: what they say, what a Java worker can read of them, what changed.

Shares no code with the services, except the order of sequence numbers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.fakes.dynamodb_model import Write

    Item = Mapping[str, Mapping[str, Any]]

_INTEGER = re.compile(r"0|[1-9][0-9]*\Z")
#: Attribute -> type, as Java's DynamoDBLeaseSerializer 3.5.1 reads them.
_TYPES = {
    "leaseKey": "S",
    "leaseCounter": "N",
    "leaseOwner": "S",
    "ownerSwitchesSinceCheckpoint": "N",
    "checkpoint": "S",
    "checkpointSubSequenceNumber": "N",
    "pendingCheckpoint": "S",
    "pendingCheckpointSubSequenceNumber": "N",
    "pendingCheckpointState": "B",
    "parentShardId": "SS",
    "childShardIds": "SS",
    "startingHashKey": "S",
    "endingHashKey": "S",
    "throughputKBps": "N",
    "checkpointOwner": "S",
    "entityType": "S",
    "kclMldStream": "S",
    "kclMldHolder": "S",
    "kclMldRequest": "S",
    "kclMldSteered": "S",
    "kclMldPausedUntil": "N",
    "kclMldFailure": "S",
    "kclMldSkip": "SS",
    "kclMldReadUntil": "S",
    "kclMldLoss": "S",
    "kclMldNewcomer": "S",
    "streamName": "S",
    "shardId": "S",
    "team": "S",
}
#: What a write may take away.
_TRANSIENT = {
    "leaseOwner",
    "checkpointOwner",
    "pendingCheckpoint",
    "pendingCheckpointSubSequenceNumber",
    "pendingCheckpointState",
    "kclMldRequest",
    "kclMldPausedUntil",
    "kclMldFailure",
    "kclMldSkip",
    "kclMldNewcomer",
}
_MANDATORY = (
    "leaseKey",
    "leaseCounter",
    "ownerSwitchesSinceCheckpoint",
    "checkpoint",
    "checkpointSubSequenceNumber",
)


def text_of(item: Item | None, name: str) -> str | None:
    """Content of an attribute as text, None when absent."""
    value = None if item is None else item.get(name)
    if value is None:
        return None
    (content,) = value.values()
    return str(content)


def worker_of(item: Item | None) -> str | None:
    """Who may work on a lease: during a hand-off the old owner."""
    return text_of(item, "checkpointOwner") or text_of(item, "leaseOwner")


def position_of(item: Item) -> ExtendedSequenceNumber:
    """The stored checkpoint."""
    return ExtendedSequenceNumber(
        text_of(item, "checkpoint") or "?", int(text_of(item, "checkpointSubSequenceNumber") or 0)
    )


def taken_away(before: Item, after: Item) -> list[str]:
    """Names of attributes that a write has removed and should not."""
    return sorted(before.keys() - after.keys() - _TRANSIENT)


def misfits(key: str, item: Item) -> Iterator[str]:
    """What a Java worker could not read in a row, each in one sentence."""
    for name, value in item.items():
        kind, content = next(iter(value.items()))
        if _TYPES.get(name) != kind:
            yield f"{key}.{name} is {kind} {content!r}"
        elif kind == "N" and name != "throughputKBps" and not _INTEGER.match(content):
            yield f"{key}.{name} = {content!r} is not a plain integer"
        elif content in ("", [], set()):
            yield f"{key}.{name} is empty"
    for name in _MANDATORY:
        if name not in item:
            yield f"{key} has no {name}"
    stream, _, shard_id = key.rpartition(":")
    named = (text_of(item, "streamName"), text_of(item, "shardId"))
    if named != ((stream, shard_id) if stream else (None, None)):
        yield f"{key} has stream and shard {named}"
    family = {
        *item.get("parentShardId", {}).get("SS", ()),
        *item.get("childShardIds", {}).get("SS", ()),
    }
    if any(":" in member for member in family):
        yield f"{key} names other shards by {sorted(family)}"
    start, end = text_of(item, "startingHashKey"), text_of(item, "endingHashKey")
    if (start is None) != (end is None) or (start and end and not int(start) < int(end)):
        yield f"{key} has hash range {start}-{end}"


def kind_of_change(write: Write) -> str:
    """What a write did to a lease, in a word."""
    if write.before is None:
        return "create"
    if write.after is None:
        return "delete"
    old, new = text_of(write.before, "leaseOwner"), text_of(write.after, "leaseOwner")
    if old != new:
        return "evict" if new is None else "take"
    if write.before.get("checkpoint") != write.after.get("checkpoint") or write.before.get(
        "checkpointSubSequenceNumber"
    ) != write.after.get("checkpointSubSequenceNumber"):
        return "checkpoint"
    if write.before.get("leaseCounter") != write.after.get("leaseCounter"):
        return "renew"
    return "metadata"


def details_of(write: Write, kind: str) -> str:
    """What the trace tells of a write besides its kind."""
    if write.after is None:
        return ""
    counter = text_of(write.after, "leaseCounter")
    if kind == "checkpoint":
        return f" #{counter} {tail(text_of(write.after, 'checkpoint'))}"
    if kind == "take":
        return f" #{counter} from {text_of(write.before, 'leaseOwner') or 'nobody'}"
    return f" #{counter}"


def short(key: str) -> str:
    """The end of a lease's key tells it apart; of one of many streams its name, too."""
    return f"{key.split(':')[1]}/{key[-3:]}" if ":" in key else key[-3:]


def tail(text: str | None) -> str:
    """The end of a sequence number tells it apart; a sentinel is shown whole."""
    return "…" + text[-8:] if text and text.isdigit() else str(text)
