"""Attribute values of DynamoDB: checking, normal form, order, size, copies."""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

Value = dict[str, Any]
Item = dict[str, Value]

SETS = {"SS", "NS", "BS"}
_NUMBERS = Context(prec=38, traps=[InvalidOperation, Inexact])


class InvalidValue(Exception):
    """A value that the service refuses with ValidationException."""


def number_text(text: object) -> str:
    """The number as DynamoDB gives it back: no exponent, no needless zeros."""
    if not isinstance(text, str):
        raise InvalidValue(f"N must be text, not {type(text).__name__}")
    if text.isdigit() and text.isascii() and len(text) <= 38 and text[0] != "0":
        return text
    try:
        number = _NUMBERS.create_decimal(text)
    except (InvalidOperation, Inexact):
        raise InvalidValue(
            f"The parameter cannot be converted to a numeric value: {text}"
        ) from None
    if not number.is_finite():
        raise InvalidValue(f"The parameter cannot be converted to a numeric value: {text}")
    if number == 0:
        return "0"
    normal = format(number, "f")
    return normal.rstrip("0").rstrip(".") if "." in normal else normal


def checked_value(value: object) -> Value:
    """A copy of an attribute value in normal form.

    Raises:
        InvalidValue: wrong shape, a set that is empty or has doubles, a number that is not text.
    """
    if not isinstance(value, dict) or len(value) != 1:
        raise InvalidValue(f"Supplied AttributeValue must contain exactly one type: {value!r}")
    ((kind, content),) = value.items()
    if kind in SETS:
        return {kind: _checked_set(kind, content)}
    if kind == "N":
        return {kind: number_text(content)}
    if kind == "L" and isinstance(content, list):
        return {kind: [checked_value(entry) for entry in content]}
    if kind == "M" and isinstance(content, dict):
        return {kind: checked_item(content)}
    plain = {"S": str, "B": bytes, "BOOL": bool, "NULL": bool}.get(kind)
    if plain is not None and isinstance(content, plain):
        return {kind: content}
    raise InvalidValue(f"Supplied AttributeValue has the wrong shape: {value!r}")


def _checked_set(kind: str, content: object) -> list[Any]:
    if not isinstance(content, list | tuple) or not content:
        raise InvalidValue("One or more parameter values were invalid: An set may not be empty")
    wanted = bytes if kind == "BS" else str
    if not all(isinstance(entry, wanted) for entry in content):
        raise InvalidValue(f"Supplied AttributeValue has the wrong shape: {kind} of {content!r}")
    entries = [number_text(entry) for entry in content] if kind == "NS" else list(content)
    if len(set(entries)) != len(entries):
        raise InvalidValue("Input collection contains duplicates")
    return sorted(entries)


def checked_item(item: object) -> Item:
    """A copy of an item in normal form."""
    if not isinstance(item, dict):
        raise InvalidValue(f"an item must be a map: {item!r}")
    return {name: checked_value(value) for name, value in item.items()}


def copy_item(item: Item) -> Item:
    """A copy that shares nothing that could be changed."""
    return {
        name: value.copy() if "S" in value or "N" in value else _copy_value(value)
        for name, value in item.items()
    }


def _copy_value(value: Value) -> Value:
    ((kind, content),) = value.items()
    if kind == "L":
        return {kind: [_copy_value(entry) for entry in content]}
    if kind == "M":
        return {kind: copy_item(content)}
    return {kind: list(content)} if kind in SETS else {kind: content}


def order_key(value: Value) -> Any:
    """What values of one type are compared by; None for types without an order."""
    ((kind, content),) = value.items()
    if kind == "N":
        return Decimal(content)
    if kind == "S":
        return content.encode()
    return content if kind == "B" else None


def item_size(item: Item) -> int:
    """About the bytes that the service counts for an item."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: Value) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "B":
            return len(content)
        case "N":
            return len(content) // 2 + 2
        case "M":
            return 3 + item_size(content)
        case "L":
            return 3 + sum(1 + _value_size(entry) for entry in content)
        case _:
            return sum(map(len, content)) if kind in SETS else 1
