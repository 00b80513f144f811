"""The tables of one account, and whoever watches what is written to them.

Errors are those of ``kcl_mld.errors``. The service's own checks are kept where a mistake of the daemon
could trip over them: types, keys, empty sets, unused placeholders.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import NotFound, ServiceError
from tests.fakes.dynamodb_reads import READS
from tests.fakes.dynamodb_tables import TABLE_OPERATIONS
from tests.fakes.dynamodb_transactions import TRANSACTIONS
from tests.fakes.dynamodb_writes import WRITES
from tests.fakes.expressions import InvalidExpression
from tests.fakes.items import InvalidValue, Item, copy_item

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fakes.tables import Key, Table

_OPERATIONS = TABLE_OPERATIONS | READS | WRITES | TRANSACTIONS
_NO_TABLE = "Requested resource not found"


@dataclass(frozen=True)
class Write:
    """One item changed: what a judge of the table sees."""

    time_s: float
    operation: str
    table: str
    before: Item | None
    after: Item | None
    request: Mapping[str, Any]


@dataclass(kw_only=True)
class DynamoDbSettings:
    """How the model behaves where the service leaves room.

    Attributes:
        create_s: seconds for which a new table or index is CREATING.
        max_lag_s: how old an eventually consistent read may be.
        stale_probability: 0 to 1; how often such a read is old at all.
        page_items: most items that a page of Scan or Query looks at, besides 1 MB.
    """

    create_s: float = 0.0
    max_lag_s: float = 0.0
    stale_probability: float = 0.0
    page_items: int | None = None


class DynamoDbModel:
    """Tables of one account in one region.

    Args:
        clock: epoch seconds.
        rng: decides which eventually consistent reads are old.
        settings: behavior; its fields may be changed at any time.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        rng: random.Random | None = None,
        settings: DynamoDbSettings | None = None,
    ) -> None:
        self.tables: dict[str, Table] = {}
        self.settings = settings or DynamoDbSettings()
        #: Called after every change of an item.
        self.observers: list[Callable[[Write], None]] = []
        self.now = clock
        self.rng = rng or random.Random(0)
        #: Tokens of transactions that were done: when, and what they asked for.
        self.tokens: dict[str, tuple[float, list[dict[str, Any]]]] = {}
        self._created = 0

    def new_table_id(self) -> str:
        """Tells a table from an earlier one of the same name."""
        self._created += 1
        return f"table-{self._created}"

    def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an operation.

        Raises:
            ConditionFailed: the item is not as the condition wants it.
            NotFound: no such table, or it is still being created.
            InUse: the table or index exists already or is busy.
            ServiceError: ``ValidationException`` for a request that the service refuses.
        """
        try:
            return _OPERATIONS[operation](self, dict(request))
        except (InvalidValue, InvalidExpression) as error:
            raise ServiceError(operation, "ValidationException", str(error)) from error

    def items(self, table: str) -> list[Item]:
        """All items of a table in order of their keys, for judges and tests."""
        found = self.tables[table]
        return [copy_item(found.items[key]) for key in sorted(found.items)]

    def table(self, operation: str, request: dict[str, Any], *, active: bool = True) -> Table:
        """The table that a request names.

        Raises:
            NotFound: there is none, or (with ``active``) it is still being created.
        """
        table = self.tables.get(request["TableName"])
        if table is None or (active and self.now() < table.active_s):
            raise NotFound(operation, "ResourceNotFoundException", _NO_TABLE)
        return table

    def store(
        self, operation: str, table: Table, key: Key, new: Item | None, request: dict[str, Any]
    ) -> None:
        """Write an item or (None) delete it, and tell whoever watches."""
        before = table.items.get(key)
        now_s = self.now()
        table.store(key, new, now_s, self.settings.max_lag_s)
        if self.observers:
            write = Write(now_s, operation, table.name, before, new, request)
            for observer in self.observers:
                observer(write)
