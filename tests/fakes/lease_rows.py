"""Rows of lease tables as items, of both kinds, and a table that plans are carried out on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcl_mld.config.stream import Stream
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.leases.model.lease_item import item_key, lease_to_item
from kcl_mld.leases.model.lease_move import comparable
from tests.fakes.lease_world import lease

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kcl_mld.leases.rules.lease_migration import RowWrite

    Item = Mapping[str, Mapping[str, Any]]

ORDERS = Stream("orders", account="123456789012", epoch=1_700_000_000)
#: What a 3.x fleet keeps beside its leases.
LEADER = {
    "leaseKey": {"S": "Leader"},
    "ownerName": {"S": "w1"},
    "leaseDuration": {"S": "120000"},
    "recordVersionNumber": {"S": "a"},
    "entityType": {"S": "LEADER"},
}
METRICS = {
    "leaseKey": {"S": "w1"},
    "entityType": {"S": "WORKER_METRIC_STATS"},
    "lut": {"N": "1"},
}
#: A row with everything that a row can have.
FULL: dict[str, Any] = {
    "leaseOwner": {"S": "w1"},
    "leaseCounter": {"N": "12"},
    "ownerSwitchesSinceCheckpoint": {"N": "3"},
    "checkpoint": {"S": "495903"},
    "checkpointSubSequenceNumber": {"N": "7"},
    "pendingCheckpoint": {"S": "495904"},
    "pendingCheckpointSubSequenceNumber": {"N": "1"},
    "pendingCheckpointState": {"B": b"\x00\xff"},
    "parentShardId": {"SS": ["shardId-000000000000", "shardId-000000000001"]},
    "childShardIds": {"SS": ["shardId-000000000008", "shardId-000000000009"]},
    "startingHashKey": {"S": "0"},
    "endingHashKey": {"S": "99999"},
    "throughputKBps": {"N": "1.5"},
    "checkpointOwner": {"S": "w0"},
    "kclMldIntent": {
        "M": {"n": {"N": "3"}, "after": {"S": "1"}, "to": {"S": "2"}, "appId": {"S": "a"}}
    },
    "ofSomebodyElse": {"L": [{"S": "x"}, {"M": {"y": {"BOOL": True}}}]},
}


def single(number: int = 0, **attributes: Any) -> dict[str, Any]:
    """A row of a worker of one stream."""
    position = ExtendedSequenceNumber(str(100 + number))
    item = lease_to_item(lease(number, lease_counter=number, checkpoint=position))
    return {**item, **attributes}


def multi(number: int = 0, stream: Stream = ORDERS, **attributes: Any) -> dict[str, Any]:
    """The same row of a multi-stream worker."""
    item = single(number, **attributes)
    shard_id = item["leaseKey"]["S"]
    return {
        **item,
        "leaseKey": {"S": stream.lease_key(shard_id)},
        "streamName": {"S": stream.identifier},
        "shardId": {"S": shard_id},
    }


class Rows:
    """A table in memory, on which steps meet their conditions."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items = {item_key(item): comparable(item) for item in items}

    def carry_out(self, steps: Iterable[RowWrite]) -> None:
        for step in steps:
            before = None if step.before is None else comparable(step.before)
            assert self.items.get(step.key) == before, step
            if step.after is None:
                del self.items[step.key]
            else:
                self.items[step.key] = comparable(step.after)

    def list(self) -> list[Item]:
        return list(self.items.values())
