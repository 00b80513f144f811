"""One version of a Delta table, and what can be done on exactly that version.

A commit is made on the very object whose marks were compared. A refresh in between would make
others' commits known to it, and then they are no conflict. An exception says nothing about the
commit: it may stand. See :mod:`kcl_mld.spark.table.delta_log`, which gives such objects out.

The numbers of its application ids are read from the log's newest entries. delta-rs looks for each
id in the log anew, entry by entry: a commit of 16 shards took 12 ms after a log checkpoint, and 45
ms a hundred commits later. What an entry says of an id holds until a later entry names it, so who
knows the numbers of one version needs only the entries since. They are read for exactly the version
that a commit is made on, so comparing them is what it was: a fence.

See "Transaction Identifiers" in the Delta transaction log protocol.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from kcl_mld.spark.errors import MissingPart
from kcl_mld.spark.table.rules import fields_in, index_property, ranged_columns

try:
    import deltalake
    from deltalake import (
        ColumnProperties,
        CommitProperties,
        DeltaTable,
        PostCommitHookProperties,
        Transaction,
        WriterProperties,
    )
    from deltalake.transaction import AddAction
except ImportError as missing:  # pragma: no cover - the tests have it
    raise MissingPart("deltalake is missing: pip install 'kcl-mld[spark]'") from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa
    from deltalake.transaction import RemoveAction

    from kcl_mld.spark.table.data_files import DataFile

#: Beyond so many entries delta-rs is asked again, which reads a log checkpoint.
MOST_ENTRIES = 50
_log = logging.getLogger("mld.spark")
#: The directory of a table's log.
LOG = "_delta_log"
#: What may follow a commit is done apart from it.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def entry_name(version: int) -> str:
    """Where the log's entry of a version lies, from the table on."""
    return f"{LOG}/{version:020}.json"


class Overtaken(Exception):
    """Another commit has the version that this one was for; what it says is known now."""


def actions_in(text: str) -> list[dict[str, Any]]:
    """The lines of an entry.

    Raises:
        ValueError: one of them is no JSON object.
    """
    actions = [json.loads(line) for line in text.split("\n") if line.strip()]
    if not all(isinstance(each, dict) for each in actions):
        raise ValueError("a line is no JSON object")
    return actions


def numbers_in(text: str) -> dict[str, int] | None:
    """The numbers of application ids; None if the entry can't be understood."""
    found: dict[str, int] = {}
    try:
        for action in actions_in(text):
            if (transaction := action.get("txn")) is not None:
                found[str(transaction["appId"])] = int(transaction["version"])
    except (ValueError, KeyError, TypeError):
        return None
    return found


def information_in(text: str) -> dict[str, Any]:
    """What the writer says of the commit (``commitInfo``); empty if nothing can be understood."""
    try:
        found = [each.get("commitInfo") for each in actions_in(text)]
    except ValueError:
        return {}
    return next((each for each in found if isinstance(each, dict)), {})


def is_restore(text: str) -> bool:
    """Whether the commit was a RESTORE; False for what can't be understood."""
    return information_in(text).get("operation") == "RESTORE"


