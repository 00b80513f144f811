"""One DynamoDB table: items, indexes, states that take time, and what old reads may still see."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from tests.fakes.items import item_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fakes.items import Item

Key = tuple[Any, ...]


@lru_cache(maxsize=4096)
def key_hash(key: Key) -> int:
    """Where a key lies in the order of a scan: scattered, but the same in every run."""
    return int.from_bytes(hashlib.md5(repr(key).encode()).digest()[:8], "big")


@dataclass
class Table:
    """A table and everything in it.

    ``history`` holds, per key, earlier states as (time of the change, item before it), oldest
    first, as far back as an eventually consistent read may look.
    """

    name: str
    arn: str
    key_schema: list[dict[str, str]]
    attributes: list[dict[str, str]]
    created_s: float
    active_s: float
    on_demand: bool
    capacity: dict[str, int]
    is_protected: bool = False
    has_backups: bool = False
    tags: list[dict[str, str]] = field(default_factory=list)
    indexes: dict[str, dict[str, Any]] = field(default_factory=dict)
    table_id: str = ""
    items: dict[Key, Item] = field(default_factory=dict)
    history: dict[Key, list[tuple[float, Item | None]]] = field(default_factory=dict)
    #: No item that was ever in it was larger.
    largest_bytes: int = 0
    _order: list[Key] | None = None

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Key attributes, the hash key first."""
        return names_of(self.key_schema)

    def key_of(self, item: Item) -> Key:
        """The primary key of an item that has one."""
        return tuple(next(iter(item[name].items())) for name in self.key_names)

    def key_item(self, key: Key) -> Item:
        """A primary key as the service shows it."""
        return {
            name: {kind: content} for name, (kind, content) in zip(self.key_names, key, strict=True)
        }

    def store(self, key: Key, item: Item | None, now_s: float, keep_s: float) -> None:
        """Write or (None) delete, keeping the earlier state for ``keep_s`` seconds."""
        before = self.items.get(key)
        if keep_s > 0:
            past = self.history.setdefault(key, [])
            past.append((now_s, before))
            while past[0][0] < now_s - keep_s:
                past.pop(0)
        if item is None:
            self.items.pop(key, None)
        else:
            self.items[key] = item
            self.largest_bytes = max(self.largest_bytes, item_size(item))
        if (before is None) != (item is None):
            self._order = None

    def as_of(self, key: Key, time_s: float) -> Item | None:
        """The item as it was at ``time_s``."""
        for changed_s, before in self.history.get(key, ()):
            if changed_s > time_s:
                return before
        return self.items.get(key)

    def scan_order(self, *, with_history: bool) -> list[Key]:
        """All keys in the order of a scan, on request with those deleted lately."""
        if self._order is None:
            self._order = sorted(self.items, key=key_hash)
        if not with_history or self.history.keys() <= self.items.keys():
            return self._order
        return sorted(self.items.keys() | self.history.keys(), key=key_hash)

    def describe(self, now_s: float) -> dict[str, Any]:
        """The table as DescribeTable shows it, times as epoch seconds."""
        shown: dict[str, Any] = {
            "TableName": self.name,
            "TableArn": self.arn,
            "TableId": self.table_id,
            "TableStatus": "ACTIVE" if now_s >= self.active_s else "CREATING",
            "CreationDateTime": self.created_s,
            "KeySchema": self.key_schema,
            "AttributeDefinitions": self.attributes,
            "ItemCount": len(self.items),
            "TableSizeBytes": 0,
            "ProvisionedThroughput": {"NumberOfDecreasesToday": 0, **self.capacity},
            "DeletionProtectionEnabled": self.is_protected,
        }
        if self.on_demand:
            shown["BillingModeSummary"] = {"BillingMode": "PAY_PER_REQUEST"}
        if self.indexes:
            shown["GlobalSecondaryIndexes"] = [
                _index_shown(index, now_s) for index in self.indexes.values()
            ]
        return shown

    def add_index(self, definition: dict[str, Any], active_s: float) -> None:
        """Add a global secondary index that becomes ACTIVE at ``active_s``."""
        self.indexes[definition["IndexName"]] = {**definition, "active_s": active_s}


def _index_shown(index: dict[str, Any], now_s: float) -> dict[str, Any]:
    shown = {name: value for name, value in index.items() if name != "active_s"}
    shown["IndexStatus"] = "ACTIVE" if now_s >= index["active_s"] else "CREATING"
    return shown


def names_of(key_schema: Iterable[dict[str, str]]) -> tuple[str, ...]:
    """Attribute names of a key schema, the hash key first."""
    schema = sorted(key_schema, key=lambda entry: entry["KeyType"])
    return tuple(entry["AttributeName"] for entry in schema)
