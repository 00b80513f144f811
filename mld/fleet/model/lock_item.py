"""The leader lock: the item ``Leader``, in the format of the DynamoDB lock client.

Source: LeaderLock, DynamoDBLockBasedLeaderDecider (3.5.1), AmazonDynamoDBLockClient 1.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.config.reserved_keys import LEADER_KEY
from kcl_mld.errors import MalformedData
from kcl_mld.leases.model.table_item import ENTITY_TYPE, Entity, required, text_of

if TYPE_CHECKING:
    from kcl_mld.leases.model.table_item import Item

OWNER_NAME = "ownerName"
RECORD_VERSION = "recordVersionNumber"
LEASE_DURATION = "leaseDuration"
IS_RELEASED = "isReleased"
#: Attributes of ours: another value whenever the owner has assigned leases, and whenever a worker
#: wants the leader to read the table. Java workers ignore both.
ASSIGNED = "kclMldAssigned"
CALLED = "kclMldCalled"


@dataclass(frozen=True, slots=True)
class LockItem:
    """Who leads.

    Attributes:
        duration_s: an observer may take the lock when it has seen the same ``record_version`` for
            longer than this, on its own monotonic clock. Stored as text, in milliseconds.
        record_version: new at every acquisition and heartbeat.
        is_released: given up without being deleted; free to take.
        assigned: another text whenever the owner has assigned leases; None = it doesn't say so: a
            Java worker, or one of an older version.
        called: another text whenever a worker wants the leader to read the table; None = none has.
    """

    owner: str
    duration_s: float
    record_version: str
    is_released: bool = False
    assigned: str | None = None
    called: str | None = None


def lock_from_item(item: Item) -> LockItem:
    """Read the item.

    Raises:
        MalformedData: an attribute is missing, or the duration is not a text of digits.
    """
    duration = required(text_of(item, LEASE_DURATION), LEASE_DURATION)
    if not (duration.isascii() and duration.isdigit()):
        raise MalformedData(f"{LEASE_DURATION} is {duration!r}, not milliseconds")
    owner = required(text_of(item, OWNER_NAME), OWNER_NAME)
    # A worker that takes the lock in place keeps the attributes of the owner before.
    assigned = text_of(item, ASSIGNED) or ""
    return LockItem(
        owner=owner,
        duration_s=int(duration) / 1000,
        record_version=required(text_of(item, RECORD_VERSION), RECORD_VERSION),
        is_released=text_of(item, IS_RELEASED) == "1",
        assigned=assigned.removesuffix(f" {owner}") if assigned.endswith(f" {owner}") else None,
        called=text_of(item, CALLED),
    )


def heartbeat_attributes(lock: LockItem) -> dict[str, dict[str, Any]]:
    """What a heartbeat sets."""
    attributes = {
        LEASE_DURATION: {"S": str(round(lock.duration_s * 1000))},
        RECORD_VERSION: {"S": lock.record_version},
    }
    if lock.assigned is not None:
        attributes[ASSIGNED] = {"S": f"{lock.assigned} {lock.owner}"}
    return attributes


def lock_to_item(lock: LockItem, key_name: str) -> dict[str, dict[str, Any]]:
    """The complete item.

    Args:
        lock: as it is to be; a released one can't be written, it is deleted.
        key_name: ``leaseKey`` or ``key``.
    """
    return {
        key_name: {"S": LEADER_KEY},
        ENTITY_TYPE: {"S": Entity.LEADER.value},
        OWNER_NAME: {"S": lock.owner},
        **heartbeat_attributes(lock),
    }
