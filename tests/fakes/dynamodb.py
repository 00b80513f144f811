"""DynamoDB as far as the daemon, a Java-like peer and their judges use it.

:class:`DynamoDbModel` holds the tables, :class:`FakeDynamoDb` puts it behind the port; several of
the latter may share one model, one per worker. Errors are those of ``mld.errors``. The service's
own checks are kept where a mistake of the daemon could trip over them: types, keys, empty sets,
unused placeholders.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mld.errors import ConditionFailed, InUse, NotFound, ServiceError
from tests.fakes.expressions import (
    InvalidExpression,
    Scope,
    check_condition,
    check_update,
    holds,
    updated,
)
from tests.fakes.items import (
    InvalidValue,
    Item,
    checked_item,
    copy_item,
    item_size,
    order_key,
)
from tests.fakes.legacy import meets_expected, with_attribute_updates
from tests.fakes.tables import Key, Table, key_hash, names_of

#: Called with service, operation and request; may wait or raise an error of ``mld.errors``.
Hook = Callable[[str, str, Mapping[str, Any]], Awaitable[None]]

_PAGE_BYTES = 1024 * 1024
_NO_TABLE = "Requested resource not found"


@dataclass(frozen=True)
class Write:
    """One item changed: what a judge of the table sees."""

    time_s: float
    operation: str
    table: str
    before: Item | None
    after: Item | None
    request: Mapping[str, Any]


@dataclass(kw_only=True)
class DynamoDbSettings:
    """How the model behaves where the service leaves room.

    Attributes:
        create_s: seconds for which a new table or index is CREATING.
        max_lag_s: how old an eventually consistent read may be.
        stale_probability: 0 to 1; how often such a read is old at all.
        page_items: most items that a page of Scan or Query looks at, besides 1 MB.
    """

    create_s: float = 0.0
    max_lag_s: float = 0.0
    stale_probability: float = 0.0
    page_items: int | None = None


class DynamoDbModel:
    """Tables of one account in one region.

    Args:
        clock: epoch seconds.
        rng: decides which eventually consistent reads are old.
        settings: behavior; its fields may be changed at any time.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        rng: random.Random | None = None,
        settings: DynamoDbSettings | None = None,
    ) -> None:
        self.tables: dict[str, Table] = {}
        self.settings = settings or DynamoDbSettings()
        #: Called after every change of an item.
        self.observers: list[Callable[[Write], None]] = []
        self._clock = clock
        self._rng = rng or random.Random(0)
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "CreateTable": self._create_table,
            "DeleteItem": self._delete_item,
            "DeleteTable": self._delete_table,
            "DescribeTable": self._describe_table,
            "GetItem": self._get_item,
            "PutItem": self._put_item,
            "Query": self._query,
            "Scan": self._scan,
            "UpdateContinuousBackups": self._update_continuous_backups,
            "UpdateItem": self._update_item,
            "UpdateTable": self._update_table,
        }

    def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an operation.

        Raises:
            ConditionFailed: the item is not as the condition wants it.
            NotFound: no such table, or it is still being created.
            InUse: the table or index exists already or is busy.
            ServiceError: ``ValidationException`` for a request that the service refuses.
        """
        try:
            return self._operations[operation](dict(request))
        except (InvalidValue, InvalidExpression) as error:
            raise ServiceError(operation, "ValidationException", str(error)) from error

    def items(self, table: str) -> list[Item]:
        """All items of a table in order of their keys, for judges and tests."""
        found = self.tables[table]
        return [copy_item(found.items[key]) for key in sorted(found.items)]

    # --- tables -----------------------------------------------------------------------------

    def _create_table(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["TableName"]
        if name in self.tables:
            raise InUse("CreateTable", "ResourceInUseException", f"Table already exists: {name}")
        defined = {entry["AttributeName"] for entry in request["AttributeDefinitions"]}
        used = set(names_of(request["KeySchema"]))
        for index in request.get("GlobalSecondaryIndexes", ()):
            used |= set(names_of(index["KeySchema"]))
        if defined != used:
            raise InvalidValue(
                "Number of attributes in KeySchema does not exactly match those defined"
            )
        on_demand = request.get("BillingMode") == "PAY_PER_REQUEST"
        capacity = request.get("ProvisionedThroughput")
        if on_demand is (capacity is not None):
            raise InvalidValue(
                "ProvisionedThroughput goes with BillingMode PROVISIONED, only and always"
            )
        now_s = self._clock()
        table = Table(
            name=name,
            arn=f"arn:aws:dynamodb:us-east-1:123456789012:table/{name}",
            key_schema=request["KeySchema"],
            attributes=request["AttributeDefinitions"],
            created_s=now_s,
            active_s=now_s + self.settings.create_s,
            on_demand=on_demand,
            capacity=capacity or {"ReadCapacityUnits": 0, "WriteCapacityUnits": 0},
            is_protected=request.get("DeletionProtectionEnabled", False),
            tags=list(request.get("Tags", ())),
        )
        for index in request.get("GlobalSecondaryIndexes", ()):
            table.add_index(index, table.active_s)
        self.tables[name] = table
        return {"TableDescription": table.describe(now_s)}

    def _describe_table(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            "Table": self._table("DescribeTable", request, active=False).describe(self._clock())
        }

    def _delete_table(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self._table("DeleteTable", request)
        if table.is_protected:
            raise InvalidValue(
                "Resource cannot be deleted as it is currently protected against deletion. "
                "Disable deletion protection first."
            )
        del self.tables[table.name]
        return {"TableDescription": table.describe(self._clock()) | {"TableStatus": "DELETING"}}

    def _update_table(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self._table("UpdateTable", request)
        table.is_protected = request.get("DeletionProtectionEnabled", table.is_protected)
        if "BillingMode" in request:
            table.on_demand = request["BillingMode"] == "PAY_PER_REQUEST"
        now_s = self._clock()
        for change in request.get("GlobalSecondaryIndexUpdates", ()):
            if "Create" in change:
                index = change["Create"]
                if index["IndexName"] in table.indexes:
                    raise InvalidValue(
                        f"Attempting to create an index which already exists: {index}"
                    )
                if any(now_s < other["active_s"] for other in table.indexes.values()):
                    raise InUse(
                        "UpdateTable", "ResourceInUseException", "an index is being created"
                    )
                table.add_index(index, now_s + self.settings.create_s)
                table.attributes = request.get("AttributeDefinitions", table.attributes)
            elif "Delete" in change:
                table.indexes.pop(change["Delete"]["IndexName"], None)
        return {"TableDescription": table.describe(now_s)}

    def _update_continuous_backups(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self.tables.get(request["TableName"])
        if table is None or self._clock() < table.active_s:
            raise ServiceError(
                "UpdateContinuousBackups",
                "TableNotFoundException"
                if table is None
                else "ContinuousBackupsUnavailableException",
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

    def _table(self, operation: str, request: dict[str, Any], *, active: bool = True) -> Table:
        table = self.tables.get(request["TableName"])
        if table is None or (active and self._clock() < table.active_s):
            raise NotFound(operation, "ResourceNotFoundException", _NO_TABLE)
        return table

    # --- reads ------------------------------------------------------------------------------

    def _get_item(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self._table("GetItem", request)
        _only(request, "TableName", "Key", "ConsistentRead")
        item = self._read(table, _checked_key(table, request["Key"]), request)
        return {} if item is None else {"Item": copy_item(item)}

    def _read(self, table: Table, key: Key, request: dict[str, Any]) -> Item | None:
        settings = self.settings
        if (
            request.get("ConsistentRead")
            or settings.max_lag_s <= 0
            or self._rng.random() >= settings.stale_probability
        ):
            return table.items.get(key)
        return table.as_of(key, self._clock() - self._rng.uniform(0, settings.max_lag_s))

    def _scan(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self._table("Scan", request)
        _only(
            request,
            *("TableName", "Segment", "TotalSegments", "Limit", "FilterExpression"),
            *("ExpressionAttributeNames", "ExpressionAttributeValues", "ExclusiveStartKey"),
            *("ConsistentRead", "IndexName"),
        )
        if ("Segment" in request) != ("TotalSegments" in request):
            raise InvalidValue("Segment and TotalSegments go together")
        total, segment = request.get("TotalSegments", 1), request.get("Segment", 0)
        if not 0 <= segment < total:
            raise InvalidValue("Segment must be below TotalSegments")
        stale = self.settings.max_lag_s > 0 and not request.get("ConsistentRead")
        keys = [
            key
            for key in table.scan_order(with_history=stale)
            if total == 1 or key_hash(key) % total == segment
        ]
        return self._page(table, keys, request, condition=None)

    def _query(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self._table("Query", request)
        key_names, index = table.key_names, None
        if "IndexName" in request:
            index = table.indexes.get(request["IndexName"])
            if index is None or self._clock() < index["active_s"]:
                raise InvalidValue(
                    "The table does not have the specified index: " + request["IndexName"]
                )
            key_names = names_of(index["KeySchema"])
        keys = [
            key
            for key in table.scan_order(with_history=False)
            if all(name in table.items[key] for name in key_names)
        ]
        if len(key_names) > 1:
            keys.sort(key=lambda key: order_key(table.items[key][key_names[1]]))
        answer = self._page(table, keys, request, condition=request["KeyConditionExpression"])
        if index is not None and index["Projection"]["ProjectionType"] == "KEYS_ONLY":
            shown = {*key_names, *table.key_names}
            answer["Items"] = [
                {name: value for name, value in item.items() if name in shown}
                for item in answer["Items"]
            ]
        return answer

    def _page(
        self, table: Table, keys: list[Key], request: dict[str, Any], condition: str | None
    ) -> dict[str, Any]:
        """Items of ``keys`` that pass; ``condition`` selects before, a filter after counting."""
        scope = _scope(request)
        for text in (condition, request.get("FilterExpression")):
            if text is not None:
                check_condition(text, scope)
        scope.check_all_used()
        if start := request.get("ExclusiveStartKey"):
            keys = _after(keys, _checked_key(table, start, others_allowed=condition is not None))
        limit = min(request.get("Limit", 1 << 30), self.settings.page_items or 1 << 30)
        if limit < 1:
            raise InvalidValue("Limit must be at least 1")
        found: list[Item] = []
        looked_at = size = 0
        last: Key | None = None
        for index, key in enumerate(keys):
            item = self._read(table, key, request)
            if item is not None and (condition is None or holds(condition, item, scope)):
                looked_at += 1
                size += item_size(item)
                if "FilterExpression" not in request or holds(
                    request["FilterExpression"], item, scope
                ):
                    found.append(copy_item(item))
            if (looked_at >= limit or size >= _PAGE_BYTES) and index + 1 < len(keys):
                last = key
                break
        answer: dict[str, Any] = {"Items": found, "Count": len(found), "ScannedCount": looked_at}
        if last is not None:
            answer["LastEvaluatedKey"] = table.key_item(last)
        return answer

    # --- writes -----------------------------------------------------------------------------

    def _put_item(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self._table("PutItem", request)
        _only(request, "TableName", "Item", "ReturnValues", *_CONDITION_PARAMETERS)
        new = checked_item(request["Item"])
        key = _checked_key(table, {n: new[n] for n in table.key_names if n in new})
        old = self._checked_old("PutItem", table, key, request)
        self._store("PutItem", table, key, new, request)
        return _returned(request, old, new, allowed=("NONE", "ALL_OLD"))

    def _update_item(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self._table("UpdateItem", request)
        _only(
            request,
            *("TableName", "Key", "UpdateExpression", "AttributeUpdates", "ReturnValues"),
            *_CONDITION_PARAMETERS,
        )
        key = _checked_key(table, request["Key"])
        if "UpdateExpression" in request and "AttributeUpdates" in request:
            raise InvalidValue("Can not use both expression and non-expression parameters")
        old = self._checked_old("UpdateItem", table, key, request)
        new = dict(old or table.key_item(key))
        names: list[str] = []
        if "UpdateExpression" in request:
            new, names = updated(request["UpdateExpression"], new, _scope(request))
        elif updates := request.get("AttributeUpdates"):
            new, names = with_attribute_updates(updates, new), list(updates)
        for name in table.key_names:
            if name in names:
                raise InvalidValue(
                    f"Cannot update attribute {name}. This attribute is part of the key"
                )
        self._store("UpdateItem", table, key, new, request)
        return _returned(request, old, new, names=names)

    def _delete_item(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self._table("DeleteItem", request)
        _only(request, "TableName", "Key", "ReturnValues", *_CONDITION_PARAMETERS)
        key = _checked_key(table, request["Key"])
        old = self._checked_old("DeleteItem", table, key, request)
        if old is not None:
            self._store("DeleteItem", table, key, None, request)
        return _returned(request, old, None, allowed=("NONE", "ALL_OLD"))

    def _checked_old(
        self, operation: str, table: Table, key: Key, request: dict[str, Any]
    ) -> Item | None:
        """The item as stored, after the request's condition was found to hold."""
        scope = _scope(request)
        old = table.items.get(key)
        expression, expected = request.get("ConditionExpression"), request.get("Expected")
        if expected is not None and (expression is not None or "UpdateExpression" in request):
            raise InvalidValue("Can not use both expression and non-expression parameters")
        met = True
        if expression is not None:
            met = holds(expression, old or {}, scope)
        elif expected is not None:
            met = meets_expected(expected, old or {}, request.get("ConditionalOperator", "AND"))
        if "UpdateExpression" in request:
            # Parsed before the verdict: the service refuses a bad update whatever the condition.
            check_update(request["UpdateExpression"], scope)
        scope.check_all_used()
        if not met:
            wanted = request.get("ReturnValuesOnConditionCheckFailure", "NONE") == "ALL_OLD"
            shown = copy_item(old) if wanted and old is not None else None
            raise ConditionFailed(operation, "The conditional request failed", shown)
        return old

    def _store(
        self, operation: str, table: Table, key: Key, new: Item | None, request: dict[str, Any]
    ) -> None:
        before = table.items.get(key)
        now_s = self._clock()
        table.store(key, new, now_s, self.settings.max_lag_s)
        if self.observers:
            write = Write(now_s, operation, table.name, before, new, request)
            for observer in self.observers:
                observer(write)


