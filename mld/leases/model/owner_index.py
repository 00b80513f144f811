"""The index of the lease table that finds the leases of a worker of a 3.x fleet.

Source: DynamoDBLeaseRefresher.createLeaseOwnerToLeaseKeyIndexIfNotExists (3.5.1).
"""

from __future__ import annotations

from typing import Any

from kcl_mld.leases.model.lease_item import LEASE_KEY

#: Name of the index; items without ``leaseOwner`` are not in it.
LEASE_OWNER_INDEX = "LeaseOwnerToLeaseKeyIndex"
LEASE_OWNER = "leaseOwner"


def index_creation(table: dict[str, Any]) -> dict[str, Any]:
    """The UpdateTable request, without ``TableName``, that creates the index.

    Args:
        table: as DescribeTable returns it; an index of a provisioned table gets its capacity.
    """
    creation: dict[str, Any] = {
        "IndexName": LEASE_OWNER_INDEX,
        "KeySchema": [
            {"AttributeName": LEASE_OWNER, "KeyType": "HASH"},
            {"AttributeName": LEASE_KEY, "KeyType": "RANGE"},
        ],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    if table.get("BillingModeSummary", {}).get("BillingMode") != "PAY_PER_REQUEST":
        # If the server returns neither, let the server decide whether the index needs capacity.
        capacity = table.get("ProvisionedThroughput", {})
        if capacity:
            creation["ProvisionedThroughput"] = {
                name: capacity[name] for name in ("ReadCapacityUnits", "WriteCapacityUnits")
            }
    return {
        "AttributeDefinitions": [
            {"AttributeName": LEASE_OWNER, "AttributeType": "S"},
            {"AttributeName": LEASE_KEY, "AttributeType": "S"},
        ],
        "GlobalSecondaryIndexUpdates": [{"Create": creation}],
    }


def index_status(table: dict[str, Any]) -> str | None:
    """``CREATING``, ``ACTIVE``, ... of the index in an answer of DescribeTable; None = no index."""
    for index in table.get("GlobalSecondaryIndexes", ()):
        if index["IndexName"] == LEASE_OWNER_INDEX:
            return str(index.get("IndexStatus", "ACTIVE"))
    return None


def my_leases_query(worker_id: str) -> dict[str, Any]:
    """The Query, without ``TableName``, for the keys of the leases that name a worker."""
    return {
        "IndexName": LEASE_OWNER_INDEX,
        "KeyConditionExpression": f"{LEASE_OWNER} = :owner",
        "ExpressionAttributeValues": {":owner": {"S": worker_id}},
    }
