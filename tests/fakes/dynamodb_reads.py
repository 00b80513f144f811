"""The operations that read: one item, a scan, a query of an index; page by page, maybe old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fakes.dynamodb_requests import checked_key, only, scope_of
from tests.fakes.expressions import check_condition, holds
from tests.fakes.items import InvalidValue, Item, copy_item, item_size, order_key
from tests.fakes.tables import Key, Table, key_hash, names_of

if TYPE_CHECKING:
    from tests.fakes.dynamodb_model import DynamoDbModel

_PAGE_BYTES = 1024 * 1024


def get_item(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    table = model.table("GetItem", request)
    only(request, "TableName", "Key", "ConsistentRead")
    item = _read(model, table, checked_key(table, request["Key"]), request)
    return {} if item is None else {"Item": copy_item(item)}


def _read(model: DynamoDbModel, table: Table, key: Key, request: dict[str, Any]) -> Item | None:
    settings = model.settings
    if (
        request.get("ConsistentRead")
        or settings.max_lag_s <= 0
        or model.rng.random() >= settings.stale_probability
    ):
        return table.items.get(key)
    return table.as_of(key, model.now() - model.rng.uniform(0, settings.max_lag_s))


def scan(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    table = model.table("Scan", request)
    only(
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
    stale = model.settings.max_lag_s > 0 and not request.get("ConsistentRead")
    keys = [
        key
        for key in table.scan_order(with_history=stale)
        if total == 1 or key_hash(key) % total == segment
    ]
    return _page(model, table, keys, request, condition=None)


def query(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    table = model.table("Query", request)
    key_names, index = table.key_names, None
    if "IndexName" in request:
        index = table.indexes.get(request["IndexName"])
        if index is None or model.now() < index["active_s"]:
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
    answer = _page(model, table, keys, request, condition=request["KeyConditionExpression"])
    if index is not None and index["Projection"]["ProjectionType"] == "KEYS_ONLY":
        shown = {*key_names, *table.key_names}
        answer["Items"] = [
            {name: value for name, value in item.items() if name in shown}
            for item in answer["Items"]
        ]
    return answer


def _page(
    model: DynamoDbModel,
    table: Table,
    keys: list[Key],
    request: dict[str, Any],
    condition: str | None,
) -> dict[str, Any]:
    """Items of ``keys`` that pass; ``condition`` selects before, a filter after counting."""
    scope = scope_of(request)
    for text in (condition, request.get("FilterExpression")):
        if text is not None:
            check_condition(text, scope)
    scope.check_all_used()
    if start := request.get("ExclusiveStartKey"):
        keys = _after(keys, checked_key(table, start, others_allowed=condition is not None))
    limit = min(request.get("Limit", 1 << 30), model.settings.page_items or 1 << 30)
    if limit < 1:
        raise InvalidValue("Limit must be at least 1")
    found: list[Item] = []
    looked_at = size = 0
    last: Key | None = None
    for index, key in enumerate(keys):
        item = _read(model, table, key, request)
        if item is not None and (condition is None or holds(condition, item, scope)):
            looked_at += 1
            size += item_size(item)
            if "FilterExpression" not in request or holds(request["FilterExpression"], item, scope):
                found.append(copy_item(item))
        if (looked_at >= limit or size >= _PAGE_BYTES) and index + 1 < len(keys):
            last = key
            break
    answer: dict[str, Any] = {"Items": found, "Count": len(found), "ScannedCount": looked_at}
    if last is not None:
        answer["LastEvaluatedKey"] = table.key_item(last)
    return answer


def _after(keys: list[Key], start: Key) -> list[Key]:
    """Keys behind ``start``, which may itself be gone: then those of higher place."""
    if start in keys:
        return keys[keys.index(start) + 1 :]
    place = key_hash(start)
    return [key for key in keys if key_hash(key) > place]


READS = {"GetItem": get_item, "Query": query, "Scan": scan}