_CONDITION_PARAMETERS = (
    "ConditionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "Expected",
    "ConditionalOperator",
    "ReturnValuesOnConditionCheckFailure",
)


def _only(request: dict[str, Any], *known: str) -> None:
    """Refuse parameters that this fake would ignore."""
    if unknown := sorted(request.keys() - set(known) - {"ReturnConsumedCapacity"}):
        raise InvalidValue(f"parameters not supported by this fake: {unknown}")


def _scope(request: dict[str, Any]) -> Scope:
    values = checked_item(request.get("ExpressionAttributeValues", {}))
    return Scope(request.get("ExpressionAttributeNames", {}), values)


def _checked_key(table: Table, key: object, *, others_allowed: bool = False) -> Key:
    item = checked_item(key)
    names = table.key_names
    if not set(names) <= item.keys() or (item.keys() != set(names) and not others_allowed):
        raise InvalidValue("The provided key element does not match the schema")
    types = {entry["AttributeName"]: entry["AttributeType"] for entry in table.attributes}
    for name in names:
        if types[name] not in item[name]:
            raise InvalidValue("The provided key element does not match the schema")
        if item[name][types[name]] in {"", b""}:
            raise InvalidValue(
                f"The AttributeValue for a key attribute cannot contain an empty string value. Key: {name}"
            )
    return table.key_of(item)


