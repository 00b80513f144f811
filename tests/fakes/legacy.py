"""The parameters that DynamoDB had before expressions: Expected and AttributeUpdates.

The Java library still writes leases with them, so recorded requests and a scripted Java-like
worker need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fakes.expressions import InvalidExpression, add_to, compare, delete_from
from tests.fakes.items import Item, checked_value

if TYPE_CHECKING:
    from collections.abc import Mapping

_OPERATORS = {"EQ": "=", "NE": "<>", "LE": "<=", "LT": "<", "GE": ">=", "GT": ">"}


def meets_expected(
    expected: Mapping[str, Mapping[str, Any]], item: Item, operator: str = "AND"
) -> bool:
    """Whether an item (``{}`` for one that does not exist) is as expected."""
    results = [_meets(item, name, wanted) for name, wanted in expected.items()]
    return all(results) if operator == "AND" else any(results)


def _meets(item: Item, name: str, wanted: Mapping[str, Any]) -> bool:
    found = item.get(name)
    if "ComparisonOperator" in wanted:
        operator = wanted["ComparisonOperator"]
        if operator in {"NULL", "NOT_NULL"}:
            return (found is None) is (operator == "NULL")
        if operator not in _OPERATORS:
            raise InvalidExpression(f"ComparisonOperator {operator} is not supported by this fake")
        (value,) = wanted["AttributeValueList"]
        return compare(_OPERATORS[operator], found, checked_value(value))
    if wanted.get("Exists", True):
        if "Value" not in wanted:
            raise InvalidExpression(
                "One or more parameter values were invalid: Value must be provided when Exists is "
                f"true for Attribute: {name}"
            )
        return compare("=", found, checked_value(wanted["Value"]))
    if "Value" in wanted:
        raise InvalidExpression(
            "One or more parameter values were invalid: Value cannot be used when Exists is false "
            f"for Attribute: {name}"
        )
    return found is None


def with_attribute_updates(updates: Mapping[str, Mapping[str, Any]], item: Item) -> Item:
    """The item after PUT, ADD and DELETE actions; PUT is the default."""
    new = dict(item)
    for name, update in updates.items():
        action = update.get("Action", "PUT")
        value = checked_value(update["Value"]) if "Value" in update else None
        if action == "DELETE":
            if value is None:
                new.pop(name, None)
            else:
                delete_from(new, name, value)
        elif value is None:
            raise InvalidExpression(f"Only DELETE action is allowed when no value is set: {name}")
        elif action == "ADD":
            add_to(new, name, value)
        elif action == "PUT":
            new[name] = value
        else:
            raise InvalidExpression(f"Unknown action {action}")
    return new
