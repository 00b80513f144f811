"""The operations that read: one item, a scan, a query of an index; page by page, maybe old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fakes.dynamodb_requests import checked_key, only, scope_of
from tests.fakes.expressions import check_condition, holds
from tests.fakes.items import InvalidValue, Item, copy_item, item_size, order_key
from tests.fakes.tables import Key, Table, key_hash, names_of

if TYPE_CHECKING:
    from collections.abc import Callable

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
    return _page(model, table, keys, request, None, lambda key: _read(model, table, key, request))


def query(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    table = model.table("Query", request)
    index = _index(model, table, request)
    key_names = table.key_names if index is None else names_of(index["KeySchema"])
    rows = _rows(model, table, key_names, request)
    keys = list(rows)
    if len(key_names) > 1:
        place = {key: order_key(row[key_names[1]]) for key, row in rows.items()}
        keys.sort(key=place.__getitem__)
        if start := request.pop("ExclusiveStartKey", None):
            checked_key(table, start, others_allowed=True)
            keys = [key for key in keys if place[key] > order_key(start[key_names[1]])]
    answer = _page(model, table, keys, request, request["KeyConditionExpression"], rows.get)
    shown = {*key_names, *table.key_names}
    if last := answer.get("LastEvaluatedKey"):
        row = rows[table.key_of(last)]
        answer["LastEvaluatedKey"] = {name: row[name] for name in shown}
    if index is not None and index["Projection"]["ProjectionType"] == "KEYS_ONLY":
        answer["Items"] = [
            {name: value for name, value in item.items() if name in shown}
            for item in answer["Items"]
        ]
    return answer


def _index(model: DynamoDbModel, table: Table, request: dict[str, Any]) -> dict[str, Any] | None:
    """The index that a query names, filled; None = it asks the table."""
    name = request.get("IndexName")
    if name is None:
        return None
    index = table.indexes.get(name)
    if index is None:
        raise InvalidValue(f"The table does not have the specified index: {name}")
    if model.now() < index["active_s"]:
        raise InvalidValue(f"Cannot read from backfilling global secondary index: {name}")
    if request.get("ConsistentRead"):
        raise InvalidValue("Consistent reads are not supported on global secondary indexes")
    return index


def _rows(
    model: DynamoDbModel, table: Table, key_names: tuple[str, ...], request: dict[str, Any]
) -> dict[Key, Item]:
    """What an index holds, each item as of now or a while ago: it follows the table."""
    stale = model.settings.max_lag_s > 0 and not request.get("ConsistentRead")
    found = {key: _read(model, table, key, request) for key in table.scan_order(with_history=stale)}
    return {
        key: item
        for key, item in found.items()
        if item is not None and all(name in item for name in key_names)
    }


def _page(
    model: DynamoDbModel,
    table: Table,
    keys: list[Key],
    request: dict[str, Any],
    condition: str | None,
    read: Callable[[Key], Item | None],
) -> dict[str, Any]:
    """Items of ``keys`` that pass; ``condition`` selects before, a filter after counting."""
    scope = scope_of(request)
    filtering = request.get("FilterExpression")
    for text in (condition, filtering):
        if text is not None:
            check_condition(text, scope)
    scope.check_all_used()
    if start := request.get("ExclusiveStartKey"):
        keys = _after(keys, checked_key(table, start, others_allowed=condition is not None))
    limit = min(request.get("Limit", 1 << 30), model.settings.page_items or 1 << 30)
    if limit < 1:
        raise InvalidValue("Limit must be at least 1")
    found: list[Item] = []
    # The size of all is only told where it could matter.
    may_be_full = len(keys) * table.largest_bytes >= _PAGE_BYTES
    looked_at = size = 0
    last: Key | None = None
    for index, key in enumerate(keys):
        item = read(key)
        if item is not None and (condition is None or holds(condition, item, scope)):
            looked_at += 1
            size += item_size(item) if may_be_full else 0
            if filtering is None or holds(filtering, item, scope):
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