class AppNumbers:
    """Numbers of one table as of one version; used by one thread."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._known: dict[str, int | None] = {}

    def get(self, application_id: str, ask: Callable[[str], int | None]) -> int | None:
        """The newest number of an id in this version; None if there is none.

        Args:
            ask: finds it in the same version of the table.
        """
        if application_id not in self._known:
            self._known[application_id] = ask(application_id)
        return self._known[application_id]

    def advance(self, version: int, entry: Callable[[int], str | None]) -> None:
        """Make them those of a later version.

        Args:
            version: of the same table. If it is an earlier one nothing is known any more.
            entry: the text of the log's entry of a version; None if it is not there any more.

        Raises:
            OSError: an entry can't be read.
        """
        known, self._known = self._known, {}  # of no version, until all entries are read
        since, self._version = self._version, version
        if not known or not 0 <= version - since <= MOST_ENTRIES:
            return
        for number in range(since + 1, version + 1):
            if (text := entry(number)) is None or (found := numbers_in(text)) is None:
                return
            known |= found
        self._known = known


class Snapshot:
    """A table at one version. Used by one thread; a commit on it is the last thing done with it."""

    def __init__(
        self,
        table: DeltaTable,
        entry: Callable[[int], str | None],
        numbers: AppNumbers | None = None,
        opened_at: int | None = None,
    ) -> None:
        """Look at what a table says of itself.

        Args:
            table: the object, as it is now.
            entry: the text of the log's entry of a version; None if it is not there any more.
            numbers: of this very version; None = nothing is known of them.
            opened_at: the version at which it was opened; None = this one.
        """
        self._entry = entry
        self.table = table
        self.is_sound = True
        #: True once the last commit on it is known to stand.
        self.stands = False
        self.version = table.version()
        self.opened_at = self.version if opened_at is None else opened_at
        self.numbers = numbers or AppNumbers(self.version)
        metadata = table.metadata()
        self.table_id = str(metadata.id)
        self.configuration: dict[str, str] = dict(metadata.configuration)
        self.partitions: list[str] = list(metadata.partition_columns)
        self.features: list[str] = list(table.protocol().writer_features or ())
        self.schema: str = table.schema().to_json()

    @property
    def fields(self) -> list[dict[str, Any]]:
        """Of the table's schema."""
        return fields_in(self.schema)

    def number_of(self, application_id: str) -> int | None:
        """The newest number of an application id; None if there is none."""
        return self.numbers.get(application_id, self.table.transaction_version)

    def still_has(self, application_id: str) -> bool:
        """Whether readers still find a number of the id: a log checkpoint may have dropped it."""
        return self.table.transaction_version(application_id) is not None

    def commit(self, files: Iterable[DataFile], transactions: Mapping[str, int]) -> None:
        """One commit on exactly this version; it may stand although this raises.

        Args:
            files: appended.
            transactions: numbers by application id.
        """
        adds: list[AddAction | RemoveAction] = [
            AddAction(
                path=file.path,
                size=file.size,
                partition_values=file.partition_values,
                modification_time=file.modified_ms,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        self.is_sound = False  # after an exception it is opened anew
        self.table.create_write_transaction(
            adds,
            "append",
            self.table.schema(),
            partition_by=self.partitions,
            commit_properties=with_numbers(transactions),
            post_commithook_properties=NO_HOOKS,
        )
        self.is_sound = True

    def merge(
        self,
        rows: pa.RecordBatchReader,
        *,
        on: str,
        columns: Mapping[str, str],
        newer: str | None,
        updates: bool,
        transactions: Mapping[str, int],
    ) -> None:
        """One MERGE of rows into exactly this version; it may stand although this raises.

        delta-rs commits nothing if no row is changed; then the numbers are committed alone.

        Args:
            rows: the source ``s`` of the table ``t``; read once, and held by delta-rs, which
                looks in the table only at files whose keys are in their range.
            on: condition of a match.
            columns: what is written into each column.
            newer: further condition of an update.
            updates: False = what matches stays as it is.
            transactions: numbers by application id.
        """
        self.is_sound = False
        merger = self.table.merge(
            rows,
            on,
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            writer_properties=writer_properties(self.fields),
            commit_properties=with_numbers(transactions),
            post_commithook_properties=NO_HOOKS,
        )
        if updates:
            merger = merger.when_matched_update(dict(columns), predicate=newer)
        found = merger.when_not_matched_insert(dict(columns)).execute()
        if not found["num_target_files_added"] and not found["num_target_files_removed"]:
            self.commit((), transactions)

    def sets_index(self) -> bool:
        """Set the property by which delta-rs writes no wrong ranges; False if that is not needed."""
        found = index_property(self.configuration, self.fields, self.partitions)
        if found is not None:
            _log.info("%s: the table property %s becomes %r", self.table.table_uri, *found)
            self.set_property(*found, {})
        return found is not None

    def set_property(self, name: str, text: str, transactions: Mapping[str, int]) -> None:
        """Set one table property and write numbers, in one step."""
        self.is_sound = False
        self.table.alter.set_table_properties(
            {name: text},
            raise_if_not_exists=False,
            commit_properties=with_numbers(transactions),
            post_commithook_properties=NO_HOOKS,
        )

    def add_columns(self, fields: Sequence[Mapping[str, Any]]) -> None:
        """Add columns at the end of the schema."""
        self.is_sound = False
        added = deltalake.Schema.from_json(json.dumps({"type": "struct", "fields": list(fields)}))
        self.table.alter.add_columns(added.fields, post_commithook_properties=NO_HOOKS)

    def restored_after(self, version: int) -> bool:
        """True if a RESTORE is among the commits after a version.

        Of those of which the log has no entry any more that is not known; a warning says so.
        """
        gone = []
        for number in range(version + 1, self.version + 1):
            if (text := self._entry(number)) is None:
                gone.append(number)
            elif is_restore(text):
                return True
        if gone:
            _log.warning(
                "%s: its log no longer has the commits %d to %d; if one of them was a RESTORE, rows "
                "are missing: see kcl-mld-spark history, and choose a new spark.sink.epoch then",
                self.table.table_uri,
                gone[0],
                gone[-1],
            )
        return False

    def live_paths(self) -> set[str]:
        """Paths of the table's files below its directory."""
        column = self.table.get_add_actions(flatten=True).column("path")
        return {str(each) for each in column.to_pylist()}


def writer_properties(fields: Sequence[Mapping[str, Any]]) -> WriterProperties:
    """How delta-rs writes files of a table, whose fields these are."""
    ranged = ColumnProperties(statistics_enabled="PAGE")
    return WriterProperties(
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties=dict.fromkeys(ranged_columns(fields), ranged),
    )


def with_numbers(
    transactions: Mapping[str, int], most_retries: int | None = None
) -> CommitProperties:
    """What makes a commit write numbers of application ids.

    Args:
        transactions: numbers by application id.
        most_retries: behind other commits that came between; None = as delta-rs does.
    """
    numbers = [Transaction(name, number) for name, number in transactions.items()]
    return CommitProperties(app_transactions=numbers, max_commit_retries=most_retries)
