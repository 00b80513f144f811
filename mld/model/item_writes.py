"""Conditional writes of items that are no leases: conditions and updates as requests.

Names always have placeholders: ``key``, the primary key of a table of 3.0 to 3.4, is a word of
DynamoDB's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.model.attributes import Item
    from mld.model.leases.table_layout import Place


def key_of(place: Place, key: str) -> dict[str, dict[str, str]]:
    """The primary key of an item."""
    return {place.key_name: {"S": key}}


def creation(place: Place, item: Item) -> dict[str, Any]:
    """A Put that happens only where no item has that key."""
    return {
        "TableName": place.table,
        "Item": dict(item),
        "ConditionExpression": "attribute_not_exists(#k)",
        "ExpressionAttributeNames": {"#k": place.key_name},
    }


def change(place: Place, key: str, attributes: Item, expected: Item) -> dict[str, Any]:
    """An Update of an item that has the expected attributes; its others stay."""
    request = {
        "TableName": place.table,
        "Key": key_of(place, key),
        **condition(place, expected),
    }
    return _with_sets(request, attributes)


def upsert(
    place: Place, key: str, attributes: Item, unless_other: tuple[str, str] | None = None
) -> dict[str, Any]:
    """An Update that makes the item where there is none.

    Args:
        unless_other: name and text of an attribute that an existing item must have.
    """
    request: dict[str, Any] = {"TableName": place.table, "Key": key_of(place, key)}
    if unless_other is not None:
        name, text = unless_other
        request |= {
            "ConditionExpression": "attribute_not_exists(#k) OR #c0 = :c0",
            "ExpressionAttributeNames": {"#k": place.key_name, "#c0": name},
            "ExpressionAttributeValues": {":c0": {"S": text}},
        }
    return _with_sets(request, attributes)


def deletion(place: Place, key: str, expected: Item) -> dict[str, Any]:
    """A Delete of an item that has the expected attributes."""
    return {"TableName": place.table, "Key": key_of(place, key), **condition(place, expected)}


def condition(place: Place, expected: Item) -> dict[str, Any]:
    """The part of a request that makes it happen only where the item is as expected.

    Args:
        place: names the primary key; the item has to exist.
        expected: attributes with their values.
    """
    names, values, terms = {"#k": place.key_name}, {}, ["attribute_exists(#k)"]
    for number, (name, value) in enumerate(expected.items()):
        names[f"#c{number}"], values[f":c{number}"] = name, value
        terms.append(f"#c{number} = :c{number}")
    return {
        "ConditionExpression": " AND ".join(terms),
        "ExpressionAttributeNames": names,
        **({"ExpressionAttributeValues": values} if values else {}),
    }


def _with_sets(request: dict[str, Any], attributes: Item) -> dict[str, Any]:
    names: dict[str, str] = {**request.get("ExpressionAttributeNames", {})}
    values: dict[str, Mapping[str, Any]] = {**request.get("ExpressionAttributeValues", {})}
    sets = []
    for number, (name, value) in enumerate(attributes.items()):
        names[f"#s{number}"], values[f":s{number}"] = name, value
        sets.append(f"#s{number} = :s{number}")
    return {
        **request,
        "UpdateExpression": "SET " + ", ".join(sets),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
