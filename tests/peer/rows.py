"""Items of a fleet: which attributes of which types, whoever wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: What each row of a lease has.
_ALWAYS = {
    "leaseKey": "S",
    "leaseCounter": "N",
    "ownerSwitchesSinceCheckpoint": "N",
    "checkpoint": "S",
    "checkpointSubSequenceNumber": "N",
    "startingHashKey": "S",
    "endingHashKey": "S",
}
#: What a row of one of many streams has besides.
_MANY = {"streamName": "S", "shardId": "S"}
_SOMETIMES = {
    "leaseOwner": "S",
    "parentShardId": "SS",
    "childShardIds": "SS",
    # of workers that know KCL 3.x: at creation, with a renewal, while a lease is handed over
    "entityType": "S",
    "throughputKBps": "N",
    "checkpointOwner": "S",
    # of workers of ours: who holds it, and where they read one stream, which
    "kclMldHolder": "S",
    "kclMldStream": "S",
    # until when they know that they have read, and checkpointed
    "kclMldReadUntil": "S",
    # that they are new to a fleet of 2.x
    "kclMldNewcomer": "S",
}
#: What differs from worker to worker and from moment to moment.
_OF_THE_MOMENT = {
    *("leaseOwner", "kclMldHolder", "leaseCounter", "ownerSwitchesSinceCheckpoint", "checkpoint"),
    *("checkpointSubSequenceNumber", "childShardIds", "throughputKBps", "kclMldReadUntil"),
    "kclMldNewcomer",
}
#: What the library writes since 3.5 when it makes a lease, and so do we.
SINCE_3_5 = {"entityType": {"S": "LEASE"}}


def faults(rows: Mapping[str, Mapping[str, Mapping[str, Any]]], *, many: bool) -> list[str]:
    """What is wrong with the leases of a table, a line each.

    Args:
        rows: by key, in DynamoDB's JSON.
        many: whether they are of many streams.
    """
    found = []
    needed = _ALWAYS | (_MANY if many else {})
    for key, row in rows.items():
        types = {name: next(iter(value)) for name, value in row.items()}
        found += [f"{key}: no {name}" for name in sorted(needed.keys() - types.keys())]
        found += [
            f"{key}: {name} of type {kind}"
            for name, kind in sorted(types.items())
            if (needed | _SOMETIMES).get(name) != kind
        ]
        if many and not found:
            found += _names(key, row)
        found += [
            f"{key}: {name} is not a bare shard id: {one}"
            for name in ("parentShardId", "childShardIds")
            for one in row.get(name, {}).get("SS", ())
            if not one.startswith("shardId-")
        ]
    return found


def _names(key: str, row: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    identifier, shard_id = row["streamName"]["S"], row["shardId"]["S"]
    account, _, epoch = identifier.split(":")
    if key != f"{identifier}:{shard_id}":
        yield f"{key} is not {identifier}:{shard_id}"
    if not (account.isdigit() and epoch.isdigit() and shard_id.startswith("shardId-")):
        yield f"{key}: no account:name:epoch and shard id"


def lasting(rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """What two workers must write alike: the rows without what changes all the time."""
    return {
        key: {
            name: sorted(value["SS"]) if "SS" in value else value
            for name, value in row.items()
            if name not in _OF_THE_MOMENT
        }
        for key, row in rows.items()
    }


#: What a worker of ours adds to the metrics that Java writes, where there is something to say.
OURS_ALONE = {"properties"}


def shape(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Attributes and types of an item, texts of ``entityType`` included.

    Of a list with entries the first one counts; what is inside an empty one is not known.
    """
    return {
        name: value if name == "entityType" else _shape(value)
        for name, value in sorted(item.items())
        if name not in OURS_ALONE and not name.startswith("kclMld")
    }


def _shape(value: Mapping[str, Any]) -> Any:
    ((kind, inside),) = value.items()
    if kind == "M":
        return {"M": {name: _shape(one) for name, one in sorted(inside.items())}}
    if kind == "L":
        return {"L": [_shape(one) for one in inside[:1]]}
    return kind


def of_3_5(item: Mapping[str, Mapping[str, Any]], entity: str) -> dict[str, Any]:
    """What 3.5 would have written where an older version wrote an item.

    Args:
        item: of 3.0 to 3.4, or of any later version.
        entity: its kind.
    """
    added = {"entityType": {"S": entity}}
    if entity == "WORKER_METRIC_STATS":
        added |= {"sup": {"N": "1"}, "slu": {"N": "0"}}
    return dict(item) | {name: value for name, value in added.items() if name not in item}
