"""The operations that write one item, each under its condition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import ConditionFailed
from tests.fakes.dynamodb_requests import CONDITION_PARAMETERS, checked_key, only, scope_of
from tests.fakes.expressions import check_update, holds, updated
from tests.fakes.items import InvalidValue, Item, checked_item, copy_item
from tests.fakes.legacy import meets_expected, with_attribute_updates

if TYPE_CHECKING:
    from tests.fakes.dynamodb_model import DynamoDbModel
    from tests.fakes.tables import Key, Table


@dataclass(frozen=True)
class Effect:
    """What a write does once its condition was found to hold."""

    table: Table
    key: Key
    old: Item | None
    new: Item | None
    changed_names: tuple[str, ...] = ()


def put_effect(model: DynamoDbModel, operation: str, request: dict[str, Any]) -> Effect:
    table = model.table(operation, request)
    only(request, "TableName", "Item", "ReturnValues", *CONDITION_PARAMETERS)
    new = checked_item(request["Item"])
    key = checked_key(table, {n: new[n] for n in table.key_names if n in new})
    return Effect(table, key, _checked_old(operation, table, key, request), new)


def update_effect(model: DynamoDbModel, operation: str, request: dict[str, Any]) -> Effect:
    table = model.table(operation, request)
    only(
        request,
        *("TableName", "Key", "UpdateExpression", "AttributeUpdates", "ReturnValues"),
        *CONDITION_PARAMETERS,
    )
    key = checked_key(table, request["Key"])
    if "UpdateExpression" in request and "AttributeUpdates" in request:
        raise InvalidValue("Can not use both expression and non-expression parameters")
    old = _checked_old(operation, table, key, request)
    new = dict(old or table.key_item(key))
    names: list[str] = []
    if "UpdateExpression" in request:
        new, names = updated(request["UpdateExpression"], new, scope_of(request))
    elif updates := request.get("AttributeUpdates"):
        new, names = with_attribute_updates(updates, new), list(updates)
    for name in table.key_names:
        if name in names:
            raise InvalidValue(f"Cannot update attribute {name}. This attribute is part of the key")
    return Effect(table, key, old, new, tuple(names))


def delete_effect(model: DynamoDbModel, operation: str, request: dict[str, Any]) -> Effect:
    table = model.table(operation, request)
    only(request, "TableName", "Key", "ReturnValues", *CONDITION_PARAMETERS)
    key = checked_key(table, request["Key"])
    return Effect(table, key, _checked_old(operation, table, key, request), None)


def check_effect(model: DynamoDbModel, operation: str, request: dict[str, Any]) -> Effect:
    """Of a ConditionCheck in a transaction: nothing, if its condition holds."""
    effect = delete_effect(model, operation, request)
    return Effect(effect.table, effect.key, effect.old, effect.old)


def put_item(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    effect = put_effect(model, "PutItem", request)
    model.store("PutItem", effect.table, effect.key, effect.new, request)
    return _returned(request, effect.old, effect.new, allowed=("NONE", "ALL_OLD"))


def update_item(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    effect = update_effect(model, "UpdateItem", request)
    model.store("UpdateItem", effect.table, effect.key, effect.new, request)
    return _returned(request, effect.old, effect.new, names=effect.changed_names)


def delete_item(model: DynamoDbModel, request: dict[str, Any]) -> dict[str, Any]:
    effect = delete_effect(model, "DeleteItem", request)
    if effect.old is not None:
        model.store("DeleteItem", effect.table, effect.key, None, request)
    return _returned(request, effect.old, None, allowed=("NONE", "ALL_OLD"))


def _checked_old(operation: str, table: Table, key: Key, request: dict[str, Any]) -> Item | None:
    """The item as stored, after the request's condition was found to hold."""
    scope = scope_of(request)
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


def _returned(
    request: dict[str, Any],
    old: Item | None,
    new: Item | None,
    *,
    names: tuple[str, ...] = (),
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
        shown = {name: value for name, value in shown.items() if name in names}
    return {"Attributes": shown} if shown else {}


WRITES = {"DeleteItem": delete_item, "PutItem": put_item, "UpdateItem": update_item}
