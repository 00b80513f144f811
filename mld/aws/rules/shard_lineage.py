"""Shards as DescribeStream of DynamoDB Streams lists them -> as ListShards of Kinesis does.

The list is eventually consistent: pages may repeat a shard, and a parent may be listed as open
beside its child. There are no hash keys; ``0`` to ``1`` is what Java's adapter writes into rows.

Source: ShardGraphTracker, KinesisMapperUtil (dynamodb-streams-kinesis-adapter 2.3.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: The end of a shard that is listed as open although it has a child; its real one is not known yet.
_ENDED_AT = str(2**63 - 1)
_HASH_KEYS = {"StartingHashKey": "0", "EndingHashKey": "1"}


def listed_shards(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The ``Shards`` of a ListShards answer, in the order of the list.

    Args:
        entries: the ``Shards`` of all pages; of two with one id the later counts. A shard that has
            a listed child is closed.
    """
    by_id = {entry["ShardId"]: entry for entry in entries}
    parents = {entry.get("ParentShardId") for entry in by_id.values()}
    return [_shard(entry, has_child=shard_id in parents) for shard_id, entry in by_id.items()]


def _shard(entry: Mapping[str, Any], *, has_child: bool) -> dict[str, Any]:
    numbers = dict(entry["SequenceNumberRange"])
    if has_child:
        numbers.setdefault("EndingSequenceNumber", _ENDED_AT)
    shard = {
        "ShardId": entry["ShardId"],
        "HashKeyRange": _HASH_KEYS,
        "SequenceNumberRange": numbers,
    }
    parent = entry.get("ParentShardId")
    return shard if not parent else {**shard, "ParentShardId": parent}


def children_of(shard_id: str, entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries that name a shard as their parent.

    Args:
        entries: of an answer that was asked for the children; some servers list all shards.
    """
    return [dict(entry) for entry in entries if entry.get("ParentShardId") == shard_id]


def child_shards(shard_id: str, entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The ``ChildShards`` of a GetRecords answer.

    Args:
        entries: see :func:`children_of`.
    """
    ids = sorted({entry["ShardId"] for entry in entries})
    return [
        {"ShardId": child, "ParentShards": [shard_id], "HashKeyRange": _HASH_KEYS} for child in ids
    ]


#: A child that is not listed yet is asked for every second for this long, then every ten seconds.
EAGER_S = 10.0
_EAGERLY_S, _CALMLY_S = 1.0, 10.0


def asks_again(waited_s: float, since_asked_s: float) -> bool:
    """Whether to ask for the children of a shard that was read to its end.

    Args:
        waited_s: since its end was met.
        since_asked_s: since they were asked for.
    """
    return since_asked_s >= (_EAGERLY_S if waited_s < EAGER_S else _CALMLY_S)
