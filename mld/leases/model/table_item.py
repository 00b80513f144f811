"""Items of an application's tables: their kinds, and typed access to their attributes.

Source: EntityType, CoordinatorStateDAODelegate.resolveEntityType (3.5.1).
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kcl_mld.config.reserved_keys import LEADER_KEY, MIGRATION_KEY, TABLE_MIGRATION_KEY
from kcl_mld.errors import MalformedData

if TYPE_CHECKING:
    from collections.abc import Mapping

#: An item, or the content of an ``M``, in DynamoDB JSON.
Item: TypeAlias = "Mapping[str, Mapping[str, Any]]"

T = TypeVar("T")

#: DynamoDB numbers are exact up to 38 digits, and a counter that is read must still be raised by
#: one.
_INTEGER = re.compile(r"-?[0-9]{1,37}\Z")
_MILLIONTH = Decimal("0.000001")

#: Attribute that holds the kind of an item; 3.0 to 3.4 don't write it.
ENTITY_TYPE = "entityType"


class Entity(StrEnum):
    """Kinds of items, with the values of ``entityType``."""

    LEASE = "LEASE"
    LEADER = "LEADER"
    CLIENT_VERSION_MIGRATION = "CLIENT_VERSION_MIGRATION"
    TABLE_MIGRATION = "TABLE_MIGRATION"
    STREAM = "STREAM"
    WORKER_METRIC_STATS = "WORKER_METRIC_STATS"


_BY_KEY = {
    LEADER_KEY: Entity.LEADER,
    MIGRATION_KEY: Entity.CLIENT_VERSION_MIGRATION,
    TABLE_MIGRATION_KEY: Entity.TABLE_MIGRATION,
}


def entity_of(item: Item, key_name: str) -> Entity | None:
    """The kind of an item, by its ``entityType``, else by its key.

    Returns:
        None for an unknown type. An item without a type and without a reserved key is a lease in
        the lease table, and worker metrics in the table of worker metrics (key ``wid``).
    """
    stored = item.get(ENTITY_TYPE, {}).get("S")
    if stored is not None:
        return Entity(stored) if stored in Entity.__members__ else None
    by_key = _BY_KEY.get(str(item.get(key_name, {}).get("S", "")))
    if by_key is not None:
        return by_key
    return {"leaseKey": Entity.LEASE, "wid": Entity.WORKER_METRIC_STATS}.get(key_name)


def value_of(item: Item, name: str, kind: str) -> Any:
    """The content of an attribute of type ``kind``, None when it is absent or NULL.

    Raises:
        MalformedData: it has another type.
    """
    attribute = item.get(name)
    if attribute is None:
        return None
    if kind in attribute:
        return attribute[kind]
    if "NULL" in attribute:
        return None
    raise MalformedData(f"{name} is of type {'/'.join(attribute)}, not {kind}")


def text_of(item: Item, name: str) -> str | None:
    """A string (``S``); raises as :func:`value_of`."""
    value = value_of(item, name, "S")
    return None if value is None else str(value)


def integer_of(item: Item, name: str) -> int | None:
    """A number (``N``) that Java reads as a Long.

    Raises:
        MalformedData: another type, a number like ``1.0``, or one of more than 37 digits.
    """
    value = value_of(item, name, "N")
    if value is None:
        return None
    if not _INTEGER.match(str(value)):
        raise MalformedData(f"{name} is {value!r:.60}, not an integer of at most 37 digits")
    return int(value)


def decimal_of(item: Item, name: str) -> float | None:
    """A number (``N``) that Java reads as a Double; raises as :func:`integer_of`."""
    value = value_of(item, name, "N")
    try:
        return None if value is None else float(value)
    except ValueError:
        raise MalformedData(f"{name} is {value!r:.60}, not a number") from None


def texts_of(item: Item, name: str) -> tuple[str, ...]:
    """A string set (``SS``), sorted; raises as :func:`value_of`."""
    return tuple(sorted(map(str, value_of(item, name, "SS") or ())))


def required(value: T | None, name: str) -> T:
    """The value of a mandatory attribute.

    Raises:
        MalformedData: it is absent.
    """
    if value is None:
        raise MalformedData(f"{name} is missing")
    return value


def integer(value: int) -> dict[str, str]:
    """An ``N`` that Java's Long accepts."""
    return {"N": str(value)}


def rounded(value: float) -> float:
    """A finite number with at most six decimals, rounded half up as Java's BigDecimal."""
    return float(Decimal(repr(value)).quantize(_MILLIONTH, ROUND_HALF_UP))


def decimal(value: float) -> dict[str, str]:
    """An ``N`` with at most six decimals.

    Java sends ``1.0E-6``; DynamoDB returns either notation as ``0.000001``.
    """
    text = f"{Decimal(repr(value)).quantize(_MILLIONTH, ROUND_HALF_UP):f}"
    return {"N": text.rstrip("0").rstrip(".")}
