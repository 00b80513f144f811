"""Whether a table's marks can be trusted: its epoch's beginning, and that it was not set back.

The beginning is kept twice: as a property, which a RESTORE takes back, and as an application
transaction, which it keeps but a retention time drops. What remains of the two tells what was done.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.table.marks import (
    EpochState,
    epoch_state,
    is_set_back,
    output_id,
    output_property,
)
from kcl_mld.spark.table.rules import refused_features, refused_table, refused_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.spark.table.snapshot import Snapshot

#: What records the beginning, as a property and as a transaction: the oldest one, which goes first.
_BEGUN, BEGIN = "epoch", "begin"
#: What records how far the table's commits were looked through for a RESTORE, as both.
_SEEN = "seen"
#: Commits between two witnesses of what was looked through for a RESTORE.
WITNESS_EVERY = 100
#: What an operator can do about marks that can't be trusted any more.
NEW_EPOCH = "choose a new spark.sink.epoch, which goes on behind the checkpoints"
_RESTORED = (
    "rows are gone whose marks are still there. Stop all workers; kcl-mld-spark new-epoch TABLE WORD "
    f"goes on behind the rows that are there. Or {NEW_EPOCH}, without the rows that are gone"
)


_NONE: Mapping[str, int] = MappingProxyType({})


def epochs_of(application: str, configuration: Mapping[str, str]) -> list[str]:
    """The epochs of an application that a table knows, in the order in which they began."""
    prefix = output_property(application, "", _BEGUN)
    begun = {
        int(json.loads(text)["version"]): unquote(name.removeprefix(prefix))
        for name, text in configuration.items()
        if name.startswith(prefix)
    }
    return [begun[version] for version in sorted(begun)]


class TableEpoch:
    """The epoch of one application's output in one table."""

    def __init__(self, name: str, application: str, epoch: str) -> None:
        self._name = name
        self._property = output_property(application, epoch, _BEGUN)
        self._begin = output_id(application, epoch, BEGIN)
        self._witness_property = output_property(application, epoch, _SEEN)
        self._witness = output_id(application, epoch, _SEEN)
        self._table_id = ""
        self._seen = -1

    @property
    def seen_version(self) -> int:
        """The newest version of the table that was checked; -1 = none."""
        return self._seen

    def state(self, table: Snapshot) -> EpochState:
        """What the table says of the epoch's beginning."""
        has_transaction = table.still_has(self._begin)
        has_property = self._property in table.configuration
        return epoch_state(has_property=has_property, has_transaction=has_transaction)

    def of_new_table(self) -> tuple[dict[str, str], dict[str, int]]:
        """Properties and transactions with which a new table begins."""
        return {self._property: json.dumps({"version": 0})}, {self._begin: 1}

    def is_known(self, table: Snapshot) -> bool:
        """True if it has begun once, whatever was done to the table since."""
        return self.state(table) is not EpochState.NEW

    def begin(self, table: Snapshot, marks: Mapping[str, int] = _NONE) -> None:
        """Record the beginning in a table that is there; it may stand although this raises.

        Args:
            marks: with which its shards begin; numbers by application id.
        """
        beginning = json.dumps({"version": table.version, "table": table.table_id})
        table.set_property(self._property, beginning, {self._begin: 1, **marks})

    def is_witness_due(self, table: Snapshot) -> bool:
        """True if many commits would have to be looked through again by the next process."""
        return table.version - self._looked_through(table) >= WITNESS_EVERY

    def testify(self, table: Snapshot) -> None:
        """Record up to where no commit is a RESTORE; it may stand although this raises."""
        number = table.version
        table.set_property(self._witness_property, str(number), {self._witness: number})

    def check(self, table: Snapshot) -> None:
        """See that the table may be written, and that its marks can be trusted.

        Raises:
            SinkRefused: it may not, or they can't.
        """
        why = refused_features(table.features)
        why = why or refused_table(table.configuration, table.fields) or refused_type(table.fields)
        if not why and self._table_id and table.table_id != self._table_id:
            why = f"it is another table now (id {table.table_id}); {NEW_EPOCH}"
        if not why:
            why = self._refusal(table)
        if why:
            raise SinkRefused(f"{self._name} can't be written: {why}")
        self._table_id = table.table_id
        self._seen = max(self._seen, table.version)

    def _looked_through(self, table: Snapshot) -> int:
        """The version up to which the table's commits need no second look for a RESTORE."""
        found = table.configuration.get(self._property)
        begun = 0 if found is None else int(json.loads(found)["version"])
        return max(begun, table.number_of(self._witness) or 0, self._seen)

    def _refusal(self, table: Snapshot) -> str:
        """Why its marks can't be trusted; empty = they can."""
        state = self.state(table)
        if state is EpochState.MARKS_DROPPED:
            return (
                "the marks that say how far each shard has come were dropped from its log (was "
                f"delta.setTransactionRetentionDuration set?); {NEW_EPOCH}"
            )
        text = table.configuration.get(self._witness_property)
        if state is EpochState.SET_BACK or is_set_back(text, table.number_of(self._witness)):
            return f"it was restored or replaced: {_RESTORED}"
        if state is EpochState.BEGUN and table.restored_after(self._looked_through(table)):
            return f"it was restored to an earlier version: {_RESTORED}"
        return ""
