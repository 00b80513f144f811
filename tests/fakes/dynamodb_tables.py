"""The operations on tables: create, describe, change, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcl_mld.errors import InUse, ServiceError
from tests.fakes.items import InvalidValue
from tests.fakes.tables import Table, names_of

if TYPE_CHECKING:
    from tests.fakes.dynamodb_model import DynamoDbModel


def create_table(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    name = request["TableName"]
    if name in model.tables:
        raise InUse("CreateTable", "ResourceInUseException", f"Table already exists: {name}")
    defined = {entry["AttributeName"] for entry in request["AttributeDefinitions"]}
    used = set(names_of(request["KeySchema"]))
    for index in request.get("GlobalSecondaryIndexes", ()):
        used |= set(names_of(index["KeySchema"]))
    if defined != used:
        raise InvalidValue("Number of attributes in KeySchema does not exactly match those defined")
    on_demand = request.get("BillingMode") == "PAY_PER_REQUEST"
    capacity = request.get("ProvisionedThroughput")
    if on_demand is (capacity is not None):
        raise InvalidValue(
            "ProvisionedThroughput goes with BillingMode PROVISIONED, only and always"
        )
    now_s = model.now()
    table = Table(
        name=name,
        arn=f"arn:aws:dynamodb:us-east-1:123456789012:table/{name}",
        key_schema=request["KeySchema"],
        attributes=request["AttributeDefinitions"],
        created_s=now_s,
        active_s=now_s + model.settings.create_s,
        on_demand=on_demand,
        capacity=capacity or {"ReadCapacityUnits": 0, "WriteCapacityUnits": 0},
        is_protected=request.get("DeletionProtectionEnabled", False),
        tags=list(request.get("Tags", ())),
        table_id=model.new_table_id(),
    )
    for index in request.get("GlobalSecondaryIndexes", ()):
        table.add_index(index, table.active_s)
    model.tables[name] = table
    return {"TableDescription": table.describe(now_s)}


def describe_table(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    return {"Table": model.table("DescribeTable", request, active=False).describe(model.now())}


def delete_table(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    table = model.table("DeleteTable", request)
    if table.is_protected:
        raise InvalidValue(
            "Resource cannot be deleted as it is currently protected against deletion. "
            "Disable deletion protection first."
        )
    del model.tables[table.name]
    return {"TableDescription": table.describe(model.now()) | {"TableStatus": "DELETING"}}


def update_table(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    table = model.table("UpdateTable", request)
    table.is_protected = request.get("DeletionProtectionEnabled", table.is_protected)
    if "BillingMode" in request:
        table.on_demand = request["BillingMode"] == "PAY_PER_REQUEST"
    now_s = model.now()
    for change in request.get("GlobalSecondaryIndexUpdates", ()):
        if "Create" in change:
            index = change["Create"]
            if index["IndexName"] in table.indexes:
                raise InvalidValue(f"Attempting to create an index which already exists: {index}")
            if any(now_s < other["active_s"] for other in table.indexes.values()):
                raise InUse("UpdateTable", "ResourceInUseException", "an index is being created")
            table.add_index(index, now_s + model.settings.create_s)
            table.attributes = request.get("AttributeDefinitions", table.attributes)
        elif "Delete" in change:
            table.indexes.pop(change["Delete"]["IndexName"], None)
    return {"TableDescription": table.describe(now_s)}


def update_continuous_backups(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    table = model.tables.get(request["TableName"])
    if table is None or model.now() < table.active_s:
        raise ServiceError(
            "UpdateContinuousBackups",
            "TableNotFoundException" if table is None else "ContinuousBackupsUnavailableException",
            f"Table not found or not active: {request['TableName']}",
        )
    wanted = request["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]
    table.has_backups = wanted
    state = "ENABLED" if wanted else "DISABLED"
    return {
        "ContinuousBackupsDescription": {
            "ContinuousBackupsStatus": "ENABLED",
            "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": state},
        }
    }


TABLE_OPERATIONS = {
    "CreateTable": create_table,
    "DeleteTable": delete_table,
    "DescribeTable": describe_table,
    "UpdateContinuousBackups": update_continuous_backups,
    "UpdateTable": update_table,
}
