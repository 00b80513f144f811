"""What a request says: parameters that are known, keys, placeholders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fakes.expressions import Scope
from tests.fakes.items import InvalidValue, checked_item

if TYPE_CHECKING:
    from tests.fakes.tables import Key, Table

CONDITION_PARAMETERS = (
    "ConditionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "Expected",
    "ConditionalOperator",
    "ReturnValuesOnConditionCheckFailure",
)


def only(request: dict[str, Any], *known: str) -> None:
    """Refuse parameters that this fake would ignore."""
    if all(name in known for name in request):
        return
    if unknown := sorted(request.keys() - set(known) - {"ReturnConsumedCapacity"}):
        raise InvalidValue(f"parameters not supported by this fake: {unknown}")


def scope_of(request: dict[str, Any]) -> Scope:
    """What the placeholders of its expressions stand for."""
    values = checked_item(request.get("ExpressionAttributeValues", {}))
    return Scope(request.get("ExpressionAttributeNames", {}), values)


def checked_key(table: Table, key: object, *, others_allowed: bool = False) -> Key:
    """A primary key as a tuple; ``others_allowed`` where the key of an index goes with it."""
    item = checked_item(key)
    names = table.key_names
    is_complete = all(name in item for name in names)
    if not is_complete or (len(item) != len(names) and not others_allowed):
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