def _after(keys: list[Key], start: Key) -> list[Key]:
    """Keys behind ``start``, which may itself be gone: then those of higher place."""
    if start in keys:
        return keys[keys.index(start) + 1 :]
    place = key_hash(start)
    return [key for key in keys if key_hash(key) > place]


def _returned(
    request: dict[str, Any],
    old: Item | None,
    new: Item | None,
    *,
    names: list[str] | None = None,
    allowed: tuple[str, ...] = ("NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"),
) -> dict[str, Any]:
    wanted = request.get("ReturnValues", "NONE")
    if wanted not in allowed:
        raise InvalidValue(f"ReturnValues can only be one of {allowed}")
    source = old if wanted.endswith("OLD") else new
    if wanted == "NONE" or source is None:
        return {}
    shown = copy_item(source)
    if wanted.startswith("UPDATED"):
        shown = {name: value for name, value in shown.items() if name in (names or ())}
    return {"Attributes": shown} if shown else {}


class FakeDynamoDb:
    """:class:`mld.ports.aws.DynamoDb` over a :class:`DynamoDbModel`.

    Args:
        model: shared by all workers of a test.
        before: awaited before the effect: raise to lose the request, wait to slow it down.
        after: awaited after the effect, also when the answer is an error: raise to lose the
            answer.
    """

    def __init__(
        self, model: DynamoDbModel, *, before: Hook | None = None, after: Hook | None = None
    ) -> None:
        self.model = model
        self.before = before
        self.after = after

    async def describe_table(self, **request: Any) -> dict[str, Any]:
        answer = await self._call("DescribeTable", request)
        return {"Table": _with_datetime(answer["Table"])}

    async def create_table(self, **request: Any) -> dict[str, Any]:
        answer = await self._call("CreateTable", request)
        return {"TableDescription": _with_datetime(answer["TableDescription"])}

    async def update_table(self, **request: Any) -> dict[str, Any]:
        answer = await self._call("UpdateTable", request)
        return {"TableDescription": _with_datetime(answer["TableDescription"])}

    async def delete_table(self, **request: Any) -> dict[str, Any]:
        answer = await self._call("DeleteTable", request)
        return {"TableDescription": _with_datetime(answer["TableDescription"])}

    async def update_continuous_backups(self, **request: Any) -> dict[str, Any]:
        return await self._call("UpdateContinuousBackups", request)

    async def get_item(self, **request: Any) -> dict[str, Any]:
        return await self._call("GetItem", request)

    async def put_item(self, **request: Any) -> dict[str, Any]:
        return await self._call("PutItem", request)

    async def update_item(self, **request: Any) -> dict[str, Any]:
        return await self._call("UpdateItem", request)

    async def delete_item(self, **request: Any) -> dict[str, Any]:
        return await self._call("DeleteItem", request)

    async def scan(self, **request: Any) -> dict[str, Any]:
        return await self._call("Scan", request)

    async def query(self, **request: Any) -> dict[str, Any]:
        return await self._call("Query", request)

    async def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        if self.before is not None:
            await self.before("dynamodb", operation, request)
        try:
            answer: dict[str, Any] | ServiceError = self.model.call(operation, request)
        except ServiceError as error:
            answer = error
        if self.after is not None:
            await self.after("dynamodb", operation, request)
        if isinstance(answer, ServiceError):
            raise answer
        return answer


def _with_datetime(table: dict[str, Any]) -> dict[str, Any]:
    """Creation time as botocore gives it."""
    return {**table, "CreationDateTime": datetime.fromtimestamp(table["CreationDateTime"], UTC)}
