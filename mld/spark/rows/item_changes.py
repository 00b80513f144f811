"""A change of a DynamoDB table -> its kind, and its key and images as plain JSON text.

Plain JSON has no types of DynamoDB: numbers stand with the digits that they came with, binary
values as base64, sets as arrays. It is made here and not by Spark, whose functions convert no
values that nest to any depth.

Source: the API reference of DynamoDB, AttributeValue and StreamRecord.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeAlias

import msgspec

#: Of a change; text, null where the change does not have it. All are null for data that is none.
CHANGE_COLUMNS = ("event_name", "keys", "new_image", "old_image")
#: Those of them that are JSON text.
IMAGE_COLUMNS = CHANGE_COLUMNS[1:]

#: As JSON has numbers.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_Image: TypeAlias = dict[str, dict[str, Any]]


class _Images(msgspec.Struct, gc=False):
    keys: _Image | None = msgspec.field(name="Keys", default=None)
    new: _Image | None = msgspec.field(name="NewImage", default=None)
    old: _Image | None = msgspec.field(name="OldImage", default=None)


class _Record(msgspec.Struct, gc=False):
    name: str = msgspec.field(name="eventName")
    images: _Images = msgspec.field(name="dynamodb")


_RECORD = msgspec.json.Decoder(_Record)
_encode = msgspec.json.Encoder().encode


class ItemChange(NamedTuple):
    """A change, or four times None: the data is none.

    Attributes:
        event_name: INSERT, MODIFY or REMOVE.
        keys: one JSON object, as the images; None = the change does not have it.
    """

    event_name: str | None
    keys: bytes | None
    new_image: bytes | None
    old_image: bytes | None


_NONE = ItemChange(None, None, None, None)


def read_change(data: bytes) -> ItemChange:
    """Read the data of a record.

    Args:
        data: JSON text with ``eventName`` and ``dynamodb``.
    """
    try:
        record = _RECORD.decode(data)
        images = record.images
        return ItemChange(record.name, _json(images.keys), _json(images.new), _json(images.old))
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, RecursionError):
        return _NONE


def _json(image: _Image | None) -> bytes | None:
    return None if image is None else _encode(_map(image))


def _map(members: _Image) -> dict[str, Any]:
    return {name: _plain(value) for name, value in members.items()}


def _plain(value: dict[str, Any]) -> Any:
    """A value without its type.

    Raises:
        ValueError, TypeError, AttributeError: it is none.
    """
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return _number(content)
        case "NS":
            return [*map(_number, content)]
        case "M":
            return _map(content)
        case "L":
            return [*map(_plain, content)]
        case "NULL":
            return None
        case "S" | "B" | "BOOL" | "SS" | "BS":
            return content
        case _:
            raise ValueError(f"DynamoDB has no type {kind}")


def _number(text: str) -> msgspec.Raw:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("it is no number")
    return msgspec.Raw(text.encode())
